//! The trace of a seed that is replayed: what happened when, and by whom, in virtual time.

use std::cell::{Cell, RefCell};

use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::{Log, Stored, TailItem};
use fanfold_process::clock::Clock;
use fanfold_tests::world::EPOCH_MS;
use futures::StreamExt;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// Whether this thread prints.
pub fn turn_on(on: bool) {
    ON.set(on);
}

/// Time is told by this clock from now on.
pub fn use_clock(clock: &Clock) {
    CLOCK.set(Some(clock.clone()));
}

/// Prints a line, if anybody wants to see it.
pub fn say(who: &str, what: impl FnOnce() -> String) {
    if !ON.get() {
        return;
    }
    let now_ms = CLOCK.with_borrow(|clock| clock.as_ref().map_or(0, |c| c.now_ms() - EPOCH_MS));
    println!("{:>8}.{:03}  {who:<10} {}", now_ms / 1_000, now_ms % 1_000, what());
}

/// Follows the log, if anybody wants to see it.
pub async fn follow(ledger: &MemoryLedger) {
    if !ON.get() {
        return;
    }
    let mut tail = ledger.tail(1).await.unwrap();
    tokio::spawn(async move {
        while let Some(item) = tail.next().await {
            let TailItem::Messages(messages) = item else { continue };
            messages.iter().for_each(|m| say("log", || line(m)));
        }
    });
}

/// One message of the log, for people.
pub fn line(m: &Stored) -> String {
    let text = String::from_utf8_lossy(&m.payload);
    let name = text.split("\"type\":\"fanfold.").nth(1).and_then(|t| t.split('"').next()).unwrap_or("?");
    let data: String = text.split("\"data\":").nth(1).unwrap_or("").chars().take(140).collect();
    format!("#{} {} {name} {data}", m.seq, m.subject)
}
