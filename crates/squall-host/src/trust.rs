//! Keys and invitations by which daemons of other machines are authenticated, in `DIR/keys`, which only the cluster's
//! owner can read. No secret here gives access to more than one peer: a machine has its own key, and the controller's
//! public one.
//!
//! On a controller's machine: `controller` (the key, which all controllers of a cluster have), `nodes/NAME` (the public key of a node, stored when it first
//! joined with an invitation), `addresses/NAME` (where it listens), `logins/NAME` (the public key of a login host, and
//! whose commands it may send), `tokens/HASH` (invitations; the secret itself is not stored). On a machine that has
//! joined: `own` (its key) and `joined` (the controller that it has joined, its name, and what it is there).
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

/// The cluster that this machine has joined: its controllers, and the machine's name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Name of this machine in the cluster.
    pub name: String,
    /// Addresses on which the controllers listen, each `HOST:PORT`; as a rule one.
    pub controllers: Vec<String>,
    /// The controllers' public key: all of a cluster have the same.
    pub key: PublicKey,
    /// Whether this machine is a login host. Otherwise it is a node.
    pub login: bool,
}

impl Joined {
    /// Returns the addresses of the controllers, for messages and files: `HOST:PORT,HOST:PORT`.
    pub fn addresses(&self) -> String {
        self.controllers.join(",")
    }

    /// Reads addresses of controllers, separated by commas.
    pub fn addresses_of(text: &str) -> Vec<String> {
        text.split(',').map(str::trim).filter(|address| !address.is_empty()).map(str::to_owned).collect()
    }
}

/// What a machine becomes by an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node.
    Node,
    /// A login host, which sends commands of its users.
    Login(Login),
    /// A further controller.
    Controller,
}

/// What a machine wants to become by an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A node.
    Node,
    /// A login host.
    Login,
    /// A further controller.
    Controller,
}

impl std::fmt::Display for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Login => "login host",
            Self::Controller => "controller",
        })
    }
}

impl Part {
    /// Returns what a machine with this part has to ask for.
    fn wish(self) -> Wish {
        match self {
            Self::Node => Wish::Node,
            Self::Login(_) => Wish::Login,
            Self::Controller => Wish::Controller,
        }
    }

    /// Returns the command by which a machine takes up this part.
    pub fn command(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Login(_) => "login",
            Self::Controller => "controller",
        }
    }
}

/// Whose commands a login host may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// Whether all users of that machine are trusted, root and system users included. Otherwise only users from
    /// `min_uid` on.
    pub allow_root: bool,
}

/// What a machine with a trusted key may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Whether it may be a node, and ask for keys and addresses of nodes.
    pub(crate) node: bool,
    /// Whose commands it may send, in jobs and outside. None: of users with a job there.
    pub(crate) login: Option<Login>,
    /// Whether it is another controller of the cluster.
    pub(crate) controller: bool,
}

impl Rights {
    /// What another controller of the cluster may do: to connect nodes of its machine, and to send commands of anybody.
    pub(crate) const CONTROLLER: Self = Self { node: true, login: Some(Login { allow_root: true }), controller: true };

    /// Whether the machine is trusted in anything.
    pub(crate) fn any(self) -> bool {
        self.node || self.login.is_some()
    }
}

