//! Tokens (JWT, RFC 7519) by which a program is a user of the cluster without the kernel's word, as over HTTP.
//!
//! `DIR/keys/jwt_hs256.key` signs the cluster's tokens, as Slurm's file of that name. Of several controllers the one that
//! leads makes it, and the others have its one (`controld/token_key.rs`). `DIR/keys/jwt_revoked/USER` holds the time up to which that user's tokens are revoked, in seconds since 1970. Keys of other issuers stand in the JWKS
//! file that the configuration names.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use rustix::net::{SocketAddrUnix, getsockname};
use serde_json::{Value, json};
use squall_files::place::Place;
use squall_files::users::{self, User};
use squall_model::config::Config;
use squall_model::wire::join::Bearer;
use zeroize::Zeroizing;

use crate::auth::is_operator;
use crate::server::Server;
use crate::sys::peer::peer_of;
use crate::trust::Trust;

/// Length of a new signing key, bytes.
const KEY_BYTES: usize = 32;
/// Longest signing key that is taken from another controller, bytes. A site may have written the file itself.
const KEY_BYTES_MAX: usize = 4096;
/// Name of the signing key's file.
const KEY: &str = "jwt_hs256.key";
/// Name of the folder with the times up to which tokens are revoked.
const REVOKED: &str = "jwt_revoked";
/// Expiry of a token without end, seconds since 1970: the end of the year 9999.
const NEVER_S: u64 = 253_402_300_799;
/// Time within which the token of a link must be exchanged, seconds.
const LINK_S: u64 = 120;
/// Longest life of a token for which that of a link is exchanged, seconds.
const SESSION_S: u64 = 12 * 3600;
/// Slurm's usual name for the user that runs the cluster. Where there is no such user, it is the cluster's owner.
const SLURM_USER: &str = "slurm";

/// Issues and checks the tokens of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Bearers {
    place: Place,
    jwks: Option<PathBuf>,
    /// Audience that tokens of others must be for. Empty: any.
    audience: String,
    /// Unix sockets of the HTTP server.
    sockets: Vec<PathBuf>,
    /// Tokens of links that were exchanged, and when they expire, seconds since 1970.
    exchanged: Arc<Mutex<HashMap<String, u64>>>,
}

/// A user as whom the bearer of a token may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Borne {
    pub(crate) user: User,
    /// When the token expires, seconds since 1970.
    pub(crate) until_s: u64,
    /// Name of the link to which the token belongs; such a token may only be exchanged. None: it belongs to none.
    pub(crate) link: Option<String>,
    /// Where the token came from, as the HTTP server says that has passed it on. None: another program has it.
    from: Option<String>,
}

impl Bearers {
    /// Returns the tokens of the cluster in this state folder.
    pub(crate) fn of(place: &Place, config: &Config) -> Self {
        let rest = &config.rest.0;
        let sockets = rest.addresses().filter_map(|address| address.strip_prefix("unix:")).map(PathBuf::from).collect();
        Self {
            place: place.clone(),
            jwks: Some(&rest.jwks).filter(|path| !path.is_empty()).map(PathBuf::from),
            audience: rest.audience.clone(),
            sockets,
            exchanged: Arc::default(),
        }
    }

    fn trust(&self) -> Trust {
        Trust::of(&self.place)
    }

