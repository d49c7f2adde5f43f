//! Requests that the controller's daemon answers itself, around the state machine.

use minicbor::{Decode, Encode};

use super::AccountingQuery;
use crate::id::JobId;

/// A request of a client that the daemon answers: from files, accounting, or what it knows of other controllers. The
/// numbers of its variants are not those of [`super::Request`]: both are sent alike.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum HostRequest {
    /// `sacct`. Answers: pages of `Accounting`, which include all changes that were acknowledged before the request.
    #[n(26)]
    Accounting(#[n(0)] Box<AccountingQuery>),
    /// `sreport cluster utilization`, `sacctmgr show event`, `transaction` and `reservation`. Answers: pages of
    /// `History`.
    #[n(28)]
    History,
    /// `scontrol write batch_script`: the script of a job. Answer: `Script`.
    #[n(29)]
    Script {
        /// The script of this job is returned.
        #[n(0)]
        job: JobId,
    },
    /// `scontrol token`: asks for a token (JWT), by which its bearer is the user. Answer: `Token`.
    #[n(61)]
    Token {
        /// Name of the user, which only operators may give. None: the caller.
        #[n(0)]
        user: Option<String>,
        /// Seconds for which the token is valid. None: without end.
        #[n(1)]
        lifespan_s: Option<u64>,
        /// Whether the token is for a link (`squall web`): within two minutes it may be exchanged, once, for another
        /// one by this request.
        #[n(2)]
        #[cbor(default)]
        link: bool,
    },
    /// `scontrol token revoke`: makes all tokens invalid that a user has so far. Answer: `Done`.
    #[n(62)]
    RevokeTokens {
        /// Name of the user, which only operators may give. None: the caller.
        #[n(0)]
        user: Option<String>,
    },
    /// `scontrol show controllers`: all controllers of the cluster. Answer: `Controllers`, empty if there is only one.
    #[n(63)]
    Controllers,
    /// `scontrol takeover`: the controller that leads hands over to another one. For operators. Answer: `Done`, when it
    /// no longer leads.
    #[n(64)]
    StepDown {
        /// Name of the controller that is to lead. None: any.
        #[n(0)]
        to: Option<String>,
    },
    /// `squall backup`: a backup of the whole cluster, secret keys included. For operators on the controller's machine.
    /// Answers: `Backup`, and `Done` after the last piece.
    #[n(65)]
    Backup,
    /// A controller which lacks records asks the one that leads for its journal and accounting. Answers: as for `Backup`.
    #[n(66)]
    CopyLog,
    /// The end of a batch job's output, for the job's page. For the job's owner: the file is read on the
    /// controller's host with the owner's rights. Answer: `Tail`.
    #[n(67)]
    Tail {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Whether the controller may have forgotten the job: its owner and the file are then those of accounting, and the
        /// file is read with the rights that the owner has today.
        #[n(1)]
        #[cbor(default)]
        past: bool,
        /// Whether the file of its standard error is meant, where that is another one.
        #[n(2)]
        #[cbor(default)]
        errors: bool,
    },
}
