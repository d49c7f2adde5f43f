//! Users behind requests: found by a token or the kernel, confirmed by the controller.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use squall_client::{ClientError, unexpected};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::join::{Bearer, Passed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::cluster::Cluster;
use crate::seats::{Origin, Seat};

/// Slurm's header with the user's name.
const USER_NAME: &str = "x-slurm-user-name";
/// Slurm's header with the token.
const USER_TOKEN: &str = "x-slurm-user-token";
/// Cookie that holds the token of a person who has logged in to the dashboard.
pub(crate) const COOKIE: &str = "squall_token";
/// How long a token that the controller has accepted is not asked about again. A revoked token is good for reading
/// that long; changes are always checked by the controller.
const CONFIRMED: Duration = Duration::from_secs(5);
/// Most tokens remembered; at this number those of the user with most are forgotten.
const CONFIRMED_MAX: usize = 4096;
/// How long a user's last change is remembered: longer than shared data may be old.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Longest token that is looked at, bytes.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Most requests of one user that are answered at once, up to the last byte that the user takes; further ones wait.
const REQUESTS_OF_USER: usize = 8;
/// Most proofs that the controller is asked about at once of one user or network, and of all whose token was never
/// accepted here.
const CONFIRMING_OF_ONE: usize = 2;
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

/// A request's way to this server: where it comes from, its connection's seat, and the turn of the user who is found to
/// have sent it.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) peer: Peer,
    /// None: in tests, which need no connection.
    seat: Option<Arc<Seat>>,
    turn: Arc<OnceLock<Arc<OwnedSemaphorePermit>>>,
}

impl Visit {
    pub(crate) fn new(peer: Peer, seat: Option<Arc<Seat>>) -> Self {
        Self { peer, seat, turn: Arc::default() }
    }

    /// Returns the turn of the user who has sent the request. None: nobody was found.
    pub(crate) fn turn(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        self.turn.get().cloned()
    }

