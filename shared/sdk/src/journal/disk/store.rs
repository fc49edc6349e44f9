//! The file itself: tables, transactions, and what its errors mean.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fanfold_wire::domain::ids::{TaskId, TerminalId};
use redb::{
    Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, Table, TableDefinition,
    TableError,
};

use super::super::{JournalError, Loaded, Op, Row, codec};
use crate::chance::Chance;

/// (terminal, task, attempt) -> row. Attempt 0 holds the highest attempt known of which the row is gone.
const ROWS: TableDefinition<'static, (&str, &str, u32), &[u8]> = TableDefinition::new("rows");
/// Terminal -> journal id.
const IDS: TableDefinition<'static, &str, &str> = TableDefinition::new("ids");
/// Terminal -> log sequence that answers must include; a file made before there was one has no such table.
const KNOWN: TableDefinition<'static, &str, u64> = TableDefinition::new("known");
/// Format of the file.
const META: TableDefinition<'static, &str, &str> = TableDefinition::new("meta");
/// Only there while a probe looks whether there is room.
const PROBE: TableDefinition<'static, (), &[u8]> = TableDefinition::new("probe");
const FORMAT: &str = "fanfold-journal-1";
/// Pause between two tries to open the file after an I/O error.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);
/// What a probe writes and removes again: as much as the largest result needs, so that after a good probe there is room for one.
const PROBE_BYTES: usize = 320 * 1024;
/// Pages kept in memory.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// One journal file, open or to be opened again.
pub(super) struct Store {
    path: PathBuf,
    database: Option<Database>,
    reopen_after: Instant,
}

impl Store {
    /// Opens or makes the file and checks every page of it.
    pub(super) fn open(path: &Path) -> Result<Self, JournalError> {
        let database = open_checked(path, true)?;
        Ok(Self { path: path.to_owned(), database: Some(database), reopen_after: Instant::now() })
    }

    fn database(&mut self) -> Result<&Database, JournalError> {
        if self.database.is_none() {
            if Instant::now() < self.reopen_after {
                return Err(JournalError::Unavailable { reason: format!("{}: closed after an error", self.path.display()) });
            }
            self.reopen_after = Instant::now() + REOPEN_PAUSE;
            // A file that is gone by now is not made anew: an empty one would forget what must not run again.
            self.database = Some(open_checked(&self.path, false)?);
            tracing::info!(path = %self.path.display(), "journal open again");
        }
        self.database.as_ref().ok_or_else(|| JournalError::Unavailable { reason: "not open".into() })
    }

    /// After an error nothing in memory is trusted: the file is closed, and opened again later.
    fn guard<T>(&mut self, work: impl FnOnce(&Database, &Path) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let path = self.path.clone();
        let database = self.database()?;
        let done = catch_unwind(AssertUnwindSafe(|| work(database, &path)))
            .unwrap_or_else(|_| Err(JournalError::Damaged { path, reason: "reading it made the database give up".into() }));
        if let Err(error) = &done {
            tracing::error!(%error, "journal error");
            self.database = None;
            self.reopen_after = Instant::now() + REOPEN_PAUSE;
        }
        done
    }

    /// Applies all operations and flushes them, in one transaction.
    pub(super) fn commit(&mut self, groups: Vec<(TerminalId, Vec<Op>)>) -> Result<(), JournalError> {
        self.guard(|database, path| {
            commit(database, path, &groups)?;
            if groups.iter().any(|(_, ops)| ops.is_empty()) { probe(database, path) } else { Ok(()) }
        })
    }

    /// Gives each of the terminals a journal id, if it has none.
    pub(super) fn make_ids(&mut self, terminals: &[&TerminalId]) -> Result<(), JournalError> {
        self.guard(|database, path| make_ids(database, path, terminals))
    }

    /// A terminal's rows and journal id.
    pub(super) fn load(&mut self, terminal: &TerminalId) -> Result<Loaded, JournalError> {
        self.guard(|database, path| load(database, path, terminal))
    }
}

