//! Frames: how a message stands on a link or a record in a file: length, checksum, postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::FRAME_BYTES_MAX;

/// The version of all wire messages; the handshake refuses another.
pub const PROTOCOL_VERSION: u16 = 1;

/// Bytes before a frame's body: length and CRC-32C, little-endian u32 each.
pub const HEADER_BYTES: usize = 8;

/// Why bytes are not a frame, or a frame's body not a message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CodecError {
    /// The length says more than any message may have.
    #[error("frame of {0} bytes is over the limit of {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The checksum does not fit the body.
    #[error("checksum does not fit")]
    Checksum,
    /// The body is not such a message.
    #[error("not a message: {0}")]
    Malformed(String),
}

/// Appends `message` to `out` as one frame.
pub fn encode<T: Serialize + ?Sized>(message: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    if let Err(e) = postcard::to_io(message, &mut *out) {
        out.truncate(start);
        return Err(CodecError::Malformed(e.to_string()));
    }
    let length = out.len() - start - HEADER_BYTES;
    if length > FRAME_BYTES_MAX {
        out.truncate(start);
        return Err(CodecError::TooLong(length));
    }
    let crc = crc32c::crc32c(&out[start + HEADER_BYTES..]);
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// How many bytes a message takes in a frame.
pub fn size<T: Serialize + ?Sized>(message: &T) -> usize {
    postcard::serialize_with_flavor(message, postcard::ser_flavors::Size::default()).unwrap_or(usize::MAX)
}

/// Length and checksum from a frame's header.
pub fn header(bytes: [u8; HEADER_BYTES]) -> Result<(usize, u32), CodecError> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let length = word(0) as usize;
    if length > FRAME_BYTES_MAX { Err(CodecError::TooLong(length)) } else { Ok((length, word(4))) }
}

/// The message in a frame's body, after comparing its checksum. Bytes left over are an error.
pub fn decode<T: DeserializeOwned>(body: &[u8], crc: u32) -> Result<T, CodecError> {
    if crc32c::crc32c(body) != crc {
        return Err(CodecError::Checksum);
    }
    let (message, rest) = postcard::take_from_bytes(body).map_err(|e| CodecError::Malformed(e.to_string()))?;
    if rest.is_empty() { Ok(message) } else { Err(CodecError::Malformed(format!("{} bytes left over", rest.len()))) }
}

/// The first message in `bytes` and how many bytes it took; None: not all of it has come yet.
pub fn take<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, CodecError> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (length, crc) = header(*head)?;
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    Ok(Some((decode(body, crc)?, HEADER_BYTES + length)))
}
