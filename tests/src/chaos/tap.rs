//! A listener on the wire: which report was answered how. It knows nothing of the terminal library, and what it misses while the server
//! is away it does not judge.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::ConnectOptions;
use fanfold_wire::terminal::{ReportAnswer, ReportStatus, split_batch};
use futures::StreamExt;
use serde_json::Value;

/// An answer somebody was given.
#[derive(Debug, Clone)]
pub struct Answered {
    /// Id of the report.
    pub id: String,
    /// What became of it.
    pub status: ReportStatus,
    /// Its place in the log.
    pub seq: Option<u64>,
    /// Why it was refused.
    pub code: Option<String>,
}

/// The listener; it ends with the connection.
#[derive(Clone, Default)]
pub struct Tap {
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    asked: HashMap<String, Vec<String>>,
    answered: Vec<Answered>,
}

fn ids(payload: &[u8]) -> Vec<String> {
    let id = |report: &&serde_json::value::RawValue| {
        let value: Value = serde_json::from_str(report.get()).unwrap_or_default();
        value.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    split_batch(payload).unwrap_or_default().iter().map(id).collect()
}

impl Tap {
    /// Listens from now on.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn start(url: &str) -> Self {
        let options = ConnectOptions::new().name("chaos-tap").ping_interval(std::time::Duration::from_secs(2));
        let client = options.connect(url).await.expect("a server");
        let tap = Self::default();
        let mut reports = client.subscribe("ff.report.*").await.expect("a subscription");
        let mut answers = client.subscribe("_INBOX.>").await.expect("a subscription");
        client.flush().await.expect("a server");
        let heard = Arc::clone(&tap.heard);
        tokio::spawn(async move {
            // One connection, so a report is heard before its answer; `biased` keeps it so here.
            loop {
                tokio::select! {
                    biased;
                    Some(report) = reports.next() => {
                        let Some(reply) = report.reply else { continue };
                        heard.lock().unwrap_or_else(PoisonError::into_inner).asked.insert(reply.to_string(), ids(&report.payload));
                    }
                    Some(answer) = answers.next() => {
                        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                        if let Some(ids) = heard.asked.remove(answer.subject.as_str()) {
                            heard.take(&ids, &answer.payload);
                        }
                    }
                    else => return,
                }
            }
        });
        tap
    }

    /// Every answer heard.
    pub fn answered(&self) -> Vec<Answered> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).answered.clone()
    }
}

impl Heard {
    fn take(&mut self, ids: &[String], payload: &[u8]) {
        let Ok(answer) = serde_json::from_slice::<ReportAnswer>(payload) else { return };
        for result in answer.answers {
            let Some(id) = ids.get(result.index as usize) else { continue };
            self.answered.push(Answered { id: id.clone(), status: result.status, seq: result.seq, code: result.code });
        }
    }
}
