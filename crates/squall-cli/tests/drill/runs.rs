//! A user with one `srun` after the other: each prints all that its task writes, and ends as its task does.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::cluster::{Cluster, output};

/// Exit code of each task.
const EXIT: i32 = 7;

/// What became of the runs.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Jobs that have run.
    pub(crate) jobs: Vec<u32>,
    /// Runs that were refused before they began: what was said.
    pub(crate) refused: Vec<String>,
    /// Runs that went wrong.
    pub(crate) wrong: Vec<String>,
}

/// The user, until it is stopped.
pub(crate) struct Runs {
    stop: Arc<AtomicBool>,
    user: JoinHandle<Record>,
}

impl Runs {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (words, until) = (cluster.srun(), stop.clone());
        let user = std::thread::spawn(move || {
            let mut record = Record::default();
            while !until.load(Ordering::Relaxed) {
                run(&words, &mut record);
            }
            record
        });
        Self { stop, user }
    }

    pub(crate) fn stop(self) -> Record {
        self.stop.store(true, Ordering::Relaxed);
        self.user.join().unwrap()
    }
}

fn run((program, state): &(Vec<OsString>, PathBuf), record: &mut Record) {
    let script = format!("echo $SLURM_JOB_ID; for i in 1 2 3 4; do sleep 0.5; echo $i; done; exit {EXIT}");
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(["srun", "-J", "run", "sh", "-c", &script]).env("SQUALL_STATE", state);
    let done = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut lines = said.lines();
    let Some(job) = lines.next().and_then(|line| line.parse().ok()) else {
        record.refused.push(output(&done));
        return;
    };
    record.jobs.push(job);
    if done.status.code() != Some(EXIT) || lines.ne(["1", "2", "3", "4"]) {
        record.wrong.push(format!("srun of job {job} ended with {}: {}", done.status, output(&done)));
    }
}
