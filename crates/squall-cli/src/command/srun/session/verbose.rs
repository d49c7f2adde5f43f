//! Messages of `srun --verbose` about a step, in Slurm's words: tools parse job and step ids from these.

use jiff::Zoned;
use squall_model::id::StepNo;
use squall_model::job::ExitCode;
use squall_model::set::IndexSet;
use squall_model::step::{JobFacts, Layout};

use super::Session;

/// Slurm's names for the levels of `--slurmd-debug`; empty: nothing is printed.
const DEBUG_LEVELS: [&str; 5] = ["", "", "verbose", "debug", "debug2"];

impl Session<'_> {
    /// Prints the allocation, and the tasks about to start on each node of the step.
    pub(super) fn tell_created(&self, facts: &JobFacts, step: StepNo, layout: &Layout) {
        if self.manners.verbose == 0 {
            return;
        }
        let (job, count) = (self.job, facts.nodes.len());
        let times = |(cpus, times): (&u32, u32)| format!("{cpus}(x{times})");
        let cpus = facts.cpus.runs().map(times).collect::<Vec<_>>().join(",");
        eprintln!("srun: jobid {job}: nodes({count}):`{}', cpu counts: {cpus}", facts.nodes.as_str());
        eprintln!("srun: launch/slurm: launch_p_step_launch: CpuBindType={}", self.manners.cpu_bind);
        for (at, node) in layout.nodes.names().iter().enumerate() {
            let ranks: IndexSet = layout.ranks_on(at).into_iter().collect();
            let shown = if ranks.len() == 1 { ranks.to_string() } else { format!("[{ranks}]") };
            eprintln!("srun: launching StepId={job}.{step} on host {node}, {} tasks: {shown}", ranks.len());
        }
    }

    /// Prints that tasks of a node have started.
    pub(super) fn tell_started(&mut self, node: u32, tasks: &[(u32, u32)]) {
        let (name, count) = (self.node_name(node), tasks.len());
        if self.manners.verbose > 0 {
            eprintln!("srun: launch/slurm: _task_start: Node {name}, {count} tasks started");
        }
        // Messages that Slurm's step daemons print from level `verbose` on.
        let Some(level) = DEBUG_LEVELS.get(self.manners.slurmd_debug as usize).filter(|level| !level.is_empty()) else {
            return;
        };
        eprintln!("slurmstepd-{name}: debug levels are stderr='{level}', logfile='error', syslog='quiet'");
        eprintln!("slurmstepd-{name}: starting {count} tasks");
        for (rank, pid) in tasks {
            eprintln!("slurmstepd-{name}: task {rank} ({pid}) started {}", Zoned::now().strftime("%Y-%m-%dT%H:%M:%S"));
            self.pids.insert(*rank, *pid);
        }
    }

    fn tell_debug(&self, rank: u32, exit: ExitCode) {
        let Some((created, pid)) = self.created.as_ref().zip(self.pids.get(&rank)) else { return };
        let name = created.layout.node_of(rank).map_or("?".to_owned(), |node| self.node_name(node as u32));
        let how = if exit.signal > 0 {
            format!("was killed by signal {}.", exit.signal)
        } else {
            format!("exited with exit code {}.", exit.code)
        };
        eprintln!("slurmstepd-{name}: task {rank} ({pid}) {how}");
    }

    /// Prints that a task has ended. Failures are reported elsewhere, also without `--verbose`.
    pub(super) fn tell_ended(&self, rank: u32, exit: ExitCode) {
        self.tell_debug(rank, exit);
        let Some(created) = self.created.as_ref().filter(|_| self.manners.verbose > 0) else { return };
        let status = u32::from(exit.code) << 8 | u32::from(exit.signal);
        let (step, task) = (self.name(), "srun: launch/slurm: _task_finish:");
        eprintln!("{task} Received task exit notification for 1 task of {step} (status=0x{status:04x}).");
        if exit.is_ok() {
            let node = created.layout.node_of(rank).map_or("?".to_owned(), |node| self.node_name(node as u32));
            eprintln!("{task} {node}: task {rank}: Completed");
        }
        if self.manners.verbose > 1 {
            eprintln!("srun: debug:  task {rank} done");
        }
    }

    fn node_name(&self, node: u32) -> String {
        let created = self.created.as_ref();
        created.and_then(|c| c.layout.nodes.get(node as usize)).as_deref().unwrap_or("?").to_owned()
    }
}
