//! Runs a controller's [`Replica`] on a thread of its own: nothing that the controller does delays its lease.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use squall_engine::machine::Machine;
use squall_engine::replica::etcd::{Ask, Problem, Reply};
use squall_engine::replica::{Act, Input, Lane, Replica, Settings, Why};
use squall_model::replica::{Leader, Member, TrustFile};
use squall_model::time::Time;
use squall_model::wire::join::PublicKey;
use tokio::sync::mpsc;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::caller::Caller;

/// Time that etcd has to answer, besides renewals of the lease.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most news that may wait for the controller.
const NEWS_MAX: usize = 64;
/// Most inputs that may wait for the replica: an append at a time, and a word about keys or the copy now and then.
const INPUTS_MAX: usize = 256;
/// Number of lanes, each with at most one open question.
const LANES: usize = 3;

/// How etcd is reached.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// Its members, each `HOST:PORT`.
    pub members: Vec<String>,
    /// Certificate of the authority of the members (PEM). None: no TLS.
    pub ca: Option<Vec<u8>>,
    /// Certificate and key to be shown to them (PEM).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// User and password.
    pub user: Option<(String, String)>,
}

impl Servers {
    fn endpoints(&self) -> Result<Vec<Endpoint>, String> {
        self.members.iter().map(|member| self.endpoint(member)).collect()
    }

    /// Returns the way to one member.
    pub(super) fn endpoint(&self, member: &str) -> Result<Endpoint, String> {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        let wrong = |e: tonic::transport::Error| format!("etcd at {member}: {e}");
        let endpoint = Endpoint::from_shared(format!("{scheme}://{member}")).map_err(wrong)?;
        let endpoint = endpoint.connect_timeout(PATIENCE);
        let Some(ca) = &self.ca else { return Ok(endpoint) };
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        endpoint.tls_config(tls).map_err(wrong)
    }
}

/// What a controller hears from its replica.
#[derive(Debug)]
pub enum News {
    /// See [`Act::Adopt`].
    Adopt(u64),
    /// A batch that the leader has appended: the number of its last record, and its encoded content.
    Apply(u64, Vec<u8>),
    /// It leads from now on, in the term of this number.
    Lead(u64),
    /// Another controller leads, or none: the leader, with the number of its term.
    Leader(Option<(Leader, u64)>),
    /// All files of `keys/` that are in etcd: at the start, and when one was changed.
    Trust(Vec<(String, TrustFile)>),
    /// See [`Act::Shared`].
    Shared(u64),
    /// See [`Act::Behind`].
    Behind(u64),
    /// See [`Act::Trouble`].
    Trouble(Option<String>),
    /// The run is over. Nothing that this process says counts any more.
    Ended(Why),
}

/// A controller's handle of its replica.
#[derive(Clone, Debug)]
pub struct ReplicaHandle {
    inputs: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The boot clock until which the controller leads, microseconds. 0: it does not lead.
    until: AtomicU64,
    /// The boot clock when the controller had applied the whole log last, microseconds. 0: not yet.
    fresh: AtomicU64,
    full: AtomicBool,
    members: Mutex<Vec<(String, Member)>>,
    leader: Mutex<Option<Leader>>,
}

impl ReplicaHandle {
    /// Whether the word of this controller counts: it leads, and its lease has not expired.
    pub fn counts(&self) -> bool {
        boot_time().0 < self.shared.until.load(Ordering::Acquire)
    }

    /// Returns for how long the controller has not had applied the whole log, as far as it knows. None: it never has.
    pub fn age(&self) -> Option<Duration> {
        let fresh = Time(self.shared.fresh.load(Ordering::Acquire));
        (fresh.0 > 0).then(|| Duration::from_micros(boot_time().since(fresh).0))
    }

    /// Whether etcd has little room left.
    pub fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Acquire)
    }

    /// Returns the controller that leads, as far as is known.
    pub fn leader(&self) -> Option<Leader> {
        self.shared.leader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what the controllers have told of themselves a moment ago, by name.
    pub fn members(&self) -> Vec<(String, Member)> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells that records up to `seq` are on this controller's disk.
    pub fn durable(&self, seq: u64) {
        self.tell(Input::Durable { seq });
    }

    /// Tells that this controller has the controllers' key to come with this public half; None: it has none.
    pub fn holds(&self, next: Option<PublicKey>) {
        self.tell(Input::Holds(next));
    }

    /// Passes files of `keys/` to the other controllers. [`News::Shared`] follows, with the number of such calls.
    pub fn trust(&self, files: Vec<(String, TrustFile)>) {
        self.tell(Input::Trust(files));
    }

    /// Ends the leadership. `to`: the controller which goes first. Nothing may be appended afterwards.
    pub fn resign(&self, to: Option<String>) {
        self.tell(Input::Resign { to });
    }

    /// Ends the leadership, and has all controllers end.
    pub fn stop(&self) {
        self.tell(Input::Stop);
    }

    pub(super) fn append(&self, first: u64, last: u64, bytes: Vec<u8>) {
        self.tell(Input::Append { first, last, bytes: Arc::new(bytes) });
    }

    fn tell(&self, input: Input) {
        match self.inputs.try_send(input) {
            // The driver ends only after `Ended`, by which nothing counts any more.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => tracing::error!("the thread that follows etcd is stuck"),
        }
    }
}

/// How an append has ended: `Err` without a reason means that this controller leads no more.
pub(super) type Appended = Result<(), Option<String>>;

