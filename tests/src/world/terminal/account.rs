//! Every execution of every terminal, written down by the handlers themselves: the account that nothing else has a part in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanfold_domain::ids::{TaskId, TerminalId};
use tokio::time::Instant;

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The handler returned a result.
    Done,
    /// It returned an error.
    Failed,
    /// It ended because it was told to.
    Stopped,
    /// It was told to end, did not, and was dropped.
    Dropped,
    /// Its process ended.
    Cut,
}

/// One time a handler was entered. Times are milliseconds since the account was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub task: TaskId,
    pub attempt: u32,
    pub terminal: TerminalId,
    /// Number of the process, counted over all terminals.
    pub process: u32,
    pub begun_ms: u64,
    pub ended: Option<(u64, How)>,
}

impl Execution {
    fn ended_ms(&self) -> u64 {
        self.ended.map_or(u64::MAX, |(at, _)| at)
    }
}

#[derive(Default)]
struct Book {
    executions: Vec<Execution>,
    processes: u32,
    /// Terminals whose disk was copied while they ran.
    copied: BTreeSet<TerminalId>,
}

/// Clones share one book.
#[derive(Clone)]
pub struct Account {
    opened: Instant,
    book: Arc<Mutex<Book>>,
}

impl Default for Account {
    fn default() -> Self {
        Self { opened: Instant::now(), book: Arc::default() }
    }
}

impl Account {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since it was opened.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A number for a new process.
    pub(super) fn next_process(&self) -> u32 {
        let mut book = self.book();
        book.processes += 1;
        book.processes
    }

    /// A handler is entered; what is given back ends the line.
    pub(super) fn begin(&self, task: TaskId, attempt: u32, terminal: TerminalId, process: u32) -> Line {
        let begun_ms = self.now_ms();
        let mut book = self.book();
        book.executions.push(Execution { task, attempt, terminal, process, begun_ms, ended: None });
        Line { account: self.clone(), index: book.executions.len() - 1 }
    }

    /// The process is gone, and whatever it executed.
    pub(super) fn cut(&self, process: u32) {
        let now = self.now_ms();
        for execution in self.book().executions.iter_mut().filter(|e| e.process == process) {
            execution.ended.get_or_insert((now, How::Cut));
        }
    }

    /// Another process has a copy of the terminal's disk. It takes what runs in the first one for cut off and says so; that the two
    /// then never work at the same task at once is not promised.
    pub(super) fn copied(&self, terminal: &TerminalId) {
        self.book().copied.insert(terminal.clone());
    }

    /// Everything so far, in the order it began.
    pub fn executions(&self) -> Vec<Execution> {
        self.book().executions.clone()
    }

    /// Executions of one task, in the order they began.
    pub fn of(&self, task: &TaskId) -> Vec<Execution> {
        self.book().executions.iter().filter(|e| e.task == *task).cloned().collect()
    }

    /// What must not be: an attempt begun twice, two attempts of one task at once at one terminal.
    pub fn problems(&self) -> Vec<String> {
        let executions = self.executions();
        let copied = self.book().copied.clone();
        let mut attempts: BTreeMap<(&TaskId, u32), u32> = BTreeMap::new();
        let mut tasks: BTreeMap<(&TerminalId, &TaskId), &Execution> = BTreeMap::new();
        let mut problems = Vec::new();
        for execution in &executions {
            let times = attempts.entry((&execution.task, execution.attempt)).or_default();
            *times += 1;
            if *times > 1 {
                problems.push(format!("begun {times} times: {execution:?}"));
            }
            if let Some(before) = tasks.get(&(&execution.terminal, &execution.task))
                && before.ended_ms() > execution.begun_ms
                && (before.process == execution.process || !copied.contains(&execution.terminal))
            {
                problems.push(format!("at once: {before:?} and {execution:?}"));
            }
            let latest = tasks.entry((&execution.terminal, &execution.task)).or_insert(execution);
            if latest.ended_ms() < execution.ended_ms() {
                *latest = execution;
            }
        }
        problems
    }
}

/// An execution under way; dropping it ends it.
pub(super) struct Line {
    account: Account,
    index: usize,
}

impl Line {
    /// It ends like this.
    pub(super) fn end(self, how: How) {
        self.write(how);
    }

    fn write(&self, how: How) {
        let now = self.account.now_ms();
        if let Some(execution) = self.account.book().executions.get_mut(self.index) {
            execution.ended.get_or_insert((now, how));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.write(How::Dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_must_not_be_is_found() {
        let account = Account::default();
        let (task, other) = (TaskId::parse("p.S1.main").unwrap(), TaskId::parse("q.S1.main").unwrap());
        let terminal = TerminalId::new("S1").unwrap();
        let begin = |task: &TaskId, attempt| account.begin(task.clone(), attempt, terminal.clone(), 1);
        let pause = || tokio::time::advance(Duration::from_millis(10));
        let first = begin(&task, 1);
        let _aside = begin(&other, 1);
        pause().await;
        first.end(How::Failed);
        let second = begin(&task, 2);
        assert!(account.problems().is_empty(), "{:?}", account.problems());
        pause().await;
        let third = begin(&task, 3);
        assert_eq!(account.problems().len(), 1, "two at once");
        pause().await;
        drop((second, third));
        pause().await;
        let _again = begin(&task, 3);
        assert_eq!(account.problems().len(), 2, "and one twice");
        account.cut(1);
        let ends: Vec<How> = account.executions().iter().filter_map(|e| e.ended).map(|(_, how)| how).collect();
        assert_eq!(ends, [How::Failed, How::Cut, How::Dropped, How::Dropped, How::Cut]);
    }
}
