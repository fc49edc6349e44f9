//! An attempt of a task and the list of them, packed: a plan of 100,000 tasks has as many.

use std::ops::Deref;

use super::{Journal, Outcome, STEPS_MAX, Step, TaskError};
use crate::ids::TerminalId;
use crate::retry::ErrorClass;

/// A moment that may not have come, in the room of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment(i64);

impl Moment {
    const NEVER: Self = Self(i64::MIN);

    fn get(self) -> Option<i64> {
        (self != Self::NEVER).then_some(self.0)
    }
}

/// What most attempts don't have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Steps {
    /// Log time of the last sign of a run, epoch ms.
    progressed_ms: i64,
    list: Vec<Step>,
}

/// One attempt, from hand-out to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Number.
    pub number: u32,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// How the code was classed.
    pub class: Option<ErrorClass>,
    /// HQ has asked for its end.
    pub stop_requested: bool,
    /// It was handed out while another was live or the task had ended; it can only be stopped.
    pub superseded: bool,
    /// Who has it.
    pub terminal: TerminalId,
    /// The terminal's journal it went to.
    pub journal: Journal,
    /// Sequence of its `task.dispatched`.
    pub dispatched_seq: u64,
    /// Log time of its `task.dispatched`, epoch ms.
    pub dispatched_ms: i64,
    /// What went wrong.
    pub error: Option<Box<TaskError>>,
    started: Moment,
    ended: Moment,
    steps: Option<Box<Steps>>,
}

impl Attempt {
    /// An attempt that has just been handed out, at this sequence and log time (epoch ms).
    pub fn handed_out(number: u32, terminal: TerminalId, journal: &str, seq: u64, time_ms: i64) -> Self {
        Self {
            number,
            outcome: None,
            class: None,
            stop_requested: false,
            superseded: false,
            terminal,
            journal: Journal::new(journal),
            dispatched_seq: seq,
            dispatched_ms: time_ms,
            error: None,
            started: Moment::NEVER,
            ended: Moment::NEVER,
            steps: None,
        }
    }

    /// Whether it may still be alive.
    pub fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Log time of the first sign of a run, epoch ms.
    pub fn started_ms(&self) -> Option<i64> {
        self.started.get()
    }

    /// Log time of the last sign of a run, epoch ms.
    pub fn progressed_ms(&self) -> Option<i64> {
        self.steps.as_ref().map_or(self.started_ms(), |steps| Some(steps.progressed_ms))
    }

    /// Log time of its end, epoch ms.
    pub fn ended_ms(&self) -> Option<i64> {
        self.ended.get()
    }

    /// Steps, at most 64.
    pub fn steps(&self) -> &[Step] {
        self.steps.as_ref().map_or(&[], |steps| &steps.list)
    }

    /// It runs since that log time (epoch ms), whatever was said of its end before.
    pub fn begin(&mut self, time_ms: i64) {
        self.started = Moment(time_ms);
        if let Some(steps) = &mut self.steps {
            steps.progressed_ms = time_ms;
        }
        (self.ended, self.outcome, self.error, self.class) = (Moment::NEVER, None, None, None);
    }

    /// It ended at that log time (epoch ms).
    pub fn end(&mut self, time_ms: i64, outcome: Outcome, error: Option<&TaskError>, class: Option<ErrorClass>) {
        self.outcome = Some(outcome);
        self.ended = Moment(time_ms);
        self.error = error.map(|e| Box::new(e.clone()));
        self.class = class;
    }

    /// Whether a step of this number is noted.
    pub fn has_step(&self, k: u32) -> bool {
        self.steps().iter().any(|s| s.k == k)
    }

    /// Notes a step at a log time (epoch ms); `false`: there are too many.
    pub fn note_step(&mut self, time_ms: i64, step: Step) -> bool {
        let steps = self.steps.get_or_insert_with(|| Box::new(Steps { progressed_ms: time_ms, list: Vec::new() }));
        if steps.list.len() >= STEPS_MAX {
            return false;
        }
        steps.progressed_ms = time_ms;
        steps.list.push(step);
        true
    }
}

