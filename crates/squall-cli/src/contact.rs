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

use crate::client::{Client, ClientError, SILENCE, random};

/// Timeout where no cluster runs on this machine.
const NOWHERE: Duration = Duration::from_secs(1);
/// Timeout for a controller that is lost, or doesn't answer, after a request was sent.
const INTERRUPTED: Duration = Duration::from_mins(1);
/// After this time a message tells the user that the controller is being waited for.
const EXPLAINED: Duration = Duration::from_secs(2);
/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A series of attempts to reach the controller.
#[derive(Debug)]
pub(crate) struct Patience {
    command: &'static str,
    since: Instant,
    limit: Duration,
    pause: Duration,
    explained: bool,
}

impl Patience {
    /// Starts a series for a first request, with the usual timeout.
    pub(crate) fn new(command: &'static str) -> Self {
        Self { command, since: Instant::now(), limit: SILENCE, pause: PAUSES.0, explained: false }
    }

    /// Starts a series for a request that was sent already; the timeout is longer, as its answer matters.
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
            match client.ask(&request) {
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

/// Returns whether a retry may help.
pub(crate) fn may_pass(error: &ClientError) -> bool {
    error.is_transient() || matches!(error, ClientError::Refused(Refusal::ShuttingDown))
}

/// Returns a random, hence unique, key for a request.
pub(crate) fn fresh_key() -> ClientKey {
    ClientKey(u128::from_le_bytes(random()))
}

/// A connection attempt in a thread, so that the rest of the command needn't wait.
#[derive(Debug)]
pub(crate) struct Search {
    found: Receiver<Result<Client, ClientError>>,
    wake: UnixStream,
}

impl Search {
    /// Starts the attempt, with the timeout for an interrupted request.
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

    /// Waits for the result and returns it. The descriptor becomes readable when there is one.
    pub(crate) fn found(self) -> Result<Client, ClientError> {
        self.found.recv().unwrap_or_else(|_| Err(ClientError::Lost("the search ended".into())))
    }
}

impl AsFd for Search {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