    /// Returns what the request's connection was counted by when it came.
    pub(crate) fn from(&self) -> Option<Origin> {
        self.seat.as_ref().map(|seat| seat.from())
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

impl Identity {
    /// Returns a token that has come by this way, for its own user or for `user`. The secret is added when it is sent.
    pub(crate) fn of_token(token: String, user: Option<String>, visit: &Visit) -> Self {
        let from = match visit.from() {
            Some(Origin::User(uid)) => format!("uid {uid}"),
            Some(Origin::Network(_)) | None => "away".to_owned(),
        };
        Self::Bearer(Bearer { token, user, passed: Some(Passed { secret: String::new(), from }) })
    }
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
}

/// Callers that were confirmed lately, and those whose requests are under way.
#[derive(Debug)]
pub(crate) struct Callers {
    confirmed: Mutex<HashMap<Bearer, CachedIdentity>>,
    turns: Turns<u32>,
    confirming: Turns<Option<Origin>>,
    strangers: Semaphore,
}

/// Turns that each user or network has a number of, so that who asks for much waits for itself.
#[derive(Debug)]
pub(crate) struct Turns<K> {
    of: Mutex<HashMap<K, Arc<Semaphore>>>,
    each: usize,
}

impl<K: Eq + std::hash::Hash> Turns<K> {
    /// Gives `each` turns to each.
    pub(crate) fn new(each: usize) -> Self {
        Self { of: Mutex::default(), each }
    }

    /// Waits for a turn, which lasts until it is dropped.
    pub(crate) async fn take(&self, key: K) -> Result<OwnedSemaphorePermit, ClientError> {
        let own = {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            if of.len() >= CONFIRMED_MAX {
                // One that is held or waited for has a second reference.
                of.retain(|_, turns| Arc::strong_count(turns) > 1);
            }
            Arc::clone(of.entry(key).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        own.acquire_owned().await.map_err(|_| unexpected())
    }
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
pub(crate) struct CachedIdentity {
    at: Instant,
    uid: u32,
    user: String,
    group: String,
    operator: bool,
}

impl Default for Callers {
    fn default() -> Self {
        Self {
            confirmed: Mutex::default(),
            turns: Turns::new(REQUESTS_OF_USER),
            confirming: Turns::new(CONFIRMING_OF_ONE),
            strangers: Semaphore::new(CONFIRMING_MAX),
        }
    }
}

impl Callers {
    /// Returns the caller of a request with these headers; Err: no proof came with it, or the controller does not accept
    /// it.
    pub(crate) async fn find(
        &self,
        cluster: &Cluster,
        visit: &Visit,
        headers: &HeaderMap,
    ) -> Result<Caller, ClientError> {
        let refused = |why: &str| ClientError::Refused(Refusal::BadToken(why.to_owned()));
        let (token, by_cookie) = token(headers);
        let identity = match (token, &visit.peer) {
            (Some(token), _) if token.len() > TOKEN_BYTES_MAX => return Err(refused("the token is too long")),
            (Some(token), _) => {
                let user = headers.get(USER_NAME).map(|name| name.to_str());
                let user = user.transpose().map_err(|_| refused("the user's name is not text"))?;
                Identity::of_token(token, user.filter(|name| !name.is_empty()).map(str::to_owned), visit)
            }
            (None, Peer::Socket(socket)) => Identity::Socket(Arc::clone(socket)),
            (None, Peer::Address(_)) => {
                return Err(refused(
                    "no token came with the request; `scontrol token` makes one, for X-SLURM-USER-TOKEN",
                ));
            }
        };
        let CachedIdentity { uid, user, group, operator, .. } = self.confirm(cluster, &identity, visit.from()).await?;
        if let Some(seat) = &visit.seat {
            seat.belongs_to(uid);
        }
        if visit.turn.get().is_none() {
            let turn = self.turns.take(uid).await?;
            drop(visit.turn.set(Arc::new(turn)));
        }
        Ok(Caller { identity, uid, user, group, operator, by_cookie })
    }

    /// Asks the controller which user has this proof, unless it was asked lately. `from`: where the proof comes from.
    pub(crate) async fn confirm(
        &self,
        cluster: &Cluster,
        identity: &Identity,
        from: Option<Origin>,
    ) -> Result<CachedIdentity, ClientError> {
        let key = match identity {
            Identity::Bearer(bearer) => Some(bearer.clone()),
            Identity::Socket(_) => None,
        };
        let known = || {
            let confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
            confirmed.get(key.as_ref()?).cloned()
        };
        let before = known();
        if let Some(known) = before.as_ref().filter(|known| known.is_fresh()) {
            return Ok(known.clone());
        }
        // A token that was good once waits for its own user only, one that never was for all of these.
        let _turn = self.confirming.take(before.as_ref().map(|known| Origin::User(known.uid)).or(from)).await?;
        let _stranger = if before.is_none() { Some(self.turn_of_strangers().await?) } else { None };
        if let Some(known) = known().filter(CachedIdentity::is_fresh) {
            return Ok(known);
        }
        let at = Instant::now();
        let Answer::Caller { uid, user, group, operator } = cluster.ask(identity, Request::Caller).await? else {
            return Err(unexpected());
        };
        let found = CachedIdentity { at, uid, user, group, operator };
        if let Some(key) = key {
            let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
            if confirmed.len() >= CONFIRMED_MAX {
                forget(&mut confirmed);
            }
            confirmed.insert(key, found.clone());
        }
        Ok(found)
    }

    /// Waits until the controller may be asked about a caller that is not known yet.
    pub(crate) async fn turn_of_strangers(&self) -> Result<SemaphorePermit<'_>, ClientError> {
        self.strangers.acquire().await.map_err(|_| unexpected())
    }

    /// Waits until the controller may be asked to exchange a link that comes from there.
    pub(crate) async fn turn_to_log_in(
        &self,
        from: Option<Origin>,
    ) -> Result<(OwnedSemaphorePermit, SemaphorePermit<'_>), ClientError> {
        Ok((self.confirming.take(from).await?, self.turn_of_strangers().await?))
    }
}

/// Forgets the tokens of the user who has most of them, so that nobody can have those of others forgotten.
fn forget<K>(confirmed: &mut HashMap<K, CachedIdentity>) {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for known in confirmed.values() {
        *counts.entry(known.uid).or_default() += 1;
    }
    let busiest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(uid, _)| uid);
    confirmed.retain(|_, known| Some(known.uid) != busiest);
}

impl CachedIdentity {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < CONFIRMED
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::{Duration, Instant};

    use tokio::time::timeout;

    use super::{CachedIdentity, Turns, forget};

    #[test]
    fn tokens_of_the_user_with_most_are_forgotten_first() {
        let of = |uid| CachedIdentity {
            at: Instant::now(),
            uid,
            user: String::new(),
            group: String::new(),
            operator: false,
        };
        let mut all: HashMap<u32, CachedIdentity> = (0..10).map(|n| (n, of(if n < 3 { 1001 } else { 1002 }))).collect();
        forget(&mut all);
        assert!(all.len() == 3 && all.values().all(|known| known.uid == 1001));
    }

    #[tokio::test]
    async fn who_has_all_its_turns_keeps_nobody_else_waiting() {
        let turns = Turns::new(2);
        let mut held = vec![turns.take(1001).await.unwrap(), turns.take(1001).await.unwrap()];
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, turns.take(1001)).await.is_err() && timeout(soon, turns.take(1002)).await.is_ok());
        held.pop();
        assert!(timeout(soon, turns.take(1001)).await.is_ok());
    }
}
