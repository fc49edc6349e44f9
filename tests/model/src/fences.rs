//! Who leads: fences of each role, in the order of the log.

use std::collections::BTreeMap;

/// The leaders of one role.
#[derive(Debug, Clone, Default)]
struct Role {
    /// Who leads, and since which sequence.
    leader: String,
    since: u64,
    /// Last number by incarnation, of everybody who ever led.
    numbers: BTreeMap<String, u64>,
}

/// Fences of every role.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fences(BTreeMap<String, Role>);

impl Fences {
    /// Since when who leads the role leads; 0: nobody does.
    pub(crate) fn leads_since(&self, role: &str) -> u64 {
        self.0.get(role).map_or(0, |r| r.since)
    }

    /// Takes a fence; what is broken by it.
    pub(crate) fn take(&mut self, seq: u64, role: &str, id: &str) -> Option<String> {
        let parts: Vec<&str> = id.split('/').collect();
        let [of, incarnation, number] = parts.as_slice() else {
            return Some(format!("fence of {role} has the id {id:?}"));
        };
        let Some(number) = number.parse::<u64>().ok().filter(|_| *of == role) else {
            return Some(format!("fence of {role} has the id {id:?}"));
        };
        let role_name = role;
        let role = self.0.entry(role.to_owned()).or_default();
        let before = role.numbers.insert((*incarnation).to_owned(), number);
        let overtaken = before.is_some() && role.leader != *incarnation;
        if role.leader != *incarnation && !overtaken {
            (*incarnation).clone_into(&mut role.leader);
            role.since = seq;
        }
        if overtaken {
            return Some(format!("{role_name} {incarnation} appends a batch, but {} had overtaken it", role.leader));
        }
        let repeated = before.filter(|before| *before >= number)?;
        Some(format!("{role_name} {incarnation} takes fence {number} after {repeated}"))
    }
}
