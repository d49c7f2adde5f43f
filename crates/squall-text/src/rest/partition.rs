//! The body of `partitions`: creates partitions, or changes them as `scontrol update` does. Every field is taken, named
//! in a warning, or refused.

use std::collections::BTreeSet;

use jiff::Zoned;
use serde_json::Value;
use squall_model::config::PartitionConfig;
use squall_model::gang::OverSubscribe;
use squall_model::hostlist;
use squall_model::wire::client::Request;

use super::body::{self, ENDLESS, Parsed, warn};
use crate::shapes::problem::path;
use crate::shapes::{Problem, Warning};
use crate::verbs::partition::KEYS;

/// A partition as a body describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionOrder {
    /// Its name.
    pub name: String,
    /// Settings: scontrol's name of the key, the value, and the field that has it.
    settings: Vec<(&'static str, String, String)>,
}

/// What becomes of a field.
enum Take {
    /// Its value is that of this key of scontrol.
    Key(&'static str),
    /// This function reads it.
    Own(fn(&mut PartitionOrder, &Value, &str) -> Result<(), Problem>),
    /// It is read together with another field.
    With,
    /// It has no effect, for this reason.
    Without(&'static str),
    /// It is of a feature that partitions don't have: values other than these are refused.
    Only(&'static [&'static str]),
}

use Take::{Only, Own, With, Without};

const FOLLOWS: &str = "It follows from other fields, and has no effect";
const FILE: &str = "It changes in squall.toml only, and has no effect here";

/// Fields of a partition. The order is that in which they are applied.
const FIELDS: &[(&str, Take)] = &[
    ("name", With),
    ("nodes.configured", With),
    ("node_sets", With),
    ("nodes.allowed_allocation", Take::Key("AllocNodes")),
    ("nodes.total", Without(FOLLOWS)),
    ("accounts.allowed", Take::Key("AllowAccounts")),
    ("accounts.deny", Take::Key("DenyAccounts")),
    ("groups.allowed", Take::Key("AllowGroups")),
    ("qos.allowed", Take::Key("AllowQos")),
    ("qos.deny", Take::Key("DenyQos")),
    ("qos.assigned", Take::Key("QoS")),
    ("alternate", Take::Key("Alternate")),
    ("tres.billing_weights", Take::Key("TRESBillingWeights")),
    ("tres.configured", Without(FOLLOWS)),
    ("cluster", Without(FOLLOWS)),
    ("select_type", Without(FOLLOWS)),
    ("cpus.task_binding", Only(&["CPU_BIND_OFF"])),
    ("cpus.total", Without(FOLLOWS)),
    ("defaults.memory_per_cpu", Without("Use partition_memory_per_cpu")),
    ("defaults.partition_memory_per_cpu", Take::Key("DefMemPerCPU")),
    ("defaults.partition_memory_per_node", Take::Key("DefMemPerNode")),
    ("defaults.time", Take::Key("DefaultTime")),
    ("defaults.job", Take::Key("JobDefaults")),
    ("flags", Own(flags)),
    ("grace_time", Take::Key("GraceTime")),
    ("maximums.cpus_per_node", Take::Key("MaxCPUsPerNode")),
    ("maximums.cpus_per_socket", Take::Key("MaxCPUsPerSocket")),
    ("maximums.memory_per_cpu", Without("Use partition_memory_per_cpu")),
    ("maximums.partition_memory_per_cpu", Take::Key("MaxMemPerCPU")),
    ("maximums.partition_memory_per_node", Take::Key("MaxMemPerNode")),
    ("maximums.nodes", Take::Key("MaxNodes")),
    ("maximums.shares", Without("Use partition.oversubscribe")),
    ("maximums.oversubscribe.jobs", Without("Use partition.oversubscribe")),
    ("maximums.oversubscribe.flags", Without("Use partition.oversubscribe")),
    ("maximums.time", Take::Key("MaxTime")),
    ("maximums.over_time_limit", Take::Key("OverTimeLimit")),
    ("minimums.nodes", Take::Key("MinNodes")),
    ("partition.oversubscribe", Take::Key("OverSubscribe")),
    ("partition.exclusive", Own(exclusive)),
    ("partition.state", Take::Key("State")),
    ("preempt_mode", Own(preempt_mode)),
    ("priority.job_factor", Take::Key("PriorityJobFactor")),
    ("priority.tier", Take::Key("PriorityTier")),
    ("timeouts.resume", Without(FILE)),
    ("timeouts.suspend", Without(FILE)),
    ("suspend_time", Without(FILE)),
    ("topology", Only(&["default"])),
];

/// Most partitions in a body.
const PARTITIONS_MAX: usize = 256;

/// Returns the partitions that the body describes, in a cluster of `cluster` nodes.
pub fn partitions(given: &Value, cluster: usize) -> Result<Parsed<Vec<PartitionOrder>>, Problem> {
    if !given.is_object() {
        return Err(Problem::malformed("", "The body is not an object"));
    }
    let mut warnings = Vec::new();
    let body = body::read(body::shape("openapi_partitions_mod_req"), given, "", &mut warnings)?;
    let Some(all) = body.get("partitions").and_then(Value::as_array).filter(|all| !all.is_empty()) else {
        return Err(Problem::malformed("partitions", "It is missing, or empty"));
    };
    if all.len() > PARTITIONS_MAX {
        return Err(Problem::malformed("partitions", format!("At most {PARTITIONS_MAX} are taken at once")));
    }
    let mut orders = Vec::new();
    for (at, one) in all.iter().enumerate() {
        orders.push(PartitionOrder::read(one, &format!("partitions[{at}]"), cluster, &mut warnings)?);
    }
    Ok(Parsed { value: orders, warnings })
}

impl PartitionOrder {
    /// Reads the description of a partition.
    fn read(one: &Value, place: &str, cluster: usize, warnings: &mut Vec<Warning>) -> Result<Self, Problem> {
        let name = body::text(one, "name").unwrap_or_default();
        if name.is_empty() {
            return Err(Problem::malformed(path(place, "name"), "A partition needs a name"));
        }
        let mut order = Self { name: name.to_owned(), settings: Vec::new() };
        nodes(&mut order, one, (place, cluster))?;
        for (field, take) in FIELDS {
            let given = field.split('.').try_fold(one, |at, part| at.get(part));
            let Some(value) = given.filter(|value| is_given(value)) else { continue };
            let here = path(place, field);
            match take {
                Take::Key(key) => order.settings.push((*key, word(value), here)),
                Own(read) => read(&mut order, value, &here)?,
                Without(why) if value.as_f64() != Some(0.0) => warn(warnings, &here, *why),
                With | Without(_) => {}
                Only(values) if values.iter().any(|known| known.eq_ignore_ascii_case(&word(value))) => {}
                Only(_) => return Err(Problem::not_done(here, "Partitions have no such setting: leave it out")),
            }
        }
        Ok(order)
    }

