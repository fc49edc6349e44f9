//! Large immutable things in the object store.
//!
//! Written by the client's own object store. Read by the ledger's: what an object consists of is asked of the stream's leader, and so
//! are its chunks, one by one. (The client's reader takes a replica's word for an object's being absent or complete, and the loss of its
//! server for the object's end; a consumer waits without end for a chunk that the server counts and can't read any more.)

use async_nats::jetstream::object_store::{ObjectInfo, ObjectStore};
use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{Budget, JetStreamLedger};
use crate::port::{LedgerError, Objects};
use crate::subject;

const ARTIFACTS: &str = "fanfold-artifacts";
const ARTIFACTS_STREAM: &str = "OBJ_fanfold-artifacts";
/// Readings of an object that is being replaced meanwhile.
const READINGS_MAX: u32 = 5;

impl JetStreamLedger {
    /// The store's handle, asked for once: what it knows of the store never changes.
    async fn artifacts(&self) -> Result<&ObjectStore, LedgerError> {
        let ask = || async {
            let context = async_nats::jetstream::new(self.inner.client.clone());
            context.get_object_store(ARTIFACTS).await.map_err(|error| unavailable(&error))
        };
        self.inner.artifacts.get_or_try_init(ask).await
    }

    /// What the leader knows of an object; `None`: there is none, or none any more.
    async fn object_info(&self, name: &str, budget: Budget) -> Result<Option<ObjectInfo>, LedgerError> {
        let subject = format!("$O.{ARTIFACTS}.M.{}", base64url(name.as_bytes()));
        let Some(message) = self.leader_last(ARTIFACTS_STREAM, &subject, budget).await? else { return Ok(None) };
        let info: ObjectInfo = serde_json::from_slice(&message.payload).map_err(|error| corrupt(name, &error))?;
        Ok(Some(info).filter(|info| !info.deleted))
    }

    async fn put_once(&self, name: &str, bytes: &Bytes, budget: Budget) -> Result<(), LedgerError> {
        match self.holds(name, bytes, budget).await {
            // Written again it would get new chunks, and who is reading the old ones would have to begin anew.
            Ok(true) => return Ok(()),
            Ok(false) | Err(LedgerError::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        let store = self.artifacts().await?;
        store.put(name, &mut bytes.as_ref()).await.map(drop).map_err(|error| unavailable(&error))
    }

    /// Whether an object is there and can be read as these bytes.
    async fn holds(&self, name: &str, bytes: &Bytes, budget: Budget) -> Result<bool, LedgerError> {
        let Some(info) = self.object_info(name, budget).await? else { return Ok(false) };
        Ok(info.size == bytes.len() && has_digest(&info, bytes) && self.chunks(&info).await? == *bytes)
    }

    /// What can be read of an object's bytes: fewer than it has where chunks are missing or damaged.
    async fn chunks(&self, info: &ObjectInfo) -> Result<Bytes, LedgerError> {
        let chunks = format!("$O.{ARTIFACTS}.C.{}", info.nuid);
        if info.size == 0 {
            return Ok(Bytes::new());
        }
        if !subject::is_publishable(&chunks) {
            return Err(corrupt(&info.name, &"its chunks have no name"));
        }
        let (mut bytes, mut after) = (Vec::new(), 0);
        // The server passes over a chunk that it can't read.
        while bytes.len() < info.size
            && let Some(chunk) = self.leader_next(ARTIFACTS_STREAM, &chunks, after, self.budget()).await?
        {
            after = chunk.sequence;
            bytes.extend_from_slice(&chunk.payload);
        }
        Ok(Bytes::from(bytes))
    }
}

/// Whether these are the bytes the object was written with; an object without a digest is believed.
fn has_digest(info: &ObjectInfo, bytes: &[u8]) -> bool {
    let digest = format!("SHA-256={}", base64url(&Sha256::digest(bytes)));
    // Padding is written by some clients and left out by others.
    info.digest.as_ref().is_none_or(|wanted| wanted.trim_end_matches('=') == digest.trim_end_matches('='))
}

/// Base64 in the URL's alphabet, padded: how object names stand in subjects.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([0, 0].iter()).take(3).fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        for place in 0..4_u32 {
            let index = (bits >> (18 - 6 * place)) & 63;
            let digit = ALPHABET.get(index as usize).copied().map_or('=', char::from);
            text.push(if place as usize <= group.len() { digit } else { '=' });
        }
    }
    text
}

fn unavailable(error: &dyn std::error::Error) -> LedgerError {
    LedgerError::Unavailable { waited_ms: 0, reason: format!("object store {ARTIFACTS}: {error}") }
}

fn corrupt(name: &str, what: &dyn std::fmt::Display) -> LedgerError {
    LedgerError::Corrupt(format!("object {name}: {what}"))
}

#[async_trait]
impl Objects for JetStreamLedger {
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError> {
        let budget = self.budget();
        loop {
            match self.put_once(name, &bytes, budget).await {
                Err(LedgerError::Unavailable { reason, .. }) => budget.pause(&reason).await?,
                other => return other,
            }
        }
    }

    async fn get_object(&self, name: &str) -> Result<Option<Bytes>, LedgerError> {
        let budget = self.budget();
        let mut read = None;
        for _ in 0..READINGS_MAX {
            let Some(info) = self.object_info(name, budget).await? else { return Ok(None) };
            if read.as_ref() == Some(&info.nuid) {
                break;
            }
            let bytes = self.chunks(&info).await?;
            if bytes.len() == info.size && has_digest(&info, &bytes) {
                return Ok(Some(bytes));
            }
            // Replaced while it was read, or damaged: then it reads the same again.
            read = Some(info.nuid);
        }
        Err(corrupt(name, &"it is damaged, its bytes are not those it was written with"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_every_client_does() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("~~~???", "fn5-Pz8_")];
        for (plain, encoded) in cases {
            assert_eq!(base64url(plain.as_bytes()), encoded);
        }
    }
}
