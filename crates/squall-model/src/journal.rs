//! Format of journal files. A file, called segment, consists of frames. Each frame is written by one flush, and has a
//! hash that chains it to the frame before.
//!
//! ```text
//! segment: header (80 bytes) | frame | frame | … | zeros up to the size it was made with
//! frame:   header (32 bytes) | items | end mark | zeros up to a multiple of 8
//! item:    kind u32 | length u32 | bytes          (kind 4: a Record, 2: a blob, 3: the segment ends here)
//! ```
//!
//! All numbers are little-endian. A frame is written only when the frame before it is durable. Hence an error *before*
//! a valid frame is damage, never an unfinished write.

use crate::encoding;
use crate::event::Record;
use crate::job::Digest;

/// Format version of segments and snapshots. A file with another one is refused.
pub const FORMAT: u32 = 2;
/// Length of a segment's header, bytes.
pub const SEGMENT_HEADER_BYTES: usize = 80;
/// Length of a frame's header, bytes.
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// Length of the mark at a frame's end, bytes. The mark has no zero byte, so that a missing end is recognized.
pub(crate) const END_MARK_BYTES: usize = 8;
/// Longest content of a frame (all its items), bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 256 << 20;
/// Length of the frame that closes a segment, bytes. This many bytes are always kept free at the end of a segment.
pub const CLOSE_BYTES: usize = FRAME_HEADER_BYTES + ITEM_HEADER_BYTES + END_MARK_BYTES;

const ITEM_HEADER_BYTES: usize = 8;
const SEGMENT_MAGIC: [u8; 8] = *b"SQUALLJ\x1e";
const FRAME_MAGIC: [u8; 4] = *b"\xa5SqF";
const END_MARK: [u8; END_MARK_BYTES] = *b"\x5eSqEnd\xa5\x5e";
const SECTOR_BYTES: usize = 512;
// 1 was a record in format 1.
const ITEM_BLOB: u32 = 2;
const ITEM_CLOSE: u32 = 3;
const ITEM_RECORD: u32 = 4;

/// Position in the chain of frames: the number and hash that the next frame must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of the next frame, counted over all segments from 1.
    pub frame: u64,
    /// Hash of the last frame, which covers all frames before that one as well.
    pub chain: u64,
}

impl Link {
    /// Returns the position before the first frame of a cluster's journal. Neither of its fields is zero, so that
    /// unwritten bytes don't match.
    pub fn first(cluster: u128) -> Self {
        Self { frame: 1, chain: cluster as u64 | 1 }
    }
}

/// Header of a segment (journal file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Format version of the file; [`FORMAT`] for a new one.
    pub format: u32,
    /// Id of the cluster that the segment belongs to.
    pub cluster: u128,
    /// The segment's number, as in its file's name.
    pub number: u64,
    /// Size at which the file was created, bytes.
    pub size: u64,
    /// Sequence number of the first record in the segment.
    pub seq: u64,
    /// Number and hash that the segment's first frame must carry.
    pub link: Link,
}

/// Kind of damage in a journal file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file does not begin with a valid header.
    #[error("the file's header does not fit its checksum")]
    Header,
    /// The file has this format version, which is not `FORMAT`.
    #[error("the file has format {0}, this version of squall reads format {FORMAT} only")]
    Format(u32),
    /// The checksum is wrong: bytes are changed, missing or overwritten.
    #[error("its bytes do not fit its checksum")]
    Checksum,
    /// The frame is valid but has another number or hash than the chain requires: it was misdirected, lost or repeated.
    #[error("it is not the frame that follows the one before")]
    Chain,
    /// The checksum is right, but the content contradicts itself or earlier frames; the text says how.
    #[error("its content can't be read: {0}")]
    Content(String),
    /// The checksum is right, but the content is of a kind that this program can't read, because another version wrote
    /// it.
    #[error("this version of squall does not know its content ({0})")]
    Unknown(String),
}

/// Damage in a journal file: where and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset of the damage in the file.
    pub offset: usize,
    /// Number of the frame that was expected at this offset.
    pub frame: u64,
    /// Kind of the damage.
    pub problem: Problem,
}

/// Result of reading a segment at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// A valid frame is at the offset.
    Frame {
        /// Byte range in the segment that holds the frame's items.
        items: std::ops::Range<usize>,
        /// Offset of the next frame in the segment.
        next: usize,
        /// Number and hash that the next frame must carry.
        link: Link,
    },
    /// Nothing but zeros follows: the end of the segment's content.
    End,
    /// An unfinished write is at the offset, and nothing after it. It was never acknowledged, so it may be cut off.
    Torn {
        /// Number of bytes from the offset to the last byte that is not zero.
        bytes: usize,
    },
    /// Damage is at the offset: this content was durable once.
    Damaged(Damage),
}

