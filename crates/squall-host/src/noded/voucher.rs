//! Commands on a machine that has joined a cluster: the node daemon passes on what they say to the controller, and says
//! who they are, as the kernel says. The controller believes that of users who have a job on the node.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use squall_model::wire::join::{VOUCHED, Vouched};
use squall_model::wire::{Hello, Proof, Role};
use tokio::io::copy;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::reach::Reach;
use crate::auth::is_operator;
use crate::logging::say;
use crate::place::SocketPath;
use crate::{hop, link};

/// Commands at once.
const COMMANDS_MAX: usize = 1024;
/// A command must greet within this time.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Listens in the controller's place for as long as the daemon runs.
pub(super) fn open(reach: &Reach) -> io::Result<()> {
    let path = reach.place().controller_socket();
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::new(&path)?.as_path())?;
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    tokio::task::spawn_local(accept(listener, reach.clone()));
    Ok(())
}

async fn accept(listener: UnixListener, reach: Reach) {
    let seats = Arc::new(Semaphore::new(COMMANDS_MAX));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let reach = reach.clone();
                tokio::task::spawn_local(async move {
                    // The command sees that nobody answers, and tries again.
                    drop(serve(stream, &reach).await);
                    drop(seat);
                });
            }
            Err(e) => {
                say(&format!("cannot accept a command's connection: {e}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, reach: &Reach) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let root = rustix::process::geteuid().is_root();
    if !root && !is_operator(peer.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (mut reader, mut writer) = hop::local(stream)?;
    let greeting = timeout(GREETING_TIME, link::read::<Hello>(&mut reader)).await;
    let hello = greeting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let Some(hello @ Hello { role: Role::Client(_), .. }) = hello else { return Ok(()) };
    let vouched = Vouched { node: reach.name().to_owned(), uid: peer.uid(), gid: peer.gid(), owner: !root };
    let bytes = postcard::to_stdvec(&vouched).map_err(io::Error::other)?;
    let (mut from, mut to) = reach.call_controller().await?;
    link::write(&mut to, &Hello { proof: Proof::Scheme(VOUCHED.to_owned(), bytes), ..hello }).await?;
    // Whichever side ends it ends it.
    tokio::select! {
        done = copy(&mut reader, &mut to) => done,
        done = copy(&mut from, &mut writer) => done,
    }
    .map(drop)
}
