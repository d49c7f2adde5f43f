//! A model of etcd, for the simulator and for tests: a store of keys with revisions and leases, which does one question at
//! a time. Lost and late messages are its host's business.

use std::collections::BTreeMap;

use squall_model::time::{Span, Time};

use super::etcd::{Ask, Done, LeaseId, Op, Pair, Problem, Reply, Txn};

/// Length of a request above which etcd refuses it, bytes.
const REQUEST_BYTES_MAX: usize = 3 << 19;

#[derive(Clone, Debug)]
struct Value {
    bytes: Vec<u8>,
    modified: i64,
    lease: Option<LeaseId>,
}

/// Content of a modelled etcd.
#[derive(Clone, Debug, Default)]
pub struct Model {
    revision: i64,
    keys: BTreeMap<String, Value>,
    /// Leases, with their lengths and ends.
    leases: BTreeMap<LeaseId, (Span, Time)>,
    granted: LeaseId,
    /// Bytes that keys may take. None: any number.
    pub quota: Option<usize>,
}

impl Model {
    /// Removes the leases that have expired, with their keys.
    pub fn expire(&mut self, now: Time) {
        let over: Vec<LeaseId> = self.leases.iter().filter(|(_, (_, end))| *end <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.leases.remove(&lease);
            let before = self.keys.len();
            self.keys.retain(|_, value| value.lease != Some(lease));
            self.revision += i64::from(self.keys.len() != before);
        }
    }

    /// Gives all leases their whole length again, as a new leader among etcd's members does.
    pub fn extend_leases(&mut self, now: Time) {
        for (length, end) in self.leases.values_mut() {
            *end = now + *length;
        }
    }

    /// Returns the time at which the next lease expires.
    pub fn deadline(&self) -> Option<Time> {
        self.leases.values().map(|(_, end)| *end).min()
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.keys.get(key).map(|value| value.bytes.as_slice())
    }

    /// Returns the bytes that keys take.
    pub fn used(&self) -> usize {
        self.keys.iter().map(|(key, value)| key.len() + value.bytes.len()).sum()
    }

    /// Does what is asked.
    pub fn ask(&mut self, now: Time, ask: &Ask) -> Result<Reply, Problem> {
        self.expire(now);
        match ask {
            Ask::Grant { seconds } => {
                self.granted += 1;
                let length = Span::from_secs(*seconds);
                self.leases.insert(self.granted, (length, now + length));
                Ok(Reply::Granted { lease: self.granted })
            }
            Ask::KeepAlive { lease } => {
                let found = self.leases.get_mut(lease).map(|(length, end)| *end = now + *length);
                Ok(Reply::Alive { exists: found.is_some() })
            }
            Ask::Txn(txn) => self.transact(txn).map(Reply::Txn),
            Ask::Compact { .. } => Ok(Reply::Compacted),
            Ask::Usage => Ok(Reply::Usage { used: self.used() as u64 }),
        }
    }

    fn transact(&mut self, txn: &Txn) -> Result<Done, Problem> {
        let modified = |key: &String| self.keys.get(key).map_or(0, |value| value.modified);
        let succeeded = txn.compare.iter().all(|compare| modified(&compare.key) == compare.modified);
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        let put: usize = ops.iter().map(|op| if let Op::Put { value, .. } = op { value.len() } else { 0 }).sum();
        if put > REQUEST_BYTES_MAX {
            return Err(Problem::Refused("etcdserver: request is too large".into()));
        }
        if put > 0 && self.quota.is_some_and(|quota| self.used() + put > quota) {
            return Err(Problem::NoSpace("etcdserver: mvcc: database space exceeded".into()));
        }
        let lost = |op: &Op| matches!(op, Op::Put { lease: Some(lease), .. } if !self.leases.contains_key(lease));
        if ops.iter().any(lost) {
            return Err(Problem::Unavailable("etcdserver: requested lease not found".into()));
        }
        let changes = ops.iter().any(|op| !matches!(op, Op::Get { .. }));
        self.revision += i64::from(changes);
        let results = ops.iter().map(|op| self.operate(op)).collect();
        Ok(Done { revision: self.revision, succeeded, results })
    }

    fn operate(&mut self, op: &Op) -> Vec<Pair> {
        match op {
            Op::Get { key, end, limit } => {
                let count = if *limit == 0 { usize::MAX } else { *limit as usize };
                let found = |(key, value): (&String, &Value)| Pair {
                    key: key.clone(),
                    value: value.bytes.clone(),
                    modified: value.modified,
                };
                match end {
                    Some(end) => self.keys.range(key.clone()..end.clone()).take(count).map(found).collect(),
                    None => self.keys.get_key_value(key).map(found).into_iter().collect(),
                }
            }
            Op::Put { key, value, lease } => {
                let value = Value { bytes: value.clone(), modified: self.revision, lease: *lease };
                self.keys.insert(key.clone(), value);
                Vec::new()
            }
            Op::Delete { key, end } => {
                let gone = |other: &String| match end {
                    Some(end) => key <= other && other < end,
                    None => key == other,
                };
                self.keys.retain(|other, _| !gone(other));
                Vec::new()
            }
        }
    }
}