    /// Returns a new token of a user, valid from `now_s` (seconds since 1970) for `lifespan_s`; None: without end.
    /// `link`: the token is for a link, so it is valid for `LINK_S` only.
    pub(crate) fn issue(&self, user: &str, lifespan_s: Option<u64>, link: bool, now_s: u64) -> io::Result<String> {
        if !link {
            return self.sign(user, lifespan_s, now_s, None);
        }
        let mut name = [0; 16];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut name)?;
        self.sign(user, Some(LINK_S), now_s, Some(("link", format!("{:032x}", u128::from_le_bytes(name)))))
    }

    /// Signs a token with one more claim.
    fn sign(
        &self,
        user: &str,
        lifespan_s: Option<u64>,
        now_s: u64,
        more: Option<(&str, String)>,
    ) -> io::Result<String> {
        // A token issued in the second of a revocation is not revoked.
        let iat = self.revoked_s(user)?.map_or(now_s, |revoked| now_s.max(revoked + 1));
        let exp = lifespan_s.map_or(NEVER_S, |span| now_s.saturating_add(span).min(NEVER_S));
        let mut claims = json!({"exp": exp, "iat": iat, "sun": user});
        if let Some((claim, value)) = more {
            claims[claim] = value.into();
        }
        let key = EncodingKey::from_secret(&signing_key(&self.trust())?);
        encode(&Header::new(Algorithm::HS256), &claims, &key).map_err(io::Error::other)
    }

    /// Returns a token for that of a link, which is good for this once, and then for the place from which it came. None: it
    /// was exchanged already.
    pub(crate) fn exchange(&self, borne: &Borne, lifespan_s: Option<u64>, now_s: u64) -> io::Result<Option<String>> {
        let link = borne.link.clone().unwrap_or_default();
        let mut exchanged = self.exchanged.lock().unwrap_or_else(PoisonError::into_inner);
        exchanged.retain(|_, until_s| *until_s > now_s);
        if exchanged.insert(link, borne.until_s).is_some() {
            return Ok(None);
        }
        drop(exchanged);
        let lifespan_s = lifespan_s.unwrap_or(SESSION_S).min(SESSION_S);
        let from = borne.from.clone().map(|from| ("from", from));
        self.sign(&borne.user.name, Some(lifespan_s), now_s, from).map(Some)
    }

    /// Makes all tokens of a user invalid that were issued up to `now_s`, seconds since 1970.
    pub(crate) fn revoke(&self, user: &str, now_s: u64) -> io::Result<()> {
        self.trust().write(&[REVOKED, user], format!("{now_s}\n").as_bytes())
    }

    /// Returns the user as whom the bearer may act; Err: why the token is not accepted. May block.
    pub(crate) fn user(&self, bearer: &Bearer) -> Result<Borne, String> {
        let (claims, foreign) = self.claims(&bearer.token)?;
        let name = ["sun", "username"].iter().find_map(|claim| claims.get(*claim)?.as_str());
        let name = name.ok_or("the token names no user: it lacks the claim `sun`")?;
        let issued_s = claims.get("iat").and_then(Value::as_f64).unwrap_or_default() as u64;
        let revoked = self.revoked_s(name).map_err(|e| format!("revoked tokens can't be read: {e}"))?;
        if revoked.is_some_and(|revoked| issued_s <= revoked) {
            return Err(format!("the token of {name} is revoked; `scontrol token` makes another"));
        }
        let own = known(name)?;
        if foreign && (own.uid == 0 || own.name != name) {
            return Err(format!("another issuer's token is not good for {name}: `scontrol token` makes one"));
        }
        let user = match bearer.user.as_deref().filter(|wanted| *wanted != name) {
            None => own,
            Some(other) if is_operator(own.uid) => known(other)?,
            Some(other) => return Err(format!("the token is one of {name}, who may not act as {other}")),
        };
        let until_s = claims.get("exp").and_then(Value::as_f64).unwrap_or_default() as u64;
        // Links are made by the cluster only: they are exchanged for tokens of the cluster.
        let link = claims.get("link").filter(|_| !foreign).and_then(Value::as_str).map(str::to_owned);
        let from = bearer.passed.as_ref().filter(|passed| self.server(passed.secret.as_bytes()).is_ok());
        let from = from.map(|passed| passed.from.clone());
        match claims.get("from").filter(|_| !foreign).and_then(Value::as_str) {
            bound if (bound.is_some() || link.is_some()) && from.is_none() => {
                Err("the token is that of a link or browser, and good for the cluster's HTTP server only".to_owned())
            }
            Some(bound) if from.as_deref() != Some(bound) => {
                Err("the browser that has logged in is elsewhere; `squall web` logs another one in".to_owned())
            }
            _ => Ok(Borne { user, until_s, link, from }),
        }
    }

    /// Checks signature and expiry of a token; returns its claims, and whether another issuer has signed it.
    fn claims(&self, token: &str) -> Result<(serde_json::Map<String, Value>, bool), String> {
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
            let key = present_key(&self.trust()).map_err(|e| format!("the key of tokens can't be read: {e}"))?;
            DecodingKey::from_secret(&key.ok_or("the token is not valid: this cluster has made none yet")?)
        } else {
            self.public_key(&header)?
        };
        let foreign = header.alg != Algorithm::HS256;
        if foreign && !self.audience.is_empty() {
            validation.set_audience(&[&self.audience]);
            validation.set_required_spec_claims(&["exp", "aud"]);
            validation.validate_aud = true;
        }
        decode(token, &key, &validation).map(|data| (data.claims, foreign)).map_err(wrong)
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

    /// Returns the signing key; makes it when first needed. Only the controller that leads makes one.
    pub(crate) fn key(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        signing_key(&self.trust())
    }

    /// Signs with this key from now on, as the controller that leads does. False: it was that one already.
    pub(crate) fn adopt_key(&self, key: &[u8]) -> io::Result<bool> {
        let trust = self.trust();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a key of {} bytes", key.len())));
        }
        if present_key(&trust)?.is_some_and(|own| **own == *key) {
            return Ok(false);
        }
        trust.write(&[KEY], key).map(|()| true)
    }

    /// Returns the time up to which a user's tokens are revoked. None: no token of the user was revoked.
    fn revoked_s(&self, user: &str) -> io::Result<Option<u64>> {
        let Some(text) = self.trust().read(&[REVOKED, user])? else { return Ok(None) };
        let seconds = String::from_utf8_lossy(&text).trim().parse();
        seconds.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{REVOKED}/{user}")))
    }

    /// Returns the cluster's HTTP server. Err: a process that shows this secret is not it.
    pub(crate) fn server(&self, secret: &[u8]) -> io::Result<Server> {
        let server = Server::read(&self.place)?;
        if server.is(secret) { Ok(server) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Returns user and group id of the peer of a connection that the cluster's HTTP server has accepted on a Unix
    /// socket, as the kernel reports them. Err: the socket is another one, so its peer did not mean to talk to Squall.
    pub(crate) fn peer_of(&self, server: &Server, socket: &OwnedFd) -> io::Result<(u32, u32)> {
        // Where the kernel does not tell the file, the name must do: the server, which is trusted here, has sent it.
        let named = || -> io::Result<bool> {
            let own = SocketAddrUnix::try_from(getsockname(socket)?)?;
            let is_ours = |path: &PathBuf| SocketAddrUnix::new(path).is_ok_and(|expected| own == expected);
            Ok(self.sockets.iter().any(is_ours))
        };
        if !server.accepted(socket)?.map_or_else(named, Ok)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let peer = peer_of(socket)?;
        Ok((peer.uid, peer.gid))
    }
}

/// Returns the signing key in this folder of keys; makes it when first needed.
pub(crate) fn signing_key(trust: &Trust) -> io::Result<Zeroizing<Vec<u8>>> {
    if let Some(key) = present_key(trust)? {
        return Ok(key);
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut *key)?;
    match trust.create(&[KEY], &*key) {
        // Another process has made the key at the same time: that one is used.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    present_key(trust)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the signing key in this folder of keys. None: there is none.
fn present_key(trust: &Trust) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    Ok(trust.read(&[KEY])?.filter(|key| !key.is_empty()).map(Zeroizing::new))
}

/// Returns the user of this name.
fn known(name: &str) -> Result<User, String> {
    let owner = || (name == SLURM_USER).then(|| users::by_uid(rustix::process::geteuid().as_raw())).flatten();
    users::by_name(name).or_else(owner).ok_or_else(|| format!("there is no user {name} here"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use serde_json::{Value, json};
    use squall_files::place::Place;
    use squall_files::users;
    use squall_model::config::Config;
    use squall_model::wire::join::{Bearer, Passed};

    use super::{Bearers, LINK_S};
    use crate::sys::clock;

    /// Key for tests only; the modulus in `jwks` is its public half.
    const KEY: &[u8] = include_bytes!("bearer/test_key.der");
    const MODULUS: &str = "ssrm6fa7uxJBw88Gs2sIJ4emsrA2kvHXemx8WJ-xPuNtktOg0PzraES3mcI-_roZIB-TRQMtxPDG3PEnYfcevq3zmzAErkLRwnJ09SMfmVyBxi5m_hyjbN183BAEW1TZ91w5PdDyW2PMsAQWL3C1sB_yjA1k56D0ioQIYgSyyZUm090OFiqAyqpEvKYKi-IaXfEnZ-TGOhTicaAPvsGX89jBF1mEhcKUXlIi8YSHQqazM9oXrgY4z-zaIL3YEZQBMBWlkf0HUJsVVDRkKgChiaRON3m94j1SvlevZZkC-tdBho958evHQTTCql8h0ltbBlDrHRWh5_t935ppGjA-Cw";

    struct Cluster {
        bearers: Bearers,
        dir: PathBuf,
    }

    impl Cluster {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("squall-bearer-{name}-{}", std::process::id()));
            let place = Place::at(&dir).unwrap();
            let mut config = Config::default();
            config.rest.0.jwks = dir.join("jwks.json").display().to_string();
            Self { bearers: Bearers::of(&place, &config), dir }
        }

        fn user(&self, token: &str, user: Option<&str>) -> Result<String, String> {
            let bearer = Bearer { token: token.to_owned(), user: user.map(str::to_owned), passed: None };
            self.bearers.user(&bearer).map(|borne| borne.user.name)
        }

        fn own() -> String {
            users::by_uid(rustix::process::geteuid().as_raw()).unwrap().name
        }
    }

    impl Drop for Cluster {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.dir).unwrap();
        }
    }

    fn now_s() -> u64 {
        clock::now().0 / 1_000_000
    }

    fn signed(header: &Header, key: &EncodingKey, user: &str, exp: u64) -> String {
        encode(header, &json!({"exp": exp, "iat": now_s(), "sun": user}), key).unwrap()
    }

    #[test]
    fn a_token_is_its_user_until_it_expires_or_is_revoked() {
        let cluster = Cluster::new("life");
        let own = Cluster::own();
        let token = cluster.bearers.issue(&own, Some(60), false, now_s()).unwrap();
        assert_eq!(cluster.user(&token, None), Ok(own.clone()));
        let endless = cluster.bearers.issue(&own, None, false, now_s()).unwrap();
        assert_eq!(cluster.user(&endless, Some(&own)), Ok(own.clone()));
        let old = cluster.bearers.issue(&own, Some(60), false, now_s() - 100).unwrap();
        assert!(cluster.user(&old, None).unwrap_err().starts_with("the token has expired"));
        cluster.bearers.revoke(&own, now_s()).unwrap();
        assert!(cluster.user(&token, None).unwrap_err().contains("is revoked"));
        let new = cluster.bearers.issue(&own, Some(60), false, now_s()).unwrap();
        assert_eq!(cluster.user(&new, None), Ok(own), "one of the same second, after the revocation");
        let stranger = cluster.bearers.issue("no-such-user", Some(60), false, now_s()).unwrap();
        assert_eq!(cluster.user(&stranger, None).unwrap_err(), "there is no user no-such-user here");
        assert!(cluster.bearers.issue("../x", None, false, 0).is_err() && cluster.bearers.revoke("a/b", 0).is_err());
    }

    #[test]
    fn operators_may_act_as_others_and_users_may_not() {
        let cluster = Cluster::new("others");
        let operator = cluster.bearers.issue("root", Some(60), false, now_s()).unwrap();
        let user = cluster.bearers.issue("nobody", Some(60), false, now_s()).unwrap();
        assert_eq!(cluster.user(&operator, Some("nobody")), Ok("nobody".to_owned()));
        assert!(cluster.user(&user, Some("root")).unwrap_err().contains("may not act as root"));
        let slurm = cluster.bearers.issue("slurm", Some(60), false, now_s()).unwrap();
        assert!(cluster.user(&slurm, None).is_ok_and(|name| name == "slurm" || name == Cluster::own()));
    }

    #[test]
    fn cve_2019_18823_forged_tokens_are_refused() {
        let cluster = Cluster::new("forged");
        let token = cluster.bearers.issue("root", Some(60), false, now_s()).unwrap();
        let [header, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
        let other = EncodingKey::from_secret(b"guessed");
        let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
        let public = EncodingKey::from_secret(MODULUS.as_bytes());
        let forged = [
            String::new(),
            "a.b.c".to_owned(),
            format!("{none}.{claims}."),
            format!("{header}.{claims}.{}", signature.chars().rev().collect::<String>()),
            signed(&Header::new(Algorithm::HS256), &other, "root", now_s() + 60),
            signed(&Header::new(Algorithm::HS384), &public, "root", now_s() + 60),
            encode(&Header::new(Algorithm::HS256), &json!({"sun": "root"}), &other).unwrap(),
        ];
        for token in forged {
            assert!(cluster.user(&token, None).is_err(), "{token}");
        }
        let key = EncodingKey::from_secret(&cluster.bearers.key().unwrap());
        let endless = encode(&Header::new(Algorithm::HS256), &json!({"sun": "root"}), &key).unwrap();
        assert!(cluster.user(&endless, None).is_err(), "it does not say when it expires");
    }

    #[test]
    fn others_may_issue_tokens_by_the_keys_of_the_jwks_file() {
        let cluster = Cluster::new("jwks");
        let key = EncodingKey::from_rsa_der(KEY);
        let named = |id: &str| Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::RS256) };
        let token = signed(&named("one"), &key, "nobody", now_s() + 60);
        assert!(cluster.user(&token, None).unwrap_err().contains("jwks.json"));
        std::fs::create_dir_all(&cluster.dir).unwrap();
        let keys: Value = json!({"keys": [
            {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": MODULUS, "e": "AQAB"},
            {"kty": "oct", "kid": "two", "k": "c2VjcmV0"},
        ]});
        std::fs::write(cluster.dir.join("jwks.json"), keys.to_string()).unwrap();
        assert_eq!(cluster.user(&token, None), Ok("nobody".to_owned()));
        assert!(cluster.user(&signed(&named("three"), &key, "nobody", now_s() + 60), None).is_err());
        assert!(cluster.user(&signed(&named("one"), &key, "nobody", now_s() - 1), None).is_err());
        let symmetric = Header { kid: Some("two".to_owned()), ..Header::new(Algorithm::HS384) };
        let secret = EncodingKey::from_secret(b"secret");
        assert!(cluster.user(&signed(&symmetric, &secret, "root", now_s() + 60), None).is_err());
    }

    // Regression test of attack B9: another issuer's token made its bearer root, and tokens for other services were taken.
    #[test]
    fn b9_tokens_of_others_are_for_this_cluster_and_make_nobody_root() {
        let mut cluster = Cluster::new("audience");
        let key = EncodingKey::from_rsa_der(KEY);
        std::fs::create_dir_all(&cluster.dir).unwrap();
        let keys: Value = json!({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "n": MODULUS, "e": "AQAB"}]});
        std::fs::write(cluster.dir.join("jwks.json"), keys.to_string()).unwrap();
        let token = |more: Value| {
            let mut claims = json!({"exp": now_s() + 60, "iat": now_s(), "sun": "nobody"});
            more.as_object().unwrap().iter().for_each(|(key, value)| claims[key] = value.clone());
            encode(&Header::new(Algorithm::RS256), &claims, &key).unwrap()
        };
        assert_eq!(cluster.user(&token(json!({})), None), Ok("nobody".to_owned()));
        assert!(cluster.user(&token(json!({"sun": "root"})), None).unwrap_err().contains("another issuer's token"));
        if users::by_name("slurm").is_none() {
            assert!(
                cluster.user(&token(json!({"sun": "slurm"})), None).is_err(),
                "the cluster's owner by another name"
            );
        }
        let link = Bearer { token: token(json!({"link": "x"})), user: None, passed: None };
        assert_eq!(cluster.bearers.user(&link).unwrap().link, None, "it is exchanged for no token of the cluster");
        cluster.bearers.audience = "squall".to_owned();
        for wrong in [json!({}), json!({"aud": "wiki"}), json!({"aud": ["wiki", "mail"]})] {
            assert!(cluster.user(&token(wrong.clone()), None).is_err(), "{wrong}");
        }
        for right in [json!({"aud": "squall"}), json!({"aud": ["wiki", "squall"]})] {
            assert_eq!(cluster.user(&token(right.clone()), None), Ok("nobody".to_owned()), "{right}");
        }
        let own = cluster.bearers.issue("nobody", Some(60), false, now_s()).unwrap();
        assert_eq!(cluster.user(&own, None), Ok("nobody".to_owned()), "the cluster's tokens need none");
    }

    #[test]
    fn the_token_of_a_link_is_exchanged_once() {
        let cluster = Cluster::new("link");
        let token = cluster.bearers.issue("nobody", Some(1 << 40), true, now_s()).unwrap();
        std::fs::create_dir_all(cluster.dir.join("run")).unwrap();
        let place = Place::at(&cluster.dir).unwrap();
        let secret = crate::server::introduce(&place, std::iter::empty()).unwrap().to_string();
        let by = |token: &str, secret: &str, from: &str| {
            let passed = Some(Passed { secret: secret.to_owned(), from: from.to_owned() });
            cluster.bearers.user(&Bearer { token: token.to_owned(), user: None, passed })
        };
        let borne = by(&token, &secret, "uid 7").unwrap();
        assert!(borne.link.is_some() && borne.until_s <= now_s() + LINK_S);
        let only = "good for the cluster's HTTP server only";
        assert!(by(&token, "guessed", "uid 7").unwrap_err().contains(only));
        assert!(cluster.user(&token, None).unwrap_err().contains(only));
        let session = cluster.bearers.exchange(&borne, Some(1 << 40), now_s()).unwrap().unwrap();
        assert_eq!(cluster.bearers.exchange(&borne, None, now_s()).unwrap(), None);
        // What a browser has is good where that has logged in, and with the server only.
        assert!(cluster.user(&session, None).unwrap_err().contains(only));
        assert!(by(&session, &secret, "uid 8").unwrap_err().contains("elsewhere"));
        let session = by(&session, &secret, "uid 7").unwrap();
        assert!(session.link.is_none() && session.user == borne.user && session.until_s <= now_s() + super::SESSION_S);
    }
}
