//! Signs what the controller sends to nodes, and encrypts scripts and environments for the nodes that run them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use squall_engine::control::LinkId;
use squall_engine::fabric::proof;
use squall_model::encoding;
use squall_model::event::Record;
use squall_model::id::{Epoch, NodeId};
use squall_model::job::{Blob, Digest};
use squall_model::version::ClusterVersion;
use squall_model::wire::fabric::{Closed, DownFrame, Downward, Parcel, Put};
use squall_model::wire::join::PublicKey;
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;

use super::host_files::HostFiles;
use super::signing_keys::SigningKeys;
use crate::noise::KeyPair;
use crate::signing::{Closer, Signer};
use crate::trust::Trust;

/// Signs and encrypts frames for nodes.
pub(super) struct Sealer {
    pub(super) ring: SigningKeys,
    signer: Signer,
    /// Whether all nodes can read what is encrypted for them.
    encrypts: bool,
    keys: KeyPair,
    trust: Trust,
    /// By node: its key, and what encrypts for it in an epoch.
    closers: HashMap<String, (PublicKey, Epoch, Arc<Closer>)>,
}

impl Sealer {
    /// Makes the sealer of a controller with these keys.
    pub(super) fn new(ring: SigningKeys, trust: Trust) -> Self {
        let keys = ring.present();
        Self { ring, signer: Signer::of(&keys), encrypts: true, keys, trust, closers: HashMap::new() }
    }

    /// Signs and encrypts with other keys from now on, if these durable records name some. What tells nodes of them was
    /// signed before.
    pub(super) fn follow<'a>(&mut self, records: impl Iterator<Item = &'a Record>) {
        match self.ring.follow(records) {
            Ok(false) => return,
            Ok(true) => {}
            // At the next start it is tried again: the journal names the key.
            Err(e) => tracing::error!(error = %e, "the rotated keys can't be stored"),
        }
        self.keys = self.ring.present();
        self.signer = Signer::of(&self.keys);
        self.closers.clear();
    }

    /// Adapts to the version of the cluster: nodes of an older release would not find an encrypted script.
    pub(super) fn heed(&mut self, cluster: ClusterVersion) {
        self.encrypts = cluster >= ClusterVersion::SCRIPTS_ENCRYPTED;
        self.ring.heed(cluster);
    }

    /// Completes, encodes and signs all puts of these frames. `child`: the node at the end of a connection, if it is on
    /// another machine. `named`: the name of a node.
    pub(super) fn seal<'a>(
        &mut self,
        files: &mut HostFiles,
        sends: &mut [(LinkId, DownFrame)],
        child: impl Fn(LinkId) -> Option<&'a str>,
        named: impl Fn(NodeId) -> String,
    ) {
        let mut done: HashMap<(Epoch, u64), Sealed<Parcel>> = HashMap::new();
        let puts = sends.iter_mut().flat_map(|(link, frame)| {
            let link = *link;
            frame.says.iter_mut().filter_map(move |say| put_of(say).map(|put| (link, put)))
        });
        let mut all: Vec<&mut Put> = Vec::new();
        for (link, put) in puts {
            // A put goes out on several connections as copies.
            if let Some(parcel) = done.get(&(put.epoch, put.seq)) {
                put.parcel.clone_from(parcel);
            } else {
                self.complete(files, put, child(link), &named);
                put.parcel.encode();
                done.insert((put.epoch, put.seq), put.parcel.clone());
            }
            all.push(put);
        }
        proof::prove(&self.signer, all);
    }

    /// Adds to a put the scripts and environments to which its messages refer.
    fn complete(
        &mut self,
        files: &mut HostFiles,
        put: &mut Put,
        child: Option<&str>,
        named: &impl Fn(NodeId) -> String,
    ) {
        let (epoch, seq) = (put.epoch, put.seq);
        let Sealed::Open(parcel) = &mut put.parcel else { return };
        let mut wanted: BTreeMap<NodeId, Vec<Digest>> = BTreeMap::new();
        for message in &parcel.messages {
            if let Down::StartJob { batch: Some(batch), .. } = message {
                wanted.entry(batch.node).or_default().extend(message.digests());
            }
        }
        if wanted.is_empty() {
            return;
        }
        let parcel = Arc::make_mut(parcel);
        let mut closed = Vec::new();
        for (node, mut digests) in wanted {
            digests.sort_unstable();
            digests.dedup();
            // A node that lacks a script reports it, and the job is started again later.
            let blobs: Vec<Blob> = digests.iter().filter_map(|digest| files.blob(digest)).collect();
            let name = named(node);
            let alone = put.to.len() == 1 && child.is_none_or(|child| child == name);
            let closer = if alone || !self.encrypts { None } else { self.closer(&name, epoch) };
            match closer.and_then(|closer| closer.close(seq, encoding::to_vec(&blobs))) {
                Some(bytes) => closed.push(Closed { node, bytes: bytes.into() }),
                None => parcel.blobs.extend(blobs),
            }
        }
        parcel.blobs.sort_unstable_by_key(|blob| blob.digest);
        parcel.blobs.dedup_by_key(|blob| blob.digest);
        parcel.closed = (!closed.is_empty()).then_some(closed);
    }

    /// Returns what encrypts for a node. None: it is on this machine, and has no key.
    fn closer(&mut self, name: &str, epoch: Epoch) -> Option<Arc<Closer>> {
        let theirs = self.trust.peer(name).ok().flatten()?.key;
        if let Some((key, of, closer)) = self.closers.get(name)
            && (*key, *of) == (theirs, epoch)
        {
            return Some(Arc::clone(closer));
        }
        let closer = Arc::new(Closer::between(&self.keys, &theirs, epoch)?);
        self.closers.insert(name.to_owned(), (theirs, epoch, Arc::clone(&closer)));
        Some(closer)
    }
}

