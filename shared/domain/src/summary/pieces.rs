//! The document of a summary, written piece by piece: of a plan of 100,000 targets it is tens of megabytes.

use serde::Serialize;

use super::{Summary, SummaryError};

/// A piece is given out once it has so many bytes; a single row may be larger by a result.
pub const PIECE_BYTES: usize = 128 << 10;

/// Where in the document the next piece begins.
enum Part {
    Head,
    Changed,
    Rows,
    Done,
}

/// Iterates over the pieces of a document.
pub struct Pieces<'v> {
    head: Result<Vec<u8>, SummaryError>,
    changed: Box<dyn Iterator<Item = &'v str> + Send + 'v>,
    rows: Box<dyn Iterator<Item = super::Row<'v>> + Send + 'v>,
    part: Part,
    /// Whether the list that is being written has an entry already.
    begun: bool,
}

pub(super) fn of<'v>(summary: &Summary<'v>) -> Pieces<'v> {
    let unwritable = |e: serde_json::Error| SummaryError::Unwritable(e.to_string());
    let head = serde_json::to_vec(summary).map_err(unwritable).map(|mut head| {
        // Open again: the lists follow.
        head.pop();
        head.extend_from_slice(b",\"changed\":[");
        head
    });
    Pieces { head, changed: Box::new(summary.changed()), rows: Box::new(summary.rows()), part: Part::Head, begun: false }
}

impl Pieces<'_> {
    /// Writes an entry of the list that is being written.
    fn entry(&mut self, piece: &mut Vec<u8>, entry: &impl Serialize) -> Result<(), SummaryError> {
        if self.begun {
            piece.push(b',');
        }
        self.begun = true;
        serde_json::to_writer(piece, entry).map_err(|e| SummaryError::Unwritable(e.to_string()))
    }

    fn next_part(&mut self, part: Part) {
        (self.part, self.begun) = (part, false);
    }

    fn fill(&mut self, piece: &mut Vec<u8>) -> Result<(), SummaryError> {
        while piece.len() < PIECE_BYTES {
            match self.part {
                Part::Head => {
                    piece.append(&mut std::mem::replace(&mut self.head, Ok(Vec::new()))?);
                    self.next_part(Part::Changed);
                }
                Part::Changed => match self.changed.next() {
                    Some(target) => self.entry(piece, &target)?,
                    None => {
                        piece.extend_from_slice(b"],\"rows\":[");
                        self.next_part(Part::Rows);
                    }
                },
                Part::Rows => match self.rows.next() {
                    Some(row) => self.entry(piece, &row)?,
                    None => {
                        piece.extend_from_slice(b"]}");
                        self.next_part(Part::Done);
                    }
                },
                Part::Done => break,
            }
        }
        Ok(())
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<Vec<u8>, SummaryError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Room for a row beyond.
        let mut piece = Vec::with_capacity(match self.part {
            Part::Done => 0,
            Part::Head => PIECE_BYTES / 8,
            Part::Changed | Part::Rows => PIECE_BYTES + PIECE_BYTES / 32,
        });
        if let Err(error) = self.fill(&mut piece) {
            self.part = Part::Done;
            return Some(Err(error));
        }
        (!piece.is_empty()).then_some(Ok(piece))
    }
}
