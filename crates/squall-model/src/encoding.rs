//! How values stand in messages and files: CBOR (RFC 8949) whose fields and variants have numbers instead of names.
//!
//! Every type that is sent or stored derives `Encode` and `Decode` of [minicbor](https://docs.rs/minicbor) and gives each
//! field its number, `#[n(3)]`. A reader skips a number that it does not know. A number that is missing gives `None`, or
//! the default where the field says `#[cbor(default)]`. So a field may be added at any time, and a number is never used
//! again for something else. For example, a field `pub wckey: Option<String>` that comes after 41 others is `#[n(42)]`.

use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};

/// What can be written.
pub trait Encoded: Encode<()> {}

impl<T: Encode<()> + ?Sized> Encoded for T {}

/// What can be read.
pub trait Decoded: for<'b> Decode<'b, ()> {}

impl<T: for<'b> Decode<'b, ()>> Decoded for T {}

/// The value's bytes.
pub fn to_vec<T: Encoded + ?Sized>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = append(value, &mut bytes);
    debug_assert!(written.is_ok(), "a value that can't be written");
    bytes
}

/// Adds the value's bytes. Err: it can't be written, and nothing was added.
pub fn append<T: Encoded + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), String> {
    let before = bytes.len();
    minicbor::encode(value, &mut *bytes).map_err(|e| {
        bytes.truncate(before);
        e.to_string()
    })
}

/// How many bytes the value takes.
pub fn size<T: Encoded + ?Sized>(value: &T) -> usize {
    struct Count(usize);
    impl Write for &mut Count {
        type Error = std::convert::Infallible;
        fn write_all(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
            self.0 += bytes.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    drop(minicbor::encode(value, &mut count));
    count.0
}

/// The value that the bytes hold. Err: they hold another one, or more than that; in words.
pub fn from_slice<T: Decoded>(bytes: &[u8]) -> Result<T, String> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode().map_err(|e| e.to_string())?;
    match bytes.len() - decoder.position() {
        0 => Ok(value),
        left => Err(format!("{left} bytes left over")),
    }
}

/// Bytes, which stand as such and not as a sequence of numbers.
#[derive(Clone, Default, Eq, PartialOrd, Ord)]
pub struct ByteBuf(Vec<u8>);

impl ByteBuf {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }
    /// As a vector.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl<T: Into<Vec<u8>>> From<T> for ByteBuf {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl std::ops::Deref for ByteBuf {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl std::ops::DerefMut for ByteBuf {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for ByteBuf {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}

impl AsRef<[u8]> for ByteBuf {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for ByteBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<C> Encode<C> for ByteBuf {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for ByteBuf {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        Ok(Self(d.bytes()?.to_vec()))
    }
}

/// A value that several share: `#[cbor(with = "crate::encoding::arc")]`.
pub mod arc {
    use std::sync::Arc;

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Writes the value itself.
    pub fn encode<C, T: Encode<C>, W: Write>(
        value: &Arc<T>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        T::encode(value, e, ctx)
    }

    /// Reads a value that nothing shares yet.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Arc<T>, Error> {
        T::decode(d, ctx).map(Arc::new)
    }
}

/// A shared value that may be missing: `#[cbor(with = "crate::encoding::arc_or_none", has_nil)]`.
pub mod arc_or_none {
    use std::sync::Arc;

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Writes the value, or null.
    pub fn encode<C, T: Encode<C>, W: Write>(
        value: &Option<Arc<T>>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        match value {
            Some(value) => T::encode(value, e, ctx),
            None => e.null()?.ok(),
        }
    }

    /// Reads a value or null.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Option<Arc<T>>, Error> {
        Ok(Option::<T>::decode(d, ctx)?.map(Arc::new))
    }

    /// A number that is missing.
    pub fn nil<T>() -> Option<Option<Arc<T>>> {
        Some(None)
    }

    /// Whether nothing need be written.
    pub fn is_nil<T>(value: &Option<Arc<T>>) -> bool {
        value.is_none()
    }
}

/// A change of a value that may be missing: `#[cbor(with = "crate::encoding::change", has_nil)]`. No change is null, to
/// take the value away is an empty list, a new value is a list of one.
pub mod change {
    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Writes a change.
    pub fn encode<C, T: Encode<C>, W: Write>(
        change: &Option<Option<T>>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        match change {
            None => e.null()?.ok(),
            Some(value) => {
                e.array(value.is_some().into())?;
                value.iter().try_for_each(|value| value.encode(e, ctx))
            }
        }
    }

    /// Reads a change.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Option<Option<T>>, Error> {
        Ok(Option::<Vec<T>>::decode(d, ctx)?.map(|values| values.into_iter().next()))
    }

    /// A number that is missing.
    pub fn nil<T>() -> Option<Option<Option<T>>> {
        Some(None)
    }

    /// Whether nothing need be written.
    pub fn is_nil<T>(change: &Option<Option<T>>) -> bool {
        change.is_none()
    }
}

/// A list of shared values: `#[cbor(with = "crate::encoding::arcs")]`.
pub mod arcs {
    use std::sync::Arc;

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Writes the values.
    pub fn encode<C, T: Encode<C>, W: Write>(
        values: &[Arc<T>],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        e.array(values.len() as u64)?;
        values.iter().try_for_each(|value| T::encode(value, e, ctx))
    }

    /// Reads values that nothing shares yet.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Vec<Arc<T>>, Error> {
        d.array_iter_with(ctx)?.map(|value| value.map(Arc::new)).collect()
    }
}

/// A list that is mostly short: `#[cbor(with = "crate::encoding::small")]`.
pub mod small {
    use smallvec::{Array, SmallVec};

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Writes the values.
    pub fn encode<C, A: Array<Item: Encode<C>>, W: Write>(
        values: &SmallVec<A>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        e.array(values.len() as u64)?;
        values.iter().try_for_each(|value| value.encode(e, ctx))
    }

    /// Reads values.
    pub fn decode<'b, C, A: Array<Item: Decode<'b, C>>>(
        d: &mut Decoder<'b>,
        ctx: &mut C,
    ) -> Result<SmallVec<A>, Error> {
        d.array_iter_with(ctx)?.collect()
    }
}
