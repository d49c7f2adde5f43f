//! What the controller's host does beside the machine: scripts and environments, the configuration file.

use std::collections::{HashMap, VecDeque};

use squall_engine::session::digests_of;
use squall_model::codec::CodecError;
use squall_model::config::Config;
use squall_model::job::{Blob, Digest};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::DownFrame;

use crate::journal::Blobs;
use crate::link::Outgoing;
use crate::logging::say;
use crate::place::Place;

/// Bytes of scripts and environments kept in memory.
const CACHE_BYTES: usize = 16 << 20;

/// Bytes of scripts and environments that travel together with messages, and in a frame of their own: frames must stay under
/// the limit.
const WITH_MESSAGES_MAX: usize = FRAME_BYTES_MAX / 16;
const FRAME_BLOBS_MAX: usize = FRAME_BYTES_MAX / 4 * 3;

/// Room that must be left in a node's queue for all else that it has to be told, bytes.
const ROOM_MIN: usize = 4 * FRAME_BYTES_MAX;

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

    /// Sends a frame to a node, with the scripts and environments that its messages refer to: in it, or ahead of it.
    /// Err: it can't be encoded.
    pub(super) fn send(&mut self, mut frame: DownFrame, out: &Outgoing) -> Result<(), CodecError> {
        let mut digests: Vec<Digest> = frame.messages.iter().flat_map(digests_of).collect();
        digests.sort_unstable();
        digests.dedup();
        let (mut blobs, mut bytes) = (Vec::new(), 0);
        for digest in digests {
            // A node that lacks a script says so, and the job is started again later.
            let Some(blob) = self.blob(&digest).filter(|_| out.room() > ROOM_MIN) else { continue };
            if bytes + blob.bytes.len() > FRAME_BLOBS_MAX {
                out.push(&ahead_of(&frame, std::mem::take(&mut blobs)))?;
                bytes = 0;
            }
            bytes += blob.bytes.len();
            blobs.push(blob);
        }
        if bytes > WITH_MESSAGES_MAX {
            out.push(&ahead_of(&frame, std::mem::take(&mut blobs)))?;
        }
        frame.blobs = blobs;
        out.push(&frame)
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

/// A frame that only brings what the next one needs.
fn ahead_of(frame: &DownFrame, blobs: Vec<Blob>) -> DownFrame {
    DownFrame { session: frame.session, seq: 0, messages: Vec::new(), blobs }
}

#[cfg(test)]
mod tests {
    use squall_model::codec;
    use squall_model::id::Session;
    use squall_model::job::JobSpec;
    use squall_model::step::{BatchStart, JobFacts};
    use squall_model::wire::node::Down;

    use super::{Blob, Blobs, Desk, Digest, DownFrame, FRAME_BLOBS_MAX, Outgoing, Place, ROOM_MIN};

    fn start(script: Digest) -> Down {
        let facts = JobFacts { spec: JobSpec { script: Some(script), ..JobSpec::default() }, ..JobFacts::default() };
        Down::StartJob { facts: Box::new(facts), batch: Some(BatchStart::default()) }
    }

    /// What arrives of a frame that starts jobs with scripts of these sizes, and the digests of the scripts.
    fn sent(sizes: &[usize], room: usize) -> (Vec<DownFrame>, Vec<Digest>) {
        let nowhere = std::env::temp_dir().join("squall-desk");
        let mut desk = Desk::new(Place::at(&nowhere).unwrap(), Blobs::new(&nowhere));
        let blobs = sizes.iter().zip(0u8..).map(|(size, fill)| Blob::new(vec![fill; *size])).collect::<Vec<_>>();
        desk.remember(&blobs);
        let digests: Vec<Digest> = blobs.iter().map(|blob| blob.digest).collect();
        let messages = digests.iter().map(|digest| start(*digest)).collect();
        let out = Outgoing::new(room);
        desk.send(DownFrame { session: Session::default(), seq: 7, messages, blobs: Vec::new() }, &out).unwrap();
        out.close();
        let mut bytes = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(out.pump(&mut bytes)).unwrap();
        let mut frames = Vec::new();
        while let Some((frame, length)) = codec::take::<DownFrame>(&bytes).unwrap() {
            bytes.drain(..length);
            frames.push(frame);
        }
        (frames, digests)
    }

    #[test]
    fn scripts_that_are_too_much_for_a_frame_travel_ahead_of_it() {
        const MIB: usize = 1 << 20;
        let (frames, mut digests) = sent(&[5 * MIB, 5 * MIB, 5 * MIB], usize::MAX);
        assert_eq!(frames.iter().map(|frame| frame.seq).collect::<Vec<_>>(), [0, 0, 7]);
        assert_eq!(frames.iter().map(|frame| frame.messages.len()).collect::<Vec<_>>(), [0, 0, 3]);
        let bytes = |frame: &DownFrame| frame.blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>();
        assert!(frames.iter().all(|frame| bytes(frame) <= FRAME_BLOBS_MAX) && bytes(&frames[2]) == 0);
        let mut arrived: Vec<Digest> = frames.iter().flat_map(|f| &f.blobs).map(|blob| blob.digest).collect();
        arrived.sort_unstable();
        digests.sort_unstable();
        assert_eq!(arrived, digests);
    }

    #[test]
    fn little_scripts_travel_with_their_jobs() {
        let (frames, _) = sent(&[100, 200], usize::MAX);
        assert_eq!((frames.len(), frames[0].seq, frames[0].blobs.len()), (1, 7, 2));
    }

    #[test]
    fn a_node_whose_queue_is_full_hears_at_least_what_it_is_to_do() {
        let (frames, _) = sent(&[100, 200], ROOM_MIN);
        assert_eq!((frames.len(), frames[0].messages.len(), frames[0].blobs.len()), (1, 2, 0));
    }
}
