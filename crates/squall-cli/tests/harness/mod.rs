//! A cluster of real processes in a folder of its own, for end-to-end tests: they start it, use it and end it, and what
//! it leaves on the machine is ended.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::traces::log_ends;

/// Longest wait for anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The program under test.
pub(crate) const SQUALL: &str = env!("CARGO_BIN_EXE_squall");

/// A cluster in a folder of its own, ended and removed at the end.
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
}

impl Cluster {
    /// Makes the folder. `subject`: the module of the test; `test`: its name there.
    pub(crate) fn new(subject: &str, test: &str) -> Self {
        Self::within(&std::env::temp_dir(), subject, test)
    }

    /// The same, with the folder in `base`.
    pub(crate) fn within(base: &Path, subject: &str, test: &str) -> Self {
        let dir = base.join(format!("squall-{subject}-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&dir));
        fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }

    /// Starts the cluster with this configuration; in it `DIR` is the cluster's folder and `SQUALL` the program.
    pub(crate) fn up(&self, config: &str, more: &[&str]) -> String {
        self.write("squall.toml", &self.filled(config));
        self.ok(&[&["up", "--config", &self.path("squall.toml")], more].concat())
    }

    /// Returns a text with the cluster's folder for `DIR` and the program for `SQUALL`.
    pub(crate) fn filled(&self, text: &str) -> String {
        text.replace("DIR", self.dir.to_str().unwrap()).replace("SQUALL", SQUALL)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let store = if Path::new(name).extension().is_some_and(|kind| kind == "toml") {
            self.store(text)
        } else {
            String::new()
        };
        fs::write(self.dir.join(name), text.to_owned() + &store).unwrap();
    }

    /// Returns what has a configuration keep its records on the server that `SQUALL_TEST_STORE` names: a folder with a socket
    /// of PostgreSQL. Tests that say themselves where records are stay as they are.
    fn store(&self, config: &str) -> String {
        let Some(socket) = std::env::var_os("SQUALL_TEST_STORE") else { return String::new() };
        if config.contains("[accounting]") || !config.contains("[[nodes]]") {
            return String::new();
        }
        let socket = socket.to_string_lossy();
        let name = self.dir.file_name().unwrap().to_string_lossy().replace('-', "_");
        // It may be there already.
        drop(Command::new("createdb").args(["-U", "squall", "-h", &socket, &name]).output().unwrap());
        format!("\n[accounting]\nstore = \"postgresql://squall@/{name}?host={socket}\"\n")
    }

    /// Returns a file of the cluster's folder; empty if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    /// Writes a shell script into the cluster's folder, filled as a configuration is.
    pub(crate) fn script(&self, name: &str, text: &str) {
        self.write(name, &self.filled(&format!("#!/bin/sh\n{text}\n")));
        fs::set_permissions(self.dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Prepares a command of the cluster: nothing in its environment names anything else.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.prepared(Command::new(SQUALL), args)
    }

    /// Gives a command its arguments, and the environment of a user of the cluster.
    pub(crate) fn prepared(&self, mut command: Command, args: &[&str]) -> Command {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.path("bin"));
        command.args(args).env_clear().env("LANG", "C").env("PATH", path).env("SQUALL_STATE", self.state());
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    pub(crate) fn squall(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed; returns what it prints, without the last line break.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        done(args, &self.squall(args))
    }

    /// Runs a command that must succeed; returns all that it prints.
    pub(crate) fn said(&self, args: &[&str]) -> String {
        let out = self.squall(args);
        done(args, &out);
        text(&out)
    }

    /// Runs a command that must fail with status 1 and say this.
    pub(crate) fn fails(&self, args: &[&str], says: &str) {
        let out = self.squall(args);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {}", text(&out));
        assert!(text(&out).contains(says), "{args:?} should say `{says}`: {}", text(&out));
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            let seen = || text(&self.squall(&["sinfo", "-N"])) + &text(&self.squall(&["squeue", "-a"]));
            assert!(Instant::now() < end, "in vain: {what}\n{}\n{}", seen(), log_ends(&self.state()));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the process id of a daemon, such as `node-n1`. None: it does not run.
    pub(crate) fn pid(&self, daemon: &str) -> Option<u32> {
        let pid = self.read(&format!("state/run/{daemon}.pid")).trim().parse().ok()?;
        (!is_over(pid)).then_some(pid)
    }

    /// Kills a daemon by SIGKILL, and waits until it has ended.
    pub(crate) fn kill(&self, daemon: &str) {
        let pid = self.pid(daemon).unwrap_or_else(|| panic!("{daemon} does not run"));
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        while !is_over(pid) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.squall(&["down"]));
        // Daemons that tests, or programs of theirs, have started are not ended by that.
        for file in fs::read_dir(self.state().join("run")).into_iter().flatten().flatten() {
            let daemon = file.file_name().to_string_lossy().strip_suffix(".pid").map(str::to_owned);
            if let Some(pid) = daemon.and_then(|daemon| self.pid(&daemon)) {
                drop(Command::new("kill").arg(pid.to_string()).status());
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", log_ends(&self.state()));
        }
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Returns the next connection to a server, which must come in time.
pub(crate) fn accepted(server: &TcpListener) -> TcpStream {
    server.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        match server.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(e) => assert!(e.kind() == ErrorKind::WouldBlock && Instant::now() < end, "nobody connects: {e}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns what a command printed that must have succeeded, without the last line break.
pub(crate) fn done(args: &[&str], out: &Output) -> String {
    assert!(out.status.success(), "{args:?}: {}", text(out));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

/// Returns all that a command printed.
pub(crate) fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Whether a process has ended; its parent may not have heard of that yet.
pub(crate) fn is_over(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}
