//! The controllers that this machine has joined: connections to the one that leads, and questions outside the tree, over
//! a connection that is kept for a while.

use std::io;
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::wire::join::{JoinAnswer, LOGIN_TOKEN, PublicKey, Question, TOKEN};
use squall_model::wire::{Hello, Proof, Role};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::hop::{Reader, Writer};
use crate::leader::Controllers;
use crate::link;
use crate::trust::{Joined, Token, Trust};

/// Time limit for the controller's answer to a question: of the only controller, and of one of several.
const ANSWER_TIMES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(2));
/// How long to look for a controller that leads, if there are several.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Most questions that may be queued.
const WAITING_MAX: usize = 256;
/// A connection without questions for this long is closed.
const IDLE: Duration = Duration::from_mins(2);
/// How long a machine waits for the connection of the one before it under its name to end, and the pause between two
/// tries.
const PREDECESSOR_TIME: Duration = Duration::from_mins(3);
const PREDECESSOR_PAUSE: Duration = Duration::from_secs(2);

/// This machine's place in the cluster that it has joined, and the way to the controllers there.
#[derive(Clone)]
pub(super) struct Membership {
    joined: Joined,
    pub(super) controllers: Controllers,
}

impl Membership {
    /// Returns the place of this machine, which has the keys in `trust`.
    pub(super) fn new(joined: Joined, trust: &Trust) -> io::Result<Self> {
        let controllers = Controllers::new(&joined.name, trust.own_key(None)?, joined.key, joined.controllers.clone());
        Ok(Self { joined, controllers: controllers.keeping(trust) })
    }

    /// Returns this machine's name in the cluster.
    pub(super) fn name(&self) -> &str {
        &self.joined.name
    }

    /// Returns the controllers' public key.
    pub(super) fn key(&self) -> PublicKey {
        self.controllers.key()
    }

    /// Takes over the controllers that the cluster's configuration names now, and stores them.
    pub(super) fn renew(&self, trust: &Trust, config: &str) -> io::Result<()> {
        let Ok(config) = Config::from_toml(config) else { return Ok(()) };
        let controllers: Vec<String> = config.controller_addresses().map(str::to_owned).collect();
        if controllers.is_empty() || !self.controllers.renew(controllers.clone()) {
            return Ok(());
        }
        tracing::info!(controllers = controllers.join(","), "the cluster's controllers are others now");
        trust.note_joined(&Joined { controllers, key: self.key(), ..self.joined.clone() })
    }

    /// Connects to the controller for questions.
    async fn enquire(&self, proof: Proof) -> io::Result<(Reader, Writer)> {
        let hello = Hello { proof, ..Hello::new(Role::Enquirer(self.joined.name.clone())) };
        let met = self.controllers.call(&hello, PATIENCE).await?;
        Ok((met.reader, met.writer))
    }

    async fn exchange(&self, (reader, writer): &mut (Reader, Writer), question: &Question) -> io::Result<JoinAnswer> {
        let late = |_| io::Error::other("the controller does not answer");
        let limit = if self.controllers.are_several() { ANSWER_TIMES.1 } else { ANSWER_TIMES.0 };
        link::write(writer, question).await?;
        let answer = timeout(limit, link::read(reader)).await.map_err(late)??;
        answer.ok_or_else(|| io::Error::other("the controller hung up"))
    }
}

type Errand = (Question, oneshot::Sender<io::Result<JoinAnswer>>);

/// Handle for asking the controller; may be cloned.
#[derive(Clone)]
pub(super) struct Errands(mpsc::Sender<Errand>);

impl Errands {
    /// Starts the task that sends questions to the controller that this machine has joined.
    pub(super) fn start(membership: Membership) -> Self {
        let (errands, inbox) = mpsc::channel(WAITING_MAX);
        tokio::task::spawn_local(run(membership, inbox));
        Self(errands)
    }

    /// Asks a question; returns the answer. Err: the controller can't be reached.
    pub(super) async fn ask(&self, question: Question) -> io::Result<JoinAnswer> {
        let (answer, told) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.try_send((question, answer)).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

async fn run(membership: Membership, mut inbox: mpsc::Receiver<Errand>) {
    let mut line = None;
    loop {
        let (question, answer) = match timeout(IDLE, inbox.recv()).await {
            Ok(Some(errand)) => errand,
            Ok(None) => return,
            Err(_) => {
                line = None;
                continue;
            }
        };
        let mut told = Err(io::ErrorKind::NotConnected.into());
        if let Some(open) = &mut line {
            told = membership.exchange(open, &question).await;
        }
        // The controller may have closed the connection since its last use.
        if told.is_err() {
            line = None;
            told = match membership.enquire(Proof::Peer).await {
                Ok(open) => membership.exchange(line.insert(open), &question).await,
                Err(e) => Err(e),
            };
        }
        if !matches!(told, Ok(JoinAnswer::Peer(_) | JoinAnswer::Charter { .. })) {
            line = None;
        }
        // The caller may have stopped waiting.
        drop(answer.send(told));
    }
}

/// Joins the cluster of a controller with an invitation, as a login host or a node. Blocks. Afterwards the state folder
/// has the controller's address and key, and the invitation is not needed any more; after the key was revoked, a new
/// one is.
pub fn join(place: &Place, joined: &Joined, secret: &Token) -> io::Result<()> {
    let trust = Trust::of(place);
    let of = |known: &Joined| known.name == joined.name && known.key == joined.key && known.login == joined.login;
    let again = trust.joined()?.as_ref().is_some_and(of);
    if !again && has_cluster(place) {
        let dir = place.dir().display();
        return Err(io::Error::other(format!(
            "{dir} belongs to another cluster already, or to this machine under another name: use --state for another \
             folder"
        )));
    }
    let membership = Membership::new(joined.clone(), &trust)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told: io::Result<JoinAnswer> = runtime.block_on(async {
        let scheme = if joined.login { LOGIN_TOKEN } else { TOKEN };
        let end = Instant::now() + PREDECESSOR_TIME;
        loop {
            let mut line = membership.enquire(Proof::Scheme(scheme.to_owned(), secret.secret.to_vec())).await?;
            // Any question would do: the controller refuses it if it does not take the invitation.
            let question =
                if joined.login { Question::Charter { port: 0 } } else { Question::Peer(joined.name.clone()) };
            match membership.exchange(&mut line, &question).await? {
                JoinAnswer::NotNow(reason) if Instant::now() < end => tracing::warn!(%reason, "waiting to join"),
                told => return Ok(told),
            }
            tokio::time::sleep(PREDECESSOR_PAUSE).await;
        }
    });
    // The invitation may be from before a rotation of the controllers' key.
    let joined = Joined { key: membership.key(), ..joined.clone() };
    match told {
        // A machine that has joined before has a key that is known, and can wait for the controller.
        Ok(JoinAnswer::NotNow(_)) | Err(_) if again => trust.note_joined(&joined),
        Ok(JoinAnswer::Refused(reason) | JoinAnswer::NotNow(reason)) => Err(io::Error::other(reason)),
        Ok(JoinAnswer::Peer(_) | JoinAnswer::Charter { .. }) => trust.note_joined(&joined),
        Ok(JoinAnswer::Controller(_) | JoinAnswer::TokenKey(_)) => Err(io::ErrorKind::InvalidData.into()),
        Err(e) => Err(e),
    }
}

/// Whether `place` is the state folder of a controller, or of a machine that has joined another cluster.
fn has_cluster(place: &Place) -> bool {
    place.journal().exists() || place.joined().exists()
}
