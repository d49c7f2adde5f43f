//! A value that is relayed without being decoded: it travels as bytes, and only its receiver decodes it.

use std::cell::RefCell;
use std::sync::Arc;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder};

use crate::codec::CodecError;
use crate::encoding::{self, Decoded, Encoded};

thread_local! {
    /// Buffer in which this thread encodes values, kept to save allocations.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Capacity, in bytes, to which the encoding buffer is shrunk after each value.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// A value in a message, either decoded or still encoded, so that relays need not decode it.
#[derive(Clone, Debug)]
pub enum Sealed<T> {
    /// The decoded value. It is encoded when the message is sent.
    Open(Arc<T>),
    /// The encoding of the value, as received.
    Bytes(Arc<[u8]>),
}

impl<T: Encoded + Decoded> Sealed<T> {
    /// Wraps a decoded value.
    pub fn new(value: T) -> Self {
        Self::Open(Arc::new(value))
    }
    /// Returns the value, and decodes it if necessary. Fails if the bytes don't encode a value of this type.
    pub fn open(&self) -> Result<Arc<T>, CodecError> {
        match self {
            Self::Open(value) => Ok(Arc::clone(value)),
            Self::Bytes(bytes) => {
                let value = encoding::from_slice(bytes).map_err(CodecError::Malformed)?;
                Ok(Arc::new(value))
            }
        }
    }
    /// Replaces the decoded value by its encoding, so that copies for several receivers share one encoding. Returns the
    /// length of the encoding in bytes.
    pub fn encode(&mut self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Open(value) => {
                let bytes: Arc<[u8]> = SCRATCH.with_borrow_mut(|scratch| {
                    scratch.clear();
                    let written = encoding::append(&**value, scratch);
                    debug_assert!(written.is_ok(), "a value that can't be written");
                    let bytes = scratch[..].into();
                    scratch.shrink_to(SCRATCH_BYTES_MAX);
                    bytes
                });
                let length = bytes.len();
                *self = Self::Bytes(bytes);
                length
            }
        }
    }
}

impl<T: Encoded + Decoded + PartialEq> PartialEq for Sealed<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            _ => self.open().ok().zip(other.open().ok()).is_some_and(|(a, b)| a == b),
        }
    }
}

impl<T: Encoded + Decoded + Eq> Eq for Sealed<T> {}

impl<C, T: Encoded> Encode<C> for Sealed<T> {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), minicbor::encode::Error<W::Error>> {
        match self {
            Self::Bytes(bytes) => e.bytes(bytes)?.ok(),
            Self::Open(value) => e.bytes(&encoding::to_vec(&**value))?.ok(),
        }
    }
}

impl<'b, C, T> Decode<'b, C> for Sealed<T> {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Ok(Self::Bytes(d.bytes()?.into()))
    }
}
