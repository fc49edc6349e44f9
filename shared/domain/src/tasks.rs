//! The tasks of a plan, in chunks that copies share until one of them is changed.
//!
//! A copy of a view is cheap, whatever the plan's size: a summary is written from one while the fold goes on. Of what the fold changes
//! meanwhile it copies the chunk first.

use std::ops::Index;
use std::sync::Arc;

use crate::task::Task;

/// Tasks of a chunk; a power of two.
const CHUNK: usize = 64;

/// Tasks in target order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tasks {
    chunks: Vec<Arc<Vec<Task>>>,
    len: usize,
}

impl Tasks {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Option<&Task> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// One of them, to be changed; copies of these tasks don't see it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Task> {
        Arc::make_mut(self.chunks.get_mut(index / CHUNK)?).get_mut(index % CHUNK)
    }

    /// All of them, in order.
    pub fn iter(&self) -> Iter<'_> {
        self.chunks.iter().flat_map(as_slice as fn(&Arc<Vec<Task>>) -> &[Task])
    }

    /// Those from `begin` to before `end`, in order; what is not there is left out.
    pub fn range(&self, begin: usize, end: usize) -> impl Iterator<Item = &Task> {
        (begin..end.min(self.len)).filter_map(|index| self.get(index))
    }

    /// Adds tasks to which nothing has happened until there are `len`.
    pub fn grow(&mut self, len: usize) {
        while self.len < len {
            if self.len.is_multiple_of(CHUNK) {
                self.chunks.push(Arc::default());
            }
            let Some(last) = self.chunks.last_mut().map(Arc::make_mut) else { return };
            let more = (CHUNK - last.len()).min(len - self.len);
            // Exactly so many: a list that doubles would waste half.
            last.reserve_exact(more);
            last.extend(std::iter::repeat_with(Task::default).take(more));
            self.len += more;
        }
    }
}

/// Iterates over tasks.
pub type Iter<'a> = std::iter::FlatMap<std::slice::Iter<'a, Arc<Vec<Task>>>, &'a [Task], fn(&Arc<Vec<Task>>) -> &[Task]>;

fn as_slice(chunk: &Arc<Vec<Task>>) -> &[Task] {
    chunk
}

impl Index<usize> for Tasks {
    type Output = Task;

    fn index(&self, index: usize) -> &Task {
        &self.chunks[index / CHUNK][index % CHUNK]
    }
}

impl<'a> IntoIterator for &'a Tasks {
    type Item = &'a Task;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_was_made_of() {
        let mut tasks = Tasks::default();
        assert!(tasks.is_empty() && tasks.get(0).is_none());
        for len in [1, 70, 64, 129, 200] {
            tasks.grow(len);
        }
        assert_eq!((tasks.len(), tasks.iter().count(), tasks.range(190, 999).count()), (200, 200, 10));
        tasks.get_mut(130).unwrap().tries = 1;
        let copy = tasks.clone();
        tasks.get_mut(130).unwrap().tries = 2;
        tasks.get_mut(5).unwrap().tries = 3;
        assert!(tasks.get_mut(200).is_none());
        assert_eq!((copy[130].tries, copy[5].tries), (1, 0));
        assert_eq!((tasks[130].tries, tasks[5].tries), (2, 3));
        assert_eq!(tasks.iter().enumerate().filter(|(_, t)| t.tries > 0).map(|(i, _)| i).collect::<Vec<_>>(), [5, 130]);
        assert!(Arc::ptr_eq(&tasks.chunks[1], &copy.chunks[1]), "what did not change is shared");
    }
}
