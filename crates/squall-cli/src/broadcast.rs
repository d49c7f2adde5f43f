//! The client's side of a broadcast: a file is named by its digest, and sent only as far as some node lacks it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use squall_model::job::{Checksum, Digest};
use squall_model::wire::client::{Answer, Broadcast, Request};
use squall_model::wire::fabric::Bytes;

use crate::client::{Client, ClientError, unexpected};

/// Bytes read at once for the digest.
const READ_BYTES: usize = 256 << 10;
/// How long nodes may keep the controller from saying anything.
const PATIENCE: Duration = Duration::from_mins(2);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Nodes that have it.
    pub(crate) nodes: u32,
    /// Nodes that lacked it.
    pub(crate) lacking: u32,
    /// Where it failed, and one of the error numbers (0: no answer).
    pub(crate) failed: Option<(Vec<String>, i32)>,
}

/// Digest and length of a file.
pub(crate) fn digest(file: &File) -> io::Result<(Digest, u64)> {
    let (mut checksum, mut size) = (Checksum::default(), 0);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match file.read_at(&mut bytes, size)? {
            0 => return Ok((checksum.digest(), size)),
            length => {
                checksum.update(&bytes[..length]);
                size += length as u64;
            }
        }
    }
}

/// Sends what is wanted of the file until all nodes have it, or it has failed.
pub(crate) fn broadcast(client: &mut Client, file: &File, wanted: Broadcast) -> Result<Sent, ClientError> {
    client.wait_up_to(Some(PATIENCE))?;
    client.send(&Request::Broadcast(Box::new(wanted)))?;
    loop {
        match client.receive()? {
            Answer::Want { from, through, chunk_bytes } => send(client, file, from, through, chunk_bytes)?,
            Answer::Broadcast { nodes, sent, failed } => return Ok(Sent { nodes, lacking: sent, failed }),
            _ => return Err(unexpected()),
        }
    }
}

fn send(client: &mut Client, file: &File, from: u64, through: u64, chunk_bytes: u32) -> Result<(), ClientError> {
    let mut at = from;
    while at < through {
        let length = (through - at).min(u64::from(chunk_bytes.max(1)));
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, at)?;
        client.send(&Request::Chunk { at, bytes: Bytes(bytes.into()) })?;
        at += length;
    }
    Ok(())
}

/// What the user is told of a failure: the node, and why.
pub(crate) fn problem(failed: &(Vec<String>, i32)) -> String {
    let (nodes, error) = failed;
    let node = nodes.first().map_or("", String::as_str);
    let why = match *error {
        0 => "Communication connection failure".to_owned(),
        error => {
            let text = io::Error::from_raw_os_error(error).to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    };
    let others = if nodes.len() > 1 { format!(" (and {} more nodes)", nodes.len() - 1) } else { String::new() };
    format!("REQUEST_FILE_BCAST({node}): {why}{others}")
}
