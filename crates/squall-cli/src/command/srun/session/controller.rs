//! The session's side towards the controller: answers, reconnection, the request to cancel the step.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use squall_model::hostlist::expand;
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};
use squall_model::wire::node::SignalTarget;

use super::{CreatedStep, Session};
use crate::command::srun::het;
use crate::command::srun::link::StepConnection;
use crate::contact::{Patience, Search, may_pass};
use squall_client::ClientError;
use squall_text::format::harmless_lines;
use squall_text::options::Stop;

impl Session<'_> {
    pub(super) fn hear_controller(&mut self, now: Instant) -> Result<(), Stop> {
        let Some(client) = &mut self.client else { return Ok(()) };
        match client.receive() {
            Ok(Answer::StepCreated { step, layout, facts, kill_wait_s, usual }) if self.created.is_none() => {
                if self.held_up {
                    self.say(&format!("Step created for job {}", self.job));
                }
                self.tell_created(&facts, step, &layout);
                het::verify(self.prepared.among, &layout)?;
                let usual = usual.unwrap_or_default();
                self.manners.kill_on_bad_exit.get_or_insert(usual.kill_on_bad_exit);
                self.manners.wait.get_or_insert(Duration::from_secs(usual.wait_s));
                let (output, input) = self.prepared.open(&facts, step, &layout)?;
                self.resume_as(step, &facts.nodes, &layout.nodes);
                self.created = Some(CreatedStep { step, layout: *layout, kill_wait_s, output, input });
                if let Some(parting) = self.manners.parting.take() {
                    parting.leave(self.job, step)?;
                }
                for (node, frame) in std::mem::take(&mut self.early) {
                    self.hear_step(node, frame, now);
                }
            }
            Ok(Answer::StepDone { outcome, lost, .. }) => {
                self.failed_nodes.extend(expand(lost.as_deref().unwrap_or_default()).unwrap_or_default());
                if self.manners.again.is_some() {
                    self.part_ended(&self.failed(), outcome.exit, now);
                }
                self.step_done(now, outcome);
            }
            Ok(Answer::StepPart { nodes, exit, .. }) => {
                self.part_ended(&expand(&nodes).unwrap_or_default().into_iter().collect(), exit, now);
            }
            Ok(Answer::Notice(text)) if text.starts_with("error: ") => eprintln!("srun: {}", harmless_lines(&text)),
            Ok(Answer::Notice(text)) => self.say(&text),
            Ok(_) => {}
            Err(error) if may_pass(&error) => {
                self.client = None;
                self.look_for_controller();
            }
            Err(error) if self.created.is_some() => {
                // The allocation is gone. Remaining messages of the step daemons are still read.
                let outcome = Outcome {
                    state: EndState::Failed,
                    exit: ExitCode { code: 0, signal: 9 },
                    reason: Some(error.to_string()),
                };
                self.step_done(now, outcome);
            }
            Err(error) => return Err(Stop::Bad { lines: not_created(self.job, &error), exit: 1 }),
        }
        Ok(())
    }

    /// Records the controller's report that the step has ended. Further reports are ignored.
    fn step_done(&mut self, now: Instant, outcome: Outcome) {
        if self.done.is_none() {
            self.done = Some((now, outcome));
            self.links.iter().for_each(StepConnection::watch_peer);
        }
    }

    /// Reconnects to the controller in the background; the tasks' output goes on.
    pub(super) fn look_for_controller(&mut self) {
        match Search::begin("srun") {
            Ok(search) => self.search = Some(search),
            Err(_) => self.lost = true,
        }
    }

    pub(super) fn controller_returned(&mut self) -> Result<(), Stop> {
        let Some(search) = self.search.take() else { return Ok(()) };
        let mut client = match search.found() {
            Ok(client) => client,
            Err(error) if self.created.is_none() => {
                let what = format!("Unable to create step for job {}", self.job);
                return Err(Stop::Bad { lines: error.lines(&what), exit: 1 });
            }
            Err(_) => {
                self.lost = true;
                return Ok(());
            }
        };
        let job = self.job;
        let attached = if self.owner { client.send(&Request::Attach { job }) } else { Ok(()) };
        match attached.and_then(|()| client.send(&self.request)) {
            Ok(()) => self.client = Some(client),
            Err(_) => self.look_for_controller(),
        }
        Ok(())
    }

    /// Asks the controller to end the step on every node, by TERM and later KILL. The receiver is closed when the
    /// controller has acknowledged that, or cannot be reached. None: the step was not created yet.
    pub(super) fn cancel(&self) -> Option<Receiver<()>> {
        self.ask_for_end(None)
    }

    /// Asks the controller to kill the step on every node at once.
    pub(super) fn kill(&self) {
        self.ask_for_end(Some((libc::SIGKILL, SignalTarget::Steps)));
    }

    fn ask_for_end(&self, signal: Option<(i32, SignalTarget)>) -> Option<Receiver<()>> {
        let created = self.created.as_ref()?;
        let jobs = JobSelection { ids: vec![JobRef::Job(self.job)], ..JobSelection::default() };
        let request = Request::Cancel { jobs, signal, step: Some(created.step), verbose: false };
        let (asked, told) = sync_channel::<()>(1);
        std::thread::spawn(move || {
            // Without the controller, the step daemons still end the tasks that they can reach.
            drop(Patience::new("srun").ask(&request));
            drop(asked);
        });
        Some(told)
    }
}

/// Returns the message that explains why the step was not created: the job has ended, or has no room for it.
fn not_created(job: JobId, error: &ClientError) -> Vec<String> {
    if matches!(error, ClientError::Refused(Refusal::InvalidJobId | Refusal::AlreadyDone)) {
        let mut lines = error.lines(&format!("Unable to confirm allocation for job {job}"));
        lines.push(format!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}"));
        return lines;
    }
    error.lines(&format!("Unable to create step for job {job}"))
}
