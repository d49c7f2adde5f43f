//! What accounting keeps beside jobs: nodes that went and came back, reservations, changes of accounts.

use minicbor::{Decode, Encode};

use crate::event::NodeAdmin;
use crate::policy::PolicyChange;
use crate::reservation::Reservation;
use crate::time::Time;

/// What may be changed of a job that accounting keeps. The owner of a job that is not forgotten yet may change the first two.
pub const RECORDED: [&str; 6] = ["comment", "derived-exit-code", "admin-comment", "extra", "system-comment", "wckey"];

/// Something that happened, with names where the journal has numbers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HistoryRow {
    /// When.
    #[n(0)]
    pub time: Time,
    /// What.
    #[n(1)]
    pub what: Happening,
}

/// What happened. Append-only: the accounting database keeps it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Happening {
    /// A node registered for the first time, after a reboot, or with other hardware.
    #[n(0)]
    Registered {
        /// Its name.
        #[n(0)]
        node: String,
        /// Its CPUs.
        #[n(1)]
        cpus: u32,
        /// Its memory in MiB.
        #[n(2)]
        memory_mb: u64,
    },
    /// A node does not answer any more.
    #[n(1)]
    Silent {
        /// Its name.
        #[n(0)]
        node: String,
        /// Why.
        #[n(1)]
        reason: String,
    },
    /// A silent node answers again.
    #[n(2)]
    Heard {
        /// Its name.
        #[n(0)]
        node: String,
    },
    /// An operator changed what may run on some nodes.
    #[n(3)]
    Set {
        /// Their names, compressed.
        #[n(0)]
        nodes: String,
        /// What for.
        #[n(1)]
        admin: NodeAdmin,
        /// The reason given.
        #[n(2)]
        reason: Option<String>,
        /// The operator.
        #[n(3)]
        by: u32,
    },
    /// A reservation was made or changed, or comes again.
    #[n(4)]
    Reserved {
        /// All of it.
        #[n(0)]
        reservation: Box<Reservation>,
        /// Names of its nodes, compressed.
        #[n(1)]
        nodes: String,
    },
    /// A reservation is over, or was deleted.
    #[n(5)]
    Unreserved {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// Accounts, users, associations or QOS were changed.
    #[n(6)]
    Changed {
        /// How, in this order.
        #[n(0)]
        changes: Vec<PolicyChange>,
        /// The user.
        #[n(1)]
        by: u32,
    },
}

impl HistoryRow {
    /// Puts its times on a clock that is so many microseconds ahead.
    pub fn on_clock_ahead(&mut self, us: i64) {
        self.time = self.time.on_clock_ahead(us);
        if let Happening::Reserved { reservation, .. } = &mut self.what {
            reservation.start = reservation.start.on_clock_ahead(us);
            reservation.end = reservation.end.on_clock_ahead(us);
        }
    }
}
