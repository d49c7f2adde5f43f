//! A value that those who only pass it on need not understand: bytes on the wire, decoded by who opens it.

use std::cell::RefCell;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::CodecError;

thread_local! {
    /// Where a thread encodes, so that memory need not grow anew for each value.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a thread keeps of it.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// A value, or its encoding.
#[derive(Clone, Debug)]
pub enum Sealed<T> {
    /// Not encoded yet, or opened.
    Open(Arc<T>),
    /// As it came.
    Bytes(Arc<[u8]>),
}

impl<T: Serialize + DeserializeOwned> Sealed<T> {
    /// Seals a value.
    pub fn new(value: T) -> Self {
        Self::Open(Arc::new(value))
    }
    /// The value. Err: the bytes are none.
    pub fn open(&self) -> Result<Arc<T>, CodecError> {
        match self {
            Self::Open(value) => Ok(Arc::clone(value)),
            Self::Bytes(bytes) => {
                let value = postcard::from_bytes(bytes).map_err(|e| CodecError::Malformed(e.to_string()))?;
                Ok(Arc::new(value))
            }
        }
    }
    /// Encodes it now, so that copies for several receivers share one encoding; returns its length.
    pub fn encode(&mut self) -> Result<usize, CodecError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.len()),
            Self::Open(value) => {
                let bytes = SCRATCH.with_borrow_mut(|scratch| {
                    scratch.clear();
                    postcard::to_io(&**value, &mut *scratch)?;
                    let bytes: Arc<[u8]> = scratch[..].into();
                    scratch.shrink_to(SCRATCH_BYTES_MAX);
                    Ok(bytes)
                });
                let bytes = bytes.map_err(|e: postcard::Error| CodecError::Malformed(e.to_string()))?;
                let length = bytes.len();
                *self = Self::Bytes(bytes);
                Ok(length)
            }
        }
    }
}

impl<T: Serialize + DeserializeOwned + PartialEq> PartialEq for Sealed<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            _ => self.open().ok().zip(other.open().ok()).is_some_and(|(a, b)| a == b),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Eq> Eq for Sealed<T> {}

impl<T: Serialize> Serialize for Sealed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::Open(value) => {
                let bytes = postcard::to_stdvec(&**value).map_err(S::Error::custom)?;
                serializer.serialize_bytes(&bytes)
            }
        }
    }
}

impl<'de, T> Deserialize<'de> for Sealed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Arc<[u8]>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("sealed bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Arc<[u8]>, E> {
                Ok(bytes.into())
            }
            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Arc<[u8]>, E> {
                Ok(bytes.into())
            }
        }
        deserializer.deserialize_bytes(Bytes).map(Self::Bytes).map_err(D::Error::custom)
    }
}
