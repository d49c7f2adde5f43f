//! The controllers' keys on this machine: the present one, with which a controller signs, and those before it, to which it
//! answers until their end. Files in `keys/`: `controller`, `controller-before` and, while a rotation is under way,
//! `controller-next`. The journal names the present one, so a crash in the middle of a rotation is made good at the next
//! start.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use squall_files::place::Place;
use squall_model::event::{Event, Record};
use squall_model::rotation::ControllerKeys;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::Refusal;
use squall_model::wire::join::PublicKey;
use squall_model::wire::proof::SignerKey;
use tracing::{error, info};
use zeroize::Zeroizing;

use crate::leader::Controllers;
use crate::noise::KeyPair;
use crate::signing::Signer;
use crate::sys::clock;
use crate::trust::Trust;

/// File of the key before the present one, and of those before that which have not ended: of each its two halves, then the
/// end, seconds since 1970.
const BEFORE: &str = "controller-before";
/// File of the key to come.
const NEXT: &str = "controller-next";
/// File of the present key.
const PRESENT: &str = "controller";
/// Bytes of a key before: two halves of 32 bytes, and a time.
const RECORD_BYTES: usize = 72;
/// Most keys before the present one.
const BEFORE_MAX: usize = 16;

/// The controllers' keys; may be cloned.
#[derive(Clone, Debug)]
pub(in crate::controld) struct SigningKeys {
    trust: Trust,
    keys: Arc<Mutex<Keys>>,
    /// The way to the other controllers, which is by the present key.
    others: Arc<Mutex<Option<Controllers>>>,
    /// Whether all nodes are of a release that marks its first message.
    all_mark: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Keys {
    present: KeyPair,
    signer: SignerKey,
    /// Keys before with their ends, seconds since 1970; the latest first.
    before: Vec<(KeyPair, u64)>,
    next: Option<KeyPair>,
}

impl SigningKeys {
    /// Reads the keys; makes the first one. `named`: what the journal names as the present one. None: the keys were never
    /// rotated. Completes a rotation that a crash has interrupted.
    pub(in crate::controld) fn open(place: &Place, named: Option<&ControllerKeys>) -> io::Result<Self> {
        let trust = Trust::of(place);
        let (present, before, next) = (trust.controller_key()?, read_before(&trust)?, read_next(&trust)?);
        let signer = Signer::of(&present).key();
        trust.keep_signer(Some(&signer))?;
        let keys = Arc::new(Mutex::new(Keys { present, signer, before, next }));
        let ring = Self { trust, keys, others: Arc::default(), all_mark: Arc::default() };
        if let Some(named) = named {
            ring.adopt(named)?;
        }
        Ok(ring)
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the other controllers called by the present key, also after a rotation.
    pub(super) fn call_by(&self, others: &Controllers) {
        *self.others.lock().unwrap_or_else(PoisonError::into_inner) = Some(others.clone());
    }

    /// Adapts to the version of the cluster.
    pub(super) fn heed(&self, cluster: ClusterVersion) {
        self.all_mark.store(cluster >= ClusterVersion::MARKED, Ordering::Relaxed);
    }

    /// Returns whether all nodes are of a release that marks its first message.
    pub(super) fn all_mark(&self) -> bool {
        self.all_mark.load(Ordering::Relaxed)
    }

    /// Returns the present key.
    pub(in crate::controld) fn present(&self) -> KeyPair {
        self.keys().present.clone()
    }

    /// Returns the public halves of the present keys: that of connections, and that of signatures.
    pub(in crate::controld) fn public(&self) -> (PublicKey, SignerKey) {
        let keys = self.keys();
        (keys.present.public, keys.signer)
    }

    /// Returns the keys to which the controller answers, the present one first. Those that have ended are removed.
    pub(in crate::controld) fn answering(&self) -> Vec<KeyPair> {
        let now_s = now_s();
        let mut keys = self.keys();
        let known = keys.before.len();
        keys.before.retain(|(_, until_s)| *until_s > now_s);
        if keys.before.len() < known {
            info!("a key of the controllers from before a rotation has ended: machines that still have it are refused");
            if let Err(e) = self.write_before(&keys.before) {
                error!(error = %e, "the ended key can't be removed");
            }
        }
        std::iter::once(&keys.present).chain(keys.before.iter().map(|(pair, _)| pair)).cloned().collect()
    }

    /// Returns the public half of the key to come that stands in `keys/`. None: there is none.
    pub(super) fn next(&self) -> Option<PublicKey> {
        read_next(&self.trust).ok().flatten().map(|pair| pair.public)
    }

    /// Makes the key to come. All other controllers must have it before it is used; where there are some, it is made by the
    /// first call, and used by a later one. `others`: their names, and the public half of the key to come that they have; None:
    /// there is one controller.
    pub(super) fn prepare(
        &self,
        operator: bool,
        grace_s: u64,
        others: Option<Vec<(String, Option<PublicKey>)>>,
    ) -> Result<Box<ControllerKeys>, Refusal> {
        if !operator {
            return Err(Refusal::AccessDenied);
        }
        let failed = |e: io::Error| Refusal::NotSupported(format!("the new key can't be stored: {e}"));
        let mut keys = self.keys();
        let known = read_next(&self.trust).ok().flatten();
        // Another controller may have a copy of the one that is known.
        let next = if let Some(next) = known.filter(|_| others.is_some()) {
            next
        } else {
            let next = KeyPair::generate().map_err(failed)?;
            self.trust.write(&[NEXT], &next.to_bytes()[..]).map_err(failed)?;
            next
        };
        let others = others.unwrap_or_default().into_iter();
        let lacking: Vec<String> = others.filter(|(_, has)| *has != Some(next.public)).map(|(name, _)| name).collect();
        if !lacking.is_empty() {
            return Err(Refusal::NotSupported(format!(
                "first, as root, copy {} of the controller that leads into the same folder on {}; this controller does \
                 not send it. Then repeat the command",
                self.trust.path_of(NEXT).display(),
                lacking.join(", "),
            )));
        }
        let until = Time(now_s().saturating_add(grace_s).saturating_mul(1_000_000));
        let made = ControllerKeys { key: next.public, signer: Signer::of(&next).key(), until };
        keys.next = Some(next);
        Ok(Box::new(made))
    }

    /// Uses the keys that these records name, if they name some. True: they do.
    pub(super) fn follow<'a>(&self, records: impl IntoIterator<Item = &'a Record>) -> io::Result<bool> {
        let mut new = false;
        for event in records.into_iter().flat_map(|record| &record.events) {
            if let Event::KeysRotated { keys, .. } = event {
                self.adopt(keys)?;
                new = true;
            }
        }
        Ok(new)
    }

