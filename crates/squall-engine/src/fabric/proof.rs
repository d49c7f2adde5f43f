//! Proofs of messages from the controller: made once for all puts that leave together, checked by each node.
//!
//! A node that passes messages on (a relay) can drop and delay them, and can read what is not encrypted. It can't change
//! one, make one, or give one to a node that it is not for. What a proof covers: epoch and number of the put, its
//! messages with the nodes that they are for, its scripts and environments. The part of it that proves the start of a step
//! stands in the step's folder, where the step daemon checks it before it becomes the user ([`covers`]).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use minicbor::Decoder;
use squall_model::encoding;
use squall_model::id::{Epoch, NodeId};
use squall_model::job::{Checksum, Digest};
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::wire::fabric::{Parcel, Put};
use squall_model::wire::node::Down;
use squall_model::wire::proof::{Proof, SIGNATURE_BYTES, TreePath, Warrant};
use squall_model::wire::sealed::Sealed;

/// What a signature is about: a root can't be mistaken for anything else that the key signs.
const ROOT_DOMAIN: &[u8] = b"squall puts 1\0";
/// First bytes of what is hashed for a leaf of the tree.
const LEAF_DOMAIN: &[u8] = b"squall put 1\0";
/// Key of the hash of an inner node.
const INNER_KEY: &[u8; 32] = b"squall puts, inner node 1       ";

/// Signs for the controller.
pub trait Sign {
    /// Returns the signature of these bytes.
    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES];
}

/// The controllers' keys, as a node knows them.
pub trait Signers: Debug + Send + Sync {
    /// Whether messages need a proof. Not before the key is known, nor of a controller of an older release.
    fn are_known(&self) -> bool;
    /// Whether a controller has signed these bytes.
    fn have_signed(&self, bytes: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool;
    /// Decrypts what the controller has closed for this node in the put of this epoch and number.
    fn open(&self, put: (Epoch, u64), bytes: &[u8]) -> Option<Vec<u8>>;
}

/// The controllers' keys that a node checks proofs with. None: the node checks none.
#[derive(Clone, Debug, Default)]
pub struct Pinned(pub Option<Arc<dyn Signers>>);

impl PartialEq for Pinned {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Eq for Pinned {}

/// Why a put is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// It has no proof, or its proof is wrong.
    Forged,
    /// The controller sent it to other nodes.
    NotForThis,
    /// It can't be read.
    Malformed,
}

impl Unproven {
    /// Returns the problem as a part of a sentence about a message.
    pub fn text(self) -> &'static str {
        match self {
            Self::Forged => "is not signed by it",
            Self::NotForThis => "is for other nodes",
            Self::Malformed => "can't be read",
        }
    }
}

/// Encodes and signs puts. Those of the same epoch and number are copies, and get the same proof.
pub fn prove<'a>(signer: &dyn Sign, puts: impl IntoIterator<Item = &'a mut Put>) {
    let mut puts: Vec<&mut Put> = puts.into_iter().collect();
    let mut roots = Vec::with_capacity(puts.len());
    let mut known: BTreeMap<(Epoch, u64), usize> = BTreeMap::new();
    let mut places = Vec::with_capacity(puts.len());
    let mut encoded: Vec<Sealed<Parcel>> = Vec::with_capacity(puts.len());
    let mut leaves = Vec::new();
    for put in &mut puts {
        let place = *known.entry((put.epoch, put.seq)).or_insert_with(|| {
            put.parcel.encode();
            let root = match &put.parcel {
                Sealed::Bytes(bytes) => root_of(put.epoch, put.seq, bytes, &mut leaves),
                Sealed::Open(_) => None,
            };
            roots.push(root.unwrap_or_default());
            encoded.push(put.parcel.clone());
            roots.len() - 1
        });
        put.parcel.clone_from(&encoded[place]);
        places.push(place);
    }
    if roots.is_empty() {
        return;
    }
    let tree = Tree::of(roots);
    let signature = signer.sign(&to_sign(&tree.root()));
    let proof = |leaf| Arc::new(Proof { path: tree.path(leaf), signature });
    let proofs: Vec<Arc<Proof>> = (0..tree.leaves()).map(proof).collect();
    for (put, place) in puts.into_iter().zip(places) {
        put.proof = proofs.get(place).cloned();
    }
}

/// A put that a node may take.
#[derive(Debug)]
pub struct Checked {
    /// The put's content.
    pub parcel: Arc<Parcel>,
    /// What proves the content. None: proofs are not checked.
    pub evidence: Option<Evidence>,
}

/// What proves the messages of a put.
#[derive(Debug)]
pub struct Evidence {
    epoch: Epoch,
    seq: u64,
    /// The encoded parcel.
    bytes: Arc<[u8]>,
    proof: Arc<Proof>,
    /// Where each message stands in it, and their tree. Made when it is first asked for: only starts of steps need it.
    parts: OnceCell<(Vec<Range<usize>>, Tree)>,
}

