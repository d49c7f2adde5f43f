//! The machines on which a page runs (`machines.sh`), and a shell on each for each user.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Longest time that a command of a page may take.
const COMMAND: Duration = Duration::from_mins(1);

/// Longest time that machines may take to start.
const START: Duration = Duration::from_mins(1);

/// Lines of output that wait for the test.
const LINES_MAX: usize = 1024;

/// Begins the line that tells the end of a command and its exit status.
const END: &str = "\u{1}end ";

/// Environment variable with the number of CPUs that the machines seem to have. Otherwise they have those of this machine.
const CPUS: &str = "SQUALL_BOOK_CPUS";

/// Environment of every shell.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The machines of one page. They and all their processes end when this is dropped.
pub(crate) struct Machines {
    script: Child,
    /// Process 1 of each machine, as this process sees it.
    pids: BTreeMap<String, u32>,
    shells: BTreeMap<(String, String), Shell>,
}

impl Machines {
    /// Starts machines with these names. The error is a text for people.
    pub(crate) fn start(scratch: &Path, hosts: &[String]) -> Result<Self, String> {
        let mut command = Command::new("bash");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/book/machines.sh")).arg(scratch).args(hosts);
        command.env_clear().env("PATH", PATH).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().map_err(|e| format!("bash: {e}"))?;
        let lines = lines_of(script.stdout.take().ok_or("no standard output")?);
        let mut machines = Self { script, pids: BTreeMap::new(), shells: BTreeMap::new() };
        let until = Instant::now() + START;
        while machines.pids.len() < hosts.len() {
            let line = lines.recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.map_err(|_| format!("the machines {hosts:?} don't start"))?;
            let pid = line.split_once(' ').and_then(|(host, pid)| Some((host.to_owned(), pid.parse().ok()?)));
            machines.pids.extend(pid);
        }
        Ok(machines)
    }

    /// Begins a command that runs on a machine as a user.
    fn enter(&self, host: &str, user: &str) -> Command {
        let home = if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.pids[host].to_string());
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]);
        command.args(["bash", "-c", "echo $$ > /sys/fs/cgroup/login/cgroup.procs; cd && exec setpriv \"$@\"", "enter"]);
        command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        command.env_clear().envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("SHELL", "/bin/bash")]);
        command.envs(std::env::var_os(CPUS).map(|cpus| ("SQUALL_TEST_CPUS", cpus)));
        command.envs([("HOME", home.as_str()), ("USER", user), ("LOGNAME", user)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Runs a command in the user's shell on that machine. Returns its output and exit status.
    pub(crate) fn run(&mut self, host: &str, user: &str, text: &str) -> Result<(String, i32), String> {
        let key = (host.to_owned(), user.to_owned());
        if !self.shells.contains_key(&key) {
            let mut command = self.enter(host, user);
            let shell = Shell::start(command.args(["bash", "--noprofile", "--norc"]))?;
            self.shells.insert(key.clone(), shell);
        }
        self.shells.get_mut(&key).ok_or("no shell")?.run(text)
    }

    /// Writes a file. A relative path is below the user's home.
    pub(crate) fn write(&self, host: &str, user: &str, path: &str, text: &str) -> Result<(), String> {
        let write = "mkdir -p \"$(dirname \"$1\")\" && cat > \"$1\" && case $(head -c 2 \"$1\") in '#!') \
                     chmod +x \"$1\";; esac";
        let mut command = self.enter(host, user);
        let mut child = command.args(["bash", "-c", write, "write", path]).spawn().map_err(|e| e.to_string())?;
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        let status = child.wait().map_err(|e| e.to_string())?;
        if status.success() && matches!(written, Some(Ok(()))) { Ok(()) } else { Err(format!("can't write {path}")) }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.shells.clear();
        drop(self.script.stdin.take());
        drop(self.script.wait());
    }
}

/// A user's shell on a machine, which runs one command after another.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|e| format!("nsenter: {e}"))?;
        let lines = lines_of(child.stdout.take().ok_or("no standard output")?);
        let mut stdin = child.stdin.take().ok_or("no standard input")?;
        stdin.write_all(b"exec 2>&1\n").map_err(|e| e.to_string())?;
        Ok(Self { child, stdin, lines })
    }

    fn run(&mut self, text: &str) -> Result<(String, i32), String> {
        let quoted = text.replace('\'', "'\\''");
        let line = format!("eval '{quoted}' < /dev/null\nprintf '\\n{END}%s\\n' \"$?\"\n");
        self.stdin.write_all(line.as_bytes()).map_err(|e| format!("the shell has ended: {e}"))?;
        let (until, mut output) = (Instant::now() + COMMAND, String::new());
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(END).and_then(|status| status.parse().ok()) {
                    Some(status) => return Ok((output.trim_end().to_owned(), status)),
                    None => output.extend([line.as_str(), "\n"]),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no end within {} s; output until then:\n{output}", COMMAND.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(format!("the shell has ended; output:\n{output}")),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads lines in a thread of its own, so that the test can stop waiting for them.
fn lines_of(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}
