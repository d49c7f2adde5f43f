//! Work of the controller's host outside the state machine: reads scripts and environments, and the configuration file.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::job::{Blob, Digest};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::fabric::{DownFrame, Downward};
use squall_store::BlobReader;

use crate::bearer::Bearers;
use crate::trust::Trust;

/// Bytes of scripts and environments cached in memory.
const CACHE_BYTES: usize = 16 << 20;

/// Most bytes of messages in one frame, unless a single message is longer: frames must stay below their size limit.
const PARCELS_MAX: usize = FRAME_BYTES_MAX / 4 * 3;

/// What tells who makes a request: tokens, and whether it matters in which job a command runs.
pub(super) type CallerFacts = (Bearers, Arc<AtomicBool>);

/// Reads scripts and environments, of which the state machine has only the digests. Caches them in memory.
pub(super) struct HostFiles {
    place: Place,
    pub(super) bearers: Bearers,
    /// Whether it matters in which job a command runs.
    marks: Arc<AtomicBool>,
    blobs: Arc<dyn BlobReader>,
    cache: HashMap<Digest, Blob>,
    order: VecDeque<Digest>,
    bytes: usize,
}

impl HostFiles {
    pub(super) fn new(place: Place, blobs: Arc<dyn BlobReader>, (bearers, marks): CallerFacts, vouched: bool) -> Self {
        marks.store(vouched, Ordering::Relaxed);
        Self { place, bearers, marks, blobs, cache: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// Notes that a node vouched for the user of a job: from now on it matters in which job a command runs.
    pub(super) fn mark(&self) {
        self.marks.store(true, Ordering::Relaxed);
    }

    /// Revokes the keys of nodes that were removed and are gone. Their connections end by that. A controller that dies
    /// before it is done does it at its next start.
    pub(super) fn revoke(&self, gone: Vec<String>) {
        if gone.is_empty() {
            return;
        }
        let trust = Trust::of(&self.place);
        drop(tokio::task::spawn_blocking(move || {
            for node in gone {
                match trust.revoke_node(&node) {
                    Ok(_) => tracing::info!(node, "removed node gone: its key is revoked"),
                    Err(e) => tracing::error!(node, error = %e, "the key of a removed node can't be revoked"),
                }
            }
        }));
    }

    /// Caches blobs that are likely to be needed soon; drops the oldest ones beyond `CACHE_BYTES`.
    pub(super) fn remember(&mut self, blobs: &[Blob]) {
        for blob in blobs {
            if self.cache.contains_key(&blob.digest) || blob.bytes.len() > CACHE_BYTES {
                continue;
            }
            self.bytes += blob.bytes.len();
            self.order.push_back(blob.digest);
            self.cache.insert(blob.digest, blob.clone());
        }
        while self.bytes > CACHE_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.cache.remove(&oldest).map_or(0, |b| b.bytes.len());
        }
    }

    /// Splits a frame into frames of permitted length: as a rule one.
    pub(super) fn frames(frame: DownFrame) -> Vec<DownFrame> {
        let mut frames = vec![DownFrame { hop: frame.hop, says: Vec::new() }];
        let mut room = PARCELS_MAX;
        for (number, mut say) in (frame.hop..).zip(frame.says) {
            let bytes = match &mut say {
                Downward::Put(put) | Downward::Reply { put, .. } => put.parcel.encode(),
                Downward::Chunk(chunk) => chunk.bytes.0.len(),
                Downward::Letter(letter) => letter.message.encode(),
                _ => 0,
            };
            // A piece of a file gets a frame of its own: the receiver forwards it before the next frame arrives.
            let alone = matches!(say, Downward::Chunk(_)) && !frames[frames.len() - 1].says.is_empty();
            if alone || (bytes > room && room < PARCELS_MAX) {
                frames.push(DownFrame { hop: number, says: Vec::new() });
                room = PARCELS_MAX;
            }
            room = room.saturating_sub(bytes);
            let last = frames.len() - 1;
            frames[last].says.push(say);
        }
        frames
    }

    /// Returns a script or an environment. None: it can't be read.
    pub(super) fn blob(&mut self, digest: &Digest) -> Option<Blob> {
        if let Some(blob) = self.cache.get(digest) {
            return Some(blob.clone());
        }
        match self.blobs.read(digest) {
            Ok(content) => {
                let blob = Blob::new(content);
                self.remember(std::slice::from_ref(&blob));
                Some(blob)
            }
            // The node can't start the job, and reports that.
            Err(e) => {
                tracing::error!(error = %e, "a script or environment can't be read");
                None
            }
        }
    }

    /// Returns a script as an answer. The caller has checked permission already.
    pub(super) fn script(&mut self, digest: &Digest) -> Answer {
        let content = self.blob(digest);
        content.map_or(Answer::Refused(Refusal::InvalidJobId), |blob| Answer::Script(blob.bytes))
    }

    /// Returns the folder of the configuration file.
    pub(super) fn config_folder(&self) -> String {
        self.place.config().parent().map(|folder| folder.display().to_string()).unwrap_or_default()
    }

    /// Reads the present configuration file. Err: the configuration is wrong, or changes the cluster's name.
    pub(super) fn read_config(&self, cluster: &str) -> Result<Config, Refusal> {
        let wrong = |problem: String| {
            tracing::warn!(problem, "new configuration refused, the one before stays in force");
            let value = self.place.config().display().to_string();
            Refusal::InvalidValue { option: "configuration".into(), value, problem }
        };
        let checked = super::check_config(&self.place).map_err(|e| wrong(e.to_string()))?;
        checked.oddities.iter().chain(&checked.notices).for_each(|notice| tracing::warn!("{notice}"));
        let config = checked.config;
        if config.cluster == cluster {
            // The log level is not part of the state: no event changes it.
            crate::logging::configure(config.slurmctld_debug);
            return Ok(config);
        }
        Err(wrong(format!("the cluster's name can't change from `{cluster}` to `{}`", config.cluster)))
    }
}

#[cfg(test)]
mod tests {
    use squall_model::id::Epoch;
    use squall_model::job::Blob;
    use squall_model::set::NodeSet;
    use squall_model::wire::fabric::{Parcel, Put};
    use squall_model::wire::sealed::Sealed;

    use super::{DownFrame, Downward, HostFiles};

    fn put(size: usize) -> Downward {
        let parcel = Sealed::new(Parcel { blobs: vec![Blob::new(vec![1; size])], ..Parcel::default() });
        Downward::Put(Put { epoch: Epoch(1), seq: 1, to: NodeSet::new(), asks: Vec::new(), parcel, proof: None })
    }

    /// Sends puts with scripts of these sizes; returns for each frame the number of its first message and their count.
    fn sent(sizes: &[usize]) -> Vec<(u64, usize)> {
        let says = sizes.iter().map(|size| put(*size)).collect();
        let frames = HostFiles::frames(DownFrame { hop: 7, says });
        frames.iter().map(|frame| (frame.hop, frame.says.len())).collect()
    }

    #[test]
    fn scripts_that_are_too_much_for_a_frame_go_in_several() {
        const MIB: usize = 1 << 20;
        assert_eq!(sent(&[100, 200]), [(7, 2)]);
        assert_eq!(sent(&[5 * MIB, 5 * MIB, 5 * MIB]), [(7, 2), (9, 1)]);
    }
}
