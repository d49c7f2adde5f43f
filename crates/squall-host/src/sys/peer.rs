//! The process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Who was at the other end of a socket when that was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id. None: this process does not see the other one, e.g. one outside of its container or its restored job.
    pub pid: Option<u32>,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Returns the peer of a connected Unix socket (`SO_PEERCRED`, unix(7)).
pub fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, to) = (socket.as_fd().as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: the kernel writes at most `size` bytes, into a struct of this size of which every value is valid.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut size) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(peer.pid).ok().filter(|pid| *pid > 0);
    Ok(Peer { pid, uid: peer.uid, gid: peer.gid })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::peer_of;

    #[test]
    fn the_peer_is_who_has_made_the_socket() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = peer_of(&one).unwrap();
        assert_eq!((peer.pid, peer.uid), (Some(std::process::id()), rustix::process::geteuid().as_raw()));
    }
}
