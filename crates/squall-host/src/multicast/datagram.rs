//! Encodes pieces of files as encrypted, numbered datagrams, and reassembles them in any order.
//!
//! A datagram has a mark, the stream, and a number that is never used twice with a key. Encrypted with AES-256-GCM
//! (NIST SP 800-38D) follow: the piece's offset in the file, the piece's length, the part's offset in the piece, and
//! the part.

use std::collections::BTreeMap;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use squall_engine::control::Cast;
use squall_model::limits::CHUNK_WINDOW_BYTES;
use squall_model::wire::fabric::{Bytes, StreamKey};

/// First bytes of each datagram.
const MARK: [u8; 4] = *b"sqm1";
/// Bytes of mark, stream and number.
const HEAD_BYTES: usize = 20;
/// Bytes of the piece's offset, its length, and the part's offset in it.
const PLACE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Bytes of the file in one datagram: with all headers it fits into a packet of 1500 bytes.
const PART_BYTES: usize = 1408;
/// Length of the longest datagram, bytes.
pub(super) const BYTES_MAX: usize = HEAD_BYTES + PLACE_BYTES + PART_BYTES + TAG_BYTES;
/// Length of the longest piece, bytes.
const PIECE_BYTES_MAX: usize = CHUNK_WINDOW_BYTES as usize;
/// Most bytes of incomplete pieces that are kept in memory.
const KEPT_BYTES_MAX: usize = 2 * PIECE_BYTES_MAX;

/// A piece to be sent, with its cipher.
pub(crate) struct Sealed<'a> {
    cast: &'a Cast,
    cipher: Option<LessSafeKey>,
}

impl<'a> Sealed<'a> {
    pub(crate) fn new(cast: &'a Cast) -> Self {
        Self { cast, cipher: cipher(&cast.key) }
    }

    /// Returns the piece's datagrams; `number` is the last number used, and is advanced.
    pub(crate) fn datagrams(&self, number: &mut u64) -> impl Iterator<Item = Vec<u8>> {
        let parts = self.cast.bytes.0.chunks(PART_BYTES).enumerate();
        parts.filter_map(|(index, part)| {
            *number += 1;
            let mut datagram = Vec::with_capacity(BYTES_MAX);
            datagram.extend(MARK);
            datagram.extend(self.cast.stream.to_le_bytes());
            datagram.extend(number.to_le_bytes());
            datagram.extend(self.cast.at.to_le_bytes());
            datagram.extend((self.cast.bytes.0.len() as u32).to_le_bytes());
            datagram.extend(((index * PART_BYTES) as u32).to_le_bytes());
            datagram.extend(part);
            let (head, plain) = datagram.split_at_mut(HEAD_BYTES);
            let head = Aad::from(&*head);
            let tag = self.cipher.as_ref()?.seal_in_place_separate_tag(nonce(*number), head, plain).ok()?;
            datagram.extend(tag.as_ref());
            Some(datagram)
        })
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Makes the cipher of a key. Never None, as the key has the cipher's length.
fn cipher(key: &StreamKey) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, &key.0).ok().map(LessSafeKey::new)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Returns the number of the stream to which a datagram belongs; None: the datagram has another format.
pub(crate) fn stream_of(datagram: &[u8]) -> Option<u64> {
    datagram.starts_with(&MARK).then(|| u64_at(datagram, MARK.len())).flatten()
}

/// Reassembles the pieces of a stream.
pub(crate) struct Assembler {
    stream: u64,
    cipher: Option<LessSafeKey>,
    /// Incomplete pieces by their offset in the file.
    pieces: BTreeMap<u64, Piece>,
    kept: usize,
}

struct Piece {
    bytes: Vec<u8>,
    /// For each part of the piece, whether it was received.
    come: Vec<bool>,
    lacking: usize,
}

impl std::fmt::Debug for Assembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembler").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Assembler {
    pub(crate) fn new(stream: u64, key: &StreamKey) -> Self {
        Self { stream, cipher: cipher(key), pieces: BTreeMap::new(), kept: 0 }
    }

