//! What the parts of a checkpoint say about the connections between them ([`squall_model::checkpoint::Made::links`]).
//!
//! CRIU saves for each end of a TCP connection how far its bytes have come: those that it has sent and the other end has
//! acknowledged, and those that it has received. Dumps of several nodes are taken at different times. They are one state of
//! the job all the same if for each direction one end takes for acknowledged just what the other one has received: what is
//! neither is in the sender's dump, and is sent again.
//!
//! The owner of the images may change them, which changes what becomes of his own job.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::images::{Field, IMAGE_BYTES_MAX, ISK, Socket, Value, entries, fields, read};

/// Most bytes that are read of the image of a connection. What is after them is under way on it.
const STREAM_BYTES_MAX: u64 = 64 << 10;

/// Numbers of fields of `tcp_stream_entry`.
mod stream {
    pub(super) const INQ_SEQ: u64 = 2;
    pub(super) const OUTQ_LEN: u64 = 3;
    pub(super) const OUTQ_SEQ: u64 = 4;
}

/// Returns the hashes of all directions of the connections in the images, combined by XOR.
pub(super) fn links_of(images: &Path) -> io::Result<u64> {
    let mut links = 0;
    for entry in entries(&read(&images.join("files.img"), IMAGE_BYTES_MAX)?) {
        let isk = fields(entry).find_map(|field| if let (ISK, Value::Bytes(isk)) = field { Some(isk) } else { None });
        let Some(socket) = isk.and_then(Socket::of) else { continue };
        let image = match read(&images.join(format!("tcp-stream-{:x}.img", socket.ino)), STREAM_BYTES_MAX) {
            Ok(image) => image,
            // It is not connected, or no socket of TCP.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let of = |number| entries(&image).next().and_then(|entry| fields(entry).find_map(|field| field.number(number)));
        let all = [stream::INQ_SEQ, stream::OUTQ_LEN, stream::OUTQ_SEQ].map(of);
        let [Some(received), Some(left), Some(written)] = all else { return Err(io::ErrorKind::InvalidData.into()) };
        links ^= direction(socket.other, socket.own, received as u32);
        links ^= direction(socket.own, socket.other, (written as u32).wrapping_sub(left as u32));
    }
    Ok(links)
}

/// Returns the hash of one direction of a connection. `until`: the sequence number up to which it has come (RFC 9293).
fn direction(from: SocketAddr, to: SocketAddr, until: u32) -> u64 {
    let hash = blake3::hash(format!("{from} {to} {until}").as_bytes());
    hash.as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::links_of;
    use crate::stepd::images::tests::{bytes, image, number, varint};

    /// One end of a connection between 10.0.0.1:5 and 10.0.0.2:6 in a folder of images. `first`: that of the former.
    fn end(folder: &Path, first: bool, (received, written, left): (u64, u64, u64)) {
        let words = [1, 2].map(|last| u64::from(u32::from_ne_bytes([10, 0, 0, last])));
        let mapped = [0, 0, u64::from(u32::from_ne_bytes([0, 0, 0xff, 0xff]))];
        let ends = if first { [(words[0], 5), (words[1], 6)] } else { [(words[1], 6), (words[0], 5)] };
        let mut socket = [number(1, 3), number(2, 0x2a), number(7, ends[0].1), number(8, ends[1].1)].concat();
        for (field, (word, _)) in [11, 12].into_iter().zip(ends) {
            // One end is written as of IPv6, and packed.
            let packed: Vec<u8> = mapped.into_iter().chain([word]).flat_map(varint).collect();
            socket.extend(if first { number(field, word) } else { bytes(field, &packed) });
        }
        let entry = [number(1, 4), number(2, 3), bytes(4, &socket)].concat();
        fs::write(folder.join("files.img"), image(&[number(1, 1), entry])).unwrap();
        let stream = [number(1, 0), number(2, received), number(3, left), number(4, written)].concat();
        fs::write(folder.join("tcp-stream-2a.img"), [image(&[stream]), b"what is under way".to_vec()].concat())
            .unwrap();
    }

    #[test]
    fn ends_that_agree_cancel_out() {
        let root = std::env::temp_dir().join(format!("squall-links-{}", std::process::id()));
        let folders = ["a", "b"].map(|name| root.join(name));
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
        }
        let all = || folders.iter().fold(0, |links, folder| links ^ links_of(folder).unwrap());
        // The first has sent up to 100, of which 30 bytes have not arrived; the second up to 7, and all has.
        end(&folders[0], true, (7, 100, 30));
        end(&folders[1], false, (70, 7, 0));
        assert_eq!(all(), 0);
        assert_ne!(links_of(&folders[0]).unwrap(), 0, "one end is missing");
        // What the other has received counts as not acknowledged, or the other way round: it is under way between two dumps.
        for received in [69, 71] {
            end(&folders[1], false, (received, 7, 0));
            assert_ne!(all(), 0, "{received}");
        }
        // After the last sequence number comes 0.
        end(&folders[0], true, (7, 10, 30));
        end(&folders[1], false, (u64::from(u32::MAX) - 19, 7, 0));
        assert_eq!(all(), 0);
        fs::write(folders[1].join("tcp-stream-2a.img"), "").unwrap();
        assert!(links_of(&folders[1]).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
