//! Connections to the cluster's controller. If there are several, to the one that leads: standbys name it when they greet.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use squall_model::wire::join::PublicKey;
use squall_model::wire::{Hello, Leader, Role};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info};

use crate::hop::{self, Reader, Writer};
use crate::link;
use crate::noise::KeyPair;
use crate::trust::Trust;

/// Time limit for one of several controllers to accept a connection and to greet.
const MEETING_TIME: Duration = Duration::from_millis(1500);
/// Time limit for the only controller.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Pause between two rounds through all controllers while none leads.
const ROUND_PAUSE: Duration = Duration::from_millis(150);
/// What is said of a controller that does not answer.
const SILENT: &str = "it does not answer";
/// Time for which a controller that did not answer is left out. Its lease may end meanwhile.
const LEFT_OUT: Duration = Duration::from_secs(1);
/// Pause before standbys are asked which controller leads: at the start, and after the connections to all have ended.
const WATCH_PAUSE: Duration = Duration::from_millis(250);

/// The controllers of a cluster as one machine reaches them; may be cloned.
#[derive(Clone)]
pub(crate) struct Controllers(Arc<Shared>);

impl std::fmt::Debug for Controllers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Controllers")
    }
}

struct Shared {
    /// Name of the machine, with which it greets.
    name: String,
    keys: Mutex<KeyPair>,
    /// The key that all controllers have.
    theirs: Mutex<PublicKey>,
    /// Where a rotated key is kept, on a machine that has joined.
    keeper: Option<Trust>,
    /// Addresses of the controllers, `HOST:PORT`, in order of preference.
    addresses: Mutex<Vec<String>>,
    /// The controller that led last, as far as is known.
    leader: watch::Sender<Option<Leader>>,
    /// Why none may lead, for the error of a call that finds none.
    why: Mutex<Option<String>>,
    /// Task that notices when another controller leads, while anybody waits for that.
    watcher: Mutex<Weak<Watcher>>,
}

/// A running task; dropping this ends it.
struct Watcher(AbortHandle);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection to the controller that leads, after both sides have greeted.
pub(crate) struct Met {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// The controller's greeting.
    pub(crate) hello: Hello,
    /// Number of the term in which it leads; 0: it is the only controller.
    pub(crate) term: u64,
}

impl Controllers {
    /// Returns the controllers at these addresses, all of which have the key `theirs`. `name` and `keys`: this
    /// machine's.
    pub(crate) fn new(name: &str, keys: KeyPair, theirs: PublicKey, addresses: Vec<String>) -> Self {
        let (leader, _) = watch::channel(None);
        let (name, addresses, watcher) = (name.to_owned(), Mutex::new(addresses), Mutex::default());
        let (keys, theirs, why) = (Mutex::new(keys), Mutex::new(theirs), Mutex::default());
        Self(Arc::new(Shared { name, keys, theirs, keeper: None, addresses, leader, why, watcher }))
    }

    /// Keeps a key to which the controllers' one is rotated in the state folder of a machine that has joined. Before this
    /// is cloned.
    pub(crate) fn keeping(mut self, trust: &Trust) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.keeper = Some(trust.clone());
        }
        self
    }

    /// Returns the key that all controllers have, as far as is known.
    pub(crate) fn key(&self) -> PublicKey {
        *lock(&self.0.theirs)
    }

    /// Calls the other controllers by this key, as its owner, from now on: the caller is one of them.
    pub(crate) fn rekey(&self, keys: &KeyPair) {
        (*lock(&self.0.keys), *lock(&self.0.theirs)) = (keys.clone(), keys.public);
    }

    /// Takes in that the controllers' key was rotated, as a controller itself has said.
    pub(crate) fn learn(&self, key: PublicKey) {
        self.0.learn(key);
    }

    /// Returns the addresses of all controllers.
    pub(crate) fn addresses(&self) -> Vec<String> {
        lock(&self.0.addresses).clone()
    }

    /// Replaces the addresses of the controllers. False: they were the same.
    pub(crate) fn renew(&self, addresses: Vec<String>) -> bool {
        let mut known = lock(&self.0.addresses);
        let new = *known != addresses;
        *known = addresses;
        new
    }

    /// Whether the cluster has several controllers.
    pub(crate) fn are_several(&self) -> bool {
        self.0.are_several()
    }

    /// Connects to the controller that leads. While there is none, goes round through all controllers for up to
    /// `patience`. Err: none leads; the text says what each one answered.
    pub(crate) async fn call(&self, hello: &Hello, patience: Duration) -> io::Result<Met> {
        let (until, mut silent) = (Instant::now() + patience, Vec::new());
        loop {
            match self.0.round(hello, &mut silent).await {
                Err(_) if self.0.are_several() && Instant::now() + ROUND_PAUSE < until => sleep(ROUND_PAUSE).await,
                Err(e) => match &*lock(&self.0.why) {
                    Some(why) => return Err(io::Error::new(e.kind(), format!("{e}; {why}"))),
                    None => return Err(e),
                },
                met => return met,
            }
        }
    }

    /// Waits until a controller leads in a later term than `term`.
    pub(crate) async fn moved(&self, term: u64) {
        if !self.0.are_several() {
            return std::future::pending().await;
        }
        let _watcher = self.watcher();
        let mut leader = self.0.leader.subscribe();
        // Fails only if the sender is gone, which `self` has.
        drop(leader.wait_for(|now| now.as_ref().is_some_and(|now| now.term > term)).await);
    }

    /// Takes in why none may lead, as this controller itself knows; None: nothing keeps them from it.
    pub(crate) fn explain(&self, why: Option<String>) {
        *lock(&self.0.why) = why;
    }

    /// Takes in that a standby has named a leader.
    pub(crate) fn note(&self, leader: &Leader) {
        self.0.note(leader);
    }

    fn watcher(&self) -> Arc<Watcher> {
        let mut watcher = lock(&self.0.watcher);
        if let Some(running) = watcher.upgrade() {
            return running;
        }
        let started = Arc::new(Watcher(tokio::spawn(watch(Arc::clone(&self.0))).abort_handle()));
        *watcher = Arc::downgrade(&started);
        started
    }
}

