//! Proofs of messages from the controller: made once for all puts that leave together, checked by each node.
//!
//! A node that passes messages on (a relay) can drop and delay them, and can read what is not encrypted. It can't change
//! one, make one, or give one to a node that it is not for. What a proof covers: epoch and number of the put, its
//! messages with the nodes that they are for, its scripts and environments. The part of it that proves the start of a step
//! stands in the step's folder, where the step daemon checks it before it becomes the user ([`covers`]).

use std::collections::HashMap;
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
/// First bytes of what is hashed for a leaf and for an inner node of the tree.
const LEAF_DOMAIN: &[u8] = b"squall put 1\0";
const INNER_DOMAIN: &[u8] = b"squall puts, inner 1\0";

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
    let mut known: HashMap<(Epoch, u64), usize> = HashMap::with_capacity(puts.len());
    let mut places = Vec::with_capacity(puts.len());
    let mut encoded: Vec<Sealed<Parcel>> = Vec::with_capacity(puts.len());
    let mut leaves = Vec::new();
    for put in &mut puts {
        let place = *known.entry((put.epoch, put.seq)).or_insert_with(|| {
            roots.push(root_of(put, &mut leaves).unwrap_or_default());
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
    /// Where each message stands in it.
    spans: Vec<Range<usize>>,
    tree: Tree,
    proof: Arc<Proof>,
}

impl Evidence {
    /// Returns what proves the message of this index.
    pub fn warrant(&self, index: usize) -> Option<Arc<Warrant>> {
        let message = self.bytes.get(self.spans.get(index)?.clone())?.to_vec().into();
        let (epoch, seq, proof) = (self.epoch, self.seq, (*self.proof).clone());
        Some(Arc::new(Warrant { epoch, seq, message, within: self.tree.path(index), proof }))
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
    let (spans, rest) = split(bytes).ok_or(Unproven::Malformed)?;
    let tree = tree_of(epoch, seq, bytes, (&spans, rest));
    if !holds(signers, tree.root(), proof) {
        return Err(Unproven::Forged);
    }
    let mut parcel = put.parcel.open().map_err(|_| Unproven::Malformed)?;
    if !is_for(&parcel, here, name) {
        return Err(Unproven::NotForThis);
    }
    let closed = parcel.closed.iter().flatten().find(|closed| Some(closed.node) == here);
    if let Some(closed) = closed {
        let opened = signers.open((epoch, seq), &closed.bytes).ok_or(Unproven::Malformed)?;
        let blobs = encoding::from_slice(&opened).map_err(|_| Unproven::Malformed)?;
        Arc::make_mut(&mut parcel).blobs = blobs;
    }
    let evidence = Evidence { epoch, seq, bytes: Arc::clone(bytes), spans, tree, proof: Arc::clone(proof) };
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
            let here = start.facts.ids.iter().nth(launch.job_node_index as usize);
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

/// Encodes a put, and returns the root of the tree of its messages. `leaves`: room for the tree, used again and again.
fn root_of(put: &mut Put, leaves: &mut Vec<Digest>) -> Option<Digest> {
    put.parcel.encode();
    let Sealed::Bytes(bytes) = &put.parcel else { return None };
    leaves.clear();
    let rest = each_message(bytes, |span| leaves.push(leaf(put.epoch, put.seq, bytes.get(span).unwrap_or_default())))?;
    leaves.push(leaf(put.epoch, put.seq, bytes.get(rest..).unwrap_or_default()));
    while leaves.len() > 1 {
        let above = leaves.len().div_ceil(2);
        for at in 0..above {
            leaves[at] = parent(&leaves[2 * at..leaves.len().min(2 * at + 2)]);
        }
        leaves.truncate(above);
    }
    leaves.first().copied()
}

/// Makes the tree of a put: its messages, and as the last leaf the rest of its parcel.
fn tree_of(epoch: Epoch, seq: u64, bytes: &[u8], (spans, rest): (&[Range<usize>], usize)) -> Tree {
    let parts = spans.iter().cloned().chain(std::iter::once(rest..bytes.len()));
    Tree::of(parts.map(|part| leaf(epoch, seq, bytes.get(part).unwrap_or_default())).collect())
}

fn leaf(epoch: Epoch, seq: u64, bytes: &[u8]) -> Digest {
    let mut hash = Checksum::default();
    hash.update(LEAF_DOMAIN);
    hash.update(&epoch.0.to_le_bytes());
    hash.update(&seq.to_le_bytes());
    hash.update(bytes);
    hash.digest()
}

fn inner(left: &Digest, right: &Digest) -> Digest {
    const AT: usize = INNER_DOMAIN.len();
    let mut bytes = [0; AT + 64];
    bytes[..AT].copy_from_slice(INNER_DOMAIN);
    bytes[AT..AT + 32].copy_from_slice(&left.0);
    bytes[AT + 32..].copy_from_slice(&right.0);
    Digest::of(&bytes)
}

/// Returns the node above two nodes of a level, or above the last one.
fn parent(nodes: &[Digest]) -> Digest {
    match nodes {
        [left, right] => inner(left, right),
        alone => alone.first().copied().unwrap_or_default(),
    }
}

/// Returns where each message stands in an encoded parcel, and where the rest begins.
fn split(parcel: &[u8]) -> Option<(Vec<Range<usize>>, usize)> {
    let mut spans = Vec::new();
    let rest = each_message(parcel, |span| spans.push(span))?;
    Some((spans, rest))
}

/// Tells where each message stands in an encoded parcel. Returns where the rest begins.
fn each_message(parcel: &[u8], mut tell: impl FnMut(Range<usize>)) -> Option<usize> {
    let mut decoder = Decoder::new(parcel);
    decoder.array().ok()??;
    let count = decoder.array().ok()??;
    for _ in 0..count {
        let from = decoder.position();
        decoder.skip().ok()?;
        tell(from..decoder.position());
    }
    Some(decoder.position())
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
