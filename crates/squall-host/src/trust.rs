//! Keys and invitations by which daemons of other machines are authenticated, in `DIR/keys`, which only the cluster's
//! owner can read. No secret here gives access to more than one peer: a machine has its own key, and the controller's
//! public one.
//!
//! On the controller's machine: `controller` (its key), `nodes/NAME` (the public key of a node, stored when it first
//! joined with an invitation), `addresses/NAME` (where it listens), `tokens/HASH` (invitations; the secret itself is
//! not stored). On a machine that has joined: `own` (its key) and `joined` (the controller that it has joined, and its
//! node name).
//!
//! Trust is not part of the journal: it is needed before a daemon may send anything, and revoking it must not need a
//! running controller.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use squall_files::durable;
use squall_files::place::Place;
use squall_model::hostlist::is_name;
use squall_model::job::Digest;
use squall_model::wire::join::{Peer, PublicKey};

use crate::noise::KeyPair;

/// Length of an invitation's secret, bytes.
const SECRET_BYTES: usize = 16;

/// The keys in one state folder.
#[derive(Clone, Debug)]
pub struct Trust {
    folder: PathBuf,
}

/// The controller that this machine has joined, and its node name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Name of this machine's node in the cluster.
    pub name: String,
    /// Address on which the controller listens: `HOST:PORT`.
    pub controller: String,
    /// The controller's public key.
    pub key: PublicKey,
}

/// An invitation for one machine to join, used once: printed on the controller's machine, and brought to the other
/// machine by a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The controller's public key, by which the machine authenticates the controller.
    pub controller: PublicKey,
    /// Secret by which the controller authenticates the machine.
    pub secret: [u8; SECRET_BYTES],
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.controller))?;
        f.write_str(&hex(&self.secret))
    }
}

impl Token {
    /// Parses a printed invitation; None: the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = unhex(text.trim())?;
        let (controller, secret) = bytes.split_at_checked(32)?;
        Some(Self { controller: controller.try_into().ok()?, secret: secret.try_into().ok()? })
    }
}

impl Trust {
    /// Returns the keys in the state folder `place`, which is that of a controller or of a machine that has joined a
    /// cluster.
    pub fn of(place: &Place) -> Self {
        Self { folder: place.keys() }
    }

    /// Returns the controller's key pair; makes it when first needed.
    pub fn controller_key(&self) -> io::Result<KeyPair> {
        self.key("controller")
    }

    /// Returns the key pair of a machine that has joined (None), or of a node on the controller's machine (its name).
    pub(crate) fn own_key(&self, name: Option<&str>) -> io::Result<KeyPair> {
        match name {
            None => self.key("own"),
            Some(name) => self.key(&format!("own-{}", safe(name)?)),
        }
    }

