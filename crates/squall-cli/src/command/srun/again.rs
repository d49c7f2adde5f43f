//! Tasks of failed nodes that are started again while the other tasks of their step go on (`--restart-only-lost`).
//!
//! They become a step of their own with the numbers that they had: an srun process of its own starts it, as for a component
//! of a heterogeneous job.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::PollFlags;
use squall_host::sys::command::unblock_signals;
use squall_host::sys::signals::{SignalFd, kill};
use squall_model::hostlist::{compress, expand};
use squall_model::id::JobId;
use squall_model::step::{Among, Layout};
use squall_text::options::{Stop, collect};

use super::SRUN;
use super::het::{self, AMONG, among_text};
use super::request::{LOST, RESTART, number};
use crate::capture::Vars;
use crate::command::allocation::ready;

/// How often sruns are looked at that have started tasks again.
const LOOK: Duration = Duration::from_millis(100);

/// What an srun needs to start some of its tasks again.
#[derive(Debug)]
pub(super) struct Again {
    /// The srun's options, without its program and without those that say which nodes it gets.
    options: Vec<OsString>,
    command: Vec<OsString>,
    /// How often tasks may still be started again.
    left: u32,
    /// How often tasks have been started again.
    count: u32,
    /// Names of all nodes that have failed.
    lost: Vec<String>,
}

impl Again {
    /// Reads the command line of an srun that starts tasks again at most `restarts` times. Its own tasks may have been started
    /// again before.
    pub(super) fn new(args: &[OsString], restarts: u32, vars: &Vars) -> Result<Self, Stop> {
        let line = collect::line(SRUN, args)?;
        // Those that started again run in the places of the failed nodes.
        let kept = line.options.iter().filter(|(option, _)| !["relative", "nodelist"].contains(&option.long));
        let options = kept.map(|(option, value)| match value {
            Some(value) => format!("--{}={value}", option.long).into(),
            None => format!("--{}", option.long).into(),
        });
        let options = options.collect();
        let before = number(vars, RESTART).filter(|_| het::among(vars).is_some());
        let lost = vars.iter().find(|(name, _)| name == LOST && before.is_some());
        let lost = lost.and_then(|(_, list)| expand(list.to_str()?).ok()).unwrap_or_default();
        let command = line.operands.to_vec();
        Ok(Self { options, command, left: restarts, count: before.unwrap_or(0), lost })
    }

    /// Starts the tasks of a failed node of a step again: an srun process for each row of consecutive ranks, which are
    /// `ranks` in ascending order. `at`: index of the node in the layout; `before`: position of the step among others.
    /// None: they were started again too often, or can't be.
    pub(super) fn start(
        &mut self,
        job: JobId,
        (layout, at): (&Layout, usize),
        ranks: &[u32],
        before: Option<Among>,
    ) -> Option<Vec<Child>> {
        self.left = self.left.checked_sub(1)?;
        self.count += 1;
        let names = layout.nodes.names();
        self.lost.push(names.get(at)?.clone());
        eprintln!(
            "srun: step lost {}: starting its tasks again ({} of {} times)",
            names[at],
            self.count,
            self.count + self.left
        );
        let outer = before.unwrap_or(Among { tasks: layout.ntasks(), nodes: names.len() as u32, ..Among::default() });
        let rows = ranks.chunk_by(|one, next| one + 1 == *next);
        let children = rows.map(|row| {
            let among = Among {
                tasks_before: outer.tasks_before + row[0],
                own: row.len() as u32,
                nodes_before: outer.nodes_before + at as u32,
                ..outer
            };
            self.spawn(job, &names[at], &among)
        });
        let children: Vec<_> = children.collect();
        for child in &children {
            if let Err(error) = child {
                eprintln!("srun: error: tasks of {} can't be started again: {error}", self.lost.join(","));
            }
        }
        children.into_iter().collect::<Result<_, _>>().ok()
    }

    /// Waits until all of these sruns have ended, and passes signals on to them. Returns the highest exit status.
    pub(super) fn wait_for(mut children: Vec<Child>, signals: &SignalFd) -> u8 {
        let mut status = 0;
        let mut note = |child: &mut Child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(ended)) => {
                status = status.max(ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0)) as u8);
                false
            }
            Err(_) => false,
        };
        loop {
            children.retain_mut(&mut note);
            if children.is_empty() {
                return status;
            }
            ready(&[(signals.as_fd(), PollFlags::IN)], Some(LOOK));
            while let Some(got) = signals.take() {
                for child in &children {
                    // An error is ignored: the process has just ended.
                    drop(kill(child.id(), got));
                }
            }
        }
    }

    fn spawn(&self, job: JobId, failed: &str, among: &Among) -> std::io::Result<Child> {
        let mut srun = Command::new(std::env::current_exe()?);
        srun.arg0(SRUN.name()).args(&self.options);
        srun.args([format!("--jobid={job}"), "--nodes=1".to_owned(), format!("--ntasks={}", among.own)]);
        srun.arg(format!("--restarts={}", self.left));
        // The name stands for the node that has its place now.
        srun.arg(format!("--nodelist={failed}"));
        srun.arg("--").args(&self.command);
        srun.env(AMONG, among_text(among)).env("SLURM_OPEN_MODE", "a");
        srun.env(RESTART, self.count.to_string()).env(LOST, compress(&self.lost));
        // A file name on the command line is opened all the same.
        srun.stdin(Stdio::null());
        unblock_signals(&mut srun).spawn()
    }
}
