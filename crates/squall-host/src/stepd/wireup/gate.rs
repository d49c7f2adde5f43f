//! The gate before libpmix. libpmix reads the greeting of one caller at a time, without a timeout, and in C: so only
//! processes of the step's own user get through, and only once they have sent something.
//!
//! Tasks connect to a TCP socket of this process. What they send is passed on to libpmix through a Unix socket, which
//! no other user can reach.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt::set_tcp_quickack;

use crate::sys::pmix;
use squall_files::callers::Callers;

/// Time within which a caller must have greeted libpmix, and libpmix answered.
const GREETING: Duration = Duration::from_secs(10);
/// Most events that are taken at once.
const EVENTS: usize = 64;
/// Most bytes that are read at once, and kept for an end that does not take them.
const CHUNK: usize = 16 << 10;
/// Connections beyond those of the tasks, e.g. of their children.
const SPARE: usize = 64;
const PER_TASK: usize = 8;
/// Number of the listening socket among the events; connections are even (task's end) and odd (libpmix's end).
const LISTENER: u64 = 0;

/// The gate: a listening socket and the connections that came through it.
#[derive(Debug)]
pub(super) struct Gate {
    listener: TcpListener,
    address: SocketAddrV4,
    epoll: OwnedFd,
    callers: Callers,
    /// User id of the step.
    uid: u32,
    calls: BTreeMap<u64, Call>,
    calls_max: usize,
    /// Number of the last connection.
    last: u64,
}

/// A connection between a task and libpmix.
#[derive(Debug)]
struct Call {
    task: TcpStream,
    /// The other end is libpmix. None: the task has sent nothing yet.
    library: Option<UnixStream>,
    /// Bytes for libpmix and for the task that could not be written yet.
    up: Vec<u8>,
    down: Vec<u8>,
    /// Time until which libpmix must have answered; None: it has.
    deadline: Option<Instant>,
}

impl Gate {
    /// Opens the listening socket, for processes of the user `uid`. `tasks`: number of tasks on this node.
    pub(super) fn open(uid: u32, tasks: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        // Accepted connections inherit it from the listener.
        pmix::acknowledge_soon(&listener);
        let SocketAddr::V4(address) = listener.local_addr()? else { return Err(ErrorKind::Unsupported.into()) };
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let calls_max = SPARE + PER_TASK * tasks;
        let callers = Callers::open();
        Ok(Self { listener, address, epoll, callers, uid, calls: BTreeMap::new(), calls_max, last: LISTENER })
    }

    /// Returns the address to which tasks connect.
    pub(super) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns a descriptor that is readable when `handle` has work.
    pub(super) fn interest(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Accepts connections and passes bytes on. `library`: connects to libpmix, which it starts if need be; None:
    /// there is none.
    pub(super) fn handle(&mut self, library: &mut dyn FnMut() -> Option<UnixStream>) {
        let mut events = Vec::with_capacity(EVENTS);
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default())).is_err() {
            return;
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(),
                number => {
                    let Some(mut call) = self.calls.remove(&(number & !1)) else { continue };
                    if call.is_ready(number & 1 == 0, library) && self.wait_for(number & !1, &call) {
                        self.calls.insert(number & !1, call);
                    }
                }
            }
        }
    }

    /// Drops connections with a greeting that takes too long.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        self.calls.retain(|_, call| call.deadline.is_none_or(|at| at > now));
    }

    /// Returns the time at which `expire` must be called next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.calls.values().filter_map(|call| call.deadline).min()
    }

    /// Accepts the waiting connections of the step's user; others are closed at once.
    fn accept(&mut self) {
        for _ in 0..EVENTS {
            let Ok((task, SocketAddr::V4(peer))) = self.listener.accept() else { return };
            let own = self.callers.uid(self.address, peer).is_ok_and(|uid| uid == Some(self.uid));
            if !own || self.calls.len() >= self.calls_max || task.set_nonblocking(true).is_err() {
                continue;
            }
            let _ = task.set_nodelay(true);
            let _ = set_tcp_quickack(&task, true);
            self.last += 2;
            let deadline = Some(Instant::now() + GREETING);
            let call = Call { task, library: None, up: Vec::new(), down: Vec::new(), deadline };
            let data = EventData::new_u64(self.last);
            if epoll::add(&self.epoll, &call.task, data, EventFlags::IN | EventFlags::RDHUP).is_ok() {
                self.calls.insert(self.last, call);
            }
        }
    }

    /// Sets the events for which both ends of a connection are watched.
    fn wait_for(&self, number: u64, call: &Call) -> bool {
        // From an end is read only what the other end has room for.
        let flags = |read: &[u8], write: &[u8]| {
            let reading = if read.is_empty() { EventFlags::IN } else { EventFlags::empty() };
            reading | if write.is_empty() { EventFlags::empty() } else { EventFlags::OUT }
        };
        let task = flags(&call.up, &call.down);
        if epoll::modify(&self.epoll, &call.task, EventData::new_u64(number), task).is_err() {
            return false;
        }
        let Some(library) = &call.library else { return true };
        let (data, flags) = (EventData::new_u64(number + 1), flags(&call.down, &call.up));
        epoll::modify(&self.epoll, library, data, flags).is_ok()
            || epoll::add(&self.epoll, library, data, flags).is_ok()
    }
}

