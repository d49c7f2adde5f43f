//! A process that runs the submit filter, and the stream to it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use squall_model::codec;
use squall_model::config::PartitionConfig;
use squall_model::encoding::ByteBuf;
use squall_model::wire::filter::{FilterScript, FromFilter, ToFilter, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::controld::SELF;
use crate::sys::signals;

/// Time that the filter has for a job.
const JOB_TIME: Duration = Duration::from_secs(10);

/// A filter process. Dropping it ends it, with all that it has started.
#[derive(Debug)]
pub(in crate::controld) struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    received: Vec<u8>,
    /// The script that it runs, by address. None: it was just started.
    script: Option<Arc<FilterScript>>,
    /// The partitions that it was told last, by address.
    partitions: Option<Arc<Vec<PartitionConfig>>>,
}

/// Why a process gave no answer.
pub(super) struct Problem {
    /// Whether another attempt is in vain, as its time was over. Otherwise the process has ended.
    pub(super) is_late: bool,
    /// The reason, for users.
    pub(super) text: String,
}

impl Process {
    /// Starts a process and has it load a script. Returns it with the files that it has read. The error is for users.
    pub(super) async fn start(script: &FilterScript) -> Result<(Self, Vec<(String, ByteBuf)>), String> {
        let failed = |e: std::io::Error| format!("{}: the filter's process can't be started: {e}", script.name);
        let mut command = Command::new(SELF);
        command.args(["step", "--filter"]).env_clear().current_dir("/").process_group(0).kill_on_drop(true);
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(std::io::Error::other("it has no pipes")));
        };
        let mut process = Self { child, input, output, received: Vec::new(), script: None, partitions: None };
        let failed = |problem: Problem| format!("{}: {}", script.name, problem.text);
        let mut bytes = Vec::new();
        codec::encode(&ToFilter::Load(Box::new(script.clone())), &mut bytes).map_err(|e| e.to_string())?;
        process.input.write_all(&bytes).await.map_err(|_| failed(Problem::ended()))?;
        match receive(&mut process.output, &mut process.received).await.map_err(failed)? {
            FromFilter::Loaded(files) => Ok((process, files)),
            FromFilter::Fault(problem) => Err(problem),
            FromFilter::Verdict(_) => Err(failed(Problem::strange())),
        }
    }

    /// Notes which script it runs.
    pub(super) fn of(mut self, script: &Arc<FilterScript>) -> Self {
        self.script = Some(Arc::clone(script));
        self
    }

    /// Returns whether it runs this script, and not one of before.
    pub(super) fn runs(&self, script: &Arc<FilterScript>) -> bool {
        self.script.as_ref().is_some_and(|own| Arc::ptr_eq(own, script))
    }

    /// Returns messages as they are sent, with these partitions before them if they are new to it.
    pub(super) fn encode<'a>(
        &mut self,
        partitions: &Arc<Vec<PartitionConfig>>,
        messages: impl Iterator<Item = &'a ToFilter>,
    ) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let mut add = |message: &ToFilter| codec::encode(message, &mut bytes).map_err(|e| Problem::late(e.to_string()));
        if !self.partitions.as_ref().is_some_and(|own| Arc::ptr_eq(own, partitions)) {
            add(&ToFilter::Partitions(partitions.to_vec()))?;
            self.partitions = Some(Arc::clone(partitions));
        }
        for message in messages {
            add(message)?;
        }
        Ok(bytes)
    }

    /// Sends messages, and passes their verdicts to `take` one by one, until all are there or `take` returns false.
    pub(super) async fn converse(
        &mut self,
        sent: &[u8],
        count: usize,
        mut take: impl AsyncFnMut(Verdict) -> bool,
    ) -> Result<(), Problem> {
        let Self { input, output, received, .. } = self;
        // What was sent before an error is answered, or not: reading tells.
        let write = async {
            match input.write_all(sent).await {
                Ok(()) => std::future::pending().await,
                Err(_) => Problem::ended(),
            }
        };
        let read = async {
            for _ in 0..count {
                match receive(output, received).await? {
                    FromFilter::Verdict(verdict) => {
                        if !take(*verdict).await {
                            break;
                        }
                    }
                    FromFilter::Loaded(_) | FromFilter::Fault(_) => return Err(Problem::strange()),
                }
            }
            Ok(())
        };
        tokio::select! {
            biased;
            done = read => done,
            problem = write => Err(problem),
        }
    }
}

/// Receives the next message, for at most the time of a job.
async fn receive(output: &mut ChildStdout, received: &mut Vec<u8>) -> Result<FromFilter, Problem> {
    let receive = async {
        loop {
            match codec::take(received) {
                Ok(Some((message, bytes))) => {
                    received.drain(..bytes);
                    return Ok(message);
                }
                Ok(None) => {}
                Err(_) => return Err(Problem::strange()),
            }
            if output.read_buf(received).await.map_err(|_| Problem::ended())? == 0 {
                return Err(Problem::ended());
            }
        }
    };
    let late = || Problem::late(format!("more than {} s", JOB_TIME.as_secs()));
    timeout(JOB_TIME, receive).await.unwrap_or_else(|_| Err(late()))
}

impl Problem {
    fn ended() -> Self {
        Self { is_late: false, text: "the filter's process has ended".to_owned() }
    }

    fn late(text: String) -> Self {
        Self { is_late: true, text }
    }

    fn strange() -> Self {
        Self::late("the filter's process sends something else".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Programs of the script are in its group. If it has ended already, nothing is left to do. Where the right to end
        // it is missing, it ends by itself as its input does.
        if let Some(pid) = self.child.id() {
            drop(signals::kill_group(pid, libc::SIGKILL));
        }
    }
}
