//! Limits that several jobs share (limit buckets), and what is left of them while a plan starts jobs.

use std::collections::BTreeMap;

use squall_model::billing::{Held, billing};
use squall_model::gres::Count;
use squall_model::job::PendingReason;
use squall_model::policy::{Limit, Scope, Tres, Whose};
use squall_model::resource::{Alloc, Memory};
use squall_model::time::Span;

use crate::request::Request;
use crate::view::View;

/// A limit bucket: an association or QOS, or a part of a QOS, with limits that apply to several jobs together. The
/// scheduler's view assigns the numbers of associations, QOS, users and accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// The association with this number: a user in an account, or an account with all accounts below it.
    Association(u32),
    /// The QOS with this number.
    Qos(u32),
    /// A user in a QOS: (number of the QOS, number of the user).
    QosUser(u32, u32),
    /// An account in a QOS: (number of the QOS, number of the account).
    QosAccount(u32, u32),
}

impl Gate {
    /// Returns whether the limits of this bucket are those of an association or of a QOS.
    pub fn whose(self) -> Whose {
        match self {
            Self::Association(_) => Whose::Association,
            Self::Qos(_) | Self::QosUser(..) | Self::QosAccount(..) => Whose::Qos,
        }
    }
}

/// Amounts that one more job adds to the usage of a limit bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    cpus: u64,
    memory_mb: u64,
    nodes: u64,
    gpus: u64,
    /// Whole billing units. None: as CPUs.
    billing: Option<u64>,
    /// Longest run time of the job: its time limit, seconds.
    span_s: u64,
}

impl Share {
    /// Returns the least amounts that a job of this request can add to a limit bucket.
    pub(crate) fn least(request: &Request, span: Span) -> Self {
        let nodes = u64::from(request.nodes_min);
        let tasks = request.tasks_on(request.nodes_min);
        let cpus = if request.overcommit { 1 } else { u64::from(tasks) * u64::from(request.task_cpus) };
        let memory_mb = match request.memory {
            Memory::PerNodeMb(mb) => mb.saturating_mul(nodes),
            Memory::PerCpuMb(mb) => mb.saturating_mul(cpus),
            Memory::Unset => 0,
        };
        let gpus = u64::from(request.gres.gpus(request.nodes_min, tasks));
        Self { cpus, memory_mb, nodes, gpus, billing: None, span_s: span.secs() }
    }
    /// Returns the amounts that an allocation adds to a limit bucket.
    pub(crate) fn of(alloc: &Alloc, request: &Request, span: Span) -> Self {
        let nodes = alloc.nodes().len() as u32;
        let gpus = u64::from(request.gres.gpus(nodes, request.tasks_on(nodes)));
        let (cpus, memory_mb) = (u64::from(alloc.cpus()), alloc.memory_mb());
        Self { cpus, memory_mb, nodes: u64::from(nodes), gpus, billing: None, span_s: span.secs() }
    }
    /// Returns the same amounts with what they are billed in a partition, if that has weights. `gres`: the devices.
    pub(crate) fn billed(
        self,
        view: &impl View,
        partition: usize,
        request: &Request,
        gres: impl FnOnce() -> Vec<Count>,
    ) -> Self {
        let Some((weights, combine)) = view.weights(partition) else { return self };
        let gres = if weights.weigh_gres() { gres() } else { Vec::new() };
        let Self { cpus, memory_mb, nodes, .. } = self;
        let held = Held { cpus, memory_mb, nodes, gres: &gres, licenses: Some(&request.licenses) };
        Self { billing: Some(billing(&held, weights, combine).whole()), ..self }
    }

    fn of_limit(self, limit: Limit, safe: bool) -> u64 {
        let amount = match limit.tres() {
            Some(Tres::Cpu) => self.cpus,
            Some(Tres::Mem) => self.memory_mb,
            Some(Tres::Node) => self.nodes,
            Some(Tres::Gpu) => self.gpus,
            Some(Tres::Billing) => self.billing.unwrap_or(self.cpus),
            // A limit on the number of jobs counts each job as one.
            None => 1,
        };
        match limit.scope() {
            scope if scope.is_due() => amount.saturating_mul(self.span_s),
            Scope::GrpUsed if safe => amount.saturating_mul(self.span_s),
            // A job may start as long as anything is left of the limit.
            Scope::GrpUsed => amount.min(1),
            _ => amount,
        }
    }
}

/// For each limit bucket examined by this plan so far: its limits, and the amount left of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(BTreeMap<Gate, Vec<(Limit, u64)>>);

impl Rooms {
    /// Returns the first limit that a job with these amounts would exceed, as a pending reason. None: it exceeds no
    /// limit.
    pub(crate) fn closed(&mut self, view: &impl View, gates: &[Gate], share: Share) -> Option<PendingReason> {
        let safe = view.safe();
        gates.iter().find_map(|&gate| {
            let room = self.0.entry(gate).or_insert_with(|| view.room(gate));
            let broken = room.iter().find(|(limit, left)| share.of_limit(*limit, safe) > *left);
            broken.map(|(limit, _)| PendingReason::Limit(gate.whose(), *limit))
        })
    }

    /// Subtracts a started job's amounts from what is left of these limit buckets.
    pub(crate) fn take(&mut self, view: &impl View, gates: &[Gate], share: Share) {
        let safe = view.safe();
        for gate in gates {
            for (limit, left) in self.0.get_mut(gate).into_iter().flatten() {
                if safe || limit.scope() != Scope::GrpUsed {
                    *left = left.saturating_sub(share.of_limit(*limit, safe));
                }
            }
        }
    }
}
