//! `--get-user-env`: reads the environment that a login shell of the user would have.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_files::users;
use squall_model::job::Owner;
use squall_model::limits::ENV_BYTES_MAX;

use super::environment::Environment;

/// Time limit for the shell's login files.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Runs a login shell as this process's user (`owner`) and returns the variables that it exports.
pub(super) fn login_environment(owner: &Owner) -> io::Result<Environment> {
    // A shell that surely accepts these options; the user's own may be of another family.
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let user = users::by_uid(owner.uid);
    let (home, own_shell) = user.map_or(("/".to_owned(), shell.to_owned()), |u| (u.home, u.shell));
    let mut command = Command::new(shell);
    command.args(["-l", "-c", "exec env -0"]).env_clear().env("USER", &owner.user).env("LOGNAME", &owner.user);
    command.env("SHELL", own_shell).env("HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let Some(mut out) = child.stdout.take() else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let read = read_until_end(&mut out, Instant::now() + TIMEOUT);
    if read.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    Ok(Environment::parse(&read?))
}

fn read_until_end(out: &mut std::process::ChildStdout, until: Instant) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        if poll(&mut [PollFd::new(out, PollFlags::IN)], Some(&timeout))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match out.read(&mut chunk)? {
            0 => return Ok(bytes),
            n => bytes.extend_from_slice(&chunk[..n]),
        }
        if bytes.len() > ENV_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}