impl Evidence {
    /// Returns what proves the message of this index.
    pub fn warrant(&self, index: usize) -> Option<Arc<Warrant>> {
        let (epoch, seq, proof) = (self.epoch, self.seq, (*self.proof).clone());
        let (spans, tree) = self.parts.get_or_init(|| {
            let (mut spans, mut leaves) = (Vec::new(), Vec::new());
            // The same bytes were read when the put was checked.
            let _ = leaves_of(epoch, seq, &self.bytes, &mut leaves, |span| spans.push(span));
            (spans, Tree::of(leaves))
        });
        let message = self.bytes.get(spans.get(index)?.clone())?.to_vec().into();
        Some(Arc::new(Warrant { epoch, seq, message, within: tree.path(index), proof }))
    }
}

/// Checks a put that has come for the node `here` (None: it has no id yet) with this name.
pub fn check(pinned: &Pinned, put: &Put, here: Option<NodeId>, name: &str) -> Result<Checked, Unproven> {
    let Some(signers) = pinned.0.as_deref().filter(|signers| signers.are_known()) else {
        let parcel = put.parcel.open().map_err(|_| Unproven::Malformed)?;
        return Ok(Checked { parcel, evidence: None });
    };
    let (Sealed::Bytes(bytes), Some(proof)) = (&put.parcel, &put.proof) else { return Err(Unproven::Forged) };
    let (epoch, seq) = (put.epoch, put.seq);
    let root = root_of(epoch, seq, bytes, &mut Vec::new()).ok_or(Unproven::Malformed)?;
    if !holds(signers, root, proof) {
        return Err(Unproven::Forged);
    }
    let mut parcel = put.parcel.open().map_err(|_| Unproven::Malformed)?;
    // The rest of the parcel is one leaf of the tree, so that what it says of the other leaves is the controller's word. Without
    // that, an inner node of the tree would pass for the root of a put with fewer messages.
    if parcel.count.is_some_and(|count| count as usize != parcel.messages.len()) {
        return Err(Unproven::Forged);
    }
    if !is_for(&parcel, here, name) {
        return Err(Unproven::NotForThis);
    }
    let closed = parcel.closed.iter().flatten().find(|closed| Some(closed.node) == here);
    if let Some(closed) = closed {
        let opened = signers.open((epoch, seq), &closed.bytes).ok_or(Unproven::Malformed)?;
        let blobs = encoding::from_slice(&opened).map_err(|_| Unproven::Malformed)?;
        Arc::make_mut(&mut parcel).blobs = blobs;
    }
    let (bytes, proof) = (Arc::clone(bytes), Arc::clone(proof));
    let evidence = Evidence { epoch, seq, bytes, proof, parts: OnceCell::new() };
    Ok(Checked { parcel, evidence: Some(evidence) })
}

/// Whether a parcel is for this node. The messages before a session name the node themselves, or do no harm elsewhere.
fn is_for(parcel: &Parcel, here: Option<NodeId>, own: &str) -> bool {
    let named = |message: &Down| match message {
        Down::Identify | Down::Knock => true,
        Down::Welcome { name, .. } | Down::Refused { name, .. } => name.as_deref() == Some(own),
        _ => false,
    };
    match &parcel.to {
        Some(to) => here.is_some_and(|here| to.contains(here)),
        None => parcel.messages.iter().all(named),
    }
}

/// Whether the controller has ordered a launch: the warrant's message is its own, and starts this step with these facts
/// and this program. What the node adds (its own numbers of cores, the site's scripts) gives no rights.
pub fn covers(signers: &dyn Signers, warrant: &Warrant, launch: &StepLaunch) -> bool {
    let leaf = leaf(warrant.epoch, warrant.seq, &warrant.message);
    let proven = root_by(leaf, &warrant.within).is_some_and(|root| holds(signers, root, &warrant.proof));
    let Ok(message) = encoding::from_slice::<Down>(&warrant.message) else { return false };
    let ordered = match &message {
        Down::StartJob { facts, batch: Some(batch) } => batch.launch_on(facts, batch.node),
        Down::StartStep(start) => {
            let here = start.facts.in_order().nth(launch.job_node_index as usize);
            here.and_then(|node| start.launch_on(node))
        }
        _ => None,
    };
    proven && ordered.is_some_and(|ordered| is_same(&ordered, launch))
}

/// Whether two launches are the same in all that gives rights.
fn is_same(ordered: &StepLaunch, launch: &StepLaunch) -> bool {
    // A leased job begins when its cores are free, so its times are the node's.
    let (start, end) = (launch.facts.start, launch.facts.end);
    let facts: Arc<JobFacts> = if ordered.facts.start == start && ordered.facts.end == end {
        Arc::clone(&ordered.facts)
    } else {
        Arc::new(JobFacts { start, end, ..(*ordered.facts).clone() })
    };
    ordered.key == launch.key
        && ordered.node == launch.node
        && facts == launch.facts
        && ordered.program == launch.program
        && ordered.memory_mb == launch.memory_mb
        && ordered.gres == launch.gres
}

