//! Frames of messages on connections and records in files: length, checksum, and the encoded value
//! ([`crate::encoding`]).

use crate::encoding::{self, Decoded, Encoded};
use crate::limits::FRAME_BYTES_MAX;

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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, proptest};

    use super::{CodecError, FRAME_BYTES_MAX, HEADER_BYTES, decode, encode, header, take};
    use crate::wire::client::{JobSelection, Request};
    use crate::wire::fabric::{DownFrame, UpFrame};
    use crate::wire::stepd::ToStepd;

    #[test]
    fn cve_2019_6438_2011_2193_2014_0749_lengths_and_counts_are_checked_against_the_bytes_that_are_there() {
        let long = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        let mut head = [0; HEADER_BYTES];
        head[..4].copy_from_slice(&long);
        assert_eq!(header(head), Err(CodecError::TooLong(FRAME_BYTES_MAX + 1)));
        // A list, a text and bytes that are said to have 2^62 elements: neither memory nor time is spent on them.
        for kind in [0x9b_u8, 0x7b, 0x5b] {
            for before in [&[][..], &[0x82, 0x00], &[0x82, 0x00, 0x84], &[0x82, 0x01]] {
                let mut body = before.to_vec();
                body.push(kind);
                body.extend((1_u64 << 62).to_be_bytes());
                let crc = crc32c::crc32c(&body);
                assert!(matches!(decode::<Request>(&body, crc), Err(CodecError::Malformed(_))), "{body:x?}");
                assert!(matches!(decode::<UpFrame>(&body, crc), Err(CodecError::Malformed(_))), "{body:x?}");
            }
        }
    }

    proptest! {
        #[test]
        fn cve_2023_49936_2023_49937_2026_65138_changed_messages_are_errors_or_messages(
            at in any::<proptest::sample::Index>(), with in vec(any::<u8>(), 0..9), cut in 0..9_usize,
        ) {
            let mut frame = Vec::new();
            let request = Request::Jobs { jobs: JobSelection::default(), ended: true, steps: false };
            encode(&request, &mut frame).unwrap();
            let mut body = frame.split_off(HEADER_BYTES);
            let at = at.index(body.len());
            body.splice(at..(at + cut).min(body.len()), with);
            let crc = crc32c::crc32c(&body);
            if let Ok(read) = decode::<Request>(&body, crc) {
                let mut again = Vec::new();
                encode(&read, &mut again).unwrap();
                prop_assert!(matches!(take::<Request>(&again), Ok(Some((same, _))) if same == read));
            }
            drop((decode::<UpFrame>(&body, crc), decode::<DownFrame>(&body, crc), decode::<ToStepd>(&body, crc)));
            prop_assert!(decode::<Request>(&body, crc ^ 1).is_err());
        }
    }
}
