//! Waits for descriptors within the async runtime.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor registered with the async runtime.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Registers the descriptor with the runtime.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        watch(fd, Interest::READABLE).map(Self)
    }

    /// Waits until the descriptor is readable; for a pidfd: until its process has ended.
    pub(crate) async fn readable(&self) {
        // Fails only when the runtime ends, and with it all waiting.
        drop(self.0.readable().await);
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// Has the runtime watch a descriptor for `interest` only.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, interest).map_err(io::Error::from) }
}
