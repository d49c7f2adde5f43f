//! Data of release 0.1, which encoded values with postcard: one field after another, without field numbers.
//!
//! The layout of 0.1's types is data (`v1.txt`) and not code, so types may change and data of 0.1 stays readable. Data
//! is first translated to the encoding of [`crate::encoding`], where a field's number is its position. Messages to a
//! running step daemon of 0.1 are translated the other way.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::OnceLock;

use minicbor::data::Type as Found;
use minicbor::{Decoder, Encode, Encoder};

use crate::config::{Config, PartitionConfig};
use crate::encoding::{self, Decoded, Encoded};
use crate::set::NodeSet;

const LAYOUT: &str = include_str!("v1.txt");
/// Deepest nesting of values that is accepted. No value of 0.1 comes near it.
const DEPTH_MAX: u32 = 64;

/// Layout of a value in postcard's encoding.
#[derive(Debug)]
enum Type {
    /// An unsigned integer of this many bytes. If there is more than one byte, postcard encodes it with variable
    /// length.
    Unsigned(u8),
    Signed(u8),
    /// A 64-bit floating-point number.
    Real,
    Bool,
    Str,
    Bytes,
    /// This number of bytes, without a length before them.
    Raw(usize),
    Option(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Tuple(Vec<Type>),
    Named(usize),
    /// A byte string that holds another encoded value.
    Sealed(Box<Type>),
    /// A set of nodes, as runs or as 64-bit words.
    Nodes,
    /// A cluster's configuration, decoded by its own `Deserialize`.
    Config,
    Partition,
}

/// Definition of a named type in `v1.txt`.
#[derive(Debug)]
enum Definition {
    Alias(Type),
    Struct(Vec<Type>),
    Enum(Vec<Vec<Type>>),
}

#[derive(Debug)]
struct Layout {
    names: BTreeMap<&'static str, usize>,
    definitions: Vec<Definition>,
}

/// Decodes a value that release 0.1 encoded; `root` is the name of its type.
pub fn read<T: Decoded>(root: &str, bytes: &[u8]) -> Result<T, String> {
    encoding::from_slice(&translate(root, bytes)?)
}

/// Translates a value that release 0.1 encoded to this release's encoding; `root` is the name of its type.
pub fn translate(root: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let layout = layout();
    let mut reader = Reader { layout, bytes, depth: 0 };
    let mut out = Encoder::new(Vec::new());
    reader.value(&layout.root(root)?, &mut out)?;
    match reader.bytes.len() {
        0 => Ok(out.into_writer()),
        left => Err(format!("{left} bytes left over")),
    }
}

/// Encodes a value as release 0.1 would; `root` is the name of its type. Fields that 0.1 lacks are left out. Fails if
/// 0.1 has no such value.
pub fn write<T: Encoded + ?Sized>(root: &str, value: &T) -> Result<Vec<u8>, String> {
    let layout = layout();
    let bytes = encoding::to_vec(value);
    let mut out = Vec::new();
    Writer { layout, from: Decoder::new(&bytes) }.value(&layout.root(root)?, &mut out)?;
    Ok(out)
}

fn layout() -> &'static Layout {
    static READ: OnceLock<Layout> = OnceLock::new();
    READ.get_or_init(|| Layout::read(LAYOUT))
}

