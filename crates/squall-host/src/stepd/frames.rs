//! A stream of frames that never blocks: what could not be sent yet waits in a buffer.

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

/// Most room that an idle link keeps.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// One end of a link.
#[derive(Debug)]
pub(super) struct Frames {
    stream: Pipe,
    birth: u64,
    /// What has come stands between `taken` and `filled`; the rest is room.
    unread: Vec<u8>,
    taken: usize,
    filled: usize,
    unsent: Vec<u8>,
    sent: usize,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// Nothing more for now.
    Open,
    /// The other side has closed or broken the link. What came before is still to be taken.
    Closed,
}

impl Frames {
    /// Over a connected stream on this machine.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        Pipe::local(stream).map(Self::over)
    }

    /// The address of this end, if it is not of this machine only.
    pub(super) fn own_address(&self) -> Option<IpAddr> {
        self.stream.own_address()
    }

    /// Over any stream.
    pub(super) fn over(stream: Pipe) -> Self {
        static BIRTHS: AtomicU64 = AtomicU64::new(1);
        let birth = BIRTHS.fetch_add(1, Ordering::Relaxed);
        Self { stream, birth, unread: Vec::new(), taken: 0, filled: 0, unsent: Vec::new(), sent: 0 }
    }

    /// Whether what was sent is lost if this process ends before the other side has read it.
    pub(super) fn is_remote(&self) -> bool {
        self.stream.is_remote()
    }

    /// See [`Pipe::watch_peer`].
    pub(super) fn watch_peer(&self) -> io::Result<()> {
        self.stream.watch_peer()
    }

    /// To be polled: for reading if that is wanted, and for writing while something waits.
    pub(super) fn interest(&self, reading: bool) -> Interest<'_, ()> {
        let reading = if reading { PollFlags::IN } else { PollFlags::empty() };
        let writing = if self.backlog() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        Interest::new((), self.stream.as_fd(), Some(reading | writing)).born(self.birth)
    }

    /// Queues a message, to be sent with others by `flush`.
    pub(super) fn queue<T: Encoded>(&mut self, message: &T) {
        // What can't be made is said by nobody.
        drop(codec::encode(message, &mut self.unsent));
    }

    /// Queues a message and sends what the link takes. A broken link shows when it is read.
    pub(super) fn send<T: Encoded>(&mut self, message: &T) {
        if codec::encode(message, &mut self.unsent).is_ok() {
            self.flush();
        }
    }

    /// Sends what the link takes.
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
        // A broken link shows when it is read.
        drop(self.stream.flush());
    }

    /// Bytes that wait to be sent.
    pub(super) fn backlog(&self) -> usize {
        self.unsent.len() - self.sent + self.stream.backlog()
    }

    /// Reads what has come, a bounded amount at a time.
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

    /// Room for one reading after what has come. It stays for the next: to clear it each time would cost more than to read.
    fn make_room(&mut self) {
        // Most links bring little; one that fills its room gets more.
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

    /// The next message that has come whole. An error: the other side does not speak our language.
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
