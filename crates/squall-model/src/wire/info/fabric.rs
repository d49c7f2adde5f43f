//! Counters of messages from nodes and of file transfers, for `sdiag`.

use minicbor::{Decode, Encode};

/// Counters of messages from nodes and of file transfers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct FabricCounts {
    /// Number of messages of all kinds that the controller received from nodes.
    #[n(0)]
    pub messages: u64,
    /// Time that the controller spent on these messages, microseconds.
    #[n(1)]
    pub messages_us: u64,
    /// Number of reports that a node released a job, without repeated ones. `bench aggregate` checks its own count
    /// against this.
    #[n(2)]
    pub node_epilogs: u64,
    /// Number of messages from nodes that combine more than one report (composites).
    #[n(3)]
    pub composites: u64,
    /// Number of reports that were combined in composites.
    #[n(4)]
    pub composite_reports: u64,
    /// Number of messages by how many reports each combined: index 0 for 1 report, 1 for 2-3, 2 for 4-7, and so on.
    #[n(5)]
    pub windows: Vec<u64>,
    /// Number of reports of single nodes that had no effect: repeated after a lost connection, or about work that had
    /// been given up.
    #[n(6)]
    pub repeats: u64,
    /// Number of pieces of files sent again because some node lacked them.
    #[n(7)]
    pub retransmits: u64,
    /// Bytes of files sent by multicast; a byte sent to many nodes at once counts once.
    #[n(8)]
    pub multicast_bytes: u64,
    /// Longest time that a report waited in the tree for others, microseconds.
    #[n(9)]
    #[cbor(default)]
    pub waited_max_us: u64,
}

impl FabricCounts {
    /// Counts a message that combines this number of reports. 0: it is not counted.
    pub fn window(&mut self, reports: u64) {
        let Some(power) = reports.checked_ilog2() else { return };
        let power = power as usize;
        if self.windows.len() <= power {
            self.windows.resize(power + 1, 0);
        }
        self.windows[power] += 1;
    }
}
