//! Power states of nodes: which are switched off, and what is to come.

use minicbor::{Decode, Encode};

use crate::event::NodeAdmin;
use crate::job::JobAttempt;
use crate::time::Time;

/// Phase of a node's power. Every phase but `On` makes the node sleep: it gets jobs, but hears of them when it is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum PowerPhase {
    /// The node is powered up, as far as the controller knows.
    #[default]
    #[n(0)]
    On,
    /// The node is powered down (POWERED_DOWN), or was never there (CLOUD).
    #[n(1)]
    Off,
    /// `ResumeProgram` was ordered, and the node has not registered (POWERING_UP).
    #[n(2)]
    GoingUp,
    /// `SuspendProgram` was ordered, and `SuspendTimeout` is not over (POWERING_DOWN).
    #[n(3)]
    GoingDown,
}

/// What an operator wants of a node's power (`scontrol power`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum PowerWish {
    /// The node is powered up (`power up`).
    #[n(0)]
    Up,
    /// The node is powered down when no job happens to be there (`power down`).
    #[n(1)]
    Down,
    /// No job starts on the node, and it is powered down when its jobs have ended (`power down_asap`).
    #[n(2)]
    DownAsap,
    /// The node's jobs are ended, and it is powered down (`power down_force`).
    #[n(3)]
    DownForce,
}

/// Power of a node, if there is more to say than that the node is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Power {
    /// The phase.
    #[n(0)]
    pub phase: PowerPhase,
    /// When the phase began.
    #[n(1)]
    pub since: Time,
    /// What an operator wants and is still to come. None: nothing.
    #[n(2)]
    pub wish: Option<PowerWish>,
    /// Whether the program of the phase has not ended: `ResumeProgram` of `GoingUp`, `SuspendProgram` of `GoingDown`,
    /// `ResumeFailProgram` of `Off`.
    #[n(3)]
    pub owed: bool,
}

impl Power {
    /// Returns the power with another wish. None: the node is up, and nothing is wished.
    pub fn with_wish(self, wish: Option<PowerWish>) -> Option<Self> {
        let wish = wish.filter(|wish| !self.phase.grants(*wish));
        (self.phase != PowerPhase::On || wish.is_some()).then_some(Self { wish, ..self })
    }

    /// Returns whether jobs may be placed on the node, which are sent there when it is up.
    pub fn takes_jobs(self) -> bool {
        let leaves = matches!(self.wish, Some(PowerWish::DownAsap | PowerWish::DownForce));
        self.phase != PowerPhase::GoingDown && !leaves
    }
}

impl PowerPhase {
    /// Returns whether a node in this phase has what an operator wishes, or is about to have it.
    pub fn grants(self, wish: PowerWish) -> bool {
        let up = matches!(self, Self::On | Self::GoingUp);
        up == (wish == PowerWish::Up)
    }
}

/// A reboot of a node that is to come (`scontrol reboot`, `--reboot`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Reboot {
    /// Whether no job starts on the node before the reboot (`ASAP`). Otherwise the reboot waits until no job happens to
    /// be there.
    #[n(0)]
    pub asap: bool,
    /// State of the node after the reboot (`nextstate=`). None: as before.
    #[n(1)]
    pub next: Option<NodeAdmin>,
    /// Reason that the operator gave.
    #[n(2)]
    pub reason: Option<String>,
    /// Uid of the operator.
    #[n(3)]
    pub by: u32,
    /// When the node was ordered to reboot. None: it was not.
    #[n(4)]
    pub issued: Option<Time>,
    /// The job before which the node reboots (`--reboot`). None: an operator wants the reboot. The numbers 5 to 10 are
    /// left out.
    #[n(11)]
    pub job: Option<JobAttempt>,
}
