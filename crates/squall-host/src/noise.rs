//! Noise protocol between machines: authenticates the peer, and protects the stream against reading and changes. No
//! sockets here: bytes in, bytes out.
//!
//! The wire format is a sequence of records: two bytes of length (big-endian), then a Noise message. The first two
//! records are the handshake, one in each direction; it is done once for a connection.

use std::fmt;
use std::io;
use std::sync::Arc;

use curve25519_dalek::MontgomeryPoint;
use snow::{Builder, HandshakeState, StatelessTransportState};
use squall_model::wire::join::PublicKey;
use zeroize::Zeroizing;

/// Pattern between daemons: the caller has the callee's key in advance, and the callee receives the caller's.
const DAEMONS: &str = "Noise_IK_25519_AESGCM_BLAKE2s";
/// Pattern between the two ends of a step, which share a secret of its launch.
const STEP: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
/// Prologue: the handshake fails unless it is the same on both sides.
const PROLOGUE: &[u8] = b"squall 1";

/// Bytes of the length in front of a record.
pub const LENGTH_BYTES: usize = 2;
/// Longest record of a handshake, bytes.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 128;
/// Bytes that encryption adds to a record's content.
const TAG_BYTES: usize = 16;
/// Most plain bytes that go into one record.
const PLAIN_BYTES_MAX: usize = 32 << 10;
/// Longest record after the handshake, bytes.
pub(crate) const RECORD_BYTES_MAX: usize = PLAIN_BYTES_MAX + TAG_BYTES;

/// Bytes of the mark behind a first message.
const MARK_BYTES: usize = 16;

/// A daemon's key pair (X25519). Its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct KeyPair {
    private: Zeroizing<[u8; 32]>,
    /// The public key.
    pub public: PublicKey,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

impl KeyPair {
    /// Generates a new key pair.
    pub fn generate() -> io::Result<Self> {
        let pair = builder(DAEMONS)?.generate_keypair().map_err(failed)?;
        let private = Zeroizing::new(pair.private);
        let half = |bytes: &[u8]| bytes.try_into().map_err(|_| io::Error::other("a key of another length"));
        Ok(Self { private: Zeroizing::new(half(&private)?), public: half(&pair.public)? })
    }

    /// Reads a stored key pair: the private half, then the public one, 32 bytes each. None: the length is wrong.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (private, public) = bytes.split_at_checked(32)?;
        Some(Self { private: Zeroizing::new(private.try_into().ok()?), public: public.try_into().ok()? })
    }

    /// Returns a secret for one purpose, made from the private half.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &*self.private)
    }

    /// Returns the secret that only the owners of this pair and of `theirs` can compute (X25519, RFC 7748). None: `theirs`
    /// gives a secret that anybody knows.
    pub(crate) fn shared_with(&self, theirs: &PublicKey) -> Option<[u8; 32]> {
        let secret = MontgomeryPoint(*theirs).mul_clamped(*self.private).to_bytes();
        (secret != [0; 32]).then_some(secret)
    }

    /// Returns both halves for storing, as `from_bytes` reads them.
    pub(crate) fn to_bytes(&self) -> Zeroizing<[u8; 64]> {
        let mut bytes = Zeroizing::new([0; 64]);
        bytes[..32].copy_from_slice(&*self.private);
        bytes[32..].copy_from_slice(&self.public);
        bytes
    }
}

fn builder(pattern: &str) -> io::Result<Builder<'static>> {
    Builder::new(pattern.parse().map_err(failed)?).prologue(PROLOGUE).map_err(failed)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn failed(e: snow::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("Noise: {e}"))
}

/// A handshake in progress.
#[derive(Debug)]
pub struct Handshake(Box<HandshakeState>);

impl Handshake {
    /// Starts the handshake of a daemon that calls the one with key `theirs`.
    pub(crate) fn call(own: &KeyPair, theirs: &PublicKey) -> io::Result<Self> {
        let builder = builder(DAEMONS)?.local_private_key(&*own.private).and_then(|b| b.remote_public_key(theirs));
        Ok(Self(Box::new(builder.and_then(Builder::build_initiator).map_err(failed)?)))
    }

