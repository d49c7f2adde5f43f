//! The key with which the controllers of a cluster sign their messages, and what a machine knows of it.
//!
//! The key is made from the controllers' Noise key, which all of them have, so that it needs no exchange of its own and
//! stands on no further disk. Its public half is in the controller's greeting and in the charter, both of which come from
//! the controller itself and not through relays; each machine keeps it in `DIR/keys/signer`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use squall_engine::fabric::proof::{Sign, Signers, covers};
use squall_files::place::Place;
use squall_model::id::Epoch;
use squall_model::job::Digest;
use squall_model::step::StepLaunch;
use squall_model::wire::join::PublicKey;
use squall_model::wire::proof::{SIGNATURE_BYTES, SignerKey, Warrant};
use tracing::{info, warn};

use crate::noise::KeyPair;
use crate::trust::Trust;

/// Purposes for which keys are derived (BLAKE3 `derive_key`).
const SIGNING: &str = "squall 2026-11-26 key that signs the controller's messages";
const CLOSING: &str = "squall 2026-11-26 key of scripts and environments for one node";

/// Number of signed roots that a node remembers: the messages of one root come close together.
const ROOTS_KEPT: usize = 32;

/// Time for which messages that were signed before a rotation may be under way.
const UNDER_WAY: Duration = Duration::from_mins(1);

/// The controllers' signing key.
pub(crate) struct Signer(SigningKey);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// Returns the signing key of the controllers with this key.
    pub(crate) fn of(keys: &KeyPair) -> Self {
        Self(SigningKey::from_bytes(&keys.derive(SIGNING)))
    }

    /// Returns the public half.
    pub(crate) fn key(&self) -> SignerKey {
        self.0.verifying_key().to_bytes()
    }
}

impl Sign for Signer {
    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(bytes).to_bytes()
    }
}

/// Encrypts for one node what only it needs.
pub(crate) struct Closer(LessSafeKey);

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closer")
    }
}

impl Closer {
    /// Returns the key that the owners of these two keys share in an epoch. None: `theirs` is no key.
    pub(crate) fn between(own: &KeyPair, theirs: &PublicKey, epoch: Epoch) -> Option<Self> {
        let secret = own.shared_with(theirs)?;
        let key = blake3::derive_key(CLOSING, &[&secret[..], &epoch.0.to_le_bytes()].concat());
        UnboundKey::new(&CHACHA20_POLY1305, &key).ok().map(LessSafeKey::new).map(Self)
    }

    /// Encrypts what belongs to the put of this number. No number is used twice in an epoch.
    pub(crate) fn close(&self, seq: u64, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.0.seal_in_place_append_tag(nonce(seq), Aad::empty(), &mut bytes).ok()?;
        Some(bytes)
    }

