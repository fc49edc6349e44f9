//! The id of a terminal's journal, packed where it is of the usual form.

use std::fmt;

/// Id of a terminal's journal. One of 32 lower-case hex digits, as terminals make them, takes 16 bytes; any other text is kept as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Journal(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    Hex([u8; 16]),
    Text(Box<str>),
}

impl Journal {
    /// Any text.
    pub fn new(text: &str) -> Self {
        Self(packed(text).map_or_else(|| Form::Text(text.into()), Form::Hex))
    }
}

fn packed(text: &str) -> Option<[u8; 16]> {
    let digits: &[u8; 32] = text.as_bytes().try_into().ok()?;
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

impl PartialEq<str> for Journal {
    fn eq(&self, other: &str) -> bool {
        match &self.0 {
            Form::Hex(bytes) => packed(other).as_ref() == Some(bytes),
            Form::Text(text) => **text == *other,
        }
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Hex(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Form::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was() {
        let hex = "0123456789abcdef00ff00ff00ff00ff";
        let upper = hex.to_uppercase();
        for text in [hex, &upper, "", "journal", "é", &hex[1..], "0123456789abcdef00ff00ff00ff00fg"] {
            let journal = Journal::new(text);
            assert_eq!(journal.to_string(), text);
            assert!(journal == *text && journal == Journal::new(text));
            assert!(journal != *"another" && journal != Journal::new("another"));
        }
        assert!(Journal::new(hex) != *upper && Journal::new(&upper) != *hex);
        assert_eq!(size_of::<Journal>(), 24);
    }
}