    /// Returns the request that creates the partition, or changes it. `was`: the partition as it is. None: there is none.
    pub fn request(&self, was: Option<&PartitionConfig>) -> Result<Request, Problem> {
        let nodes = PartitionConfig::NO_NODES.to_owned();
        let fresh = || PartitionConfig { name: self.name.clone(), nodes, ..PartitionConfig::default() };
        let mut config = was.cloned().unwrap_or_else(fresh);
        let now = Zoned::now();
        for (name, value, place) in &self.settings {
            if *name == SHARED {
                if config.oversubscribe == OverSubscribe::Exclusive {
                    config.oversubscribe = OverSubscribe::No;
                }
                continue;
            }
            if *name == "Nodes" && is_same(&config.nodes, value) {
                continue;
            }
            let key = KEYS.iter().find(|key| key.name() == *name).expect("each key is in the table: a test looks");
            let wrong = |_| Problem::malformed(place, format!("{value} can't be read"));
            key.read(&mut config, None, value, &now).map_err(wrong)?;
        }
        let (name, was) = (self.name.clone(), was.cloned());
        if self.settings.iter().all(|(key, ..)| *key == "State") && was.is_some() {
            // A new state is the only change that a cluster divided into cells accepts.
            return Ok(Request::UpdatePartition { name, state: config.state });
        }
        Ok(Request::ChangePartition { name, was: was.map(Box::new), now: Some(Box::new(config)) })
    }
}

/// Returns whether a value says something. An empty text or list changes nothing: `ALL` empties a list.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}

/// Returns a value as scontrol takes it.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) if text == ENDLESS => "UNLIMITED".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(each) => each.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Reads the nodes of a partition: those that are named, and sets of nodes. As in Slurm, the set `ALL` counts for
/// nothing.
fn nodes(order: &mut PartitionOrder, partition: &Value, (place, cluster): (&str, usize)) -> Result<(), Problem> {
    let text = |at: &str| partition.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (named, sets) = (text("/nodes/configured"), text("/node_sets"));
    let expand = |list: &str, field: &str| {
        let wrong = |e| Problem::malformed(path(place, field), format!("{e}"));
        hostlist::expand_within(list, cluster).map_err(wrong)
    };
    let mut all = expand(named, "nodes.configured")?;
    if !sets.eq_ignore_ascii_case("ALL") {
        let known: BTreeSet<String> = all.iter().cloned().collect();
        all.extend(expand(sets, "node_sets")?.into_iter().filter(|name| !known.contains(name)));
    }
    if !all.is_empty() {
        order.settings.push(("Nodes", hostlist::compress(all), path(place, "nodes.configured")));
    }
    Ok(())
}

fn flags(order: &mut PartitionOrder, value: &Value, place: &str) -> Result<(), Problem> {
    const KNOWN: [(&str, &str); 7] = [
        ("DEFAULT", "Default"),
        ("NO_ROOT", "DisableRootJobs"),
        ("ROOT_ONLY", "RootOnly"),
        ("REQ_RESV", "ReqResv"),
        ("LLN", "LLN"),
        ("HIDDEN", "Hidden"),
        ("PDOI", "PowerDownOnIdle"),
    ];
    for flag in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (name, on) = flag.strip_suffix("_CLEAR").map_or((flag, "YES"), |name| (name, "NO"));
        match (KNOWN.iter().find(|(known, _)| *known == name), flag) {
            (Some((_, key)), _) => order.settings.push((*key, on.to_owned(), place.to_owned())),
            _ => return Err(Problem::malformed(place, format!("{flag}: there is no such flag"))),
        }
    }
    Ok(())
}

