//! The key of users' tokens (JWT), which all controllers have: a controller that follows asks the one that leads for it,
//! over the encrypted connection that only the controllers' key opens. It never is in etcd.

use std::io;
use std::time::Duration;

use squall_model::wire::join::{JoinAnswer, Question};
use squall_model::wire::{Hello, Role};
use tokio::time::{sleep, timeout};
use tracing::{debug, info};
use zeroize::Zeroizing;

use super::connection::Others;
use crate::bearer::Bearers;
use crate::link;

/// How long to look for a controller that leads.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for the answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Pause before the next attempt: none leads, or the one that does is of a release that does not know the question.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which the key is asked for again: an administrator may have replaced it.
const EVERY: Duration = Duration::from_secs(5);

/// Keeps the key here that of the controller that leads, without end.
pub(super) async fn keep(others: &Others, bearers: &Bearers) {
    loop {
        if let Err(e) = ask(others, bearers).await {
            debug!(error = %e, "the key of tokens can't be asked for now");
        }
        sleep(RETRY).await;
    }
}

/// Asks the controller that leads, again and again over one connection, until that ends.
async fn ask(others: &Others, bearers: &Bearers) -> io::Result<()> {
    let hello = Hello::new(Role::Enquirer(others.name.clone()));
    let mut met = others.controllers.call(&hello, PATIENCE).await?;
    loop {
        link::write(&mut met.writer, &Question::TokenKey).await?;
        let answer = timeout(ANSWER_TIME, link::read::<JoinAnswer>(&mut met.reader)).await;
        let key = match answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            Some(JoinAnswer::TokenKey(key)) => Zeroizing::new(key.into_vec()),
            Some(JoinAnswer::Refused(reason) | JoinAnswer::NotNow(reason)) => return Err(io::Error::other(reason)),
            Some(JoinAnswer::Charter { .. } | JoinAnswer::Peer(_) | JoinAnswer::Controller(_)) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            None => return Err(io::Error::other("the controller hung up")),
        };
        if bearers.adopt_key(&key)? {
            info!("tokens are made and checked by the key of the controller that leads");
        }
        sleep(EVERY).await;
    }
}
