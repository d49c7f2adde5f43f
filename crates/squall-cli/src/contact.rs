//! Asking the controller for as long as it may be restarting: the same request with the same key is harmless.

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

/// How long to look for a cluster where there is none.
const NOWHERE: Duration = Duration::from_secs(1);
/// How long a controller that went away with a request, or keeps it to itself, may take to come back.
const INTERRUPTED: Duration = Duration::from_mins(1);
/// After so long the user hears why nothing happens.
const EXPLAINED: Duration = Duration::from_secs(2);
/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Who asks again and again.
#[derive(Debug)]
pub(crate) struct Patience {
    command: &'static str,
    since: Instant,
    limit: Duration,
    pause: Duration,
    explained: bool,
}

impl Patience {
    /// For a first request.
    pub(crate) fn new(command: &'static str) -> Self {
        Self { command, since: Instant::now(), limit: SILENCE, pause: PAUSES.0, explained: false }
    }

    /// For a request that was sent already: its answer matters.
    pub(crate) fn interrupted(command: &'static str) -> Self {
        Self { limit: INTERRUPTED, ..Self::new(command) }
    }

    /// After a failure: waits a little, or says that it is time to give up.
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

    /// A connection, as soon as there is one.
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

    /// The cluster's name, as soon as its controller says it.
    pub(crate) fn cluster(&mut self) -> Result<String, ClientError> {
        Ok(self.connect()?.cluster()?.to_owned())
    }

    /// Connects, greets and sends in one, and takes the first answer; begins anew when the connection is lost.
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
                        // Nobody has heard of it: under another key it may be for another cell.
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

/// Whether asking again may help.
pub(crate) fn may_pass(error: &ClientError) -> bool {
    error.is_transient() || matches!(error, ClientError::Refused(Refusal::ShuttingDown))
}

/// A key that nobody else has.
pub(crate) fn fresh_key() -> ClientKey {
    ClientKey(u128::from_le_bytes(random()))
}

/// A connection that a thread looks for, so that nothing else has to wait.
#[derive(Debug)]
pub(crate) struct Search {
    found: Receiver<Result<Client, ClientError>>,
    wake: UnixStream,
}

impl Search {
    /// Begins to look, for as long as an interrupted request is worth.
    pub(crate) fn begin(command: &'static str) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let (sender, found) = sync_channel(1);
        std::thread::spawn(move || {
            // Nobody listens any more if the command has ended meanwhile.
            drop(sender.send(Patience::interrupted(command).connect()));
            drop(waker);
        });
        Ok(Self { found, wake })
    }

    /// The result; it waits for it. The descriptor of this is readable when there is one.
    pub(crate) fn found(self) -> Result<Client, ClientError> {
        self.found.recv().unwrap_or_else(|_| Err(ClientError::Lost("the search ended".into())))
    }
}

impl AsFd for Search {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