    fn open(&self, seq: u64, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let length = self.0.open_in_place(nonce(seq), Aad::empty(), &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

fn nonce(seq: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&seq.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// What a machine knows of the controllers' keys.
pub(crate) struct Known {
    trust: Trust,
    /// This machine's key. None: it is a controller's machine.
    own: Option<KeyPair>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    key: Option<VerifyingKey>,
    /// The key before, and until when it still counts: messages that it has signed may be under way.
    last: Option<(VerifyingKey, Instant)>,
    /// Earlier keys that count as well.
    earlier: Vec<VerifyingKey>,
    /// The controllers' public key. None: it is a controller's machine.
    controllers: Option<PublicKey>,
    /// Digests of signed roots with their signatures, the latest last.
    roots: VecDeque<Digest>,
    /// What opens scripts of this epoch. None: none came yet.
    closer: Option<(Epoch, Arc<Closer>)>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl Known {
    /// Reads what the state folder has. `own`: key of a machine that has joined, and the controllers' public one.
    pub(crate) fn of(place: &Place, own: Option<(KeyPair, PublicKey)>) -> io::Result<Self> {
        let trust = Trust::of(place);
        let key = trust.signer()?.and_then(|key| VerifyingKey::from_bytes(&key).ok());
        let (own, controllers) = own.unzip();
        Ok(Self { trust, own, state: Mutex::new(State { key, controllers, ..State::default() }) })
    }

    /// Takes the key that the controller itself has told. None: it is of an older release, which does not sign.
    pub(crate) fn learn(&self, key: Option<SignerKey>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.key.map(|known| known.to_bytes()) == key {
            return;
        }
        if key.is_some() {
            info!("the controller signs its messages with a key that is new here");
        } else {
            warn!("the controller does not sign its messages: it is of an older release");
        }
        let last = state.key.filter(|_| key.is_some()).map(|key| (key, Instant::now() + UNDER_WAY));
        let controllers = state.controllers;
        let key_now = key.and_then(|key| VerifyingKey::from_bytes(&key).ok());
        *state = State { key: key_now, last, controllers, ..State::default() };
        if let Err(e) = self.trust.keep_signer(key.as_ref()) {
            warn!(error = %e, "the controller's key for signatures can't be kept");
        }
    }

    /// Takes the public key that the controller itself has told, by which its scripts are decrypted. None: it is of an
    /// older release.
    pub(crate) fn learn_controllers(&self, key: Option<PublicKey>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if key.is_some() && state.controllers.is_some() && state.controllers != key {
            (state.controllers, state.closer) = (key, None);
        }
    }

    /// Takes what earlier keys have signed as well. For steps: what proves their start was checked when it came.
    fn with_earlier(self) -> io::Result<Self> {
        let earlier = self.trust.signers_before()?;
        let earlier = earlier.iter().filter_map(|key| VerifyingKey::from_bytes(key).ok()).collect();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).earlier = earlier;
        Ok(self)
    }
}

impl Signers for Known {
    fn are_known(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).key.is_some()
    }

    fn have_signed(&self, bytes: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(key) = state.key else { return false };
        let digest = Digest::of(&[bytes, signature].concat());
        if state.roots.contains(&digest) {
            return true;
        }
        let now = Instant::now();
        let last = state.last.filter(|(_, until)| now < *until).map(|(key, _)| key);
        let signature = Signature::from_bytes(signature);
        let all = std::iter::once(&key).chain(&last).chain(&state.earlier);
        let holds = all.into_iter().any(|key| key.verify_strict(bytes, &signature).is_ok());
        if holds {
            if state.roots.len() == ROOTS_KEPT {
                state.roots.pop_front();
            }
            state.roots.push_back(digest);
        }
        holds
    }

    fn open(&self, (epoch, seq): (Epoch, u64), bytes: &[u8]) -> Option<Vec<u8>> {
        let own = self.own.as_ref()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let controllers = state.controllers?;
        let known = state.closer.as_ref().filter(|(of, _)| *of == epoch).map(|(_, closer)| Arc::clone(closer));
        let closer = match known {
            Some(closer) => closer,
            None => Arc::new(Closer::between(own, &controllers, epoch)?),
        };
        state.closer = Some((epoch, Arc::clone(&closer)));
        closer.open(seq, bytes.to_vec())
    }
}

/// Whether the step with this folder may be started as the user that its launch names: the controller has ordered it on
/// this node. Where no key is known, the controller signs nothing, and the launch is believed.
#[derive(Debug)]
pub(crate) struct Authority {
    node: String,
    known: Option<Known>,
}

impl Authority {
    /// Reads the key for the node with the folders of steps in `steps`. Before privileges are dropped.
    pub(crate) fn of(steps: &Path) -> io::Result<Self> {
        let node = steps.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let Some(dir) = steps.ancestors().nth(3) else { return Ok(Self { node, known: None }) };
        let known = Known::of(&Place::at(dir)?, None)?.with_earlier()?;
        Ok(Self { node, known: known.are_known().then_some(known) })
    }

    /// Checks a launch. Err: the reason why the step must not be started.
    pub(crate) fn check(&self, launch: &StepLaunch, warrant: Option<&Warrant>) -> Result<(), String> {
        let Some(known) = &self.known else { return Ok(()) };
        let covered = warrant.is_some_and(|warrant| covers(known, warrant, launch));
        if covered && launch.node == self.node {
            return Ok(());
        }
        Err(format!("the controller has not signed the start of step {}: it is not started", launch.key))
    }
}

#[cfg(test)]
mod tests {
    use super::{Closer, Epoch, KeyPair, Known, Place, Sign, Signer, Signers};

    #[test]
    fn c1_only_the_key_of_the_controllers_signs() {
        let (keys, others) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let dir = std::env::temp_dir().join(format!("squall-signing-{}", std::process::id()));
        let known = Known::of(&Place::at(&dir).unwrap(), None).unwrap();
        assert!(!known.are_known());
        known.learn(Some(Signer::of(&keys).key()));
        let signature = Signer::of(&keys).sign(b"root");
        for _ in 0..2 {
            assert!(known.are_known() && known.have_signed(b"root", &signature));
            assert!(!known.have_signed(b"boot", &signature));
            assert!(!known.have_signed(b"root", &Signer::of(&others).sign(b"root")));
        }
        // Another run of the daemon.
        let known = Known::of(&Place::at(&dir).unwrap(), None).unwrap();
        assert!(known.have_signed(b"root", &signature));
        // The keys are rotated: what is under way still counts, and what is signed now.
        known.learn(Some(Signer::of(&others).key()));
        let newer = Signer::of(&others).sign(b"root");
        assert!(known.have_signed(b"root", &newer) && known.have_signed(b"root", &signature));
        let end = |known: &Known| known.state.lock().unwrap().last = None;
        end(&known);
        known.state.lock().unwrap().roots.clear();
        assert!(known.have_signed(b"root", &newer) && !known.have_signed(b"root", &signature));
        // Of steps that were ordered before, it is good to the end.
        let opened = || Known::of(&Place::at(&dir).unwrap(), None).unwrap();
        assert!(!opened().have_signed(b"root", &signature));
        assert!(opened().with_earlier().unwrap().have_signed(b"root", &signature));
        known.learn(None);
        assert!(!Known::of(&Place::at(&dir).unwrap(), None).unwrap().are_known(), "the controller is an older one");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn c1_what_is_closed_for_a_node_only_that_node_opens() {
        let [controller, node, relay] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let closer = Closer::between(&controller, &node.public, Epoch(3)).unwrap();
        let closed = closer.close(7, b"SECRET=1".to_vec()).unwrap();
        assert!(!closed.windows(6).any(|bytes| bytes == b"SECRET"));
        let dir = std::env::temp_dir().join(format!("squall-closing-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        let knows = |own: &KeyPair| Known::of(&place, Some((own.clone(), controller.public))).unwrap();
        assert_eq!(knows(&node).open((Epoch(3), 7), &closed).as_deref(), Some(&b"SECRET=1"[..]));
        assert_eq!(knows(&node).open((Epoch(3), 8), &closed), None);
        assert_eq!(knows(&node).open((Epoch(4), 7), &closed), None);
        assert_eq!(knows(&relay).open((Epoch(3), 7), &closed), None);
        assert_eq!(knows(&node).open((Epoch(3), 7), &[]), None);
    }
}
