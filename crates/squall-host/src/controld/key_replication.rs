//! Changes of `keys/` on their way to the other controllers, and the connections that wait until they are there: a
//! machine has joined, or is revoked, only when a controller that takes over knows it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_model::replica::TrustFile;
use squall_model::wire::client::{Answer, Refusal};
use squall_store::etcd::ReplicaHandle;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};

use super::shared_key_files::{SharedKeyFiles, digest_of};
use crate::link::Outgoing;
use crate::pidfile;

/// Time limit of etcd for taking a change. A machine that joins waits two seconds for its answer.
const SHARE_TIME: Duration = Duration::from_millis(1200);
/// Time for which a command waits for this machine's controller to share a change.
const COMMAND_TIME: Duration = Duration::from_secs(5);
/// Interval at which a command looks.
const COMMAND_POLL: Duration = Duration::from_millis(25);
/// Most connections that wait at once.
const ASKS_MAX: usize = 256;

/// Question whether all changes of `keys/` so far are in etcd. It is answered when they are.
type Waiter = oneshot::Sender<()>;

/// Asks the controller's own task to share what was changed in `keys/`; may be cloned.
#[derive(Clone, Debug)]
pub(in crate::controld) struct Asker {
    asks: mpsc::Sender<Waiter>,
    /// The other end, until a task takes it.
    inbox: Arc<Mutex<Option<mpsc::Receiver<Waiter>>>>,
}

impl Asker {
    pub(in crate::controld) fn new() -> Self {
        let (asks, inbox) = mpsc::channel(ASKS_MAX);
        Self { asks, inbox: Arc::new(Mutex::new(Some(inbox))) }
    }

    /// Takes the end at which the questions arrive. None: it was taken.
    pub(super) fn inbox(&self) -> Option<mpsc::Receiver<Waiter>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until all changes of `keys/` so far are in etcd. False: they are not within the time limit.
    pub(in crate::controld) async fn is_shared(&self) -> bool {
        let (ask, answer) = oneshot::channel();
        let asked = async { self.asks.send(ask).await.is_ok() && answer.await.is_ok() };
        tokio::time::timeout(SHARE_TIME, asked).await.unwrap_or(false)
    }
}

/// The files of `keys/` that all controllers have, and what of them is in etcd.
#[derive(Debug)]
pub(super) struct KeyReplication {
    files: SharedKeyFiles,
    replica: ReplicaHandle,
    /// How often changes were passed on, and how often the thread that follows etcd had got some when all were in etcd.
    counts: (u64, u64),
    /// Questions, each with the number of changes that have to be in etcd before it is answered.
    waiting: Vec<(u64, Waiter)>,
    /// Questions from before etcd has answered at all.
    early: Vec<Waiter>,
    /// File that tells commands which files are in etcd.
    mark: PathBuf,
    marked: String,
}

impl KeyReplication {
    /// Begins to share the files of `keys/` in this state folder.
    pub(super) fn begin(place: &Place, replica: ReplicaHandle) -> Self {
        let (files, mark) = (SharedKeyFiles::of(place.keys()), place.keys_shared());
        // Of an earlier run: its files may be others than those that are in etcd now.
        drop(std::fs::remove_file(&mark));
        Self { files, replica, counts: (0, 0), waiting: Vec::new(), early: Vec::new(), mark, marked: String::new() }
    }

    /// Passes on what was changed in `keys/`. False: that is not known yet.
    pub(super) fn look(&mut self) -> bool {
        let changed = self.files.changed();
        let known = changed.is_some();
        self.pass(changed.unwrap_or_default());
        known
    }

    /// Takes the files of `keys/` that are in etcd.
    pub(super) fn keep(&mut self, files: Vec<(String, TrustFile)>) {
        match self.files.take(files) {
            Ok(own) => self.pass(own),
            Err(e) => error!(error = %e, "the keys that another controller has changed can't be written"),
        }
        for ask in std::mem::take(&mut self.early) {
            self.ask(ask);
        }
    }