fn put_of(say: &mut Downward) -> Option<&mut Put> {
    match say {
        Downward::Put(put) | Downward::Reply { put, .. } => Some(put),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use squall_engine::fabric::proof::{Pinned, check};
    use squall_model::config::Config;
    use squall_model::job::{JobSpec, Owner};
    use squall_model::set::NodeSet;
    use squall_model::step::{BatchStart, JobFacts};
    use squall_model::wire::fabric::Route;
    use squall_store::Log;
    use squall_store::memory::MemoryLog;

    use super::{
        Arc, Blob, ClusterVersion, Digest, Down, DownFrame, Downward, Epoch, HostFiles, KeyPair, LinkId, NodeId,
        Parcel, Put, Sealed, Sealer, Signer, Trust, encoding, put_of,
    };
    use crate::bearer::Bearers;
    use crate::signing::Known;
    use squall_files::place::Place;

    fn folder(name: &str) -> Place {
        let place =
            Place::at(&std::env::temp_dir().join(format!("squall-sealer-{}-{name}", std::process::id()))).unwrap();
        std::fs::create_dir_all(place.dir()).unwrap();
        place
    }

    /// A put with a batch job for node `n2`, sent by way of relay `n1`.
    fn put(script: Digest) -> (LinkId, DownFrame) {
        let spec = JobSpec { script: Some(script), ..JobSpec::default() };
        let owner = Arc::new(Owner { uid: 1001, ..Owner::default() });
        let facts = Arc::new(JobFacts { spec: spec.into(), owner, ..JobFacts::default() });
        let batch = Some(BatchStart { node: NodeId(1), ..BatchStart::default() });
        let to = NodeSet::one(NodeId(1));
        let messages = vec![Down::StartJob { facts, batch }];
        let parcel = Sealed::new(Parcel::of(messages, Some(to.clone())));
        let put = Put { epoch: Epoch(1), seq: 9, to, asks: Vec::new(), parcel, proof: None };
        let reply = Downward::Reply { route: Route::new(), node: None, put: put.clone() };
        (LinkId(3), DownFrame { hop: 1, says: vec![Downward::Put(put), reply] })
    }

    #[test]
    fn c1_a_relay_sees_no_script() {
        let [place, of_node] = ["controller", "node"].map(folder);
        let own = KeyPair::generate().unwrap();
        let trust = Trust::of(&place);
        let ring = super::SigningKeys::open(&place, None).unwrap();
        let keys = ring.present();
        trust.own_node("n2", &own.public).unwrap();
        let known = (Bearers::of(&place, &Config::default()), Arc::default());
        let mut files = HostFiles::new(place.clone(), MemoryLog::default().blobs(), known, false);
        let script = Blob::new(b"#!/bin/sh\nPASSWORD=1\n".to_vec());
        files.remember(std::slice::from_ref(&script));
        let mut sealer = Sealer::new(ring, trust);
        let known = Known::of(&of_node, Some((own, keys.public))).unwrap();
        known.learn(Some(Signer::of(&keys).key()));
        let pinned = Pinned(Some(Arc::new(known)));
        let (old, new) = (ClusterVersion::FIRST, ClusterVersion::SCRIPTS_ENCRYPTED);
        let cases = [(Some("n1"), new, false), (Some("n2"), new, true), (None, new, true), (Some("n1"), old, true)];
        for (child, version, visible) in cases {
            sealer.heed(version);
            let mut sends = vec![put(script.digest)];
            sealer.seal(&mut files, &mut sends, |_| child, |node| format!("n{}", node.0 + 1));
            for say in &mut sends[0].1.says {
                let put = put_of(say).unwrap();
                let bytes = encoding::to_vec(put);
                assert_eq!(bytes.windows(8).any(|window| window == b"PASSWORD"), visible, "{child:?}");
                let checked = check(&pinned, put, Some(NodeId(1)), "n2").unwrap();
                assert_eq!(checked.parcel.blobs, std::slice::from_ref(&script));
            }
        }
        for place in [place, of_node] {
            std::fs::remove_dir_all(place.dir()).unwrap();
        }
    }
}
