//! One run: begun durably, executed under its watchdog, its end written down, then told.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_wire::domain::event::{TaskEvent, Verdict};
use fanfold_wire::domain::ids::TerminalId;
use fanfold_wire::terminal::{RESULT_BYTES_MAX, clip_message};
use futures::FutureExt;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::Input;
use crate::clock::WallClock;
use crate::handler::{Handler, HandlerError, RunContext, StepReporter};
use crate::holds::{RunOrder, code};
use crate::journal::{EndKind, Journal, Op, Record};
use crate::reporter::SharedOutbox;
use crate::reports::{self, Author};

/// Longest code and step name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// What runs need besides their orders.
pub(crate) struct RunnerShared {
    pub(crate) terminal: TerminalId,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) outbox: SharedOutbox,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) started_hold: Duration,
    pub(crate) stop_grace: Duration,
    pub(crate) watchdog: bool,
    pub(crate) mute: bool,
    pub(crate) clock: WallClock,
}

impl RunnerShared {
    fn write(&self, order: &RunOrder, event: &TaskEvent) -> Bytes {
        let author = Author { terminal: &self.terminal, clock: &self.clock };
        reports::write(author, &order.attempt.task_id, order.traceparent.as_deref(), event)
    }
}

enum Outcome {
    Succeeded(Box<RawValue>),
    Failed(HandlerError),
    Stopped,
}

/// Runs one attempt to its end. `stop` asks for it.
pub(crate) async fn run(
    shared: Arc<RunnerShared>,
    order: Box<RunOrder>,
    handler: Option<Arc<dyn Handler>>,
    stop: CancellationToken,
) {
    let attempt = order.attempt.clone();
    let put = |record| vec![Op::Put { task: attempt.task_id.clone(), attempt: attempt.attempt, record }];
    let begun = put(Record::Begun { traceparent: order.traceparent.clone() });
    if let Err(error) = shared.journal.write(&shared.terminal, begun).await {
        tracing::error!(terminal = %shared.terminal, task = %attempt.task_id, code = error.code(), %error, "run not begun");
        let _ = shared.inputs.send(Input::NotBegun(attempt)).await;
        return;
    }
    let started = Instant::now();
    let outcome = if stop.is_cancelled() {
        Outcome::Stopped
    } else {
        report_start(&shared, &order, started);
        // The handler's own panic is caught inside; this one is for a panic while its future is dropped.
        let executed = AssertUnwindSafe(execute(&shared, &order, handler, stop)).catch_unwind().await;
        executed.unwrap_or_else(|panic| Outcome::Failed(panicked(panic.as_ref())))
    };
    let run_ms = u64::try_from(started.elapsed().as_millis()).ok();
    let (end, event) = conclude(attempt.attempt, outcome, run_ms);
    let report = shared.write(&order, &event);
    let finished = put(Record::Finished { end, report: report.clone() });
    let journaled = shared.journal.write(&shared.terminal, finished).await;
    if let Err(error) = &journaled {
        tracing::error!(terminal = %shared.terminal, task = %attempt.task_id, code = error.code(), %error, "the end of a run could not be written");
    }
    let _ = shared.inputs.send(Input::Ended { attempt, end, report, journaled: journaled.is_ok() }).await;
}

fn report_start(shared: &RunnerShared, order: &RunOrder, now: Instant) {
    if shared.mute {
        return;
    }
    let event = TaskEvent::Started { attempt: order.attempt.attempt };
    let body = shared.write(order, &event);
    shared.outbox.change(|outbox| outbox.started(order.attempt.clone(), body, now + shared.started_hold));
}