impl Layout {
    /// Parses `v1.txt`, the layout of 0.1's types. Errors are not reported, because a test parses the same file.
    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let named = lines().filter(|line| !line.starts_with(' '));
        let names: BTreeMap<_, _> = named.filter_map(|line| line.split(' ').nth(1)).zip(0..).collect();
        let mut layout = Self { names, definitions: Vec::new() };
        for line in lines() {
            let mut words = line.split(' ');
            let kind = words.next().unwrap_or_default();
            let field = |field: &'static str| layout.parse(field.split_once(':').map_or(field, |(_, ty)| ty));
            if kind.is_empty() {
                let variant = words.skip(2).map(field).collect();
                if let Some(Definition::Enum(variants)) = layout.definitions.last_mut() {
                    variants.push(variant);
                }
                continue;
            }
            let mut fields: Vec<Type> = words.skip(1).map(field).collect();
            layout.definitions.push(match kind {
                "alias" => Definition::Alias(fields.pop().unwrap_or(Type::Tuple(Vec::new()))),
                "enum" => Definition::Enum(Vec::new()),
                _ => Definition::Struct(fields),
            });
        }
        layout
    }

    fn parse(&self, text: &str) -> Type {
        let inner = |text: &str| Box::new(self.parse(text));
        let within = &text[1..text.len().max(2) - 1];
        match text.as_bytes()[0] {
            b'?' => Type::Option(inner(&text[1..])),
            b'!' => Type::Sealed(inner(&text[1..])),
            b'[' => Type::List(inner(within)),
            b'(' => Type::Tuple(split(within).map(|part| self.parse(part)).collect()),
            b'{' => {
                let mut parts = split(within).map(inner);
                let mut part = || parts.next().unwrap_or_else(|| Box::new(Type::Tuple(Vec::new())));
                Type::Map(part(), part())
            }
            _ => self.word(text),
        }
    }

    fn word(&self, text: &str) -> Type {
        let bytes = || text[1..].parse::<u8>().ok().map(|bits| bits / 8);
        match text {
            "bool" => Type::Bool,
            "f64" => Type::Real,
            "str" => Type::Str,
            "bytes" | "bytes8" => Type::Bytes,
            "NodeSet" => Type::Nodes,
            "Config" => Type::Config,
            "PartitionConfig" => Type::Partition,
            _ => match (text.strip_prefix("raw").and_then(|n| n.parse().ok()), bytes()) {
                (Some(count), _) => Type::Raw(count),
                (None, Some(bytes)) if text.starts_with('u') => Type::Unsigned(bytes),
                (None, Some(bytes)) if text.starts_with('i') => Type::Signed(bytes),
                // A name without a definition is not a type of 0.1. Decoding it fails.
                _ => Type::Named(self.names.get(text).copied().unwrap_or(usize::MAX)),
            },
        }
    }

    fn root(&self, text: &str) -> Result<Type, String> {
        match self.parse(text) {
            Type::Named(usize::MAX) => Err(format!("squall 0.1 has no {text}")),
            ty => Ok(ty),
        }
    }
}

/// Splits a text at the commas outside of brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        c == ',' && depth == 0
    })
}

/// Decodes values from postcard, by the layout of their types.
struct Reader<'a> {
    layout: &'static Layout,
    bytes: &'a [u8],
    depth: u32,
}

type Out = Encoder<Vec<u8>>;

