//! Frames of messages on connections and records in files: length, checksum, and the encoded value
//! ([`crate::encoding`]).

use crate::encoding::{self, Decoded, Encoded};
use crate::limits::FRAME_BYTES_MAX;
use crate::stored::v1;

/// Length of the header before a frame's body, bytes: length of the body and its CRC-32C, each a little-endian u32.
pub const HEADER_BYTES: usize = 8;

/// Error of decoding or encoding a frame.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CodecError {
    /// The frame is longer than allowed: it has this many bytes.
    #[error("frame of {0} bytes is over the limit of {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The checksum in the header differs from that of the body.
    #[error("checksum does not fit")]
    Checksum,
    /// The body is not a message of the expected type; the text has the decoder's error.
    #[error("not a message: {0}")]
    Malformed(String),
}

/// Appends `message` to `out` as one frame. On an error nothing is appended.
pub fn encode<T: Encoded + ?Sized>(message: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    if let Err(why) = encoding::append(message, out) {
        out.truncate(start);
        return Err(CodecError::Malformed(why));
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

/// Appends a message as a frame of release 0.1, where `root` is the name of its type.
pub fn encode_v1<T: Encoded + ?Sized>(root: &str, message: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let body = v1::write(root, message).map_err(CodecError::Malformed)?;
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

/// Decodes like [`decode`], but also accepts the layout of release 0.1, where `root` is the name of the type. For a
/// sender or file that may be older.
pub fn decode_stored<T: Decoded>(root: &str, body: &[u8], crc: u32) -> Result<T, CodecError> {
    decode(body, crc).or_else(|error| match error {
        CodecError::Malformed(_) => v1::read(root, body).map_err(|_| error),
        _ => Err(error),
    })
}

/// Returns the number of bytes that a message takes in a frame, without the header.
pub fn size<T: Encoded + ?Sized>(message: &T) -> usize {
    encoding::size(message)
}

/// Returns length and checksum from a frame's header.
pub fn header(bytes: [u8; HEADER_BYTES]) -> Result<(usize, u32), CodecError> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let length = word(0) as usize;
    if length > FRAME_BYTES_MAX { Err(CodecError::TooLong(length)) } else { Ok((length, word(4))) }
}

/// Checks the checksum of a frame's body and decodes it. Bytes left over are an error.
pub fn decode<T: Decoded>(body: &[u8], crc: u32) -> Result<T, CodecError> {
    if crc32c::crc32c(body) != crc {
        return Err(CodecError::Checksum);
    }
    encoding::from_slice(body).map_err(CodecError::Malformed)
}

/// Decodes the first frame in `bytes` and returns its message and its length in bytes. None: the frame is not complete
/// yet.
pub fn take<T: Decoded>(bytes: &[u8]) -> Result<Option<(T, usize)>, CodecError> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (length, crc) = header(*head)?;
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    Ok(Some((decode(body, crc)?, HEADER_BYTES + length)))
}

/// Decodes like [`take`], but also accepts the layout of release 0.1, where `root` is the name of the type.
pub fn take_stored<T: Decoded>(root: &str, bytes: &[u8]) -> Result<Option<(T, usize)>, CodecError> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (length, crc) = header(*head)?;
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    Ok(Some((decode_stored(root, body, crc)?, HEADER_BYTES + length)))
}
