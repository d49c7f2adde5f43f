//! A batch as it is stored in a log that is no file: in memory, or in etcd.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_engine::commit::Append;
use squall_model::codec::{self, CodecError};
use squall_model::event::Record;
use squall_model::job::Blob;

/// Content of one append, with a checksum.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The records of events that were appended.
    #[n(0)]
    pub records: Vec<Record>,
    /// Scripts and environments that the records need.
    #[n(1)]
    pub blobs: Vec<Blob>,
}

impl Entry {
    /// Encodes a batch.
    pub fn encode(batch: &Append) -> Result<Vec<u8>, CodecError> {
        let entry = Self { records: batch.records.to_vec(), blobs: batch.blobs.clone() };
        let mut bytes = Vec::new();
        codec::encode(&entry, &mut bytes)?;
        Ok(bytes)
    }

    /// Decodes the batch at the beginning of `bytes`; returns its length, too. None: it is not complete.
    pub fn take(bytes: &[u8]) -> Result<Option<(Self, usize)>, CodecError> {
        codec::take(bytes)
    }

    /// Returns the batch, to be appended to another log.
    #[must_use]
    pub fn into_append(self) -> Append {
        Append { records: Arc::new(self.records), blobs: self.blobs }
    }
}
