//! What strangers on the network send: datagrams, handshakes, tokens.

use std::path::PathBuf;
use std::sync::OnceLock;

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::Value;
use squall_files::place::Place;
use squall_host::noise::{Handshake, KeyPair, LENGTH_BYTES, Opener, Sealer};
use squall_host::trust::Token;
use squall_host::untrusted;

const KEY: [u8; 32] = [3; 32];

/// A datagram of a stream; sealed with the stream's key if its first byte is even, so that what is in it is reached.
pub(crate) fn datagram(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let mut datagram = bytes.to_vec();
    if kind % 2 == 1 {
        untrusted::datagram(9, KEY, &mut datagram);
        return;
    }
    let at = u64::from(*kind) << 20;
    let all = untrusted::datagrams(9, KEY, at, bytes);
    if let [one] = &all[..] {
        assert_eq!(untrusted::datagram(9, KEY, &mut one.clone()), Some((at, bytes.to_vec())));
    }
    for mut one in all.into_iter().take(4) {
        let place = bytes.len() % one.len();
        one[place] ^= 1;
        assert_eq!(untrusted::datagram(9, KEY, &mut one), None, "a changed datagram is as if lost");
    }
}

fn met() -> (Sealer, Opener) {
    let (mut caller, mut called) = (Handshake::call_with([7; 16]).unwrap(), Handshake::answer_with([7; 16]).unwrap());
    called.read(&caller.write().unwrap()[LENGTH_BYTES..]).unwrap();
    caller.read(&called.write().unwrap()[LENGTH_BYTES..]).unwrap();
    (caller.finish().unwrap().0, called.finish().unwrap().1)
}

/// The first message of a handshake, or a record after one.
pub(crate) fn noise(bytes: &[u8]) {
    static DAEMON: OnceLock<KeyPair> = OnceLock::new();
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => {
            let key = DAEMON.get_or_init(|| KeyPair::generate().unwrap());
            assert!(untrusted::handshake(key, bytes).is_err(), "a stranger does not know the key");
        }
        1 => assert!(Handshake::answer_with([7; 16]).unwrap().read(bytes).is_err()),
        2 => {
            let mut plain = Vec::new();
            assert!(!matches!(met().1.open(bytes, &mut plain), Ok(Some(_))), "forged");
        }
        _ => {
            let ((mut say, mut hear), mut sealed, mut plain) = (met(), Vec::new(), Vec::new());
            say.seal(bytes, &mut sealed).unwrap();
            let mut rest = &sealed[..];
            while let Some(taken) = hear.open(rest, &mut plain).unwrap() {
                rest = &rest[taken..];
            }
            assert_eq!(plain, bytes);
        }
    }
}

/// Tokens of users (JWT) and of machines. A user's claims are signed with the right key if the first byte is even.
pub(crate) fn token(bytes: &[u8]) {
    static PLACE: OnceLock<Place> = OnceLock::new();
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    if let Some(token) = Token::parse(&text) {
        assert_eq!(Token::parse(&token.to_string()), Some(token));
    }
    let place = PLACE.get_or_init(|| {
        let place = Place::at(&folder("token")).unwrap();
        std::fs::create_dir_all(place.keys()).unwrap();
        std::fs::write(place.keys().join("jwt_hs256.key"), KEY).unwrap();
        place
    });
    if kind % 2 == 1 {
        assert!(untrusted::bearer(place, &text).is_err(), "nobody signs by chance");
    } else if let Ok(claims) = serde_json::from_slice::<Value>(bytes) {
        let token = encode(&Header::default(), &claims, &EncodingKey::from_secret(&KEY)).unwrap();
        drop(untrusted::bearer(place, &token));
    }
}

/// An empty folder of this process in memory.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(format!("/dev/shm/squall-fuzz-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
