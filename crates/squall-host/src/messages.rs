//! Messages between processes of one machine over a socket that blocks: a frame each, as between daemons.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use squall_model::codec;
use squall_model::encoding::{Decoded, Encoded};

/// Sends a message.
pub(crate) fn send<T: Encoded>(link: &mut UnixStream, message: &T) -> io::Result<()> {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).map_err(io::Error::other)?;
    link.write_all(&bytes)
}

/// Receives a message. None: the link has ended.
pub(crate) fn receive<T: Decoded>(link: &mut UnixStream) -> io::Result<Option<T>> {
    let mut head = [0; codec::HEADER_BYTES];
    match link.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let (length, crc) = codec::header(head).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    link.read_exact(&mut body)?;
    codec::decode(&body, crc).map(Some).map_err(io::Error::other)
}
