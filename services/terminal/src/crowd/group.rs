//! All terminals of one connection, driven by one loop.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fanfold_sdk::connection::Connection;
use fanfold_sdk::holds::{RunOrder, SyncNext};
use fanfold_sdk::transport::Incoming;
use fanfold_sdk::wire::domain::ids::TerminalId;
use fanfold_sdk::wire::terminal::{ReportAnswer, SyncAnswer};
use fanfold_sdk::wire::{strict, subjects};
use fanfold_sdk::{Chance, TerminalError, Transport};
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use tokio::time::Instant;

use super::member::{Follows, Member, Unanswered};
use super::{CrowdSpec, Syncs};

/// After a connect, beats and syncs come within this time, as docs/protocol.md asks (rule 2).
const JITTER: Duration = Duration::from_secs(2);
/// Between syncs.
const SYNC_INTERVAL_MS: u64 = 60_000;
/// How long an answer is waited for.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// First and longest pause before a report is sent again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Before a sync that should come soon.
const SOON: Duration = Duration::from_millis(250);

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Beat(usize),
    Sync(usize),
    /// A request that has waited long enough: for its answer, or to be sent again.
    Request(u64),
    /// A run that comes to its end.
    Run(u64),
}

enum What {
    Sync,
    Report { report: Unanswered, tries: u32 },
}

/// A request that is out, or waits to be sent again.
struct Request {
    member: usize,
    what: What,
}

/// The next beat and sync of a member; an older timer of them counts no more.
struct Clock {
    beat: Instant,
    sync: Instant,
}

/// See the module.
pub(super) struct Group {
    connection: Connection,
    chance: Chance,
    beat_interval_ms: u64,
    work: Duration,
    inbox: String,
    members: Vec<Member>,
    clocks: Vec<Clock>,
    timers: BinaryHeap<Reverse<(Instant, Due)>>,
    requests: HashMap<u64, Request>,
    runs: HashMap<u64, (usize, RunOrder)>,
    next_number: u64,
    commands: SelectAll<BoxStream<'static, (usize, Incoming)>>,
    answers: BoxStream<'static, Incoming>,
    follows: Follows,
}