fn ended() -> String {
    "it ends too early".to_owned()
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(ended)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self, bytes: u8) -> Result<u128, String> {
        if bytes == 1 {
            return self.byte().map(u128::from);
        }
        let (mut value, bits) = (0_u128, u32::from(bytes) * 8);
        for shift in (0..bits).step_by(7) {
            let byte = self.byte()?;
            let part = u128::from(byte & 0x7f);
            if part << shift >> shift != part || (bits < 128 && (part << shift) >> bits != 0) {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too high".to_owned())
    }

    fn count(&mut self) -> Result<usize, String> {
        let count = self.number(8)?;
        usize::try_from(count).map_err(|e| e.to_string())
    }

    fn value(&mut self, ty: &Type, out: &mut Out) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        let read = self.value_within(ty, out);
        self.depth -= 1;
        read
    }

    fn value_within(&mut self, ty: &Type, out: &mut Out) -> Result<(), String> {
        match ty {
            Type::Unsigned(16) => put(&self.number(16)?, out),
            Type::Unsigned(bytes) => put(&(self.number(*bytes)? as u64), out),
            Type::Signed(1) => put(&i64::from(self.byte()? as i8), out),
            Type::Signed(bytes) => {
                let zigzag = self.number(*bytes)? as u64;
                put(&((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)), out);
            }
            Type::Real => {
                let bytes = self.take(8)?.try_into().map_err(|_| ended())?;
                put(&f64::from_le_bytes(bytes), out);
            }
            Type::Bool => put(&self.flag()?, out),
            Type::Str => {
                let count = self.count()?;
                put(std::str::from_utf8(self.take(count)?).map_err(|e| e.to_string())?, out);
            }
            Type::Bytes => {
                let count = self.count()?;
                head(out.bytes(self.take(count)?));
            }
            Type::Raw(count) => head(out.bytes(self.take(*count)?)),
            Type::Option(inner) => return self.option(inner, out),
            Type::List(inner) => {
                let count = self.count()?;
                head(out.array(count as u64));
                return (0..count).try_for_each(|_| self.value(inner, out));
            }
            Type::Map(key, value) => {
                let count = self.count()?;
                head(out.map(count as u64));
                return (0..count).try_for_each(|_| self.value(key, out).and_then(|()| self.value(value, out)));
            }
            Type::Tuple(parts) => return self.fields(parts, out),
            Type::Named(name) => return self.named(*name, out),
            Type::Sealed(inner) => {
                let count = self.count()?;
                let (layout, depth) = (self.layout, self.depth);
                let mut within = Reader { layout, depth, bytes: self.take(count)? };
                let mut sealed = Encoder::new(Vec::new());
                within.value(inner, &mut sealed)?;
                head(out.bytes(sealed.writer()));
            }
            Type::Nodes => return self.nodes(out),
            Type::Config => self.own::<Config>(out)?,
            Type::Partition => self.own::<PartitionConfig>(out)?,
        }
        Ok(())
    }

    fn flag(&mut self) -> Result<bool, String> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} is neither yes nor no")),
        }
    }

    fn option(&mut self, inner: &Type, out: &mut Out) -> Result<(), String> {
        let some = self.flag()?;
        // In this release a change of an optional value is a list with no or one element.
        match inner {
            Type::Option(inner) if some => {
                let some = self.flag()?;
                head(out.array(u64::from(some)));
                if some { self.value(inner, out) } else { Ok(()) }
            }
            _ if some => self.value(inner, out),
            _ => {
                head(out.null());
                Ok(())
            }
        }
    }

    fn fields(&mut self, types: &[Type], out: &mut Out) -> Result<(), String> {
        head(out.array(types.len() as u64));
        types.iter().try_for_each(|ty| self.value(ty, out))
    }

    fn named(&mut self, name: usize, out: &mut Out) -> Result<(), String> {
        let layout = self.layout;
        match layout.definitions.get(name).ok_or("a type without definition")? {
            Definition::Alias(ty) => self.value(ty, out),
            Definition::Struct(types) => self.fields(types, out),
            Definition::Enum(variants) => {
                let at = self.number(4)? as usize;
                let types = variants.get(at).ok_or_else(|| format!("there is no variant {at}"))?;
                if is_plain(variants) {
                    put(&at, out);
                    return Ok(());
                }
                head(out.array(2));
                put(&at, out);
                self.fields(types, out)
            }
        }
    }

    /// Decodes a node set: alternating gaps and run lengths, or words of 64 bits.
    fn nodes(&mut self, out: &mut Out) -> Result<(), String> {
        let (words, count) = (self.flag()?, self.count()?);
        if words {
            let words = (0..count).map(|_| self.number(8)).collect::<Result<Vec<_>, _>>()?;
            let bytes: Vec<u8> = words.into_iter().flat_map(|word| (word as u64).to_le_bytes()).collect();
            head(out.bytes(&bytes));
            return Ok(());
        }
        let numbers = count.checked_mul(2).ok_or_else(ended)?;
        head(out.array(numbers as u64));
        for _ in 0..numbers {
            put(&(self.number(4)? as u32), out);
        }
        Ok(())
    }

    fn own<T: serde::de::DeserializeOwned + Encode<()>>(&mut self, out: &mut Out) -> Result<(), String> {
        let (value, rest) = postcard::take_from_bytes::<T>(self.bytes).map_err(|e| e.to_string())?;
        self.bytes = rest;
        put(&value, out);
        Ok(())
    }
}

/// Returns whether no variant of an enum has fields. Only the number of a variant is then encoded.
fn is_plain(variants: &[Vec<Type>]) -> bool {
    variants.iter().all(Vec::is_empty)
}

