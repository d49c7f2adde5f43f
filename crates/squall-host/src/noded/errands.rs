//! Questions of a joined node to its controller, outside the tree, over a connection that is kept for a while.

use std::io;
use std::time::Duration;

use squall_files::place::Place;
use squall_model::wire::join::{Question, TOKEN, Told};
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

type Errand = (Question, oneshot::Sender<io::Result<Told>>);

/// Handle for asking the controller; may be cloned.
#[derive(Clone)]
pub(super) struct Errands(mpsc::Sender<Errand>);

impl Errands {
    /// Starts the task that sends questions to the controller that this node has joined.
    pub(super) fn start(joined: Joined, keys: KeyPair) -> Self {
        let (errands, inbox) = mpsc::channel(WAITING_MAX);
        tokio::task::spawn_local(run(joined, keys, inbox));
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

async fn run(joined: Joined, keys: KeyPair, mut inbox: mpsc::Receiver<Errand>) {
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
            told = match connect(&joined, &keys, Proof::Peer).await {
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

async fn connect(joined: &Joined, keys: &KeyPair, proof: Proof) -> io::Result<(Reader, Writer)> {
    let (mut reader, mut writer) = hop::call(&joined.controller, keys, &joined.key).await?;
    let hello = Hello { proof, ..Hello::new(Role::Enquirer(joined.name.clone())) };
    link::write(&mut writer, &hello).await?;
    let theirs = answered(link::read::<Hello>(&mut reader)).await?;
    theirs.agreed().map_err(|e| io::Error::other(format!("the controller: {e}")))?;
    match theirs.role {
        Role::Controller => Ok((reader, writer)),
        _ => Err(io::Error::other("it is no controller")),
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

/// Joins the cluster of the controller at `controller` as node `name`, with an invitation. Blocks. Afterwards the state
/// folder has the controller's address and key, and the invitation is not needed any more; after the node's key was
/// revoked, a new one is.
pub fn join(place: &Place, controller: &str, name: &str, token: &Token) -> io::Result<()> {
    let trust = Trust::of(place);
    let joined = Joined { name: name.to_owned(), controller: controller.to_owned(), key: token.controller };
    let again = trust.joined()?.is_some_and(|known| known.name == joined.name && known.key == joined.key);
    if !again && has_cluster(place) {
        let dir = place.dir().display();
        return Err(io::Error::other(format!(
            "{dir} belongs to another cluster already: use --state for another folder"
        )));
    }
    let keys = trust.own_key(None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told: io::Result<Told> = runtime.block_on(async {
        let proof = Proof::Scheme(TOKEN.to_owned(), token.secret.to_vec());
        let mut line = connect(&joined, &keys, proof).await?;
        exchange(&mut line, &Question::Peer(joined.name.clone())).await
    });
    match told {
        Ok(Told::Refused(reason)) => Err(io::Error::other(reason)),
        Ok(Told::Peer(_) | Told::Charter { .. }) => trust.note_joined(&joined),
        // A node that has joined before can wait for the controller.
        Err(_) if again => trust.note_joined(&joined),
        Err(e) => Err(io::Error::new(e.kind(), format!("{controller}: {e}"))),
    }
}

/// Whether `place` is the state folder of a controller, or of a node that has joined another cluster.
fn has_cluster(place: &Place) -> bool {
    place.journal().exists() || place.joined().exists()
}
