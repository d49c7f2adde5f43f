//! JSON of `sacctmgr show ... --json`: accounts, users, associations, levels of service, clusters and trackable
//! resources.

use serde_json::{Value, json};
use squall_model::policy::{Counts, Limit, Policy, PreemptMode, Qos, ROOT, Scope, Tres, Whose};

use crate::columns::records::{CONTROL_PORT, Row, is_timed, tres_id};
use crate::limits::{self, LimitKind};
use crate::shapes::{AnswerKind, narrow, or_infinite};

/// Returns the kind of answer, the key of the list and the list of records for an entity of sacctmgr, such as
/// `account`. None: Slurm has no JSON for this entity.
pub fn records(
    entity: &str,
    rows: &[Row],
    associations: bool,
    policy: &Policy,
) -> Option<(AnswerKind, &'static str, Value)> {
    let each = |record: &dyn Fn(&Row) -> Value| Value::Array(rows.iter().map(record).collect());
    // With `withassoc`, there are several rows for a user or account: one for each association. They become one record.
    let grouped = |record: &dyn Fn(&[Row]) -> Value| {
        Value::Array(rows.chunk_by(|one, next| one.name == next.name).map(record).collect())
    };
    Some(match entity {
        "account" => (AnswerKind::Accounts, "accounts", grouped(&|rows| account(rows, associations))),
        "association" => (AnswerKind::Associations, "associations", each(&|row| association(row, policy))),
        "cluster" => (AnswerKind::Clusters, "clusters", each(&cluster)),
        "qos" => (AnswerKind::Qos, "qos", each(&qos)),
        "tres" => (AnswerKind::Tres, "TRES", each(&|row| resource(&row.name, 0))),
        "user" => (AnswerKind::Users, "users", grouped(&|rows| user(rows, associations))),
        "wckey" => (AnswerKind::Wckeys, "wckeys", json!([])),
        _ => return None,
    })
}

/// Returns the JSON of an amount of a trackable resource, such as `gres/gpu`, with Slurm's id of the resource.
fn resource(full_name: &str, count: u64) -> Value {
    let (kind, name) = full_name.split_once('/').unwrap_or((full_name, ""));
    json!({"type": kind, "name": name, "id": tres_id(full_name).unwrap_or(0), "count": count})
}

/// Returns the limits on trackable resources in a scope: amounts (memory in MiB), or minutes of these.
fn tres(row: &Row, scope: Scope) -> Value {
    let seconds = if is_timed(scope) { 60 } else { 1 };
    let most = |tres: Tres| Some(resource(tres.name(), *row.own.limits.get(&Limit::of(scope, tres))? / seconds));
    Tres::ALL.into_iter().filter_map(most).collect()
}

/// Returns a record with its limits at their places. Times are in minutes.
fn with_limits(mut record: Value, row: &Row, whose: Whose) -> Value {
    for limit in limits::ROWS.iter().filter(|limit| !limit.place(whose).path.is_empty()) {
        let shown = match limit.what {
            LimitKind::Each(scope) => tres(row, scope),
            LimitKind::One(one) => {
                let unit = if one.counts() == Counts::Time { 60 } else { 1 };
                or_infinite(row.own.limits.get(&one).map(|most| most / unit))
            }
        };
        *limit.place(whose).path.split('.').fold(&mut record, |at, field| &mut at[field]) = shown;
    }
    record
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|name| !name.is_empty()).collect()
}

fn association(row: &Row, policy: &Policy) -> Value {
    let mut lineage: Vec<&str> =
        policy.above(&row.account).map(|(name, _)| name).filter(|name| *name != ROOT).collect();
    lineage.reverse();
    let user = format!("0-{}", row.user);
    lineage.extend((!row.user.is_empty()).then_some(user.as_str()));
    let record = json!({
        "accounting": [],
        "account": row.account,
        "cluster": row.cluster,
        "comment": "",
        "default": {"qos": row.own.default_qos},
        "flags": [],
        "id": row.number(),
        "is_default": !row.user.is_empty() && row.account == row.default_account,
        "lineage": format!("/{}/", lineage.join("/")).replace("//", "/"),
        "min": {"priority_threshold": or_infinite(None)},
        "parent_account": row.parent,
        "partition": row.partition,
        "priority": row.own.priority.map_or_else(|| or_infinite(None), |priority| narrow(Some(priority))),
        "qos": list(&row.qos),
        // Slurm's number for `parent`: the shares of the parent account.
        "shares_raw": row.own.shares.unwrap_or(u32::from(u16::MAX)),
        "user": row.user,
    });
    with_limits(record, row, Whose::Association)
}

