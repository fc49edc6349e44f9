//! What a command leaves behind: its processes and its temporary files.

use std::collections::BTreeSet;
use std::path::Path;

use crate::wait::{SOON, until};

/// Parent of a process, and whether it still runs (a zombie does not).
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z")
}

/// Everything a process has started, at any depth.
pub fn descendants(pid: u32) -> BTreeSet<u32> {
    let pids: Vec<u32> =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let mut found = BTreeSet::from([pid]);
    // Bounded by how deep processes are nested: each round adds a generation.
    loop {
        let before = found.len();
        found.extend(
            pids.iter().filter(|p| parent_of(**p).is_some_and(|parent| found.contains(&parent))).copied().collect::<Vec<_>>(),
        );
        if found.len() == before {
            break;
        }
    }
    found.remove(&pid);
    found
}

/// None of these processes runs any more, and `tmp` in the folder is empty.
pub async fn nothing_is_left(folder: &Path, processes: &BTreeSet<u32>) {
    until("every process of it is gone", SOON, async || processes.iter().all(|p| parent_of(*p).is_none()).then_some(())).await;
    let left: Vec<_> = std::fs::read_dir(folder.join("tmp")).unwrap().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
