//! Connections of node daemons to a step daemon.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_model::wire::{Hello, Role};

use super::frames::{Filled, Frames};
use crate::sys::peer::peer_of;

/// Most connections at a time: the node daemon has one, and perhaps a second while it restarts.
const LINKS_MAX: usize = 8;

/// A connection of a node daemon.
#[derive(Debug)]
struct NodeLink {
    frames: Frames,
    greeted: bool,
    broken: bool,
}

/// All connections of node daemons.
#[derive(Debug)]
pub(super) struct NodeLinks {
    listener: UnixListener,
    /// The user as which the step daemon was started: only this user and root may connect.
    uid: u32,
    links: Vec<NodeLink>,
}

impl NodeLinks {
    /// Makes an empty list of connections, accepted from `listener`.
    pub(super) fn new(listener: UnixListener, uid: u32) -> Self {
        Self { listener, uid, links: Vec::new() }
    }

    /// Accepts waiting connections; `news` is sent to each first.
    pub(super) fn accept(&mut self, news: &[FromStepd]) {
        while let Ok((stream, _)) = self.listener.accept() {
            let peer = peer_of(&stream).map(|peer| peer.uid);
            if !peer.is_ok_and(|uid| uid == 0 || uid == self.uid) || self.links.len() >= LINKS_MAX {
                continue;
            }
            let Ok(mut frames) = Frames::new(stream) else { continue };
            frames.send(&Hello::new(Role::Step));
            for message in news {
                frames.send(message);
            }
            self.links.push(NodeLink { frames, greeted: false, broken: false });
        }
    }

    /// Sends a message to all node daemons.
    pub(super) fn tell(&mut self, message: &FromStepd) {
        for link in &mut self.links {
            link.frames.send(message);
        }
    }

    /// Whether a node daemon is connected.
    pub(super) fn is_linked(&self) -> bool {
        self.links.iter().any(|link| !link.broken)
    }

    /// Sends a message to the node daemon that has connected last.
    pub(super) fn tell_last(&mut self, message: &FromStepd) {
        if let Some(link) = self.links.iter_mut().rfind(|link| !link.broken) {
            link.frames.send(message);
        }
    }

    /// Sends a message over the connection with this index.
    pub(super) fn answer(&mut self, at: usize, message: &FromStepd) {
        if let Some(link) = self.links.get_mut(at) {
            link.frames.send(message);
        }
    }

    /// Receives messages from the connection with this index. A connection that is closed or has sent an invalid
    /// message is removed by the next `sweep`.
    pub(super) fn read(&mut self, at: usize) -> Vec<ToStepd> {
        let Some(link) = self.links.get_mut(at) else { return Vec::new() };
        link.broken = link.frames.fill() == Filled::Closed;
        let mut messages = Vec::new();
        if let Err(e) = link.take(&mut messages) {
            tracing::error!(error = %e, "the connection to the node daemon is broken");
            link.broken = true;
        }
        messages
    }

    /// Sends queued bytes of the connection with this index.
    pub(super) fn flush(&mut self, at: usize) {
        if let Some(link) = self.links.get_mut(at) {
            link.frames.flush();
        }
    }

    /// Closes all connections.
    pub(super) fn close(&mut self) {
        self.links.clear();
    }

    /// Removes connections that have ended.
    pub(super) fn sweep(&mut self) {
        self.links.retain(|l| !l.broken);
    }

    /// Whether all queued messages were sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.links.iter().all(|l| l.broken || l.frames.backlog() == 0)
    }

    /// Returns the listening socket.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Returns the connections, for polling.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Frames> {
        self.links.iter().map(|l| &l.frames)
    }
}

impl NodeLink {
    fn take(&mut self, messages: &mut Vec<ToStepd>) -> io::Result<()> {
        if !self.greeted {
            match self.frames.take::<Hello>().map_err(io::Error::other)? {
                None => return Ok(()),
                Some(hello) => hello.agreed().map(|_| self.greeted = true).map_err(io::Error::other)?,
            }
        }
        while let Some(message) = self.frames.take().map_err(io::Error::other)? {
            messages.push(message);
        }
        Ok(())
    }
}
