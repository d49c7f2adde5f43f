//! Checks of several controllers: one log, one leader at a time.

use std::collections::BTreeMap;

use squall_model::event::Record;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;

use super::Judge;
use crate::seed::mix;

/// What the judge knows of the log in etcd and of its leaders.
#[derive(Debug, Default)]
pub(crate) struct SharedLog {
    /// Entries of the log by their first record: number of the last record, and hash of the content.
    entries: BTreeMap<u64, (u64, u64)>,
    /// Number of leaderships so far.
    term: u64,
    /// Leadership of the controller which has spoken last.
    spoke: u64,
    /// When a controller took over last.
    since: Time,
    /// Version of the cluster.
    version: ClusterVersion,
}

impl Judge {
    /// Records a batch that etcd has.
    pub(crate) fn entry_stored(&mut self, of: usize, first: u64, last: u64, bytes: &[u8]) {
        if self.log.entries.insert(first, (last, hash(bytes))).is_some() {
            self.violate("what etcd has stays", format!("controller {of} wrote over record {first}"));
        }
    }

    /// Checks a batch that a controller takes for a part of the log.
    pub(crate) fn check_entry(&mut self, of: usize, first: u64, last: u64, bytes: &[u8]) {
        if self.log.entries.get(&first) != Some(&(last, hash(bytes))) {
            let text = format!("controller {of}: records {first} to {last}");
            self.violate("every record has one content on all controllers", text);
        }
    }

    /// Checks the end of the log, as a controller has written it.
    pub(crate) fn log_ends(&mut self, of: usize, last: u64) {
        if last != self.last_record {
            let text = format!("controller {of} wrote {last}, the last record is {}", self.last_record);
            self.violate("the log ends with its last record", text);
        }
    }

    /// Checks and records that a controller leads, whose last record is `last`. Returns the number of its leadership.
    pub(crate) fn leads(&mut self, now: Time, (of, speaks): (usize, ClusterVersion), last: u64) -> u64 {
        if speaks < self.log.version {
            let text = format!("controller {of} can work with {speaks}, the cluster has {}", self.log.version);
            self.violate("no controller leads that is older than the version of the cluster", text);
        }
        if last != self.last_record {
            let text = format!("controller {of} has {last} of {} records", self.last_record);
            self.violate("a controller leads when it has applied everything", text);
        }
        self.log.since = now;
        self.log.term += 1;
        self.log.term
    }

    /// Notes the version of the cluster after these records, which are durable.
    pub(crate) fn raised(&mut self, records: &[Record]) {
        let raised = records.iter().filter_map(Record::raises).max();
        self.log.version = self.log.version.max(raised.unwrap_or_default());
    }

    /// Returns the version of the cluster.
    pub(crate) fn version(&self) -> ClusterVersion {
        self.log.version
    }

    /// Returns when a controller took over last.
    pub(crate) fn led_since(&self) -> Time {
        self.log.since
    }

    /// Records that the controller with this leadership says something.
    pub(crate) fn speaks(&mut self, of: usize, term: u64) {
        if term < self.log.spoke {
            self.violate("a controller says nothing after its successor", format!("controller {of}"));
        }
        self.log.spoke = term;
    }

    /// Checks the records that a controller found in its copy of the log: all that it had flushed, and no others than
    /// etcd has.
    pub(crate) fn recovered_copy(&mut self, of: usize, records: &[Record], flushed: u64) {
        let last = records.last().map_or(0, |record| record.seq);
        if let Some((at, record)) = records.iter().enumerate().find(|(at, record)| record.seq != *at as u64 + 1) {
            self.violate("records follow each other", format!("{} is the {at}th of controller {of}'s", record.seq));
        }
        if last < flushed {
            self.violate(
                "what was flushed survives",
                format!("controller {of}: records {}..{flushed} are gone", last + 1),
            );
        }
        if last > self.last_record {
            let text = format!("controller {of} has {last}, etcd {}", self.last_record);
            self.violate("no controller has what etcd has not", text);
        }
    }

    /// Returns the number of the last record that is durable.
    pub(crate) fn last_record(&self) -> u64 {
        self.last_record
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    words.fold(bytes.len() as u64, |hash, word| mix(hash ^ word))
}
