//! Tokens (JWT, RFC 7519) by which a program is a user of the cluster without the kernel's word, as over HTTP.
//!
//! `DIR/keys/jwt_hs256.key` signs the cluster's tokens, as Slurm's file of that name. `DIR/keys/jwt_revoked/USER` holds
//! the time up to which that user's tokens are revoked, in seconds since 1970. Keys of other issuers stand in the JWKS
//! file that the configuration names.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketAddrUnix, getsockname};
use serde_json::{Value, json};
use squall_files::place::Place;
use squall_files::users::{self, User};
use squall_model::config::Config;
use squall_model::wire::join::Bearer;

use crate::auth::is_operator;
use crate::trust::Trust;

/// Length of a new signing key, bytes.
const KEY_BYTES: usize = 32;
/// Name of the signing key's file.
const KEY: &str = "jwt_hs256.key";
/// Name of the folder with the times up to which tokens are revoked.
const REVOKED: &str = "jwt_revoked";
/// Expiry of a token without end, seconds since 1970: the end of the year 9999.
const NEVER_S: u64 = 253_402_300_799;
/// Slurm's usual name for the user that runs the cluster. Where there is no such user, it is the cluster's owner.
const SLURM_USER: &str = "slurm";

/// Issues and checks the tokens of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Bearers {
    place: Place,
    jwks: Option<PathBuf>,
    /// Unix sockets of the HTTP server.
    sockets: Vec<PathBuf>,
}

/// A user as whom the bearer of a token may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Borne {
    pub(crate) user: User,
    /// When the token expires, seconds since 1970.
    pub(crate) until_s: u64,
}

impl Bearers {
    /// Returns the tokens of the cluster in this state folder.
    pub(crate) fn of(place: &Place, config: &Config) -> Self {
        let rest = &config.rest.0;
        let sockets = rest.addresses().filter_map(|address| address.strip_prefix("unix:")).map(PathBuf::from).collect();
        Self {
            place: place.clone(),
            jwks: Some(&rest.jwks).filter(|path| !path.is_empty()).map(PathBuf::from),
            sockets,
        }
    }

    fn trust(&self) -> Trust {
        Trust::of(&self.place)
    }

    /// Returns a new token of a user, valid from `now_s` (seconds since 1970) for `lifespan_s`; None: without end.
    pub(crate) fn issue(&self, user: &str, lifespan_s: Option<u64>, now_s: u64) -> io::Result<String> {
        // A token issued in the second of a revocation is not revoked.
        let iat = self.revoked_s(user)?.map_or(now_s, |revoked| now_s.max(revoked + 1));
        let exp = lifespan_s.map_or(NEVER_S, |span| now_s.saturating_add(span).min(NEVER_S));
        let claims = json!({"exp": exp, "iat": iat, "sun": user});
        let key = EncodingKey::from_secret(&self.key()?);
        encode(&Header::new(Algorithm::HS256), &claims, &key).map_err(io::Error::other)
    }

    /// Makes all tokens of a user invalid that were issued up to `now_s`, seconds since 1970.
    pub(crate) fn revoke(&self, user: &str, now_s: u64) -> io::Result<()> {
        self.trust().write(&[REVOKED, user], format!("{now_s}\n").as_bytes())
    }

    /// Returns the user as whom the bearer may act; Err: why the token is not accepted. May block.
    pub(crate) fn user(&self, bearer: &Bearer) -> Result<Borne, String> {
        let claims = self.claims(&bearer.token)?;
        let name = ["sun", "username"].iter().find_map(|claim| claims.get(*claim)?.as_str());
        let name = name.ok_or("the token names no user: it lacks the claim `sun`")?;
        let issued_s = claims.get("iat").and_then(Value::as_f64).unwrap_or_default() as u64;
        let revoked = self.revoked_s(name).map_err(|e| format!("revoked tokens can't be read: {e}"))?;
        if revoked.is_some_and(|revoked| issued_s <= revoked) {
            return Err(format!("the token of {name} is revoked; `scontrol token` makes another"));
        }
        let own = known(name)?;
        let user = match bearer.user.as_deref().filter(|wanted| *wanted != name) {
            None => own,
            Some(other) if is_operator(own.uid) => known(other)?,
            Some(other) => return Err(format!("the token is one of {name}, who may not act as {other}")),
        };
        let until_s = claims.get("exp").and_then(Value::as_f64).unwrap_or_default() as u64;
        Ok(Borne { user, until_s })
    }

