//! Thousands of jobs over one connection.
//!
//! Many requests are under way at once, and each job is durable when it is acknowledged. If the controller goes away
//! meanwhile, unacknowledged requests are repeated with the same key, so that every job is accepted once.

use std::collections::{HashMap, HashSet};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_files::place::TASK_MARK;
use squall_model::encoding::ByteBuf;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{JobSpec, JobState, Outcome};
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};

use crate::connection::{self, Client, ClientError, unexpected};

/// Most requests that wait for their answers at once.
const UNDER_WAY: usize = 256;
/// How long calls retry while the controller is away.
const AWAY: Duration = Duration::from_mins(1);
/// Pause between attempts to reach the controller.
const PAUSE: Duration = Duration::from_millis(100);

/// A batch job to be submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Options of the job, as of `sbatch`.
    pub spec: JobSpec,
    /// Content of the batch script.
    pub script: Vec<u8>,
    /// The environment: `KEY=VALUE` entries, each ended by a NUL byte.
    pub env: Vec<u8>,
    /// Key by which the controller recognizes a retry. Each submission needs its own.
    pub key: ClientKey,
}

impl Submission {
    /// Makes a job of one task with this process's folder and environment, and a random key.
    pub fn new(name: &str, script: &str) -> Self {
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let spec = JobSpec {
            name: name.to_owned(),
            work_dir: here.to_string_lossy().into_owned(),
            submit_line: "libsquallclient".to_owned(),
            umask: 0o022,
            ..JobSpec::default()
        };
        let mut env = Vec::new();
        for (name, value) in std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(misleads)) {
            env.extend_from_slice(name.as_bytes());
            env.push(b'=');
            env.extend_from_slice(value.as_bytes());
            env.push(0);
        }
        Self { spec, script: script.as_bytes().to_vec(), env, key: ClientKey(u128::from_le_bytes(random())) }
    }

    fn request(&self) -> Request {
        Request::Submit {
            spec: Arc::new(self.spec.clone()),
            script: ByteBuf::from(self.script.clone()),
            env: ByteBuf::from(self.env.clone()),
            key: self.key,
        }
    }
}

/// A client that submits, follows and cancels jobs, and reconnects when needed.
#[derive(Debug)]
pub struct Jobs {
    place: Place,
    /// Connection to the controller; None: it has ended, and the next call makes a new one.
    client: Option<Client>,
}

impl Jobs {
    /// Connects to the cluster with the state folder `state`; None: to the one that commands use.
    pub fn connect(state: Option<&Path>) -> Result<Self, ClientError> {
        let nowhere = || ClientError::Connect("no cluster is running here, and none was named".into());
        let place = match state {
            Some(dir) => Place::at(dir).map_err(|e| ClientError::Connect(format!("{}: {e}", dir.display())))?,
            None => Place::find().ok_or_else(nowhere)?,
        };
        let client = Some(Client::connect_to(&place, "library")?);
        Ok(Self { place, client })
    }

    /// Submits jobs in order. Calls `accepted` with each job's index and id once it is durable. Err: a job was
    /// refused. Later jobs may have been accepted all the same, and `accepted` was called for them.
    pub fn submit(&mut self, jobs: &[Submission], mut accepted: impl FnMut(usize, JobId)) -> Result<(), ClientError> {
        let mut known = vec![false; jobs.len()];
        self.persist(|client| {
            let open: Vec<usize> = (0..jobs.len()).filter(|&at| !known[at]).collect();
            client.submit(open.iter().map(|&at| jobs[at].request()), |place, id| {
                known[open[place]] = true;
                accepted(open[place], id);
            })
        })
    }

    /// Cancels jobs. Jobs that have ended already are left alone.
    pub fn cancel(&mut self, ids: &[JobId]) -> Result<(), ClientError> {
        let request = Request::Cancel { jobs: selection(ids), signal: None, step: None, verbose: false };
        self.persist(|client| client.ask(&request).map(drop))
    }

    /// Returns the states of jobs, in the order of `ids`. None: the job is not known, such as one that ended long
    /// ago.
    pub fn states(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobState>>, ClientError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let page = self.persist(|client| client.jobs(selection(ids), true, false))?;
        let known: HashMap<JobId, JobState> = page.jobs.iter().map(|job| (job.id, job.state)).collect();
        Ok(ids.iter().map(|id| known.get(id).copied()).collect())
    }

