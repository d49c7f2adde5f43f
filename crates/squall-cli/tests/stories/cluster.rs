//! The cluster that the stories share, and how they talk to it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::traces;

/// Longest wait for anything that a story waits for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cluster in a temporary folder, with Slurm's command names on its own path.
pub(crate) struct Cluster {
    folder: PathBuf,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    /// As a shell would tell it.
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            status: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Cluster {
    /// Starts it with so many nodes.
    pub(crate) fn start(nodes: u32) -> Self {
        let folder = std::env::temp_dir().join(format!("squall-stories-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::create_dir_all(folder.join("work")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_squall"), folder.join("bin/squall")).unwrap();
        fs::write(
            folder.join("stories.toml"),
            format!(
                "kill_wait_s = 2\nmax_array_size = 1000000\nPreemptMode = \"GANG\"\nSchedulerTimeSlice = \"20ms\"\n\
                 PreemptType = \"preempt/partition_prio\"\n\
                 [[nodes]]\nname = \"n[1-{nodes}]\"\ncpus = 4\nmemory_mb = 1024\nforce = true\ngres = \"gpu:2\"\n\
                 [[partitions]]\nname = \"debug\"\ndefault = true\n\
                 [[partitions]]\nname = \"gang\"\nOverSubscribe = \"FORCE:2\"\n\
                 [[partitions]]\nname = \"low\"\nPreemptMode = \"SUSPEND\"\n\
                 [[partitions]]\nname = \"high\"\nPriorityTier = 2\n"
            ),
        )
        .unwrap();
        let cluster = Self { folder };
        cluster.ok(&["squall", "links", &cluster.path("bin")]);
        let config = cluster.path("stories.toml");
        cluster.ok(&[
            "squall",
            "up",
            "--state",
            &cluster.path("state"),
            "--nodes",
            &nodes.to_string(),
            "--config",
            &config,
        ]);
        cluster
    }

    /// Ends it; nothing may be left.
    pub(crate) fn stop(&self) {
        self.ok(&["squall", "down", "--state", &self.path("state")]);
        let left = self.processes();
        assert!(left.is_empty(), "left over: {left:#?}");
        fs::remove_dir_all(&self.folder).unwrap();
    }

    /// A path within the cluster's folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A file in the folder in which commands run; waits until it is there.
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.folder.join("work").join(name);
        self.until(&format!("{} is there", path.display()), || path.exists());
        fs::read_to_string(path).unwrap()
    }

    /// Writes a file into the folder in which commands run.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join("work").join(name), text).unwrap();
    }

    /// Runs a command, in the work folder, with nothing in its environment that names the cluster but SQUALL_STATE.
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        self.run_with(args, &[], "")
    }

    /// The same with more environment and with standard input.
    pub(crate) fn run_with(&self, args: &[&str], env: &[(&str, &str)], input: &str) -> Done {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new(self.folder.join("bin").join(args[0]))
            .args(&args[1..])
            .env("SQUALL_STATE", self.folder.join("state"))
            .env("PATH", format!("{}:{path}", self.path("bin")))
            .envs(env.iter().copied())
            .current_dir(self.folder.join("work"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()));
        Done::of(&child.wait_with_output().unwrap())
    }

    /// Runs a command that must succeed; its output without the last line break.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.status, 0, "{args:?}: {done:#?}\n{}", self.logs());
        done.out.trim_end().to_owned()
    }

    /// Submits; the id.
    pub(crate) fn sbatch(&self, args: &[&str]) -> String {
        self.ok(&[&["sbatch", "--parsable"], args].concat())
    }

    /// Waits for the end of a job; its state and exit code as sacct says.
    pub(crate) fn end_of(&self, job: &str) -> String {
        self.until(&format!("job {job} has ended"), || {
            let said = self.ok(&["sacct", "-n", "-X", "-P", "-o", "State,End", "-j", job]);
            !said.is_empty() && said.lines().all(|l| !l.ends_with("Unknown"))
        });
        self.ok(&["sacct", "-n", "-X", "-P", "-o", "State,ExitCode", "-j", job])
    }

    /// Waits until a job is in a state, as squeue says.
    pub(crate) fn until_state(&self, job: &str, state: &str) {
        self.until(&format!("job {job} is {state}"), || {
            self.ok(&["squeue", "-h", "-o", "%T", "-j", job, "-t", "all"]) == state
        });
    }

    /// Waits for something.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            let ended = || self.run(&["sacct", "-X", "-P", "-o", "JobID,JobName,State,ExitCode,Start,End"]).out;
            let seen = || format!("{}\n{}\n{}", self.run(&["squeue"]).out, ended(), self.logs());
            assert!(Instant::now() < end, "in vain: {what}\n{}", seen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processes that name the cluster's folder.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        traces::processes(&self.folder)
    }

    fn logs(&self) -> String {
        traces::log_ends(&self.folder.join("state"))
    }
}