    fn key(&self, file: &str) -> io::Result<KeyPair> {
        let path = self.folder.join(file);
        if !path.exists() {
            match self.keep_new(&path, &KeyPair::generate()?.to_bytes()) {
                // Another process has made the key at the same time: that one is used.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                kept => kept?,
            }
        }
        KeyPair::from_bytes(&fs::read(&path)?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{} is no key", path.display())))
    }

    /// Returns key and address of a node. None: the node has no key.
    pub(crate) fn peer(&self, name: &str) -> io::Result<Option<Peer>> {
        let name = safe(name)?;
        let Some(key) = read(&self.folder.join("nodes").join(name))? else { return Ok(None) };
        let key = unhex(key.trim()).and_then(|key| key.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let address = read(&self.folder.join("addresses").join(name))?.unwrap_or_default().trim().to_owned();
        Ok(Some(Peer { key, address }))
    }

    /// Whether `key` is the trusted key of the node `name`.
    pub(crate) fn knows(&self, name: &str, key: &PublicKey) -> bool {
        matches!(self.peer(name), Ok(Some(peer)) if peer.key == *key)
    }

    /// Makes an invitation for a node, valid for `valid_s` seconds: the machine that brings the secret becomes the
    /// node, once. Err of kind `AlreadyExists`: a machine has become it already.
    pub fn invite(&self, name: &str, now_s: u64, valid_s: u64) -> io::Result<Token> {
        let name = safe(name)?;
        if self.peer(name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.withdraw_invitations(|invited, until| invited == name || until <= now_s)?;
        let mut secret = [0; SECRET_BYTES];
        io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut secret)?;
        self.keep_new(&self.token_file(&secret), format!("{name} {}\n", now_s + valid_s).as_bytes())?;
        Ok(Token { controller: self.controller_key()?.public, secret })
    }

    /// Enrols a machine as the node `name`, durably. Err: it is refused, with the reason. An invitation is valid until
    /// a machine has used it: a node has one key only.
    pub(crate) fn enrol(&self, name: &str, key: &PublicKey, secret: &[u8], now_s: u64) -> Result<(), String> {
        let failed = |e: io::Error| format!("the controller can't keep keys: {e}");
        let name = safe(name).map_err(|_| format!("`{name}` can't be the name of a node"))?;
        if self.knows(name, key) {
            return Ok(());
        }
        let unknown = || format!("the token does not hold for node {name}: unknown, used, or too old");
        let text = read(&self.token_file(secret)).map_err(failed)?.ok_or_else(unknown)?;
        let (invited, until) = invitation(&text).ok_or_else(unknown)?;
        if invited != name || until <= now_s {
            return Err(unknown());
        }
        let kept = self.keep_new(&self.folder.join("nodes").join(name), format!("{}\n", hex(key)).as_bytes());
        match kept {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(unknown()),
            kept => kept.map_err(failed)?,
        }
        self.withdraw_invitations(|invited, _| invited == name).map_err(failed)
    }

    /// Stores the key of a node on the controller's machine, which needs no invitation.
    pub(crate) fn own_node(&self, name: &str, key: &PublicKey) -> io::Result<()> {
        if self.knows(name, key) {
            return Ok(());
        }
        self.keep(&self.folder.join("nodes").join(safe(name)?), format!("{}\n", hex(key)).as_bytes())
    }

    /// Stores the address on which a node listens.
    pub(crate) fn note_address(&self, name: &str, address: &str) -> io::Result<()> {
        let path = self.folder.join("addresses").join(safe(name)?);
        if read(&path)?.is_some_and(|known| known.trim() == address) {
            return Ok(());
        }
        self.keep(&path, format!("{address}\n").as_bytes())
    }

    /// Revokes a node's key, and all invitations to become this node. False: the node had no key.
    pub fn revoke(&self, name: &str) -> io::Result<bool> {
        let name = safe(name)?;
        self.withdraw_invitations(|invited, _| invited == name)?;
        let nodes = self.folder.join("nodes");
        match fs::remove_file(nodes.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            removed => removed?,
        }
        durable::sync_folder(&nodes.join(name))?;
        Ok(true)
    }

    /// Returns the controller that this machine has joined. None: it has joined none.
    pub fn joined(&self) -> io::Result<Option<Joined>> {
        let Some(text) = read(&self.folder.join("joined"))? else { return Ok(None) };
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or(io::ErrorKind::InvalidData);
        let (name, controller, key) = (next()?.to_owned(), next()?.to_owned(), next()?);
        let key = unhex(key).and_then(|key| key.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Joined { name, controller, key }))
    }

    /// Stores the controller that this machine has joined.
    pub(crate) fn note_joined(&self, joined: &Joined) -> io::Result<()> {
        let text = format!("{} {} {}\n", joined.name, joined.controller, hex(&joined.key));
        self.keep(&self.folder.join("joined"), text.as_bytes())
    }

    fn token_file(&self, secret: &[u8]) -> PathBuf {
        self.folder.join("tokens").join(Digest::of(secret).to_string())
    }

    /// Removes the invitations for which `which` is true. Several processes may do so at once: one that is missing
    /// counts as removed.
    fn withdraw_invitations(&self, mut which: impl FnMut(&str, u64) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(self.folder.join("tokens")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // A temporary file that is being written.
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            let Some(text) = read(&path)? else { continue };
            if invitation(&text).is_none_or(|(name, until)| which(name, until)) {
                match fs::remove_file(path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    /// Writes a new file, durably. Err of kind `AlreadyExists`: the file exists.
    fn keep_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_folder_of(path)?;
        durable::create(path, bytes, 0o600)
    }

    /// Writes a file, durably, replacing an existing one.
    fn keep(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_folder_of(path)?;
        durable::write(path, bytes, 0o600)
    }

    fn make_folder_of(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(&self.folder))
    }
}

/// Checks that a node's name is safe as a file name.
fn safe(name: &str) -> io::Result<&str> {
    let plain = is_name(name) && !name.starts_with('.') && !name.contains(['/', '\0']);
    if plain { Ok(name) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Parses a stored invitation: the node's name, and the end of validity (seconds since 1970). None: the text is not
/// one.
fn invitation(text: &str) -> Option<(&str, u64)> {
    let (name, until) = text.trim().split_once(' ')?;
    Some((name, until.parse().ok()?))
}

/// Reads a small text file. None: it does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| if let [a, b] = pair { Some(digit(*a)? << 4 | digit(*b)?) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Joined, Token, Trust};
    use squall_files::place::Place;

    struct Folder(Trust);

    impl Folder {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("squall-trust-{name}-{}", std::process::id()));
            drop(std::fs::remove_dir_all(&dir));
            Self(Trust::of(&Place::at(&dir).unwrap()))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(self.0.folder.parent().unwrap()));
        }
    }

    #[test]
    fn an_invitation_is_taken_up_once_by_whom_it_is_for_and_in_time() {
        let folder = Folder::new("once");
        let trust = &folder.0;
        let token = trust.invite("n2", 100, 60).unwrap();
        assert_eq!(Token::parse(&token.to_string()), Some(token.clone()));
        let (mine, other) = ([1; 32], [2; 32]);
        assert!(trust.enrol("n3", &mine, &token.secret, 110).is_err());
        assert!(trust.enrol("n2", &mine, &[0; 16], 110).is_err());
        assert!(trust.enrol("n2", &mine, &token.secret, 160).is_err());
        assert!(!trust.knows("n2", &mine));
        trust.enrol("n2", &mine, &token.secret, 110).unwrap();
        assert!(trust.knows("n2", &mine) && !trust.knows("n2", &other) && !trust.knows("n3", &mine));
        // The answer got lost, so the same machine asks again. Another machine is late.
        trust.enrol("n2", &mine, &token.secret, 110).unwrap();
        assert!(trust.enrol("n2", &other, &token.secret, 110).is_err());
        assert!(trust.invite("n2", 120, 60).is_err());
    }

    #[test]
    fn a_newer_invitation_replaces_the_one_before_and_a_revoked_node_is_unknown() {
        let folder = Folder::new("revoke");
        let trust = &folder.0;
        let old = trust.invite("n2", 100, 60).unwrap();
        let new = trust.invite("n2", 100, 60).unwrap();
        assert!(trust.enrol("n2", &[1; 32], &old.secret, 110).is_err());
        trust.enrol("n2", &[1; 32], &new.secret, 110).unwrap();
        trust.note_address("n2", "10.0.0.2:6818").unwrap();
        assert_eq!(trust.peer("n2").unwrap().unwrap().address, "10.0.0.2:6818");
        assert!(trust.revoke("n2").unwrap() && !trust.revoke("n2").unwrap());
        assert!(!trust.knows("n2", &[1; 32]));
        assert!(trust.enrol("n2", &[1; 32], &new.secret, 110).is_err());
    }

    #[test]
    fn an_invitation_that_another_machine_withdraws_meanwhile_is_withdrawn() {
        let folder = Folder::new("at-once");
        let trust = &folder.0;
        for name in ["n1", "n2", "n3"] {
            trust.invite(name, 100, 60).unwrap();
        }
        let mut asked = 0;
        let tokens = trust.folder.join("tokens");
        // All files are removed between the reading of the first one and its removal.
        let which = |_: &str, _| {
            asked += 1;
            for file in std::fs::read_dir(&tokens).unwrap() {
                std::fs::remove_file(file.unwrap().path()).unwrap();
            }
            true
        };
        trust.withdraw_invitations(which).unwrap();
        assert_eq!(asked, 1);
    }

    #[test]
    fn a_key_that_several_need_at_once_is_one_key() {
        for round in 0..20 {
            let folder = Folder::new(&format!("one-key-{round}"));
            let (trust, together) = (&folder.0, &std::sync::Barrier::new(8));
            let keys: Vec<_> = std::thread::scope(|scope| {
                let needs = || {
                    together.wait();
                    trust.controller_key().unwrap().to_bytes()
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(needs)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
        }
    }

    #[test]
    fn names_lead_nowhere_else_and_nobody_else_reads_keys() {
        let folder = Folder::new("names");
        let trust = &folder.0;
        for name in ["../controller", "a/b", "..", "", ".draft", "n[1-2]"] {
            assert!(trust.peer(name).is_err() && trust.invite(name, 0, 60).is_err(), "{name}");
        }
        trust.controller_key().unwrap();
        assert_eq!(trust.controller_key().unwrap().to_bytes(), trust.controller_key().unwrap().to_bytes());
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(trust.folder.clone()), mode(trust.folder.join("controller"))), (0o700, 0o600));
    }

    #[test]
    fn what_was_joined_is_remembered() {
        let folder = Folder::new("joined");
        assert_eq!(folder.0.joined().unwrap(), None);
        let joined = Joined { name: "n2".into(), controller: "head:6817".into(), key: [7; 32] };
        folder.0.note_joined(&joined).unwrap();
        assert_eq!(folder.0.joined().unwrap(), Some(joined));
    }
}
