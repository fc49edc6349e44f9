//! Which file names are logs, and in which order they are read.

use std::ffi::OsStr;

use jiff::civil::Date;

/// Whether a file name is a log: `x.log`, with a rotation mark of digits behind it (`.1`, `-20260917`,
/// `.2026-09-17.3`), each plain or with `.gz` at the end. Case doesn't matter.
pub(super) fn is_log(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let Some(at) = plain.rfind(".log") else {
        return false;
    };
    at > 0 && is_rotation_mark(&plain[at + ".log".len()..])
}

fn is_rotation_mark(mark: &str) -> bool {
    let separator = |c: char| matches!(c, '.' | '-' | '_');
    mark.is_empty()
        || mark.starts_with(separator)
            && mark.ends_with(|c: char| c.is_ascii_digit())
            && mark.chars().all(|c| separator(c) || c.is_ascii_digit())
}

/// Whether a file is compressed, by its name.
pub(super) fn is_gzip(name: &OsStr) -> bool {
    name.to_string_lossy().to_ascii_lowercase().ends_with(".gz")
}

/// Lower is read earlier, so that the bytes allowed go to the likeliest files first: plain ones (their
/// size is known before reading), then archives named for the day or the one after it (rotated past
/// midnight), then all other archives.
pub(super) fn reading_rank(name: &OsStr, date: Date) -> u8 {
    if !is_gzip(name) {
        return 0;
    }
    let digits: String = name.to_string_lossy().chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect();
    let named_for = |date: Date| digits.contains(&date.strftime("%Y%m%d").to_string());
    if named_for(date) || date.tomorrow().is_ok_and(named_for) { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ffi::OsStr;

    use jiff::civil::date;

    use super::{is_gzip, is_log, reading_rank};

    #[test]
    fn logs_and_their_rotated_names() {
        for name in [
            "app.log",
            "APP.LOG",
            "a.b.log",
            "app.log.1",
            "app.log.2.gz",
            "app.log.gz",
            "app.log-20260917",
            "app.log-20260917.gz",
            "app.log.2026-09-17.3",
            "app_2026-09-16.log.gz",
            "收银.log.1",
        ] {
            assert!(is_log(OsStr::new(name)), "{name}");
        }
        for name in [
            ".log",
            "app.log.bak",
            "app.log~",
            "app.logs",
            "applog",
            "app.txt",
            "app.log.",
            "app.log1",
            "app.log.1.zip",
            "x.tar.gz",
        ] {
            assert!(!is_log(OsStr::new(name)), "{name}");
        }
        assert!(is_gzip(OsStr::new("app.log.2.GZ")));
        assert!(!is_gzip(OsStr::new("app.gz.log")));
    }

    #[test]
    fn plain_files_first_then_archives_of_the_day() {
        let day = date(2026, 12, 31);
        let ranks = ["a.log.9", "a.log-20261231.gz", "a-2027-01-01.log.gz", "a.log-20261230.gz", "a.log.2.gz"]
            .map(|name| reading_rank(OsStr::new(name), day));
        assert_eq!(ranks, [0, 1, 1, 2, 2]);
    }
}
