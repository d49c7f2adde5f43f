//! The table of requests: a row for each, with the right that it needs, whether a standby answers it, to which cells it
//! goes, and the message type under which it is counted. What it means is in the controller's `decide/` and, for
//! [`HostRequest`], in its daemon's `answers.rs`.

use std::slice;

use super::{HostRequest, Request};
use crate::id::JobId;
use crate::wire::broadcast::BroadcastTo;
use CellsAsked::{Changes, Lists, OfJob, Own, Pages, Parts};
use Right::{Each, Enter, Job, Nothing, Operate, Top, User, Verb};

/// A row of the table of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Message type by which `sdiag` counts the request: Slurm's where Slurm has such a request.
    pub kind: &'static str,
    /// What the user needs.
    pub right: Right<'a>,
    /// The cells to which a front (the gateway of several cells) sends it.
    pub cells: CellsAsked,
    /// From where it may come.
    pub origin: Origin,
    /// Whether a standby answers it, from the state that it has.
    pub standby: bool,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right<'a> {
    /// Nothing: it makes something of the caller's own, or reads what the caller may see.
    Nothing,
    /// To change each selected job. Those of others are left out or refused one by one.
    Each,
    /// [`Right::Each`] where the site has set `enable_user_top`, otherwise [`Right::Operate`].
    Top,
    /// To change this job, as its owner or an operator. One that does not exist is refused by the verb.
    Job(JobId),
    /// To run steps in these jobs, as their owner.
    Enter(&'a [JobId]),
    /// To be this user, or an operator. None: the caller, who is.
    User(Option<&'a str>),
    /// To be an operator.
    Operate,
    /// More than the request's kind decides, by the rules of the verb itself.
    Verb,
}

/// From where a request may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From anywhere.
    Anywhere,
    /// Not from a user for whom a node vouches.
    NotByNode,
    /// Not from a user for whom a node vouches, as what it makes or ends is worth more than that.
    NotForNode,
    /// From a machine that is a controller.
    Controllers,
    /// From the daemon of another controller.
    OtherController,
}

/// The cells to which a front sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellsAsked {
    /// The cell that has this job.
    OfJob(JobId),
    /// All. Their lists are merged; unreachable cells are left out, and the client is told so.
    Lists,
    /// All. An unreachable cell makes the request fail.
    Changes,
    /// All. Pages are passed on cell by cell.
    Pages,
    /// A part of the request to each cell that it concerns, by a rule of its own.
    Parts,
    /// None: each cell has its own. The text tells the client what to do.
    Own(&'static str),
}

const TOKENS: CellsAsked = Own("each cell has tokens of its own: ask one, by its folder in SQUALL_STATE");
const POLICY: CellsAsked =
    Own("each cell keeps its own accounts, limits and shares: ask one, by its folder in SQUALL_STATE");
const CONTROLLERS: CellsAsked = Own("each cell has controllers of its own: ask one, by its folder in SQUALL_STATE");
const NODES: CellsAsked =
    Own("each cell has nodes of its own: create or delete them there, by its folder in SQUALL_STATE");
const BACKUP: CellsAsked = Own("each cell has a backup of its own: ask for that of one, by its folder in --state");
const EVENTS: CellsAsked = Own("each cell has its own events: follow those of one, by its folder in SQUALL_STATE");

const fn row<'a>(kind: &'static str, right: Right<'a>, cells: CellsAsked) -> Row<'a> {
    Row { kind, right, cells, origin: Origin::Anywhere, standby: false }
}

impl Row<'_> {
    const fn at_standby(self) -> Self {
        Self { standby: true, ..self }
    }

    const fn from(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }
}