    /// Starts the handshake of a daemon that is called.
    pub(crate) fn answer(own: &KeyPair) -> io::Result<Self> {
        let builder = builder(DAEMONS)?.local_private_key(&*own.private);
        Ok(Self(Box::new(builder.and_then(Builder::build_responder).map_err(failed)?)))
    }

    /// Starts the handshake of a step daemon that calls its `srun`.
    pub fn call_with(cookie: [u8; 16]) -> io::Result<Self> {
        let secret = secret(cookie);
        let builder = builder(STEP)?.psk(0, &secret);
        Ok(Self(Box::new(builder.and_then(Builder::build_initiator).map_err(failed)?)))
    }

    /// Starts the handshake of an `srun` that is called.
    pub fn answer_with(cookie: [u8; 16]) -> io::Result<Self> {
        let secret = secret(cookie);
        let builder = builder(STEP)?.psk(0, &secret);
        Ok(Self(Box::new(builder.and_then(Builder::build_responder).map_err(failed)?)))
    }

    /// Whether this side has to send the next record.
    pub fn is_our_turn(&self) -> bool {
        self.0.is_my_turn()
    }

    /// Whether both records of the handshake were exchanged.
    pub fn is_finished(&self) -> bool {
        self.0.is_handshake_finished()
    }

    /// Returns this side's next record, with its length in front.
    pub fn write(&mut self) -> io::Result<Vec<u8>> {
        let mut record = vec![0; LENGTH_BYTES + HANDSHAKE_BYTES_MAX];
        let length = self.0.write_message(&[], &mut record[LENGTH_BYTES..]).map_err(failed)?;
        record.truncate(LENGTH_BYTES + length);
        record[..LENGTH_BYTES].copy_from_slice(&(length as u16).to_be_bytes());
        Ok(record)
    }

    /// Processes the peer's record (without its length).
    pub fn read(&mut self, message: &[u8]) -> io::Result<()> {
        let mut payload = [0; HANDSHAKE_BYTES_MAX];
        let length = self.0.read_message(message, &mut payload).map_err(failed)?;
        if length == 0 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Returns the peer's public key; None: it was not received yet.
    pub(crate) fn theirs(&self) -> Option<PublicKey> {
        self.0.get_remote_static()?.try_into().ok()
    }

    /// Returns the ciphers for the records after the handshake.
    pub fn finish(self) -> io::Result<(Sealer, Opener)> {
        let state = Arc::new(self.0.into_stateless_transport_mode().map_err(failed)?);
        Ok((Sealer { state: Arc::clone(&state), count: 0 }, Opener { state, count: 0 }))
    }
}

/// Returns the mark of a first message: only callers that know the callee's key can make it. It proves nothing, but
/// lets the callee refuse strangers before it calculates with keys, as `mac1` does in WireGuard.
fn mark(message: &[u8], callee: &PublicKey) -> [u8; MARK_BYTES] {
    let key = blake3::derive_key("squall 2026 mark of a first message", callee);
    let mut mark = [0; MARK_BYTES];
    mark.copy_from_slice(&blake3::keyed_hash(&key, message).as_bytes()[..MARK_BYTES]);
    mark
}

/// Adds the mark for `callee` to the first record of a call. Releases before this one hang up at it.
pub(crate) fn add_mark(record: &mut Vec<u8>, callee: &PublicKey) {
    let mark = mark(&record[LENGTH_BYTES..], callee);
    record.extend(mark);
    let length = (record.len() - LENGTH_BYTES) as u16;
    record[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// Returns a first message without its mark. None: it has none for the key `own`.
pub(crate) fn without_mark<'a>(message: &'a [u8], own: &PublicKey) -> Option<&'a [u8]> {
    let (message, given) = message.split_last_chunk::<MARK_BYTES>()?;
    (mark(message, own) == *given).then_some(message)
}

/// Derives the secret of a step from its cookie.
fn secret(cookie: [u8; 16]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(blake3::derive_key("squall 2026 stdio of a step", &cookie))
}

/// Returns the length of the first record in `bytes`, without the length field. None: the length field is incomplete.
pub(crate) fn record_bytes(bytes: &[u8], most: usize) -> io::Result<Option<usize>> {
    let Some(head) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*head));
    if (TAG_BYTES..=most).contains(&length) { Ok(Some(length)) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Encrypts bytes into records.
pub struct Sealer {
    state: Arc<StatelessTransportState>,
    /// Records so far: each is encrypted with its number, so none can be left out, repeated or moved.
    count: u64,
}

/// Decrypts the peer's records.
pub struct Opener {
    state: Arc<StatelessTransportState>,
    count: u64,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("count", &self.count).finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Appends `plain` to `out` as encrypted records.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        for part in plain.chunks(PLAIN_BYTES_MAX) {
            let start = out.len();
            out.resize(start + LENGTH_BYTES + part.len() + TAG_BYTES, 0);
            let length =
                self.state.write_message(self.count, part, &mut out[start + LENGTH_BYTES..]).map_err(failed)?;
            out[start..start + LENGTH_BYTES].copy_from_slice(&(length as u16).to_be_bytes());
            self.count += 1;
        }
        Ok(())
    }
}