impl SegmentHeader {
    /// Encodes the header of a segment.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&self.format.to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.to_le_bytes());
        let words = [self.number, self.size, self.seq, self.link.frame, self.link.chain];
        for (i, word) in words.iter().enumerate() {
            out[32 + 8 * i..40 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header from the first bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, Problem> {
        let mut head = *bytes.first_chunk::<SEGMENT_HEADER_BYTES>().ok_or(Problem::Header)?;
        let crc = word32(&head, 12);
        head[12..16].fill(0);
        if head[..8] != SEGMENT_MAGIC || crc32c::crc32c(&head) != crc {
            return Err(Problem::Header);
        }
        let format = word32(&head, 8);
        if format != FORMAT {
            return Err(Problem::Format(format));
        }
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&head[16..32]);
        Ok(Self {
            format,
            cluster: u128::from_le_bytes(cluster),
            number: word64(&head, 32),
            size: word64(&head, 40),
            seq: word64(&head, 48),
            link: Link { frame: word64(&head, 56), chain: word64(&head, 64) },
        })
    }
}

/// Builds the frame of one flush: records and the blobs that they refer to.
#[derive(Clone, Debug)]
pub struct FrameWriter {
    bytes: Vec<u8>,
}

impl Default for FrameWriter {
    fn default() -> Self {
        Self { bytes: vec![0; FRAME_HEADER_BYTES] }
    }
}

impl FrameWriter {
    /// Appends a record. Fails if the record can't be encoded; the frame is then unchanged.
    pub fn record(&mut self, record: &Record) -> Result<(), Problem> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&ITEM_RECORD.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        if let Err(why) = encoding::append(record, &mut self.bytes) {
            self.bytes.truncate(start);
            return Err(Problem::Content(why));
        }
        let length = (self.bytes.len() - start - ITEM_HEADER_BYTES) as u32;
        self.bytes[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Appends a blob and returns the offset of its content within the frame.
    pub fn blob(&mut self, digest: &Digest, content: &[u8]) -> usize {
        let length = (size_of::<Digest>() + content.len()) as u32;
        self.bytes.extend_from_slice(&ITEM_BLOB.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&digest.0);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(content);
        at
    }

    /// Appends the mark that closes a segment: this is its last frame, and the next segment exists.
    pub fn close(&mut self) {
        self.bytes.extend_from_slice(&ITEM_CLOSE.to_le_bytes());
        self.bytes.extend_from_slice(&0_u32.to_le_bytes());
    }

    /// Returns whether nothing was appended to the frame.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == FRAME_HEADER_BYTES
    }

    /// Returns the size of the finished frame, bytes.
    pub fn size(&self) -> usize {
        (self.bytes.len() + END_MARK_BYTES).next_multiple_of(8)
    }

    /// Returns the frame's bytes, and the number and hash that the next frame must carry. Fails if the content is
    /// longer than 256 MiB.
    pub fn finish(mut self, link: Link) -> Result<(Vec<u8>, Link), Problem> {
        let length = self.bytes.len() - FRAME_HEADER_BYTES;
        if length > CONTENT_BYTES_MAX {
            return Err(Problem::Content(format!(
                "a frame of {length} bytes is over the limit of {CONTENT_BYTES_MAX}"
            )));
        }
        let head = &mut self.bytes;
        head[..4].copy_from_slice(&FRAME_MAGIC);
        head[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        head[8..16].copy_from_slice(&link.frame.to_le_bytes());
        head[16..24].copy_from_slice(&link.chain.to_le_bytes());
        let content = crc32c::crc32c(&head[FRAME_HEADER_BYTES..]);
        head[24..28].copy_from_slice(&content.to_le_bytes());
        let crc = crc32c::crc32c(&head[..28]);
        head[28..32].copy_from_slice(&crc.to_le_bytes());
        let after = follow(link, &self.bytes);
        self.bytes.extend_from_slice(&END_MARK);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        Ok((self.bytes, after))
    }
}

/// Item of a frame: a record, a blob or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A batch of events, appended as one record.
    Record(Record),
    /// A blob: content that records refer to by its digest.
    Blob {
        /// Digest that the content must have.
        digest: Digest,
        /// Offset of the content in the segment.
        at: usize,
        /// Content of the blob.
        content: &'a [u8],
    },
    /// Mark of the last frame of a segment: the next segment exists.
    Close,
}

/// Decodes the items of a frame that [`scan`] found at `items` in `segment`.
pub fn items(segment: &[u8], items: std::ops::Range<usize>) -> Result<Vec<Item<'_>>, Problem> {
    let short = || Problem::Content("an item is longer than its frame".into());
    let unknown = |e: String| Problem::Unknown(format!("a record: {e}"));
    let mut at = items.start;
    let mut found = Vec::new();
    while at < items.end {
        let head = segment.get(at..at + ITEM_HEADER_BYTES).ok_or_else(short)?;
        let (kind, length) = (word32(head, 0), word32(head, 4) as usize);
        let start = at + ITEM_HEADER_BYTES;
        at = start + length;
        let body = segment.get(start..at).filter(|_| at <= items.end).ok_or_else(short)?;
        found.push(match kind {
            ITEM_RECORD => Item::Record(encoding::from_slice(body).map_err(unknown)?),
            ITEM_BLOB => {
                let (digest, content) = body.split_first_chunk::<{ size_of::<Digest>() }>().ok_or_else(short)?;
                Item::Blob { digest: Digest(*digest), at: start + digest.len(), content }
            }
            ITEM_CLOSE => Item::Close,
            other => {
                return Err(Problem::Unknown(format!("an item of kind {other}")));
            }
        });
    }
    Ok(found)
}

