//! Objects, and bytes that are made piece by piece.

use async_trait::async_trait;
use bytes::Bytes;

use super::LedgerError;

/// The bytes of an object that are never all in memory: made anew, the same, as often as asked.
pub trait Source: Send + Sync {
    /// The pieces in order, from the beginning.
    fn pieces(&self) -> Box<dyn Iterator<Item = Bytes> + Send + '_>;
}

/// Large immutable things, named by their sha256.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Stores an object; writing the same name again is harmless.
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError>;

    /// As [`Objects::put_object`], of bytes that are made piece by piece.
    async fn put_object_from(&self, name: &str, source: &dyn Source) -> Result<(), LedgerError> {
        let mut bytes = Vec::new();
        source.pieces().for_each(|piece| bytes.extend_from_slice(&piece));
        self.put_object(name, Bytes::from(bytes)).await
    }

    /// Reads an object.
    async fn get_object(&self, name: &str) -> Result<Option<Bytes>, LedgerError>;
}