fn step_reporter(shared: &Arc<RunnerShared>, order: &RunOrder) -> StepReporter {
    let (shared, attempt, traceparent) = (shared.clone(), order.attempt.clone(), order.traceparent.clone());
    StepReporter::new(move |k, step, ms| {
        if shared.mute {
            return;
        }
        let event = TaskEvent::Progressed { attempt: attempt.attempt, k, step: clip_name(step).to_owned(), ms };
        let author = Author { terminal: &shared.terminal, clock: &shared.clock };
        let body = reports::write(author, &attempt.task_id, traceparent.as_deref(), &event);
        shared.outbox.change(|outbox| outbox.step(attempt.clone(), k, body, Instant::now()));
    })
}

async fn execute(
    shared: &Arc<RunnerShared>,
    order: &RunOrder,
    handler: Option<Arc<dyn Handler>>,
    stop: CancellationToken,
) -> Outcome {
    let Some(handler) = handler else {
        return Outcome::Failed(HandlerError::new(code::UNKNOWN_TYPE, "the handler is gone"));
    };
    let run_timeout = Duration::from_millis(order.run_timeout_ms);
    let cancel = CancellationToken::new();
    let ctx = RunContext {
        task: order.attempt.task_id.clone(),
        attempt: order.attempt.attempt,
        kind: order.kind.clone(),
        version: order.version,
        input: order.input.clone(),
        run_timeout,
        traceparent: order.traceparent.clone(),
        cancel: cancel.clone(),
        steps: step_reporter(shared, order),
    };
    let mut run = Box::pin(AssertUnwindSafe(async move { handler.run(ctx).await }).catch_unwind());
    let time_is_up = async {
        if shared.watchdog {
            tokio::time::sleep(run_timeout).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let instead = tokio::select! {
        biased;
        done = &mut run => return judge(done),
        () = stop.cancelled() => Outcome::Stopped,
        () = time_is_up => {
            let message = format!("the run took longer than {} ms", order.run_timeout_ms);
            Outcome::Failed(HandlerError::new(code::TIMEOUT, message))
        }
    };
    cancel.cancel();
    // A result that comes in time is a result: the work is done. Anything else is told as what was asked for.
    match tokio::time::timeout(shared.stop_grace, &mut run).await {
        Ok(done) => match judge(done) {
            Outcome::Succeeded(result) => Outcome::Succeeded(result),
            Outcome::Failed(_) | Outcome::Stopped => instead,
        },
        Err(_) => instead,
    }
}

type Done = Result<Result<Box<RawValue>, HandlerError>, Box<dyn std::any::Any + Send>>;

fn judge(done: Done) -> Outcome {
    match done {
        Ok(Ok(result)) if result.get().len() > RESULT_BYTES_MAX => {
            let message = format!("the result has {} bytes, at most {RESULT_BYTES_MAX} are taken", result.get().len());
            Outcome::Failed(HandlerError::new(code::RESULT_TOO_LARGE, message))
        }
        Ok(Ok(result)) => Outcome::Succeeded(result),
        Ok(Err(error)) => Outcome::Failed(error),
        Err(panic) => Outcome::Failed(panicked(panic.as_ref())),
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    HandlerError::new(code::HANDLER_PANIC, format!("the handler panicked: {}", text.unwrap_or("without a message")))
}

fn conclude(attempt: u32, outcome: Outcome, run_ms: Option<u64>) -> (EndKind, TaskEvent) {
    match outcome {
        Outcome::Succeeded(result) => {
            // The recorder writes its own judgement over this one.
            let verdict = Verdict { valid: true, errors: Vec::new() };
            (EndKind::Succeeded, TaskEvent::Succeeded { attempt, result: result.into(), run_ms, verdict })
        }
        Outcome::Failed(error) => {
            let code = match clip_name(&error.code) {
                "" => "HANDLER_ERROR",
                code => code,
            };
            let event =
                TaskEvent::Failed { attempt, code: code.to_owned(), message: clip_message(&error.message).to_owned(), run_ms };
            (EndKind::Failed, event)
        }
        Outcome::Stopped => (EndKind::Stopped, TaskEvent::Stopped { attempt }),
    }
}

fn clip_name(text: &str) -> &str {
    let end = (0..=text.len().min(NAME_BYTES_MAX)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or("")
}
