//! Faults of nodes: what went wrong on a node, when, and which jobs suffered from it.

use minicbor::{Decode, Encode};

use crate::id::{JobId, NodeId};
use crate::limits::{FAULT_RECENT_S, FAULTS_APART_S, FAULTS_KEPT_MAX, JOBS_PER_FAULT_MAX};
use crate::time::{Span, Time};

/// Kind of a node's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum FaultKind {
    /// A job or step could not be launched, by the node's own fault, or its prolog failed.
    #[n(0)]
    Launch,
    /// A job lost the node: it was silent for too long, or had no processes of the job any more.
    #[n(1)]
    Lost,
    /// The node rebooted by itself while a job ran there.
    #[n(2)]
    Reboot,
    /// A check of the node failed.
    #[n(3)]
    Health,
    /// An epilog failed, or processes of a job could not be killed.
    #[n(4)]
    Cleanup,
}

impl FaultKind {
    /// All kinds with their words.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Launch, "launch"),
        (Self::Lost, "lost"),
        (Self::Reboot, "reboot"),
        (Self::Health, "health"),
        (Self::Cleanup, "cleanup"),
    ];

    /// Returns the word: `lost`.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// A fault of a node, as it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeFault {
    /// The node.
    #[n(0)]
    pub node: NodeId,
    /// Kind of the fault.
    #[n(1)]
    pub kind: FaultKind,
    /// The job that suffered from it. None: no job did.
    #[n(2)]
    pub job: Option<JobId>,
}

/// A fault in the record of a node. Faults of one kind in quick succession are one, as they have one cause.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Fault {
    /// Kind of the fault.
    #[n(0)]
    pub kind: FaultKind,
    /// When it was found last.
    #[n(1)]
    pub time: Time,
    /// The jobs that suffered from it.
    #[n(2)]
    pub jobs: Vec<JobId>,
}

impl Fault {
    /// Returns whether the fault is so recent that wide jobs prefer other nodes.
    pub fn is_recent(&self, now: Time) -> bool {
        now < self.time + Span::from_secs(FAULT_RECENT_S)
    }
}

/// Adds a fault to the record of a node, which has the newest one last.
pub fn note(faults: &mut Vec<Fault>, time: Time, kind: FaultKind, job: Option<JobId>) {
    let near = |last: &&mut Fault| last.kind == kind && time < last.time + Span::from_secs(FAULTS_APART_S);
    let Some(last) = faults.last_mut().filter(near) else {
        if faults.len() >= FAULTS_KEPT_MAX {
            faults.remove(0);
        }
        return faults.push(Fault { kind, time, jobs: job.into_iter().collect() });
    };
    last.time = time;
    last.jobs.extend(job.filter(|job| last.jobs.len() < JOBS_PER_FAULT_MAX && !last.jobs.contains(job)));
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultKind, note};
    use crate::id::JobId;
    use crate::limits::{FAULTS_KEPT_MAX, JOBS_PER_FAULT_MAX};
    use crate::time::Time;

    #[test]
    fn faults_of_one_cause_are_one_and_old_ones_go() {
        let at = Time::from_secs;
        let mut faults = Vec::new();
        note(&mut faults, at(100), FaultKind::Lost, Some(JobId(1)));
        note(&mut faults, at(130), FaultKind::Lost, Some(JobId(2)));
        note(&mut faults, at(150), FaultKind::Lost, Some(JobId(2)));
        assert_eq!(faults, [Fault { kind: FaultKind::Lost, time: at(150), jobs: vec![JobId(1), JobId(2)] }]);
        note(&mut faults, at(151), FaultKind::Launch, None);
        (2..100).for_each(|n| note(&mut faults, at(n * 1000), FaultKind::Health, None));
        assert_eq!((faults.len(), faults[0].kind), (FAULTS_KEPT_MAX, FaultKind::Health));
        (0..1000).for_each(|n| note(&mut faults, at(100_000), FaultKind::Lost, Some(JobId(n))));
        assert_eq!(faults.last().map(|fault| fault.jobs.len()), Some(JOBS_PER_FAULT_MAX));
        let day = 86_400;
        assert!(faults[0].is_recent(at(day)) && !faults[0].is_recent(at(9 * day)));
    }

    #[test]
    fn every_kind_has_a_word() {
        assert!(FaultKind::ALL.iter().all(|(kind, word)| kind.name() == *word && !word.is_empty()));
    }
}
