//! A service's own handle on the ledger in memory: it can be frozen, and its appends can fail the way a network makes them fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::*;
use fanfold_ledger::watch;
use futures::StreamExt;

pub use super::faults::{Fault, Faults, Op, When};
use super::faults::{lost, meet, with_refused};

/// The handle.
#[derive(Clone)]
pub struct Handle {
    pub inner: MemoryLedger,
    pub faults: Arc<Faults>,
}

impl Handle {
    pub fn new(inner: &MemoryLedger) -> Self {
        Self { inner: inner.clone(), faults: Arc::default() }
    }

    fn gate<T: Send + 'static>(&self, stream: BoxStream<T>) -> BoxStream<T> {
        let faults = Arc::clone(&self.faults);
        stream
            .then(move |item| {
                let faults = Arc::clone(&faults);
                async move {
                    faults.thawed().await;
                    item
                }
            })
            .boxed()
    }
}

#[async_trait]
impl Log for Handle {
    async fn append(&self, mut events: Vec<Append>) -> Result<Vec<Appended>, LedgerError> {
        self.faults
            .call(Op::Append, async {
                let meets = meet(self.faults.next_fault(), &mut events)?;
                let answers = self.inner.append(events).await;
                if meets.lost_answer { Err(lost()) } else { answers.map(|answers| with_refused(answers, meets.refused)) }
            })
            .await
    }

    async fn append_atomic(&self, events: Vec<Append>) -> Result<Appended, LedgerError> {
        self.faults
            .call(Op::Atomic, async {
                match self.faults.next_fault() {
                    Some(Fault::Member(_)) => Ok(Appended::Conflict),
                    fault => {
                        let meets = meet(fault, &mut Vec::new())?;
                        let answer = self.inner.append_atomic(events).await;
                        if meets.lost_answer { Err(lost()) } else { answer }
                    }
                }
            })
            .await
    }

    async fn acquire_fence(&self, role: &str, incarnation: &str) -> Result<Fence, FencedError> {
        self.faults.call(Op::Fence, self.inner.acquire_fence(role, incarnation)).await
    }

    async fn append_fenced(&self, fence: &mut Fence, mut events: Vec<Append>) -> Result<Vec<Appended>, FencedError> {
        self.faults
            .call(Op::Fenced, async {
                let meets = meet(self.faults.next_fault(), &mut events)?;
                let answers = self.inner.append_fenced(fence, events).await;
                if meets.lost_answer { Err(lost().into()) } else { answers.map(|answers| with_refused(answers, meets.refused)) }
            })
            .await
    }

    async fn last_seq(&self) -> Result<u64, LedgerError> {
        self.faults.ends_asked.fetch_add(1, Ordering::Relaxed);
        self.faults.thawed().await;
        self.inner.last_seq().await
    }

    async fn gaps(&self) -> Result<Vec<(u64, u64)>, LedgerError> {
        self.faults.thawed().await;
        self.inner.gaps().await
    }

    async fn last_under(&self, filter: &str) -> Result<Option<Stored>, LedgerError> {
        self.faults.thawed().await;
        self.inner.last_under(filter).await
    }

    async fn read(
        &self,
        filters: Vec<String>,
        from: u64,
        to: u64,
    ) -> Result<BoxStream<Result<Stored, LedgerError>>, LedgerError> {
        self.faults.thawed().await;
        self.inner.read(filters, from, to).await
    }

    async fn tail(&self, from: u64) -> Result<BoxStream<TailItem>, LedgerError> {
        self.faults.thawed().await;
        Ok(self.gate(self.inner.tail(from).await?))
    }
}

#[async_trait]
impl Buckets for Handle {
    async fn put_state(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.faults.call(Op::PutState, self.inner.put_state(records)).await
    }

    async fn get_state(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_state(key).await
    }

    async fn list_state(&self, filter: &str) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError> {
        self.faults.thawed().await;
        self.inner.list_state(filter).await
    }

    async fn put_state_if(&self, key: &str, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        self.faults.thawed().await;
        self.inner.put_state_if(key, value, expect).await
    }

    async fn state_extent(&self) -> Result<Extent, LedgerError> {
        self.faults.thawed().await;
        self.inner.state_extent().await
    }

    async fn put_checkpoint(&self, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        self.faults.call(Op::Checkpoint, self.inner.put_checkpoint(value, expect)).await
    }

    async fn get_checkpoint(&self) -> Result<Option<Entry>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_checkpoint().await
    }

    async fn put_terminals(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.faults.call(Op::Registry, self.inner.put_terminals(records)).await
    }

    async fn get_terminal(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_terminal(key).await
    }

    async fn list_terminals(&self, filter: &str) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError> {
        self.faults.thawed().await;
        self.inner.list_terminals(filter).await
    }
}

#[async_trait]
impl Types for Handle {
    async fn create_type(&self, name: &str, version: u32, document: Bytes) -> Result<Option<Bytes>, LedgerError> {
        self.inner.create_type(name, version, document).await
    }

    async fn get_type(&self, name: &str, version: u32) -> Result<Option<Bytes>, LedgerError> {
        self.inner.get_type(name, version).await
    }

    async fn list_types(&self) -> Result<Vec<(String, u32, Bytes)>, LedgerError> {
        self.inner.list_types().await
    }
}

#[async_trait]
impl Objects for Handle {
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError> {
        self.faults.call(Op::Object, self.inner.put_object(name, bytes)).await
    }

    async fn get_object(&self, name: &str) -> Result<Option<Bytes>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_object(name).await
    }
}

#[async_trait]
impl Bus for Handle {
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<BoxStream<BusMessage>, LedgerError> {
        self.faults.thawed().await;
        let faults = Arc::clone(&self.faults);
        let redirect = move |mut message: BusMessage| {
            if let (Some(reply), Some(_)) = (faults.reply.lock().unwrap().clone(), &message.reply) {
                message.reply = Some(reply);
            }
            message
        };
        Ok(self.gate(self.inner.subscribe(subject, queue).await?.map(redirect).boxed()))
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), LedgerError> {
        self.faults.call(Op::Publish, self.inner.publish(subject, payload)).await
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, RequestError> {
        self.faults.thawed().await;
        self.inner.request(subject, payload, timeout).await
    }

    async fn serve(
        &self,
        service: &str,
        version: &str,
        endpoints: Vec<(String, String)>,
    ) -> Result<BoxStream<BusMessage>, LedgerError> {
        self.faults.thawed().await;
        Ok(self.gate(self.inner.serve(service, version, endpoints).await?))
    }

    fn max_payload(&self) -> usize {
        self.inner.max_payload()
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.inner.connections()
    }
}