impl Group {
    /// Subscribes for all of them. They beat and sync within the jitter from then on.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) async fn start(
        connection: Connection,
        ids: impl Iterator<Item = String>,
        spec: &CrowdSpec,
    ) -> Result<Self, TerminalError> {
        let chance = Chance::system();
        let inbox = connection.client.new_inbox();
        let answers = subscribe(&connection, &format!("{inbox}.*")).await?;
        let (mut members, mut streams): (Vec<Member>, Vec<BoxStream<'static, (usize, Incoming)>>) = (Vec::new(), Vec::new());
        // A name made of letters and digits is an id.
        for id in ids.filter_map(|id| TerminalId::new(&id).ok()) {
            let number = members.len();
            let commands = subscribe(&connection, &subjects::commands(&id)).await?;
            streams.push(commands.map(move |message| (number, message)).boxed());
            members.push(Member::new(id, chance.id(), chance.id(), spec));
        }
        // An error means that the connection is closed for good, which ends the loop.
        let _ = Transport::flush(&connection.client).await;
        let now = Instant::now();
        let clocks = members.iter().map(|_| Clock { beat: now, sync: now }).collect();
        let mut group = Self {
            beat_interval_ms: spec.beat_interval_ms,
            commands: select_all(streams),
            timers: BinaryHeap::new(),
            work: Duration::from_millis(spec.work_ms),
            requests: HashMap::new(),
            runs: HashMap::new(),
            next_number: 0,
            follows: Follows::default(),
            connection,
            chance,
            inbox,
            members,
            clocks,
            answers,
        };
        group.connected();
        Ok(group)
    }

    /// Its terminals' syncs.
    pub(super) fn syncs(&self) -> impl Iterator<Item = Arc<Syncs>> {
        self.members.iter().map(|member| Arc::clone(&member.syncs))
    }

    /// Drives them until the connection is closed for good.
    pub(super) async fn run(mut self) {
        let mut stands = self.connection.stands.clone();
        stands.mark_unchanged();
        loop {
            let due = self.timers.peek().map(|Reverse((at, _))| *at);
            tokio::select! {
                command = self.commands.next() => {
                    let Some((member, message)) = command else { return };
                    self.command(member, &message).await;
                }
                answer = self.answers.next() => {
                    let Some(answer) = answer else { return };
                    self.answer(&answer).await;
                }
                changed = stands.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if *stands.borrow_and_update() {
                        self.connected();
                    }
                }
                () = at(due) => self.on_time().await,
            }
        }
    }

    /// Everybody comes back, apart from each other.
    fn connected(&mut self) {
        for member in 0..self.members.len() {
            let (beat, sync) = (self.within(JITTER), self.within(JITTER));
            self.plan_beat(member, beat);
            self.plan_sync(member, sync);
        }
    }

    fn within(&self, longest: Duration) -> Instant {
        Instant::now() + longest.mul_f64(self.chance.unit())
    }

    fn spread(&self, interval: Duration) -> Instant {
        Instant::now() + interval.mul_f64(0.8 + 0.2 * self.chance.unit())
    }

    fn plan_beat(&mut self, member: usize, at: Instant) {
        if let Some(clock) = self.clocks.get_mut(member) {
            clock.beat = at;
            self.timers.push(Reverse((at, Due::Beat(member))));
        }
    }

    fn plan_sync(&mut self, member: usize, at: Instant) {
        if let Some(clock) = self.clocks.get_mut(member) {
            clock.sync = at;
            self.timers.push(Reverse((at, Due::Sync(member))));
        }
    }

    async fn on_time(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, due))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.timers.pop();
            match due {
                Due::Beat(member) if self.clocks.get(member).is_some_and(|c| c.beat == at) => self.beat(member).await,
                Due::Sync(member) if self.clocks.get(member).is_some_and(|c| c.sync == at) => self.sync(member).await,
                Due::Request(number) => self.again(number).await,
                Due::Run(number) => self.done(number).await,
                Due::Beat(_) | Due::Sync(_) => {}
            }
        }
    }

    async fn beat(&mut self, member: usize) {
        self.plan_beat(member, self.chance.tick_after(self.beat_interval_ms));
        let Some(payload) = self.members.get(member).and_then(Member::beat) else { return };
        // Beats are worth nothing later.
        if self.connection.client.is_connected()
            && let Some(one) = self.members.get(member)
        {
            // An error means that the connection is closed for good, which ends the loop.
            let _ = Transport::publish(&self.connection.client, &subjects::beat(&one.id), payload).await;
        }
    }

    async fn sync(&mut self, member: usize) {
        self.plan_sync(member, self.chance.tick_after(SYNC_INTERVAL_MS));
        let Some(one) = self.members.get_mut(member) else { return };
        if !self.connection.client.is_connected() {
            return;
        }
        let Some(payload) = one.sync() else { return };
        let subject = subjects::sync(&one.id);
        self.request(Request { member, what: What::Sync }, subject, payload).await;
    }

    async fn request(&mut self, request: Request, subject: String, payload: bytes::Bytes) {
        let number = self.number();
        self.requests.insert(number, request);
        self.timers.push(Reverse((Instant::now() + ANSWER_WAIT, Due::Request(number))));
        let reply = format!("{}.{number}", self.inbox);
        let _ = self.connection.client.publish_with_reply(subject, reply, payload).await;
    }

    async fn report(&mut self, member: usize, report: Unanswered, tries: u32) {
        let Some(subject) = self.members.get(member).map(|m| m.report_subject.clone()) else { return };
        let payload = report.report.clone();
        self.request(Request { member, what: What::Report { report, tries } }, subject, payload).await;
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Does what follows from what came in: begins runs, sends reports.
    async fn go_on(&mut self, member: usize) {
        // A run that takes no time leads to more.
        while !self.follows.begun.is_empty() || !self.follows.reports.is_empty() {
            let follows = std::mem::take(&mut self.follows);
            for order in follows.begun {
                if self.work.is_zero() {
                    if let Some(one) = self.members.get_mut(member) {
                        one.done(&order, &mut self.follows);
                    }
                    continue;
                }
                let number = self.number();
                self.timers.push(Reverse((Instant::now() + self.work, Due::Run(number))));
                self.runs.insert(number, (member, order));
            }
            for report in follows.reports {
                self.report(member, report, 0).await;
            }
        }
        if self.members.get(member).is_some_and(Member::wants_sync) {
            self.plan_sync(member, self.spread(SOON));
        }
    }

    async fn done(&mut self, number: u64) {
        let Some((member, order)) = self.runs.remove(&number) else { return };
        if let Some(one) = self.members.get_mut(member) {
            one.done(&order, &mut self.follows);
        }
        self.go_on(member).await;
    }

    async fn command(&mut self, member: usize, message: &Incoming) {
        let (Some(one), Some(seq)) = (self.members.get_mut(member), message.seq) else { return };
        one.command(&message.subject, seq, &message.payload, &mut self.follows);
        self.go_on(member).await;
    }

    /// A request has waited long enough.
    async fn again(&mut self, number: u64) {
        let Some(Request { member, what }) = self.requests.remove(&number) else { return };
        match what {
            What::Sync => {
                if let Some(one) = self.members.get(member) {
                    one.not_synced();
                }
                self.plan_sync(member, self.spread(SOON));
            }
            What::Report { report, tries } if self.connection.client.is_connected() => {
                self.report(member, report, tries + 1).await;
            }
            What::Report { report, tries } => self.later(member, report, tries),
        }
    }

    /// Sends a report again after a pause.
    fn later(&mut self, member: usize, report: Unanswered, tries: u32) {
        let pause = PAUSES.0.saturating_mul(1 << tries.min(10)).min(PAUSES.1);
        let number = self.number();
        self.timers.push(Reverse((self.spread(pause), Due::Request(number))));
        self.requests.insert(number, Request { member, what: What::Report { report, tries } });
    }

    async fn answer(&mut self, message: &Incoming) {
        let number = message.subject.rsplit('.').next().and_then(|token| token.parse().ok());
        let Some(Request { member, what }) = number.and_then(|number: u64| self.requests.remove(&number)) else { return };
        let Some(one) = self.members.get_mut(member) else { return };
        match what {
            What::Sync => {
                let next = match strict::from_slice::<SyncAnswer>(&message.payload) {
                    Ok(answer) => one.synced(answer, &mut self.follows),
                    // Nobody listens there, or it is no answer.
                    Err(_) => {
                        one.not_synced();
                        SyncNext::Soon
                    }
                };
                let at = match next {
                    SyncNext::Normal | SyncNext::InUse => self.chance.tick_after(SYNC_INTERVAL_MS),
                    SyncNext::Soon | SyncNext::Later(None) => self.spread(SOON),
                    SyncNext::Later(Some(ms)) => self.spread(Duration::from_millis(ms.clamp(50, 60_000))),
                };
                self.plan_sync(member, at);
            }
            What::Report { report, tries } => {
                let answer = strict::from_slice::<ReportAnswer>(&message.payload).ok();
                let result = answer.as_ref().and_then(|answer| answer.answers.first());
                if !result.is_some_and(|result| one.answered(&report, result, &mut self.follows)) {
                    self.later(member, report, tries + 1);
                }
            }
        }
        self.go_on(member).await;
    }
}

async fn subscribe(connection: &Connection, subject: &str) -> Result<BoxStream<'static, Incoming>, TerminalError> {
    let subscribed = Transport::subscribe(&connection.client, subject).await;
    subscribed.map_err(|error| TerminalError::Subscribe { subject: subject.to_owned(), reason: error.to_string() })
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