/// Appends the encoding of a value in this release. Can't fail, because the output is a vector.
fn put<T: Encode<()> + ?Sized>(value: &T, out: &mut Out) {
    head(out.encode(value));
}

fn head(written: Result<&mut Out, minicbor::encode::Error<Infallible>>) {
    debug_assert!(written.is_ok_and(|_| true), "a vector takes all");
}

/// Encodes values with postcard, by the layout of their types.
struct Writer<'a> {
    layout: &'static Layout,
    from: Decoder<'a>,
}

impl Writer<'_> {
    fn value(&mut self, ty: &Type, out: &mut Vec<u8>) -> Result<(), String> {
        let said = |e: minicbor::decode::Error| e.to_string();
        match ty {
            Type::Unsigned(1) => out.push(self.from.u8().map_err(said)?),
            Type::Unsigned(16) => number(self.from.decode().map_err(said)?, out),
            Type::Unsigned(_) => number(self.from.u64().map_err(said)?.into(), out),
            Type::Signed(1) => out.push(self.from.i8().map_err(said)? as u8),
            Type::Signed(_) => {
                let value = self.from.i64().map_err(said)?;
                number((((value << 1) ^ (value >> 63)) as u64).into(), out);
            }
            Type::Real => out.extend_from_slice(&self.from.f64().map_err(said)?.to_le_bytes()),
            Type::Bool => out.push(self.from.bool().map_err(said)?.into()),
            Type::Str | Type::Config | Type::Partition => counted(self.from.str().map_err(said)?.as_bytes(), out),
            Type::Bytes => counted(self.from.bytes().map_err(said)?, out),
            Type::Raw(count) => {
                let bytes = self.from.bytes().map_err(said)?;
                if bytes.len() != *count {
                    return Err(format!("{} bytes instead of {count}", bytes.len()));
                }
                out.extend_from_slice(bytes);
            }
            Type::Option(inner) => return self.option(inner, out),
            Type::List(inner) => {
                let count = self.list()?;
                number(count.into(), out);
                return (0..count).try_for_each(|_| self.value(inner, out));
            }
            Type::Map(key, value) => {
                let count = self.from.map().map_err(said)?.ok_or("a map without count")?;
                number(count.into(), out);
                return (0..count).try_for_each(|_| self.value(key, out).and_then(|()| self.value(value, out)));
            }
            Type::Tuple(parts) => return self.fields(parts, out),
            Type::Named(name) => return self.named(*name, out),
            Type::Sealed(inner) => {
                let mut sealed = Vec::new();
                let from = Decoder::new(self.from.bytes().map_err(said)?);
                Writer { layout: self.layout, from }.value(inner, &mut sealed)?;
                counted(&sealed, out);
            }
            Type::Nodes => {
                let nodes: NodeSet = self.from.decode().map_err(said)?;
                let runs = nodes.0.runs();
                out.push(0);
                number(runs.len() as u128, out);
                runs.iter().for_each(|(gap, count)| [gap, count].into_iter().for_each(|n| number((*n).into(), out)));
            }
        }
        Ok(())
    }

    fn list(&mut self) -> Result<u64, String> {
        let count = self.from.array().map_err(|e| e.to_string())?;
        count.ok_or_else(|| "a list without count".to_owned())
    }

    fn is_null(&mut self) -> Result<bool, String> {
        let found = self.from.datatype().map_err(|e| e.to_string())?;
        if found == Found::Null {
            self.from.skip().map_err(|e| e.to_string())?;
        }
        Ok(found == Found::Null)
    }

    fn option(&mut self, inner: &Type, out: &mut Vec<u8>) -> Result<(), String> {
        let some = !self.is_null()?;
        out.push(some.into());
        match inner {
            Type::Option(inner) if some => {
                let some = self.list()? > 0;
                out.push(some.into());
                if some { self.value(inner, out) } else { Ok(()) }
            }
            _ if some => self.value(inner, out),
            _ => Ok(()),
        }
    }

    /// Encodes fields by their numbers. Fields that 0.1 lacks are skipped. A missing optional field is encoded as None;
    /// any other missing field is an error.
    fn fields(&mut self, types: &[Type], out: &mut Vec<u8>) -> Result<(), String> {
        let count = self.list()? as usize;
        for (number, ty) in types.iter().enumerate() {
            match ty {
                Type::Option(_) if number >= count => out.push(0),
                _ if number >= count => return Err(format!("field {number} is missing")),
                _ => self.value(ty, out)?,
            }
        }
        (types.len()..count).try_for_each(|_| self.from.skip()).map_err(|e| e.to_string())
    }

    fn named(&mut self, name: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let layout = self.layout;
        match layout.definitions.get(name).ok_or("a type without definition")? {
            Definition::Alias(ty) => self.value(ty, out),
            Definition::Struct(types) => self.fields(types, out),
            Definition::Enum(variants) => {
                if !is_plain(variants) && self.list()? != 2 {
                    return Err("a variant has its number and its fields".to_owned());
                }
                let at = self.from.u32().map_err(|e| e.to_string())?;
                let types = variants.get(at as usize).ok_or_else(|| format!("there is no variant {at}"))?;
                number(at.into(), out);
                if is_plain(variants) { Ok(()) } else { self.fields(types, out) }
            }
        }
    }
}