/// Examines a segment at offset `at`. `segment` is the whole file, or as much of it as exists. `expect`: what the frame
/// there must carry. In a closed segment `Torn` is damage as well; this is left to the caller.
pub fn scan(segment: &[u8], at: usize, expect: Link) -> Scan {
    let rest = &segment[at.min(segment.len())..];
    let problem = match frame(rest, expect) {
        Ok((length, link)) => {
            let start = at + FRAME_HEADER_BYTES;
            let next = at + (FRAME_HEADER_BYTES + length + END_MARK_BYTES).next_multiple_of(8);
            return Scan::Frame { items: start..start + length, next, link };
        }
        Err(problem) => problem,
    };
    let used = used_bytes(rest);
    if used == 0 {
        return Scan::End;
    }
    if is_followed(rest, expect) || was_complete(rest, used, expect) {
        Scan::Damaged(Damage { offset: at, frame: expect.frame, problem })
    } else {
        Scan::Torn { bytes: used }
    }
}

/// Checks the frame at the beginning of `bytes`. Returns the length of its items, and what the next frame must carry.
fn frame(bytes: &[u8], expect: Link) -> Result<(usize, Link), Problem> {
    let length = frame_header(bytes).ok_or(Problem::Checksum)?;
    if link_of(bytes) != expect {
        return Err(Problem::Chain);
    }
    let end = FRAME_HEADER_BYTES + length;
    let body = bytes.get(FRAME_HEADER_BYTES..end).ok_or(Problem::Checksum)?;
    let mark = bytes.get(end..end + END_MARK_BYTES).ok_or(Problem::Checksum)?;
    // The file may end before the padding does.
    let padding = &bytes[end + END_MARK_BYTES..(end + END_MARK_BYTES).next_multiple_of(8).min(bytes.len())];
    if crc32c::crc32c(body) != word32(bytes, 24) || mark != END_MARK || padding.iter().any(|b| *b != 0) {
        return Err(Problem::Checksum);
    }
    Ok((length, follow(expect, &bytes[..end])))
}

/// Returns the length of the items if `bytes` begins with a valid frame header. None: it does not.
fn frame_header(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
    let length = word32(head, 4) as usize;
    let fits = head[..4] == FRAME_MAGIC && crc32c::crc32c(&head[..28]) == word32(head, 28);
    (fits && length <= CONTENT_BYTES_MAX).then_some(length)
}

fn link_of(bytes: &[u8]) -> Link {
    Link { frame: word64(bytes, 8), chain: word64(bytes, 16) }
}

/// Returns the number of bytes up to the last one that is not zero. Most of a new segment is zeros, so blocks are
/// compared.
pub fn used_bytes(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut end = bytes.len();
    while end > 0 {
        let block = &bytes[end - end.min(ZEROS.len())..end];
        if *block != ZEROS[..block.len()] {
            let last = block.iter().rposition(|b| *b != 0).unwrap_or(0);
            return end - block.len() + last + 1;
        }
        end -= block.len();
    }
    0
}

