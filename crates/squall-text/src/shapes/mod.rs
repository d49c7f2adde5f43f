//! JSON and YAML of commands (`--json`, `--yaml`) and of the REST interface, with the fields of Slurm's data parser in
//! several versions.
//!
//! The functions of the modules below return a record with the fields of all versions; what is empty may be left out.
//! The tables of fields choose which of these a version has.

pub mod accounting;
pub mod conf;
pub mod diag;
pub mod event;
pub mod group;
pub mod job;
pub mod kind;
pub mod license;
pub mod node;
pub mod partition;
pub mod policy;
pub mod problem;
pub mod reservation;
pub mod resources;
pub mod shares;
pub mod step;
pub mod table;
#[cfg(test)]
mod tests;
pub mod version;
mod yaml;

pub use kind::AnswerKind;
pub use problem::{Notes, Problem, Warning};
pub use version::Version;

use serde_json::{Map, Value, json};
use squall_model::job::ExitCode;
use squall_model::time::Time;

use crate::format::words;
use crate::options::values::signal::signal_name;
use table::Shape;

/// Form of a command's structured answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Output format.
    pub notation: Notation,
    /// Version of the data parser, which determines the fields.
    pub version: Version,
}

/// Output format of structured answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// JSON, chosen by `--json`.
    Json,
    /// YAML, chosen by `--yaml`.
    Yaml,
}

/// Facts about an answer that Slurm puts into `meta` and `last_update`.
#[derive(Clone, Debug)]
pub struct Meta<'a> {
    /// Version of the data parser.
    pub version: Version,
    /// The cluster's name.
    pub cluster: &'a str,
    /// Words of the command that is answered, such as `["show", "job"]`. Empty: an answer over HTTP.
    pub command: &'a [&'a str],
    /// Address of the client. Empty: an answer of a command.
    pub source: &'a str,
    /// Name of the user who asks.
    pub user: String,
    /// Name of that user's primary group.
    pub group: String,
    /// Time of the answer.
    pub now: Time,
}

/// Returns the text of a command's answer: `body` with the fields of its kind, preceded by `meta`, with `notes`.
pub fn document(
    notation: Notation,
    meta: &Meta<'_>,
    kind: AnswerKind,
    body: Vec<(&str, Value)>,
    notes: &Notes,
) -> String {
    let all = answer(meta, kind, body, notes);
    let shape = Shape::of(meta.version, kind);
    match notation {
        Notation::Json => {
            let mut text = serde_json::to_string_pretty(&shape.around(Some(&all))).unwrap_or_default();
            text.push('\n');
            text
        }
        Notation::Yaml => yaml::yaml(&shape.fill(&all)),
    }
}

/// Returns the JSON of an answer: `body` with the fields of its kind, `meta`, errors and warnings.
pub fn bytes(meta: &Meta<'_>, kind: AnswerKind, body: Vec<(&str, Value)>, notes: &Notes) -> Vec<u8> {
    let all = answer(meta, kind, body, notes);
    serde_json::to_vec(&Shape::of(meta.version, kind).around(Some(&all))).unwrap_or_default()
}

/// Returns the JSON of one record, such as a job, with the fields of its kind. [`around`] makes an answer of records.
pub fn record(version: Version, kind: AnswerKind, mut value: Value) -> Vec<u8> {
    version.recast(kind, &mut value);
    let shape = Shape::of_record(version, kind).unwrap_or_else(|| Shape::of(version, kind));
    let mut out = Vec::with_capacity(RECORD_BYTES);
    // Writing into memory can't fail, and all keys are texts.
    let _ = serde_json::to_writer(&mut out, &shape.around(Some(&value)));
    out
}

/// Usual size of a record: a job has about 5,000 bytes.
const RECORD_BYTES: usize = 6000;

