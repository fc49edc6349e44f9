//! Aligned columns.

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table of texts.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table; a heading that begins with `>` is a column of numbers.
    pub fn new(headings: &[&str]) -> Self {
        let column = |h: &&str| match h.strip_prefix('>') {
            Some(name) => (name.to_owned(), Align::Right),
            None => ((*h).to_owned(), Align::Left),
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text: two spaces between columns, none at the ends of lines. Columns without any value are left out.
    pub fn text(&self) -> String {
        let used = |i: &usize| self.rows.is_empty() || self.rows.iter().any(|r| r.get(*i).is_some_and(|c| !c.is_empty()));
        let shown: Vec<usize> = (0..self.columns.len()).filter(used).collect();
        let headings: Vec<String> = self.columns.iter().map(|(h, _)| h.to_uppercase()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(&self.rows).collect();
        let cell = |line: &Vec<String>, i: usize| line.get(i).cloned().unwrap_or_default();
        let widest = |i: &usize| lines.iter().map(|l| width(&cell(l, *i))).max().unwrap_or(0);
        let widths: Vec<usize> = shown.iter().map(widest).collect();
        let mut text = String::new();
        for line in &lines {
            let mut out = String::new();
            for (i, column_width) in shown.iter().zip(&widths) {
                let value = cell(line, *i);
                let pad = " ".repeat(column_width.saturating_sub(width(&value)));
                match self.columns.get(*i).map(|(_, align)| *align) {
                    Some(Align::Right) => out.push_str(&format!("{pad}{value}  ")),
                    Some(Align::Left) | None => out.push_str(&format!("{value}{pad}  ")),
                }
            }
            text.push_str(out.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Columns a text takes on a terminal: East Asian wide characters take two.
pub fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["store", ">lines", "empty", "name"]);
        table.row(["SH_1", "7", "", "徐汇店"].map(String::from));
        table.row(["SH_0312", "1,200", "", "x"].map(String::from));
        table.row(["S", "", "", ""].map(String::from));
        let expected = "\
STORE    LINES  NAME
SH_1         7  徐汇店
SH_0312  1,200  x
S
";
        assert_eq!(table.text(), expected);
        assert_eq!(width("徐a"), 3);
    }
}
