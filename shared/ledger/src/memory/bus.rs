//! Core messaging in memory: wildcards, queue groups in round robin, request and reply.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{MAX_PAYLOAD_BYTES, MemoryLedger};
use crate::port::{BoxStream, Bus, BusMessage, LedgerError, RequestError, Stored};
use crate::subject;
use crate::watch;

/// Messages one subscriber may be behind before it loses some, as a slow consumer of NATS does.
const SUBSCRIBER_BACKLOG_MAX: usize = 65_536;
/// Subjects of stored decisions, republished as commands.
const DECISIONS: &str = "ff.task.*.*.*.hq.*";

/// How a message travels: after how many milliseconds each copy of it arrives. `[0]` is a perfect network, an empty list loses it.
/// Called with the ledger's state locked: it must not call the ledger.
pub type Network = Arc<dyn Fn(&BusMessage) -> Vec<u64> + Send + Sync>;

#[derive(Default)]
pub(super) struct BusState {
    subscribers: BTreeMap<u64, Subscriber>,
    /// The network between everybody, and whoever carries what arrives later.
    network: Option<(Network, mpsc::UnboundedSender<(Instant, BusMessage)>)>,
    /// Queue group to the number of messages it was given: whose turn it is.
    turns: BTreeMap<(String, String), usize>,
    last_number: u64,
}

struct Subscriber {
    filter: String,
    /// The filter's beginning without wildcards: it tells almost all subjects apart, at a fraction of the cost.
    literal: String,
    queue: Option<String>,
    sender: mpsc::Sender<BusMessage>,
}

impl Subscriber {
    fn hears(&self, subject: &str) -> bool {
        subject.starts_with(&self.literal) && subject::matches(&self.filter, subject)
    }
}

impl BusState {
    fn subscribe(&mut self, filter: &str, queue: Option<&str>) -> (u64, mpsc::Receiver<BusMessage>) {
        let (sender, receiver) = mpsc::channel(SUBSCRIBER_BACKLOG_MAX);
        self.last_number += 1;
        let literal = subject::literal_prefix(filter).to_owned();
        let subscriber = Subscriber { filter: filter.into(), literal, queue: queue.map(Into::into), sender };
        self.subscribers.insert(self.last_number, subscriber);
        (self.last_number, receiver)
    }

    /// Sends a message through the network; how many listen for it now.
    fn publish(&mut self, message: &BusMessage) -> usize {
        let Some((network, courier)) = &self.network else { return self.deliver(message) };
        let delays_ms = network(message);
        if delays_ms == [0] {
            return self.deliver(message);
        }
        let listening = self.subscribers.values().filter(|s| s.hears(&message.subject)).count();
        let now = Instant::now();
        let mut at_once = 0;
        for delay_ms in delays_ms {
            if delay_ms == 0 {
                at_once += 1;
            } else {
                // The courier lives as long as the network is set.
                let _ = courier.send((now + Duration::from_millis(delay_ms), message.clone()));
            }
        }
        (0..at_once).for_each(|_| {
            self.deliver(message);
        });
        listening
    }

    /// Hands a message to every plain subscriber and to one member of each queue group; how many got it.
    fn deliver(&mut self, message: &BusMessage) -> usize {
        let mut groups: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
        let mut receivers = Vec::new();
        for (number, subscriber) in &self.subscribers {
            match &subscriber.queue {
                _ if !subscriber.hears(&message.subject) => {}
                Some(queue) => groups.entry((subscriber.filter.clone(), queue.clone())).or_default().push(*number),
                None => receivers.push(*number),
            }
        }
        for (group, members) in groups {
            let turn = self.turns.entry(group).or_default();
            receivers.extend(members.get(*turn % members.len()));
            *turn += 1;
        }
        let deliver = |number: &u64| {
            let sent = self.subscribers.get(number).map(|subscriber| subscriber.sender.try_send(message.clone()));
            if !matches!(sent, Some(Ok(()))) {
                tracing::warn!(subject = message.subject, "bus.slow_consumer: a message was lost");
            }
        };
        receivers.iter().for_each(deliver);
        receivers.len()
    }

    /// Hands a stored decision on as a command, as the stream's republish does.
    pub(super) fn republish(&mut self, stored: &Stored) {
        if !subject::matches(DECISIONS, &stored.subject) {
            return;
        }
        let tokens: Vec<_> = stored.subject.split('.').collect();
        if let [_, _, plan, target, stage, _, terminal] = tokens[..] {
            self.publish(&BusMessage {
                subject: format!("ff.cmd.{terminal}.{plan}.{target}.{stage}"),
                reply: None,
                payload: stored.payload.clone(),
                seq: Some(stored.seq),
            });
        }
    }
}

