//! SHA-256 digests and the canonical form of JSON that plan contents are compared by.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of bytes, lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// SHA-256 of what comes in parts.
#[derive(Debug, Clone, Default)]
pub struct Sha256Stream(Sha256);

impl Sha256Stream {
    /// Takes the next part.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The digest of all parts, lower-case hex.
    pub fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}

/// First 16 hex digits of the SHA-256 of bytes: enough to tell two requests at one position of the log apart.
pub fn short_hex(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..8])
}

/// JSON with object members sorted by name and no white space, so that equal documents have equal bytes.
pub fn canonical(value: &Value) -> String {
    // serde_json's map is sorted by key (its `preserve_order` feature is off; a test holds that).
    value.to_string()
}

/// SHA-256 over a target list, one id a line.
pub fn targets_sha256<'a>(targets: impl Iterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for target in targets {
        hasher.update(target.as_bytes());
        hasher.update(b"\n");
    }
    hex::encode(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_json_sorts_members() {
        let value = serde_json::json!({"b": 1, "a": {"d": [1, 2], "c": null}});
        assert_eq!(canonical(&value), r#"{"a":{"c":null,"d":[1,2]},"b":1}"#);
    }

    #[test]
    fn digests_are_sha256() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let mut parts = Sha256Stream::default();
        [b"a".as_slice(), b"", b"bc"].into_iter().for_each(|part| parts.update(part));
        assert_eq!(parts.finish(), sha256_hex(b"abc"));
        assert_eq!(short_hex(b"abc"), "ba7816bf8f01cfea");
        assert_eq!(targets_sha256(["a", "b"].into_iter()), sha256_hex(b"a\nb\n"));
    }
}
