//! Checkpoints of jobs: which count, and from which one an attempt goes on.

use std::collections::BTreeSet;

use squall_model::checkpoint::{Asked, Checkpoint, CheckpointChange, Restore};
use squall_model::id::NodeId;
use squall_model::limits::CHECKPOINTS_KEPT;
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::job::{Job, Phase};

impl State {
    pub(super) fn checkpoint_changed(&mut self, time: Time, change: &CheckpointChange) {
        let attempt = change.job.attempt;
        // because a journal of another version may checkpoint an attempt that is over here
        let Some(job) = self.jobs.get_mut(&change.job.job).filter(|job| job.attempt == attempt) else { return };
        // because there it may also have ended
        let Some(run) = job.run() else { return };
        let ran = run.ran(time);
        let need = &job.spec.need;
        let (nodelist, sizes) = (need.nodelist.clone(), (need.nodes_min, need.nodes_max, need.ntasks_per_node));
        let bound = nodelist.is_none();
        let all = job.checkpoints.get_or_insert_with(Default::default);
        if change.made.is_none() && change.number > all.last {
            all.refused.clone_from(&change.error);
            all.damages = all.damages.saturating_add(u32::from(change.damaged == Some(true)));
            return;
        }
        (all.failed, all.refused) = (change.error.clone(), None);
        all.kept.retain(|one| one.number != change.number);
        if let Some(made) = change.made {
            all.bound |= bound;
            all.asked.get_or_insert(Asked {
                nodelist,
                nodes_min: sizes.0,
                nodes_max: sizes.1,
                ntasks_per_node: sizes.2,
            });
            all.last = all.last.max(change.number);
            all.damages = 0;
            let (node, nodes, interfaces) = (change.node, change.nodes.clone(), change.interfaces.clone());
            all.kept.push(Checkpoint { number: change.number, node, time, made, ran, nodes, interfaces });
            let surplus = all.kept.len().saturating_sub(CHECKPOINTS_KEPT);
            all.kept.drain(..surplus);
        }
    }
}

impl Job {
    /// Returns the checkpoint from which the job's next attempt goes on. None: it begins from the start.
    pub(in crate::control) fn restore(&self) -> Option<Restore> {
        let last = self.checkpoints.as_ref()?.kept.last()?;
        Some(Restore { number: last.number, ran: last.ran, pid: last.made.pid })
    }

    /// Returns the checkpoint from which the job's next attempt goes on, if only the nodes that have it can restore it. None: it
    /// may start elsewhere.
    pub(in crate::control) fn home(&self) -> Option<&Checkpoint> {
        let last = self.checkpoints.as_ref()?.kept.last()?;
        self.spec.need.nodelist.is_some().then_some(last)
    }

    /// Returns the nodes that may remove the checkpoints of the job, which has ended: those that made them. If all nodes share
    /// the folder (`shared`), also the job's last one, as these may be away.
    pub(in crate::control) fn checkpoint_holders(&self, shared: bool) -> BTreeSet<NodeId> {
        let kept = self.checkpoints.iter().flat_map(|all| &all.kept).map(Checkpoint::holders);
        let mut holders: BTreeSet<NodeId> = kept.flat_map(|nodes| nodes.iter().collect::<Vec<_>>()).collect();
        if shared
            && !holders.is_empty()
            && let Phase::Ended(ended) = &self.phase
        {
            holders.extend(ended.run.as_ref().and_then(|run| run.alloc.nodes().first()));
        }
        holders
    }
}
