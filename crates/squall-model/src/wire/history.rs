//! Accounting data other than jobs: nodes that failed and returned, reservations, changes of accounts.

use minicbor::{Decode, Encode};

use crate::event::NodeAdmin;
use crate::policy::PolicyChange;
use crate::reservation::Reservation;
use crate::time::Time;

/// Fields of a job's accounting record that `sacctmgr modify job` can change. The job's owner may change the first two
/// while the job is still in the controller's memory.
pub const RECORDED: [&str; 6] = ["comment", "derived-exit-code", "admin-comment", "extra", "system-comment", "wckey"];

/// An event in the accounting database, with names of nodes where the journal has their ids.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HistoryRow {
    /// When the event happened.
    #[n(0)]
    pub time: Time,
    /// The event, with its data.
    #[n(1)]
    pub what: Happening,
}

/// Kinds of events in the accounting database. Variants are added at the end only, because the database stores them in
/// this form.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Happening {
    /// A node registered for the first time, after a reboot, or with other hardware.
    #[n(0)]
    Registered {
        /// Name of the node.
        #[n(0)]
        node: String,
        /// Number of CPUs of the node.
        #[n(1)]
        cpus: u32,
        /// Memory of the node, MiB.
        #[n(2)]
        memory_mb: u64,
    },
    /// A node stopped responding.
    #[n(1)]
    Silent {
        /// Name of the node.
        #[n(0)]
        node: String,
        /// Why the node is regarded as down, as a text for users.
        #[n(1)]
        reason: String,
    },
    /// A node responds again.
    #[n(2)]
    Heard {
        /// Name of the node.
        #[n(0)]
        node: String,
    },
    /// An operator set the state of nodes (drain, resume, down …).
    #[n(3)]
    Set {
        /// Names of the nodes, as a host list.
        #[n(0)]
        nodes: String,
        /// The new state of the nodes.
        #[n(1)]
        admin: NodeAdmin,
        /// The reason that the operator gave. None: no reason.
        #[n(2)]
        reason: Option<String>,
        /// Uid of the operator.
        #[n(3)]
        by: u32,
    },
    /// A reservation was created or changed, or a recurring one moved to its next time.
    #[n(4)]
    Reserved {
        /// The reservation as it is after the change.
        #[n(0)]
        reservation: Box<Reservation>,
        /// Names of the reserved nodes, as a host list.
        #[n(1)]
        nodes: String,
    },
    /// A reservation has ended or was deleted.
    #[n(5)]
    Unreserved {
        /// Name of the reservation.
        #[n(0)]
        name: String,
    },
    /// Accounts, users, associations or QOS were changed.
    #[n(6)]
    Changed {
        /// The changes, in the order in which they were made.
        #[n(0)]
        changes: Vec<PolicyChange>,
        /// Uid of the user that made the changes.
        #[n(1)]
        by: u32,
    },
    /// An operator removed nodes from the cluster. The numbers from 7 to 15 are left out.
    #[n(16)]
    Removed {
        /// Names of the nodes, as a host list.
        #[n(0)]
        nodes: String,
        /// Uid of the operator.
        #[n(1)]
        by: u32,
    },
}

impl HistoryRow {
    /// Adds `us` microseconds to all times of the event, to convert them from one clock to another.
    pub fn on_clock_ahead(&mut self, us: i64) {
        self.time = self.time.on_clock_ahead(us);
        if let Happening::Reserved { reservation, .. } = &mut self.what {
            reservation.start = reservation.start.on_clock_ahead(us);
            reservation.end = reservation.end.on_clock_ahead(us);
        }
    }
}
