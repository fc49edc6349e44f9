//! What a process has used so far, from the system's own account.

/// CPU and memory of a process. Zero where the system doesn't tell (there is no `/proc`).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds of user and system time.
    pub(crate) cpu_s: f64,
    /// Largest resident memory so far, in megabytes.
    pub(crate) peak_mb: f64,
}

/// Clock ticks a second of `/proc/<pid>/stat`: 100 on every Linux there is.
const TICKS_PER_S: f64 = 100.0;

impl Usage {
    /// Of a process now.
    pub(crate) fn of(pid: Option<u32>) -> Self {
        let Some(pid) = pid else { return Self::default() };
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        Self { cpu_s: cpu_s(&read("stat")), peak_mb: peak_mb(&read("status")) }
    }
}

/// Fields 14 and 15, counted after the name in parentheses, which may hold anything.
fn cpu_s(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_S
}

fn peak_mb(status: &str) -> f64 {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse::<f64>().ok()).unwrap_or_default() / 1_024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_account_is_read() {
        let stat = "4242 (a (very) odd name) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 1 2 3";
        assert!((cpu_s(stat) - 2.0).abs() < 1e-9, "{}", cpu_s(stat));
        assert!((peak_mb("Name:\tx\nVmHWM:\t   20480 kB\n") - 20.0).abs() < 1e-9);
        assert_eq!((cpu_s(""), peak_mb("")), (0.0, 0.0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_used_something() {
        let usage = Usage::of(Some(std::process::id()));
        assert!(usage.peak_mb > 0.5, "{usage:?}");
    }
}
