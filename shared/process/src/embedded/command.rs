//! Running a helper program with an end: it answers in time or is killed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// At most this much of each of a program's outputs is looked at.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const BUSY_TRIES_MAX: u32 = 20;

/// What a program said.
pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs `command` to its end, or kills it after `limit` and answers `TimedOut`. Blocks.
pub(super) fn run(command: &mut Command, limit: Duration) -> io::Result<Output> {
    // Files, not pipes: a program that says much cannot block on a pipe nobody reads.
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(Stdio::from(stdout.try_clone()?)).stderr(Stdio::from(stderr.try_clone()?));
    let mut child = spawn_unbusy(command)?;
    let status = wait_until(&mut child, Instant::now() + limit)?;
    match status {
        Some(status) => Ok(Output { status, stdout: contents(stdout)?, stderr: contents(stderr)? }),
        None => {
            child.kill()?;
            child.wait()?;
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs())))
        }
    }
}

/// A binary that was written a moment ago may still be open for writing in a process that is just
/// being forked elsewhere; that passes by itself.
#[expect(clippy::disallowed_methods, reason = "blocking by contract: called apart from async code, polls with a bound")]
fn spawn_unbusy(command: &mut Command) -> io::Result<Child> {
    let mut tries = 1;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES_MAX => {
                tries += 1;
                std::thread::sleep(POLL_INTERVAL);
            }
            other => return other,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "blocking by contract: called apart from async code, polls with a bound")]
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn contents(mut file: File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_and_the_status_come_back() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = run(&mut command, Duration::from_secs(30)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let error = run(&mut command, Duration::from_millis(30)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
