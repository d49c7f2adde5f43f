//! Real step daemons with real processes: started in a process of their own, watched from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure is a test's answer")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use squall_model::codec;
use squall_model::job::ExitCode;
use squall_model::report::StepEnd;
use squall_model::step::{Program, StepLaunch};
use squall_model::wire::stepd::FromStepd;
use squall_model::wire::{Hello, Role};

use squall_host::spool::{NAME_BYTES, RESULT_BYTES, file};

mod batch;
mod copies;
mod tasks;
mod testing;

use testing::launch;

/// Names the spool folder to the process that a test starts.
const SPOOL: &str = "SQUALL_TEST_SPOOL";

/// Longest time that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A test and its name.
type Test = (&'static str, fn());

/// Every test.
const TESTS: [&[Test]; 3] = [&batch::TESTS, &copies::TESTS, &tasks::TESTS];

/// Has no harness, because a step daemon must be its process's only thread. Arguments: parts of names of tests to run.
fn main() {
    squall_host::logging::start(None).unwrap();
    if let Some(spool) = std::env::var_os(SPOOL) {
        std::process::exit(squall_host::stepd::run(Path::new(&spool)));
    }
    if std::env::args().nth(2).is_some_and(|word| word == "--zygote") {
        std::process::exit(squall_host::stepd::serve_zygote());
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let tests = TESTS.into_iter().flatten().filter(|(name, _)| is_wanted(name));
    let running: Vec<_> = tests.map(|&(name, test)| (name, std::thread::spawn(test))).collect();
    let mut failed = Vec::new();
    for (name, thread) in running {
        let ok = thread.join().is_ok();
        eprintln!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed.extend((!ok).then_some(name));
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// A blocking end of a link.
struct Peer(UnixStream, Vec<u8>);

impl Peer {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Self(stream, Vec::new());
        let role = Role::Node("n1".into());
        peer.send(&Hello::new(role));
        peer
    }
    fn send<T: squall_model::encoding::Encoded>(&mut self, message: &T) {
        use std::io::Write;
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes).unwrap();
        self.0.write_all(&bytes).unwrap();
    }
    /// The next message; None at the end of the link.
    fn receive<T: squall_model::encoding::Decoded>(&mut self) -> Option<T> {
        use std::io::Read;
        loop {
            if let Some((message, length)) = codec::take(&self.1).unwrap() {
                self.1.drain(..length);
                return Some(message);
            }
            let mut chunk = [0; 8192];
            match self.0.read(&mut chunk) {
                Ok(0) => return None,
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // A call with a timeout is not taken up again by itself.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                read => self.1.extend_from_slice(&chunk[..read.unwrap()]),
            }
        }
    }
}

/// Writes a folder's launch, with a name of its own for the socket behind it.
fn write_launch(spool: &Path, mut launch: Vec<u8>) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = (u128::from(std::process::id()) << 64) + u128::from(COUNT.fetch_add(1, Ordering::Relaxed));
    assert_eq!(NAME_BYTES, size_of_val(&name));
    launch.extend(name.to_be_bytes());
    fs::write(spool.join(file::LAUNCH), launch).unwrap();
}

/// Where the step daemon of a folder listens.
fn socket(spool: &Path) -> SocketAddr {
    let launch = fs::read(spool.join(file::LAUNCH)).unwrap();
    squall_host::spool::socket(&launch, launch.len() - NAME_BYTES).unwrap()
}

/// A step daemon and its folder.
struct Step {
    dir: PathBuf,
    daemon: Child,
}

impl Step {
    /// Starts a daemon for what `make` makes of a folder in which the job may work.
    fn start(make: impl FnOnce(&Path) -> (StepLaunch, String)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("squall-stepd-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("spool")).unwrap();
        let spool = Self::folder(&dir, make);
        let listener = UnixListener::bind_addr(&socket(&spool)).unwrap();
        let daemon = Self::daemon(&spool, Stdio::from(std::os::fd::OwnedFd::from(listener)));
        Self { dir, daemon }
    }

    /// Makes the spool folder as the node daemon would.
    fn folder(dir: &Path, make: impl FnOnce(&Path) -> (StepLaunch, String)) -> PathBuf {
        let (launch, script) = make(dir);
        let spool = dir.join("spool");
        let mut bytes = Vec::new();
        codec::encode(&launch, &mut bytes).unwrap();
        write_launch(&spool, bytes);
        fs::write(spool.join(file::SCRIPT), script).unwrap();
        fs::set_permissions(spool.join(file::SCRIPT), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(spool.join(file::ENVIRONMENT), "PATH=/usr/bin:/bin\0MINE=yes\0SLURM_JOB_ID=old\0").unwrap();
        fs::write(spool.join(file::RESULT), [0; RESULT_BYTES]).unwrap();
        fs::write(spool.join(file::UNTAKEN), "").unwrap();
        spool
    }

    fn daemon(spool: &Path, stdin: Stdio) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env_clear().env(SPOOL, spool).stdin(stdin).stdout(Stdio::null());
        command.stderr(fs::File::create(spool.join(file::LOG)).unwrap()).spawn().unwrap()
    }

    fn connect(&self) -> Peer {
        Peer::new(UnixStream::connect_addr(&socket(&self.dir.join("spool"))).unwrap())
    }

    fn result(&self) -> FromStepd {
        let bytes = fs::read(self.dir.join("spool").join(file::RESULT)).unwrap();
        codec::take(&bytes).unwrap().unwrap().0
    }

    /// Waits for the daemon's end; what it wrote as the result.
    fn end(&mut self) -> StepEnd {
        self.daemon.wait().unwrap();
        match self.result() {
            FromStepd::Ended(end) => end,
            other => panic!("{other:?}"),
        }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Waits until the job has written a whole line into a file; the line.
    fn line(&self, name: &str) -> String {
        for _ in 0..PATIENCE.as_millis() / 5 {
            if let Ok(open) = fs::File::open(self.dir.join(name)) {
                let mut line = String::new();
                BufReader::new(open).read_line(&mut line).unwrap();
                if let Some(line) = line.strip_suffix('\n') {
                    return line.to_owned();
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the job never wrote {name}");
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

fn code(code: u8) -> ExitCode {
    ExitCode { code, signal: 0 }
}

fn signal(signal: u8) -> ExitCode {
    ExitCode { code: 0, signal }
}

/// A batch job with that script, changed by `change`.
fn batch(script: &str, change: impl FnOnce(&mut StepLaunch)) -> Step {
    Step::start(|dir| {
        let mut launch = launch(Program::Batch, dir);
        change(&mut launch);
        (launch, script.to_owned())
    })
}
