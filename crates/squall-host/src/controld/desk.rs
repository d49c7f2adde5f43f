//! What the controller's host does beside the machine: scripts and environments, the configuration file.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use squall_model::config::Config;
use squall_model::job::{Blob, Digest};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::fabric::{DownFrame, Downward, Put};
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;

use crate::journal::Blobs;
use crate::logging::say;
use crate::place::Place;

/// Bytes of scripts and environments kept in memory.
const CACHE_BYTES: usize = 16 << 20;

/// Bytes of scripts and environments in one frame: with its messages it must stay under the limit of frames.
const FRAME_BLOBS_MAX: usize = FRAME_BYTES_MAX / 4 * 3;

/// Reads what the machine only knows by name.
pub(super) struct Desk {
    place: Place,
    blobs: Blobs,
    cache: HashMap<Digest, Blob>,
    order: VecDeque<Digest>,
    bytes: usize,
}

impl Desk {
    pub(super) fn new(place: Place, blobs: Blobs) -> Self {
        Self { place, blobs, cache: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// Keeps blobs that are likely to be needed soon.
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

    /// Adds to what is said the scripts and environments that it refers to, and makes frames of it that are not too
    /// long: one for all, as a rule.
    pub(super) fn frames(&mut self, frame: DownFrame) -> Vec<DownFrame> {
        let mut frames = vec![DownFrame { hop: frame.hop, says: Vec::new() }];
        let (mut next, mut room) = (frame.hop, FRAME_BLOBS_MAX);
        for mut say in frame.says {
            let bytes = match &mut say {
                Downward::Put(put) | Downward::Reply { put, .. } => self.attach(put),
                _ => 0,
            };
            match room.checked_sub(bytes) {
                Some(left) => room = left,
                None => {
                    frames.push(DownFrame { hop: next, says: Vec::new() });
                    room = FRAME_BLOBS_MAX.saturating_sub(bytes);
                }
            }
            next += 1;
            if let Some(last) = frames.last_mut() {
                last.says.push(say);
            }
        }
        frames
    }

    /// Adds to a put the scripts and environments that its messages refer to; returns their length.
    fn attach(&mut self, put: &mut Put) -> usize {
        let Sealed::Open(parcel) = &mut put.parcel else { return 0 };
        let mut digests: Vec<Digest> = parcel.messages.iter().flat_map(digests_of).collect();
        if digests.is_empty() {
            return 0;
        }
        digests.sort_unstable();
        digests.dedup();
        // A node that lacks a script says so.
        let blobs: Vec<Blob> = digests.iter().filter_map(|digest| self.blob(digest)).collect();
        let bytes = blobs.iter().map(|blob| blob.bytes.len()).sum();
        Arc::make_mut(parcel).blobs = blobs;
        bytes
    }

    fn blob(&mut self, digest: &Digest) -> Option<Blob> {
        if let Some(blob) = self.cache.get(digest) {
            return Some(blob.clone());
        }
        match self.blobs.read(digest) {
            Ok(content) => {
                let blob = Blob::new(content);
                self.remember(std::slice::from_ref(&blob));
                Some(blob)
            }
            // The node can't start the job and says so.
            Err(e) => {
                say(&format!("a script or environment can't be read: {e}"));
                None
            }
        }
    }

    /// A script; who may have it was settled before.
    pub(super) fn script(&mut self, digest: &Digest) -> Answer {
        let content = self.blob(digest);
        content.map_or(Answer::Refused(Refusal::InvalidJobId), |blob| Answer::Script(blob.bytes))
    }

    /// The configuration file as it is now; it can't make the cluster another one.
    pub(super) fn read_config(&self, cluster: &str) -> Result<Config, Refusal> {
        let wrong = |problem: String| Refusal::InvalidValue {
            option: "configuration".into(),
            value: self.place.config().display().to_string(),
            problem,
        };
        let config = super::read_config(&self.place).map_err(|e| wrong(e.to_string()))?;
        if config.cluster == cluster {
            return Ok(config);
        }
        Err(wrong(format!("the cluster's name can't change from `{cluster}` to `{}`", config.cluster)))
    }

    /// Free bytes on the journal's disk.
    pub(super) fn free_bytes(&self) -> u64 {
        crate::journal::free_bytes(&self.place.journal())
    }
}

/// The scripts and environments that a message refers to by digest.
fn digests_of(message: &Down) -> Vec<Digest> {
    match message {
        Down::StartJob { batch: Some(launch), .. } => {
            let spec = &launch.facts.spec;
            spec.script.into_iter().chain([spec.env]).collect()
        }
        _ => Vec::new(),
    }
}
