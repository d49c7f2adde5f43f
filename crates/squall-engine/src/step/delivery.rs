//! What an `srun` has of the output of its step daemons: whether it may leave, and whether anything is missing.

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
