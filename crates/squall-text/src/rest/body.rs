//! Bodies of requests: values are read as leniently as Slurm does, and what has no effect is named.

use std::sync::OnceLock;

use serde_json::{Map, Value};
use squall_model::duration::parse_memory_mb;
use squall_model::time::Time;

use crate::options::values::when::{REMEDY, when_here};
use crate::shapes::problem::path;
use crate::shapes::table::{self, Shape};
use crate::shapes::{Problem, Warning};

/// A body that was read, with warnings about fields without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<T> {
    /// What the body asks for.
    pub value: T,
    /// Fields of the body that were accepted but have no effect.
    pub warnings: Vec<Warning>,
}

/// Most warnings about a body; further ones are not given.
const WARNINGS_MAX: usize = 64;

/// Slurm's numbers for a value that is not set, of 32 and 64 bits.
const UNSET: [u64; 2] = [u32::MAX as u64 - 1, u64::MAX - 1];
/// Slurm's numbers for an infinite value, of 32 and 64 bits.
const INFINITE: [u64; 2] = [u32::MAX as u64, u64::MAX];

/// Word for an infinite number in a body that was read.
pub(super) const ENDLESS: &str = "infinite";

/// Returns the fields of bodies, by Slurm's name for the body without the version.
pub(super) fn bodies() -> &'static [(String, Shape)] {
    static ALL: OnceLock<Vec<(String, Shape)>> = OnceLock::new();
    ALL.get_or_init(|| table::parse(include_str!("bodies.txt")))
}

/// Returns the fields of the body with this name.
pub(super) fn shape(name: &str) -> &'static Shape {
    let known = bodies().iter().find(|(known, _)| known == name);
    known.map(|(_, shape)| shape).expect("each body has a section: a test looks for it")
}

/// Reads `given` with the types of `shape`. In the result, a number of Slurm's form is null, a number or `ENDLESS`, and
/// fields that are not set are missing.
pub(super) fn read(shape: &Shape, given: &Value, place: &str, warnings: &mut Vec<Warning>) -> Result<Value, Problem> {
    match (shape, given) {
        (_, Value::Null) => Ok(Value::Null),
        (Shape::Object(fields), Value::Object(given)) => {
            let mut all = Map::new();
            for (name, value) in given {
                let here = path(place, name);
                match fields.iter().find(|(known, _)| known == name) {
                    Some((_, shape)) => {
                        let value = read(shape, value, &here, warnings)?;
                        if !value.is_null() {
                            all.insert(name.clone(), value);
                        }
                    }
                    None => warn(warnings, &here, "Unknown field: it has no effect"),
                }
            }
            Ok(Value::Object(all))
        }
        (Shape::List(each), Value::Array(list)) => {
            let read = |(at, value)| read(each, value, &format!("{place}[{at}]"), warnings);
            list.iter().enumerate().map(read).collect()
        }
        (Shape::List(each), one @ Value::Object(_)) => Ok(Value::Array(vec![read(each, one, place, warnings)?])),
        // Slurm reads units of memory, too.
        (Shape::Number(_), Value::String(text)) if is_memory(place) && number(given).is_none() => parse_memory_mb(text)
            .map(Value::from)
            .map_err(|_| wrong(place, given, "a number of MB, or one with K, M, G or T")),
        // Times may be texts, such as `now+1hour`.
        (Shape::Number(_) | Shape::Leaf(Value::Number(_)), Value::String(_))
            if is_time(place) && number(given).is_none() =>
        {
            Ok(given.clone())
        }
        (Shape::Number(_), given) => number(given).ok_or_else(|| wrong(place, given, "a number")),
        (Shape::Leaf(empty), given) => leaf(empty, given, place),
        (_, given) => Err(wrong(place, given, if matches!(shape, Shape::List(_)) { "a list" } else { "an object" })),
    }
}

fn is_time(place: &str) -> bool {
    ["begin_time", "start_time", "end_time", "deadline"].iter().any(|name| place.ends_with(name))
}

fn is_memory(place: &str) -> bool {
    ["memory_per_node", "memory_per_cpu"].iter().any(|name| place.ends_with(name))
}

/// Adds a warning, unless there are too many of them already.
pub(super) fn warn(warnings: &mut Vec<Warning>, source: &str, description: impl Into<String>) {
    if warnings.len() < WARNINGS_MAX {
        warnings.push(Warning::new(source, description));
    }
}

fn wrong(place: &str, given: &Value, wanted: &str) -> Problem {
    let shown: String = given.to_string().chars().take(80).collect();
    Problem::malformed(place, format!("{shown} is not {wanted}"))
}

/// Reads a number: as a number, as a text, or as an object with `set`, `infinite` and `number`.
fn number(given: &Value) -> Option<Value> {
    match given {
        Value::Number(number) => Some(match number.as_u64() {
            Some(number) if UNSET.contains(&number) => Value::Null,
            Some(number) if INFINITE.contains(&number) => ENDLESS.into(),
            _ => given.clone(),
        }),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "" => Some(Value::Null),
            "infinite" | "infinity" | "unlimited" => Some(ENDLESS.into()),
            text => number(&Value::Number(text.parse().ok()?)),
        },
        Value::Object(parts) => {
            let is = |key: &str| parts.get(key).and_then(truth);
            if is("infinite") == Some(true) {
                return Some(ENDLESS.into());
            }
            match (is("set"), parts.get("number")) {
                (Some(false), _) | (None | Some(true), None) => Some(Value::Null),
                (None | Some(true), Some(inner @ (Value::Number(_) | Value::String(_)))) => number(inner),
                _ => None,
            }
        }
        Value::Null => Some(Value::Null),
        _ => None,
    }
}

