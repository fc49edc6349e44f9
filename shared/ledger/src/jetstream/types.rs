//! Task types: a stream of their own, one subject a version, written once.

use async_nats::HeaderMap;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};

use super::JetStreamLedger;
use super::api::ApiError;
use super::append::retry_or_refused;
use crate::port::{LedgerError, Types};
use crate::subject;

/// Name of the stream of task types.
pub(super) const TYPES: &str = "FANFOLD_TYPES";
/// Subjects of all of them.
const EVERY: &str = "ff.type.*.*";

#[async_trait]
impl Types for JetStreamLedger {
    async fn create_type(&self, name: &str, version: u32, document: Bytes) -> Result<Option<Bytes>, LedgerError> {
        let subject = type_subject(name, version)?;
        let budget = self.budget();
        let mut in_doubt = false;
        loop {
            let mut headers = HeaderMap::new();
            // Zero means "must not exist yet": a type is never overwritten.
            headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
            let timeout = self.timeout(document.len());
            let failure = match self.publish_acked(subject.clone(), headers, document.clone(), timeout).await {
                Ok(_) => return Ok(None),
                Err(failure) => failure,
            };
            match retry_or_refused(failure)? {
                std::ops::ControlFlow::Continue(reason) => {
                    in_doubt = true;
                    budget.pause(&reason).await?;
                }
                std::ops::ControlFlow::Break(error) if error.is_conflict() => {
                    let existing = self.get_type(name, version).await?;
                    // After a time without an answer, the same document there is most likely the one just sent.
                    return Ok(existing.filter(|existing| !(in_doubt && *existing == document)));
                }
                std::ops::ControlFlow::Break(error) => return Err(ApiError::into_error(error)),
            }
        }
    }

    async fn get_type(&self, name: &str, version: u32) -> Result<Option<Bytes>, LedgerError> {
        let subject = type_subject(name, version)?;
        Ok(self.leader_last(TYPES, &subject, self.budget()).await?.map(|message| message.payload))
    }

    async fn list_types(&self) -> Result<Vec<(String, u32, Bytes)>, LedgerError> {
        let last_seq = self.stream_last_seq(TYPES).await?;
        let mut messages = self.read_stream(TYPES, vec![EVERY.into()], 1, last_seq).await?;
        let mut types = Vec::new();
        while let Some(message) = messages.next().await {
            let message = message?;
            let (name, version) = named(&message.subject)?;
            types.push((name, version, message.payload));
        }
        types.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        Ok(types)
    }

    async fn lost_types(&self) -> Result<Vec<(String, u32)>, LedgerError> {
        // Where the server finds all that it counts it is not asked for names.
        let there = self.list_types().await?;
        let number = |info: &Value| info.pointer("/state/messages").and_then(Value::as_u64).unwrap_or(0);
        if number(&self.stream_info(TYPES, &json!({})).await?) <= there.len() as u64 {
            return Ok(Vec::new());
        }
        let info = self.stream_info(TYPES, &json!({ "subjects_filter": EVERY })).await?;
        let subjects = info.pointer("/state/subjects").and_then(Value::as_object);
        let counted: Result<Vec<_>, _> = subjects.into_iter().flatten().map(|(subject, _)| named(subject)).collect();
        let mut lost = counted?;
        lost.retain(|(name, version)| !there.iter().any(|(n, v, _)| n == name && v == version));
        lost.sort_unstable();
        Ok(lost)
    }
}

/// Name and version in a subject.
fn named(subject: &str) -> Result<(String, u32), LedgerError> {
    let mut tokens = subject.split('.').skip(2);
    match (tokens.next(), tokens.next().and_then(|version| version.parse().ok())) {
        (Some(name), Some(version)) => Ok((name.to_owned(), version)),
        _ => Err(LedgerError::Corrupt(format!("{subject} is no type's subject"))),
    }
}

fn type_subject(name: &str, version: u32) -> Result<String, LedgerError> {
    if name.contains('.') || !subject::is_publishable(name) {
        return Err(LedgerError::Other(format!("{name:?} is not the name of a type: one token without dots, blanks, * and >")));
    }
    Ok(format!("ff.type.{name}.{version}"))
}
