//! Names of the keys of a cluster in etcd.

use super::etcd::Op;

/// Digits of a record's number in a key, so that keys are in the order of numbers.
const DIGITS: usize = 20;

/// The keys below a cluster's prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    pub(super) leader: String,
    pub(super) head: String,
    /// Number of the first record that is in etcd, as text.
    pub(super) first: String,
    pub(super) handover: String,
    /// Changes with every file below `trust/`.
    pub(super) trusted: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let key = |name: &str| format!("{prefix}/{name}");
        Self {
            leader: key("leader"),
            head: key("head"),
            first: key("first"),
            handover: key("handover"),
            trusted: key("trusted"),
            prefix: prefix.to_owned(),
        }
    }

    /// The entry that begins with record `seq`.
    pub(super) fn entry(&self, seq: u64) -> String {
        format!("{}/log/{seq:0DIGITS$}", self.prefix)
    }

    /// A piece of the entry that begins with record `seq`, as the leader `run` wrote it.
    pub(super) fn piece(&self, seq: u64, run: u64, piece: u32) -> String {
        format!("{}/piece/{seq:0DIGITS$}/{run:016x}/{piece:04}", self.prefix)
    }

    pub(super) fn member(&self, name: &str) -> String {
        format!("{}/member/{name}", self.prefix)
    }

    pub(super) fn trust(&self, path: &str) -> String {
        format!("{}/trust/{path}", self.prefix)
    }

    /// Returns NAME of a key `member/NAME`.
    pub(super) fn member_name<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(self.prefix.as_str())?.strip_prefix("/member/")
    }

    /// Returns PATH of a key `trust/PATH`.
    pub(super) fn trust_path<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(self.prefix.as_str())?.strip_prefix("/trust/")
    }

    /// Returns the number of an entry's first record.
    pub(super) fn seq(&self, key: &str) -> Option<u64> {
        key.strip_prefix(self.prefix.as_str())?.strip_prefix("/log/")?.parse().ok()
    }

    /// Reads the entries from record `seq` on.
    pub(super) fn entries(&self, seq: u64, limit: i64) -> Op {
        Op::Get { key: self.entry(seq), end: Some(self.end("log")), limit }
    }

    /// Reads the pieces of an entry.
    pub(super) fn pieces(&self, seq: u64, run: u64, count: u32) -> Op {
        Op::Get { key: self.piece(seq, run, 0), end: Some(self.piece(seq, run, count)), limit: 0 }
    }

    /// Reads everything below `folder`.
    pub(super) fn all(&self, folder: &str) -> Op {
        Op::Get { key: format!("{}/{folder}/", self.prefix), end: Some(self.end(folder)), limit: 0 }
    }

    /// Removes the entries before record `seq`, with their pieces.
    pub(super) fn before(&self, seq: u64) -> [Op; 2] {
        let folder = |name: &str| format!("{}/{name}/", self.prefix);
        let piece = format!("{}{seq:0DIGITS$}/", folder("piece"));
        [
            Op::Delete { key: folder("log"), end: Some(self.entry(seq)) },
            Op::Delete { key: folder("piece"), end: Some(piece) },
        ]
    }

    /// Removes the whole log.
    pub(super) fn everything(&self) -> [Op; 2] {
        ["log", "piece"].map(|name| Op::Delete { key: format!("{}/{name}/", self.prefix), end: Some(self.end(name)) })
    }

    /// The key after all keys below `folder`: `0` is the byte after `/`.
    fn end(&self, folder: &str) -> String {
        format!("{}/{folder}0", self.prefix)
    }
}