/// Maps whatever the database says to what its user can do about it.
fn judge(path: &Path, error: impl Into<redb::Error>) -> JournalError {
    match error.into() {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => JournalError::Locked { path: path.to_owned() },
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData || e.kind() == std::io::ErrorKind::UnexpectedEof => {
            JournalError::Damaged { path: path.to_owned(), reason: e.to_string() }
        }
        e @ (redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::Backend(_)) => {
            JournalError::Unavailable { reason: format!("{}: {e}", path.display()) }
        }
        redb::Error::UpgradeRequired(version) => {
            JournalError::Version { path: path.to_owned(), found: format!("database {version}"), expected: FORMAT }
        }
        e => JournalError::Damaged { path: path.to_owned(), reason: e.to_string() },
    }
}

fn open_checked(path: &Path, may_make: bool) -> Result<Database, JournalError> {
    let damaged = |reason: &str| JournalError::Damaged { path: path.to_owned(), reason: reason.to_owned() };
    // A file that is no database may make the library panic: to the user that is the same damage.
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<Database, DatabaseError> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let mut database = if may_make { builder.create(path)? } else { builder.open(path)? };
        // `false` means it was repaired just now, from checksummed pages.
        database.check_integrity()?;
        Ok(database)
    }));
    let database = opened.map_err(|_| damaged("it can't be parsed"))?.map_err(|e| match e {
        DatabaseError::Storage(StorageError::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData => damaged(&e.to_string()),
        e => judge(path, e),
    })?;
    prepare(&database, path)?;
    Ok(database)
}

/// Makes the tables of a new file; refuses one of another format.
fn prepare(database: &Database, path: &Path) -> Result<(), JournalError> {
    let transaction = database.begin_write().map_err(|e| judge(path, e))?;
    let mut made = false;
    {
        let mut meta = transaction.open_table(META).map_err(|e| judge(path, e))?;
        let found = meta.get("format").map_err(|e| judge(path, e))?.map(|v| v.value().to_owned());
        match found {
            None => {
                meta.insert("format", FORMAT).map_err(|e| judge(path, e))?;
                made = true;
            }
            Some(found) if found == FORMAT => {}
            Some(found) => return Err(JournalError::Version { path: path.to_owned(), found, expected: FORMAT }),
        }
        transaction.open_table(ROWS).map_err(|e| judge(path, e))?;
        transaction.open_table(IDS).map_err(|e| judge(path, e))?;
    }
    if made { transaction.commit().map_err(|e| judge(path, e)) } else { transaction.abort().map_err(|e| judge(path, e)) }
}

fn commit(database: &Database, path: &Path, groups: &[(TerminalId, Vec<Op>)]) -> Result<(), JournalError> {
    let mut transaction = database.begin_write().map_err(|e| judge(path, e))?;
    transaction.set_durability(Durability::Immediate).map_err(|e| judge(path, e))?;
    {
        let mut rows = transaction.open_table(ROWS).map_err(|e| judge(path, e))?;
        let mut known = transaction.open_table(KNOWN).map_err(|e| judge(path, e))?;
        for (terminal, ops) in groups {
            for op in ops {
                let done = match op {
                    Op::Known { seq } => known.insert(terminal.as_str(), seq).map(drop),
                    op => apply(&mut rows, terminal.as_str(), op),
                };
                done.map_err(|e| judge(path, e))?;
            }
        }
    }
    transaction.commit().map_err(|e| judge(path, e))
}

/// Whether there is room: an empty transaction succeeds on a full disk, and what is handed out then would be refused.
fn probe(database: &Database, path: &Path) -> Result<(), JournalError> {
    let transaction = database.begin_write().map_err(|e| judge(path, e))?;
    let block = vec![0_u8; PROBE_BYTES];
    transaction.open_table(PROBE).and_then(|mut t| Ok(t.insert((), block.as_slice()).map(drop)?)).map_err(|e| judge(path, e))?;
    transaction.commit().map_err(|e| judge(path, e))?;
    let transaction = database.begin_write().map_err(|e| judge(path, e))?;
    transaction.delete_table(PROBE).map_err(|e| judge(path, e))?;
    transaction.commit().map_err(|e| judge(path, e))
}

