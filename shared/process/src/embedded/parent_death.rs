//! A child that cannot outlive its parent.
//!
//! The one place of the workspace with `unsafe`: the standard library has no safe way to run a
//! system call between fork and exec. The kernel's promise is tied to the *thread* that started the
//! child, so the caller keeps that thread alive for as long as the child may live.

#![cfg_attr(target_os = "linux", allow(unsafe_code))]

use std::process::Command;

/// Has the kernel kill the command's process when the thread that spawns it is gone, for whatever
/// reason, SIGKILL of the whole process too.
#[cfg(target_os = "linux")]
pub(super) fn die_with_parent(command: &mut Command) {
    use std::io;
    use std::os::unix::process::CommandExt;

    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

    let parent = i32::try_from(std::process::id()).ok().and_then(Pid::from_raw);
    let arm = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above; then nobody would send the signal.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: the closure runs in the forked child before exec. It only makes the two system calls
    // prctl and getppid, which are async-signal-safe; it takes no lock, allocates nothing (both
    // errors are plain error numbers) and touches no memory but its own captured pid.
    unsafe {
        command.pre_exec(arm);
    }
}

/// Elsewhere no such promise exists; the shared lock keeps an orphan from being doubled.
#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_parent(_command: &mut Command) {}
