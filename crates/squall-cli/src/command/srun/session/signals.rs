//! srun's handling of signals.

use std::time::Instant;

use squall_model::set::IndexSet;
use squall_model::step::ToStep;

use super::{GRACE, Session, TELLING, TWICE, WAIT_S};
use crate::command::srun::terminal::size;
use squall_text::options::Stop;

impl Session<'_> {
    pub(super) fn signal(&mut self, signal: i32, now: Instant) -> Result<(), Stop> {
        if self.created.is_none() && [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal) {
            self.say(&format!("Cancelled pending step for job {}", self.job));
            return Err(Stop::Silent(1));
        }
        match signal {
            libc::SIGURG if self.is_inside() => self.part(now),
            libc::SIGINT => return self.interrupt(now),
            libc::SIGHUP | libc::SIGQUIT | libc::SIGTERM => {
                if signal == libc::SIGQUIT {
                    self.say("Quit");
                }
                self.force("forcing job termination");
                self.signal_tasks(signal);
                self.cancel();
            }
            libc::SIGCONT => self.say("got SIGCONT"),
            libc::SIGWINCH if self.manners.terminal.is_some() => {
                let (rows, columns) = size();
                for link in &mut self.links {
                    link.send(&ToStep::Resize(rows, columns));
                }
            }
            libc::SIGWINCH | libc::SIGTTIN | libc::SIGTTOU => {}
            other => self.signal_tasks(other),
        }
        Ok(())
    }

    fn interrupt(&mut self, now: Instant) -> Result<(), Stop> {
        let again = self.interrupted.is_some_and(|last| now.duration_since(last) < TWICE);
        if again && self.aborting {
            // The third interrupt ends srun at once. Step daemons and controller kill the tasks.
            self.kill_tasks();
            if let Some(told) = self.cancel() {
                let _ = told.recv_timeout(TELLING);
            }
            return Err(Stop::Silent(128 + libc::SIGINT as u8));
        }
        if again || self.manners.quit_on_interrupt {
            self.say(&format!("sending Ctrl-C to {}", self.name()));
            self.signal_tasks(libc::SIGINT);
            if !std::mem::replace(&mut self.aborting, true) && !self.forced {
                self.force("forcing job termination");
                self.tell_aborted();
            }
            self.kill_at = Some(now + GRACE);
        } else if self.manners.disable_status {
            self.say(&format!("sending Ctrl-C to {}", self.name()));
            self.signal_tasks(libc::SIGINT);
        } else if !self.forced {
            self.say("interrupt (one more within 1 sec to abort)");
            self.status();
        }
        self.interrupted = Some(now);
        Ok(())
    }

    /// Prints how long srun waits for the step that it ends.
    pub(super) fn tell_aborted(&self) {
        let wait_s = self.created.as_ref().map_or(0, |created| created.kill_wait_s) + WAIT_S;
        self.say(&format!("Job step aborted: Waiting up to {wait_s} seconds for job step to finish."));
    }

    /// Marks the step as ended by this srun. Prints `text` the first time. Later exits of tasks are then not reported
    /// as errors.
    pub(super) fn force(&mut self, text: &str) {
        if !std::mem::replace(&mut self.forced, true) {
            self.say(text);
        }
    }

    /// Prints the states of the tasks, one line for each state.
    pub(super) fn status(&self) {
        let Some(created) = &self.created else { return };
        let all = IndexSet::range(0, created.layout.ntasks().saturating_sub(1));
        let unknown = all.difference(&self.running).difference(&self.ended).difference(&self.failed);
        for (ranks, state) in [
            (&self.running, "running"),
            (&self.failed, "exited abnormally"),
            (&self.ended, "exited"),
            (&unknown, "unknown"),
        ] {
            if !ranks.is_empty() {
                let s = if ranks.len() == 1 { "" } else { "s" };
                self.say(&format!("{} task{s} {ranks}: {state}", self.name()));
            }
        }
    }
}
