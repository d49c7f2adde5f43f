//! Encoding of messages and files: CBOR (RFC 8949) with numbers instead of names for fields and variants.
//!
//! Every type that is sent or stored derives `Encode` and `Decode` of [minicbor](https://docs.rs/minicbor) and gives
//! each field a number, `#[n(3)]`. A reader skips unknown numbers. A missing number gives `None`, or the default where
//! the field has `#[cbor(default)]`. So a field may be added at any time, and a number is never used again for another
//! field. For example, a field `pub wckey: Option<String>` added after 41 others is `#[n(42)]`.

use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};

/// A type with values that can be encoded. Implemented for all that derive `Encode`.
pub trait Encoded: Encode<()> {}

impl<T: Encode<()> + ?Sized> Encoded for T {}

/// A type with values that can be decoded. The decoded value borrows nothing from the input.
pub trait Decoded: for<'b> Decode<'b, ()> {}

impl<T: for<'b> Decode<'b, ()>> Decoded for T {}

/// Encodes a value and returns the bytes.
pub fn to_vec<T: Encoded + ?Sized>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = append(value, &mut bytes);
    debug_assert!(written.is_ok(), "a value that can't be written");
    bytes
}

/// Appends the encoded value to `bytes`. On an error nothing is appended.
pub fn append<T: Encoded + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), String> {
    let before = bytes.len();
    minicbor::encode(value, &mut *bytes).map_err(|e| {
        bytes.truncate(before);
        e.to_string()
    })
}

/// Returns the number of bytes of the encoded value.
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

/// Decodes a value that takes all of `bytes`. Fails, with a text for users, if the bytes are no such value or more than
/// one.
pub fn from_slice<T: Decoded>(bytes: &[u8]) -> Result<T, String> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode().map_err(|e| e.to_string())?;
    match bytes.len() - decoder.position() {
        0 => Ok(value),
        left => Err(format!("{left} bytes left over")),
    }
}

/// Bytes, encoded as a CBOR byte string instead of a list of numbers.
#[derive(Clone, Default, Eq, PartialOrd, Ord)]
pub struct ByteBuf(Vec<u8>);

impl ByteBuf {
    /// Returns an empty byte string.
    pub fn new() -> Self {
        Self::default()
    }
    /// Converts to a vector without copying the bytes.
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

/// Encoding of an `Arc` as the value in it: `#[cbor(with = "crate::encoding::arc")]`.
pub mod arc {
    use std::sync::Arc;

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Encodes the value in the `Arc`.
    pub fn encode<C, T: Encode<C>, W: Write>(
        value: &Arc<T>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        T::encode(value, e, ctx)
    }

    /// Decodes a value into a new `Arc`.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Arc<T>, Error> {
        T::decode(d, ctx).map(Arc::new)
    }
}

/// Encoding of an optional `Arc` as the value in it, or null: `#[cbor(with = "crate::encoding::arc_or_none",
/// has_nil)]`.
pub mod arc_or_none {
    use std::sync::Arc;

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Encodes the value in the `Arc`, or null if there is none.
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

    /// Decodes a value into a new `Arc`. Null gives None.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Option<Arc<T>>, Error> {
        Ok(Option::<T>::decode(d, ctx)?.map(Arc::new))
    }

    /// Returns the value for a missing field: no `Arc`.
    pub fn nil<T>() -> Option<Option<Arc<T>>> {
        Some(None)
    }

    /// Returns whether the field may be left out of the encoding, because it has no value.
    pub fn is_nil<T>(value: &Option<Arc<T>>) -> bool {
        value.is_none()
    }
}

/// Encoding of a change to an optional value: `#[cbor(with = "crate::encoding::change", has_nil)]`. No change is
/// encoded as null, removal as an empty list, and a new value as a list of one.
pub mod change {
    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Encodes a change of an optional value.
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

    /// Decodes a change of an optional value.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Option<Option<T>>, Error> {
        Ok(Option::<Vec<T>>::decode(d, ctx)?.map(|values| values.into_iter().next()))
    }

    /// Returns the value for a missing field: no change.
    pub fn nil<T>() -> Option<Option<Option<T>>> {
        Some(None)
    }

    /// Returns whether the field may be left out of the encoding, because nothing changes.
    pub fn is_nil<T>(change: &Option<Option<T>>) -> bool {
        change.is_none()
    }
}