    /// Uses the keys that the journal names, unless it does so already.
    pub(super) fn renew(&self, named: &ControllerKeys) -> io::Result<()> {
        if self.public().0 == named.key { Ok(()) } else { self.adopt(named) }
    }

    /// Uses these keys from now on. The one before is kept until its end.
    fn adopt(&self, named: &ControllerKeys) -> io::Result<()> {
        let mut keys = self.keys();
        if keys.present.public != named.key {
            let next = keys.next.take().filter(|next| next.public == named.key);
            let next = match next {
                Some(next) => Some(next),
                None => read_next(&self.trust)?.filter(|next| next.public == named.key),
            };
            let Some(next) = next else {
                return Err(io::Error::other(format!(
                    "the controllers' keys were rotated, and {} is not the new one: copy that file from the controller \
                     that leads, or from a newer backup, to {} here, as root",
                    self.trust.path_of(PRESENT).display(),
                    self.trust.path_of(NEXT).display(),
                )));
            };
            let old = std::mem::replace(&mut keys.present, next);
            keys.signer = named.signer;
            let until_s = named.until.secs();
            // A rotation without delay is one: earlier keys end with this one, too.
            keys.before.iter_mut().for_each(|(_, end_s)| *end_s = until_s.min(*end_s));
            keys.before.retain(|(pair, _)| pair.public != old.public);
            keys.before.insert(0, (old, until_s));
            keys.before.truncate(BEFORE_MAX);
            if let Some(others) = &*self.others.lock().unwrap_or_else(PoisonError::into_inner) {
                others.rekey(&keys.present);
            }
        }
        // Another order could lose a key in a crash. What is there already is written again.
        self.write_before(&keys.before)?;
        self.trust.write(&[PRESENT], &keys.present.to_bytes()[..])?;
        self.trust.keep_signer(Some(&keys.signer))?;
        self.trust.forget(NEXT)
    }

