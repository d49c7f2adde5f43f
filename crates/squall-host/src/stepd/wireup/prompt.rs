//! Has the kernel acknowledge at once what tasks send to libpmix. Its client sends two small messages at its end, and
//! holds the second back until the first is acknowledged: otherwise every program would wait 40 ms at its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt::set_tcp_quickack;

use crate::sys::pmix::accepted;

/// Most events that are taken at once.
const EVENTS: usize = 64;

/// Connections of libpmix on which messages are acknowledged at once.
#[derive(Debug)]
pub(super) struct Prompt {
    epoll: OwnedFd,
    /// Copies of the library's descriptors, by number, with the peer's address.
    watched: BTreeMap<u64, (OwnedFd, SocketAddr)>,
}

impl Prompt {
    /// Makes an empty set of connections. None: no epoll descriptor can be made.
    pub(super) fn new() -> Option<Self> {
        Some(Self { epoll: epoll::create(CreateFlags::CLOEXEC).ok()?, watched: BTreeMap::new() })
    }

    /// Adds the connections to `address` that are new.
    pub(super) fn watch(&mut self, address: SocketAddr) {
        for (fd, peer) in accepted(address) {
            if self.watched.values().any(|(_, known)| *known == peer) {
                continue;
            }
            let number = fd.as_raw_fd() as u64;
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            if epoll::add(&self.epoll, &fd, EventData::new_u64(number), flags).is_ok() {
                let _ = set_tcp_quickack(&fd, true);
                self.watched.insert(number, (fd, peer));
            }
        }
    }

    /// Returns a descriptor that is readable when something was received.
    pub(super) fn interest(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Turns on immediate acknowledgement for the connections that have received something.
    pub(super) fn handle(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default())).is_err() {
            return;
        }
        for event in events {
            let number = event.data.u64();
            if let Some((fd, _)) = self.watched.get(&number) {
                let _ = set_tcp_quickack(fd, true);
            }
            // The last message may arrive together with the end.
            let flags = event.flags;
            if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                self.watched.remove(&number);
            }
        }
    }
}
