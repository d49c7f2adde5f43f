//! Requests that are retried while the controller may be restarting. Repeating a request under the same key is
//! harmless.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_model::id::ClientKey;
use squall_model::wire::client::{Answer, Refusal, Request};

use squall_client::{Client, ClientError, SILENCE, random};

/// Timeout for a request if no cluster runs on this machine.
const NOWHERE: Duration = Duration::from_secs(1);
/// Timeout for a controller that does not answer, or is lost, after a request was sent.
const INTERRUPTED: Duration = Duration::from_mins(1);
/// Length of the wait after which a message tells the user that the command waits for the controller.
const EXPLAINED: Duration = Duration::from_secs(2);
/// Pauses between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A series of attempts to send a request to the controller.
#[derive(Debug)]
pub(crate) struct Patience {
    command: &'static str,
    since: Instant,
    limit: Duration,
    pause: Duration,
    explained: bool,
}

impl Patience {
    /// Starts a series of attempts for a first request, with the usual timeout.
    pub(crate) fn new(command: &'static str) -> Self {
        Self { command, since: Instant::now(), limit: SILENCE, pause: PAUSES.0, explained: false }
    }

    /// Starts a series of attempts for a request that was sent already. The timeout is longer, because the answer
    /// matters.
    pub(crate) fn interrupted(command: &'static str) -> Self {
        Self { limit: INTERRUPTED, ..Self::new(command) }
    }

    /// Pauses after a failure. Returns false, without a pause, if it is time to give up or a retry can't help.
    pub(crate) fn wait(&mut self, error: &ClientError) -> bool {
        let there = Place::find().is_some_and(|place| place.run().is_dir());
        let limit = if there { self.limit } else { NOWHERE };
        if !may_pass(error) || self.since.elapsed() + self.pause > limit {
            return false;
        }
        if self.since.elapsed() > EXPLAINED && !std::mem::replace(&mut self.explained, true) {
            let seconds = limit.as_secs();
            eprintln!("{}: the controller does not answer; trying again for up to {seconds} seconds", self.command);
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }

    /// Connects to the controller, with retries.
    pub(crate) fn connect(&mut self) -> Result<Client, ClientError> {
        loop {
            let greeted = Client::connect(self.command).and_then(|mut client| {
                client.greet()?;
                Ok(client)
            });
            match greeted {
                Err(error) if self.wait(&error) => {}
                result => return result,
            }
        }
    }

    /// Returns the cluster's name, with retries.
    pub(crate) fn cluster(&mut self) -> Result<String, ClientError> {
        Ok(self.connect()?.cluster()?.to_owned())
    }

    /// Connects, sends a request and returns the first answer; retries when the connection is lost.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<(Client, Answer), ClientError> {
        let (mut request, mut heard) = (Cow::Borrowed(request), false);
        loop {
            let mut client = match Client::connect(self.command) {
                Err(error) if self.wait(&error) => continue,
                connected => connected?,
            };
            match client.ask(&*request) {
                Ok(answer) => return Ok((client, answer)),
                Err(error) => {
                    match &error {
                        // The request reached no cell: under another key another cell may get it.
                        ClientError::Refused(Refusal::CellAway(_)) if !heard => request.to_mut().rekey(fresh_key()),
                        ClientError::Refused(_) => {}
                        _ => heard = true,
                    }
                    self.limit = INTERRUPTED;
                    if !self.wait(&error) {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Returns whether a retry may succeed after this error.
pub(crate) fn may_pass(error: &ClientError) -> bool {
    error.is_transient() || matches!(error, ClientError::Refused(Refusal::ShuttingDown))
}

/// Returns a random, hence unique, key for a request.
pub(crate) fn fresh_key() -> ClientKey {
    ClientKey(u128::from_le_bytes(random()))
}

/// An attempt to reconnect to the controller, in a thread, so that the command goes on meanwhile.
#[derive(Debug)]
pub(crate) struct Search {
    found: Receiver<Result<Client, ClientError>>,
    wake: UnixStream,
}

impl Search {
    /// Starts the attempt to reconnect, with the timeout for interrupted requests.
    pub(crate) fn begin(command: &'static str) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let (sender, found) = sync_channel(1);
        std::thread::spawn(move || {
            // Fails if the command has ended meanwhile.
            drop(sender.send(Patience::interrupted(command).connect()));
            drop(waker);
        });
        Ok(Self { found, wake })
    }

    /// Returns the result of the attempt; waits for it if necessary. The object's descriptor becomes readable when
    /// there is one.
    pub(crate) fn found(self) -> Result<Client, ClientError> {
        self.found.recv().unwrap_or_else(|_| Err(ClientError::Lost("the search ended".into())))
    }
}

impl AsFd for Search {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
