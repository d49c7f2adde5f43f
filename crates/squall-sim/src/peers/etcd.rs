//! The modelled etcd, and what travels between it and the controllers.

use squall_engine::replica::Lane;
use squall_engine::replica::etcd::{Ask, Problem, Reply};
use squall_engine::replica::model::Model;
use squall_model::time::Time;

/// etcd, which all controllers share. Its members are one machine here.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(super) model: Model,
    /// The controller that has taken over last.
    pub(crate) leader: usize,
    /// Bytes that its database may take, as the controllers are told.
    pub(super) quota: u64,
    /// Number of the last question.
    pub(super) serial: u64,
    /// There is no quorum before this time.
    pub(super) down_until: Time,
    /// Whether there is another leader among etcd's members after that.
    pub(super) elects: bool,
    /// Factor by which everything takes longer, and until when.
    pub(super) slow: (u64, Time),
    /// Probability that an answer is lost, in millionths, and until when.
    pub(super) doubt: (u32, Time),
}

impl Default for Etcd {
    fn default() -> Self {
        let (never, model) = (Time(0), Model::default());
        let (leader, quota, serial, elects) = (0, 2 << 30, 0, false);
        Self { model, leader, quota, serial, down_until: never, elects, slow: (1, never), doubt: (0, never) }
    }
}

/// A question on its way to etcd.
#[derive(Debug)]
pub(crate) struct Question {
    pub(super) of: usize,
    pub(super) life: u64,
    pub(super) lane: Lane,
    pub(super) serial: u64,
    /// When the controller gives up.
    pub(super) until: Time,
    pub(super) ask: Ask,
}

/// An answer of etcd on its way to a controller.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) of: usize,
    pub(super) life: u64,
    pub(super) lane: Lane,
    pub(super) serial: u64,
    pub(super) reply: Result<Reply, Problem>,
}

impl Answer {
    /// Returns the controller that the answer is for.
    pub(crate) fn of(&self) -> usize {
        self.of
    }
}