impl Request {
    /// Returns the request's row in the table of requests.
    #[rustfmt::skip]
    pub fn row(&self) -> Row<'_> {
        match self {
            Self::Submit { .. } => row("REQUEST_SUBMIT_BATCH_JOB", Nothing, Parts),
            Self::SubmitHet { script, .. } if script.is_empty() => row("REQUEST_HET_JOB_ALLOCATION", Nothing, Parts),
            Self::SubmitHet { .. } => row("REQUEST_SUBMIT_BATCH_HET_JOB", Nothing, Parts),
            Self::TestSubmit { .. } => row("REQUEST_JOB_WILL_RUN", Nothing, Parts),
            Self::Allocate { .. } => row("REQUEST_RESOURCE_ALLOCATION", Nothing, Parts),
            Self::Attach { job } => row("REQUEST_JOB_ALLOCATION_ATTACH", Enter(slice::from_ref(job)), OfJob(*job)),
            Self::Finish { job, .. } => row("REQUEST_COMPLETE_JOB_ALLOCATION", Enter(slice::from_ref(job)), OfJob(*job)),
            Self::Watch { job, .. } => row("REQUEST_STEP_LAYOUT", Enter(slice::from_ref(job)), OfJob(*job)),
            Self::Facts { job } => row("REQUEST_JOB_ALLOCATION_INFO", Enter(slice::from_ref(job)), OfJob(*job)),
            Self::CreateStep { job, .. } => row("REQUEST_JOB_STEP_CREATE", Enter(slice::from_ref(job)), OfJob(*job)),
            Self::Notify { job, .. } => row("REQUEST_JOB_NOTIFY", Job(*job), OfJob(*job)),
            Self::Measure { job, .. } => row("REQUEST_JOB_STEP_STAT", Job(*job), OfJob(*job)),
            Self::AwaitJob { job } => row("REQUEST_JOB_AWAIT", Job(*job), OfJob(*job)),
            Self::UpdateStep { job, .. } => row("REQUEST_UPDATE_JOB_STEP", Job(*job), OfJob(*job)),
            Self::Cancel { .. } => row("REQUEST_KILL_JOB", Each, Parts),
            Self::Hold { .. } => row("REQUEST_JOB_HOLD", Each, Parts),
            Self::Release { .. } => row("REQUEST_JOB_RELEASE", Each, Parts),
            Self::Requeue { .. } => row("REQUEST_JOB_REQUEUE", Each, Parts),
            Self::UpdateJob { .. } => row("REQUEST_UPDATE_JOB", Each, Parts),
            Self::Top { .. } => row("REQUEST_TOP_JOB", Top, Parts),
            Self::Replace(job, _) => row("REQUEST_JOB_REPLACE_NODE", Job(*job), OfJob(*job)),
            Self::Checkpoint(job, _) => row("REQUEST_CHECKPOINT", Job(*job), OfJob(*job)),
            Self::Suspend { .. } => row("REQUEST_SUSPEND", Operate, Parts),
            Self::UpdateNodes { .. } | Self::Power { .. } => row("REQUEST_UPDATE_NODE", Operate, Parts),
            Self::Reboot { .. } | Self::CancelReboot { .. } => row("REQUEST_REBOOT_NODES", Operate, Parts),
            Self::CreateNodes(_) => row("REQUEST_CREATE_NODE", Operate, NODES),
            Self::DeleteNodes(_) => row("REQUEST_DELETE_NODE", Operate, NODES),
            Self::UpdatePartition { .. } => row("REQUEST_UPDATE_PARTITION", Operate, Parts),
            Self::ChangePartition { was: None, .. } => row("REQUEST_CREATE_PARTITION", Operate, Own("ChangePartition")),
            Self::ChangePartition { now: None, .. } => row("REQUEST_DELETE_PARTITION", Operate, Own("ChangePartition")),
            Self::ChangePartition { .. } => row("REQUEST_UPDATE_PARTITION", Operate, Own("ChangePartition")),
            Self::Jobs { .. } => row("REQUEST_JOB_INFO", Nothing, Parts).at_standby(),
            Self::Follow { .. } => row("REQUEST_FOLLOW_EVENTS", Nothing, EVENTS),
            Self::Nodes | Self::FutureNodes => row("REQUEST_NODE_INFO", Nothing, Lists).at_standby(),
            Self::Partitions => row("REQUEST_PARTITION_INFO", Nothing, Lists).at_standby(),
            Self::Config => row("REQUEST_BUILD_INFO", Nothing, Lists).at_standby(),
            Self::Expected => row("REQUEST_JOB_START_INFO", Nothing, Lists),
            Self::Reservations => row("REQUEST_RESERVATION_INFO", Nothing, Lists).at_standby(),
            Self::Reserve { create: true, .. } => row("REQUEST_CREATE_RESERVATION", Operate, Parts),
            Self::Reserve { create: false, .. } => row("REQUEST_UPDATE_RESERVATION", Operate, Parts),
            Self::Unreserve { .. } => row("REQUEST_DELETE_RESERVATION", Verb, Changes),
            Self::Why { job } => row("REQUEST_JOB_WHY", Nothing, OfJob(*job)),
            Self::Licenses => row("REQUEST_LICENSE_INFO", Nothing, Lists).at_standby(),
            Self::Ping => row("REQUEST_PING", Nothing, Lists).at_standby(),
            Self::Diag { reset: false } => row("REQUEST_STATS_INFO", Nothing, Lists).at_standby(),
            Self::Diag { reset: true } => row("REQUEST_STATS_INFO", Operate, Lists),
            Self::QueryNodes { .. } => row("REQUEST_QUERY_NODES", Operate, Parts),
            Self::Broadcast(wanted) => row("REQUEST_FILE_BCAST", to(&wanted.to), Parts),
            // A file of the caller's own broadcast, or one that the caller has sent before.
            Self::Chunk { .. } => row("REQUEST_FILE_BCAST_BLOCK", Nothing, Parts),
            Self::Recall { .. } => row("REQUEST_FILE_BCAST_RECALL", Nothing, Lists),
            Self::Policy => row("REQUEST_POLICY", Nothing, POLICY).at_standby(),
            Self::ChangePolicy { .. } => row("REQUEST_POLICY_CHANGE", Verb, POLICY).from(Origin::NotByNode),
            Self::Priorities { .. } => row("REQUEST_PRIORITY_FACTORS", Nothing, Parts).at_standby(),
            Self::Shares => row("REQUEST_SHARE_INFO", Nothing, POLICY).at_standby(),
            Self::Record(job, _) => row("REQUEST_ACCOUNTING_CHANGE", Verb, OfJob(*job)),
            Self::Reconfigure { .. } => row("REQUEST_RECONFIGURE", Operate, Changes),
            Self::ShutDown { .. } => row("REQUEST_SHUTDOWN", Operate, Changes),
            Self::Caller => row("REQUEST_CALLER", Nothing, TOKENS).at_standby(),
            Self::RaiseVersion { .. } => row("REQUEST_RAISE_VERSION", Operate, CONTROLLERS),
            Self::RotateKeys { .. } => row("REQUEST_ROTATE_KEYS", Operate, CONTROLLERS),
            // Fronts (gateways between cells) are operators.
            Self::Unresolved => row("REQUEST_CELL_DEPENDENCIES", Operate, Own("Unresolved")),
            Self::Resolve { .. } => row("REQUEST_TEST_DEPENDENCIES", Operate, Own("Resolve")),
            Self::Resolved { .. } => row("REQUEST_UPDATE_DEPENDENCIES", Operate, Own("Resolved")),
        }
    }
}

