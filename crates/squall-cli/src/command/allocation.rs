//! Requests and releases allocations, for salloc and srun.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_host::sys::signals::SignalFd;
use squall_model::encoding::ByteBuf;
use squall_model::id::JobId;
use squall_model::job::{ExitCode, JobSpec};
use squall_model::step::{FirstStep, JobFacts};
use squall_model::wire::client::{Answer, Refusal, Request};

use crate::command::submission;
use crate::contact::{Patience, fresh_key, may_pass};
use squall_client::{Client, ClientError, unexpected};
use squall_text::options::{Stop, Tool};
use squall_text::refusal;

/// Longest wait for an allocation that is not reported: one granted later is announced as queued.
const QUEUED: Duration = Duration::from_millis(150);

/// Signals that cancel the wait for an allocation.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// An allocation that was granted to this command.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Connection that owns the allocation: the allocation ends if this connection closes and no other attaches in
    /// time.
    pub(crate) client: Client,
    /// Whether the first step was requested on this connection: then the next answer on it is about that step.
    pub(crate) step_asked: bool,
    /// The job: its id, nodes and environment.
    pub(crate) facts: JobFacts,
}

/// Parameters of a request for an allocation.
#[derive(Debug)]
pub(crate) struct AllocationRequest {
    /// The command that makes the request: salloc or srun.
    pub(crate) tool: Tool,
    /// Specifications of the job's components; one unless the job is heterogeneous.
    pub(crate) specs: Vec<JobSpec>,
    /// The job's environment: entries ended by NUL bytes.
    pub(crate) env: Vec<u8>,
    /// `--immediate`: seconds to wait for the allocation at most; None: no limit.
    pub(crate) immediate_s: Option<u32>,
    /// Whether messages about waiting are suppressed (`--quiet`).
    pub(crate) quiet: bool,
    /// Request for the first step, which starts together with the allocation. None: the step is requested later. Only
    /// for a job of one component.
    pub(crate) step: Option<Box<FirstStep>>,
}

/// Requests an allocation and waits for it, across restarts of the controller. A signal cancels the request.
pub(crate) fn allocate(ask: AllocationRequest, signals: &SignalFd) -> Result<Allocation, Stop> {
    let AllocationRequest { tool, specs, env, immediate_s, quiet, step } = ask;
    let step_asked = step.is_some();
    let (env, key, several) = (ByteBuf::from(env), fresh_key(), specs.len() > 1);
    let request = match <[JobSpec; 1]>::try_from(specs) {
        Ok([spec]) => Request::Allocate { spec: Arc::new(spec), env, key, immediate_s, step },
        Err(specs) => Request::SubmitHet { specs, script: ByteBuf::new(), env, key, immediate_s },
    };
    let (client, answer) = Patience::new(tool.name()).ask(&request).map_err(|e| failed(tool, &e))?;
    let Answer::Submitted { job, note, message } = answer else { return Err(failed(tool, &unexpected())) };
    let waiting = PendingAllocation { tool, job, several, quiet, immediate_s, client, step_asked, told: false };
    submission::tell(tool.name(), message.as_deref());
    match note {
        Some(Refusal::NotSupported(what)) => eprintln!("{}: warning: {what}", tool.name()),
        Some(note) => waiting.say(&refusal::text(&note)),
        None => {}
    }
    waiting.granted(signals)
}

struct PendingAllocation {
    tool: Tool,
    job: JobId,
    /// Whether the job is heterogeneous. Its start is always reported, as in Slurm, where such jobs always wait in the
    /// queue.
    several: bool,
    quiet: bool,
    immediate_s: Option<u32>,
    client: Client,
    step_asked: bool,
    told: bool,
}

impl PendingAllocation {
    fn say(&self, text: &str) {
        if !self.quiet {
            eprintln!("{}: {text}", self.tool.name());
        }
    }