    fn write_before(&self, before: &[(KeyPair, u64)]) -> io::Result<()> {
        if before.is_empty() {
            return self.trust.forget(BEFORE);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(before.len() * RECORD_BYTES));
        for (pair, until_s) in before {
            bytes.extend_from_slice(&pair.to_bytes()[..]);
            bytes.extend_from_slice(&until_s.to_le_bytes());
        }
        self.trust.write(&[BEFORE], &bytes)
    }
}

fn read_next(trust: &Trust) -> io::Result<Option<KeyPair>> {
    let Some(bytes) = trust.read(&[NEXT])?.map(Zeroizing::new) else { return Ok(None) };
    let wrong = || io::Error::other(format!("{} is no key: remove it", trust.path_of(NEXT).display()));
    KeyPair::from_bytes(&bytes).ok_or_else(wrong).map(Some)
}

fn read_before(trust: &Trust) -> io::Result<Vec<(KeyPair, u64)>> {
    let bytes = Zeroizing::new(trust.read(&[BEFORE])?.unwrap_or_default());
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    let one = |record: &[u8; RECORD_BYTES]| {
        let (pair, until_s) = record.split_last_chunk::<8>()?;
        Some((KeyPair::from_bytes(pair)?, u64::from_le_bytes(*until_s)))
    };
    let all: Option<Vec<_>> = records.iter().map(one).collect();
    let wrong = || {
        let path = trust.path_of(BEFORE);
        io::Error::other(format!("{} is damaged: without it, machines that have an old key join again", path.display()))
    };
    all.filter(|_| rest.is_empty()).ok_or_else(wrong)
}

fn now_s() -> u64 {
    clock::now().0 / 1_000_000
}

#[cfg(test)]
mod tests {
    use squall_files::place::Place;
    use squall_model::event::{Event, Record};
    use squall_model::time::Time;

    use super::{SigningKeys, Trust};

    #[test]
    fn a_rotation_that_a_crash_interrupts_is_completed_or_was_not_begun() {
        let dir = std::env::temp_dir().join(format!("squall-ring-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        let ring = SigningKeys::open(&place, None).unwrap();
        let first = ring.public();
        let named = ring.prepare(true, 1000, None).unwrap();
        // Before the event was durable.
        assert_eq!(SigningKeys::open(&place, None).unwrap().public(), first);
        // After it, and before a file was changed; then at each moment of the change: files are written in this order.
        let trust = Trust::of(&place);
        let (old, next) =
            (trust.read(&["controller"]).unwrap().unwrap(), trust.read(&["controller-next"]).unwrap().unwrap());
        let before = [&old[..], &named.until.secs().to_le_bytes()].concat();
        for written in 0..4 {
            trust.write(&["controller"], if written < 2 { &old } else { &next }).unwrap();
            trust.write(&["controller-next"], &next).unwrap();
            if written > 0 {
                trust.write(&["controller-before"], &before).unwrap();
            }
            let ring = SigningKeys::open(&place, Some(&named)).unwrap();
            assert_eq!(ring.public(), (named.key, named.signer), "{written}");
            let answering: Vec<_> = ring.answering().iter().map(|pair| pair.public).collect();
            assert_eq!(answering, [named.key, first.0], "{written}");
            assert_eq!(trust.signer().unwrap(), Some(named.signer));
            assert!(ring.next().is_none());
        }
        // A copy of the state folder without the new key.
        trust.write(&["controller"], &old).unwrap();
        assert!(SigningKeys::open(&place, Some(&named)).is_err_and(|e| e.to_string().contains("keys/controller")));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn keys_before_are_answered_to_until_they_end() {
        let dir = std::env::temp_dir().join(format!("squall-ring-ends-{}", std::process::id()));
        let ring = SigningKeys::open(&Place::at(&dir).unwrap(), None).unwrap();
        let mut all = vec![ring.public().0];
        for grace_s in [1000, 1000, 0] {
            let keys = ring.prepare(true, grace_s, None).unwrap();
            all.insert(0, keys.key);
            let events = vec![Event::KeysRotated { keys, by: 0 }];
            let record = Record { seq: 1, time: Time(0), events };
            assert!(ring.follow([&record]).unwrap());
        }
        let publics = |ring: &SigningKeys| ring.answering().iter().map(|pair| pair.public).collect::<Vec<_>>();
        // The last rotation leaves no time to those before it.
        all.truncate(1);
        assert_eq!(publics(&ring), all);
        assert_eq!(publics(&SigningKeys::open(&Place::at(&dir).unwrap(), None).unwrap()), all);
        assert!(ring.prepare(false, 0, None).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
