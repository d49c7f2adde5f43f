//! Waiting for a descriptor within the async runtime.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that can be waited for.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Registers it with the runtime.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        watch(fd, Interest::READABLE).map(Self)
    }

    /// Waits until it is readable; for a pidfd: until its process has ended.
    pub(crate) async fn readable(&self) {
        // An error would mean that the runtime ends: nothing is waited for any more.
        drop(self.0.readable().await);
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// Has the runtime watch a descriptor for what is of interest, and for nothing else.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, interest).map_err(io::Error::from) }
}
