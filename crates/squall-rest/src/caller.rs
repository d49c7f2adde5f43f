//! Users behind requests: found by a token or the kernel, confirmed by the controller.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use squall_client::{ClientError, unexpected};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::join::Bearer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::cluster::Cluster;

/// Slurm's header with the user's name.
const USER_NAME: &str = "x-slurm-user-name";
/// Slurm's header with the token.
const USER_TOKEN: &str = "x-slurm-user-token";
/// Cookie that holds the token of a person who has logged in to the dashboard.
pub(crate) const COOKIE: &str = "squall_token";
/// How long a token that the controller has accepted is not asked about again. A revoked token is good for reading
/// that long; changes are always checked by the controller.
const CONFIRMED: Duration = Duration::from_secs(5);
/// Most tokens remembered; at this number all are forgotten.
const CONFIRMED_MAX: usize = 4096;
/// How long a user's last change is remembered: longer than shared data may be old.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Longest token that is looked at, bytes.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Most requests of one user that are answered at once; further ones wait.
const REQUESTS_OF_USER: usize = 8;
/// Most tokens that the controller is asked about at once, over all callers that are not confirmed.
const CONFIRMING_MAX: usize = 8;

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A process on this machine, over the Unix socket. Its user is what the kernel says about this connection.
    Socket(Arc<OwnedFd>),
    /// An address.
    Address(IpAddr),
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(_) => f.write_str("unix"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Proof of a user's identity, which the controller checks.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// A token.
    Bearer(Bearer),
    /// A connection to the server's Unix socket.
    Socket(Arc<OwnedFd>),
}

/// A user who was confirmed by the controller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) identity: Identity,
    pub(crate) uid: u32,
    pub(crate) user: String,
    pub(crate) group: String,
    pub(crate) operator: bool,
    /// Whether the token came in a cookie, which a browser sends without the person's doing.
    pub(crate) by_cookie: bool,
    /// Held while the request is answered.
    _turn: Arc<OwnedSemaphorePermit>,
}

/// Callers that were confirmed lately, and those whose requests are under way.
#[derive(Debug)]
pub(crate) struct Callers {
    confirmed: Mutex<HashMap<(String, Option<String>), Confirmed>>,
    turns: Mutex<HashMap<u32, Arc<Semaphore>>>,
    confirming: Semaphore,
}

/// When each user has last changed something through this server, so that the user sees the change.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<HashMap<u32, Instant>>);

impl Changes {
    /// Notes that a user has changed something now.
    pub(crate) fn note(&self, uid: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, at| at.elapsed() < REMEMBERED);
        all.insert(uid, Instant::now());
    }

    /// Returns when a user has last changed something. None: not lately.
    pub(crate) fn since(&self, uid: u32) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).copied()
    }
}

/// What the controller has answered about a proof of identity.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed {
    at: Instant,
    uid: u32,
    user: String,
    group: String,
    operator: bool,
}

impl Default for Callers {
    fn default() -> Self {
        Self { confirmed: Mutex::default(), turns: Mutex::default(), confirming: Semaphore::new(CONFIRMING_MAX) }
    }
}

impl Callers {
    /// Returns the caller of a request with these headers; Err: no proof came with it, or the controller does not accept
    /// it.
    pub(crate) async fn find(
        &self,
        cluster: &Cluster,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<Caller, ClientError> {
        let refused = |why: &str| ClientError::Refused(Refusal::BadToken(why.to_owned()));
        let (token, by_cookie) = token(headers);
        let identity = match (token, peer) {
            (Some(token), _) if token.len() > TOKEN_BYTES_MAX => return Err(refused("the token is too long")),
            (Some(token), _) => {
                let user = headers.get(USER_NAME).map(|name| name.to_str());
                let user = user.transpose().map_err(|_| refused("the user's name is not text"))?;
                Identity::Bearer(Bearer { token, user: user.filter(|name| !name.is_empty()).map(str::to_owned) })
            }
            (None, Peer::Socket(socket)) => Identity::Socket(Arc::clone(socket)),
            (None, Peer::Address(_)) => {
                return Err(refused(
                    "no token came with the request; `scontrol token` makes one, for X-SLURM-USER-TOKEN",
                ));
            }
        };
        let confirmed = self.confirm(cluster, &identity).await?;
        let turns = self.turns_of(confirmed.uid);
        let turn = turns.acquire_owned().await.map_err(|_| unexpected())?;
        let Confirmed { uid, user, group, operator, .. } = confirmed;
        Ok(Caller { identity, uid, user, group, operator, by_cookie, _turn: Arc::new(turn) })
    }

    /// Asks the controller which user has this proof, unless it was asked lately.
    pub(crate) async fn confirm(&self, cluster: &Cluster, identity: &Identity) -> Result<Confirmed, ClientError> {
        let key = match identity {
            Identity::Bearer(bearer) => Some((bearer.token.clone(), bearer.user.clone())),
            Identity::Socket(_) => None,
        };
        let known = |key| {
            let confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
            confirmed.get(key).filter(|known| known.at.elapsed() < CONFIRMED).cloned()
        };
        if let Some(known) = key.as_ref().and_then(known) {
            return Ok(known);
        }
        let _turn = self.turn_of_strangers().await?;
        let at = Instant::now();
        let Answer::Caller { uid, user, group, operator } = cluster.ask(identity, Request::Caller).await? else {
            return Err(unexpected());
        };
        let found = Confirmed { at, uid, user, group, operator };
        if let Some(key) = key {
            let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
            if confirmed.len() >= CONFIRMED_MAX {
                confirmed.clear();
            }
            confirmed.insert(key, found.clone());
        }
        Ok(found)
    }

    /// Waits until the controller may be asked about a caller that is not known yet.
    pub(crate) async fn turn_of_strangers(&self) -> Result<SemaphorePermit<'_>, ClientError> {
        self.confirming.acquire().await.map_err(|_| unexpected())
    }

    fn turns_of(&self, uid: u32) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= CONFIRMED_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        Arc::clone(turns.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(REQUESTS_OF_USER))))
    }
}

/// Returns the token that came with a request, and whether it came in a cookie.
fn token(headers: &HeaderMap) -> (Option<String>, bool) {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let bearer = || text(header::AUTHORIZATION.as_str())?.strip_prefix("Bearer ").map(str::trim);
    if let Some(token) = text(USER_TOKEN).or_else(bearer).filter(|token| !token.is_empty()) {
        return (Some(token.to_owned()), false);
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let found = pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value.to_owned());
    let found = found.filter(|token| !token.is_empty());
    let by_cookie = found.is_some();
    (found, by_cookie)
}