fn number(mut value: u128, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn counted(bytes: &[u8], out: &mut Vec<u8>) {
    number(bytes.len() as u128, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::{Definition, LAYOUT, Type, layout, read, translate, write};
    use crate::id::{Attempt, JobId, StepKey, StepNo};
    use crate::job::Usage;
    use crate::wire::stepd::{FromStepd, ToStepd};

    fn is_defined(ty: &Type) -> bool {
        match ty {
            Type::Named(name) => *name < layout().definitions.len(),
            Type::Option(inner) | Type::List(inner) | Type::Sealed(inner) => is_defined(inner),
            Type::Map(key, value) => is_defined(key) && is_defined(value),
            Type::Tuple(parts) => parts.iter().all(is_defined),
            _ => true,
        }
    }

    #[test]
    fn every_name_in_the_layout_is_defined() {
        assert_eq!(blake3::hash(LAYOUT.as_bytes()).to_hex()[..16], *"ab9a798466e9d3b0", "the layout of 0.1 is frozen");
        for definition in &layout().definitions {
            let fields: Vec<&Type> = match definition {
                Definition::Alias(ty) => vec![ty],
                Definition::Struct(types) => types.iter().collect(),
                Definition::Enum(variants) => variants.iter().flatten().collect(),
            };
            assert!(fields.into_iter().all(is_defined), "{definition:?}");
        }
        assert!(translate("NoSuchType", &[]).is_err());
    }

    #[test]
    fn messages_of_step_daemons_go_both_ways() {
        let key = StepKey { job: JobId(300), attempt: Attempt(1), step: StepNo::BATCH };
        let said = [
            FromStepd::Hello { key, tasks: vec![(0, 4711)] },
            FromStepd::Usage(Usage::default()),
            FromStepd::Failed { error: "no such file".into(), node_fault: true },
        ];
        for message in said {
            let bytes = write("FromStepd", &message).unwrap();
            assert_eq!(read::<FromStepd>("FromStepd", &bytes).unwrap(), message);
            for length in 0..bytes.len() {
                assert!(read::<FromStepd>("FromStepd", &bytes[..length]).is_err());
            }
        }
        let word = ToStepd::Signal { signal: -9, all: true };
        // As postcard encodes it: the variant, the number in zigzag, the flag.
        let bytes = write("ToStepd", &word).unwrap();
        assert_eq!(bytes[1..], [17, 1]);
        assert_eq!(read::<ToStepd>("ToStepd", &bytes).unwrap(), word);
    }

    #[test]
    fn numbers_that_are_too_high_are_refused() {
        assert!(read::<u64>("u64", &[0xff; 9]).is_err());
        assert!(read::<u64>("u64", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_ok());
        assert!(read::<u64>("u64", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).is_err());
        assert!(read::<u16>("u16", &[0xff, 0xff, 0x04]).is_err());
        let runs_without_end = [&[0_u8][..], &[0xff; 9], &[0x01]].concat();
        assert!(translate("NodeSet", &runs_without_end).is_err());
    }
}
