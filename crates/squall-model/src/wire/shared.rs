//! Encoding of job specifications in messages, for `#[cbor(with = "…")]`. Many jobs have the same specification, which
//! a thread encodes once and decodes once.
//!
//! In a message a specification is a byte string, so a receiver that has just decoded the same bytes needn't decode
//! them again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use minicbor::decode::Error;
use minicbor::encode::Write;
use minicbor::{Decoder, Encoder};

use crate::encoding;
use crate::job::JobSpec;

/// Most specifications that a thread remembers. Encodings longer than `BYTES_MAX` (64 KiB) are not remembered.
const KEPT: usize = 4;
const BYTES_MAX: usize = 64 << 10;

/// The encoding of a job specification, remembered together with the specification.
#[derive(Default)]
struct CachedSpec {
    bytes: Vec<u8>,
    /// The decoded specification. None: the bytes were received only once; they are decoded into a shared value if they
    /// are received again.
    spec: Option<Arc<JobSpec>>,
}

/// The remembered encodings of a thread, the latest first.
type Recent = VecDeque<CachedSpec>;

thread_local! {
    /// Job specifications that this thread encoded lately. They are found by the address of their `Arc`, which is not
    /// reused while they are remembered.
    static ENCODED: RefCell<Recent> = const { RefCell::new(VecDeque::new()) };
    /// Job specifications that this thread decoded lately. They are found by their encoding.
    static DECODED: RefCell<Recent> = const { RefCell::new(VecDeque::new()) };
}

/// Returns an empty entry. Reuses the memory of the oldest entry if `KEPT` specifications are remembered.
fn room(recent: &mut Recent) -> CachedSpec {
    let mut known = if recent.len() < KEPT { CachedSpec::default() } else { recent.pop_back().unwrap_or_default() };
    known.bytes.clear();
    known.spec = None;
    known
}

fn remember(recent: &mut Recent, known: CachedSpec) {
    if known.bytes.len() <= BYTES_MAX {
        recent.push_front(known);
    }
}

/// Writes the encoding of a specification. Reuses the encoding if this thread has encoded the same `Arc` lately.
pub fn encode<C, W: Write>(
    spec: &Arc<JobSpec>,
    e: &mut Encoder<W>,
    _: &mut C,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    ENCODED.with_borrow_mut(|recent| {
        let is = |known: &&CachedSpec| known.spec.as_ref().is_some_and(|known| Arc::ptr_eq(known, spec));
        if let Some(known) = recent.iter().find(is) {
            return e.bytes(&known.bytes)?.ok();
        }
        let mut known = room(recent);
        encoding::append(&**spec, &mut known.bytes).map_err(minicbor::encode::Error::message)?;
        let written = e.bytes(&known.bytes)?.ok();
        known.spec = Some(Arc::clone(spec));
        remember(recent, known);
        written
    })
}

/// Reads a specification. If this thread has read the same bytes lately, the result shares the earlier value; otherwise
/// it is a new value.
pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Arc<JobSpec>, Error> {
    let bytes = d.bytes()?;
    let decode = || encoding::from_slice(bytes).map(Arc::new).map_err(Error::message);
    DECODED.with_borrow_mut(|recent| {
        if let Some(known) = recent.iter_mut().find(|known| known.bytes == bytes) {
            if known.spec.is_none() {
                known.spec = Some(decode()?);
            }
            return known.spec.clone().ok_or_else(|| Error::message("no spec"));
        }
        let spec = decode()?;
        let mut known = room(recent);
        known.bytes.extend_from_slice(bytes);
        remember(recent, known);
        Ok(spec)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use minicbor::{Decode, Encode};

    use super::KEPT;
    use crate::encoding::{from_slice, to_vec};
    use crate::job::JobSpec;

    #[derive(Debug, PartialEq, Encode, Decode)]
    struct Message(
        #[n(0)] u8,
        #[cbor(with = "crate::wire::shared")]
        #[n(1)]
        Arc<JobSpec>,
        #[n(2)] u8,
    );

    fn named(name: &str) -> Arc<JobSpec> {
        Arc::new(JobSpec { name: name.to_owned(), ..JobSpec::default() })
    }

    #[test]
    fn equal_specs_are_one_and_others_are_told_apart() {
        let specs: Vec<_> = (0..2 * KEPT).map(|i| named(&i.to_string())).collect();
        let turn = || specs.iter().map(|spec| to_vec(&Message(1, Arc::clone(spec), 2)));
        let sent: Vec<_> = turn().chain(turn()).collect();
        let read: Vec<Message> = sent.iter().map(|bytes| from_slice(bytes).unwrap()).collect();
        for (message, spec) in read.iter().zip(specs.iter().chain(&specs)) {
            assert_eq!(*message, Message(1, Arc::clone(spec), 2));
        }
        let again = || from_slice::<Message>(&sent[sent.len() - 1]).unwrap().1;
        let (second, third) = (again(), again());
        assert_eq!(second, read[read.len() - 1].1);
        assert!(Arc::ptr_eq(&second, &third), "it was read a moment ago");
        assert_eq!(Arc::strong_count(&read[read.len() - 1].1), 1, "what comes once is nobody else's");
    }

    #[test]
    fn a_spec_that_was_changed_in_place_is_written_as_it_is() {
        let mut spec = named("before");
        let first = to_vec(&Message(1, Arc::clone(&spec), 2));
        Arc::make_mut(&mut spec).name = "behind".to_owned();
        let second = to_vec(&Message(1, Arc::clone(&spec), 2));
        assert_eq!(from_slice::<Message>(&first).unwrap().1.name, "before");
        assert_eq!(from_slice::<Message>(&second).unwrap().1.name, "behind");
    }

    #[test]
    fn bytes_that_are_no_spec_are_refused() {
        let good = to_vec(&Message(1, named("x"), 2));
        for length in 0..good.len() {
            assert!(from_slice::<Message>(&good[..length]).is_err());
        }
        assert!(from_slice::<Message>(&[0x83, 1, 0x43, 0xff, 0xff, 0xff, 2]).is_err());
    }
}
