//! Keys and invitations by which daemons of other machines are authenticated, in `DIR/keys`, which only the cluster's
//! owner can read. No secret here gives access to more than one peer: a machine has its own key, and the controller's
//! public one.
//!
//! On a controller's machine: `controller` (the key, which all controllers of a cluster have), `nodes/NAME` (the public key of a node, stored when it first
//! joined with an invitation), `addresses/NAME` (where it listens), `logins/NAME` (the public key of a login host, and
//! whose commands it may send), `tokens/HASH` (invitations, and secrets that many nodes share; the secret itself is not
//! stored). On a machine that has
//! joined: `own` (its key) and `joined` (the controller that it has joined, its name, and what it is there).
//!
//! Trust is not part of the journal: it is needed before a daemon may send anything, and revoking it must not need a
//! running controller.

pub mod shared;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use squall_files::durable;
use squall_files::place::Place;
use squall_model::hostlist::is_name;
use squall_model::job::Digest;
use squall_model::wire::join::{Peer, PublicKey};
use squall_model::wire::proof::SignerKey;
use zeroize::{Zeroize, Zeroizing};

use crate::noise::KeyPair;

use shared::SharedSecret;

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

/// Why a machine may not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unwelcome {
    /// For this reason, which stays.
    Never(String),
    /// For this reason, which may pass.
    NotNow(String),
}

impl From<String> for Unwelcome {
    fn from(reason: String) -> Self {
        Self::Never(reason)
    }
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
pub struct MachineEntry {
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

impl Drop for Token {
    fn drop(&mut self) {
        self.secret.zeroize();
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
            match self.keep_new(&path, &KeyPair::generate()?.to_bytes()[..]) {
                // Another process has made the key at the same time: that one is used.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                kept => kept?,
            }
        }
        KeyPair::from_bytes(&Zeroizing::new(fs::read(&path)?))
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

    /// Enrols a machine under this name, durably. Err: it is refused, with the reason. `connected`: whether a node of this
    /// name is connected. An invitation is valid until a
    /// machine has used it: a name has one key only. A controller's key is not stored, as it gets that of all.
    pub(crate) fn enrol(
        &self,
        name: &str,
        key: &PublicKey,
        (secret, wish): (&[u8], Wish),
        now_s: u64,
        connected: bool,
    ) -> Result<(), Unwelcome> {
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
        if let Some(shared) = SharedSecret::parse(&text) {
            return self.enrol_again(&shared, (name, key, wish), now_s, connected);
        }
        let invited = Invitation::parse(&text).ok_or_else(unknown)?;
        if invited.name != name || invited.until_s <= now_s {
            return Err(unknown().into());
        }
        let part = invited.part;
        if part.wish() != wish {
            return Err(format!("the token makes {name} a {}: use `squall {}`", part.wish(), part.command()).into());
        }
        let kept = match part {
            Part::Node => Some(("nodes", format!("{}\n", hex(key)))),
            Part::Login(rights) => Some(("logins", login_text(key, rights))),
            Part::Controller => None,
        };
        if let Some((folder, text)) = kept {
            match self.keep_new(&self.folder.join(folder).join(name), text.as_bytes()) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(unknown().into()),
                kept => kept.map_err(failed)?,
            }
        }
        Ok(self.withdraw_invitations(|invited| invited.name == name).map_err(failed)?)
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

    /// Revokes a machine's key as a node; a login host stays one, and invitations hold. False: it had none.
    pub(crate) fn revoke_node(&self, name: &str) -> io::Result<bool> {
        let name = safe(name)?;
        self.remove("addresses", name)?;
        self.remove("nodes", name)
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
    pub fn list(&self, now_s: u64) -> io::Result<Vec<MachineEntry>> {
        let mut all = Vec::new();
        for name in files(&self.folder.join("nodes"))? {
            let address = self.peer(&name)?.map(|peer| peer.address).unwrap_or_default();
            all.push(MachineEntry { name, part: Part::Node, address, invited_until_s: None });
        }
        for name in files(&self.folder.join("logins"))? {
            let Some((_, login)) = self.login(&name)? else { continue };
            all.push(MachineEntry { name, part: Part::Login(login), address: String::new(), invited_until_s: None });
        }
        for file in files(&self.folder.join("tokens"))? {
            let Some(text) = read(&self.folder.join("tokens").join(file))? else { continue };
            let Some(Invitation { name, until_s, part }) = Invitation::parse(&text) else { continue };
            if until_s > now_s {
                let (name, address) = (name.to_owned(), String::new());
                all.push(MachineEntry { name, part, address, invited_until_s: Some(until_s) });
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

    /// Stores the controllers' public key, after a rotation, for a machine that has joined.
    pub(crate) fn renew_joined(&self, key: &PublicKey) -> io::Result<()> {
        match self.joined()? {
            Some(joined) if joined.key != *key => self.note_joined(&Joined { key: *key, ..joined }),
            _ => Ok(()),
        }
    }

    /// Returns the public keys with which the controllers have signed before, the latest first.
    pub(crate) fn signers_before(&self) -> io::Result<Vec<SignerKey>> {
        let text = read(&self.folder.join(SIGNERS_BEFORE))?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| unhex(line.trim())?.try_into().ok()).collect())
    }

    /// Returns the public key with which the controllers sign. None: it is not known.
    pub(crate) fn signer(&self) -> io::Result<Option<SignerKey>> {
        let Some(text) = read(&self.folder.join(SIGNER))? else { return Ok(None) };
        let key = unhex(text.trim()).and_then(|key| key.try_into().ok());
        key.map(Some).ok_or_else(|| {
            let path = self.folder.join(SIGNER).display().to_string();
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{path} is no key: remove it, and the controller gives it anew"),
            )
        })
    }

    /// Stores the public key with which the controllers sign. None: they don't.
    pub(crate) fn keep_signer(&self, key: Option<&SignerKey>) -> io::Result<()> {
        let path = self.folder.join(SIGNER);
        match key {
            Some(key) if self.signer().is_ok_and(|known| known.as_ref() == Some(key)) => Ok(()),
            Some(key) => {
                // Steps that were ordered before are proven by the key of then.
                let mut before = self.signers_before()?;
                before.splice(0..0, self.signer().ok().flatten());
                before.retain(|old| old != key);
                before.truncate(SIGNERS_MAX);
                let text: String = before.iter().map(|old| hex(old) + "\n").collect();
                if !before.is_empty() {
                    self.keep(&self.folder.join(SIGNERS_BEFORE), text.as_bytes())?;
                }
                self.keep(&path, format!("{}\n", hex(key)).as_bytes())
            }
            None if path.exists() => durable::remove(&path),
            None => Ok(()),
        }
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

    /// Removes a file from the folder of keys itself, durably, if there is one of this name.
    pub(crate) fn forget(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| durable::sync_folder(&self.folder.join(name))),
        }
    }

    /// Returns the path of a file in the folder of keys itself.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
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
/// Name of the file with the public key with which the controllers sign.
const SIGNER: &str = "signer";
/// Name of the file with those from before rotations, for steps that were ordered then.
const SIGNERS_BEFORE: &str = "signers-before";
/// Most of them.
const SIGNERS_MAX: usize = 16;
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
mod tests;
