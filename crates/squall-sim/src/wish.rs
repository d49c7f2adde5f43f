//! What a request of a simulated user is about.

use crate::world::client::Wish;

impl Wish {
    /// Returns the job order that the request is about, if any.
    pub(crate) fn order(&self) -> Option<usize> {
        match *self {
            Self::Submit { order }
            | Self::Own { order }
            | Self::Step { order }
            | Self::Finish { order }
            | Self::Await { order }
            | Self::Look { order } => Some(order),
            _ => self.deed_on(),
        }
    }
    /// Returns the job order that the request acts on. None: it acts on none. Only one such request of a job order is
    /// in progress at a time.
    pub(crate) fn deed_on(&self) -> Option<usize> {
        match *self {
            Self::Cancel { order, .. }
            | Self::Signal(order)
            | Self::Checkpoint(order, _)
            | Self::Hold { order }
            | Self::Release { order }
            | Self::Requeue { order }
            | Self::Suspend { order, .. }
            | Self::Update { order, .. } => Some(order),
            _ => None,
        }
    }
}
