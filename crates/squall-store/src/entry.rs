//! Content of one append to a log, as it is stored.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_engine::commit::Append;
use squall_model::encoding;
use squall_model::event::Record;
use squall_model::job::Blob;

/// Content of one append.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The records of events that were appended.
    #[n(0)]
    pub records: Vec<Record>,
    /// Scripts and environments that the records need.
    #[n(1)]
    pub blobs: Vec<Blob>,
}

impl Entry {
    /// Returns the entry of a batch.
    pub fn of(batch: &Append) -> Self {
        Self { records: batch.records.to_vec(), blobs: batch.blobs.clone() }
    }

    /// Encodes the entry.
    pub fn encode(&self) -> Vec<u8> {
        encoding::to_vec(self)
    }

    /// Returns the batch, to be appended to another log.
    #[must_use]
    pub fn into_append(self) -> Append {
        Append { records: Arc::new(self.records), blobs: self.blobs }
    }

    /// Decodes an entry. Err: the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        encoding::from_slice(bytes)
    }
}