impl Shared {
    fn are_several(&self) -> bool {
        lock(&self.addresses).len() > 1
    }

    /// Returns the address of the leader, as far as is known.
    fn leader(&self) -> Option<String> {
        self.leader.borrow().as_ref().map(|leader| leader.address.clone())
    }

    /// Takes in that a controller leads, by what a standby or itself says. That may be out of date: only a later term
    /// counts.
    fn note(&self, named: &Leader) {
        self.leader.send_if_modified(|known| {
            let newer = known.as_ref().is_none_or(|known| named.term > known.term);
            if newer {
                *known = Some(named.clone());
            }
            newer
        });
    }

    /// Tries the last leader, then the others in order; at each standby first the leader that it names. `silent`: those
    /// that did not answer in time, and when that was.
    async fn round(&self, hello: &Hello, silent: &mut Vec<(String, Instant)>) -> io::Result<Met> {
        silent.retain(|(_, since)| since.elapsed() < LEFT_OUT);
        let mut left = lock(&self.addresses).clone();
        left.reverse();
        left.extend(self.leader());
        let (mut tried, mut answers) = (Vec::new(), Vec::new());
        let mut kind = io::ErrorKind::NotConnected;
        while let Some(address) = left.pop() {
            if tried.contains(&address) {
                continue;
            }
            if silent.iter().any(|(known, _)| *known == address) {
                answers.push(format!("{address}: {SILENT}"));
                tried.push(address);
                continue;
            }
            match self.meet(&address, hello).await {
                Ok(Met { hello: Hello { role: Role::Standby(standby), .. }, .. }) => match standby.leader {
                    Some(leader) => {
                        answers.push(format!("{address} follows {}", leader.address));
                        self.note(&leader);
                        left.push(leader.address);
                    }
                    None => answers.push(format!("{address} knows of none")),
                },
                Ok(met) => {
                    self.note(&Leader { address: address.clone(), term: met.term });
                    if self.leader.borrow().as_ref().is_none_or(|known| known.term <= met.term) {
                        return Ok(met);
                    }
                    answers.push(format!("{address} led before"));
                }
                Err(e) => {
                    kind = e.kind();
                    answers.push(format!("{address}: {e}"));
                    if kind == io::ErrorKind::TimedOut {
                        silent.push((address.clone(), Instant::now()));
                    }
                }
            }
            tried.push(address);
        }
        Err(io::Error::new(kind, answers.join("; ")))
    }

    fn learn(&self, key: PublicKey) {
        if std::mem::replace(&mut *lock(&self.theirs), key) == key {
            return;
        }
        info!("the controllers have a new key");
        if let Some(Err(e)) = self.keeper.as_ref().map(|trust| trust.renew_joined(&key)) {
            error!(error = %e, "the controllers' new key can't be kept: at the next start the one before is tried");
        }
    }

    /// Connects to the controller at `address`, and exchanges greetings.
    async fn meet(&self, address: &str, hello: &Hello) -> io::Result<Met> {
        let limit = if self.are_several() { MEETING_TIME } else { GREETING_TIME };
        let (keys, theirs) = (lock(&self.keys).clone(), *lock(&self.theirs));
        let meet = async { greet(hop::call(address, &keys, &theirs).await?, hello).await };
        let met = timeout(limit, meet).await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, SILENT))??;
        // Who has answered to the key that is known may name the one that has followed it.
        if let Some(key) = met.hello.key {
            self.learn(key);
        }
        Ok(met)
    }
}

async fn greet((mut reader, mut writer): (Reader, Writer), hello: &Hello) -> io::Result<Met> {
    link::write(&mut writer, hello).await?;
    let hello = link::read::<Hello>(&mut reader).await?.ok_or_else(|| io::Error::other("it hung up"))?;
    hello.agreed().map_err(io::Error::other)?;
    if !matches!(hello.role, Role::Controller | Role::Standby(_)) {
        return Err(io::Error::other("it is no controller"));
    }
    let term = hello.term.unwrap_or(0);
    Ok(Met { reader, writer, hello, term })
}

/// Keeps a connection to a standby, which reports each new leader and closes the connection when it becomes leader itself.
async fn watch(shared: Arc<Shared>) {
    let hello = Hello::new(Role::Enquirer(shared.name.clone()));
    loop {
        // A short command is over before this, and needs no watch.
        sleep(WATCH_PAUSE).await;
        let addresses = lock(&shared.addresses).clone();
        for address in addresses {
            if shared.leader().is_some_and(|leader| leader == address) {
                continue;
            }
            let Ok(mut met) = shared.meet(&address, &hello).await else { continue };
            let mut next = Some(met.hello);
            while let Some(hello) = next {
                let Role::Standby(standby) = hello.role else {
                    shared.note(&Leader { address: address.clone(), term: met.term });
                    break;
                };
                if let Some(leader) = standby.leader {
                    shared.note(&leader);
                }
                next = link::read::<Hello>(&mut met.reader).await.ok().flatten();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
