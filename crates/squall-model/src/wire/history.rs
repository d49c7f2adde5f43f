//! What accounting keeps beside jobs: nodes that went and came back, reservations, changes of accounts.

use serde::{Deserialize, Serialize};

use crate::event::NodeAdmin;
use crate::policy::PolicyChange;
use crate::reservation::Reservation;
use crate::time::Time;

/// What may be changed of a job that accounting keeps. The owner of a job that is not forgotten yet may change the first two.
pub const RECORDED: [&str; 6] = ["comment", "derived-exit-code", "admin-comment", "extra", "system-comment", "wckey"];

/// Something that happened, with names where the journal has numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// When.
    pub time: Time,
    /// What.
    pub what: Happening,
}

/// What happened. Append-only: the accounting database keeps it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening {
    /// A node registered for the first time, after a reboot, or with other hardware.
    Registered {
        /// Its name.
        node: String,
        /// Its CPUs.
        cpus: u32,
        /// Its memory in MiB.
        memory_mb: u64,
    },
    /// A node does not answer any more.
    Silent {
        /// Its name.
        node: String,
        /// Why.
        reason: String,
    },
    /// A silent node answers again.
    Heard {
        /// Its name.
        node: String,
    },
    /// An operator changed what may run on some nodes.
    Set {
        /// Their names, compressed.
        nodes: String,
        /// What for.
        admin: NodeAdmin,
        /// The reason given.
        reason: Option<String>,
        /// The operator.
        by: u32,
    },
    /// A reservation was made or changed, or comes again.
    Reserved {
        /// All of it.
        reservation: Box<Reservation>,
        /// Names of its nodes, compressed.
        nodes: String,
    },
    /// A reservation is over, or was deleted.
    Unreserved {
        /// Its name.
        name: String,
    },
    /// Accounts, users, associations or QOS were changed.
    Changed {
        /// How, in this order.
        changes: Vec<PolicyChange>,
        /// The user.
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