    /// Shares what was changed, and answers when all of it is in etcd.
    pub(super) fn ask(&mut self, ask: Waiter) {
        if !self.files.has_met() {
            return self.early.push(ask);
        }
        // Without an answer the caller takes it for not shared.
        if self.look() {
            self.waiting.retain(|(_, ask)| !ask.is_closed());
            self.waiting.push((self.counts.0, ask));
            self.answer();
        }
    }

    /// Takes in that everything is in etcd that was passed on in the first `given` times.
    pub(super) fn shared(&mut self, given: u64) {
        self.counts.1 = given;
        self.answer();
    }

    fn pass(&mut self, files: Vec<(String, TrustFile)>) {
        if !files.is_empty() {
            self.counts.0 += 1;
            self.replica.trust(files);
        }
        self.answer();
    }

    fn answer(&mut self) {
        let (told, shared) = self.counts;
        for (_, ask) in self.waiting.extract_if(.., |(needs, _)| *needs <= shared) {
            // Err: the caller has stopped waiting.
            let _ = ask.send(());
        }
        if told == shared && self.files.has_met() {
            let digest = self.files.digest().to_string();
            if digest != self.marked {
                match std::fs::write(&self.mark, &digest) {
                    Ok(()) => self.marked = digest,
                    Err(e) => {
                        warn!(file = %self.mark.display(), error = %e, "commands can't see which keys are shared");
                    }
                }
            }
        }
    }
}

/// Acknowledges, on a connection, that the tokens of a user are revoked when all controllers know it: the next one to
/// lead would take them otherwise.
pub(super) fn acknowledge(asker: Asker, user: String, out: Outgoing) {
    tokio::task::spawn_local(async move {
        out.push_or_close(&acknowledgement(&asker, user).await);
    });
}

async fn acknowledgement(asker: &Asker, user: String) -> Answer {
    if asker.is_shared().await {
        return Answer::Done;
    }
    let problem = "its tokens are revoked at this controller, but the others don't know of it yet, as etcd does not \
                   take it: repeat the command";
    Answer::Refused(Refusal::InvalidValue { option: "username".to_owned(), value: user, problem: problem.to_owned() })
}

/// Waits until what a command has changed in `keys/` is known to all controllers of the cluster. Blocks. Err: it is not,
/// with the reason and the remedy as a text for users.
pub fn await_shared(place: &Place) -> Result<(), String> {
    let (start, keys) = (Instant::now(), place.keys());
    let is_shared = || {
        let digest = digest_of(&keys).map_err(|e| format!("{}: {e}", keys.display()))?;
        Ok::<_, String>(std::fs::read_to_string(place.keys_shared()).is_ok_and(|shared| shared == digest.to_string()))
    };
    while !is_shared()? {
        if pidfile::living(&place.controller_pid()).is_none() {
            return Err("the other controllers don't know of it yet, as the controller of this machine does not run: \
                        start it, and repeat the command"
                .to_owned());
        }
        if start.elapsed() >= COMMAND_TIME {
            return Err(
                "the other controllers don't know of it yet, as etcd does not take it. It is passed on when etcd \
                        does: repeat the command then"
                    .to_owned(),
            );
        }
        std::thread::sleep(COMMAND_POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use squall_model::wire::client::{Answer, Refusal};

    use super::{Asker, SHARE_TIME, acknowledgement};

    #[tokio::test]
    async fn a_revocation_is_acknowledged_only_when_it_is_shared() {
        let asker = Asker::new();
        let mut asks = asker.inbox().expect("nobody has taken it");
        let shares = async { asks.recv().await.expect("it asks").send(()) };
        let both = async { tokio::join!(acknowledgement(&asker, "ada".to_owned()), shares) };
        let (answer, heard) = tokio::time::timeout(SHARE_TIME, both).await.expect("it asks, and is answered");
        assert_eq!((answer, heard), (Answer::Done, Ok(())), "it waited for the answer");
        let fails = async { drop(asks.recv().await) };
        let (answer, ()) = tokio::join!(acknowledgement(&asker, "ada".to_owned()), fails);
        assert!(
            matches!(&answer, Answer::Refused(Refusal::InvalidValue { value, .. }) if value == "ada"),
            "{answer:?}"
        );
    }
}