    /// Decrypts a datagram; returns the piece that it completes, with its offset. An invalid datagram is ignored, as if
    /// lost.
    pub(crate) fn take(&mut self, datagram: &mut [u8]) -> Option<(u64, Bytes)> {
        let number = u64_at(datagram, 12)?;
        let (head, sealed) = datagram.split_at_mut_checked(HEAD_BYTES)?;
        let plain = self.cipher.as_ref()?.open_in_place(nonce(number), Aad::from(&*head), sealed).ok()?;
        let (at, length, offset) = (u64_at(plain, 0)?, u32_at(plain, 8)?, u32_at(plain, 12)?);
        let part = plain.get(PLACE_BYTES..)?;
        let right = length <= PIECE_BYTES_MAX
            && offset % PART_BYTES == 0
            && part.len() == PART_BYTES.min(length.checked_sub(offset)?)
            && !part.is_empty();
        if !right {
            return None;
        }
        self.make_room(length, at);
        let piece = self.pieces.entry(at).or_insert_with(|| {
            self.kept += length;
            let parts = length.div_ceil(PART_BYTES);
            Piece { bytes: vec![0; length], come: vec![false; parts], lacking: parts }
        });
        if piece.bytes.len() != length || std::mem::replace(&mut piece.come[offset / PART_BYTES], true) {
            return None;
        }
        piece.bytes[offset..offset + part.len()].copy_from_slice(part);
        piece.lacking -= 1;
        if piece.lacking > 0 {
            return None;
        }
        let piece = self.pieces.remove(&at)?;
        self.kept -= piece.bytes.len();
        Some((at, Bytes(piece.bytes.into())))
    }

    /// Makes room for `length` bytes by dropping the pieces of lowest offset: they have probably lost a part for good.
    fn make_room(&mut self, length: usize, at: u64) {
        while self.kept + length > KEPT_BYTES_MAX && !self.pieces.contains_key(&at) {
            let Some((_, piece)) = self.pieces.pop_first() else { return };
            self.kept -= piece.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use squall_engine::control::Cast;
    use squall_model::wire::fabric::{Bytes, StreamKey};

    use super::{Assembler, BYTES_MAX, KEPT_BYTES_MAX, Sealed, stream_of};

    const KEY: StreamKey = StreamKey([3; 32]);

    fn datagrams(at: u64, bytes: &[u8], number: &mut u64) -> Vec<Vec<u8>> {
        let cast = Cast { stream: 9, key: KEY, at, bytes: Bytes(bytes.into()), rate: 1, last: false };
        Sealed::new(&cast).datagrams(number).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_come_together_in_any_order(
            length in 2..5000_usize, seed in any::<u64>(), twice in any::<bool>(),
        ) {
            let bytes: Vec<u8> = (0..length).map(|at| (at as u64 ^ seed) as u8).collect();
            let mut number = 0;
            let mut all = datagrams(40, &bytes, &mut number);
            all.extend(datagrams(99_999, &bytes[..length / 2], &mut number));
            if twice {
                all.extend_from_within(..1);
            }
            prop_assert!(all.iter().all(|one| one.len() <= BYTES_MAX && stream_of(one) == Some(9)));
            let mut order = seed;
            all.sort_by_cached_key(|_| {
                order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order
            });
            let mut assembler = Assembler::new(9, &KEY);
            let whole: Vec<_> = all.iter_mut().filter_map(|one| assembler.take(one)).collect();
            for (at, bytes) in [(40, &bytes[..]), (99_999, &bytes[..length / 2])] {
                prop_assert!(whole.iter().any(|(begin, piece)| *begin == at && *piece.0 == *bytes));
            }
            prop_assert!(whole.len() <= 2 + usize::from(twice));
        }

        #[test]
        fn what_was_tampered_with_is_as_if_lost(at in 0..1400_usize, bit in 0..8_u8) {
            let mut number = 7;
            let mut all = datagrams(0, &[5; 1300], &mut number);
            let place = at % all[0].len();
            all[0][place] ^= 1 << bit;
            prop_assert_eq!(Assembler::new(9, &KEY).take(&mut all[0]), None);
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            stream_of(&bytes);
            prop_assert_eq!(Assembler::new(9, &KEY).take(&mut bytes), None);
        }
    }

    #[test]
    fn what_never_becomes_whole_takes_no_room_for_ever() {
        let mut assembler = Assembler::new(9, &KEY);
        let bytes = vec![1; 1 << 20];
        for piece in 0..40_u64 {
            let mut first = datagrams(piece << 20, &bytes, &mut (piece * 1000)).swap_remove(0);
            assert_eq!(assembler.take(&mut first), None);
            assert!(assembler.kept <= KEPT_BYTES_MAX);
        }
    }
}
