//! Specs in messages: many jobs have the same one, which a thread encodes once and decodes once.
//!
//! On the wire a spec is the bytes of its encoding, so that who has seen the same bytes just now need not look into them.
//! For `#[cbor(with = "…")]`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use minicbor::decode::Error;
use minicbor::encode::Write;
use minicbor::{Decoder, Encoder};

use crate::encoding;
use crate::job::JobSpec;

/// How many specs a thread remembers, and how long an encoding that it remembers may be.
const KEPT: usize = 4;
const BYTES_MAX: usize = 64 << 10;

/// An encoding, and whose it is.
#[derive(Default)]
struct Known {
    bytes: Vec<u8>,
    /// None: it came once, and may never come again.
    spec: Option<Arc<JobSpec>>,
}

/// The latest first.
type Recent = VecDeque<Known>;

thread_local! {
    /// Those that were encoded, known by their place in memory, where they stay as long as they stand here.
    static ENCODED: RefCell<Recent> = const { RefCell::new(VecDeque::new()) };
    /// Those that were decoded, known by their bytes.
    static DECODED: RefCell<Recent> = const { RefCell::new(VecDeque::new()) };
}

/// Room for one more: that of the oldest, if so many are known.
fn room(recent: &mut Recent) -> Known {
    let mut known = if recent.len() < KEPT { Known::default() } else { recent.pop_back().unwrap_or_default() };
    known.bytes.clear();
    known.spec = None;
    known
}

fn remember(recent: &mut Recent, known: Known) {
    if known.bytes.len() <= BYTES_MAX {
        recent.push_front(known);
    }
}

/// Writes the spec's encoding, as it was written before if it is one of the last.
pub fn encode<C, W: Write>(
    spec: &Arc<JobSpec>,
    e: &mut Encoder<W>,
    _: &mut C,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    ENCODED.with_borrow_mut(|recent| {
        let is = |known: &&Known| known.spec.as_ref().is_some_and(|known| Arc::ptr_eq(known, spec));
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

/// Reads a spec. One whose bytes came before is shared; another is the only one.
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