/// Attempts in the order of their hand-out; read as a slice. One, as most tasks have, takes no list.
#[derive(Debug, Clone, Default)]
pub struct Attempts(Kept);

#[derive(Debug, Clone, Default)]
enum Kept {
    #[default]
    None,
    One(Box<Attempt>),
    #[expect(clippy::box_collection, reason = "most tasks have at most one attempt, and all have the room of the list")]
    Many(Box<Vec<Attempt>>),
}

impl Attempts {
    /// The attempts, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [Attempt] {
        match &mut self.0 {
            Kept::None => &mut [],
            Kept::One(one) => std::slice::from_mut(one),
            Kept::Many(many) => many,
        }
    }

    /// Puts one at the end.
    pub fn push(&mut self, attempt: Attempt) {
        self.0 = match std::mem::take(&mut self.0) {
            Kept::None => Kept::One(Box::new(attempt)),
            Kept::One(one) => Kept::Many(Box::new(vec![*one, attempt])),
            Kept::Many(mut many) => {
                many.push(attempt);
                Kept::Many(many)
            }
        };
    }

    /// Takes one out; nothing happens where there is none.
    pub fn remove(&mut self, index: usize) {
        match &mut self.0 {
            Kept::One(_) if index == 0 => self.0 = Kept::None,
            Kept::Many(many) if index < many.len() => drop(many.remove(index)),
            Kept::None | Kept::One(_) | Kept::Many(_) => {}
        }
    }
}

impl Deref for Attempts {
    type Target = [Attempt];

    fn deref(&self) -> &[Attempt] {
        match &self.0 {
            Kept::None => &[],
            Kept::One(one) => std::slice::from_ref(one),
            Kept::Many(many) => many,
        }
    }
}

impl PartialEq for Attempts {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<'a> IntoIterator for &'a Attempts {
    type Item = &'a Attempt;
    type IntoIter = std::slice::Iter<'a, Attempt>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn attempt(number: u32) -> Attempt {
        Attempt::handed_out(number, TerminalId::new("T0").unwrap(), "j", u64::from(number), 1_000)
    }

    #[test]
    fn a_list_of_attempts_grows_and_shrinks() {
        let mut attempts = Attempts::default();
        let numbers = |attempts: &Attempts| attempts.iter().map(|a| a.number).collect::<Vec<_>>();
        attempts.remove(0);
        assert!(attempts.is_empty());
        for number in 1..=4 {
            attempts.push(attempt(number));
        }
        attempts.remove(1);
        attempts.remove(7);
        assert_eq!(numbers(&attempts), [1, 3, 4]);
        let mut one = Attempts::default();
        one.push(attempt(9));
        one.as_mut_slice()[0].stop_requested = true;
        assert!(one[0].stop_requested && one != attempts);
        one.remove(0);
        assert!(numbers(&one).is_empty());
    }

    #[test]
    fn the_last_sign_of_a_run_is_its_start_or_its_last_step() {
        let mut a = attempt(1);
        assert_eq!((a.started_ms(), a.progressed_ms(), a.ended_ms()), (None, None, None));
        a.begin(2_000);
        assert_eq!((a.started_ms(), a.progressed_ms()), (Some(2_000), Some(2_000)));
        assert!(a.note_step(3_000, Step { k: 0, step: "s".into(), ms: 5 }) && a.has_step(0) && !a.has_step(1));
        assert_eq!((a.started_ms(), a.progressed_ms()), (Some(2_000), Some(3_000)));
        a.end(4_000, Outcome::TimedOutDelivery, None, None);
        a.begin(5_000);
        assert_eq!((a.progressed_ms(), a.ended_ms(), a.outcome, a.steps().len()), (Some(5_000), None, None, 1));
        assert!((1..64).all(|k| a.note_step(6_000, Step { k, step: "s".into(), ms: 5 })));
        assert!(!a.note_step(7_000, Step { k: 64, step: "s".into(), ms: 5 }));
        assert_eq!(a.progressed_ms(), Some(6_000), "what is not kept is no sign");
    }
}