/// Returns whether the valid header of a later frame follows anywhere after the start of `bytes`.
fn is_followed(bytes: &[u8], expect: Link) -> bool {
    (8..bytes.len().saturating_sub(FRAME_HEADER_BYTES)).step_by(8).any(|at| {
        let here = &bytes[at..];
        here[..4] == FRAME_MAGIC && frame_header(here).is_some() && link_of(here).frame > expect.frame
    })
}

/// Returns whether the bad frame at the start of `bytes` was once written completely, and was damaged later. In an
/// unfinished write, the frame's end or a whole sector is still zero.
fn was_complete(bytes: &[u8], used: usize, expect: Link) -> bool {
    let Some(length) = frame_header(bytes) else {
        return looks_like_header(bytes, expect) && used >= FRAME_HEADER_BYTES && sectors_written(bytes, used);
    };
    let end = FRAME_HEADER_BYTES + length + END_MARK_BYTES;
    used >= end && sectors_written(bytes, end)
}

/// Returns whether a broken header is the expected one with some bits changed, and not arbitrary bytes: at least two of
/// magic, number and hash must match.
fn looks_like_header(bytes: &[u8], expect: Link) -> bool {
    let mut head = [0; FRAME_HEADER_BYTES];
    let have = bytes.len().min(FRAME_HEADER_BYTES);
    head[..have].copy_from_slice(&bytes[..have]);
    let link = link_of(&head);
    let marks = [head[..4] == FRAME_MAGIC, link.frame == expect.frame, link.chain == expect.chain];
    marks.iter().filter(|m| **m).count() >= 2
}

/// Returns whether the first `end` bytes have no run of zeros as long as a sector. Frames begin at multiples of 8, not
/// of sectors, so runs at any offset count. Real content has no such run.
fn sectors_written(bytes: &[u8], end: usize) -> bool {
    let mut run = 0;
    for byte in &bytes[..end.min(bytes.len())] {
        run = if *byte == 0 { run + 1 } else { 0 };
        if run >= SECTOR_BYTES {
            return false;
        }
    }
    true
}