/// A machine with a key or an invitation, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The machine's name.
    pub name: String,
    /// What it is, or is invited to be.
    pub part: Part,
    /// Address on which it listens, `ADDRESS:PORT`. Empty: it does not listen.
    pub address: String,
    /// End of its invitation, seconds since 1970. None: it has joined.
    pub invited_until_s: Option<u64>,
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

    /// Returns what the machine `name` with this key may do.
    pub(crate) fn rights(&self, name: &str, key: &PublicKey) -> Rights {
        let login = self.login(name).ok().flatten().filter(|(known, _)| known == key).map(|(_, login)| login);
        Rights { node: self.knows(name, key), login, controller: false }
    }

    /// Returns the key of a login host, and whose commands it may send. None: it is none.
    fn login(&self, name: &str) -> io::Result<Option<(PublicKey, Login)>> {
        let Some(text) = read(&self.folder.join("logins").join(safe(name)?))? else { return Ok(None) };
        let mut words = text.split_whitespace();
        let key = words.next().and_then(unhex).and_then(|key| key.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((key, Login { allow_root: words.next() == Some(ROOT) })))
    }

    /// Lets a machine that has joined already, as a node or a login host, send commands of its users. False: no such
    /// machine has joined.
    pub fn grant(&self, name: &str, login: Login) -> io::Result<bool> {
        let name = safe(name)?;
        let key = self.login(name)?.map(|(key, _)| key).or(self.peer(name)?.map(|peer| peer.key));
        let Some(key) = key else { return Ok(false) };
        self.keep(&self.folder.join("logins").join(name), login_text(&key, login).as_bytes())?;
        Ok(true)
    }

    /// Makes an invitation for a machine, valid for `valid_s` seconds: the machine that brings the secret takes the
    /// name and the part, once. Err of kind `AlreadyExists`: a machine has taken the name already.
    pub fn invite(&self, name: &str, part: Part, now_s: u64, valid_s: u64) -> io::Result<Token> {
        let name = safe(name)?;
        // A controller may be on the machine of a node.
        if part != Part::Controller && (self.peer(name)?.is_some() || self.login(name)?.is_some()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.withdraw_invitations(|invited| invited.name == name || invited.until_s <= now_s)?;
        let mut secret = [0; SECRET_BYTES];
        io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut secret)?;
        let part = match part {
            Part::Node => String::new(),
            Part::Login(Login { allow_root: false }) => format!(" {LOGIN}"),
            Part::Login(Login { allow_root: true }) => format!(" {LOGIN} {ROOT}"),
            Part::Controller => format!(" {CONTROLLER}"),
        };
        let until_s = now_s.saturating_add(valid_s);
        self.keep_new(&self.token_file(&secret), format!("{name} {until_s}{part}\n").as_bytes())?;
        Ok(Token { controller: self.controller_key()?.public, secret })
    }

    /// Enrols a machine under this name, durably. Err: it is refused, with the reason. An invitation is valid until a
    /// machine has used it: a name has one key only. A controller's key is not stored, as it gets that of all.
    pub(crate) fn enrol(
        &self,
        name: &str,
        key: &PublicKey,
        (secret, wish): (&[u8], Wish),
        now_s: u64,
    ) -> Result<(), String> {
        let failed = |e: io::Error| format!("the controller can't keep keys: {e}");
        let name = safe(name).map_err(|_| format!("`{name}` can't be the name of a machine"))?;
        let known = self.rights(name, key);
        match wish {
            Wish::Node if known.node => return Ok(()),
            Wish::Login if known.login.is_some() => return Ok(()),
            _ => {}
        }
        let unknown = || format!("the token does not hold for {wish} {name}: unknown, used, or too old");
        let text = read(&self.token_file(secret)).map_err(failed)?.ok_or_else(unknown)?;
        let invited = Invitation::parse(&text).ok_or_else(unknown)?;
        if invited.name != name || invited.until_s <= now_s {
            return Err(unknown());
        }
        let part = invited.part;
        if part.wish() != wish {
            return Err(format!("the token makes {name} a {}: use `squall {}`", part.wish(), part.command()));
        }
        let kept = match part {
            Part::Node => Some(("nodes", format!("{}\n", hex(key)))),
            Part::Login(rights) => Some(("logins", login_text(key, rights))),
            Part::Controller => None,
        };
        if let Some((folder, text)) = kept {
            match self.keep_new(&self.folder.join(folder).join(name), text.as_bytes()) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(unknown()),
                kept => kept.map_err(failed)?,
            }
        }
        self.withdraw_invitations(|invited| invited.name == name).map_err(failed)
    }

    /// Returns all files that a further controller needs, each by its path below the folder of keys.
    pub(crate) fn for_controller(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        self.controller_key()?;
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for name in files(&self.folder.join(&folder))? {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                // Keys of this machine's nodes stay here.
                if path.starts_with(OWN) || path == JOINED {
                    continue;
                }
                if self.folder.join(&path).is_dir() {
                    folders.push(path);
                } else {
                    let bytes = fs::read(self.folder.join(&path))?;
                    found.push((path, bytes));
                }
            }
        }
        Ok(found)
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

    /// Revokes a machine's key as a node and as a login host, and all invitations under this name. False: it had no key.
    pub fn revoke(&self, name: &str) -> io::Result<bool> {
        let name = safe(name)?;
        self.withdraw_invitations(|invited| invited.name == name)?;
        let (node, login) = (self.remove("nodes", name)?, self.remove("logins", name)?);
        Ok(node || login)
    }

    /// Ends what a machine may do as a login host; a node stays a node. False: it was no login host.
    pub fn revoke_login(&self, name: &str) -> io::Result<bool> {
        let name = safe(name)?;
        self.withdraw_invitations(|invited| invited.name == name && matches!(invited.part, Part::Login(_)))?;
        self.remove("logins", name)
    }

    /// Removes the file of a machine from a folder of keys, durably. False: there was none.
    fn remove(&self, folder: &str, name: &str) -> io::Result<bool> {
        let path = self.folder.join(folder).join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            removed => removed?,
        }
        durable::sync_folder(&path)?;
        Ok(true)
    }

    /// Returns all machines with keys, by name, and those that are invited at the time `now_s`. A node that is a login
    /// host too is listed as both.
    pub fn list(&self, now_s: u64) -> io::Result<Vec<Listed>> {
        let mut all = Vec::new();
        for name in files(&self.folder.join("nodes"))? {
            let address = self.peer(&name)?.map(|peer| peer.address).unwrap_or_default();
            all.push(Listed { name, part: Part::Node, address, invited_until_s: None });
        }
        for name in files(&self.folder.join("logins"))? {
            let Some((_, login)) = self.login(&name)? else { continue };
            all.push(Listed { name, part: Part::Login(login), address: String::new(), invited_until_s: None });
        }
        for file in files(&self.folder.join("tokens"))? {
            let Some(text) = read(&self.folder.join("tokens").join(file))? else { continue };
            let Some(Invitation { name, until_s, part }) = Invitation::parse(&text) else { continue };
            if until_s > now_s {
                let (name, address) = (name.to_owned(), String::new());
                all.push(Listed { name, part, address, invited_until_s: Some(until_s) });
            }
        }
        all.sort_by(|a, b| (&a.name, a.part != Part::Node).cmp(&(&b.name, b.part != Part::Node)));
        Ok(all)
    }

    /// Returns the cluster that this machine has joined. None: it has joined none.
    pub fn joined(&self) -> io::Result<Option<Joined>> {
        let Some(text) = read(&self.folder.join(JOINED))? else { return Ok(None) };
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or(io::ErrorKind::InvalidData);
        let (name, controllers, key) = (next()?.to_owned(), Joined::addresses_of(next()?), next()?);
        let key = unhex(key).and_then(|key| key.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Joined { name, controllers, key, login: words.next() == Some(LOGIN) }))
    }

    /// Stores the controllers that this machine has joined.
    pub(crate) fn note_joined(&self, joined: &Joined) -> io::Result<()> {
        let part = if joined.login { format!(" {LOGIN}") } else { String::new() };
        let text = format!("{} {} {}{part}\n", joined.name, joined.addresses(), hex(&joined.key));
        self.keep(&self.folder.join(JOINED), text.as_bytes())
    }

    fn token_file(&self, secret: &[u8]) -> PathBuf {
        self.folder.join("tokens").join(Digest::of(secret).to_string())
    }

    /// Removes the invitations for which `which` is true. Several processes may do so at once: one that is missing
    /// counts as removed.
    fn withdraw_invitations(&self, mut which: impl FnMut(&Invitation<'_>) -> bool) -> io::Result<()> {
        let tokens = self.folder.join("tokens");
        for file in files(&tokens)? {
            let path = tokens.join(file);
            let Some(text) = read(&path)? else { continue };
            // One that this release does not understand is left alone.
            if Invitation::parse(&text).is_some_and(|invited| which(&invited)) {
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

    /// Returns the content of a file in the folder of keys, named by its folders and its name. None: there is none.
    pub(crate) fn read(&self, path: &[&str]) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path(path)?) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Creates a file in the folder of keys, durably. Err of kind `AlreadyExists`: there is one of this name.
    pub(crate) fn create(&self, path: &[&str], bytes: &[u8]) -> io::Result<()> {
        self.keep_new(&self.path(path)?, bytes)
    }

    /// Writes a file in the folder of keys, durably, replacing an existing one.
    pub(crate) fn write(&self, path: &[&str], bytes: &[u8]) -> io::Result<()> {
        self.keep(&self.path(path)?, bytes)
    }

    fn path(&self, parts: &[&str]) -> io::Result<PathBuf> {
        parts.iter().try_fold(self.folder.clone(), |folder, part| Ok(folder.join(safe(part)?)))
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

/// A stored invitation: `NAME UNTIL` for a node, `NAME UNTIL login` or `NAME UNTIL login root` for a login host, `NAME
/// UNTIL controller` for a controller.
struct Invitation<'a> {
    name: &'a str,
    /// End of validity, seconds since 1970.
    until_s: u64,
    part: Part,
}

/// Word for a login host in stored texts.
const LOGIN: &str = "login";
/// Word for a login host of which root may send commands, in stored texts.
const ROOT: &str = "root";
/// Word for a controller in stored texts.
const CONTROLLER: &str = "controller";
/// Beginning of the names of files with keys of one machine.
const OWN: &str = "own";
/// Name of the file about the cluster that this machine has joined.
const JOINED: &str = "joined";

impl<'a> Invitation<'a> {
    /// Parses a stored invitation. None: the text is not one.
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (name, until_s) = (words.next()?, words.next()?.parse().ok()?);
        let part = match (words.next(), words.next()) {
            (None, _) => Part::Node,
            (Some(LOGIN), None) => Part::Login(Login { allow_root: false }),
            (Some(LOGIN), Some(ROOT)) => Part::Login(Login { allow_root: true }),
            (Some(CONTROLLER), None) => Part::Controller,
            _ => return None,
        };
        Some(Self { name, until_s, part })
    }
}

/// Returns the stored text about a login host.
fn login_text(key: &PublicKey, login: Login) -> String {
    let root = if login.allow_root { format!(" {ROOT}") } else { String::new() };
    format!("{}{root}\n", hex(key))
}

/// Returns the names of a folder's files, without temporary ones that are being written. A missing folder has none.
fn files(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !name.as_ref().is_ok_and(|name| name.starts_with('.'))).collect()
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

    use super::{Joined, Listed, Login, Part, Rights, Token, Trust, Wish};
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
        let token = trust.invite("n2", Part::Node, 100, 60).unwrap();
        assert_eq!(Token::parse(&token.to_string()), Some(token.clone()));
        let (mine, other) = ([1; 32], [2; 32]);
        assert!(trust.enrol("n3", &mine, (&token.secret, Wish::Node), 110).is_err());
        assert!(trust.enrol("n2", &mine, (&[0; 16], Wish::Node), 110).is_err());
        assert!(trust.enrol("n2", &mine, (&token.secret, Wish::Node), 160).is_err());
        assert!(!trust.knows("n2", &mine));
        trust.enrol("n2", &mine, (&token.secret, Wish::Node), 110).unwrap();
        assert!(trust.knows("n2", &mine) && !trust.knows("n2", &other) && !trust.knows("n3", &mine));
        // The answer got lost, so the same machine asks again. Another machine is late.
        trust.enrol("n2", &mine, (&token.secret, Wish::Node), 110).unwrap();
        assert!(trust.enrol("n2", &other, (&token.secret, Wish::Node), 110).is_err());
        assert!(trust.invite("n2", Part::Node, 120, 60).is_err());
    }

    #[test]
    fn a_newer_invitation_replaces_the_one_before_and_a_revoked_node_is_unknown() {
        let folder = Folder::new("revoke");
        let trust = &folder.0;
        let old = trust.invite("n2", Part::Node, 100, 60).unwrap();
        let new = trust.invite("n2", Part::Node, 100, 60).unwrap();
        assert!(trust.enrol("n2", &[1; 32], (&old.secret, Wish::Node), 110).is_err());
        trust.enrol("n2", &[1; 32], (&new.secret, Wish::Node), 110).unwrap();
        trust.note_address("n2", "10.0.0.2:6818").unwrap();
        assert_eq!(trust.peer("n2").unwrap().unwrap().address, "10.0.0.2:6818");
        assert!(trust.revoke("n2").unwrap() && !trust.revoke("n2").unwrap());
        assert!(!trust.knows("n2", &[1; 32]));
        assert!(trust.enrol("n2", &[1; 32], (&new.secret, Wish::Node), 110).is_err());
    }

    #[test]
    fn a_token_makes_a_node_or_a_login_host_and_neither_is_the_other() {
        let folder = Folder::new("parts");
        let trust = &folder.0;
        let (mine, other) = ([1; 32], [2; 32]);
        let root = Login { allow_root: true };
        let token = trust.invite("login1", Part::Login(root), 100, 60).unwrap();
        let refused = trust.enrol("login1", &mine, (&token.secret, Wish::Node), 110).unwrap_err();
        assert!(refused.contains("a login host: use `squall login`"), "{refused}");
        trust.enrol("login1", &mine, (&token.secret, Wish::Login), 110).unwrap();
        trust.enrol("login1", &mine, (&token.secret, Wish::Login), 110).unwrap();
        assert!(trust.enrol("login1", &other, (&token.secret, Wish::Login), 110).is_err());
        assert_eq!(trust.rights("login1", &mine), Rights { login: Some(root), ..Rights::default() });
        assert!(!trust.knows("login1", &mine) && trust.peer("login1").unwrap().is_none(), "it is no node");
        assert!(!trust.rights("login1", &other).any() && !trust.rights("login2", &mine).any());
        assert!(trust.invite("login1", Part::Node, 120, 60).is_err(), "a name is one machine");
        let token = trust.invite("n2", Part::Node, 100, 60).unwrap();
        assert!(trust.enrol("n2", &other, (&token.secret, Wish::Login), 110).is_err());
        trust.enrol("n2", &other, (&token.secret, Wish::Node), 110).unwrap();
        assert_eq!(trust.rights("n2", &other), Rights { node: true, ..Rights::default() });
    }

    #[test]
    fn what_a_machine_may_do_can_be_changed_listed_and_ended() {
        let folder = Folder::new("grant");
        let trust = &folder.0;
        let plain = Login::default();
        assert!(!trust.grant("n2", plain).unwrap(), "it has not joined");
        trust.own_node("n2", &[1; 32]).unwrap();
        assert!(trust.grant("n2", plain).unwrap());
        assert_eq!(trust.rights("n2", &[1; 32]), Rights { node: true, login: Some(plain), ..Rights::default() });
        assert!(trust.grant("n2", Login { allow_root: true }).unwrap());
        assert_eq!(trust.rights("n2", &[1; 32]).login, Some(Login { allow_root: true }));
        trust.invite("login1", Part::Login(plain), 100, 60).unwrap();
        let listed = |now| -> Vec<_> {
            let short = |Listed { name, part, invited_until_s, .. }| (name, part, invited_until_s);
            trust.list(now).unwrap().into_iter().map(short).collect()
        };
        let node = ("n2".to_owned(), Part::Node, None);
        let login = ("n2".to_owned(), Part::Login(Login { allow_root: true }), None);
        let invited = ("login1".to_owned(), Part::Login(plain), Some(160));
        assert_eq!(listed(110), [invited, node.clone(), login.clone()]);
        assert_eq!(listed(160), [node.clone(), login]);
        assert!(trust.revoke_login("n2").unwrap() && !trust.revoke_login("n2").unwrap());
        assert_eq!(
            (listed(160), trust.rights("n2", &[1; 32])),
            (vec![node], Rights { node: true, ..Rights::default() })
        );
        assert!(trust.grant("n2", plain).unwrap() && trust.revoke("n2").unwrap());
        assert!(!trust.rights("n2", &[1; 32]).any());
    }

    #[test]
    fn an_invitation_that_another_machine_withdraws_meanwhile_is_withdrawn() {
        let folder = Folder::new("at-once");
        let trust = &folder.0;
        for name in ["n1", "n2", "n3"] {
            trust.invite(name, Part::Node, 100, 60).unwrap();
        }
        let mut asked = 0;
        let tokens = trust.folder.join("tokens");
        // All files are removed between the reading of the first one and its removal.
        let which = |_: &super::Invitation<'_>| {
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
            assert!(trust.peer(name).is_err() && trust.invite(name, Part::Node, 0, 60).is_err(), "{name}");
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
        for (login, controllers) in [(false, "head:6817"), (true, "head1:6817,head2:6817")] {
            let controllers = Joined::addresses_of(controllers);
            let joined = Joined { name: "n2".into(), controllers, key: [7; 32], login };
            folder.0.note_joined(&joined).unwrap();
            assert_eq!(folder.0.joined().unwrap(), Some(joined));
        }
    }
}
