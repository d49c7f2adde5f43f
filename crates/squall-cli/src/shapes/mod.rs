//! JSON and YAML of commands (`--json`, `--yaml`), with the fields of Slurm's data_parser/v0.0.41.

pub(crate) mod accounting;
pub(crate) mod diag;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod license;
pub(crate) mod node;
pub(crate) mod partition;
pub(crate) mod policy;
pub(crate) mod reservation;
pub(crate) mod shares;
pub(crate) mod step;
pub(crate) mod table;
mod yaml;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use squall_model::job::ExitCode;
use squall_model::time::Time;

use crate::command::listing::arguments::Arguments;
use crate::command::listing::call::{Call, Fail};
use crate::format::words;
use crate::options::values::signal::signal_name;
use table::Shape;

/// The only version of Slurm's data parser that is supported.
const PARSER: &str = "data_parser/v0.0.41";

/// Output format of structured answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// JSON, chosen by `--json`.
    Json,
    /// YAML, chosen by `--yaml`.
    Yaml,
}

/// Kind of a structured answer, which determines its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    #[cfg(test)]
    const ALL: [Self; 18] = [
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

/// Returns the format chosen by `--json` or `--yaml`. None: neither is given. Refuses other versions of the data
/// parser.
pub(crate) fn dialect(call: &mut Call<'_>, given: &Arguments) -> Result<Option<Dialect>, Fail> {
    let name = if given.has("json") { "json" } else { "yaml" };
    if !given.has(name) {
        return Ok(None);
    }
    match given.last(name) {
        None | Some("") => {}
        Some("list") => {
            call.say("Possible data_parser plugins:");
            call.print(&format!("{PARSER}\n"));
            return Err(Fail(0));
        }
        Some(wanted) => {
            let known = wanted.split('+').next().unwrap_or_default();
            if known.strip_prefix("data_parser/").unwrap_or(known) != "v0.0.41" {
                call.complain(&format!("load_plugins: unable to find plugin: data_parser/{known}"));
                return call.fail(&format!("--{name}={wanted}: there is {PARSER} alone (--{name}=list)"));
            }
        }
    }
    Ok(Some(if name == "json" { Dialect::Json } else { Dialect::Yaml }))
}

/// Returns the text of a command's answer: `body`, preceded by meta data such as the cluster and the command.
pub(crate) fn document(
    call: &Call<'_>,
    dialect: Dialect,
    cluster: &str,
    command: &[&str],
    kind: Kind,
    body: Vec<(&str, Value)>,
) -> String {
    let all = answer(call, cluster, command, kind, body);
    match dialect {
        Dialect::Json => {
            let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
            text.push('\n');
            text
        }
        Dialect::Yaml => yaml::yaml(&all),
    }
}

fn answer(call: &Call<'_>, cluster: &str, command: &[&str], kind: Kind, body: Vec<(&str, Value)>) -> Value {
    let mut all = serde_json::Map::new();
    all.insert("meta".into(), meta(call, cluster, command));
    let dated = [Kind::Jobs, Kind::Nodes, Kind::Partitions, Kind::Reservations, Kind::Licenses, Kind::Steps];
    if dated.contains(&kind) {
        all.insert("last_update".into(), time(Some(call.now)));
    }
    all.extend(body.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Shape::of(kind).fill(Some(Value::Object(all)))
}

fn meta(call: &Call<'_>, cluster: &str, command: &[&str]) -> Value {
    let (major, minor, micro) = words::SLURM_VERSION;
    let me = call.people.me();
    json!({
        "plugin": {"data_parser": PARSER, "accounting_storage": "accounting_storage/slurmdbd"},
        "client": {"user": call.people.user(me), "group": call.people.group(me)},
        "command": command,
        "slurm": {
            "version": {"major": major.to_string(), "minor": format!("{minor:02}"), "micro": micro.to_string()},
            "release": words::slurm_version(),
            "cluster": cluster,
        },
    })
}

/// Returns an object with the fields of all `parts`; of equal names the last value counts.
pub(crate) fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// Returns Slurm's JSON of a number, an object with `set`, `infinite` and `number`. None: not set.
pub(crate) fn number(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": false, "number": value.unwrap_or(0)})
}

/// Returns Slurm's JSON of a number, an object with `set`, `infinite` and `number`. None: infinite.
pub(crate) fn or_infinite(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": value.is_none(), "number": value.unwrap_or(0)})
}

/// Returns Slurm's JSON of a time, in seconds since the Unix epoch. None: 0.
pub(crate) fn time(value: Option<Time>) -> Value {
    json!({"set": true, "infinite": false, "number": value.map_or(0, Time::secs)})
}

/// Returns Slurm's JSON of an exit code.
pub(crate) fn exit(code: ExitCode) -> Value {
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