impl Opener {
    /// Decrypts the first record of `sealed` and appends its content to `out`; returns how many bytes the record took.
    /// None: it is not complete yet.
    pub fn open(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let Some(length) = record_bytes(sealed, RECORD_BYTES_MAX)? else { return Ok(None) };
        let Some(record) = sealed.get(LENGTH_BYTES..LENGTH_BYTES + length) else { return Ok(None) };
        let start = out.len();
        out.resize(start + length, 0);
        let plain = self.state.read_message(self.count, record, &mut out[start..]).map_err(failed)?;
        out.truncate(start + plain);
        self.count += 1;
        Ok(Some(LENGTH_BYTES + length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{
        HANDSHAKE_BYTES_MAX, Handshake, KeyPair, LENGTH_BYTES, Opener, Sealer, add_mark, record_bytes, without_mark,
    };

    fn meet(mut caller: Handshake, mut called: Handshake) -> ((Sealer, Opener), (Sealer, Opener)) {
        called.read(&caller.write().unwrap()[LENGTH_BYTES..]).unwrap();
        caller.read(&called.write().unwrap()[LENGTH_BYTES..]).unwrap();
        assert!(caller.is_finished() && called.is_finished());
        (caller.finish().unwrap(), called.finish().unwrap())
    }

    fn daemons() -> ((Sealer, Opener), (Sealer, Opener)) {
        let (a, b) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (caller, called) = (Handshake::call(&a, &b.public).unwrap(), Handshake::answer(&b).unwrap());
        meet(caller, called)
    }

    fn open_all(opener: &mut Opener, mut sealed: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        while let Some(length) = opener.open(sealed, &mut plain)? {
            sealed = &sealed[length..];
        }
        Ok(plain)
    }

    #[test]
    fn each_side_learns_the_others_key_and_hears_what_it_says() {
        let (a, b) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (mut caller, mut called) = (Handshake::call(&a, &b.public).unwrap(), Handshake::answer(&b).unwrap());
        called.read(&caller.write().unwrap()[LENGTH_BYTES..]).unwrap();
        assert_eq!(called.theirs(), Some(a.public));
        caller.read(&called.write().unwrap()[LENGTH_BYTES..]).unwrap();
        let ((mut say, _), (_, mut hear)) = (caller.finish().unwrap(), called.finish().unwrap());
        let said: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let mut sealed = Vec::new();
        say.seal(&said, &mut sealed).unwrap();
        assert_eq!(open_all(&mut hear, &sealed).unwrap(), said);
    }

    #[test]
    fn a_first_message_is_marked_for_the_key_that_is_called() {
        let (a, b) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut first = Handshake::call(&a, &b.public).unwrap().write().unwrap();
        let plain = first[LENGTH_BYTES..].to_vec();
        assert_eq!(without_mark(&plain, &b.public), None);
        add_mark(&mut first, &b.public);
        assert_eq!(record_bytes(&first, HANDSHAKE_BYTES_MAX).unwrap(), Some(plain.len() + 16));
        let marked = &first[LENGTH_BYTES..];
        assert_eq!((without_mark(marked, &b.public), without_mark(marked, &a.public)), (Some(&plain[..]), None));
        assert!(Handshake::answer(&b).unwrap().read(marked).is_err(), "a release before hangs up");
    }

    #[test]
    fn who_has_not_the_key_that_was_called_is_not_spoken_with() {
        let [a, b, thief] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let mut caller = Handshake::call(&a, &b.public).unwrap();
        assert!(Handshake::answer(&thief).unwrap().read(&caller.write().unwrap()[LENGTH_BYTES..]).is_err());
    }

    #[test]
    fn cve_2022_29500_a_replayed_handshake_leads_nowhere() {
        let (a, b) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut caller = Handshake::call(&a, &b.public).unwrap();
        let first = caller.write().unwrap();
        let mut called = Handshake::answer(&b).unwrap();
        called.read(&first[LENGTH_BYTES..]).unwrap();
        caller.read(&called.write().unwrap()[LENGTH_BYTES..]).unwrap();
        let (mut say, _) = caller.finish().unwrap();
        let mut said = Vec::new();
        say.seal(b"hello", &mut said).unwrap();
        // Everything that was on the wire is sent again.
        let mut again = Handshake::answer(&b).unwrap();
        again.read(&first[LENGTH_BYTES..]).unwrap();
        again.write().unwrap();
        let (_, mut hear) = again.finish().unwrap();
        assert!(hear.open(&said, &mut Vec::new()).is_err());
    }

    #[test]
    fn cve_2023_49933_2023_49935_records_cannot_be_changed_moved_or_repeated() {
        let ((mut say, _), (_, mut hear)) = daemons();
        let (mut one, mut two) = (Vec::new(), Vec::new());
        say.seal(b"one", &mut one).unwrap();
        say.seal(b"two", &mut two).unwrap();
        assert!(hear.open(&two, &mut Vec::new()).is_err());
        let mut plain = Vec::new();
        assert_eq!(hear.open(&one, &mut plain).unwrap(), Some(one.len()));
        assert!(hear.open(&one, &mut plain).is_err());
        let last = two.len() - 1;
        two[last] ^= 1;
        assert!(hear.open(&two, &mut plain).is_err());
    }

    #[test]
    fn a_steps_cookie_must_be_the_same() {
        let (mut say, _) = meet(Handshake::call_with([7; 16]).unwrap(), Handshake::answer_with([7; 16]).unwrap()).0;
        say.seal(b"x", &mut Vec::new()).unwrap();
        let mut caller = Handshake::call_with([7; 16]).unwrap();
        let mut called = Handshake::answer_with([8; 16]).unwrap();
        assert!(called.read(&caller.write().unwrap()[LENGTH_BYTES..]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_and_never_a_panic(bytes in vec(any::<u8>(), 0..400)) {
            let keys = KeyPair::generate().unwrap();
            prop_assert!(Handshake::answer(&keys).unwrap().read(&bytes).is_err());
            prop_assert!(Handshake::call(&keys, &keys.public).unwrap().read(&bytes).is_err());
            prop_assert!(Handshake::answer_with([0; 16]).unwrap().read(&bytes).is_err());
            let (_, (_, mut hear)) = daemons();
            let mut plain = Vec::new();
            // At most an incomplete record.
            prop_assert!(!matches!(hear.open(&bytes, &mut plain), Ok(Some(_))));
            prop_assert!(plain.len() <= 1 << 16);
        }

        #[test]
        fn one_changed_byte_is_an_error(said in vec(any::<u8>(), 1..300), at in any::<proptest::sample::Index>(), flip in 1_u8..) {
            let ((mut say, _), (_, mut hear)) = daemons();
            let mut sealed = Vec::new();
            say.seal(&said, &mut sealed).unwrap();
            let at = at.index(sealed.len());
            sealed[at] ^= flip;
            prop_assert!(!matches!(hear.open(&sealed, &mut Vec::new()), Ok(Some(_))));
            prop_assert_eq!(said.is_empty(), false);
        }
    }
}
