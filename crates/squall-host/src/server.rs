//! The cluster's HTTP server, as the controller knows it.
//!
//! The server speaks for whoever connects to its Unix sockets. So the controller must know that it is the server, and
//! that a socket was accepted by one of the server's. `DIR/run/rest.key`, which only the cluster's owner can read, has both:
//! a secret that is made at each start of the server, before it gives up its rights; and a line `DEVICE INODE` for each
//! of its Unix sockets, the numbers of the file to which it is bound. A name would not do: users can give a socket of
//! theirs the same one, in a mount namespace.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use squall_files::durable;
use squall_files::place::Place;
use squall_files::sockets::{Bound, bound};
use zeroize::Zeroizing;

/// Length of the secret, bytes.
const SECRET_BYTES: usize = 32;

/// What the controller knows of the HTTP server.
#[derive(Debug)]
pub(crate) struct Server {
    secret: Zeroizing<String>,
    /// The files to which its Unix sockets are bound; empty: the kernel does not tell.
    sockets: Vec<Bound>,
}

/// Makes this process the cluster's HTTP server, with these Unix sockets; returns the secret by which it shows that to
/// the controller. To be called once it listens, and before it gives up its rights.
pub fn introduce<'a>(place: &Place, sockets: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Zeroizing<String>> {
    let mut secret = Zeroizing::new([0; SECRET_BYTES]);
    File::open("/dev/urandom")?.read_exact(&mut *secret)?;
    let mut text = Zeroizing::new(String::with_capacity(4 * SECRET_BYTES));
    text.extend(secret.iter().map(|byte| format!("{byte:02x}")));
    let secret = Zeroizing::new(text.to_string());
    for socket in sockets {
        match bound(socket) {
            Ok(Some(Bound { device, inode })) => text.extend([format!("\n{device} {inode}")]),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(e) => return Err(e),
        }
    }
    durable::write(&place.rest_key(), format!("{}\n", *text).as_bytes(), 0o600)?;
    Ok(secret)
}

impl Server {
    /// Reads what is known of the HTTP server. Err of kind `NotFound`: there was none.
    pub(crate) fn read(place: &Place) -> io::Result<Self> {
        let text = Zeroizing::new(std::fs::read_to_string(place.rest_key())?);
        let mut lines = text.lines();
        let secret =
            lines.next().filter(|secret| secret.len() == 2 * SECRET_BYTES).ok_or(io::ErrorKind::InvalidData)?;
        let read = |line: &str| {
            let (device, inode) = line.split_once(' ')?;
            Some(Bound { device: device.parse().ok()?, inode: inode.parse().ok()? })
        };
        Ok(Self { secret: Zeroizing::new(secret.to_owned()), sockets: lines.filter_map(read).collect() })
    }

    /// Whether a process that shows this is the server.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        // Hashes are compared in constant time.
        blake3::hash(shown) == blake3::hash(self.secret.as_bytes())
    }

    /// Whether a socket was accepted by one of the server's. None: the kernel does not tell.
    pub(crate) fn accepted(&self, socket: impl AsFd) -> io::Result<Option<bool>> {
        if self.sockets.is_empty() {
            return Ok(None);
        }
        Ok(Some(bound(socket.as_fd())?.is_some_and(|bound| self.sockets.contains(&bound))))
    }
}
