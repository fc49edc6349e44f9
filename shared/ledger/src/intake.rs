//! What both implementations do with a call's events before the store sees them: check each, and divide them into
//! groups that one commit may carry.
//!
//! A group never holds two events of which one could change what the other expects: the server checks all expectations
//! of an atomic batch against the log as it was *before* the batch, so both would be stored.

use std::collections::{HashMap, HashSet};

use crate::port::{Append, Appended};
use crate::subject;

/// Most messages of one atomic batch (a limit of the server).
pub(crate) const BATCH_MESSAGES_MAX: usize = 1_000;
/// Most bytes of payload put into one group; a batch is held in memory and staged on disk by the server.
pub(crate) const GROUP_BYTES_MAX: usize = 4 << 20;
/// Room for headers beside the payload within the server's `max_payload`, in bytes.
const HEADER_ROOM_BYTES: usize = 1_024;
/// Longest id: it travels as a header.
const ID_BYTES_MAX: usize = 512;

/// The refusal of an event no log could take, if it is one.
pub(crate) fn refusal(event: &Append, max_payload: usize) -> Option<Appended> {
    let size = event.payload.len() + HEADER_ROOM_BYTES.min(max_payload / 8);
    let malformed = |message: String| Some(Appended::Refused { code: "MALFORMED", message });
    if size > max_payload {
        let message = format!("{} bytes, the server takes {max_payload} with headers", event.payload.len());
        return Some(Appended::Refused { code: "TOO_LARGE", message });
    }
    if !subject::is_publishable(&event.subject) {
        return malformed(format!("subject {:?} cannot be stored under", event.subject));
    }
    if event.id.is_empty() || event.id.len() > ID_BYTES_MAX || event.id.chars().any(char::is_control) {
        return malformed(format!("id {:?} must have 1..={ID_BYTES_MAX} bytes and no control characters", event.id));
    }
    match &event.expect {
        Some(expect) if !subject::is_filter(&expect.filter) => malformed(format!("filter {:?} is not a filter", expect.filter)),
        _ => None,
    }
}

/// The refusal of an atomic batch no log could take, if it is one.
pub(crate) fn batch_refusal(events: &[Append], max_payload: usize) -> Option<Appended> {
    let malformed = |message: String| Some(Appended::Refused { code: "MALFORMED", message });
    let ids: HashSet<_> = events.iter().map(|event| &event.id).collect();
    if events.is_empty() || events.len() > BATCH_MESSAGES_MAX {
        return malformed(format!("{} events, an atomic batch has 1..={BATCH_MESSAGES_MAX}", events.len()));
    }
    if ids.len() < events.len() {
        return malformed("two events of an atomic batch have the same id".into());
    }
    if let Some(answer) = events.iter().find_map(|event| refusal(event, max_payload)) {
        return Some(answer);
    }
    if concern_each_other(events) {
        return malformed("an event of an atomic batch expects something about an earlier one of the same batch".into());
    }
    None
}

/// A call's events and the answers found so far.
pub(crate) struct Call {
    pub(crate) events: Vec<Append>,
    answers: Vec<Option<Appended>>,
    /// Events that expect another sequence than they came with.
    instead: HashSet<usize>,
}

impl Call {
    /// Takes the events; those no log could take are answered at once.
    pub(crate) fn new(events: Vec<Append>, max_payload: usize) -> Self {
        let answers = events.iter().map(|event| refusal(event, max_payload)).collect();
        Self { events, answers, instead: HashSet::new() }
    }

    pub(crate) fn answer(&mut self, index: usize, answer: Appended) {
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = Some(answer);
        }
    }

    /// From now on an event expects another sequence; `false` where it has done so before.
    pub(crate) fn expect_instead(&mut self, index: usize, last_seq: u64) -> bool {
        let expect = self.events.get_mut(index).and_then(|event| event.expect.as_mut());
        let changed = expect.is_some_and(|expect| std::mem::replace(&mut expect.last_seq, last_seq) != last_seq);
        changed && self.instead.insert(index)
    }

    /// The unanswered events to be dealt with next: no two have the same id. A repetition of an answered event is
    /// answered like it; one with other content waits for a later round.
    pub(crate) fn next_round(&mut self) -> Vec<usize> {
        let mut first_of: HashMap<&str, usize> = HashMap::with_capacity(self.events.len());
        let mut round = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            let first = *first_of.entry(&event.id).or_insert(index);
            if self.answers[index].is_some() {
                continue;
            }
            let answered = self.answers[first].clone().filter(|_| first != index);
            match answered {
                None if first == index => round.push(index),
                None => {}
                Some(answer) if self.events[first].payload == event.payload => self.answers[index] = Some(repeated(answer)),
                Some(_) => {
                    first_of.insert(&event.id, index);
                    round.push(index);
                }
            }
        }
        round
    }

    /// One answer for each event, in order. `None` if one is missing, which only a fault in here could cause.
    pub(crate) fn finish(self) -> Option<Vec<Appended>> {
        self.answers.into_iter().collect()
    }
}