    /// Waits until all jobs have ended; returns each job's outcome. Err `InvalidJobId`: the controller has no data of a
    /// job, or no longer.
    pub fn wait(&mut self, ids: &[JobId]) -> Result<Vec<(JobId, Outcome)>, ClientError> {
        let mut ends = HashMap::new();
        self.persist(|client| {
            let missing: HashSet<JobId> = ids.iter().copied().filter(|id| !ends.contains_key(id)).collect();
            client.wait_up_to(None)?;
            let mut open = missing.iter();
            let mut left = missing.len();
            for &job in open.by_ref().take(UNDER_WAY) {
                client.send(&Request::AwaitJob { job })?;
            }
            while left > 0 {
                let Answer::JobDone { job, outcome } = client.receive()? else { return Err(unexpected()) };
                ends.insert(job, outcome);
                left -= 1;
                if let Some(&job) = open.next() {
                    client.send(&Request::AwaitJob { job })?;
                }
            }
            client.wait_up_to(Some(crate::SILENCE))?;
            Ok(())
        })?;
        Ok(ids.iter().filter_map(|id| Some((*id, ends.get(id)?.clone()))).collect())
    }

    /// Runs `deed`. While the controller can't be reached, repeats it for up to `AWAY`.
    fn persist<T>(&mut self, mut deed: impl FnMut(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let since = Instant::now();
        loop {
            let connected = match self.client.take() {
                Some(client) => Ok(client),
                None => Client::connect_to(&self.place, "library"),
            };
            let result = connected.and_then(|mut client| {
                let result = deed(&mut client);
                // After a refusal further answers may be under way, so the connection is not used again.
                self.client = Some(client).filter(|_| result.is_ok());
                result
            });
            let passes = |e: &ClientError| e.is_transient() || matches!(e, ClientError::Refused(Refusal::ShuttingDown));
            match result {
                Err(error) if passes(&error) && since.elapsed() < AWAY => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
    }
}

impl Client {
    /// Submits requests without waiting for each answer. Calls `accepted` with each request's index and job id, in
    /// order, once the job is durable.
    pub fn submit(
        &mut self,
        requests: impl Iterator<Item = Request>,
        mut accepted: impl FnMut(usize, JobId),
    ) -> Result<(), ClientError> {
        self.greet()?;
        let mut requests = requests.fuse();
        let mut answers = BufReader::new(self.stream());
        let (mut sent, mut heard, mut refused) = (0, 0, None);
        loop {
            // Several requests share a system call: none is sent before there is room for several.
            if sent - heard <= UNDER_WAY / 2 && refused.is_none() {
                let more = requests.by_ref().take(UNDER_WAY - (sent - heard));
                sent += self.send_all(more)?;
            }
            if heard == sent {
                break;
            }
            match connection::read(&mut answers)? {
                Answer::Submitted { job, .. } => accepted(heard, job),
                Answer::Refused(refusal) => refused = refused.or(Some(refusal)),
                _ => return Err(unexpected()),
            }
            heard += 1;
        }
        if !answers.buffer().is_empty() {
            return Err(unexpected());
        }
        refused.map_or(Ok(()), |refusal| Err(ClientError::Refused(refusal)))
    }
}

/// Returns whether a variable of an outer job would mislead an inner one.
fn misleads(name: &str) -> bool {
    ["SLURM_", "SLURMD_", "PMI_", "PMIX_", TASK_MARK].iter().any(|stem| name.starts_with(stem))
}

fn selection(ids: &[JobId]) -> JobSelection {
    JobSelection { ids: ids.iter().map(|id| JobRef::Job(*id)).collect(), ..JobSelection::default() }
}

/// Returns sixteen unpredictable bytes.
pub fn random() -> [u8; 16] {
    use std::io::Read;
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    if read.is_err() {
        // Without /dev: bytes that differ between processes. They are unique but can be guessed.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        bytes = (now << 32 | u128::from(std::process::id())).to_le_bytes();
    }
    bytes
}
