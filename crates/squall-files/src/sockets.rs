//! Finds out to which file a Unix socket is bound, also one that was accepted by a socket bound to it (sock_diag(7)). A
//! socket's name is no proof: in a mount namespace of their own, users give their sockets any name.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

/// Number of a request for a socket (`SOCK_DIAG_BY_FAMILY`), and flag of a request (`NLM_F_REQUEST`).
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
/// What is asked for (`UDIAG_SHOW_VFS`), and the attribute with the answer (`UNIX_DIAG_VFS`).
const SHOW_FILE: u32 = 2;
const FILE: u16 = 1;
/// Length of a netlink header, of a request for a Unix socket, and of its answer before the attributes, bytes.
const HEADER: usize = 16;
const QUESTION: usize = 24;
const ANSWER: usize = 16;

/// A file to which a socket is bound: the kernel's numbers of its file system and of the file in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Number of the file system.
    pub device: u32,
    /// Number of the file.
    pub inode: u32,
}

/// Returns the file to which a Unix socket is bound. None: it is bound to none. Err of kind `Unsupported`: the kernel
/// does not tell.
pub fn bound(unix: BorrowedFd<'_>) -> io::Result<Option<Bound>> {
    let inode = rustix::fs::fstat(unix)?.st_ino;
    let flags = SocketFlags::CLOEXEC;
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))
        .map_err(|_| io::ErrorKind::Unsupported)?;
    let mut question = Vec::with_capacity(HEADER + QUESTION);
    question.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([AddressFamily::UNIX.as_raw() as u8, 0, 0, 0]);
    // Of all states; the socket's number; any cookie.
    for word in [u32::MAX, inode as u32, SHOW_FILE, u32::MAX, u32::MAX] {
        question.extend(word.to_ne_bytes());
    }
    send(&kernel, &question, SendFlags::empty())?;
    let mut answer = [0; 512];
    let (length, _) = recv(&kernel, &mut answer[..], RecvFlags::empty())?;
    read(&answer[..length])
}

/// Returns the file in the kernel's answer.
fn read(answer: &[u8]) -> io::Result<Option<Bound>> {
    let short = |at: usize| answer.get(at..at + 2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    let word = |at: usize| answer.get(at..at + 4).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
    if short(4) != Some(BY_FAMILY) || answer.len() < HEADER + ANSWER {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut at = HEADER + ANSWER;
    while let (Some(length), Some(kind)) = (short(at), short(at + 2)) {
        if kind == FILE {
            return Ok(word(at + 4).zip(word(at + 8)).map(|(inode, device)| Bound { device, inode }));
        }
        at += usize::from(length.max(4)).next_multiple_of(4);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::{bound, read};

    #[test]
    fn an_accepted_socket_is_bound_to_the_listeners_file_and_another_to_another() -> Result<(), Box<dyn Error>> {
        let dir = std::env::temp_dir().join(format!("squall-bound-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let sockets = ["one", "two"].map(|name| dir.join(name));
        let [one, two] = [UnixListener::bind(&sockets[0])?, UnixListener::bind(&sockets[1])?];
        match bound(one.as_fd()) {
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => eprintln!("skipped: the kernel does not tell"),
            found => {
                let caller = UnixStream::connect(&sockets[0])?;
                let (accepted, _) = one.accept()?;
                let found = found?;
                assert!(found.is_some());
                assert_eq!(bound(accepted.as_fd())?, found);
                assert_ne!(bound(two.as_fd())?, found);
                assert_eq!(bound(caller.as_fd())?, None);
                // A file of the same name is another one.
                std::fs::rename(&sockets[0], dir.join("away"))?;
                assert_ne!(bound(UnixListener::bind(&sockets[0])?.as_fd())?, found);
            }
        }
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn an_answer_that_is_cut_off_is_no_answer() {
        for length in 0..64 {
            drop(read(&vec![20; length]));
            drop(read(&vec![0; length]));
        }
    }
}
