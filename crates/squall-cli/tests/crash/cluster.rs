//! A cluster in a temporary folder whose daemons are killed.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::load::Submitter;
use crate::traces;

/// Longest wait for all jobs to end after the last kill.
const PATIENCE: Duration = Duration::from_mins(3);

/// Who is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Victim {
    Controller,
    Node,
    /// The daemon of node `cN`.
    NodeAt(usize),
    Step,
    /// The process that copies itself into step daemons and is their parent.
    Zygote,
    /// The controller of a cell.
    Cell(u32),
    /// The front of cells.
    Front,
}

/// A cluster of one node with many slots, or of some cells of that kind. Ended and removed when dropped.
pub(crate) struct Cluster {
    folder: PathBuf,
    binary: PathBuf,
    small_disk: bool,
    cells: u32,
    /// Who was killed: for a failure's message.
    killed: RefCell<Vec<String>>,
}

/// One node, with more slots than a load fills.
const CONFIG: &str = "[[nodes]]\nname = \"c1\"\ncpus = 16\nforce = true\n";

impl Cluster {
    pub(crate) fn new(name: &str) -> Self {
        Self::configured(name, 0, CONFIG)
    }

    /// With these lines before those of its node.
    pub(crate) fn with_config(name: &str, lines: &str) -> Self {
        Self::configured(name, 0, &format!("{lines}{CONFIG}"))
    }

    /// With so many cells.
    pub(crate) fn of_cells(name: &str, cells: u32) -> Self {
        Self::configured(name, cells, &CONFIG.replace("c1", &format!("c[1-{cells}]")))
    }

    /// With few slots, and jobs in hand behind each.
    pub(crate) fn with_leases(name: &str) -> Self {
        let partition = "[[partitions]]\nname = \"debug\"\nlease_jobs = 4\ndefault_time_s = 600\n";
        Self::configured(name, 0, &format!("{partition}{}", CONFIG.replace("16", "2")))
    }

    pub(crate) fn configured(name: &str, cells: u32, config: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("squall-crash-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("marks")).unwrap();
        fs::create_dir_all(folder.join("state")).unwrap();
        fs::write(folder.join("crash.toml"), config).unwrap();
        let binary =
            std::env::var_os("SQUALL_CRASH_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_squall").into(), PathBuf::from);
        Self { folder, binary, small_disk: false, cells, killed: RefCell::default() }
    }