/// Reads a truth: as one, as a number, or as a text. None: it is neither.
pub(super) fn truth(given: &Value) -> Option<bool> {
    match given {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => number.as_f64().map(|number| number != 0.0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(true),
            "false" | "no" | "0" | "" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Reads a value of the type that `empty` has.
fn leaf(empty: &Value, given: &Value, place: &str) -> Result<Value, Problem> {
    match (empty, given) {
        (Value::String(_), Value::String(_)) => Some(given.clone()),
        (Value::String(_), Value::Number(_) | Value::Bool(_)) => Some(given.to_string().into()),
        // A list where a text is wanted, such as a list of nodes.
        (Value::String(_), Value::Array(_)) => texts(given).map(|all| all.join(",").into()),
        (Value::Number(_), given) => number(given).filter(|read| !read.is_string()),
        (Value::Bool(_), given) => truth(given).map(Value::Bool),
        (Value::Array(_), given) => texts(given).map(Value::from),
        _ => None,
    }
    .ok_or_else(|| {
        let wanted = match empty {
            Value::String(_) => "a text",
            Value::Number(_) => "a number",
            Value::Bool(_) => "true or false",
            Value::Array(_) => "a list of texts",
            _ => "known here",
        };
        wrong(place, given, wanted)
    })
}

/// Reads a list of texts: as a list, as a text with commas, or as an object (`{"A": "1"}` is `A=1`).
fn texts(given: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    match given {
        Value::Array(list) => list.iter().map(text).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| Some(format!("{key}={}", text(value)?))).collect(),
        Value::String(list) => Some(list.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()),
        _ => None,
    }
}

/// Returns the text of the field `name`. None: not set.
pub(super) fn text<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.get(name).and_then(Value::as_str)
}

/// Returns the texts in the list of the field `name`. None: not set.
pub(super) fn list(body: &Value, name: &str) -> Option<Vec<String>> {
    let all = body.get(name)?.as_array()?;
    Some(all.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Returns the number of the field `name` if it is in the range of `T`. None: not set.
pub(super) fn integer<T: TryFrom<i64>>(body: &Value, name: &str, place: &str) -> Result<Option<T>, Problem> {
    let Some(value) = body.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    // Programs with reals only write whole numbers as `4.0`.
    let whole = |real: &f64| real.fract() == 0.0 && real.abs() < 2_f64.powi(53);
    let number = value.as_i64().or_else(|| value.as_f64().filter(whole).map(|real| real as i64));
    match number.map(T::try_from) {
        Some(Ok(number)) => Ok(Some(number)),
        _ => Err(wrong(&path(place, name), value, "a whole number in its range")),
    }
}

/// Returns the time of the field `name`: seconds since the Unix epoch, or a text as on a command line. None: not set, or
/// 0.
pub(super) fn time(body: &Value, name: &str, place: &str) -> Result<Option<Time>, Problem> {
    if let Some(text) = text(body, name).filter(|text| *text != ENDLESS) {
        let wrong = || Problem::malformed(path(place, name), format!("{text}: {REMEDY}"));
        return when_here(text).map(Some).ok_or_else(wrong);
    }
    let seconds: Option<u32> = integer(body, name, place)?;
    Ok(seconds.filter(|seconds| *seconds > 0).map(|seconds| Time::from_secs(u64::from(seconds))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{read, shape};

    fn job(given: &Value) -> Result<(Value, usize), String> {
        let mut warnings = Vec::new();
        let read = read(shape("job_desc_msg"), given, "job", &mut warnings);
        read.map(|value| (value, warnings.len()))
            .map_err(|problem| format!("{}: {}", problem.source, problem.description))
    }

    #[test]
    fn values_are_read_in_every_form_that_slurm_reads() {
        for given in
            [json!(60), json!("60"), json!({"set": true, "infinite": false, "number": 60}), json!({"number": 60})]
        {
            assert_eq!(job(&json!({"time_limit": given})), Ok((json!({"time_limit": 60}), 0)));
        }
        let unset = [json!(null), json!(""), json!({"set": false, "number": 3}), json!(4_294_967_294_u32), json!({})];
        for given in unset {
            assert_eq!(job(&json!({"time_limit": given})), Ok((json!({}), 0)));
        }
        for given in [json!({"infinite": true}), json!("UNLIMITED"), json!(u32::MAX)] {
            assert_eq!(job(&json!({"time_limit": given})), Ok((json!({"time_limit": "infinite"}), 0)));
        }
        let environment = json!({"environment": ["A=1", "B=2"]});
        assert_eq!(job(&json!({"environment": {"A": 1, "B": "2"}})), Ok((environment.clone(), 0)));
        assert_eq!(job(&json!({"environment": "A=1,B=2"})), Ok((environment, 0)));
        assert_eq!(job(&json!({"name": 7, "hold": "yes"})), Ok((json!({"name": "7", "hold": true}), 0)));
        assert_eq!(job(&json!({"nosuch": 7})), Ok((json!({}), 1)));
        assert_eq!(job(&json!({"memory_per_node": "4G"})), Ok((json!({"memory_per_node": 4096}), 0)));
    }

    #[test]
    fn wrong_types_are_named() {
        assert_eq!(job(&json!({"tasks": "many"})), Err("job.tasks: \"many\" is not a number".into()));
        assert_eq!(job(&json!({"crontab": {"line": 3}})), Err("job.crontab.line: 3 is not an object".into()));
        assert_eq!(job(&json!([])), Err("job: [] is not an object".into()));
    }
}
