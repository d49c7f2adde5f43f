//! The daemon of a login host: a node daemon's proxy for commands, without a node.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use squall_files::place::Place;
use squall_model::wire::join::{Question, Told};
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use super::errands::{Errands, Membership};
use super::voucher;
use crate::logging;
use crate::privileges;
use crate::service;
use crate::sys::limits;
use crate::trust::Trust;

/// Pauses between two tries to ask the controller for this host's address: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Pause before the controller is asked again after it has answered: controllers may have been added.
const RENEWAL: Duration = Duration::from_mins(10);

/// Runs the daemon until it is told to end (exit code 0), or fails (exit code 1, the reason is logged).
pub fn run(place: &Place) -> ExitCode {
    privileges::confine(place, false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    match runtime.and_then(|runtime| runtime.block_on(serve(place))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            error!(error = %e, "the login daemon ends");
            ExitCode::FAILURE
        }
    }
}

async fn serve(place: &Place) -> io::Result<()> {
    limits::raise_open_files();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let trust = Trust::of(place);
    let not_joined = || io::Error::other("this machine is no login host: `squall token --login` there makes it one");
    let joined = trust.joined()?.filter(|joined| joined.login).ok_or_else(not_joined)?;
    let membership = Membership::new(joined, &trust)?;
    let errands = Errands::start(membership.clone());
    spawn_local(logging::reopen_at_hangups());
    // srun gives this address to its tasks' daemons, so the first command should find it.
    let answer = renew(place, &membership, &errands).await;
    if let Err(problem) = &answer {
        warn!(%problem, "no answer of the controller yet: commands wait for it");
    }
    spawn_local(keep_renewed(place.clone(), membership.clone(), errands, answer.is_ok()));
    voucher::open(place, &membership)?;
    info!(host = membership.name(), controller = membership.controllers.addresses().join(","), "login daemon starts");
    service::ready();
    spawn_local(service::beat());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service::stopping();
    // Removes the socket, so that no command tries it; if it is missing already, that is as good.
    drop(std::fs::remove_file(place.controller_socket()));
    Ok(())
}

/// Asks the controller again and again; `answers`: whether it has answered the last time. It refuses a host with a
/// revoked key; that host's commands are told so by the controller: the daemon goes on, since the host may be let in
/// again.
async fn keep_renewed(place: Place, membership: Membership, errands: Errands, mut answers: bool) {
    let mut pause = PAUSES.0;
    loop {
        tokio::time::sleep(if answers { RENEWAL } else { pause }).await;
        let answered = renew(&place, &membership, &errands).await.is_ok();
        if answered && !answers {
            info!("the controller answers");
        }
        pause = if answered { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        answers = answered;
    }
}

/// Asks the controller for the address by which nodes reach this host, which is recorded for commands, and for the
/// addresses of all controllers.
async fn renew(place: &Place, membership: &Membership, errands: &Errands) -> io::Result<()> {
    match errands.ask(Question::Charter { port: 0 }).await? {
        Told::Charter { address, config, signer: _ } => {
            membership.renew(&Trust::of(place), &config)?;
            place.note_reached_as(address.rsplit_once(':').map_or("", |(host, _)| host))
        }
        Told::Refused(reason) | Told::NotNow(reason) => Err(io::Error::other(reason)),
        Told::Peer(_) | Told::Controller(_) | Told::TokenKey(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