fn short(row: &Row) -> Value {
    json!({
        "account": row.account, "cluster": row.cluster, "partition": row.partition, "user": row.user, "id": row.number(),
    })
}

/// Returns the associations of the rows in short form; an empty list unless `wanted`.
fn shorts(rows: &[Row], wanted: bool) -> Value {
    Value::Array(rows.iter().filter(|_| wanted).map(short).collect())
}

fn coordinators(row: &Row) -> Value {
    list(&row.coordinators).into_iter().map(|name| json!({"name": name, "direct": true})).collect()
}

fn account(rows: &[Row], associations: bool) -> Value {
    json!({
        "associations": shorts(rows, associations),
        "coordinators": coordinators(&rows[0]),
        "description": rows[0].description,
        "name": rows[0].name,
        "organization": rows[0].organization,
        "flags": [],
    })
}

fn user(rows: &[Row], associations: bool) -> Value {
    json!({
        "administrator_level": [rows[0].admin()],
        "associations": shorts(rows, associations),
        "coordinators": coordinators(&rows[0]),
        "default": {"account": rows[0].default_account, "wckey": ""},
        "flags": ["NONE"],
        "name": rows[0].name,
        "old_name": "",
        "wckeys": [],
    })
}

fn cluster(row: &Row) -> Value {
    json!({
        "controller": {"host": row.host, "port": CONTROL_PORT},
        "flags": [],
        "name": row.name,
        "nodes": "",
        "associations": {
            "root": {"account": ROOT, "cluster": row.cluster, "partition": "", "user": "", "id": 1},
        },
        "rpc_version": 9728,
        "tres": [],
    })
}

/// Returns the name of a QOS flag in Slurm's JSON, which differs from the one in sacctmgr.
fn flag(flag: &str) -> String {
    let known = FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(flag));
    known.map_or_else(|| flag.to_uppercase(), |(_, name)| (*name).to_owned())
}

/// QOS flags as sacctmgr spells them, and in Slurm's JSON.
pub(crate) const FLAGS: &[(&str, &str)] = &[
    ("DenyOnLimit", "DENY_LIMIT"),
    ("EnforceUsageThreshold", "ENFORCE_USAGE_THRESHOLD"),
    ("NoDecay", "NO_DECAY"),
    ("NoReserve", "NO_RESERVE"),
    ("OverPartQOS", "OVERRIDE_PARTITION_QOS"),
    ("PartitionMaxNodes", "PARTITION_MAXIMUM_NODE"),
    ("PartitionMinNodes", "PARTITION_MINIMUM_NODE"),
    ("PartitionTimeLimit", "PARTITION_TIME_LIMIT"),
    ("RequiresReservation", "REQUIRED_RESERVATION"),
    ("UsageFactorSafe", "USAGE_FACTOR_SAFE"),
];

fn qos(row: &Row) -> Value {
    let Qos {
        description,
        priority,
        preempt,
        preempt_mode,
        grace_s,
        exempt_s,
        usage_factor,
        flags,
        usage_threshold,
        ..
    } = &row.level;
    let mode = match preempt_mode {
        None | Some(PreemptMode::Off) => "DISABLED",
        Some(PreemptMode::Cancel) => "CANCEL",
        Some(PreemptMode::Requeue) => "REQUEUE",
        Some(PreemptMode::Suspend) => "SUSPEND",
        Some(PreemptMode::Checkpoint) => "CHECKPOINT",
    };
    let record = json!({
        "description": description,
        "flags": flags.iter().map(|name| flag(name)).collect::<Vec<_>>(),
        "id": row.number(),
        "limits": {"grace_time": grace_s},
        "name": row.name,
        "preempt": {"list": preempt, "mode": [mode], "exempt_time": or_infinite(*exempt_s)},
        "priority": narrow(Some(*priority)),
        "usage_factor": *usage_factor as f64 / 1e6,
        "usage_threshold": usage_threshold.map_or_else(|| or_infinite(None), |least| (least as f64 / 1e6).into()),
    });
    with_limits(record, row, Whose::Qos)
}
