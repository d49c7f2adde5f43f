//! Secrets that many nodes share: each lets machines join under any of its names, as often as they come without their
//! key. For nodes that keep nothing on disk.

use std::io;

use squall_model::hostlist;
use squall_model::wire::join::PublicKey;

use super::{SECRET_BYTES, Token, Trust, Unwelcome, Wish, files, hex, read, safe};

/// Word for a shared secret in stored texts.
const SHARED: &str = "shared";
/// Word for a secret without end in stored texts.
const ENDLESS: &str = "endless";

/// A shared secret as it is stored: `NAMES UNTIL shared`, or `NAMES endless shared`. Earlier releases leave it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// Names of the nodes that may use it, as a host list.
    pub names: String,
    /// End of validity, seconds since 1970. None: it is valid until it is revoked.
    pub until_s: Option<u64>,
}

impl SharedSecret {
    /// Parses a stored text. None: it is that of something else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (names, until, kind) = (words.next()?, words.next()?, words.next()?);
        if kind != SHARED {
            return None;
        }
        let until_s = if until == ENDLESS { None } else { Some(until.parse().ok()?) };
        Some(Self { names: names.to_owned(), until_s })
    }

    fn is_valid(&self, now_s: u64) -> bool {
        self.until_s.is_none_or(|until_s| until_s > now_s)
    }

    /// Whether the secret holds for one of these names.
    fn holds_for_any(&self, names: &[String]) -> bool {
        names.iter().any(|name| hostlist::contains(&self.names, name))
    }
}

impl Trust {
    /// Makes a secret for all nodes with these names. Each uses it under its own name, as often as it comes without its
    /// key. Valid for `valid_s` seconds; None: until it is revoked.
    pub fn share(&self, names: &str, now_s: u64, valid_s: Option<u64>) -> io::Result<Token> {
        for name in hostlist::expand(names).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))? {
            safe(&name)?;
        }
        let mut secret = [0; SECRET_BYTES];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
        let until = valid_s.map_or_else(|| ENDLESS.to_owned(), |valid_s| now_s.saturating_add(valid_s).to_string());
        self.keep_new(&self.token_file(&secret), format!("{names} {until} {SHARED}\n").as_bytes())?;
        Ok(Token { controller: self.controller_key()?.public, secret })
    }

    /// Returns the shared secrets that are valid, by their names.
    pub fn shared(&self, now_s: u64) -> io::Result<Vec<SharedSecret>> {
        let mut found = Vec::new();
        for file in files(&self.folder.join("tokens"))? {
            let text = read(&self.folder.join("tokens").join(file))?;
            found.extend(text.and_then(|text| SharedSecret::parse(&text)).filter(|shared| shared.is_valid(now_s)));
        }
        found.sort_by(|a, b| a.names.cmp(&b.names));
        Ok(found)
    }

    /// Revokes the shared secrets that hold for any of these names, and returns the names of each. What joined with them
    /// stays: each node has a key of its own.
    pub fn revoke_shared(&self, names: &[String]) -> io::Result<Vec<String>> {
        let mut revoked = Vec::new();
        for file in files(&self.folder.join("tokens"))? {
            let text = read(&self.folder.join("tokens").join(&file))?;
            let shared = text.and_then(|text| SharedSecret::parse(&text)).filter(|shared| shared.holds_for_any(names));
            if let Some(shared) = shared
                && self.remove("tokens", &file)?
            {
                revoked.push(shared.names);
            }
        }
        revoked.sort();
        Ok(revoked)
    }

    /// Enrols a node with a shared secret, durably. The key that it had before is worth nothing from then on. A node that
    /// is connected keeps its key: another machine may use its name by mistake, or to take its place.
    pub(super) fn enrol_again(
        &self,
        shared: &SharedSecret,
        (name, key, wish): (&str, &PublicKey, Wish),
        now_s: u64,
        connected: bool,
    ) -> Result<(), Unwelcome> {
        let failed = |e: io::Error| format!("the controller can't keep keys: {e}");
        if !shared.is_valid(now_s) || !hostlist::contains(&shared.names, name) {
            return Err(
                format!("the token does not hold for {wish} {name}: it is for {}, or too old", shared.names).into()
            );
        }
        if wish != Wish::Node {
            return Err(format!("the token makes {name} a {}: use `squall node`", Wish::Node).into());
        }
        let known = self.peer(name).map_err(failed)?;
        if known.is_none() && self.login(name).map_err(failed)?.is_some() {
            return Err(
                format!("{name} is a login host: `squall token --revoke {name}` lets a node have its name").into()
            );
        }
        if known.is_some() && connected {
            return Err(Unwelcome::NotNow(format!(
                "node {name} is connected with another key: a machine with a shared token takes its name when it is gone"
            )));
        }
        Ok(self.keep(&self.folder.join("nodes").join(name), format!("{}\n", hex(key)).as_bytes()).map_err(failed)?)
    }
}
