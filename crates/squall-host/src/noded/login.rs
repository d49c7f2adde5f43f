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
use crate::service;
use crate::sys::limits;
use crate::trust::Trust;

/// Pauses between two tries to ask the controller for this host's address: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Runs the daemon until it is told to end (exit code 0), or fails (exit code 1, the reason is logged).
pub fn run(place: &Place) -> ExitCode {
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
    let membership = Membership { joined, keys: trust.own_key(None)? };
    let errands = Errands::start(membership.clone());
    spawn_local(logging::reopen_at_hangups());
    // srun gives this address to its tasks' daemons, so the first command should find it.
    if let Err(problem) = renew_address(place, &errands).await {
        warn!(%problem, "no answer of the controller yet: commands wait for it");
        spawn_local(try_on(place.clone(), errands));
    }
    voucher::open(place, &membership)?;
    info!(host = membership.joined.name, controller = membership.joined.controller, "login daemon starts");
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

/// Asks the controller until it answers. It refuses a host with a revoked key; that host's commands are told so by the
/// controller: the daemon goes on, since the host may be let in again.
async fn try_on(place: Place, errands: Errands) {
    let mut pause = PAUSES.0;
    loop {
        tokio::time::sleep(pause).await;
        if renew_address(&place, &errands).await.is_ok() {
            return info!("the controller answers");
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Asks the controller for the address by which nodes reach this host, and records it for commands.
async fn renew_address(place: &Place, errands: &Errands) -> io::Result<()> {
    match errands.ask(Question::Charter { port: 0 }).await? {
        Told::Charter { address, .. } => place.note_reached_as(address.rsplit_once(':').map_or("", |(host, _)| host)),
        Told::Refused(reason) => Err(io::Error::other(reason)),
        Told::Peer(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