/// Returns the JSON before and after the records of an answer. The records are separated by commas.
pub fn around(meta: &Meta<'_>, kind: AnswerKind, rest: Vec<(&str, Value)>, notes: &Notes) -> (Vec<u8>, Vec<u8>) {
    let mut whole = bytes(meta, kind, rest, notes);
    // Within texts, quotes are preceded by backslashes, so only the list itself can look like this.
    let empty = format!("\"{}\":[]", kind.list());
    let at = whole.windows(empty.len()).position(|part| part == empty.as_bytes());
    let tail = whole.split_off(at.map_or(whole.len(), |at| at + empty.len() - 1));
    (whole, tail)
}

fn answer(meta: &Meta<'_>, kind: AnswerKind, body: Vec<(&str, Value)>, notes: &Notes) -> Value {
    let mut all = Map::new();
    all.insert("meta".into(), meta.json());
    all.insert("errors".into(), notes.errors.iter().map(Problem::json).collect());
    all.insert("warnings".into(), notes.warnings.iter().map(Warning::json).collect());
    if kind.is_dated() {
        all.insert("last_update".into(), time(Some(meta.now)));
    }
    all.extend(body.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let own = [kind];
    // This answer has records of several kinds.
    for kind in if kind == AnswerKind::Config { AnswerKind::records(meta.version) } else { &own[..] } {
        let records = all.get_mut(kind.list()).and_then(Value::as_array_mut);
        records.into_iter().flatten().for_each(|record| meta.version.recast(*kind, record));
    }
    Value::Object(all)
}

impl Meta<'_> {
    fn json(&self) -> Value {
        let (major, minor, micro) = words::version_of(words::release());
        json!({
            "plugin": {
                "type": if self.command.is_empty() { "openapi/slurmctld" } else { "" },
                "name": if self.command.is_empty() { "Slurm OpenAPI slurmctld" } else { "" },
                "data_parser": self.version.parser(),
                "accounting_storage": "accounting_storage/slurmdbd",
            },
            "client": {"source": self.source, "user": self.user, "group": self.group},
            "command": self.command,
            "slurm": {
                "version": {"major": major.to_string(), "minor": format!("{minor:02}"), "micro": micro.to_string()},
                "release": words::slurm_version(),
                "cluster": self.cluster,
            },
        })
    }
}

/// Returns an object with the fields of all `parts`; of equal names the last value counts.
pub fn joined<const N: usize>(parts: [Value; N]) -> Value {
    let mut all = Map::with_capacity(parts.iter().filter_map(Value::as_object).map(Map::len).sum());
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// Returns a number that the tables of fields give Slurm's form, an object with `set`, `infinite` and `number`. None: not
/// set.
pub fn number(value: Option<u64>) -> Value {
    value.into()
}

/// Returns a number as [`number`] does, where Slurm's type has 32 bits: its clients read that as a signed number, so a
/// larger one is cut to the largest of these.
pub fn narrow(value: Option<u32>) -> Value {
    number(value.map(|value| u64::from(value.min(i32::MAX as u32))))
}

/// Returns a number as [`number`] does. None: infinite.
pub fn or_infinite(value: Option<u64>) -> Value {
    value.map_or_else(|| json!({"set": false, "infinite": true, "number": 0}), Value::from)
}

/// Returns a time as [`number`] does, in seconds since the Unix epoch. None: 0.
pub fn time(value: Option<Time>) -> Value {
    number(Some(value.map_or(0, Time::secs)))
}

/// Returns Slurm's JSON of an exit code.
pub fn exit(code: ExitCode) -> Value {
    let status = if code.signal != 0 {
        "SIGNALED"
    } else if code.code != 0 {
        "ERROR"
    } else {
        "SUCCESS"
    };
    json!({
        "status": [status],
        "return_code": number(Some(u64::from(code.code))),
        "signal": {
            "id": number((code.signal != 0).then_some(u64::from(code.signal))),
            "name": signal_name(i32::from(code.signal)),
        },
    })
}
