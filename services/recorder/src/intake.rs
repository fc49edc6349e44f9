//! The intake: one loop that examines requests as they come, parks what the view has not reached yet, and queues the rest.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::ids::{PlanId, TerminalId};
use fanfold_ledger::open::Known;
use fanfold_ledger::port::{BoxStream, BusMessage};
use fanfold_process::rates::{Rates, Seldom};
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::subjects;
use fanfold_wire::terminal::{BATCH_REPORTS_MAX, ReportStatus, refusal, split_batch};
use futures::StreamExt;
use lru::LruCache;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::answers::{Candidate, Examined, not_looked_at, refused, retry, settled};
use crate::examine::{Refusal, Report, Standing, judge, read};
use crate::schemas::Judge;
use crate::{Deps, RecorderConfig};

/// Requests parked at once.
const PARKED_MAX: usize = 4_096;
/// Of them, requests of one terminal, and bytes of all.
const PARKED_PER_TERMINAL: usize = 4;
const PARKED_BYTES_MAX: usize = 32 << 20;
/// Terminals whose rate is remembered; one not heard of for longest starts anew with a full bucket.
const TERMINALS_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(131_071);
/// Requests that are not looked at: of each terminal so many a second, and so many at once, are told so; others get no answer.
const TOLD_LIMITED_PER_S: f64 = 10.0;
const TOLD_LIMITED_BURST: f64 = 20.0;
/// Plans not in memory that are asked for at the log's leader: for each terminal, and for all together, a second and at once.
const LOOKUPS_PER_S: (f64, f64) = (5.0, 20.0);
const LOOKUPS_ALL_PER_S: (f64, f64) = (100.0, 200.0);
/// Terminals of which something is said in the service's log, each once a minute.
const SAID_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);
const SAID_PAUSE_MS: i64 = 60_000;
/// Plan ids remembered that the log does not know.
const ABSENT_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// How long such knowledge is used.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// A request some of whose reports wait for the view.
struct Parked {
    request: Examined,
    waiting: Vec<(usize, Report)>,
    until: Instant,
    bytes: usize,
}

/// What each terminal may do.
struct Limits {
    reports: Rates<TerminalId>,
    bytes: Rates<TerminalId>,
    told_limited: Rates<TerminalId>,
    lookups: Rates<TerminalId>,
    all_lookups: Rates<()>,
    said_limited: Seldom<TerminalId>,
    said_reply: Seldom<TerminalId>,
}

impl Limits {
    fn new(config: &RecorderConfig) -> Self {
        let of = |per_s: u32, burst: u32| Rates::new(f64::from(per_s), f64::from(burst), TERMINALS_KEPT);
        Self {
            reports: of(config.reports_per_s, config.burst_reports),
            bytes: of(config.bytes_per_s, config.burst_bytes),
            told_limited: Rates::new(TOLD_LIMITED_PER_S, TOLD_LIMITED_BURST, TERMINALS_KEPT),
            lookups: Rates::new(LOOKUPS_PER_S.0, LOOKUPS_PER_S.1, TERMINALS_KEPT),
            all_lookups: Rates::new(LOOKUPS_ALL_PER_S.0, LOOKUPS_ALL_PER_S.1, NonZeroUsize::MIN),
            said_limited: Seldom::new(SAID_PAUSE_MS, SAID_KEPT),
            said_reply: Seldom::new(SAID_PAUSE_MS, SAID_KEPT),
        }
    }

    /// Whether a request may be looked at: asked before anything of it is parsed, so that a flood costs next to nothing.
    fn admit(&mut self, terminal: &TerminalId, bytes: usize, now_ms: i64) -> bool {
        self.reports.take(terminal, 1, now_ms) > 0 && self.bytes.take_whole(terminal, bytes, now_ms)
    }

    fn may_look_up(&mut self, terminal: &TerminalId, now_ms: i64) -> bool {
        self.lookups.take(terminal, 1, now_ms) > 0 && self.all_lookups.take(&(), 1, now_ms) > 0
    }
}

