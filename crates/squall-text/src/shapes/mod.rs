//! JSON and YAML of commands (`--json`, `--yaml`), with the fields of Slurm's data_parser/v0.0.41.

pub mod accounting;
pub mod diag;
pub mod event;
pub mod group;
pub mod job;
pub mod license;
pub mod node;
pub mod partition;
pub mod policy;
pub mod reservation;
pub mod shares;
pub mod step;
pub mod table;
mod yaml;

use serde_json::{Value, json};
use squall_model::job::ExitCode;
use squall_model::time::Time;

use crate::format::words;
use crate::options::values::signal::signal_name;
use table::Shape;

/// The only version of Slurm's data parser that is supported.
pub const PARSER: &str = "data_parser/v0.0.41";

/// Output format of structured answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// JSON, chosen by `--json`.
    Json,
    /// YAML, chosen by `--yaml`.
    Yaml,
}

/// Kind of a structured answer, which determines its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Jobs as the controller knows them (`squeue`, `scontrol show job`).
    Jobs,
    /// Nodes (`scontrol show node`).
    Nodes,
    /// Partitions (`scontrol show partition`).
    Partitions,
    /// Reservations (`scontrol show reservation`).
    Reservations,
    /// Licenses (`scontrol show licenses`).
    Licenses,
    /// Fair shares (`sshare`).
    Shares,
    /// Counters of the controller (`sdiag`).
    Diag,
    /// Whether the controller answers (`scontrol ping`).
    Ping,
    /// Running steps (`scontrol show step`).
    Steps,
    /// Groups of similar nodes (`sinfo`).
    Groups,
    /// Jobs and steps in accounting (`sacct`).
    Accounting,
    /// Accounts (`sacctmgr show account`).
    Accounts,
    /// Users (`sacctmgr show user`).
    Users,
    /// Associations (`sacctmgr show association`).
    Associations,
    /// Levels of service (`sacctmgr show qos`).
    Qos,
    /// Clusters (`sacctmgr show cluster`).
    Clusters,
    /// Trackable resources (`sacctmgr show tres`).
    Tres,
    /// Workload keys (`sacctmgr show wckey`).
    Wckeys,
}

impl Kind {
    /// All kinds of answers.
    pub const ALL: [Self; 18] = [
        Self::Jobs,
        Self::Nodes,
        Self::Partitions,
        Self::Reservations,
        Self::Licenses,
        Self::Shares,
        Self::Diag,
        Self::Ping,
        Self::Steps,
        Self::Groups,
        Self::Accounting,
        Self::Accounts,
        Self::Users,
        Self::Associations,
        Self::Qos,
        Self::Clusters,
        Self::Tres,
        Self::Wckeys,
    ];

    /// Returns the name of the section about this kind in the table of fields (`v0.0.41.txt`).
    fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Nodes => "nodes",
            Self::Partitions => "partitions",
            Self::Reservations => "reservations",
            Self::Licenses => "licenses",
            Self::Shares => "shares",
            Self::Diag => "diag",
            Self::Ping => "ping",
            Self::Steps => "steps",
            Self::Groups => "sinfo",
            Self::Accounting => "slurmdb_jobs",
            Self::Accounts => "accounts",
            Self::Users => "users",
            Self::Associations => "associations",
            Self::Qos => "qos",
            Self::Clusters => "clusters",
            Self::Tres => "tres",
            Self::Wckeys => "wckeys",
        }
    }
}

/// Facts about an answer that Slurm puts into `meta` and `last_update`.
#[derive(Clone, Debug)]
pub struct Meta<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// Words of the command that is answered, such as `["show", "job"]`.
    pub command: &'a [&'a str],
    /// Name of the user who asks.
    pub user: String,
    /// Name of that user's primary group.
    pub group: String,
    /// Time of the answer.
    pub now: Time,
}

/// Returns the text of an answer: `body` with the fields of its kind, preceded by `meta`.
pub fn document(dialect: Dialect, meta: &Meta<'_>, kind: Kind, body: Vec<(&str, Value)>) -> String {
    let all = answer(meta, kind, body);
    match dialect {
        Dialect::Json => {
            let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
            text.push('\n');
            text
        }
        Dialect::Yaml => yaml::yaml(&all),
    }
}

fn answer(meta: &Meta<'_>, kind: Kind, body: Vec<(&str, Value)>) -> Value {
    let mut all = serde_json::Map::new();
    all.insert("meta".into(), meta.json());
    let dated = [Kind::Jobs, Kind::Nodes, Kind::Partitions, Kind::Reservations, Kind::Licenses, Kind::Steps];
    if dated.contains(&kind) {
        all.insert("last_update".into(), time(Some(meta.now)));
    }
    all.extend(body.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Shape::of(kind).fill(Some(Value::Object(all)))
}

impl Meta<'_> {
    fn json(&self) -> Value {
        let (major, minor, micro) = words::SLURM_VERSION;
        json!({
            "plugin": {"data_parser": PARSER, "accounting_storage": "accounting_storage/slurmdbd"},
            "client": {"user": self.user, "group": self.group},
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
pub fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// Returns Slurm's JSON of a number, an object with `set`, `infinite` and `number`. None: not set.
pub fn number(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": false, "number": value.unwrap_or(0)})
}

/// Returns Slurm's JSON of a number, an object with `set`, `infinite` and `number`. None: infinite.
pub fn or_infinite(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": value.is_none(), "number": value.unwrap_or(0)})
}

/// Returns Slurm's JSON of a time, in seconds since the Unix epoch. None: 0.
pub fn time(value: Option<Time>) -> Value {
    json!({"set": true, "infinite": false, "number": value.map_or(0, Time::secs)})
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
