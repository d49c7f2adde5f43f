//! Images of CRIU, as far as connections need it: reading them, and moving sockets to other addresses.
//!
//! The format is that of CRIU's `images/*.proto` (fdinfo, sk-inet, tcp-stream), as in version 4.2.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::removal::remove;
use crate::sys::interfaces::as_six;

/// First word of images that have a second one for their kind.
const COMMON_MAGIC: u32 = 0x5456_4319;
/// Most bytes that are read of an image.
pub(super) const IMAGE_BYTES_MAX: u64 = 256 << 20;
/// Number of the field `file_entry.isk`.
pub(super) const ISK: u64 = 4;

/// Numbers of fields of `inet_sk_entry`.
mod socket {
    pub(super) const INO: u64 = 2;
    pub(super) const SRC_PORT: u64 = 7;
    pub(super) const DST_PORT: u64 = 8;
    pub(super) const SRC_ADDR: u64 = 11;
    pub(super) const DST_ADDR: u64 = 12;
}

/// The image of what processes have open.
const FILES: &str = "files.img";
/// Name of the folder with images of which sockets were moved.
pub(super) const MOVED: &str = "moved";

/// A socket of an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) ino: u64,
    pub(super) own: SocketAddr,
    pub(super) other: SocketAddr,
}

impl Socket {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let (mut ino, mut ports, mut addresses) = (None, [0; 2], [Vec::new(), Vec::new()]);
        for field in fields(entry) {
            match field {
                (socket::INO, Value::Number(value)) => ino = Some(value),
                (socket::SRC_PORT, Value::Number(value)) => ports[0] = u16::try_from(value).ok()?,
                (socket::DST_PORT, Value::Number(value)) => ports[1] = u16::try_from(value).ok()?,
                (socket::SRC_ADDR, value) => addresses[0].extend(value.words()),
                (socket::DST_ADDR, value) => addresses[1].extend(value.words()),
                _ => {}
            }
        }
        let [own, other] = addresses.map(|words| address(&words));
        Some(Self { ino: ino?, own: SocketAddr::new(own?, ports[0]), other: SocketAddr::new(other?, ports[1]) })
    }
}

/// Returns an address, as of IPv4 if it is one that is written as IPv6. The words are in the order of the network.
fn address(words: &[u32]) -> Option<IpAddr> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..]).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?).to_canonical()),
        _ => None,
    }
}

/// Makes a folder `moved` in a folder of images with the same images, but for the addresses of sockets: of each pair, the second
/// one stands there in place of the first. It is made with the rights of this process, which may write there.
pub(super) fn move_sockets(images: &Path, pairs: &[(u128, u128)]) -> io::Result<()> {
    let moved = images.join(MOVED);
    match remove(&moved) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&moved)?;
    for entry in fs::read_dir(images)? {
        let name = entry?.file_name();
        if name != MOVED && name != FILES {
            fs::hard_link(images.join(&name), moved.join(&name))?;
        }
    }
    let text = with_moved(&read(&images.join(FILES), IMAGE_BYTES_MAX)?, pairs);
    File::options().write(true).create_new(true).mode(0o600).open(moved.join(FILES))?.write_all(&text)
}

/// Returns an image of files with the addresses of its sockets moved.
fn with_moved(image: &[u8], pairs: &[(u128, u128)]) -> Vec<u8> {
    let mut made = image.get(..head_of(image)).unwrap_or(image).to_vec();
    for entry in entries(image) {
        let entry = rewritten(entry, |number, value| match (number, value) {
            (ISK, Value::Bytes(isk)) => Some(bytes_field(ISK, &socket_moved(isk, pairs))),
            _ => None,
        });
        made.extend((entry.len() as u32).to_le_bytes());
        made.extend(entry);
    }
    made
}

/// Returns the message of a socket with its addresses moved.
fn socket_moved(socket: &[u8], pairs: &[(u128, u128)]) -> Vec<u8> {
    let mut made =
        rewritten(socket, |number, _| (number == socket::SRC_ADDR || number == socket::DST_ADDR).then(Vec::new));
    for of in [socket::SRC_ADDR, socket::DST_ADDR] {
        let words: Vec<u32> = fields(socket).filter(|field| field.0 == of).flat_map(|field| field.1.words()).collect();
        let mapped = address(&words).map(as_six);
        let pair = mapped.and_then(|mapped| pairs.iter().find(|(old, _)| *old == mapped));
        let moved: Vec<u8> = pair.map(|(_, new)| new.to_be_bytes().to_vec()).unwrap_or_default();
        // An address of IPv4 is one word, or four as a mapped one.
        let moved = moved.get(moved.len().saturating_sub(4 * words.len())..).unwrap_or_default();
        let moved: Vec<u32> = moved.as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect();
        for word in if moved.len() == words.len() { moved } else { words } {
            made.extend(number_field(of, u64::from(word)));
        }
    }
    made
}