/// Returns the number and hash that the frame after `frame` must carry.
fn follow(link: Link, frame: &[u8]) -> Link {
    let hash = blake3::hash(frame);
    Link { frame: link.frame + 1, chain: word64(hash.as_bytes(), 0) }
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::{FORMAT, FrameWriter, Item, Link, SEGMENT_HEADER_BYTES, Scan, SegmentHeader, items, scan};
    use crate::event::{Event, Record};
    use crate::id::NodeId;
    use crate::job::Digest;
    use crate::time::Time;

    const SIZE: usize = 4096;
    const CLUSTER: u128 = 0x1234;

    fn record(seq: u64) -> Record {
        let events = (0..3).map(|n| Event::NodeDown { node: NodeId(n), reason: format!("reason {seq}") }).collect();
        Record { seq, time: Time(seq), events }
    }

    /// Returns a segment of `frames` frames, the offset of each, and the offset of the last one's end.
    fn segment(frames: u64) -> (Vec<u8>, Vec<usize>) {
        let mut link = Link::first(CLUSTER);
        let head = SegmentHeader { format: FORMAT, cluster: CLUSTER, number: 1, size: SIZE as u64, seq: 1, link };
        let mut bytes = head.encode().to_vec();
        let mut starts = vec![bytes.len()];
        for seq in 1..=frames {
            let mut writer = FrameWriter::default();
            let script = vec![b'x'; 300 * seq as usize];
            writer.blob(&Digest::of(&script), &script);
            writer.record(&record(seq)).unwrap();
            let size = writer.size();
            let (frame, after) = writer.finish(link).unwrap();
            assert_eq!(frame.len(), size);
            bytes.extend_from_slice(&frame);
            starts.push(bytes.len());
            link = after;
        }
        bytes.resize(SIZE, 0);
        (bytes, starts)
    }

    /// Returns the sequence numbers of the records in `bytes`, and how the scan ended.
    fn read(bytes: &[u8]) -> (Vec<u64>, Scan) {
        let mut link = Link::first(CLUSTER);
        let mut at = SEGMENT_HEADER_BYTES;
        let mut seqs = Vec::new();
        loop {
            match scan(bytes, at, link) {
                Scan::Frame { items: range, next, link: after } => {
                    for item in items(bytes, range).unwrap() {
                        match item {
                            Item::Record(found) => {
                                assert_eq!(found, record(found.seq));
                                seqs.push(found.seq);
                            }
                            Item::Blob { digest, at, content } => {
                                assert_eq!(Digest::of(content), digest);
                                assert_eq!(&bytes[at..at + content.len()], content);
                            }
                            Item::Close => panic!("no segment was closed"),
                        }
                    }
                    (at, link) = (next, after);
                }
                end => return (seqs, end),
            }
        }
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(read(&segment(3).0), (vec![1, 2, 3], Scan::End));
        assert_eq!(read(&segment(0).0), (vec![], Scan::End));
        let head = SegmentHeader::decode(&segment(1).0).unwrap();
        assert_eq!((head.number, head.size, head.seq), (1, SIZE as u64, 1));
    }

    /// Old journals must stay readable: these bytes may never change.
    #[test]
    fn format_2_is_what_it_was() {
        let link = Link::first(CLUSTER);
        let head = SegmentHeader { format: FORMAT, cluster: CLUSTER, number: 1, size: SIZE as u64, seq: 1, link };
        let mut writer = FrameWriter::default();
        writer.blob(&Digest::of(b"x"), b"x");
        writer.record(&Record { seq: 1, time: Time(2), events: vec![Event::NodeUp { node: NodeId(3) }] }).unwrap();
        let (frame, after) = writer.finish(link).unwrap();
        let text = Digest::of(&[&head.encode()[..], &frame].concat()).to_string();
        assert_eq!((&text[..16], after.chain), ("f069beeb570e6a1f", 16_160_306_866_097_667_483));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (good, starts) = segment(3);
        for byte in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                if byte < SEGMENT_HEADER_BYTES {
                    assert!(SegmentHeader::decode(&bad).is_err(), "header byte {byte}");
                    continue;
                }
                let before = starts.iter().filter(|s| **s <= byte).count() - 1;
                match read(&bad) {
                    (seqs, Scan::Damaged(damage)) => {
                        assert_eq!(damage.offset, starts[before], "byte {byte}");
                        assert_eq!(seqs.len(), before);
                    }
                    // Where nothing was ever written there is nothing to lose.
                    (seqs, Scan::Torn { .. }) => assert!(byte >= starts[3] && seqs.len() == 3, "byte {byte}"),
                    (_, other) => panic!("byte {byte} bit {bit}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_tail_torn_anywhere_is_cut() {
        let (good, starts) = segment(3);
        for cut in starts[2]..starts[3] {
            let mut torn = good.clone();
            torn[cut..].fill(0);
            let whole = good[cut..].iter().all(|b| *b == 0);
            let (seqs, end) = read(&torn);
            match end {
                Scan::End => assert!(whole && seqs.len() == 3 || cut == starts[2] && seqs.len() == 2, "cut at {cut}"),
                Scan::Torn { bytes } => assert!(seqs == [1, 2] && starts[2] + bytes <= cut, "cut at {cut}"),
                other => panic!("cut at {cut}: {other:?}"),
            }
            torn.truncate(cut);
            assert!(matches!(read(&torn).1, Scan::End | Scan::Torn { .. }), "truncated at {cut}");
        }
    }

    #[test]
    fn sectors_written_out_of_order_are_a_torn_tail() {
        let (good, starts) = segment(3);
        for sector in starts[2] / 512..=(starts[3] - 1) / 512 {
            let mut torn = good.clone();
            let from = (sector * 512).max(starts[2]);
            torn[from..(sector * 512 + 512).min(starts[3])].fill(0);
            let (seqs, end) = read(&torn);
            assert!(seqs == [1, 2] && matches!(end, Scan::Torn { .. }), "sector {sector}: {end:?}");
        }
    }

    #[test]
    fn zeroed_moved_and_missing_frames_are_damage() {
        let (good, starts) = segment(3);
        let mut zeroed = good.clone();
        zeroed[starts[1]..starts[2]].fill(0);
        assert!(matches!(read(&zeroed), (seqs, Scan::Damaged(_)) if seqs == [1]));
        let mut missing = good.clone();
        missing.drain(starts[1]..starts[2]);
        assert!(matches!(read(&missing), (seqs, Scan::Damaged(_)) if seqs == [1]));
        let mut repeated = good[..starts[2]].to_vec();
        repeated.extend_from_slice(&good[starts[1]..]);
        assert!(matches!(read(&repeated), (seqs, Scan::Damaged(_)) if seqs == [1, 2]));
    }

    #[test]
    fn garbage_after_the_end_is_cut() {
        let (mut bytes, starts) = segment(2);
        for (i, b) in bytes[starts[2]..].iter_mut().enumerate() {
            *b = (i * 37 + 11) as u8;
        }
        assert!(matches!(read(&bytes), (seqs, Scan::Torn { .. }) if seqs == [1, 2]));
    }
}
