//! Messages between a node daemon and the batch supervisor.

use minicbor::{Decode, Encode};
use squall_model::encoding::ByteBuf;
use squall_model::id::StepKey;
use squall_model::job::Usage;
use squall_model::series::Series;
use squall_model::step::StepLaunch;
use squall_model::wire::proof::Warrant;
use squall_model::wire::stepd::{FromStepd, ToStepd};

use super::Restoring;

/// Message of a node daemon to the batch supervisor, after its greeting.
#[derive(Debug, Encode, Decode)]
pub(crate) enum ToSupervisor {
    /// Has the supervisor serve this step, which has a prepared folder.
    #[n(0)]
    Serve(#[n(0)] Box<Order>),
    /// Passes on a message for a step.
    #[n(1)]
    Tell {
        /// Step for which the message is.
        #[n(0)]
        key: StepKey,
        /// Message for the step, as for its own step daemon.
        #[n(1)]
        message: ToStepd,
    },
    /// Answer with `Alive`, to show that the supervisor is not stuck.
    #[n(2)]
    Ping,
    /// All parts of a restored job are there: this one goes on.
    #[n(3)]
    Go(#[n(0)] StepKey),
}

/// A step that the supervisor is to serve, with all that this needs.
#[derive(Debug, Encode, Decode)]
pub(crate) struct Order {
    /// The step's launch, as in its folder.
    #[n(0)]
    pub(crate) launch: StepLaunch,
    /// The batch job's environment, as in the step's folder.
    #[n(1)]
    pub(crate) environment: ByteBuf,
    /// The step's cgroups, as in its folder (`cgroups`).
    #[n(2)]
    pub(crate) groups: String,
    /// Path of the step's v2 cgroup, as bytes.
    #[n(3)]
    pub(crate) birthplace: ByteBuf,
    /// CPUs that the step may use; empty: all.
    #[n(4)]
    pub(crate) cpus: Vec<usize>,
    /// Proof that the controller ordered the step. None: it does not sign.
    #[n(5)]
    pub(crate) warrant: Option<Warrant>,
    /// How the script is restored from its checkpoint. None: it begins.
    #[n(6)]
    pub(crate) restoring: Option<Restoring>,
}

/// Message of the batch supervisor to a node daemon, after its greeting.
#[derive(Debug, Encode, Decode)]
pub(crate) enum FromSupervisor {
    /// The first message after the greeting: the steps that the supervisor serves.
    #[n(0)]
    Serves(#[n(0)] Vec<StepKey>),
    /// The result of a step, which is stored in the step's folder too.
    #[n(1)]
    Over(#[n(0)] StepKey, #[n(1)] FromStepd),
    /// The usage so far of a step's script.
    #[n(2)]
    Used(#[n(0)] StepKey, #[n(1)] Usage, #[n(2)] Option<Box<Series>>),
    /// A step's script was told to end, or is never started.
    #[n(3)]
    Ending(#[n(0)] StepKey),
    /// The supervisor does not serve this step: the folder is damaged, or taken by another step daemon.
    #[n(4)]
    Lost(#[n(0)] StepKey),
    /// The supervisor does not serve this step, which needs a step daemon of its own; nothing of the step has begun.
    #[n(5)]
    Returned(#[n(0)] StepKey),
    /// The answer to `Ping`: the supervisor is not stuck.
    #[n(6)]
    Alive,
    /// This part of a job is restored, from the checkpoint with this number, and waits for the others.
    #[n(7)]
    Held(#[n(0)] StepKey, #[n(1)] u64),
}
