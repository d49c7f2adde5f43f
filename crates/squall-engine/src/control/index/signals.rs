//! Signals for jobs that nodes may not have got yet; soft state.

use std::collections::BTreeMap;

use squall_model::id::NodeId;
use squall_model::job::JobAttempt;
use squall_model::limits::SIGNALS_KEPT_MAX;
use squall_model::wire::node::SignalTarget;

/// A signal for processes of a job's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobSignal {
    pub(crate) job: JobAttempt,
    pub(crate) target: SignalTarget,
    pub(crate) signal: i32,
}

/// A signal that was sent to a node in a session. It has arrived when the node is heard again in the same session, as
/// messages of a session arrive in order.
#[derive(Clone, Copy, Debug)]
struct Sent {
    what: JobSignal,
    /// The node's session at that time. None: the node had none.
    session: Option<u64>,
    /// How often the node was heard since. The first time may be of a report that was on its way already.
    heard: u8,
}

/// Signals that nodes may not have got, by node.
#[derive(Debug, Default)]
pub(crate) struct Signals(BTreeMap<NodeId, Vec<Sent>>);

impl Signals {
    /// Notes that a signal was sent to a node in its session, if it has one. The oldest note of too many is dropped.
    pub(crate) fn note(&mut self, node: NodeId, session: Option<u64>, what: JobSignal) {
        let all = self.0.entry(node).or_default();
        all.retain(|sent| sent.what != what);
        if all.len() >= SIGNALS_KEPT_MAX {
            all.remove(0);
        }
        all.push(Sent { what, session, heard: 0 });
    }

    /// Notes that a node was heard in a session.
    pub(crate) fn heard(&mut self, node: NodeId, session: u64) {
        // because most nodes have got all their signals
        let Some(all) = self.0.get_mut(&node) else { return };
        all.retain_mut(|sent| {
            sent.heard += u8::from(sent.session == Some(session));
            sent.heard < 2
        });
        if all.is_empty() {
            self.0.remove(&node);
        }
    }

    /// Takes the signals that a node may not have got, oldest first.
    pub(crate) fn take(&mut self, node: NodeId) -> Vec<JobSignal> {
        self.0.remove(&node).unwrap_or_default().into_iter().map(|sent| sent.what).collect()
    }

    /// Returns whether no node lacks a signal.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
