//! Large immutable things in the object store, as every client of it writes and reads them.
//!
//! Written by the ledger itself: chunks go out several at a time, made as they go, and the message that names them comes last. (The
//! client's own writer waits for each chunk's answer.) What an object consists of is asked of the stream's leader, and so are its chunks,
//! one by one. (The client's reader takes a replica's word for an object's being absent or complete, and the loss of its server for the
//! object's end; a consumer waits without end for a chunk that the server counts and can't read any more.)

use std::sync::atomic::{AtomicUsize, Ordering};

use async_nats::HeaderMap;
use async_nats::jetstream::object_store::ObjectInfo;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::api::{ApiError, Failure};
use super::{Budget, JetStreamLedger};
use crate::port::{Bus, LedgerError, Objects, Source};
use crate::subject;

const ARTIFACTS: &str = "fanfold-artifacts";
const ARTIFACTS_STREAM: &str = "OBJ_fanfold-artifacts";
/// Readings of an object that is being replaced meanwhile.
const READINGS_MAX: u32 = 5;
/// Largest chunk, and chunks without an answer: what an object takes of memory while it is written.
const CHUNK_BYTES_MAX: usize = 256 << 10;
const CHUNKS_AT_A_TIME: usize = 8;

/// Bytes that are all there.
struct Whole(Bytes);

impl Source for Whole {
    fn pieces(&self) -> Box<dyn Iterator<Item = Bytes> + Send + '_> {
        Box::new(std::iter::once(self.0.clone()))
    }
}

impl JetStreamLedger {
    /// What the leader knows of an object; `None`: there is none, or none any more.
    async fn object_info(&self, name: &str, budget: Budget) -> Result<Option<ObjectInfo>, LedgerError> {
        let subject = meta_subject(name);
        let Some(message) = self.leader_last(ARTIFACTS_STREAM, &subject, budget).await? else { return Ok(None) };
        let info: ObjectInfo = serde_json::from_slice(&message.payload).map_err(|error| corrupt(name, &error))?;
        Ok(Some(info).filter(|info| !info.deleted))
    }

    async fn put_once(&self, name: &str, source: &dyn Source, budget: Budget) -> Result<(), LedgerError> {
        let before = match self.object_info(name, budget).await {
            Ok(info) => info,
            Err(LedgerError::Corrupt(_)) => None,
            Err(error) => return Err(error),
        };
        // Written again it would get new chunks, and who is reading the old ones would have to begin anew.
        if let Some(info) = &before
            && self.holds(info, source).await?
        {
            return Ok(());
        }
        let nuid = format!("{:032x}", rand::random::<u128>());
        let (size, chunks, digest) = self.put_chunks(&nuid, source).await?;
        let info = json!({
            "name": name, "bucket": ARTIFACTS, "nuid": nuid, "size": size, "chunks": chunks, "digest": digest,
            "options": { "max_chunk_size": CHUNK_BYTES_MAX },
        });
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "sub");
        let payload = Bytes::from(info.to_string());
        self.publish_acked(meta_subject(name), headers, payload, self.timeout(0)).await.map_err(unavailable)?;
        if let Some(before) = before.filter(|info| subject::is_publishable(&chunk_subject(&info.nuid))) {
            let purge = json!({ "filter": chunk_subject(&before.nuid) });
            self.api_once(&format!("STREAM.PURGE.{ARTIFACTS_STREAM}"), &purge).await.map_err(unavailable)?;
        }
        Ok(())
    }

    /// Publishes an object's chunks, in order; gives its size, how many there are, and the digest.
    async fn put_chunks(&self, nuid: &str, source: &dyn Source) -> Result<(usize, usize, String), LedgerError> {
        let (subject, chunk_max) = (chunk_subject(nuid), CHUNK_BYTES_MAX.min(self.max_payload() / 2).max(1));
        let (mut sha256, mut size, chunks) = (Sha256::new(), 0, AtomicUsize::new(0));
        let pieces = source.pieces().inspect(|piece| {
            sha256.update(piece);
            size += piece.len();
        });
        // The first poll hands a chunk to the connection, and they are polled in order.
        let sent = stream::iter(pieces.flat_map(|piece| split(piece, chunk_max))).map(|chunk| {
            chunks.fetch_add(1, Ordering::Relaxed);
            let timeout = self.timeout(chunk.len() * CHUNKS_AT_A_TIME);
            self.publish_acked(subject.clone(), HeaderMap::new(), chunk, timeout)
        });
        sent.buffered(CHUNKS_AT_A_TIME).try_for_each(|_| async { Ok(()) }).await.map_err(unavailable)?;
        Ok((size, chunks.into_inner(), digest_text(sha256)))
    }

    /// Whether an object that is there can be read as these bytes.
    async fn holds(&self, info: &ObjectInfo, source: &dyn Source) -> Result<bool, LedgerError> {
        let (mut sha256, mut size) = (Sha256::new(), 0);
        for piece in source.pieces() {
            sha256.update(&piece);
            size += piece.len();
            tokio::task::yield_now().await;
        }
        if info.size != size || !has_digest(info, &digest_text(sha256)) {
            return Ok(false);
        }
        match self.chunks(info).await {
            Ok(bytes) => Ok(bytes.len() == size && has_digest(info, &digest_text(Sha256::new_with_prefix(&bytes)))),
            Err(LedgerError::Corrupt(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What can be read of an object's bytes: fewer than it has where chunks are missing or damaged.
    async fn chunks(&self, info: &ObjectInfo) -> Result<Bytes, LedgerError> {
        let chunks = chunk_subject(&info.nuid);
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

/// Cuts a piece where it is too large for a chunk.
fn split(mut piece: Bytes, chunk_max: usize) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || (!piece.is_empty()).then(|| piece.split_to(chunk_max.min(piece.len()))))
}

fn meta_subject(name: &str) -> String {
    format!("$O.{ARTIFACTS}.M.{}", base64url(name.as_bytes()))
}

fn chunk_subject(nuid: &str) -> String {
    format!("$O.{ARTIFACTS}.C.{nuid}")
}

/// How a digest stands in an object's description.
fn digest_text(sha256: Sha256) -> String {
    format!("SHA-256={}", base64url(&sha256.finalize()))
}

/// Whether that is the digest the object was written with; an object without one is believed.
fn has_digest(info: &ObjectInfo, digest: &str) -> bool {
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

fn unavailable(failure: Failure) -> LedgerError {
    let reason = match &failure {
        Failure::Refused(error) => ApiError::text(error),
        Failure::Unknown(reason) | Failure::NotSent(reason) => reason.clone(),
    };
    LedgerError::Unavailable { waited_ms: 0, reason: format!("object store {ARTIFACTS}: {reason}") }
}

fn corrupt(name: &str, what: &dyn std::fmt::Display) -> LedgerError {
    LedgerError::Corrupt(format!("object {name}: {what}"))
}

#[async_trait]
impl Objects for JetStreamLedger {
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError> {
        self.put_object_from(name, &Whole(bytes)).await
    }

    async fn put_object_from(&self, name: &str, source: &dyn Source) -> Result<(), LedgerError> {
        let budget = self.budget();
        loop {
            match self.put_once(name, source, budget).await {
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
            if bytes.len() == info.size && has_digest(&info, &digest_text(Sha256::new_with_prefix(&bytes))) {
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
