//! The intake: one loop that examines requests as they come, parks what the view has not reached yet, and queues the rest.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use fanfold_domain::ids::{PlanId, TerminalId};
use fanfold_ledger::open::Known;
use fanfold_ledger::port::{BoxStream, BusMessage};
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::subjects;
use fanfold_wire::terminal::{BATCH_REPORTS_MAX, refusal, split_batch};
use futures::StreamExt;
use lru::LruCache;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::Deps;
use crate::answers::{Candidate, Examined, refused, retry};
use crate::examine::{Refusal, Report, Standing, judge, read};
use crate::limits::Rates;
use crate::schemas::Judge;

/// Requests parked at once.
const PARKED_MAX: usize = 4_096;
/// Plan ids remembered that the log does not know.
const ABSENT_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// How long such knowledge is used.
const ABSENT_FOR: Duration = Duration::from_secs(2);

/// A request some of whose reports wait for the view.
struct Parked {
    request: Examined,
    waiting: Vec<(usize, Report)>,
    until: Instant,
}

pub(crate) struct Intake {
    deps: Deps,
    queue: mpsc::Sender<Examined>,
    room_bytes: Arc<Semaphore>,
    rates: Rates,
    schemas: Judge,
    parked: VecDeque<Parked>,
    absent: LruCache<PlanId, (Known, Instant)>,
}

impl Intake {
    pub(crate) fn new(deps: Deps, queue: mpsc::Sender<Examined>) -> Self {
        Self {
            room_bytes: Arc::new(Semaphore::new(deps.config.queue_bytes_max)),
            rates: Rates::new(deps.config.reports_per_s, deps.config.burst_reports),
            schemas: Judge::new(),
            parked: VecDeque::new(),
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
            tracing::warn!(%terminal, reply = %reply.chars().take(80).collect::<String>(), "a request asks for its answer where no answer may go; ignored");
            return;
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
        let granted = self.rates.take(&terminal, request.answers.len(), self.deps.clock.now_ms());
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
        } else if self.parked.len() < PARKED_MAX {
            let until = Instant::now() + Duration::from_millis(self.deps.config.park_ms);
            self.parked.push_back(Parked { request, waiting, until });
        } else {
            // Left unanswered inside the request, these are told to come again.
            self.enqueue(request).await;
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
            Some(Standing::AttemptUnknown) => waiting.push((i, report)),
            None => match self.standing_in_log(&report.task.plan).await {
                Known::Over => refuse(request, i, &(refusal::PLAN_CLOSED, format!("plan {} is closed", report.task.plan))),
                Known::Unknown => refuse(request, i, &(refusal::UNKNOWN_TASK, format!("there is no plan {}", report.task.plan))),
                Known::Unsupported(rules) => request.answer(retry(i, refusal::UNSUPPORTED_RULES, &newer_needed(&report, rules))),
                Known::Open => waiting.push((i, report)),
            },
        }
    }

    /// What the log's leader says of a plan that isn't in memory; `Open` too when it can't be asked.
    async fn standing_in_log(&mut self, plan: &PlanId) -> Known {
        if let known @ (Known::Over | Known::Unsupported(_)) = self.deps.open.read().known(plan) {
            return known;
        }
        if let Some((known, until)) = self.absent.get(plan)
            && Instant::now() < *until
        {
            return *known;
        }
        let known = match self.deps.ledger.last_under(&subjects::plan_event(plan, "submitted")).await {
            Ok(None) => Known::Unknown,
            // It is in the log below what is folded, and not in memory: it is over.
            Ok(Some(stored)) if stored.seq <= self.deps.open.read().seq() => match self.deps.open.read().known(plan) {
                known @ (Known::Open | Known::Unsupported(_)) => return known,
                Known::Over | Known::Unknown => Known::Over,
            },
            Ok(Some(_)) | Err(_) => return Known::Open,
        };
        self.absent.put(plan.clone(), (known, Instant::now() + ABSENT_FOR));
        known
    }

    /// Looks at parked requests again; with `sweep` those whose time is up are answered.
    async fn unpark(&mut self, sweep: bool) {
        for _ in 0..self.parked.len() {
            let Some(mut parked) = self.parked.pop_front() else { return };
            let mut still = Vec::new();
            for (i, report) in std::mem::take(&mut parked.waiting) {
                self.examine(&mut parked.request, i, report, &mut still).await;
            }
            parked.waiting = still;
            if !parked.waiting.is_empty() && sweep && Instant::now() >= parked.until {
                self.give_up(&mut parked).await;
            }
            if parked.waiting.is_empty() {
                self.enqueue(parked.request).await;
            } else {
                self.parked.push_back(parked);
            }
        }
    }

    /// A view that has reached the log's end and still has no such attempt: there is none. Else the terminal is to come again.
    async fn give_up(&mut self, parked: &mut Parked) {
        let seq = self.deps.open.read().seq();
        let at_end = self.deps.ledger.last_seq().await.is_ok_and(|last| seq >= last);
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

fn refuse(request: &mut Examined, i: usize, (code, message): &Refusal) {
    request.answer(refused(i, code, message));
}

fn examined(terminal: &TerminalId, reply: Option<String>, reports: usize) -> Examined {
    Examined { terminal: terminal.clone(), reply, answers: vec![None; reports], candidates: Vec::new(), bytes: 0, room: None }
}
