//! Large immutable things in the object store.

use async_nats::jetstream::object_store::{GetErrorKind, InfoErrorKind, ObjectStore};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::JetStreamLedger;
use crate::port::{LedgerError, Objects};

const ARTIFACTS: &str = "fanfold-artifacts";
/// Tries of one operation; each has the client's own time-outs inside.
const TRIES_MAX: u32 = 5;

impl JetStreamLedger {
    /// The store's handle, asked for once: what it knows of the store never changes.
    async fn artifacts(&self) -> Result<&ObjectStore, LedgerError> {
        let ask = || async {
            let context = async_nats::jetstream::new(self.inner.client.clone());
            context.get_object_store(ARTIFACTS).await.map_err(|error| unavailable(&error))
        };
        self.inner.artifacts.get_or_try_init(ask).await
    }

    async fn put_once(&self, name: &str, bytes: &Bytes) -> Result<(), LedgerError> {
        let store = self.artifacts().await?;
        match store.info(name).await {
            // Written again it would get new chunks, and who is reading the old ones would fail.
            Ok(info) if !info.deleted && info.size == bytes.len() => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == InfoErrorKind::NotFound => {}
            Err(error) => return Err(unavailable(&error)),
        }
        store.put(name, &mut bytes.as_ref()).await.map(drop).map_err(|error| unavailable(&error))
    }

    async fn get_once(&self, name: &str) -> Result<Option<Bytes>, LedgerError> {
        let store = self.artifacts().await?;
        let mut object = match store.get(name).await {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unavailable(&error)),
        };
        let mut bytes = Vec::with_capacity(object.info.size);
        // The client checks the digest at the end of the object.
        object.read_to_end(&mut bytes).await.map_err(|error| LedgerError::Corrupt(format!("object {name}: {error}")))?;
        Ok(Some(Bytes::from(bytes)))
    }
}

fn unavailable(error: &dyn std::error::Error) -> LedgerError {
    LedgerError::Unavailable { waited_ms: 0, reason: format!("object store {ARTIFACTS}: {error}") }
}

#[async_trait]
impl Objects for JetStreamLedger {
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError> {
        let budget = self.budget();
        for _ in 1..TRIES_MAX {
            match self.put_once(name, &bytes).await {
                Err(LedgerError::Unavailable { reason, .. }) => budget.pause(&reason).await?,
                other => return other,
            }
        }
        self.put_once(name, &bytes).await
    }

    async fn get_object(&self, name: &str) -> Result<Option<Bytes>, LedgerError> {
        let budget = self.budget();
        for _ in 1..TRIES_MAX {
            match self.get_once(name).await {
                Err(LedgerError::Unavailable { reason, .. }) => budget.pause(&reason).await?,
                other => return other,
            }
        }
        self.get_once(name).await
    }
}
