//! Durable storage: the log of events, which is a trait, and accounting, which follows it.
//!
//! | [`Log`] | for |
//! |---|---|
//! | [`file::FileLog`] | the controller: segments, snapshots and blobs in `DIR/journal/` |
//! | [`etcd::EtcdLog`] | one of several controllers: batches in etcd, of which `DIR/journal/` is a copy |
//! | [`memory::MemoryLog`] | the simulator: the same promises, with faults below them |

pub mod accounts;
pub mod entry;
pub mod etcd;
pub mod file;
mod log;
pub mod memory;

#[cfg(test)]
mod contract;

pub use log::{BlobReader, Log, LogError, Snapshot};