fn repeated(answer: Appended) -> Appended {
    match answer {
        Appended::Stored { seq } => Appended::Duplicate { seq },
        other => other,
    }
}

/// Divides `indices` into groups of at most `messages_max`, in order, none holding events that concern one another.
pub(crate) fn groups(events: &[Append], indices: &[usize], messages_max: usize) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    // Where nobody expects anything nobody is concerned.
    let heeded = indices.iter().any(|&index| events.get(index).is_some_and(|event| event.expect.is_some()));
    let mut current = Group { heeded, ..Group::default() };
    for &index in indices {
        let Some(event) = events.get(index) else { continue };
        let full = current.members.len() >= messages_max || current.bytes + event.payload.len() > GROUP_BYTES_MAX;
        if !current.members.is_empty() && (full || current.concerns(event)) {
            let begun = Group { heeded, ..Group::default() };
            groups.push(std::mem::replace(&mut current, begun).members);
        }
        current.push(index, event);
    }
    if !current.members.is_empty() {
        groups.push(current.members);
    }
    groups
}

/// Whether a later event of the list expects something about an earlier one.
pub(crate) fn concern_each_other(events: &[Append]) -> bool {
    let mut group = Group { heeded: true, ..Group::default() };
    events.iter().enumerate().any(|(index, event)| {
        let concerned = index > 0 && group.concerns(event);
        group.push(index, event);
        concerned
    })
}

#[derive(Default)]
struct Group<'a> {
    members: Vec<usize>,
    bytes: usize,
    /// Every leading part of every subject, each ending in its dot, and the whole subjects.
    heads: HashSet<&'a str>,
    /// Whether anybody will ask for them.
    heeded: bool,
}

impl<'a> Group<'a> {
    /// Errs on the side of "yes": a false alarm costs one more commit.
    fn concerns(&self, event: &Append) -> bool {
        let Some(expect) = &event.expect else { return false };
        self.heads.contains(subject::literal_prefix(&expect.filter))
    }

    fn push(&mut self, index: usize, event: &'a Append) {
        self.members.push(index);
        self.bytes += event.payload.len();
        if !self.heeded {
            return;
        }
        self.heads.insert("");
        self.heads.insert(&event.subject);
        for (at, _) in event.subject.match_indices('.') {
            self.heads.insert(&event.subject[..=at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::port::Expect;

    fn event(subject: &str, filter: Option<&str>) -> Append {
        let expect = filter.map(|filter| Expect { filter: filter.into(), last_seq: 0 });
        Append { subject: subject.into(), id: subject.into(), payload: Bytes::from_static(b"0123456789"), expect }
    }

    #[test]
    fn events_that_concern_one_another_are_kept_apart() {
        let events =
            [event("a.1.hq.x", Some("a.1.hq.*")), event("a.2.hq.x", Some("a.2.hq.*")), event("a.1.hq.y", Some("a.1.hq.*"))];
        assert_eq!(groups(&events, &[0, 1, 2], 1_000), vec![vec![0, 1], vec![2]]);
        assert!(concern_each_other(&events));
        assert!(!concern_each_other(&events[..2]));
    }

    #[test]
    fn groups_are_bounded() {
        let events: Vec<_> = (0..25).map(|n| event(&format!("a.{n}"), None)).collect();
        let indices: Vec<_> = (0..25).collect();
        let sizes: Vec<_> = groups(&events, &indices, 10).iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 10, 5]);
    }

    #[test]
    fn what_no_log_could_take_is_refused_with_a_code() {
        let code = |event: &Append, max| match refusal(event, max) {
            Some(Appended::Refused { code, .. }) => code,
            _ => "",
        };
        assert_eq!(code(&event("a.b", None), 1 << 20), "");
        assert_eq!(code(&event("a.b", None), 10), "TOO_LARGE");
        assert_eq!(code(&event("a.*", None), 1 << 20), "MALFORMED");
        assert_eq!(code(&event("a.b", Some("a..b")), 1 << 20), "MALFORMED");
    }
}
