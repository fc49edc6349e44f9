//! Word of (re)connects, so that every terminal of a connection syncs after one.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Counts the connects of one client; clone it for each terminal.
#[derive(Debug, Clone)]
pub struct Connects {
    count: watch::Receiver<u64>,
}

impl Connects {
    /// Takes the options' event callback. `also` is called with every event, for whoever needs them besides.
    pub fn hook(options: ConnectOptions, also: impl Fn(&Event) + Send + Sync + 'static) -> (ConnectOptions, Self) {
        let (sender, connects) = Self::manual();
        let options = options.event_callback(move |event| {
            if matches!(event, Event::Connected) {
                sender.send_modify(|count| *count += 1);
            }
            also(&event);
            std::future::ready(())
        });
        (options, connects)
    }

    /// For whoever has a callback already: raise the number at every connect.
    pub fn manual() -> (watch::Sender<u64>, Self) {
        let (sender, count) = watch::channel(0);
        (sender, Self { count })
    }

    /// From a count that somebody else raises at every connect.
    pub fn counted_by(count: watch::Receiver<u64>) -> Self {
        Self { count }
    }

    /// Nobody tells.
    pub(crate) fn never() -> Self {
        Self::manual().1
    }

    /// Looks at the client's own count once a second, for as long as the handle lives.
    pub(crate) fn watching(client: &Client) -> (Self, AbortOnDropHandle<()>) {
        let (sender, connects) = Self::manual();
        let statistics = client.statistics();
        let watcher = tokio::spawn(async move {
            let connected = || statistics.connects.load(std::sync::atomic::Ordering::Relaxed);
            let mut last = connected();
            while !sender.is_closed() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let now = connected();
                if now != last {
                    last = now;
                    sender.send_replace(now);
                }
            }
        });
        (connects, AbortOnDropHandle::new(watcher))
    }

    /// From here on: connects up to now are no news to a terminal that is about to start.
    pub(crate) fn starting_now(mut self) -> Self {
        self.count.mark_unchanged();
        self
    }

    /// Waits for the next connect; for ever once nobody tells any more.
    pub(crate) async fn next(&mut self) {
        if self.count.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
