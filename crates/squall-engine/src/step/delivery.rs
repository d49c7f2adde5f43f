//! What an `srun` has received from its step and of the output: whether it may end, and whether output is missing.

use squall_model::time::Span;

/// Timeout after the end of the step for a connection that has not identified itself as a step daemon's.
const STRANGER: Span = Span::from_secs(2);

/// Timeout for output after the end of a step that was cancelled or lost a node. The step daemons themselves wait for
/// twice their drain time, 10 s.
const ENDED: Span = Span::from_secs(12);

/// State of the connection of one step daemon to its `srun`, as `srun` sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The caller has not identified itself yet, and may be no step daemon.
    Calling,
    /// The step daemon has identified itself, and its final message has not arrived yet.
    Open,
    /// The final message arrived, and so did everything sent before it.
    Complete,
    /// The connection ended before the final message.
    Lost,
}

impl Delivery {
    /// Returns whether output of the step daemon's tasks may be missing.
    pub fn is_missing(self) -> bool {
        matches!(self, Self::Open | Self::Lost)
    }

    /// Returns whether further messages may come on this connection.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Calling | Self::Open)
    }
}

/// State of a step as its `srun` has received it, apart from the connections to step daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Number of nodes on which the step has tasks. None: the step does not exist yet.
    pub nodes: Option<usize>,
    /// Whether the step daemons have reported the end of every task.
    pub all_ended: bool,
    /// Set once the controller has reported the end of the step: the time since then, and whether the step was
    /// cancelled or lost a node.
    pub done: Option<(Span, bool)>,
    /// Whether the allocation is for this step alone, so that `srun` does nothing else in it.
    pub owner: bool,
    /// Whether the connection to the controller is lost.
    pub lost: bool,
    /// Whether nothing has arrived at `srun` since the last check.
    pub idle: bool,
}

impl Heard {
    /// Returns whether `srun` has nothing left to wait for.
    pub fn is_over(&self, links: &[Delivery]) -> bool {
        let open = links.iter().any(|link| link.is_open());
        match (self.done, self.nodes) {
            // A step daemon without a link here may have connected and sent something that is not read yet. An idle
            // check shows that nothing is unread.
            (Some((since, ended)), _) => {
                (self.idle || self.all_ended || open) && may_leave(links.iter().copied(), since, ended)
            }
            // All tasks have ended, and their nodes have recorded that. In an allocation of its own `srun` needs no
            // more; from a lost controller it gets no more.
            (None, Some(_)) if self.all_ended => (self.owner || self.lost) && !open,
            // Neither the controller nor a step daemon is left to report the ends of the tasks.
            (None, Some(nodes)) => self.lost && !open && links.len() >= nodes,
            (None, None) => false,
        }
    }
}

/// Returns whether an `srun` may end, a time `since` after the end of its step was reported. It waits while a
/// connection is open: on a slow or cut network the last output may arrive a minute later. `ended`: the step was
/// cancelled or lost a node.
pub fn may_leave(links: impl IntoIterator<Item = Delivery>, since: Span, ended: bool) -> bool {
    links.into_iter().all(|link| match link {
        Delivery::Calling => since > STRANGER,
        Delivery::Open => ended && since > ENDED,
        Delivery::Complete | Delivery::Lost => true,
    })
}