/// Reads which other jobs may have the nodes of a job. It comes after `OverSubscribe`, which whole nodes exclude.
fn exclusive(order: &mut PartitionOrder, value: &Value, place: &str) -> Result<(), Problem> {
    let mut set = |key, value: &str| order.settings.push((key, value.to_owned(), place.to_owned()));
    match value.as_str().unwrap_or_default().to_ascii_uppercase().as_str() {
        "NO" => {
            set("ExclusiveUser", "NO");
            set("ExclusiveTopo", "NO");
            set(SHARED, "NO");
        }
        "USER" => {
            set("ExclusiveUser", "YES");
            set("ExclusiveTopo", "NO");
            set(SHARED, "NO");
        }
        "TOPO" => {
            set("ExclusiveUser", "NO");
            set("ExclusiveTopo", "YES");
            set(SHARED, "NO");
        }
        "NODE" => set("OverSubscribe", "EXCLUSIVE"),
        other => return Err(Problem::malformed(place, format!("{other}: use NO, NODE, USER or TOPO"))),
    }
    Ok(())
}

/// A key of our own: a partition that gives whole nodes does so no more.
const SHARED: &str = "Shared";

fn preempt_mode(order: &mut PartitionOrder, value: &Value, place: &str) -> Result<(), Problem> {
    for mode in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mode = match mode {
            "CLUSTER_GLOBAL" | "GANG" => continue,
            "DISABLED" => "OFF",
            "PRIORITY" => return Err(Problem::not_done(place, "PRIORITY: only partitions and QOS decide it")),
            mode => mode,
        };
        order.settings.push(("PreemptMode", mode.to_owned(), place.to_owned()));
    }
    Ok(())
}