/// Returns a message with some of its fields in another form.
fn rewritten(message: &[u8], mut other: impl FnMut(u64, Value<'_>) -> Option<Vec<u8>>) -> Vec<u8> {
    whole_fields(message)
        .flat_map(|(number, value, bytes)| other(number, value).unwrap_or_else(|| bytes.to_vec()))
        .collect()
}

fn number_field(number: u64, value: u64) -> Vec<u8> {
    [written(number << 3), written(value)].concat()
}

fn bytes_field(number: u64, value: &[u8]) -> Vec<u8> {
    [written(number << 3 | 2), written(value.len() as u64), value.to_vec()].concat()
}

/// Returns a number as a varint.
fn written(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Reads the beginning of an image.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the messages of an image.
pub(super) fn entries(image: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = image.get(head_of(image)..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = word(rest)?;
        let entry = after.get(..length as usize)?;
        rest = &after[entry.len()..];
        Some(entry)
    })
}

/// Returns the number of bytes before the first message.
fn head_of(image: &[u8]) -> usize {
    if word(image).is_some_and(|(magic, _)| magic == COMMON_MAGIC) { 8 } else { 4 }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}

/// The value of a field of Protocol Buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// One of another form.
    Other,
}

impl Value<'_> {
    /// Returns the words of a repeated field, which may be packed.
    pub(super) fn words(self) -> Vec<u32> {
        match self {
            Self::Number(value) => vec![value as u32],
            Self::Bytes(mut bytes) => std::iter::from_fn(|| varint(&mut bytes)).map(|value| value as u32).collect(),
            Self::Other => Vec::new(),
        }
    }
}

pub(super) trait Field {
    /// Returns the field's value if it is a number and has this number.
    fn number(&self, number: u64) -> Option<u64>;
}

impl Field for (u64, Value<'_>) {
    fn number(&self, number: u64) -> Option<u64> {
        if let (of, Value::Number(value)) = *self { (of == number).then_some(value) } else { None }
    }
}

/// Returns the fields of a message with their numbers, up to the first one that can't be read.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    whole_fields(message).map(|(number, value, _)| (number, value))
}

/// The same, each with the bytes that it is written as.
fn whole_fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Value<'_>, &[u8])> {
    std::iter::from_fn(move || {
        let before = message;
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => split(&mut message, 8).map(|_| Value::Other)?,
            2 => {
                let length = varint(&mut message)?;
                Value::Bytes(split(&mut message, usize::try_from(length).ok()?)?)
            }
            5 => split(&mut message, 4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((key >> 3, value, &before[..before.len() - message.len()]))
    })
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(first)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::{Socket, Value, bytes_field as bytes_of, entries, fields, number_field, with_moved, written};
    use crate::sys::interfaces::as_six;

    pub(in crate::stepd) fn varint(value: u64) -> Vec<u8> {
        written(value)
    }

    pub(in crate::stepd) fn number(field: u64, value: u64) -> Vec<u8> {
        number_field(field, value)
    }

    pub(in crate::stepd) fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
        bytes_of(field, value)
    }

    pub(in crate::stepd) fn image(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut image = [0x5456_4319_u32, 7].map(u32::to_le_bytes).concat();
        for message in messages {
            image.extend((message.len() as u32).to_le_bytes());
            image.extend(message);
        }
        image
    }

    /// The sockets of an image, and how many other entries it has.
    fn sockets(image: &[u8]) -> (Vec<(SocketAddr, SocketAddr)>, usize) {
        let (mut found, mut others) = (Vec::new(), 0);
        for entry in entries(image) {
            let isk = fields(entry)
                .find_map(|(of, value)| if let (4, Value::Bytes(isk)) = (of, value) { Some(isk) } else { None });
            match isk.and_then(Socket::of) {
                Some(socket) => found.push((socket.own, socket.other)),
                None => others += 1,
            }
        }
        (found, others)
    }

    #[test]
    fn addresses_of_sockets_are_moved_and_nothing_else() {
        let words = |last: u8| u64::from(u32::from_ne_bytes([10, 0, 0, last]));
        let mapped = |last: u8| [0, 0, u64::from(u32::from_ne_bytes([0, 0, 0xff, 0xff])), words(last)];
        let packed = |last: u8| mapped(last).into_iter().flat_map(varint).collect::<Vec<u8>>();
        let ends = [number(7, 5), number(8, 6)].concat();
        let plain = [number(1, 3), number(2, 0x2a), number(11, words(1)), ends.clone(), number(12, words(2))].concat();
        let six = [number(2, 0x2b), ends.clone(), bytes(11, &packed(1)), bytes(12, &packed(9))].concat();
        let local = [number(2, 0x2c), ends, number(11, words(7)), number(12, words(7)), number(3, 77)].concat();
        let entry = |socket: &[u8]| [number(1, 4), number(2, 3), bytes(4, socket)].concat();
        let other = [number(1, 1), bytes(9, b"a file"), number(2, 300)].concat();
        let before = image(&[entry(&plain), other.clone(), entry(&six), entry(&local)]);
        let of = |text: &str| as_six(text.parse().unwrap());
        // What one had is what another one gets.
        let pairs = [(of("10.0.0.1"), of("10.0.0.2")), (of("10.0.0.2"), of("10.0.0.200"))];
        let after = with_moved(&before, &pairs);
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let wanted = [
            (end("10.0.0.2:5"), end("10.0.0.200:6")),
            (end("10.0.0.2:5"), end("10.0.0.9:6")),
            (end("10.0.0.7:5"), end("10.0.0.7:6")),
        ];
        assert_eq!(sockets(&after), (wanted.to_vec(), 1));
        assert!(after.windows(other.len()).any(|bytes| bytes == other), "other entries stay as they are");
        assert_eq!(sockets(&with_moved(&before, &[])), sockets(&before));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            entries(&bytes).for_each(|entry| fields(entry).for_each(drop));
            let _ = Socket::of(&bytes);
            let _ = with_moved(&bytes, &[(1, 2)]);
        }
    }
}