    /// With the state folder on a disk of its own of so many bytes; None where that can't be had.
    pub(crate) fn on_small_disk(name: &str, bytes: u64) -> Option<Self> {
        let mut cluster = Self::new(name);
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "squall-crash"])
            .arg(cluster.state())
            .stderr(Stdio::null())
            .status();
        cluster.small_disk = mounted.is_ok_and(|s| s.success());
        cluster.small_disk.then_some(cluster)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Where jobs leave their marks.
    pub(crate) fn marks(&self) -> PathBuf {
        self.folder.join("marks")
    }

    /// Runs a command of the cluster.
    pub(crate) fn squall(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).env("SQUALL_STATE", self.state()).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Starts, or resumes after a kill.
    pub(crate) fn up(&self) {
        self.up_with(&[]);
    }

    /// Starts, with these variables for the daemons.
    pub(crate) fn up_with(&self, variables: &[(&str, &std::ffi::OsStr)]) {
        let config = self.folder.join("crash.toml");
        let state = self.state();
        let cells = self.cells.to_string();
        let (state, config) = (state.to_string_lossy(), config.to_string_lossy());
        let args = ["up", "--state", &*state, "--config", &*config, "--cells", &*cells];
        let args = if self.cells == 0 { &args[..5] } else { &args };
        let output = self.command(args).envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "squall up: {}\n{}", String::from_utf8_lossy(&output.stderr), self.logs());
    }

    /// kill -9; a victim that is not there at the moment is not looked for again.
    pub(crate) fn kill(&self, victim: Victim) {
        let pid = match victim {
            Victim::Controller => self.pid("controller.pid"),
            Victim::Node => self.pid("node-c1.pid"),
            Victim::NodeAt(node) => self.pid(&format!("node-c{node}.pid")),
            Victim::Step => self.any_step(),
            Victim::Zygote => self.zygote(),
            Victim::Cell(cell) => pid_in(&self.state().join(format!("cells/{cell}/run/controller.pid"))),
            Victim::Front => self.pid("front.pid"),
        };
        if let Some(pid) = pid {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (parent, line) = (read("stat"), read("cmdline").replace('\0', " "));
            let parent = parent.split(' ').nth(3).unwrap_or("nobody");
            self.killed.borrow_mut().push(format!("killed {pid}, a child of {parent}: {}\n", line.trim_end()));
            drop(Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status());
        }
    }

    pub(crate) fn fill_disk(&self) {
        // Everything that is left, to the last byte.
        let filler = fs::File::create(self.state().join("filler"));
        if let Ok(mut file) = filler {
            let block = [7u8; 4096];
            while std::io::Write::write_all(&mut file, &block).is_ok() {}
        }
    }

    pub(crate) fn free_disk(&self) {
        drop(fs::remove_file(self.state().join("filler")));
    }

    /// Waits for the end of all jobs, as long as there are fewer of them from time to time.
    pub(crate) fn wait_until_idle(&self) {
        let (mut end, mut fewest) = (Instant::now() + PATIENCE, usize::MAX);
        loop {
            let output = self.squall(&["squeue", "-h", "-o", "%i %T %r"]);
            let queue = String::from_utf8_lossy(&output.stdout).into_owned();
            let jobs = queue.lines().count();
            if output.status.success() && jobs == 0 {
                return;
            }
            if output.status.success() && jobs < fewest {
                (end, fewest) = (Instant::now() + PATIENCE, jobs);
            }
            assert!(Instant::now() < end, "jobs are still in the queue:\n{queue}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Processes of this cluster: their command lines.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        traces::processes(&self.state())
    }

    /// Who was killed, and the last lines of the daemons' logs.
    pub(crate) fn logs(&self) -> String {
        let cells = (0..self.cells).map(|cell| self.state().join(format!("cells/{cell}")));
        let ends: String = cells.chain([self.state()]).map(|state| traces::log_ends(&state)).collect();
        format!("{}{ends}", self.killed.borrow().concat())
    }

    fn pid(&self, file: &str) -> Option<u32> {
        pid_in(&self.state().join("run").join(file))
    }

    /// The child of the node daemon that says what it is.
    fn zygote(&self) -> Option<u32> {
        let parent = self.pid("node-c1.pid")?.to_string();
        let pids =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.into_iter().find(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            stat.split(' ').nth(3) == Some(&parent) && line.starts_with(b"squall\0step\0--zygote\0")
        })
    }

    /// A step daemon; not a script that it is starting, which until it executes has the command line of its parent.
    fn any_step(&self) -> Option<u32> {
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            let mut steps = self.processes().into_iter().filter(|(_, line)| line.split(' ').nth(1) == Some("step"));
            if let Some((pid, _)) = steps.find(|(pid, _)| !is_daemons_child(*pid)) {
                return Some(pid);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// Whether a process's parent is a step daemon, idle or not. Those of step daemons are nurseries and node daemons.
fn is_daemons_child(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some(parent) = stat.split(' ').nth(3) else { return true };
    let line = fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
    line.starts_with(b"squall\0step\0") && !line.starts_with(b"squall\0step\0--zygote\0")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let state = self.state();
        drop(self.squall(&["down", "--state", &state.to_string_lossy()]));
        if std::env::var_os("SQUALL_CRASH_KEEP").is_some() {
            eprintln!("kept: {}", self.folder.display());
            return;
        }
        if self.small_disk {
            drop(Command::new("umount").arg(&state).status());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn pid_in(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

impl Cluster {
    /// What a client needs to submit to this cluster.
    pub(crate) fn submitter(&self) -> Submitter {
        let mut submitter = Submitter::new(vec![self.binary.clone().into()], self.state(), self.marks());
        // Long scripts fill a disk before the test's patience ends, however slow the machine.
        submitter.padding = if self.small_disk { 8 << 10 } else { 0 };
        submitter
    }
}
