//! A stream of frames that never blocks: bytes that can't be sent yet are buffered.

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::PollFlags;
use squall_model::codec;
use squall_model::encoding::{Decoded, Encoded};

use crate::pipe::{Pipe, ROOM_BYTES as READ_BYTES};
use crate::poller::Interest;

/// Largest buffer that an idle link keeps, bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// One end of a link, a stream of frames.
#[derive(Debug)]
pub(super) struct Frames {
    stream: Pipe,
    birth: u64,
    /// Receive buffer: unread bytes are between `taken` and `filled`, the rest is free.
    unread: Vec<u8>,
    taken: usize,
    filled: usize,
    unsent: Vec<u8>,
    sent: usize,
}

/// State of the link after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// The link is open, with nothing more to read for now.
    Open,
    /// The peer has closed or broken the link. Frames received before can still be taken.
    Closed,
}

impl Frames {
    /// Makes a link over a connected Unix stream.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        Pipe::local(stream).map(Self::over)
    }

    /// Returns the address of this end, if the peer may be on another machine.
    pub(super) fn own_address(&self) -> Option<IpAddr> {
        self.stream.own_address()
    }

    /// Makes a link over any stream, Unix or TCP.
    pub(super) fn over(stream: Pipe) -> Self {
        static BIRTHS: AtomicU64 = AtomicU64::new(1);
        let birth = BIRTHS.fetch_add(1, Ordering::Relaxed);
        Self { stream, birth, unread: Vec::new(), taken: 0, filled: 0, unsent: Vec::new(), sent: 0 }
    }

    /// Whether sent bytes are lost if this process ends before the peer has read them.
    pub(super) fn is_remote(&self) -> bool {
        self.stream.is_remote()
    }

    /// Turns on keepalive, see [`Pipe::watch_peer`].
    pub(super) fn watch_peer(&self) -> io::Result<()> {
        self.stream.watch_peer()
    }

    /// Returns what to poll for: reading if `reading`, and writing while bytes are queued.
    pub(super) fn interest(&self, reading: bool) -> Interest<'_, ()> {
        let reading = if reading { PollFlags::IN } else { PollFlags::empty() };
        let writing = if self.backlog() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        Interest::new((), self.stream.as_fd(), Some(reading | writing)).born(self.birth)
    }

    /// Queues a message, to be sent with others by `flush`.
    pub(super) fn queue<T: Encoded>(&mut self, message: &T) {
        // A message that can't be encoded is dropped.
        drop(codec::encode(message, &mut self.unsent));
    }

    /// Queues a message and sends as much as possible without waiting. A broken link is noticed when it is read.
    pub(super) fn send<T: Encoded>(&mut self, message: &T) {
        if codec::encode(message, &mut self.unsent).is_ok() {
            self.flush();
        }
    }

    /// Sends as much as possible without waiting.
    pub(super) fn flush(&mut self) {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.sent = self.unsent.len(),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        // A broken link is noticed when it is read.
        drop(self.stream.flush());
    }

    /// Returns the number of queued bytes that are not sent yet.
    pub(super) fn backlog(&self) -> usize {
        self.unsent.len() - self.sent + self.stream.backlog()
    }

    /// Reads received bytes into the buffer, a bounded amount at a time.
    pub(super) fn fill(&mut self) -> Filled {
        self.make_room();
        loop {
            match self.stream.read(&mut self.unread[self.filled..]) {
                Ok(0) => return Filled::Closed,
                Ok(n) => {
                    self.filled += n;
                    return Filled::Open;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Filled::Open,
                Err(_) => return Filled::Closed,
            }
        }
    }

    /// Makes room for one read. The buffer is kept for the next: clearing it each time would cost more than the read.
    fn make_room(&mut self) {
        // Most links receive little; one that has filled its buffer gets a larger one.
        let was_full = !self.unread.is_empty() && self.filled == self.unread.len();
        let room = if was_full { READ_BYTES } else { self.stream.room() };
        self.unread.copy_within(self.taken..self.filled, 0);
        (self.taken, self.filled) = (0, self.filled - self.taken);
        if self.unread.is_empty() || (self.filled == 0 && self.unread.len() > KEPT_BYTES_MAX) {
            self.unread = vec![0; room];
        }
        if self.unread.len() < self.filled + room {
            self.unread.resize((2 * self.filled).max(self.filled + room), 0);
        }
    }

    /// Returns the next complete message; None: it has not arrived completely. Err: it can't be decoded.
    pub(super) fn take<T: Decoded>(&mut self) -> Result<Option<T>, codec::CodecError> {
        Ok(codec::take(&self.unread[self.taken..self.filled])?.map(|(message, length)| {
            self.taken += length;
            message
        }))
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
