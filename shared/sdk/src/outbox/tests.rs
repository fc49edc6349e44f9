//! The outbox, with time and chance given.
#![allow(clippy::unwrap_used, clippy::panic)]

use fanfold_wire::domain::ids::TaskId;
use fanfold_wire::terminal::ReportStatus;

use super::*;

fn attempt(n: u32) -> AttemptRef {
    AttemptRef { task_id: TaskId::parse("p.S1.main").unwrap(), attempt: n }
}

fn outbox() -> (Outbox, Instant) {
    let backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
    (Outbox::new(backoff), Instant::now())
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn batch(next: Next) -> Batch {
    match next {
        Next::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn text(batch: &Batch) -> String {
    String::from_utf8(batch.payload.to_vec()).unwrap()
}

fn answer(statuses: &[ReportStatus]) -> ReportAnswer {
    let one = |(i, status): (usize, &ReportStatus)| ReportResult {
        index: i as u32,
        status: *status,
        seq: Some(i as u64 + 1),
        valid: None,
        code: None,
        message: None,
    };
    ReportAnswer { protocol_version: 1, answers: statuses.iter().enumerate().map(one).collect(), retry_after_ms: None }
}

#[test]
fn a_start_is_held_back_and_dropped_when_the_end_is_there() {
    let (mut outbox, now) = outbox();
    outbox.started(attempt(1), Bytes::from_static(b"\"s\""), now + ms(50));
    assert!(matches!(outbox.next(now), Next::At(at) if at == now + ms(50)));
    outbox.end(attempt(1), EndKind::Succeeded, Bytes::from_static(b"\"e\""), now);
    assert_eq!(text(&batch(outbox.next(now))), "[\"e\"]");
    let (mut late, now) = self::outbox();
    late.started(attempt(1), Bytes::from_static(b"\"s\""), now + ms(50));
    late.step(attempt(1), 0, Bytes::from_static(b"\"p\""), now);
    assert_eq!(text(&batch(late.next(now))), "[\"s\",\"p\"]", "a step makes the start due");
}

#[test]
fn settled_reports_go_and_the_others_are_sent_again_unchanged() {
    let (mut outbox, now) = outbox();
    for n in 1..=4 {
        outbox.end(attempt(n), EndKind::Failed, Bytes::from(format!("\"{n}\"")), now);
    }
    let first = batch(outbox.next(now));
    // The fourth gets no answer at all.
    let told = outbox.answered(&first, answer(&[ReportStatus::Recorded, ReportStatus::Retry, ReportStatus::Unknown]), now, 1.0);
    assert_eq!(told.len(), 3);
    assert!(matches!(outbox.next(now), Next::At(at) if at == now + ms(200)));
    let second = batch(outbox.next(now + ms(200)));
    assert_eq!(text(&second), "[\"2\",\"3\",\"4\"]");
    outbox.answered(&second, answer(&[ReportStatus::Duplicate, ReportStatus::Refused, ReportStatus::Recorded]), now, 1.0);
    assert!(outbox.is_empty() && matches!(outbox.next(now), Next::Idle));
    assert_eq!((outbox.counts.settled, outbox.counts.retried, outbox.counts.sent), (4, 3, 7));
}

#[test]
fn failed_requests_pause_everything_longer_and_longer_up_to_a_bound() {
    let (mut outbox, mut now) = outbox();
    outbox.end(attempt(1), EndKind::Failed, Bytes::from_static(b"1"), now);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let sent = batch(outbox.next(now));
        outbox.failed(&sent, now, 1.0);
        let Next::At(at) = outbox.next(now) else { panic!() };
        pauses.push((at - now).as_millis());
        now = at;
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
    let sent = batch(outbox.next(now));
    outbox.failed(&sent, now, 0.0);
    assert!(matches!(outbox.next(now), Next::At(at) if at == now + ms(5_000)), "chance spreads the upper half");
    outbox.reconnected(now + ms(30));
    assert!(matches!(outbox.next(now), Next::At(at) if at == now + ms(30)));
    assert_eq!(text(&batch(outbox.next(now + ms(30)))), "[1]");
}

#[test]
fn batches_are_bounded_in_reports_and_bytes() {
    let (mut many, now) = outbox();
    for n in 0..300 {
        many.end(attempt(n), EndKind::Failed, Bytes::from_static(b"{}"), now);
    }
    let first = batch(many.next(now));
    assert_eq!(first.orders.len(), BATCH_REPORTS_MAX);
    let (mut large, now) = outbox();
    for n in 0..3 {
        large.end(attempt(n), EndKind::Failed, Bytes::from(vec![b'1'; 260 * 1024]), now);
    }
    assert_eq!(batch(large.next(now)).orders.len(), 1);
}

#[test]
fn an_expedited_success_goes_before_what_came_later() {
    let (mut outbox, now) = outbox();
    outbox.end(attempt(1), EndKind::Succeeded, Bytes::from_static(b"\"done\""), now);
    let sent = batch(outbox.next(now));
    outbox.answered(&sent, answer(&[ReportStatus::Retry]), now, 1.0);
    outbox.expedite(&attempt(1), now);
    outbox.end(attempt(2), EndKind::Rejected, Bytes::from_static(b"\"already\""), now);
    assert_eq!(text(&batch(outbox.next(now))), "[\"done\",\"already\"]");
}

#[test]
fn steps_are_bounded_and_free_their_place() {
    let (mut outbox, now) = outbox();
    for k in 0..STEPS_WAITING_MAX as u32 + 5 {
        outbox.step(attempt(1), k, Bytes::from_static(b"0"), now);
    }
    assert_eq!(outbox.counts.steps_dropped, 5);
    let sent = batch(outbox.next(now));
    outbox.answered(&sent, answer(&[ReportStatus::Recorded; 256]), now, 1.0);
    outbox.step(attempt(1), 9999, Bytes::from_static(b"0"), now);
    assert_eq!((outbox.counts.steps_dropped, outbox.steps), (5, STEPS_WAITING_MAX - 255));
}
