//! A follower of the cluster's events, which resumes by itself when the controller restarts.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request};
use squall_model::wire::feed::{FeedKind, FeedPage, Position};

use crate::connection::{Client, ClientError, find_place, unexpected};

/// How long a call retries while the controller is away.
const AWAY: Duration = Duration::from_mins(1);
/// Pause between attempts to reach the controller. The controller keeps events for some seconds after its start, so
/// that followers come back in time.
const PAUSE: Duration = Duration::from_millis(250);

/// The events that a follower wants. Default: all, from now on.
#[derive(Clone, Debug, Default)]
pub struct FeedSelection {
    /// Position from which to follow. None: from now on.
    pub from: Option<Position>,
    /// Conditions on jobs and nodes. With conditions on jobs, events that are about no job are left out.
    pub jobs: JobSelection,
    /// Kinds of events. Empty: all.
    pub kinds: Vec<FeedKind>,
}

/// A follower of a cluster's events.
#[derive(Debug)]
pub struct Follower {
    place: Place,
    /// Name of the command, for the controller.
    command: String,
    wanted: FeedSelection,
    /// Connection to the controller; None: it has ended, and the next call makes a new one.
    client: Option<Client>,
}

impl Follower {
    /// Makes a follower, which connects at the first call of [`Follower::next_page`]. `command` is the name of this
    /// command.
    pub fn new(place: Place, command: &str, wanted: FeedSelection) -> Self {
        Self { place, command: command.to_owned(), wanted, client: None }
    }

    /// Makes a follower of the cluster that commands talk to, and connects. Unlike [`Follower::next_page`] it does not
    /// retry for long.
    pub fn connect(command: &str, wanted: FeedSelection) -> Result<Self, ClientError> {
        let mut follower = Self::new(find_place()?, command, wanted);
        follower.client = Some(follower.call()?);
        Ok(follower)
    }

    /// Waits for the next page of events. The first page of a connection comes at once and has no events. While the
    /// controller can't be reached, retries for up to a minute, and resumes after the last page.
    pub fn next_page(&mut self) -> Result<FeedPage, ClientError> {
        let mut away_since = None;
        loop {
            match self.receive() {
                Ok(page) => {
                    self.wanted.from = Some(page.next);
                    return Ok(page);
                }
                Err(error) => {
                    let passes = error.is_transient() || matches!(error, ClientError::Refused(Refusal::ShuttingDown));
                    if !passes || away_since.get_or_insert_with(Instant::now).elapsed() > AWAY {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Returns the position after the last page. None: there was no page, and none was given.
    pub fn position(&self) -> Option<Position> {
        self.wanted.from
    }

    /// Returns the socket, for callers that poll several things at once. None: there is no connection.
    pub fn stream(&self) -> Option<&UnixStream> {
        self.client.as_ref().map(Client::stream)
    }

    /// Connects, and sends the request.
    fn call(&self) -> Result<Client, ClientError> {
        let mut client = Client::connect_to(&self.place, &self.command)?;
        let FeedSelection { from, jobs, kinds } = self.wanted.clone();
        client.send(&Request::Follow { from, jobs: Box::new(jobs), kinds })?;
        Ok(client)
    }

    fn receive(&mut self) -> Result<FeedPage, ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.call()?,
        };
        let Answer::Followed(page) = client.receive()? else { return Err(unexpected()) };
        // After the first page nothing may happen for long.
        client.wait_up_to(None)?;
        self.client = Some(client);
        Ok(*page)
    }
}
