//! Timers of a session: messages that are due, timeouts, the end and the exit status.

use std::time::Instant;

use squall_engine::step::{Delivery, Heard};
use squall_model::job::{EndState, ExitCode};
use squall_model::time::Span;

use super::{HELD_UP, Session};
use crate::command::srun::link::{StepConnection, missing_output};
use squall_text::format::harmless_lines;
use squall_text::options::Stop;

impl Session<'_> {
    pub(super) fn timers(&mut self, now: Instant) -> Result<(), Stop> {
        self.rejoin(now);
        self.tell_exits(now, false);
        if let Some(created) = &mut self.created {
            // The reader of the output is gone. The next whole line fails again and is handled then.
            drop(created.output.flush(now, false));
        } else {
            self.pending(now)?;
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.kill_tasks();
            self.cancel();
        }
        if self.wait_until.is_some_and(|at| now >= at) {
            self.wait_until = None;
            self.say(&format!("First task exited {}s ago", self.manners.wait.unwrap_or_default().as_secs()));
            self.status();
            self.force(&format!("Terminating {}", self.name()));
            // The time that `--wait` grants the remaining tasks is over.
            self.tell_aborted();
            self.kill_tasks();
            self.cancel();
        }
        Ok(())
    }

    /// Handles a step that waits for free cores. After the time of `--immediate` it fails; before, a message is printed
    /// once.
    pub(super) fn pending(&mut self, now: Instant) -> Result<(), Stop> {
        let waited = now.duration_since(self.asked);
        let busy = "Requested nodes are busy";
        if self.manners.immediate.is_some_and(|limit| waited >= limit) {
            return Err(Stop::bad(format!("Unable to create step for job {}: {busy}", self.job)));
        }
        if waited >= HELD_UP && !self.held_up && self.client.is_some() {
            self.held_up = true;
            self.say(&format!("Job {} step creation temporarily disabled, retrying ({busy})", self.job));
        }
        Ok(())
    }

    pub(super) fn tell_exits(&mut self, now: Instant, end: bool) {
        let Some(created) = &self.created else { return };
        for message in self.exits.messages(now, end, &created.layout).iter().filter(|_| !self.unread) {
            eprintln!("srun: error: {}", harmless_lines(message));
        }
    }

    /// Returns the exit status for the shell and the exit code for accounting, if the session is over. None: it goes
    /// on.
    pub(super) fn finished(&mut self, now: Instant) -> Option<(u8, ExitCode)> {
        let links: Vec<Delivery> = self.links.iter().map(StepConnection::delivery).collect();
        let over = self.heard(now).is_over(&links);
        if !over {
            return None;
        }
        if let Some(created) = &mut self.created {
            drop(created.output.flush(now, true));
        }
        for (rank, exit) in std::mem::take(&mut self.killed) {
            self.exits.add(now, rank, exit, false);
        }
        // Messages are printed after the terminal's mode is restored.
        self.manners.terminal = None;
        self.tell_exits(now, true);
        if self.exits.killed && !self.revoked && !self.manners.quiet && !self.unread {
            eprintln!("srun: Force Terminated {}", self.name());
        }
        let missing = self.tell_missing();
        let (status, exit) = self.verdict();
        // A success would pass off incomplete output as complete.
        Some(if missing && status == 0 { (1, ExitCode { code: 1, signal: 0 }) } else { (status, exit) })
    }

    fn heard(&self, now: Instant) -> Heard {
        let done = self.done.as_ref().map(|(since, outcome)| {
            let ended = self.forced || !outcome.state.is_by_itself();
            (Span(now.duration_since(*since).as_micros() as u64), ended)
        });
        Heard {
            nodes: self.created.as_ref().map(|created| created.layout.nodes.len()),
            all_ended: self.created.as_ref().is_some_and(|created| self.all_ended(&created.layout)),
            done,
            owner: self.owner && !self.manners.restarts,
            lost: self.lost,
            idle: self.idle,
        }
    }

    /// Reports tasks with output that may be incomplete. Returns whether there are any.
    fn tell_missing(&self) -> bool {
        let Some(created) = self.created.as_ref().filter(|_| !self.unread) else { return false };
        let first = self.prepared.among.unwrap_or_default().tasks_before;
        let missing = missing_output(&self.links, &created.layout, first);
        for text in &missing {
            eprintln!("srun: error: {}", harmless_lines(text));
        }
        !missing.is_empty()
    }

    /// Returns the exit status for the shell and the exit code for accounting. They are those of the tasks, or the
    /// controller's if not all tasks' exits are known.
    pub(super) fn verdict(&self) -> (u8, ExitCode) {
        if let Some(code) = self.aborted {
            return (code, ExitCode { code, signal: 0 });
        }
        let complete = self.created.as_ref().is_some_and(|c| self.all_ended(&c.layout));
        let Some((_, outcome)) = self.done.as_ref().filter(|_| !complete) else {
            return (self.exits.status(), self.exits.worst());
        };
        if let Some(reason) = &outcome.reason {
            eprintln!("srun: error: {}: {}", self.name(), harmless_lines(reason));
        }
        let said = outcome.exit.shell_status() as u8;
        let worst = if self.exits.any() { self.exits.status() } else { 0 };
        match (said.max(worst), outcome.state) {
            (0, EndState::Completed) => (0, ExitCode::OK),
            (0, _) => (1, ExitCode { code: 1, signal: 0 }),
            (status, _) => (status, if said >= worst { outcome.exit } else { self.exits.worst() }),
        }
    }
}