/// Starts the replica of a controller. Returns its handle, its news, and the ends of its appends.
pub fn start(
    servers: &Servers,
    settings: Settings,
) -> Result<(ReplicaHandle, mpsc::Receiver<News>, super::Appends), String> {
    let endpoints = servers.endpoints()?;
    let user = servers.user.clone();
    let (inputs, inbox) = mpsc::channel(INPUTS_MAX);
    let (news, heard) = mpsc::channel(NEWS_MAX);
    let (appended, appends) = std::sync::mpsc::sync_channel(2);
    let shared = Arc::<Shared>::default();
    let replica = ReplicaHandle { inputs, shared: Arc::clone(&shared) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start a thread for etcd: {e}"))?;
    let renewal = Duration::from_secs(settings.lease_s) / 4;
    let driver = Driver { replica: Replica::new(settings, boot_time()), shared, news, appended };
    let run = move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, driver.run(endpoints, user, renewal, inbox));
    };
    std::thread::Builder::new().name("etcd".into()).spawn(run).map_err(|e| format!("cannot start a thread: {e}"))?;
    Ok((replica, heard, super::Appends(appends)))
}

/// The time since the machine's start, which goes on while the machine sleeps.
fn boot_time() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Time(now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000)
}

struct Driver {
    replica: Replica,
    shared: Arc<Shared>,
    news: mpsc::Sender<News>,
    appended: SyncSender<Appended>,
}

impl Driver {
    async fn run(
        mut self,
        endpoints: Vec<Endpoint>,
        user: Option<(String, String)>,
        renewal: Duration,
        mut inbox: mpsc::Receiver<Input>,
    ) {
        let (replies, mut answers) = mpsc::channel(LANES);
        let lane = |lane, timeout| serve(lane, Caller::new(endpoints.clone(), user.clone(), timeout), replies.clone());
        let (lease, log, side) = (lane(Lane::Lease, renewal), lane(Lane::Log, PATIENCE), lane(Lane::Side, PATIENCE));
        let mut input = Input::Tick;
        loop {
            let mut acts = Vec::new();
            self.replica.step(boot_time(), input, &mut acts);
            self.shared.until.store(self.replica.leads_until().map_or(0, |until| until.0), Ordering::Release);
            for act in acts {
                if let Act::Ask { lane, ask } = act {
                    let asks = match lane {
                        Lane::Lease => &lease,
                        Lane::Log => &log,
                        Lane::Side => &side,
                    };
                    // The lane is free: its last question was answered.
                    drop(asks.try_send(ask));
                } else if self.act(act).await.is_break() {
                    return;
                }
            }
            // After what it has read was passed on: before that the controller does not have it.
            self.shared.fresh.store(self.replica.fresh().map_or(0, |fresh| fresh.0), Ordering::Release);
            input = tokio::select! {
                biased;
                Some((lane, reply)) = answers.recv() => Input::Reply { lane, reply },
                told = inbox.recv() => match told {
                    Some(told) => told,
                    // The controller has ended, and with it the process soon will.
                    None => return,
                },
                () = until(self.replica.deadline()) => Input::Tick,
            };
        }
    }

    async fn act(&mut self, act: Act) -> std::ops::ControlFlow<()> {
        let news = match act {
            Act::Ask { .. } => return std::ops::ControlFlow::Continue(()),
            Act::Adopt { log } => News::Adopt(log),
            Act::Apply { first: _, last, bytes } => News::Apply(last, bytes),
            Act::Lead { term } => News::Lead(term),
            Act::Leader(leader) => {
                let known = leader.as_ref().map(|(leader, _)| leader.clone());
                *self.shared.leader.lock().unwrap_or_else(PoisonError::into_inner) = known;
                News::Leader(leader)
            }
            Act::Trust(files) => News::Trust(files),
            Act::Shared { given } => News::Shared(given),
            Act::Behind { first } => News::Behind(first),
            Act::Trouble(why) => News::Trouble(why),
            Act::Appended(done) => {
                self.say(done.map_err(Some));
                return std::ops::ControlFlow::Continue(());
            }
            Act::Members(members) => {
                *self.shared.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
                return std::ops::ControlFlow::Continue(());
            }
            Act::Full(full) => {
                self.shared.full.store(full, Ordering::Release);
                return std::ops::ControlFlow::Continue(());
            }
            Act::Ended(why) => {
                self.say(Err(None));
                drop(self.news.send(News::Ended(why)).await);
                return std::ops::ControlFlow::Break(());
            }
        };
        // Whoever follows is slower than etcd: the replica waits with the next poll.
        match self.news.send(news).await {
            Ok(()) => std::ops::ControlFlow::Continue(()),
            Err(_) => std::ops::ControlFlow::Break(()),
        }
    }

    fn say(&self, done: Appended) {
        // One append at a time is asked for, and an end may follow it: both fit. Nobody waits after the end.
        if let Err(TrySendError::Full(_)) = self.appended.try_send(done) {
            tracing::error!("an append was answered twice");
        }
    }
}

/// Serves one lane: asks one question after the other.
fn serve(lane: Lane, mut caller: Caller, replies: mpsc::Sender<(Lane, Result<Reply, Problem>)>) -> mpsc::Sender<Ask> {
    let (asks, mut inbox) = mpsc::channel(1);
    tokio::task::spawn_local(async move {
        while let Some(ask) = inbox.recv().await {
            let reply = caller.ask(ask).await;
            if replies.send((lane, reply)).await.is_err() {
                return;
            }
        }
    });
    asks
}

async fn until(time: Option<Time>) {
    match time {
        Some(time) => tokio::time::sleep(Duration::from_micros(time.since(boot_time()).0)).await,
        None => std::future::pending().await,
    }
}
