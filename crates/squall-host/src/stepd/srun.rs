//! Connects a step daemon to the `srun` of its step.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use squall_model::step::{ClientAddress, FromStep, ToStep};
use squall_model::wire::{Hello, Role};

use super::frames::{Filled, Frames};
use crate::pipe::Pipe;
use crate::sys::peer::peer_of;

/// Time within which `srun` must send its greeting.
const GREETING: Duration = Duration::from_secs(10);

/// Connects to the step's `srun` as the daemon of its tasks on the node with this index in the layout.
pub(super) fn connect(
    client: &ClientAddress,
    cookie: [u8; 16],
    node_index: u32,
    owner: u32,
) -> io::Result<Option<Frames>> {
    introduce(client, cookie, owner, &FromStep::Hello { cookie, node_index })
}

/// Connects to the step's `srun` and exchanges greetings: first both sides' `wire::Hello`, then the cookies, this side's in
/// its `first` message. The listening process must run as `owner`, the job's user, or as root.
pub(super) fn introduce(
    client: &ClientAddress,
    cookie: [u8; 16],
    owner: u32,
    first: &FromStep,
) -> io::Result<Option<Frames>> {
    let pipe = match client {
        ClientAddress::None => return Ok(None),
        ClientAddress::Abstract(name) => here(name, owner)?,
        ClientAddress::Tcp(address) => Pipe::call(address, cookie, GREETING)?,
        ClientAddress::Anywhere { name, address } => match here(name, owner) {
            // No process here listens on that name: `srun` is on another machine.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Pipe::call(address, cookie, GREETING)
                .map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?,
            pipe => pipe?,
        },
    };
    let mut link = Frames::over(pipe);
    link.send(&Hello::new(Role::Step));
    link.send(first);
    let hello: Hello = await_frame(&mut link)?;
    hello.agreed().map_err(|e| io::Error::other(format!("srun: {e}")))?;
    match await_frame(&mut link)? {
        ToStep::Hello { cookie: shown } if shown == cookie => Ok(Some(link)),
        _ => Err(io::Error::other("srun does not know this step")),
    }
}

fn here(name: &str, owner: u32) -> io::Result<Pipe> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let peer = peer_of(&stream)?.uid;
    if peer != owner && peer != 0 {
        return Err(io::Error::other(format!("user {peer} listens in place of srun")));
    }
    Pipe::local(stream)
}

/// Waits for a message, and sends what is queued meanwhile.
pub(super) fn await_frame<T: squall_model::encoding::Decoded>(link: &mut Frames) -> io::Result<T> {
    let until = std::time::Instant::now() + GREETING;
    loop {
        if let Some(message) = link.take().map_err(io::Error::other)? {
            return Ok(message);
        }
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let sending = if link.backlog() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        match poll(&mut [PollFd::new(&*link, PollFlags::IN | sending)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        link.flush();
        if link.fill() == Filled::Closed {
            // The bytes before the end may still be a complete frame.
            return link.take().map_err(io::Error::other)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
        }
    }
}
