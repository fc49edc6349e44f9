//! The network between HQ and the terminals: what is late, comes twice, in another order or not at all. And the witness that hears
//! every answer HQ gives to a report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fanfold_ledger::memory::Network;
use fanfold_ledger::port::BusMessage;
use fanfold_process::clock::Clock;
use fanfold_tests::world::EPOCH_MS;
use fanfold_wire::terminal::ReportAnswer;

use super::chance::Chance;
use super::coverage::fault;
use super::trace;

/// Longest way of a message, in ms.
const LATE_MS_MAX: u64 = 3_000;

/// A request with reports and what HQ answered to it.
#[derive(Debug, Clone)]
pub struct Answered {
    pub terminal: String,
    pub request: Bytes,
    pub answer: ReportAnswer,
    /// When HQ sent it, ms since the history began.
    pub at_ms: u64,
}

/// The weather and the witness.
pub struct Weather {
    chance: Chance,
    clock: Clock,
    /// How many messages of a thousand are late, come twice, get lost; `None`: all is well.
    pub permille: Option<(u64, u64, u64)>,
    /// When the last message on its way arrives, by kind and terminal, epoch ms.
    arrives_ms: BTreeMap<(&'static str, String), i64>,
    /// Requests with reports by where they are answered.
    reports: BTreeMap<String, (String, Bytes)>,
    /// Syncs by where they are answered.
    syncs: BTreeMap<String, String>,
    pub answered: Vec<Answered>,
}

/// Late, twice, out of order, lost.
type Names = [&'static str; 4];

const COMMAND: Names =
    ["delivery: command late", "delivery: command twice", "delivery: command out of order", "delivery: command lost"];
const REPORT: Names =
    ["delivery: report late", "delivery: report twice", "delivery: report out of order", "delivery: report lost"];
const SYNC: Names = ["delivery: sync late", "delivery: sync twice", "delivery: sync out of order", "delivery: sync lost"];
const BEAT: Names = ["delivery: beat late", "delivery: beat twice", "delivery: beat out of order", "delivery: beat lost"];
const ANSWER: Names =
    ["delivery: answer late", "delivery: answer twice", "delivery: answer out of order", "delivery: answer lost"];

impl Weather {
    pub fn new(seed: u64, clock: &Clock) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            chance: Chance::of(seed, 2),
            clock: clock.clone(),
            permille: None,
            arrives_ms: BTreeMap::new(),
            reports: BTreeMap::new(),
            syncs: BTreeMap::new(),
            answered: Vec::new(),
        }))
    }

    /// What kind of message this is, and which terminal's; the rest of the traffic is HQ's own.
    fn names(&mut self, message: &BusMessage) -> Option<(&'static Names, String)> {
        let subject = message.subject.as_str();
        let id = |prefix: &str| subject.strip_prefix(prefix).map(str::to_owned);
        if let Some(command) = id("ff.cmd.") {
            return Some((&COMMAND, command.split('.').next().unwrap_or("").to_owned()));
        }
        if let Some(terminal) = id("ff.report.") {
            if let Some(reply) = &message.reply {
                self.reports.insert(reply.clone(), (terminal.clone(), message.payload.clone()));
            }
            return Some((&REPORT, terminal));
        }
        if let Some(terminal) = id("ff.sync.") {
            if let Some(reply) = &message.reply {
                self.syncs.insert(reply.clone(), terminal.clone());
            }
            return Some((&SYNC, terminal));
        }
        if let Some(terminal) = id("ff.beat.") {
            return Some((&BEAT, terminal));
        }
        if let Some((terminal, request)) = self.reports.get(subject) {
            if let Ok(answer) = serde_json::from_slice::<ReportAnswer>(&message.payload) {
                let at_ms = u64::try_from(self.clock.now_ms() - EPOCH_MS).unwrap_or(0);
                self.answered.push(Answered { terminal: terminal.clone(), request: request.clone(), answer, at_ms });
            }
            return Some((&ANSWER, terminal.clone()));
        }
        self.syncs.get(subject).map(|terminal| (&ANSWER, terminal.clone()))
    }

    fn say(&self, message: &BusMessage, delays_ms: &[u64]) {
        let beat = message.subject.starts_with("ff.beat.") || message.subject.starts_with("ff.lead.");
        if beat && delays_ms == [0] {
            return;
        }
        trace::say("bus", || {
            let text = String::from_utf8_lossy(&message.payload);
            let shown: String = text.chars().take(if message.subject.starts_with("ff.cmd.") { 0 } else { 220 }).collect();
            let to = message.reply.as_deref().map(|r| format!(" (answer to {r})")).unwrap_or_default();
            format!(
                "{}{to} {} {shown}",
                message.subject,
                if delays_ms == [0] { String::new() } else { format!("{delays_ms:?} ms") }
            )
        });
    }

    fn delays_ms(&mut self, message: &BusMessage) -> Vec<u64> {
        let Some((names, terminal)) = self.names(message) else { return vec![0] };
        let Some((late, twice, lost)) = self.permille else { return vec![0] };
        let draw = self.chance.below(1_000);
        if draw < lost {
            fault(names[3]);
            return Vec::new();
        }
        let mut delays_ms = vec![0];
        if draw < lost + late {
            delays_ms[0] = self.chance.between(1, LATE_MS_MAX);
            fault(names[0]);
        }
        if self.chance.below(1_000) < twice {
            delays_ms.push(self.chance.below(LATE_MS_MAX));
            fault(names[1]);
        }
        let arrives_ms = self.clock.now_ms() + delays_ms[0] as i64;
        let last_ms = self.arrives_ms.entry((names[0], terminal)).or_default();
        if arrives_ms < *last_ms {
            fault(names[2]);
        }
        *last_ms = (*last_ms).max(arrives_ms);
        delays_ms
    }
}

/// The network that has this weather.
pub fn network(weather: &Arc<Mutex<Weather>>) -> Network {
    let weather = Arc::clone(weather);
    Arc::new(move |message| {
        let mut weather = weather.lock().unwrap();
        let delays_ms = weather.delays_ms(message);
        weather.say(message, &delays_ms);
        delays_ms
    })
}
