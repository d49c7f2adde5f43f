//! The controller that this machine has joined: connections to it, and questions outside the tree, over a connection
//! that is kept for a while.

use std::io;
use std::time::Duration;

use squall_files::place::Place;
use squall_model::wire::join::{LOGIN_TOKEN, Question, TOKEN, Told};
use squall_model::wire::{Hello, Proof, Role};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::hop::{self, Reader, Writer};
use crate::link;
use crate::noise::KeyPair;
use crate::trust::{Joined, Token, Trust};

/// Time limit for the controller's answer to a question.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Most questions that may be queued.
const WAITING_MAX: usize = 256;
/// A connection without questions for this long is closed.
const IDLE: Duration = Duration::from_mins(2);

/// This machine's place in the cluster that it has joined, and the key by which it is known there.
#[derive(Clone)]
pub(super) struct Membership {
    pub(super) joined: Joined,
    pub(super) keys: KeyPair,
}

impl Membership {
    /// Connects to the controller.
    pub(super) async fn call(&self) -> io::Result<(Reader, Writer)> {
        hop::call(&self.joined.controller, &self.keys, &self.joined.key).await
    }

    /// Connects to the controller for questions.
    async fn enquire(&self, proof: Proof) -> io::Result<(Reader, Writer)> {
        let (mut reader, mut writer) = self.call().await?;
        let hello = Hello { proof, ..Hello::new(Role::Enquirer(self.joined.name.clone())) };
        link::write(&mut writer, &hello).await?;
        let theirs = answered(link::read::<Hello>(&mut reader)).await?;
        theirs.agreed().map_err(|e| io::Error::other(format!("the controller: {e}")))?;
        match theirs.role {
            Role::Controller => Ok((reader, writer)),
            _ => Err(io::Error::other("it is no controller")),
        }
    }
}

type Errand = (Question, oneshot::Sender<io::Result<Told>>);

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
    pub(super) async fn ask(&self, question: Question) -> io::Result<Told> {
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
            told = exchange(open, &question).await;
        }
        // The controller may have closed the connection since its last use.
        if told.is_err() {
            line = None;
            told = match membership.enquire(Proof::Peer).await {
                Ok(open) => exchange(line.insert(open), &question).await,
                Err(e) => Err(e),
            };
        }
        if !matches!(told, Ok(Told::Peer(_) | Told::Charter { .. })) {
            line = None;
        }
        // The caller may have stopped waiting.
        drop(answer.send(told));
    }
}

async fn exchange((reader, writer): &mut (Reader, Writer), question: &Question) -> io::Result<Told> {
    link::write(writer, question).await?;
    answered(link::read(reader)).await
}

async fn answered<T>(reading: impl Future<Output = io::Result<Option<T>>>) -> io::Result<T> {
    let late = |_| io::Error::other("the controller does not answer");
    timeout(ANSWER_TIME, reading).await.map_err(late)??.ok_or_else(|| io::Error::other("the controller hung up"))
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
    let membership = Membership { joined: joined.clone(), keys: trust.own_key(None)? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told: io::Result<Told> = runtime.block_on(async {
        let scheme = if joined.login { LOGIN_TOKEN } else { TOKEN };
        let mut line = membership.enquire(Proof::Scheme(scheme.to_owned(), secret.secret.to_vec())).await?;
        // Any question would do: the controller refuses it if it does not take the invitation.
        let question = if joined.login { Question::Charter { port: 0 } } else { Question::Peer(joined.name.clone()) };
        exchange(&mut line, &question).await
    });
    match told {
        Ok(Told::Refused(reason)) => Err(io::Error::other(reason)),
        Ok(Told::Peer(_) | Told::Charter { .. }) => trust.note_joined(joined),
        // A machine that has joined before can wait for the controller.
        Err(_) if again => trust.note_joined(joined),
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", joined.controller))),
    }
}

/// Whether `place` is the state folder of a controller, or of a machine that has joined another cluster.
fn has_cluster(place: &Place) -> bool {
    place.journal().exists() || place.joined().exists()
}
