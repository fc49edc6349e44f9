//! The version a nats-server says it has.

use std::fmt;

/// A nats-server version, ordered as semantic versions are: a pre-release comes before its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    major: u32,
    minor: u32,
    patch: u32,
    /// What follows the first `-`, for example `RC.1`.
    pre_release: Option<String>,
}

impl ServerVersion {
    /// A released version.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch, pre_release: None }
    }

    /// Reads the answer to `nats-server --version`: `nats-server: v2.15.1`. `None` for anything
    /// else, another program's version too.
    pub fn parse_banner(output: &str) -> Option<Self> {
        let rest = output.trim_start().strip_prefix("nats-server:")?;
        Self::parse(rest.split_whitespace().next()?)
    }

    /// Reads `2.15.1`, `v2.15.1` or `v2.12.0-RC.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (numbers, pre_release) = match text.split_once('-') {
            Some((_, "")) => return None,
            Some((numbers, pre)) => (numbers, Some(pre.to_owned())),
            None => (text, None),
        };
        let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
        let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() {
            return None;
        }
        Some(Self { major, minor, patch, pre_release })
    }

    /// Whether this is `min` or newer. A pre-release of `min` itself is not.
    pub fn at_least(&self, min: &Self) -> bool {
        // The flag last: `false` (pre-release) sorts before `true` (release).
        let key = |v: &Self| (v.major, v.minor, v.patch, v.pre_release.is_none());
        key(self) >= key(min)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)?;
        match &self.pre_release {
            Some(pre) => write!(out, "-{pre}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::MIN_VERSION;
    use super::*;

    #[test]
    fn banners() {
        let table: [(&str, Option<&str>); 12] = [
            ("nats-server: v2.15.1\n", Some("2.15.1")),
            ("nats-server: v2.12.0", Some("2.12.0")),
            ("nats-server: 2.9.25\n", Some("2.9.25")),
            ("nats-server: v2.12.0-RC.1\n", Some("2.12.0-RC.1")),
            ("nats-server: v2.14.0-preview.2 extra", Some("2.14.0-preview.2")),
            ("nats-server: v2.15\n", None),
            ("nats-server: v2.15.1.4\n", None),
            ("nats-server: v2.15.1-\n", None),
            ("nats-server: vx.15.1\n", None),
            ("nats-server:", None),
            ("nats: v0.2.1\n", None),
            ("", None),
        ];
        for (output, expected) in table {
            let parsed = ServerVersion::parse_banner(output).map(|v| v.to_string());
            assert_eq!(parsed.as_deref(), expected, "{output:?}");
        }
    }

    #[test]
    fn what_is_new_enough() {
        let table = [
            ("1.99.99", false),
            ("2.9.25", false),
            ("2.11.99", false),
            ("2.12.0-RC.1", false),
            ("2.12.0", true),
            ("2.12.1-RC.1", true),
            ("2.15.1", true),
            ("3.0.0", true),
        ];
        for (text, enough) in table {
            let version = ServerVersion::parse(text).unwrap();
            assert_eq!(version.at_least(&MIN_VERSION), enough, "{text}");
        }
    }
}
