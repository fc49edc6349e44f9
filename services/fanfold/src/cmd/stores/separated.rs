//! Separated values with the line each record begins on, as spreadsheets write them: RFC 4180, commas or semicolons, LF or CR LF.

use fanfold_wire::api::Problem;

/// A record and the line it begins on, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

/// Splits a text; empty lines are skipped. Broken quoting is a problem of its line, the rest is still read.
pub(super) fn records(text: &str) -> (Vec<Record>, Vec<Problem>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let head = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let separator = if head.contains(';') && !head.contains(',') { ';' } else { ',' };
    let mut reader = Reader { line: 1, begun: 1, ..Reader::default() };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (reader.quoted, c) {
            (true, '"') if chars.peek() == Some(&'"') => {
                chars.next();
                reader.field.push('"');
            }
            (true, '"') => reader.close_quote(chars.peek().copied(), separator),
            (true, c) => {
                reader.line += usize::from(c == '\n');
                reader.field.push(c);
            }
            (false, '"') if reader.field.trim().is_empty() => {
                reader.field.clear();
                reader.quoted = true;
            }
            (false, '\n') => reader.end_record(),
            (false, '\r') if chars.peek() == Some(&'\n') => {}
            (false, c) if c == separator => reader.end_field(),
            (false, c) => reader.field.push(c),
        }
    }
    if reader.quoted {
        let message = "a quoted field is not closed; end it with \"";
        reader.problems.push(Problem::new("BAD_QUOTES", &format!("line {}", reader.begun), &reader.field, message));
    }
    reader.end_record();
    (reader.records, reader.problems)
}

#[derive(Default)]
struct Reader {
    records: Vec<Record>,
    problems: Vec<Problem>,
    fields: Vec<String>,
    field: String,
    quoted: bool,
    line: usize,
    begun: usize,
}

impl Reader {
    fn close_quote(&mut self, next: Option<char>, separator: char) {
        self.quoted = false;
        let ends = next.is_none_or(|c| c == separator || c == '\n' || c == '\r' || c == ' ');
        if !ends {
            let message = "text follows a closing quote; write \"\" for a quote inside a field";
            self.problems.push(Problem::new("BAD_QUOTES", &format!("line {}", self.line), &self.field, message));
        }
    }

    fn end_field(&mut self) {
        let field = std::mem::take(&mut self.field);
        self.fields.push(field.trim().to_owned());
    }

    fn end_record(&mut self) {
        self.end_field();
        let fields = std::mem::take(&mut self.fields);
        if fields.iter().any(|f| !f.is_empty()) {
            self.records.push(Record { line: self.begun, fields });
        }
        self.line += 1;
        self.begun = self.line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, Vec<String>)> {
        records(text).0.into_iter().map(|r| (r.line, r.fields)).collect()
    }

    #[test]
    fn quotes_lines_and_separators() {
        let text = "\u{feff}id,name\r\nA,\"x, \"\"y\"\"\"\r\n\r\nB,\"two\nlines\"\nC, plain \n";
        let (found, problems) = records(text);
        assert!(problems.is_empty(), "{problems:?}");
        let found: Vec<(usize, Vec<&str>)> =
            found.iter().map(|r| (r.line, r.fields.iter().map(String::as_str).collect())).collect();
        let expected =
            vec![(1, vec!["id", "name"]), (2, vec!["A", "x, \"y\""]), (4, vec!["B", "two\nlines"]), (6, vec!["C", "plain"])];
        assert_eq!(found, expected);
        assert_eq!(read("id;name\nA;x,y"), vec![(1, vec!["id".into(), "name".into()]), (2, vec!["A".into(), "x,y".into()])]);
        assert!(read("").is_empty());
    }

    #[test]
    fn broken_quotes_are_told_with_their_line() {
        let (_, problems) = records("id,name\nA,\"x\"y\nB,\"open\n");
        let lines: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(lines, ["line 2", "line 3"]);
    }
}