/// Encoding of a list of texts, which may be left out while it is empty: `#[cbor(with = "crate::encoding::names",
/// has_nil)]`.
pub mod names {
    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Encodes the texts as a list, or null if there are none.
    pub fn encode<C, W: Write>(
        names: &[String],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        if names.is_empty() { e.null()?.ok() } else { names.encode(e, ctx) }
    }

    /// Decodes a list of texts. Null gives an empty one.
    pub fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<Vec<String>, Error> {
        Ok(Option::<Vec<String>>::decode(d, ctx)?.unwrap_or_default())
    }

    /// Returns the value for a missing field: no texts.
    pub fn nil() -> Option<Vec<String>> {
        Some(Vec::new())
    }

    /// Returns whether the field may be left out of the encoding, because there are no texts.
    pub fn is_nil(names: &[String]) -> bool {
        names.is_empty()
    }
}

/// Encoding of a truth, which may be left out while it is false: `#[cbor(with = "crate::encoding::truth", has_nil)]`.
pub mod truth {
    use super::{Decode, Decoder, Encoder, Error, Write, encode as write};

    /// Encodes true, or null.
    pub fn encode<C, W: Write>(is: &bool, e: &mut Encoder<W>, _: &mut C) -> Result<(), write::Error<W::Error>> {
        if *is { e.bool(true)?.ok() } else { e.null()?.ok() }
    }

    /// Decodes a truth. Null is false.
    pub fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<bool, Error> {
        Ok(Option::<bool>::decode(d, ctx)?.unwrap_or_default())
    }

    /// Returns the value for a missing field: false.
    pub fn nil() -> Option<bool> {
        Some(false)
    }

    /// Returns whether the field may be left out of the encoding.
    pub fn is_nil(is: &bool) -> bool {
        !is
    }
}

/// Encoding of a shared text as a text: `#[cbor(with = "crate::encoding::text")]`.
pub mod text {
    use std::sync::Arc;

    use super::{Decoder, Encoder, Error, Write, encode as write};

    /// Encodes the text.
    pub fn encode<C, W: Write>(text: &Arc<str>, e: &mut Encoder<W>, _: &mut C) -> Result<(), write::Error<W::Error>> {
        e.str(text)?.ok()
    }

    /// Decodes a text into a new `Arc`.
    pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Arc<str>, Error> {
        Ok(d.str()?.into())
    }
}

/// Encoding of a list of `Arc` as a list of the values in them: `#[cbor(with = "crate::encoding::arcs")]`.
pub mod arcs {
    use std::sync::Arc;

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Encodes the values in the `Arc`s as a list.
    pub fn encode<C, T: Encode<C>, W: Write>(
        values: &[Arc<T>],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        e.array(values.len() as u64)?;
        values.iter().try_for_each(|value| T::encode(value, e, ctx))
    }

    /// Decodes a list of values, each into a new `Arc`.
    pub fn decode<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Vec<Arc<T>>, Error> {
        d.array_iter_with(ctx)?.map(|value| value.map(Arc::new)).collect()
    }
}

/// Encoding of a `SmallVec` as a list: `#[cbor(with = "crate::encoding::small")]`.
pub mod small {
    use smallvec::{Array, SmallVec};

    use super::{Decode, Decoder, Encode, Encoder, Error, Write, encode as write};

    /// Encodes the values of a `SmallVec` as a list.
    pub fn encode<C, A: Array<Item: Encode<C>>, W: Write>(
        values: &SmallVec<A>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), write::Error<W::Error>> {
        e.array(values.len() as u64)?;
        values.iter().try_for_each(|value| value.encode(e, ctx))
    }

    /// Decodes a list of values into a `SmallVec`.
    pub fn decode<'b, C, A: Array<Item: Decode<'b, C>>>(
        d: &mut Decoder<'b>,
        ctx: &mut C,
    ) -> Result<SmallVec<A>, Error> {
        d.array_iter_with(ctx)?.collect()
    }
}