fn holds(signers: &dyn Signers, root: Digest, proof: &Proof) -> bool {
    root_by(root, &proof.path).is_some_and(|root| signers.have_signed(&to_sign(&root), &proof.signature))
}

fn to_sign(root: &Digest) -> Vec<u8> {
    [ROOT_DOMAIN, &root.0].concat()
}

/// Returns the root of the tree of a put: its messages, and as the last leaf the rest of its parcel. `leaves`: room for
/// the tree, used again and again.
fn root_of(epoch: Epoch, seq: u64, parcel: &[u8], leaves: &mut Vec<Digest>) -> Option<Digest> {
    leaves_of(epoch, seq, parcel, leaves, |_| ())?;
    while leaves.len() > 1 {
        let above = leaves.len().div_ceil(2);
        for at in 0..above {
            leaves[at] = parent(&leaves[2 * at..leaves.len().min(2 * at + 2)]);
        }
        leaves.truncate(above);
    }
    leaves.first().copied()
}

/// Replaces `leaves` by those of an encoded parcel, and tells where each message stands in it. None: it is malformed.
fn leaves_of(
    epoch: Epoch,
    seq: u64,
    parcel: &[u8],
    leaves: &mut Vec<Digest>,
    mut tell: impl FnMut(Range<usize>),
) -> Option<()> {
    let mut decoder = Decoder::new(parcel);
    decoder.array().ok()??;
    let count = decoder.array().ok()??;
    leaves.clear();
    for _ in 0..count {
        let from = decoder.position();
        decoder.skip().ok()?;
        let span = from..decoder.position();
        leaves.push(leaf(epoch, seq, parcel.get(span.clone())?));
        tell(span);
    }
    leaves.push(leaf(epoch, seq, parcel.get(decoder.position()..)?));
    Some(())
}

fn leaf(epoch: Epoch, seq: u64, bytes: &[u8]) -> Digest {
    let mut hash = Checksum::default();
    hash.update(LEAF_DOMAIN);
    hash.update(&epoch.0.to_le_bytes());
    hash.update(&seq.to_le_bytes());
    hash.update(bytes);
    hash.digest()
}

/// Returns the node above two others: one block of BLAKE3, with a key that keeps it apart from a leaf.
fn inner(left: &Digest, right: &Digest) -> Digest {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&left.0);
    bytes[32..].copy_from_slice(&right.0);
    Digest::keyed(INNER_KEY, &bytes)
}

/// Returns the node above two nodes of a level, or above the last one.
fn parent(nodes: &[Digest]) -> Digest {
    match nodes {
        [left, right] => inner(left, right),
        alone => alone.first().copied().unwrap_or_default(),
    }
}

/// A Merkle tree: the nodes of each level, the leaves first. The last node of a level with an odd number of nodes is
/// a node of the next level too.
#[derive(Debug)]
struct Tree {
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    /// Makes the tree over at least one leaf.
    fn of(leaves: Vec<Digest>) -> Self {
        let mut levels = vec![leaves];
        while let Some(last) = levels.last().filter(|level| level.len() > 1) {
            let above = last.chunks(2).map(parent).collect();
            levels.push(above);
        }
        Self { levels }
    }

    fn leaves(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    fn root(&self) -> Digest {
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or_default()
    }

    fn path(&self, leaf: usize) -> TreePath {
        let mut siblings = Vec::with_capacity(self.levels.len() * size_of::<Digest>());
        let mut at = leaf;
        for level in &self.levels {
            if let Some(sibling) = level.get(at ^ 1) {
                siblings.extend_from_slice(&sibling.0);
            }
            at /= 2;
        }
        TreePath { leaf: leaf as u32, leaves: self.leaves() as u32, siblings: siblings.into() }
    }
}

/// Returns the root to which a path leads from a leaf. None: the tree has no such leaf, or its paths have another length.
fn root_by(leaf: Digest, path: &TreePath) -> Option<Digest> {
    if path.leaf >= path.leaves {
        return None;
    }
    let (siblings, left_over) = path.siblings.as_chunks::<32>();
    let mut siblings = siblings.iter().map(|bytes| Digest(*bytes));
    let (mut at, mut width, mut root) = (path.leaf, path.leaves, leaf);
    while width > 1 {
        if at % 2 == 1 {
            root = inner(&siblings.next()?, &root);
        } else if at + 1 < width {
            root = inner(&root, &siblings.next()?);
        }
        (at, width) = (at / 2, width.div_ceil(2));
    }
    (left_over.is_empty() && siblings.next().is_none()).then_some(root)
}