/// A subscription; dropping it ends it.
struct Subscription {
    ledger: MemoryLedger,
    number: u64,
    receiver: mpsc::Receiver<BusMessage>,
}

impl Stream for Subscription {
    type Item = BusMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<BusMessage>> {
        self.receiver.poll_recv(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.ledger.lock().bus.subscribers.remove(&self.number);
    }
}

/// Carries what arrives later, in the order of arrival, until the network is taken away and nothing is under way any more.
async fn carry(ledger: MemoryLedger, mut sent: mpsc::UnboundedReceiver<(Instant, BusMessage)>) {
    let mut under_way: BTreeMap<(Instant, u64), BusMessage> = BTreeMap::new();
    let (mut number, mut open) = (0, true);
    while open || !under_way.is_empty() {
        let next = under_way.first_key_value().map(|((at, _), _)| *at);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                if let Some((_, message)) = under_way.pop_first() {
                    let mut state = ledger.lock();
                    // What is under way when the server goes is lost with its connections.
                    if !state.down {
                        state.bus.deliver(&message);
                    }
                }
            }
            message = sent.recv(), if open => match message {
                Some((at, message)) => {
                    number += 1;
                    under_way.insert((at, number), message);
                }
                None => open = false,
            },
        }
    }
}

impl MemoryLedger {
    /// A fault: from now on messages travel as `network` says (late, twice, out of order, never); `None`: at once again.
    pub fn set_network(&self, network: Option<Network>) {
        self.lock().bus.network = network.map(|network| {
            let (courier, sent) = mpsc::unbounded_channel();
            tokio::spawn(carry(self.clone(), sent));
            (network, courier)
        });
    }

    fn subscription(&self, filter: &str, queue: Option<&str>) -> Result<Subscription, LedgerError> {
        if !subject::is_filter(filter) {
            return Err(LedgerError::Other(format!("{filter:?} is not a subject")));
        }
        let (number, receiver) = self.lock().bus.subscribe(filter, queue);
        Ok(Subscription { ledger: self.clone(), number, receiver })
    }
}

#[async_trait]
impl Bus for MemoryLedger {
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<BoxStream<BusMessage>, LedgerError> {
        Ok(self.subscription(subject, queue)?.boxed())
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), LedgerError> {
        if !subject::is_publishable(subject) {
            return Err(LedgerError::Other(format!("{subject:?} cannot be published to")));
        }
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(LedgerError::Other(format!("{} bytes are over the limit of {MAX_PAYLOAD_BYTES}", payload.len())));
        }
        self.reach()?.bus.publish(&BusMessage { subject: subject.into(), reply: None, payload, seq: None });
        Ok(())
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, RequestError> {
        let send = |why: String| RequestError::Send(why);
        if !subject::is_publishable(subject) || payload.len() > MAX_PAYLOAD_BYTES {
            return Err(send(format!("{subject:?} with {} bytes", payload.len())));
        }
        let inbox = {
            let mut state = self.reach().map_err(|error| send(error.to_string()))?;
            state.bus.last_number += 1;
            format!("_INBOX.{}", state.bus.last_number)
        };
        let mut answers = self.subscription(&inbox, None).map_err(|error| send(error.to_string()))?;
        let message = BusMessage { subject: subject.into(), reply: Some(inbox), payload, seq: None };
        if self.lock().bus.publish(&message) == 0 {
            return Err(RequestError::NoResponders(subject.into()));
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        match tokio::time::timeout(timeout, answers.next()).await {
            Ok(Some(answer)) => Ok(answer.payload),
            Ok(None) | Err(_) => Err(RequestError::Timeout { subject: subject.into(), timeout_ms }),
        }
    }

    async fn serve(
        &self,
        service: &str,
        _version: &str,
        endpoints: Vec<(String, String)>,
    ) -> Result<BoxStream<BusMessage>, LedgerError> {
        let subscribe = |(_, subject): &(String, String)| self.subscription(subject, Some(service));
        let subscriptions: Result<Vec<_>, _> = endpoints.iter().map(subscribe).collect();
        Ok(futures::stream::select_all(subscriptions?).boxed())
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD_BYTES
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.shared.connections.subscribe()
    }
}