impl Call {
    /// Moves what can be moved; false: the connection has ended. `task`: whether the event is of the task's end.
    fn is_ready(&mut self, task: bool, library: &mut dyn FnMut() -> Option<UnixStream>) -> bool {
        if task {
            // The task's library sends two small messages at its end, and holds the second back until the first is
            // acknowledged: every program would wait 40 ms at its end.
            let _ = set_tcp_quickack(&self.task, true);
        }
        if self.library.is_none() {
            match self.task.peek(&mut [0]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
            self.library = library();
        }
        let Some(library) = &self.library else { return false };
        let up = carry(&mut &self.task, &mut &*library, &mut self.up);
        let down = carry(&mut &*library, &mut &self.task, &mut self.down);
        if matches!(down, Carried::Some) {
            self.deadline = None;
        }
        // What one end has sent before its end has been passed on by now, or the other end does not take it.
        !matches!((up, down), (Carried::End, _) | (_, Carried::End))
    }
}

/// Result of moving bytes from one end to the other.
enum Carried {
    Nothing,
    Some,
    End,
}

/// Moves bytes until the source has none or the target takes none; `kept`: what was read and not written.
fn carry(from: &mut impl Read, to: &mut impl Write, kept: &mut Vec<u8>) -> Carried {
    let mut carried = Carried::Nothing;
    let mut chunk = [0; CHUNK];
    loop {
        if !flush(to, kept) {
            return Carried::End;
        }
        if !kept.is_empty() {
            return Carried::Some;
        }
        match from.read(&mut chunk) {
            Ok(0) => return Carried::End,
            Ok(length) => {
                kept.extend_from_slice(&chunk[..length]);
                carried = Carried::Some;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return carried,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Carried::End,
        }
    }
}

/// Writes the kept bytes as far as the target takes them; false: it is gone.
fn flush(to: &mut impl Write, kept: &mut Vec<u8>) -> bool {
    let mut written = 0;
    let goes = loop {
        if written == kept.len() {
            break true;
        }
        match to.write(&kept[written..]) {
            Ok(0) => break false,
            Ok(length) => written += length,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break true,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => break false,
        }
    };
    kept.drain(..written);
    goes
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{CHUNK, Gate};

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Handles events until `done`.
    fn pump(gate: &mut Gate, library: &mut dyn FnMut() -> Option<UnixStream>, mut done: impl FnMut(&Gate) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(gate) {
            assert!(Instant::now() < end, "nothing happens: {gate:?}");
            gate.handle(library);
            thread::yield_now();
        }
    }

    #[test]
    fn a_task_is_passed_on_once_it_has_sent_something() -> io::Result<()> {
        let mut gate = Gate::open(own(), 1)?;
        let silent = TcpStream::connect(gate.address())?;
        let mut task = TcpStream::connect(gate.address())?;
        pump(&mut gate, &mut || panic!("nobody has spoken"), |gate| gate.calls.len() == 2);
        assert!(gate.deadline().is_some());
        task.write_all(b"hello")?;
        let (ours, mut theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut ours = Some(ours);
        let (mut said, mut answered) = ([0; 5], [0; 5]);
        pump(&mut gate, &mut || ours.take(), |gate| gate.calls.values().any(|call| call.library.is_some()));
        theirs.read_exact(&mut said)?;
        theirs.write_all(b"world")?;
        let none = &mut || None;
        pump(&mut gate, none, |gate| gate.calls.values().any(|call| call.deadline.is_none()));
        task.read_exact(&mut answered)?;
        assert_eq!((&said, &answered), (b"hello", b"world"));
        // More than sockets hold, which the task does not read for now.
        let much: Vec<u8> = (0..CHUNK * 1000).map(|n| n as u8).collect();
        let sent = much.clone();
        let sender = thread::spawn(move || theirs.write_all(&sent).map(|()| drop(theirs)));
        pump(&mut gate, none, |gate| gate.calls.values().any(|call| !call.down.is_empty()));
        let receiver = thread::spawn(move || {
            let mut all = Vec::new();
            task.read_to_end(&mut all).map(|_| all)
        });
        pump(&mut gate, none, |gate| gate.calls.len() == 1);
        let received = receiver.join().map_err(|_| io::Error::other("panic"))??;
        assert!(received == much, "{} of {} bytes", received.len(), much.len());
        sender.join().map_err(|_| io::Error::other("panic"))??;
        drop(silent);
        pump(&mut gate, none, |gate| gate.calls.is_empty());
        Ok(())
    }

    #[test]
    fn other_users_are_hung_up_on_and_the_silent_after_a_time() -> io::Result<()> {
        let mut gate = Gate::open(own().wrapping_add(1), 1)?;
        let mut stranger = TcpStream::connect(gate.address())?;
        stranger.set_nonblocking(true)?;
        let ended = |stranger: &mut TcpStream| !matches!(stranger.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        pump(&mut gate, &mut || panic!("a stranger is passed on"), |_| ended(&mut stranger));
        assert!(gate.calls.is_empty());
        gate.uid = own();
        let _silent = TcpStream::connect(gate.address())?;
        pump(&mut gate, &mut || None, |gate| gate.calls.len() == 1);
        gate.expire();
        assert_eq!(gate.calls.len(), 1);
        gate.calls.values_mut().for_each(|call| call.deadline = Some(Instant::now()));
        gate.expire();
        assert!(gate.calls.is_empty());
        Ok(())
    }
}