    fn granted(mut self, signals: &SignalFd) -> Result<Allocation, Stop> {
        let due = Instant::now() + QUEUED;
        loop {
            let timeout = if self.told { None } else { Some(due.saturating_duration_since(Instant::now())) };
            let ready =
                ready(&[(self.client.stream().as_fd(), PollFlags::IN), (signals.as_fd(), PollFlags::IN)], timeout);
            if ready[1] && signals.take().is_some_and(|signal| ENDING.contains(&signal)) {
                return Err(self.give_up());
            }
            if ready[0] {
                match self.client.receive() {
                    Ok(Answer::Allocated(facts)) => {
                        if self.told || self.several {
                            self.say(&format!("job {} has been allocated resources", self.job));
                        }
                        return Ok(Allocation { client: self.client, step_asked: self.step_asked, facts: *facts });
                    }
                    Ok(Answer::JobDone { .. }) | Err(ClientError::Refused(Refusal::Revoked | Refusal::AlreadyDone)) => {
                        return Err(self.revoked());
                    }
                    Ok(_) => {}
                    Err(error) if may_pass(&error) => {
                        self.client = attach(self.tool, self.job)?;
                        self.step_asked = false;
                    }
                    Err(error) => return Err(self.refused(&error)),
                }
            } else if !self.told && Instant::now() >= due {
                self.told = true;
                if self.tool == Tool::Salloc {
                    self.say(&format!("Pending job allocation {}", self.job));
                }
                self.say(&format!("job {} queued and waiting for resources", self.job));
            }
        }
    }

    /// Returns why the allocation was not granted; when the time of `--immediate` is over, in Slurm's words.
    fn refused(&self, error: &ClientError) -> Stop {
        match (error, self.immediate_s) {
            (ClientError::Refused(Refusal::Busy), Some(2..)) => {
                Stop::bad("Unable to allocate resources: Connection timed out")
            }
            (ClientError::Refused(Refusal::Busy), Some(_)) => {
                Stop::bad("Unable to allocate resources: Requested nodes are busy")
            }
            _ => failed(self.tool, error),
        }
    }

    fn revoked(&self) -> Stop {
        self.say(&format!("Job allocation {} has been revoked.", self.job));
        Stop::Silent(1)
    }

    fn give_up(mut self) -> Stop {
        // If this message is lost, the end of the connection has the same effect.
        drop(self.client.send(&Request::Finish { job: self.job, exit: ExitCode { code: 0, signal: 15 } }));
        drop(self.client.receive());
        if self.tool == Tool::Salloc {
            self.say(&format!("Job allocation {} has been revoked.", self.job));
            self.say("Job aborted due to signal");
        } else {
            self.say(&format!("Job allocation {} has been revoked", self.job));
        }
        Stop::Silent(1)
    }
}

fn failed(tool: Tool, error: &ClientError) -> Stop {
    Stop::Bad { lines: error.lines(tool.failed()), exit: 1 }
}

/// Opens a new connection and binds the allocation to it.
fn attach(tool: Tool, job: JobId) -> Result<Client, Stop> {
    let mut patience = Patience::interrupted(tool.name());
    loop {
        let attached = patience.connect().and_then(|mut client| {
            client.send(&Request::Attach { job })?;
            Ok(client)
        });
        match attached {
            Err(error) if patience.wait(&error) => {}
            result => return result.map_err(|e| failed(tool, &e)),
        }
    }
}

/// Releases an allocation with the exit code `exit`. Returns whether the controller has acknowledged it.
pub(crate) fn release(tool: Tool, client: Option<Client>, job: JobId, exit: ExitCode) -> bool {
    let request = Request::Finish { job, exit };
    let finished = |client: &mut Client| {
        client.send(&request)?;
        loop {
            match client.receive() {
                Ok(Answer::Done) => return Ok(()),
                Ok(_) => {}
                // While no controller leads, that is the answer of a standby or of this host's daemon.
                Err(error) if may_pass(&error) => return Err(error),
                Err(ClientError::Refused(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    };
    // A caller that has lost its connection has retried before: it retries only for a short time here.
    let mut patience = match client {
        Some(mut client) => {
            if finished(&mut client).is_ok() {
                return true;
            }
            Patience::interrupted(tool.name())
        }
        None => Patience::new(tool.name()),
    };
    loop {
        match patience.connect().and_then(|mut client| finished(&mut client)) {
            Ok(()) => return true,
            Err(error) if patience.wait(&error) => {}
            Err(_) => return false,
        }
    }
}

/// Waits until a descriptor is ready or the timeout has passed; returns for each whether it is ready.
pub(crate) fn ready(sources: &[(BorrowedFd<'_>, PollFlags)], timeout: Option<Duration>) -> Vec<bool> {
    let mut fds: Vec<PollFd<'_>> = sources.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    let limit = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
        Err(_) => vec![false; sources.len()],
    }
}
