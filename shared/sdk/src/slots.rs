//! How many tasks a machine can run at once: found from its processors and memory, or its cgroup's. Configuration only lowers it.

use std::path::Path;

/// Tasks a processor: handlers wait more than they compute.
const SLOTS_PER_CORE: u64 = 8;
/// Memory a task is reckoned with.
const BYTES_PER_SLOT: u64 = 64 * 1024 * 1024;
/// More than this is never useful to one terminal.
const SLOTS_MAX: u64 = 1024;

/// Most tasks this machine, or the container this process is in, can run at once; at least 1.
pub fn slots_ceiling() -> u32 {
    // The standard library takes a cgroup's processor quota into account.
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    ceiling(cores, memory_bytes(Path::new("/")))
}

fn ceiling(cores: u64, memory_bytes: Option<u64>) -> u32 {
    let by_memory = memory_bytes.map_or(SLOTS_MAX, |bytes| bytes / BYTES_PER_SLOT);
    let slots = cores.saturating_mul(SLOTS_PER_CORE).min(by_memory).clamp(1, SLOTS_MAX);
    u32::try_from(slots).unwrap_or(1)
}

/// The smallest of the machine's memory and the limits of cgroup 2 and 1; `None` where none of them is told.
fn memory_bytes(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let total = read("proc/meminfo").and_then(|text| meminfo_total(&text));
    let limit = |path: &str| read(path).and_then(|text| text.trim().parse::<u64>().ok());
    [total, limit("sys/fs/cgroup/memory.max"), limit("sys/fs/cgroup/memory/memory.limit_in_bytes")].into_iter().flatten().min()
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_cores_and_memory_counts() {
        const GIB: u64 = 1 << 30;
        for (cores, memory, slots) in
            [(2, Some(4 * GIB), 16), (8, Some(GIB), 16), (1, Some(1), 1), (4, None, 32), (u64::MAX, None, 1024), (0, None, 1)]
        {
            assert_eq!(ceiling(cores, memory), slots, "{cores} cores, {memory:?}");
        }
        assert!(slots_ceiling() >= 1);
    }

    #[test]
    fn a_cgroup_limit_counts_and_max_does_not() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(memory_bytes(root.path()), None);
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal:       2048 kB\nMemFree: 1 kB\n").unwrap();
        std::fs::write(root.path().join("sys/fs/cgroup/memory.max"), "max\n").unwrap();
        assert_eq!(memory_bytes(root.path()), Some(2048 * 1024));
        std::fs::write(root.path().join("sys/fs/cgroup/memory.max"), "1048576\n").unwrap();
        assert_eq!(memory_bytes(root.path()), Some(1_048_576));
    }
}
