//! `--json` and `--yaml`: the shapes that Slurm's data_parser/v0.0.41 gives, for commands and whatever serves them.

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

/// The shapes that are known.
const PARSER: &str = "data_parser/v0.0.41";

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `--json`.
    Json,
    /// `--yaml`.
    Yaml,
}

/// A kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Jobs of the controller.
    Jobs,
    /// Nodes.
    Nodes,
    /// Partitions.
    Partitions,
    /// Reservations.
    Reservations,
    /// Licenses.
    Licenses,
    /// Fair shares.
    Shares,
    /// Counters.
    Diag,
    /// Whether the controller answers.
    Ping,
    /// Steps that run.
    Steps,
    /// Nodes in groups.
    Groups,
    /// Jobs of accounting.
    Accounting,
    /// Accounts.
    Accounts,
    /// Users.
    Users,
    /// Associations.
    Associations,
    /// Levels of service.
    Qos,
    /// Clusters.
    Clusters,
    /// What is accounted.
    Tres,
    /// Workload keys.
    Wckeys,
}

impl Kind {
    /// All of them.
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

    /// Its section of the table.
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

/// `--json` or `--yaml`, with the shapes that are asked for; those of another version are refused.
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

/// An answer of a command about a cluster, in its envelope, as text.
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

/// Objects joined into one.
pub(crate) fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// A number that may be missing.
pub(crate) fn number(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": false, "number": value.unwrap_or(0)})
}

/// A number that may be infinite.
pub(crate) fn or_infinite(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": value.is_none(), "number": value.unwrap_or(0)})
}

/// A time in seconds since the epoch; 0 where there is none.
pub(crate) fn time(value: Option<Time>) -> Value {
    json!({"set": true, "infinite": false, "number": value.map_or(0, Time::secs)})
}

/// An exit code.
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