pub(crate) struct Intake {
    deps: Deps,
    queue: mpsc::Sender<Examined>,
    room_bytes: Arc<Semaphore>,
    limits: Limits,
    schemas: Judge,
    parked: VecDeque<Parked>,
    parked_of: HashMap<TerminalId, usize>,
    parked_bytes: usize,
    not_looked_at: Bytes,
    absent: LruCache<PlanId, (Known, Instant)>,
}

impl Intake {
    pub(crate) fn new(deps: Deps, queue: mpsc::Sender<Examined>) -> Self {
        Self {
            room_bytes: Arc::new(Semaphore::new(deps.config.queue_bytes_max)),
            limits: Limits::new(&deps.config),
            schemas: Judge::new(),
            parked: VecDeque::new(),
            parked_of: HashMap::new(),
            parked_bytes: 0,
            not_looked_at: not_looked_at(),
            absent: LruCache::new(ABSENT_KEPT),
            deps,
            queue,
        }
    }

    pub(crate) async fn run(mut self, mut requests: BoxStream<BusMessage>, shutdown: Shutdown) {
        let mut position = self.deps.open.position();
        let mut sweep = tokio::time::interval(Duration::from_millis(100));
        loop {
            // In order, so that equal histories give equal logs. The sweep comes first: a flood must not hold parked requests up.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                _ = sweep.tick(), if !self.parked.is_empty() => self.unpark(true).await,
                request = requests.next() => match request {
                    Some(message) => self.take(message).await,
                    None => return,
                },
                changed = position.changed(), if !self.parked.is_empty() => {
                    if changed.is_err() { return; }
                    self.unpark(false).await;
                }
            }
        }
    }

    async fn take(&mut self, message: BusMessage) {
        let Some(terminal) = subjects::parse_terminal(&message.subject) else { return };
        if let Some(reply) = &message.reply
            && !subjects::is_inbox(reply, Some(&terminal))
        {
            self.deps.stats.count_bad_reply();
            if let Some(since_said) = self.limits.said_reply.may_say(&terminal, self.deps.clock.now_ms()) {
                tracing::warn!(%terminal, reply = %reply.chars().take(80).collect::<String>(), since_said, "a request asks for its answer where no answer may go; ignored");
            }
            return;
        }
        let now_ms = self.deps.clock.now_ms();
        if !self.limits.admit(&terminal, message.payload.len(), now_ms) {
            return self.limited(&terminal, message.reply, now_ms).await;
        }
        let reports = match split_batch(&message.payload) {
            Ok(reports) => reports,
            Err(reason) => {
                let mut request = examined(&terminal, message.reply.clone(), 1);
                request.answer(refused(0, refusal::MALFORMED, &reason));
                return self.enqueue(request).await;
            }
        };
        let mut request = examined(&terminal, message.reply.clone(), reports.len().min(BATCH_REPORTS_MAX));
        let granted = 1 + self.limits.reports.take(&terminal, request.answers.len().saturating_sub(1), now_ms);
        let mut waiting = Vec::new();
        for (i, text) in reports.iter().enumerate().take(BATCH_REPORTS_MAX) {
            if i >= granted {
                request.answer(retry(i, refusal::RATE_LIMITED, "too many reports in a short time; slow down and send it again"));
                continue;
            }
            match read(text.get()) {
                Ok(report) => self.examine(&mut request, i, report, &mut waiting).await,
                Err(refusal) => refuse(&mut request, i, &refusal),
            }
        }
        if waiting.is_empty() {
            self.enqueue(request).await;
        } else if self.may_park(&terminal, message.payload.len()) {
            let until = Instant::now() + Duration::from_millis(self.deps.config.park_ms);
            *self.parked_of.entry(terminal).or_default() += 1;
            self.parked_bytes += message.payload.len();
            self.parked.push_back(Parked { request, waiting, until, bytes: message.payload.len() });
        } else {
            // Left unanswered inside the request, these are told to come again.
            self.enqueue(request).await;
        }
    }

    /// Not looked at: counted, said once a while, and answered only as often as an honest terminal would ask.
    async fn limited(&mut self, terminal: &TerminalId, reply: Option<String>, now_ms: i64) {
        self.deps.stats.count_limited(terminal);
        if let Some(since_said) = self.limits.said_limited.may_say(terminal, now_ms) {
            tracing::warn!(%terminal, code = refusal::RATE_LIMITED, since_said,
                "this terminal sends more than its share of reports; what is beyond it is not looked at");
        }
        if let Some(reply) = reply
            && self.limits.told_limited.take(terminal, 1, now_ms) > 0
        {
            // A lost answer is asked for again.
            let _ = self.deps.ledger.publish(&reply, self.not_looked_at.clone()).await;
        }
    }

    fn may_park(&self, terminal: &TerminalId, bytes: usize) -> bool {
        self.parked.len() < PARKED_MAX
            && self.parked_bytes + bytes <= PARKED_BYTES_MAX
            && self.parked_of.get(terminal).is_none_or(|n| *n < PARKED_PER_TERMINAL)
    }

    fn unparked(&mut self, terminal: &TerminalId, bytes: usize) {
        self.parked_bytes = self.parked_bytes.saturating_sub(bytes);
        if let Some(n) = self.parked_of.get_mut(terminal) {
            *n -= 1;
            if *n == 0 {
                self.parked_of.remove(terminal);
            }
        }
    }

    async fn examine(&mut self, request: &mut Examined, i: usize, mut report: Report, waiting: &mut Vec<(usize, Report)>) {
        let standing = {
            let model = self.deps.open.read();
            model
                .plan(&report.task.plan)
                .filter(|v| v.plan.seal.is_some())
                .map(|view| judge(&mut report, &request.terminal, view, &mut self.schemas))
        };
        match standing {
            Some(Standing::Admitted(append, valid)) => {
                request.bytes += append.payload.len();
                request.candidates.push(Candidate { index: i, append: *append, valid });
            }
            Some(Standing::Refused(refusal)) => refuse(request, i, &refusal),
            Some(Standing::Absorbed(seq, valid)) => request.answer(settled(i, ReportStatus::Duplicate, seq, valid)),
            Some(Standing::AttemptUnknown) => waiting.push((i, report)),
            None => match self.standing_in_log(&request.terminal, &report.task.plan).await {
                None => {
                    request.answer(retry(i, refusal::RATE_LIMITED, "too many plans asked about in a short time; send it again"))
                }
                Some(Known::Over) => refuse(request, i, &(refusal::PLAN_CLOSED, format!("plan {} is closed", report.task.plan))),
                Some(Known::Unknown) => {
                    refuse(request, i, &(refusal::UNKNOWN_TASK, format!("there is no plan {}", report.task.plan)))
                }
                Some(Known::Unsupported(rules)) => {
                    request.answer(retry(i, refusal::UNSUPPORTED_RULES, &newer_needed(&report, rules)));
                }
                Some(Known::Open) => waiting.push((i, report)),
            },
        }
    }

    /// What the log's leader says of a plan that isn't in memory; `Open` too when it can't be asked. `None`: asked too often.
    async fn standing_in_log(&mut self, by: &TerminalId, plan: &PlanId) -> Option<Known> {
        if let known @ (Known::Over | Known::Unsupported(_)) = self.deps.open.read().known(plan) {
            return Some(known);
        }
        if let Some((known, until)) = self.absent.get(plan)
            && Instant::now() < *until
        {
            return Some(*known);
        }
        if !self.limits.may_look_up(by, self.deps.clock.now_ms()) {
            return None;
        }
        let known = match self.deps.ledger.last_under(&subjects::plan_event(plan, "submitted")).await {
            Ok(None) => Known::Unknown,
            // It is in the log below what is folded, and not in memory: it is over.
            Ok(Some(stored)) if stored.seq <= self.deps.open.read().seq() => match self.deps.open.read().known(plan) {
                known @ (Known::Open | Known::Unsupported(_)) => return Some(known),
                Known::Over | Known::Unknown => Known::Over,
            },
            Ok(Some(_)) | Err(_) => return Some(Known::Open),
        };
        self.absent.put(plan.clone(), (known, Instant::now() + ABSENT_FOR));
        Some(known)
    }

    /// Looks at parked requests again; with `sweep` those whose time is up are answered.
    async fn unpark(&mut self, sweep: bool) {
        // Asked before any is looked at again: an attempt that comes into view in between must not be taken for one that never was.
        let overdue = sweep && self.parked.iter().any(|p| Instant::now() >= p.until);
        let at_end = overdue && self.is_at_end().await;
        for _ in 0..self.parked.len() {
            let Some(mut parked) = self.parked.pop_front() else { return };
            let mut still = Vec::new();
            for (i, report) in std::mem::take(&mut parked.waiting) {
                self.examine(&mut parked.request, i, report, &mut still).await;
            }
            parked.waiting = still;
            if !parked.waiting.is_empty() && overdue && Instant::now() >= parked.until {
                give_up(&mut parked, at_end);
            }
            if parked.waiting.is_empty() {
                self.unparked(&parked.request.terminal, parked.bytes);
                self.enqueue(parked.request).await;
            } else {
                self.parked.push_back(parked);
            }
        }
    }

    async fn is_at_end(&self) -> bool {
        let seq = self.deps.open.read().seq();
        self.deps.ledger.last_seq().await.is_ok_and(|last| seq >= last)
    }

    async fn enqueue(&mut self, mut request: Examined) {
        let bytes = u32::try_from(request.bytes).unwrap_or(u32::MAX);
        match Arc::clone(&self.room_bytes).try_acquire_many_owned(bytes) {
            Ok(permit) => request.room = Some(permit),
            Err(_) => self.overload(&mut request),
        }
        if let Err(mpsc::error::TrySendError::Full(mut request)) = self.queue.try_send(request) {
            self.overload(&mut request);
            self.deps.stats.count(&request.terminal, &request.answers);
            if let Some(reply) = &request.reply {
                // A lost answer is asked for again.
                let _ = self.deps.ledger.publish(reply, request.encode()).await;
            }
        }
    }

    /// No room: nothing of the request is taken, everything is to come again.
    fn overload(&self, request: &mut Examined) {
        for candidate in std::mem::take(&mut request.candidates) {
            request.answer(retry(
                candidate.index,
                refusal::RATE_LIMITED,
                "HQ has too much to write at the moment; send it again",
            ));
        }
        request.bytes = 0;
    }
}

fn newer_needed(report: &Report, rules: Option<u32>) -> String {
    let version = rules.map_or("rules that can't be read".to_owned(), |rules| format!("rules version {rules}"));
    format!("plan {} has {version} and this HQ is too old for it; keep the report and send it again", report.task.plan)
}

/// A view that has reached the log's end and still has no such attempt: there is none. Else the terminal is to come again.
fn give_up(parked: &mut Parked, at_end: bool) {
    for (i, report) in std::mem::take(&mut parked.waiting) {
        let attempt = report.event.attempt().unwrap_or(0);
        let answer = if at_end {
            refused(i, refusal::UNKNOWN_TASK, &format!("attempt {attempt} of {} was never handed out", report.task))
        } else {
            retry(i, refusal::UNAVAILABLE, "HQ is behind its log; send it again")
        };
        parked.request.answer(answer);
    }
}

fn refuse(request: &mut Examined, i: usize, (code, message): &Refusal) {
    request.answer(refused(i, code, message));
}

fn examined(terminal: &TerminalId, reply: Option<String>, reports: usize) -> Examined {
    Examined { terminal: terminal.clone(), reply, answers: vec![None; reports], candidates: Vec::new(), bytes: 0, room: None }
}