/// Returns whether two lists have the same nodes.
fn is_same(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let sorted = |list| {
        let mut names = hostlist::expand(list).unwrap_or_default();
        names.sort_unstable();
        names
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use squall_model::billing::BillingWeights;
    use squall_model::config::{PartitionConfig, PartitionState};
    use squall_model::gang::OverSubscribe;
    use squall_model::policy::PreemptMode;
    use squall_model::wire::client::Request;
    use squall_model::wire::info::PartitionInfo;

    use super::super::body;
    use super::{FIELDS, Take, is_same, partitions};
    use crate::shapes::table::Shape;
    use crate::shapes::{AnswerKind, Version, partition, record};
    use crate::verbs::partition::KEYS;

    fn leaves(shape: &Shape, place: &str, found: &mut Vec<String>) {
        match shape {
            Shape::Object(fields) => {
                for (name, shape) in fields {
                    leaves(shape, &if place.is_empty() { name.clone() } else { format!("{place}.{name}") }, found);
                }
            }
            _ => found.push(place.to_owned()),
        }
    }

    #[test]
    fn each_field_of_a_partition_is_known() {
        let Shape::Object(fields) = body::shape("openapi_partitions_mod_req") else { panic!("no object") };
        let Some((_, Shape::List(each))) = fields.first() else { panic!("no list") };
        let mut all = Vec::new();
        leaves(each, "", &mut all);
        let mut known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        all.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, all);
        for (_, take) in FIELDS {
            if let Take::Key(name) = take {
                assert!(KEYS.iter().any(|key| key.name() == *name), "{name}");
            }
        }
    }

    fn changed(was: Option<&PartitionConfig>, given: &Value) -> PartitionConfig {
        let order = partitions(&json!({"partitions": [given]}), 9).unwrap().value.remove(0);
        match order.request(was).unwrap() {
            Request::ChangePartition { now: Some(now), was: before, .. } => {
                assert_eq!(before.as_deref(), was);
                *now
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn partitions_are_created_and_changed() {
        let given = json!({
            "name": "p", "nodes": {"configured": "n[1-2]"}, "node_sets": "m1", "maximums": {"time": 60},
            "flags": ["LLN", "HIDDEN_CLEAR"], "partition": {"state": ["DRAIN"], "oversubscribe": "FORCE:2"},
            "preempt_mode": ["SUSPEND", "GANG"], "accounts": {"allowed": "a,b", "deny": ""},
        });
        let made = changed(None, &given);
        assert_eq!((made.name.as_str(), made.max_time_s, made.lln), ("p", Some(3600), true));
        assert!(is_same(&made.nodes, "m1,n[1-2]") && made.state == PartitionState::Drain, "{made:?}");
        assert_eq!((made.oversubscribe, made.preempt_mode), (OverSubscribe::Force(2), Some(PreemptMode::Suspend)));
        assert_eq!(made.allow_accounts, ["a", "b"]);
        let whole = changed(Some(&made), &json!({"name": "p", "partition": {"exclusive": "NODE"}}));
        assert_eq!(whole, PartitionConfig { oversubscribe: OverSubscribe::Exclusive, ..made.clone() });
        let open = changed(
            Some(&whole),
            &json!({"name": "p", "partition": {"exclusive": "NO"}, "accounts": {"allowed": "ALL"}}),
        );
        assert_eq!((open.oversubscribe, open.allow_accounts.len()), (OverSubscribe::No, 0));
        let order = partitions(&json!({"partitions": [{"name": "p", "partition": {"state": ["UP"]}}]}), 9).unwrap();
        assert!(matches!(order.value[0].request(Some(&made)), Ok(Request::UpdatePartition { .. })));
    }

    #[test]
    fn a_partition_is_taken_as_it_is_shown() {
        let config = PartitionConfig {
            name: "p".into(),
            nodes: "n[1-2]".into(),
            max_time_s: Some(7200),
            def_mem_per_cpu_mb: 100,
            max_mem_per_node_mb: 4000,
            max_nodes: Some(2),
            oversubscribe: OverSubscribe::Yes(3),
            preempt_mode: Some(PreemptMode::Requeue),
            default: true,
            deny_qos: vec!["q".into()],
            tres_billing_weights: BillingWeights::try_from("CPU=1.0,Mem=0.25G".to_owned()).unwrap(),
            ..PartitionConfig::default()
        };
        for (exclusive_user, exclusive_topo) in [(false, false), (true, false), (false, true)] {
            let config = PartitionConfig { exclusive_user, exclusive_topo, ..config.clone() };
            let info = PartitionInfo {
                config: config.clone(),
                preempt_mode: PreemptMode::Requeue,
                nodes: "n[1-2]".into(),
                num_nodes: 2,
                num_cpus: 4,
                billing: None,
            };
            let shown = record(Version::NEWEST, AnswerKind::Partitions, partition::partition(&info, "c"));
            let shown: Value = serde_json::from_slice(&shown).unwrap();
            assert_eq!(changed(Some(&config), &shown), config);
        }
    }

    #[test]
    fn what_a_partition_does_not_have_is_refused() {
        let refused = |given: Value| {
            let problem = partitions(&json!({"partitions": [given]}), 9).unwrap_err();
            (problem.status, problem.source)
        };
        let of = |field: &str| format!("partitions[0].{field}");
        assert_eq!(refused(json!({"name": "p", "partition": {"exclusive": "MCS"}})), (400, of("partition.exclusive")));
        assert_eq!(refused(json!({"maximums": {}})), (400, of("name")));
        let order =
            partitions(&json!({"partitions": [{"name": "p", "maximums": {"over_time_limit": 70000}}]}), 9).unwrap();
        assert_eq!(order.value[0].request(None).unwrap_err().source, of("maximums.over_time_limit"));
    }
}
