//! Jobs by the thousand over one connection: many requests under way at once, each durable when it is acknowledged. If
//! the controller goes away meanwhile, what it has not acknowledged is said again under the same key, so that every job
//! is accepted once.

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

/// Requests that wait for their answers.
const UNDER_WAY: usize = 256;
/// How long a controller may be away.
const AWAY: Duration = Duration::from_mins(1);
/// Pause between attempts to reach it.
const PAUSE: Duration = Duration::from_millis(100);

/// A batch job to be submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What is asked for.
    pub spec: JobSpec,
    /// The script.
    pub script: Vec<u8>,
    /// The environment: `KEY=VALUE` entries, each ended by a NUL byte.
    pub env: Vec<u8>,
    /// By which the controller knows it again; never the same for two.
    pub key: ClientKey,
}

impl Submission {
    /// A job of one task with this process's folder and environment, and whatever key is free.
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

/// Who submits jobs, and hears of them.
#[derive(Debug)]
pub struct Jobs {
    place: Place,
    /// None: it has ended, and is made anew when it is needed.
    client: Option<Client>,
}

impl Jobs {
    /// To the cluster with that state folder; None: to the one that commands talk to.
    pub fn connect(state: Option<&Path>) -> Result<Self, ClientError> {
        let nowhere = || ClientError::Connect("no cluster is running here, and none was named".into());
        let place = match state {
            Some(dir) => Place::at(dir).map_err(|e| ClientError::Connect(format!("{}: {e}", dir.display())))?,
            None => Place::find().ok_or_else(nowhere)?,
        };
        let client = Some(Client::connect_to(&place, "library")?);
        Ok(Self { place, client })
    }

    /// Submits jobs, in order, and tells place and id of each when it is durable. Err: one was refused; those behind it
    /// that were under way may have been accepted all the same, and were told.
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

    /// Ends jobs. Those that have ended already are left alone.
    pub fn cancel(&mut self, ids: &[JobId]) -> Result<(), ClientError> {
        let request = Request::Cancel { jobs: selection(ids), signal: None, step: None, verbose: false };
        self.persist(|client| client.ask(&request).map(drop))
    }

    /// What jobs are doing. Those that ended long ago are not known any more.
    pub fn states(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobState>>, ClientError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let page = self.persist(|client| client.jobs(selection(ids), true, false))?;
        let known: HashMap<JobId, JobState> = page.jobs.iter().map(|job| (job.id, job.state)).collect();
        Ok(ids.iter().map(|id| known.get(id).copied()).collect())
    }

    /// Waits until jobs have ended; how. Err `InvalidJobId`: one is not known (any more).
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

    /// Does something, again if the controller was away meanwhile.
    fn persist<T>(&mut self, mut deed: impl FnMut(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let since = Instant::now();
        loop {
            let connected = match self.client.take() {
                Some(client) => Ok(client),
                None => Client::connect_to(&self.place, "library"),
            };
            let result = connected.and_then(|mut client| {
                let result = deed(&mut client);
                // After a refusal answers may be under way that nobody waits for.
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
    /// Submits one after another without waiting for each, and tells place and id of each in order when it is durable.
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
            // Several with one system call, and not before there is room for several.
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

/// Whether a variable of an outer job would mislead an inner one.
fn misleads(name: &str) -> bool {
    ["SLURM_", "SLURMD_", "PMI_", "PMIX_", TASK_MARK].iter().any(|stem| name.starts_with(stem))
}

fn selection(ids: &[JobId]) -> JobSelection {
    JobSelection { ids: ids.iter().map(|id| JobRef::Job(*id)).collect(), ..JobSelection::default() }
}

/// Sixteen bytes that nobody can guess.
pub fn random() -> [u8; 16] {
    use std::io::Read;
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    if read.is_err() {
        // Without /dev: what differs between processes. Unique, if guessable.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        bytes = (now << 32 | u128::from(std::process::id())).to_le_bytes();
    }
    bytes
}