/// Returns what a broadcast to these nodes needs.
fn to(to: &BroadcastTo) -> Right<'_> {
    match to {
        BroadcastTo::Nodes(_) => Operate,
        BroadcastTo::Job { jobs, .. } => Enter(jobs),
    }
}

impl HostRequest {
    /// Returns the request's row in the table of requests.
    pub fn row(&self) -> Row<'_> {
        match self {
            Self::Accounting(_) => row("REQUEST_ACCOUNTING", Nothing, Parts),
            Self::History => row("REQUEST_ACCOUNTING_HISTORY", Verb, Pages),
            Self::Script { job } => row("REQUEST_BATCH_SCRIPT", Job(*job), OfJob(*job)),
            Self::Tail { job, past: false, .. } => row("REQUEST_JOB_OUTPUT", Enter(slice::from_ref(job)), OfJob(*job)),
            // Only accounting knows the owner: the daemon compares owner and caller. No node speaks for users there.
            Self::Tail { job, past: true, .. } => {
                row("REQUEST_JOB_OUTPUT", Nothing, OfJob(*job)).from(Origin::NotByNode)
            }
            Self::Token { user, .. } => {
                row("REQUEST_AUTH_TOKEN", User(user.as_deref()), TOKENS).from(Origin::NotForNode)
            }
            Self::RevokeTokens { user } => {
                row("REQUEST_AUTH_TOKEN_REVOKE", User(user.as_deref()), TOKENS).from(Origin::NotForNode)
            }
            Self::Controllers => row("REQUEST_CONTROLLER_INFO", Nothing, CONTROLLERS).at_standby(),
            Self::StepDown { .. } => row("REQUEST_TAKEOVER", Operate, CONTROLLERS),
            Self::Backup => row("REQUEST_BACKUP", Operate, BACKUP).from(Origin::Controllers),
            Self::CopyLog => row("REQUEST_COPY_LOG", Nothing, BACKUP).from(Origin::OtherController),
        }
    }
}
