//! Limits that jobs share, as a plan uses them up.

use std::collections::BTreeMap;

use squall_model::job::PendingReason;
use squall_model::policy::{Limit, Whose};
use squall_model::resource::{Alloc, Memory};

use crate::request::Request;
use crate::view::View;

/// What limits jobs together. The numbers mean something to the view only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// An association: a user in an account, or an account with all below it.
    Association(u32),
    /// A QOS.
    Qos(u32),
    /// A user in a QOS.
    QosUser(u32, u32),
    /// An account in a QOS.
    QosAccount(u32, u32),
}

impl Gate {
    /// Whose limits are behind it.
    pub fn whose(self) -> Whose {
        match self {
            Self::Association(_) => Whose::Association,
            Self::Qos(_) | Self::QosUser(..) | Self::QosAccount(..) => Whose::Qos,
        }
    }
}

/// What one more job takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    cpus: u64,
    memory_mb: u64,
    nodes: u64,
}

impl Share {
    /// What it takes at least.
    pub(crate) fn least(request: &Request) -> Self {
        let nodes = u64::from(request.nodes_min);
        let on_all = u64::from(request.tasks_per_node.unwrap_or(1)) * nodes;
        let tasks = request.tasks.map_or(on_all, u64::from);
        let cpus = if request.overcommit { 1 } else { tasks * u64::from(request.task_cpus) };
        let memory_mb = match request.memory {
            Memory::PerNodeMb(mb) => mb.saturating_mul(nodes),
            Memory::PerCpuMb(mb) => mb.saturating_mul(cpus),
            Memory::Unset => 0,
        };
        Self { cpus, memory_mb, nodes }
    }
    /// What it got.
    pub(crate) fn of(alloc: &Alloc) -> Self {
        Self { cpus: u64::from(alloc.cpus()), memory_mb: alloc.memory_mb(), nodes: alloc.nodes().len() as u64 }
    }

    fn of_limit(self, limit: Limit) -> u64 {
        match limit {
            Limit::GrpCpu | Limit::UserCpu | Limit::AccountCpu => self.cpus,
            Limit::GrpMem | Limit::UserMem | Limit::AccountMem => self.memory_mb,
            Limit::GrpNode | Limit::UserNode | Limit::AccountNode => self.nodes,
            // A job; of time, any at all.
            _ => 1,
        }
    }
}

/// What is left behind the gates that were looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(BTreeMap<Gate, Vec<(Limit, u64)>>);

impl Rooms {
    /// The limit that a job would break.
    pub(crate) fn closed(&mut self, view: &impl View, gates: &[Gate], share: Share) -> Option<PendingReason> {
        gates.iter().find_map(|&gate| {
            let room = self.0.entry(gate).or_insert_with(|| view.room(gate));
            let broken = room.iter().find(|(limit, left)| share.of_limit(*limit) > *left);
            broken.map(|(limit, _)| PendingReason::Limit(gate.whose(), *limit))
        })
    }

    /// A job starts.
    pub(crate) fn take(&mut self, gates: &[Gate], share: Share) {
        for gate in gates {
            for (limit, left) in self.0.get_mut(gate).into_iter().flatten() {
                if *limit != Limit::GrpWall {
                    *left = left.saturating_sub(share.of_limit(*limit));
                }
            }
        }
    }
}
