//! Values on their way to and from a server.
//!
//! A value takes the type that the server asks for: 1 is a number, or true; the usage of a step is stored as an array of
//! numbers, which SQL can read, and is a byte string elsewhere.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, Type as Kind, Value, ValueRef};
use squall_model::encoding;
use squall_model::job::{GpuUse, Usage};
use squall_model::time::Span;
use tokio_postgres::types::{self as server, FromSql, IsNull, Type};

type Failure = Box<dyn Error + Sync + Send>;

/// A value of a parameter.
#[derive(Debug)]
pub(super) struct Given(Value);

impl Given {
    /// Takes over a value of SQLite.
    pub(super) fn of(value: &dyn ToSql) -> rusqlite::Result<Self> {
        match value.to_sql()? {
            ToSqlOutput::Owned(value) => Ok(Self(value)),
            ToSqlOutput::Borrowed(value) => {
                Value::try_from(value).map(Self).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
            }
            _ => Err(rusqlite::Error::ToSqlConversionFailure("a value of no type".into())),
        }
    }
}

impl From<Value> for Given {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl server::ToSql for Given {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        let mut put = |value: &dyn server::ToSql| value.to_sql_checked(ty, out);
        match (&self.0, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(number), &Type::BOOL) => put(&(*number != 0)),
            (Value::Integer(number), &Type::INT2) => put(&i16::try_from(*number)?),
            (Value::Integer(number), &Type::INT4) => put(&i32::try_from(*number)?),
            (Value::Integer(number), &Type::INT8) => put(number),
            // Of the table of single values, where a number stands beside byte strings.
            (Value::Integer(number), &Type::BYTEA) => put(&&number.to_be_bytes()[..]),
            (Value::Real(number), &Type::FLOAT8) => put(number),
            // PostgreSQL has no text with this character.
            (Value::Text(text), _) if text.contains('\0') => put(&text.replace('\0', "\u{fffd}")),
            (Value::Text(text), _) => put(text),
            (Value::Blob(bytes), &Type::BYTEA) => put(&bytes.as_slice()),
            (Value::Blob(bytes), &Type::INT8_ARRAY) => put(&numbers(&encoding::from_slice::<Usage>(bytes)?)),
            (value, ty) => Err(format!("{:?} where the server wants {ty}", value.data_type()).into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    server::to_sql_checked!();
}

/// A value of a column.
pub(super) enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(Cow<'a, [u8]>),
}

impl Cell<'_> {
    /// Returns it as a value of SQLite.
    pub(super) fn value(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }
    }

    /// Returns its type.
    pub(super) fn kind(&self) -> Kind {
        self.value().data_type()
    }
}

impl<'a> FromSql<'a> for Cell<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(match *ty {
            Type::BOOL => Self::Integer(bool::from_sql(ty, raw)?.into()),
            Type::INT2 => Self::Integer(i16::from_sql(ty, raw)?.into()),
            Type::INT4 => Self::Integer(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Self::Integer(i64::from_sql(ty, raw)?),
            Type::FLOAT8 => Self::Real(f64::from_sql(ty, raw)?),
            Type::BYTEA => Self::Blob(raw.into()),
            Type::INT8_ARRAY => Self::Blob(encoding::to_vec(&usage(&Vec::from_sql(ty, raw)?)).into()),
            _ => Self::Text(<&str>::from_sql(ty, raw)?.as_bytes()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Failure> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The number in place of an energy that was not measured.
const NOT_MEASURED: u64 = u64::MAX;

/// Returns the numbers as which a step's usage is stored. Their places are those in the view `steps` (`schema`).
fn numbers(usage: &Usage) -> Vec<i64> {
    let Usage {
        user: Span(user),
        system: Span(system),
        max_rss_kb,
        max_rss_task,
        total_rss_kb,
        max_vm_kb,
        read_bytes,
        write_bytes,
        major_faults,
        gpus,
        energy_j,
    } = *usage;
    let own =
        [user, system, max_rss_kb, max_rss_task.into(), total_rss_kb, max_vm_kb, read_bytes, write_bytes, major_faults];
    let gpus = gpus.map(|GpuUse { percent, used_kb }| [percent, used_kb]);
    own.into_iter()
        .chain([energy_j.unwrap_or(NOT_MEASURED)])
        .chain(gpus.into_iter().flatten())
        .map(|number| number as i64)
        .collect()
}

/// Returns the usage that is stored as these numbers.
fn usage(numbers: &[i64]) -> Usage {
    let at = |place: usize| numbers.get(place).map_or(0, |number| *number as u64);
    Usage {
        user: Span(at(0)),
        system: Span(at(1)),
        max_rss_kb: at(2),
        max_rss_task: at(3) as u32,
        total_rss_kb: at(4),
        max_vm_kb: at(5),
        read_bytes: at(6),
        write_bytes: at(7),
        major_faults: at(8),
        energy_j: numbers.get(9).map(|number| *number as u64).filter(|number| *number != NOT_MEASURED),
        gpus: (numbers.len() > 10).then(|| GpuUse { percent: at(10), used_kb: at(11) }),
    }
}

#[cfg(test)]
mod tests {
    use squall_model::job::{GpuUse, Usage};
    use squall_model::time::Span;

    use super::{numbers, usage};

    #[test]
    fn a_usage_is_the_same_after_it_was_numbers() {
        let all = Usage {
            user: Span(1),
            system: Span(2),
            max_rss_kb: 3,
            max_rss_task: u32::MAX,
            total_rss_kb: 5,
            max_vm_kb: 6,
            read_bytes: u64::MAX,
            write_bytes: 8,
            major_faults: 9,
            gpus: Some(GpuUse { percent: 10, used_kb: 11 }),
            energy_j: Some(12),
        };
        for usage_of in [all, Usage { gpus: None, ..all }, Usage { energy_j: None, ..all }, Usage::default()] {
            assert_eq!(usage(&numbers(&usage_of)), usage_of);
        }
    }
}
