//! The login daemon: a node daemon's proxy for commands, without a node. A login host has it in a controller's place, one
//! of several heads beside its controller, for the time in which that is away.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::wire::join::{JoinAnswer, Question};
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use super::errands::{Errands, Membership};
use super::reach::note_slurm;
use super::voucher::{self, Way};
use crate::controld::{controller_name, read_config};
use crate::gone;
use crate::leader::Controllers;
use crate::logging;
use crate::privileges;
use crate::service;
use crate::sys::limits;
use crate::trust::Trust;

/// Pauses between two tries to ask the controller for this host's address: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Pause before the controller is asked again after it has answered: controllers may have been added.
const RENEWAL: Duration = Duration::from_mins(10);

/// Interval at which a head's daemon reads the configuration again.
const REREAD: Duration = Duration::from_mins(1);
const NO_LOGIN_HOST: &str =
    "this machine is no login host, and not one of several heads: `squall token --login` on the head makes it one";

/// Runs the daemon until it is told to end (exit code 0), or fails (exit code 1, the reason is logged).
pub fn run(place: &Place) -> ExitCode {
    privileges::confine(place, false);
    gone::end_with(place, "the login daemon", || {});
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
    spawn_local(logging::reopen_at_hangups());
    let trust = Trust::of(place);
    let socket = match trust.joined()? {
        Some(joined) if joined.login => serve_host(place, Membership::new(joined, &trust)?).await?,
        Some(_) => return Err(io::Error::other(NO_LOGIN_HOST)),
        None => serve_head(place, trust)?,
    };
    service::ready();
    spawn_local(service::beat());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service::stopping();
    // Removes the socket, so that no command tries it; if it is missing already, that is as good.
    drop(std::fs::remove_file(socket));
    Ok(())
}

/// Serves commands of a login host. Returns the path of the socket.
async fn serve_host(place: &Place, membership: Membership) -> io::Result<PathBuf> {
    let errands = Errands::start(membership.clone());
    // srun gives this address to its tasks' daemons, so the first command should find it.
    let answer = renew(place, &membership, &errands).await;
    if let Err(problem) = &answer {
        warn!(%problem, "no answer of the controller yet: commands wait for it");
    }
    spawn_local(keep_renewed(place.clone(), membership.clone(), errands, answer.is_ok()));
    let socket = place.controller_socket();
    voucher::open(&socket, Way::of(&membership))?;
    info!(host = membership.name(), controller = membership.controllers.addresses().join(","), "login daemon starts");
    Ok(socket)
}

/// Serves commands of one of several heads, which come while its own controller is away. Returns the path of the socket.
fn serve_head(place: &Place, trust: Trust) -> io::Result<PathBuf> {
    let config = read_config(place).map_err(io::Error::other)?;
    if !config.has_standbys() {
        return Err(io::Error::other(NO_LOGIN_HOST));
    }
    let (name, keys) = (controller_name(place), trust.controller_key()?);
    let (theirs, addresses) = (keys.public, addresses(&config));
    info!(head = name, controllers = addresses.join(","), "login daemon starts");
    let controllers = Controllers::new(&name, keys, theirs, addresses);
    let socket = place.head_socket();
    voucher::open(&socket, Way { name, controllers: controllers.clone(), head: Some(trust) })?;
    spawn_local(keep_addresses(place.clone(), controllers));
    Ok(socket)
}

fn addresses(config: &Config) -> Vec<String> {
    config.controller_addresses().map(str::to_owned).collect()
}

/// Reads again and again which controllers the configuration names.
async fn keep_addresses(place: Place, controllers: Controllers) {
    loop {
        tokio::time::sleep(REREAD).await;
        match read_config(&place) {
            Ok(config) if config.has_standbys() => {
                controllers.renew(addresses(&config));
            }
            Ok(_) => {}
            Err(e) => warn!(error = %e, "going on with the controllers known so far"),
        }
    }
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
        JoinAnswer::Charter { address, config, .. } => {
            membership.renew(&Trust::of(place), &config)?;
            note_slurm(place, &config)?;
            place.note_reached_as(address.rsplit_once(':').map_or("", |(host, _)| host))
        }
        JoinAnswer::Refused(reason) | JoinAnswer::NotNow(reason) => Err(io::Error::other(reason)),
        JoinAnswer::Peer(_) | JoinAnswer::Controller(_) | JoinAnswer::TokenKey(_) => {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}
