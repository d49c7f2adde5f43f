//! Clients that submit as fast as they can and write down what they were told.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// What a client knows of one submission.
#[derive(Debug)]
pub(crate) struct Submission {
    /// Its name, and that of the file in which the job leaves its marks.
    pub(crate) tag: String,
    /// The id that was printed; None: the submission was refused or the answer got lost.
    pub(crate) id: Option<u32>,
    /// The exit code that the job ends with.
    pub(crate) exit: u8,
    /// What the client said instead of an id.
    pub(crate) error: String,
}

/// What a client needs to submit.
#[derive(Clone, Debug)]
pub(crate) struct Submitter {
    /// The binary; before it, what runs it elsewhere.
    program: Vec<OsString>,
    state: PathBuf,
    marks: PathBuf,
    /// Bytes of comment in each script.
    pub(crate) padding: usize,
    /// What each job does between its marks.
    pub(crate) work: String,
    /// Pause after each submission.
    pub(crate) pause: Duration,
}

impl Submitter {
    pub(crate) fn new(program: Vec<OsString>, state: PathBuf, marks: PathBuf) -> Self {
        Self { program, state, marks, padding: 0, work: "sleep 0.05".to_owned(), pause: Duration::ZERO }
    }

    /// Submits a job that marks its start and its end in a file of its own and ends with `exit`.
    pub(crate) fn submit(&self, tag: &str, exit: u8) -> Submission {
        let (mark, work, padding) = (self.marks.join(tag), &self.work, ":".repeat(self.padding));
        let mark = mark.display();
        let script = format!("echo start $SLURM_JOB_ID >> {mark}; {work}; echo end >> {mark}; exit {exit} # {padding}");
        let output = Command::new(&self.program[0])
            .args(&self.program[1..])
            .args(["sbatch", "--parsable", "--output=/dev/null", "--job-name", tag, "--wrap", &script])
            .env("SQUALL_STATE", &self.state)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let id = output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().parse().ok()).flatten();
        std::thread::sleep(self.pause);
        Submission { tag: tag.to_owned(), id, exit, error: String::from_utf8_lossy(&output.stderr).into_owned() }
    }
}

/// Running clients.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    refusal: Arc<Mutex<String>>,
    clients: Vec<JoinHandle<Vec<Submission>>>,
}

impl Load {
    /// Starts so many clients.
    pub(crate) fn start(cluster: &Cluster, clients: u32) -> Self {
        Self::of((0..clients).map(|_| cluster.submitter()).collect())
    }

    /// Starts these clients.
    pub(crate) fn of(clients: Vec<Submitter>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let refusal = Arc::new(Mutex::new(String::new()));
        let clients = clients
            .into_iter()
            .enumerate()
            .map(|(client, submitter)| {
                let (stop, acknowledged, refusal) = (stop.clone(), acknowledged.clone(), refusal.clone());
                std::thread::spawn(move || {
                    let mut record = Vec::new();
                    for number in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let submission = submitter.submit(&format!("{client}-{number}"), (number % 3) as u8 * 7);
                        acknowledged.fetch_add(u64::from(submission.id.is_some()), Ordering::Relaxed);
                        if submission.id.is_none() {
                            refusal.lock().unwrap().clone_from(&submission.error);
                        }
                        record.push(submission);
                    }
                    record
                })
            })
            .collect();
        Self { stop, acknowledged, refusal, clients }
    }

    /// How many ids were printed so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until a submission is refused with a word about `what`.
    pub(crate) fn until_refused(&self, what: &str, patience: Duration) {
        let end = Instant::now() + patience;
        while !self.refusal.lock().unwrap().contains(what) {
            assert!(Instant::now() < end, "no submission was refused for {what}: {:?}", self.refusal.lock().unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the clients; their records.
    pub(crate) fn stop(self) -> Vec<Submission> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|c| c.join().unwrap()).collect()
    }
}