fn apply(
    rows: &mut Table<'_, (&'static str, &'static str, u32), &'static [u8]>,
    terminal: &str,
    op: &Op,
) -> Result<(), StorageError> {
    match op {
        Op::Put { task, attempt, record } => {
            rows.insert((terminal, task.to_string().as_str(), *attempt), codec::encode(record).as_slice())?;
        }
        Op::Reduce { task, attempt } => {
            let task = task.to_string();
            rows.remove((terminal, task.as_str(), *attempt))?;
            let known = rows.get((terminal, task.as_str(), 0))?.and_then(|v| number(v.value())).unwrap_or(0);
            rows.insert((terminal, task.as_str(), 0), known.max(*attempt).to_le_bytes().as_slice())?;
        }
        Op::Forget { task } => {
            let task = task.to_string();
            let all = (terminal, task.as_str(), 0)..=(terminal, task.as_str(), u32::MAX);
            rows.retain_in(all, |_, _| false)?;
        }
        Op::Known { .. } => {}
    }
    Ok(())
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn load(database: &Database, path: &Path, terminal: &TerminalId) -> Result<Loaded, JournalError> {
    let unreadable =
        |what: &str| JournalError::Damaged { path: path.to_owned(), reason: format!("the row of {what} can't be read") };
    let transaction = database.begin_read().map_err(|e| judge(path, e))?;
    let ids = transaction.open_table(IDS).map_err(|e| judge(path, e))?;
    let id = ids.get(terminal.as_str()).map_err(|e| judge(path, e))?.map(|v| v.value().to_owned());
    let journal_id = id.ok_or_else(|| unreadable("the journal id"))?;
    let table = transaction.open_table(ROWS).map_err(|e| judge(path, e))?;
    let mut rows = Vec::new();
    for entry in table.range((terminal.as_str(), "", 0)..).map_err(|e| judge(path, e))? {
        let (key, value) = entry.map_err(|e| judge(path, e))?;
        let (owner, task, attempt) = key.value();
        if owner != terminal.as_str() {
            break;
        }
        let task_id = TaskId::parse(task).map_err(|_| unreadable(task))?;
        rows.push(match attempt {
            0 => Row { task: task_id, attempt: number(value.value()).ok_or_else(|| unreadable(task))?, record: None },
            attempt => {
                let record = codec::decode(value.value()).ok_or_else(|| unreadable(task))?;
                Row { task: task_id, attempt, record: Some(record) }
            }
        });
    }
    rows.sort_by(|a, b| (&a.task, a.attempt).cmp(&(&b.task, b.attempt)));
    let known_seq = load_known(&transaction, terminal).map_err(|e| judge(path, e))?;
    Ok(Loaded { journal_id, rows, known_seq })
}

fn load_known(transaction: &ReadTransaction, terminal: &TerminalId) -> Result<u64, redb::Error> {
    match transaction.open_table(KNOWN) {
        Ok(known) => Ok(known.get(terminal.as_str())?.map_or(0, |seq| seq.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Makes the ids that are not there yet, all in one transaction: terminals are often started by the hundred.
fn make_ids(database: &Database, path: &Path, terminals: &[&TerminalId]) -> Result<(), JournalError> {
    let transaction = database.begin_write().map_err(|e| judge(path, e))?;
    let mut made = false;
    {
        let mut ids = transaction.open_table(IDS).map_err(|e| judge(path, e))?;
        for terminal in terminals {
            if ids.get(terminal.as_str()).map_err(|e| judge(path, e))?.is_none() {
                ids.insert(terminal.as_str(), Chance::system().id().as_str()).map_err(|e| judge(path, e))?;
                made = true;
            }
        }
    }
    if made { transaction.commit().map_err(|e| judge(path, e)) } else { transaction.abort().map_err(|e| judge(path, e)) }
}