    /// Checks signature and expiry of a token, and returns its claims.
    fn claims(&self, token: &str) -> Result<serde_json::Map<String, Value>, String> {
        let wrong = |e: jsonwebtoken::errors::Error| match e.kind() {
            jsonwebtoken::errors::ErrorKind::ExpiredSignature => {
                "the token has expired; `scontrol token` makes another".to_owned()
            }
            _ => format!("the token is not valid: {e}"),
        };
        let header = decode_header(token).map_err(wrong)?;
        let mut validation = Validation::new(header.alg);
        (validation.leeway, validation.validate_aud, validation.validate_nbf) = (0, false, true);
        let key = if header.alg == Algorithm::HS256 {
            let key = self.key().map_err(|e| format!("the key of tokens can't be read: {e}"))?;
            DecodingKey::from_secret(&key)
        } else {
            self.public_key(&header)?
        };
        decode(token, &key, &validation).map(|data| data.claims).map_err(wrong)
    }

    /// Returns the key in the JWKS file that has the key id and the algorithm of a token's header.
    fn public_key(&self, header: &Header) -> Result<DecodingKey, String> {
        let path = self.jwks.as_ref().ok_or_else(|| {
            format!("the token is signed with {:?}, and the configuration names no jwks file in [rest]", header.alg)
        })?;
        let failed = |e: String| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        let keys: JwkSet = serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?;
        let key = match &header.kid {
            Some(id) => keys.find(id),
            None => keys.keys.first().filter(|_| keys.keys.len() == 1),
        };
        let key = key.ok_or_else(|| failed("it lacks the key that the token names".to_owned()))?;
        let is_public = !matches!(key.algorithm, jsonwebtoken::jwk::AlgorithmParameters::OctetKey(_));
        let allowed =
            key.common.key_algorithm.is_none_or(|allowed| format!("{allowed:?}") == format!("{:?}", header.alg));
        if !is_public || !allowed || matches!(header.alg, Algorithm::HS384 | Algorithm::HS512) {
            return Err("the token's algorithm is not that of the key that it names".to_owned());
        }
        DecodingKey::from_jwk(key).map_err(|e| failed(e.to_string()))
    }

    /// Returns the signing key; makes it when first needed.
    fn key(&self) -> io::Result<Vec<u8>> {
        let trust = self.trust();
        if let Some(key) = trust.read(&[KEY])?.filter(|key| !key.is_empty()) {
            return Ok(key);
        }
        let mut key = [0; KEY_BYTES];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut key)?;
        match trust.create(&[KEY], &key) {
            // Another process has made the key at the same time: that one is used.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        trust.read(&[KEY])?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the time up to which a user's tokens are revoked. None: no token of the user was revoked.
    fn revoked_s(&self, user: &str) -> io::Result<Option<u64>> {
        let Some(text) = self.trust().read(&[REVOKED, user])? else { return Ok(None) };
        let seconds = String::from_utf8_lossy(&text).trim().parse();
        seconds.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{REVOKED}/{user}")))
    }

    /// Returns user and group id of the peer of a connection that the cluster's HTTP server has accepted on a Unix
    /// socket, as the kernel reports them. Err: the socket is another one, so its peer did not mean to talk to Squall.
    pub(crate) fn peer_of(&self, socket: &OwnedFd) -> io::Result<(u32, u32)> {
        // Only root can create a configured path, so the process that listens there is the HTTP server. The kernel
        // gives the path as the name of the accepting side only.
        let own = SocketAddrUnix::try_from(getsockname(socket)?)?;
        let is_ours = |path: &PathBuf| SocketAddrUnix::new(path).is_ok_and(|expected| own == expected);
        if !self.sockets.iter().any(is_ours) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let peer = socket_peercred(socket)?;
        Ok((peer.uid.as_raw(), peer.gid.as_raw()))
    }
}

/// Returns the user of this name.
fn known(name: &str) -> Result<User, String> {
    let owner = || (name == SLURM_USER).then(|| users::by_uid(rustix::process::geteuid().as_raw())).flatten();
    users::by_name(name).or_else(owner).ok_or_else(|| format!("there is no user {name} here"))
}
