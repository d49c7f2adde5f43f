//! What `srun --verbose` tells of a step, in the words by which tools find job and step.

use squall_engine::environment::counts_text;
use squall_model::id::StepNo;
use squall_model::job::ExitCode;
use squall_model::set::IndexSet;
use squall_model::step::{JobFacts, Layout};

use super::Session;

impl Session<'_> {
    /// The allocation, and what is about to start on each node of the step.
    pub(super) fn tell_created(&self, facts: &JobFacts, step: StepNo, layout: &Layout) {
        if !self.manners.verbose {
            return;
        }
        let (job, count, cpus) = (self.job, facts.nodes.len(), counts_text(&facts.cpus));
        eprintln!("srun: jobid {job}: nodes({count}):`{}', cpu counts: {cpus}", facts.nodes.as_str());
        for (at, node) in layout.nodes.names().iter().enumerate() {
            let ranks: IndexSet = layout.ranks_on(at).into_iter().collect();
            eprintln!("srun: launching StepId={job}.{step} on host {node}, {} tasks: {ranks}", ranks.len());
        }
    }

    /// Tasks of a node run.
    pub(super) fn tell_started(&self, node: u32, tasks: usize) {
        if self.manners.verbose {
            eprintln!("srun: Node {}, {tasks} tasks started", self.node_name(node));
        }
    }

    /// A task ended well; of others everybody is told.
    pub(super) fn tell_completed(&self, rank: u32, exit: ExitCode) {
        let Some(created) = self.created.as_ref().filter(|_| self.manners.verbose && exit.is_ok()) else { return };
        let node = created.layout.node_of(rank).map_or("?".to_owned(), |node| self.node_name(node as u32));
        eprintln!("srun: {node}: task {rank}: Completed");
    }

    fn node_name(&self, node: u32) -> String {
        let created = self.created.as_ref();
        created.and_then(|c| c.layout.nodes.get(node as usize)).as_deref().unwrap_or("?").to_owned()
    }
}
