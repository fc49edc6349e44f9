//! How full the log is.

/// How much of its limit the log has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes stored.
    pub used_bytes: u64,
    /// The limit (`max_bytes`).
    pub max_bytes: u64,
}

impl Room {
    /// Bytes that are left.
    pub fn free_bytes(&self) -> u64 {
        self.max_bytes.saturating_sub(self.used_bytes)
    }
}
