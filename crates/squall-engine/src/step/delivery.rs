//! What an `srun` has of its step and of the output of its step daemons: whether it may leave, and whether anything is
//! missing.

use squall_model::time::Span;

/// How long a caller that has not introduced itself is waited for after the end of the step.
const STRANGER: Span = Span::from_secs(2);

/// How long output is waited for after the end of a step that somebody has ended, or that lost a node. Its step daemons
/// themselves wait for twice their drain time, 10 s.
const ENDED: Span = Span::from_secs(12);

/// The link of one step daemon, as its `srun` sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It has not introduced itself yet, and may be a stranger.
    Calling,
    /// More may come.
    Open,
    /// Its last word came, and so did everything before it.
    Complete,
    /// The link ended before the last word.
    Lost,
}

impl Delivery {
    /// Whether output of its tasks may be missing.
    pub fn is_missing(self) -> bool {
        matches!(self, Self::Open | Self::Lost)
    }

    /// Whether more may come.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Calling | Self::Open)
    }
}

/// What an `srun` knows of its step, beside its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// On how many nodes the step has tasks. None: it does not exist yet.
    pub nodes: Option<usize>,
    /// The end of every task was heard of.
    pub all_ended: bool,
    /// The controller has said that the step has ended: so long ago, and whether somebody ended it or a node of it is lost.
    pub done: Option<(Span, bool)>,
    /// The allocation is for this step alone: nothing else has to follow.
    pub owner: bool,
    /// The controller is lost.
    pub lost: bool,
    /// Nothing has come since the last look.
    pub idle: bool,
}

impl Heard {
    /// Whether `srun` has nothing to wait for any more.
    pub fn is_over(&self, links: &[Delivery]) -> bool {
        let open = links.iter().any(|link| link.is_open());
        match (self.done, self.nodes) {
            // A step daemon that was never heard of may have called and said something all the same.
            (Some((since, ended)), _) => {
                (self.idle || self.all_ended || open) && may_leave(links.iter().copied(), since, ended)
            }
            // The tasks' own ends are known, and noted where they ran. In an allocation of its own nothing else has to
            // follow, and with a controller that is lost nothing will.
            (None, Some(_)) if self.all_ended => (self.owner || self.lost) && !open,
            // Neither the controller nor a step daemon is left to hear of the tasks' ends.
            (None, Some(nodes)) => self.lost && !open && links.len() >= nodes,
            (None, None) => false,
        }
    }
}

/// Whether an `srun` may leave so long after it heard of the end of its step. While a link is open it waits: on a slow or
/// cut network the last output may come a minute later. `ended`: somebody ended the step, or a node of it is lost.
pub fn may_leave(links: impl IntoIterator<Item = Delivery>, since: Span, ended: bool) -> bool {
    links.into_iter().all(|link| match link {
        Delivery::Calling => since > STRANGER,
        Delivery::Open => ended && since > ENDED,
        Delivery::Complete | Delivery::Lost => true,
    })
}
