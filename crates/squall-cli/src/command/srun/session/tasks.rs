//! The session's side towards the step daemons: output, input and exits of tasks.

use std::collections::BTreeSet;
use std::time::Instant;

use squall_host::stepd::is_end_notice;
use squall_model::job::ExitCode;
use squall_model::step::{FromStep, Layout, ToStep};
use squall_model::wire::node::EndReason;
use squall_text::format::harmless_lines;

use super::Session;
use crate::command::srun::input::Chunk;
use crate::command::srun::link::StepConnection;

/// SIGKILL on Linux.
const KILL: u8 = 9;

/// Exit code of a step that srun ends, as its tasks wait for what will never come.
const CONCLUDED: u8 = 1;
/// Time between TERM and KILL for the tasks of an aborted step, seconds.
const ABORT_WAIT_S: u64 = 2;

impl Session<'_> {
    /// Handles a frame from a step daemon. Frames that arrive before the controller's answer are kept until then.
    pub(super) fn hear_step(&mut self, node: u32, frame: FromStep, now: Instant) {
        if self.created.is_none() {
            return self.early.push((node, frame));
        }
        match frame {
            FromStep::Started(tasks) => {
                self.tell_started(node, &tasks);
                for (rank, _) in tasks {
                    self.running.insert(rank);
                }
            }
            FromStep::Failed { rank, code, error } => {
                let name = self.created.as_ref().and_then(|c| c.layout.nodes.get(node as usize));
                eprintln!("slurmstepd-{}: error: {}", name.as_deref().unwrap_or("?"), harmless_lines(&error));
                self.task_ended(rank, ExitCode { code, signal: 0 }, false, now);
            }
            FromStep::Output { rank, stderr, bytes } => {
                let Some(created) = &mut self.created else { return };
                if created.output.take(now, rank, stderr, &bytes).is_err() {
                    // The output has no reader any more: the tasks are killed.
                    self.unread = true;
                    self.signal_tasks(libc::SIGKILL);
                }
            }
            FromStep::Exited { rank, exit, oom } => self.task_ended(rank, exit, oom, now),
            FromStep::Notice(text) => {
                if is_end_notice(&text) {
                    self.ended_by_others();
                }
                eprintln!("slurmstepd: {}", harmless_lines(&text));
            }
            FromStep::Within(within) => self.wireup_changed(node, within),
            FromStep::Aborted { code } => self.aborted(code, Some(node)),
            FromStep::Pass { to, message } => {
                self.passing.push((to, ToStep::Passed { from: node, message }));
                self.pass_on();
            }
            FromStep::X11 { client, bytes } => {
                let said = self.manners.screen.as_mut().and_then(|screen| screen.hear((node, client), &bytes));
                self.tell_client(node, said);
            }
            // The first is answered before the step's tasks exist.
            FromStep::Birth(_) | FromStep::Hello { .. } | FromStep::Done => {}
        }
    }

    /// Sends a message for an X client to the step daemon of its node.
    pub(super) fn tell_client(&mut self, node: u32, message: Option<ToStep>) {
        let Some(message) = message else { return };
        if let Some(link) = self.links.iter_mut().find(|link| link.node() == Some(node)) {
            link.send(&message);
        }
    }

    /// Relays frames between step daemons of different machines. A frame to a step daemon that has not connected yet is
    /// kept.
    pub(super) fn pass_on(&mut self) {
        for (to, message) in std::mem::take(&mut self.passing) {
            match self.links.iter_mut().find(|link| link.node() == Some(to)) {
                Some(link) => link.send(&message),
                None => self.passing.push((to, message)),
            }
        }
    }

    /// Records that the tasks on some nodes have ended in a way that their step daemons can't report.
    pub(super) fn part_ended(&mut self, nodes: &BTreeSet<String>, exit: ExitCode, now: Instant) {
        let Some(created) = &self.created else { return };
        let here = created.layout.nodes.names().into_iter().enumerate().filter(|(_, name)| nodes.contains(name));
        let here: Vec<(usize, Vec<u32>)> = here.map(|(at, _)| (at, created.layout.ranks_on(at))).collect();
        for (at, ranks) in here {
            let killed = |rank: &u32| self.killed.iter().any(|(known, _)| known == rank);
            let left = |rank: &u32| !self.ended.contains(*rank) && (!self.failed.contains(*rank) || killed(rank));
            let ranks: Vec<u32> = ranks.into_iter().filter(left).collect();
            let again = self.start_again(at, &ranks);
            for rank in ranks {
                if again {
                    // Its exit is that of the srun that has started it again.
                    self.running.remove(rank);
                    self.failed.remove(rank);
                    self.killed.retain(|(known, _)| *known != rank);
                    self.ended.insert(rank);
                } else {
                    self.task_ended(rank, exit, false, now);
                }
            }
        }
        self.failed_nodes.extend(nodes.iter().cloned());
        if self.manners.restarts {
            self.end_rest();
        }
    }

    /// Kills the tasks on all nodes that answer, as the step starts again as a whole.
    fn end_rest(&mut self) {
        self.links.iter_mut().for_each(|link| link.send(&ToStep::End { kill_wait_s: 0, why: EndReason::None }));
    }

    /// Starts the unfinished tasks of a failed node again, with `--restart-only-lost`. Returns whether that was done.
    fn start_again(&mut self, at: usize, ranks: &[u32]) -> bool {
        let (Some(created), false) = (&self.created, ranks.is_empty()) else { return false };
        let Some(again) = self.manners.again.as_mut().filter(|_| !self.forced && self.interrupted.is_none()) else {
            return false;
        };
        let Some(children) = again.start(self.job, (&created.layout, at), ranks, self.prepared.among) else {
            return false;
        };
        self.children.extend(children);
        for link in self.links.iter_mut().filter(|link| link.node() == Some(at as u32)) {
            // What was under way from there is lost, and is no reason to fail.
            link.done = true;
        }
        true
    }

    /// Records that the step is being ended by others than this srun, and says so once, as Slurm does.
    fn ended_by_others(&mut self) {
        if !self.forced && !std::mem::replace(&mut self.revoked, true) {
            self.tell_aborted();
        }
    }

    pub(super) fn task_ended(&mut self, rank: u32, exit: ExitCode, oom: bool, now: Instant) {
        // The controller and a step daemon may both report the end of a task.
        if self.ended.contains(rank) || self.failed.contains(rank) {
            return;
        }
        self.tell_ended(rank, exit);
        let first_bad = self.failed.is_empty() && !exit.is_ok();
        self.running.remove(rank);
        if exit.is_ok() { &mut self.ended } else { &mut self.failed }.insert(rank);
        if self.manners.again.is_some() && exit.signal == KILL && !oom {
            self.killed.push((rank, exit));
        } else {
            self.exits.add(now, rank, exit, oom);
        }
        self.judge_silent();
        let last = self.created.as_ref().is_some_and(|c| self.all_ended(&c.layout));
        if last {
            self.wait_until = None;
            return;
        }
        let ends_all = first_bad && self.manners.kill_on_bad_exit == Some(true) || oom && self.manners.oom_kill_step;
        if ends_all && !self.forced {
            self.tell_exits(now, true);
            self.force(&format!("Terminating {}", self.name()));
            self.cancel();
        } else if let Some(wait) = self.manners.wait.filter(|wait| !wait.is_zero())
            && self.wait_until.is_none()
        {
            // A time that no clock reaches is no limit.
            self.wait_until = now.checked_add(wait);
        }
    }

    /// Records that a task of a node has called MPI_Init (`within`), or that all tasks of it have called MPI_Finalize.
    fn wireup_changed(&mut self, node: u32, within: bool) {
        self.spoke.insert(node);
        if within {
            self.within.insert(node)
        } else {
            self.within.remove(node)
        };
        self.judge_silent();
        self.judge_lost();
    }

    /// Ends the step if a task ended on a node where no task has called MPI_Init, because tasks of other nodes wait for
    /// it in MPI_Init. (A step daemon detects this among the tasks of its own node.)
    fn judge_silent(&mut self) {
        let Some(created) = self.created.as_ref().filter(|_| !self.within.is_empty() && self.aborted.is_none()) else {
            return;
        };
        let node_of = |rank: &u32| created.layout.node_of(*rank).map(|node| node as u32);
        let silent = |rank: &u32| node_of(rank).is_some_and(|node| !self.spoke.contains(node));
        let Some(rank) = self.ended.iter().chain(self.failed.iter()).find(silent) else { return };
        eprintln!(
            "srun: error: task {rank} ended before MPI_Init, while tasks of other nodes wait for it: the step is ended"
        );
        self.aborted(CONCLUDED, None);
    }

    /// Records that a step daemon's link was lost before its final frame.
    pub(super) fn step_daemon_lost(&mut self, node: u32) {
        self.lost_nodes.insert(node);
        self.judge_lost();
    }

    /// Ends the step if a step daemon was lost while tasks are between MPI_Init and MPI_Finalize, because such tasks
    /// need all step daemons.
    fn judge_lost(&mut self) {
        let Some(node) = self.lost_nodes.first().filter(|_| !self.within.is_empty() && self.aborted.is_none()) else {
            return;
        };
        let name = self.created.as_ref().and_then(|c| c.layout.nodes.get(node as usize));
        let name = name.as_deref().unwrap_or("?");
        eprintln!(
            "srun: error: the step daemon on {name} is gone, by which MPI tasks find each other: the step is ended"
        );
        // Only the controller reaches the tasks on that node.
        if self.manners.restarts {
            self.aborted = Some(CONCLUDED);
            self.end_rest();
            self.kill();
        } else {
            self.aborted(CONCLUDED, None);
            self.cancel();
        }
    }

    /// Ends the step with an exit code on all nodes except `node`, on which the step daemon has aborted it already.
    fn aborted(&mut self, code: u8, node: Option<u32>) {
        if let Some(known) = &mut self.aborted {
            // The word of a step daemon, such as the code of MPI_Abort, counts more than what srun has concluded before.
            if node.is_some() && *known == CONCLUDED {
                *known = code;
            }
            return;
        }
        self.aborted = Some(code);
        for link in self.links.iter_mut().filter(|link| link.node() != node) {
            link.send(&ToStep::End { kill_wait_s: ABORT_WAIT_S, why: EndReason::None });
        }
    }

    pub(super) fn all_ended(&self, layout: &Layout) -> bool {
        (self.ended.len() + self.failed.len()) as u32 >= layout.ntasks()
    }

    pub(super) fn pass_input(&mut self, now: Instant) {
        let Some(created) = &mut self.created else { return };
        let bytes = match created.input.read(now) {
            Chunk::Bytes(bytes) => bytes,
            Chunk::End => Vec::new(),
            Chunk::Nothing => return,
        };
        let rank = created.input.rank();
        let node = rank.and_then(|rank| created.layout.node_of(rank));
        let message = ToStep::Input { rank, bytes: bytes.into() };
        for link in self.links.iter_mut().filter(|link| node.is_none_or(|node| link.node() == Some(node as u32))) {
            link.send(&message);
        }
    }

    /// Ends the step on all nodes at once. Only the step daemon of the first node prints the message.
    pub(super) fn kill_tasks(&mut self) {
        let first = self.links.iter().filter_map(StepConnection::node).min();
        for link in &mut self.links {
            let why = if link.node() == first { EndReason::Cancelled } else { EndReason::None };
            link.send(&ToStep::End { kill_wait_s: 0, why });
        }
    }

    pub(super) fn signal_tasks(&mut self, signal: i32) {
        for link in &mut self.links {
            link.send(&ToStep::Signal(signal));
        }
    }
}
