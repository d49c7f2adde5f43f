//! Each key of a verb is set by scontrol's syntax and by its field of a REST body, to the same.

use std::fmt::Debug;

use jiff::Zoned;
use serde_json::{Value, json};
use squall_model::event::NodeAdmin;
use squall_model::gang::OverSubscribe;
use squall_model::wire::client::{JobUpdate, Request};
use squall_model::wire::reservation::ListChange;

use super::job::{LimitChange, time_limit};
use super::key::{Bad, Key};
use super::{job, node, partition, reservation};
use crate::rest::change;
use crate::shapes::Problem;

/// Sets a key by its name and a text.
fn typed<U: Default>(keys: &'static [Key<U>], name: &str, value: &str) -> U {
    let mut update = U::default();
    let key = Key::find(keys, name).unwrap_or_else(|| panic!("{name} is no key"));
    key.read(&mut update, None, value, &Zoned::now()).unwrap_or_else(|bad| panic!("{name}={value}: {bad:?}"));
    update
}

/// Checks that each name of a key, and each abbreviation of it, means this key.
fn names_are_found<U: Debug>(keys: &'static [Key<U>]) {
    for key in keys {
        for (name, least) in key.names {
            for word in [name, &name[..*least]] {
                let found = Key::find(keys, word).map(Key::name);
                assert_eq!(found, Some(key.name()), "{word}");
            }
        }
    }
}

/// Checks that each sample sets something of its own, and that its field does the same as its first name. Keys without a
/// field have no value for one.
fn fields_do_as_names<U: Clone + Debug + Default + PartialEq>(
    keys: &'static [Key<U>],
    samples: &[(&str, &str, Value)],
    body: impl Fn(&Value) -> Result<U, Problem>,
) {
    let mut seen = Vec::new();
    assert_eq!(keys.len(), samples.len(), "a sample for each key, in their order");
    for (key, (name, text, value)) in keys.iter().zip(samples) {
        assert_eq!((key.name(), key.field.is_empty()), (*name, value.is_null()));
        let update = typed(keys, name, text);
        assert!(update != U::default() && !seen.contains(&update), "{name} sets nothing of its own");
        if !key.field.is_empty() {
            let given = json!({key.field: value});
            let read = body(&given).unwrap_or_else(|problem| panic!("{given}: {problem:?}"));
            assert_eq!(read, update, "{name}={text}, {given}");
        }
        seen.push(update);
    }
}

#[test]
fn keys_of_jobs() {
    let samples = [
        ("TimeLimit", "1:30:00", json!(90)),
        ("JobName", "x", json!("x")),
        ("Priority", "7", json!({"set": true, "number": 7})),
        ("Nice", "-7", json!(-7)),
        ("ArrayTaskThrottle", "2", Value::Null),
        ("NumTasks", "8", json!(8)),
        ("CPUsPerTask", "2", json!(2)),
        ("Requeue", "0", json!(false)),
        ("DelayBoot", "2", json!(120)),
        ("Reboot", "YES", json!(true)),
        ("Contiguous", "y", json!(true)),
        ("OverSubscribe", "no", json!(false)),
        ("MinCPUsNode", "3", json!(3)),
        ("MinTmpDiskNode", "1G", json!(1024)),
        ("TasksPerNode", "4", json!(4)),
        ("MinMemoryCPU", "512", json!("512M")),
        ("MinMemoryNode", "2G", json!(2048)),
        ("Comment", "x", json!("x")),
        ("Partition", "p", json!("p")),
        ("QOS", "q", json!("q")),
        ("Account", "a", json!("a")),
        ("ExcNodeList", "n1,n2", json!(["n1", "n2"])),
        ("NodeList", "n3", json!(["n3"])),
        ("Features", "big", json!("big")),
        ("StdErr", "err", json!("err")),
        ("StdOut", "out", json!("out")),
        ("WorkDir", "/tmp", json!("/tmp")),
        ("WCKey", "key", json!("key")),
        ("ReservationName", "(null)", json!("")),
        ("Gres", "gpu:2", json!("gres/gpu=2")),
        ("Licenses", "matlab", json!("matlab")),
        ("StdIn", "in", json!("in")),
        ("AdminComment", "seen", json!("seen")),
        ("Progress", "step 7", Value::Null),
        ("Extra", "more", json!("more")),
        ("Prefer", "fast", json!("fast")),
        ("MailUser", "ann", json!("ann")),
        ("MailType", "END,TIME_LIMIT_80", json!(["END", "TIME=80%"])),
        ("NumNodes", "2-4", json!("2-4")),
        ("Dependency", "afterok:7", json!("afterok:7")),
        ("Switches", "2", json!(2)),
        ("TimeMin", "10", json!(10)),
        ("Deadline", "uts1800000000", json!(1_800_000_000)),
        ("EndTime", "2027-01-15T08:00:00", json!("2027-01-15T08:00:00")),
        ("EligibleTime", "uts1800000001", json!({"set": true, "number": 1_800_000_001})),
    ];
    fields_do_as_names(job::KEYS, &samples, |given| change::job(given).map(|read| read.value.update));
    names_are_found(job::KEYS);
    assert_eq!(time_limit(Some('+'), "60"), Some(LimitChange::Longer(3600)));
    assert_eq!(time_limit(None, "-60"), Some(LimitChange::Shorter(3600)));
    assert_eq!((time_limit(None, "-1"), time_limit(None, "x")), (Some(LimitChange::To(None)), None));
}

#[test]
fn numbers_and_flags_of_bodies_become_keys() {
    let update = |given: Value| change::job(&given).unwrap().value.update;
    assert_eq!(update(json!({"minimum_nodes": 2, "maximum_nodes": 4})), typed(job::KEYS, "NumNodes", "2-4"));
    assert_eq!(update(json!({"maximum_nodes": 4, "nodes": ""})), typed(job::KEYS, "NumNodes", "1-4"));
    assert_eq!(update(json!({"required_switches": 2, "wait_for_switch": 90})), typed(job::KEYS, "Switches", "2@1:30"));
    assert_eq!(update(json!({"exclusive": ["true"]})), typed(job::KEYS, "OverSubscribe", "no"));
    assert_eq!(update(json!({"reboot": false, "memory_per_cpu": 0, "begin_time": 0})), JobUpdate::default());
    let negative = change::job(&json!({"time_limit": -1})).unwrap_err();
    assert_eq!((negative.source.as_str(), negative.status), ("time_limit", 400));
}

#[test]
fn keys_of_nodes() {
    let samples = [
        ("NodeName", "n1,n2", json!(["n1", "n2"])),
        ("State", "power_up", json!(["POWER_UP"])),
        ("Reason", "\"bad fan\"", json!("bad fan")),
        ("ActiveFeatures", "a,b", json!(["a", "b"])),
        ("AvailableFeatures", "a,b", json!(["a", "b"])),
        ("Features", "a,b", Value::Null),
        ("Comment", "x", json!("x")),
        ("Extra", "y", json!("y")),
        ("Gres", "gpu:2", json!("gpu:2")),
        ("InstanceId", "i-7", Value::Null),
        ("InstanceType", "m5", Value::Null),
        ("ResumeAfter", "60", json!(60)),
        ("Weight", "3", json!(3)),
    ];
    // A body that only names nodes changes nothing.
    let body = |given: &Value| {
        let given =
            if given.get("name").is_some() { json!({"name": given["name"], "weight": 9}) } else { given.clone() };
        let mut order = change::node(&given)?.value;
        if order.change.weight == Some(9) {
            order.change.weight = None;
        }
        Ok(order)
    };
    fields_do_as_names(node::KEYS, &samples, body);
    names_are_found(node::KEYS);
    let mut order = typed(node::KEYS, "State", "POWER_DOWN");
    order.admin = Some(NodeAdmin::Drain);
    assert!(matches!(order.requests().as_slice(), [Request::Power { .. }, Request::UpdateNodes { change: None, .. }]));
}

#[test]
fn keys_of_reservations() {
    let samples = [
        ("ReservationName", "r", json!("r")),
        ("StartTime", "uts1800000000", json!(1_800_000_000)),
        ("EndTime", "uts1800000000", json!(1_800_000_000)),
        ("Duration", "1:00:00", json!(60)),
        ("NodeCnt", "2", json!(2)),
        ("Nodes", "n1,n2", json!(["n1", "n2"])),
        ("Features", "big", json!("big")),
        ("PartitionName", "p", json!("p")),
        ("Users", "ann,bob", json!(["ann", "bob"])),
        ("Accounts", "phys", json!("phys")),
        ("Flags", "MAINT,OVERLAP", json!(["MAINT", "OVERLAP"])),
        ("AllowedPartitions", "p,q", Value::Null),
        ("Groups", "bio", json!(["bio"])),
        ("QOS", "-low", Value::Null),
        ("Comment", "for the course", json!("for the course")),
        ("Licenses", "fluent:2,matlab", json!(["fluent:2", "matlab"])),
        (
            "TRES",
            "node=3,license/fluent=2",
            json!([{"type": "node", "count": 3}, {"type": "license", "name": "fluent", "count": 2}]),
        ),
        ("Skip", "yes", Value::Null),
    ];
    fields_do_as_names(reservation::KEYS, &samples, |given| change::reservation(given).map(|read| read.value));
    names_are_found(reservation::KEYS);
    let both = change::reservation(&json!({"flags": ["MAINT", "NO_OVERLAP"]})).unwrap_err();
    assert_eq!((both.source.as_str(), both.status), ("flags", 501));
    let change = typed(reservation::KEYS, "Flags", "+PURGE_COMP=1:30,DAILY");
    assert_eq!(change.purge_s, Some(90));
    assert_eq!(change.flags, Some(ListChange::Add(vec!["PURGE_COMP".into(), "DAILY".into()])));
    let body = json!({"flags": ["PURGE_COMP"], "purge_completed": {"time": {"set": true, "number": 90}}});
    assert_eq!(change::reservation(&body).unwrap().value.purge_s, Some(90));
    let change = typed(reservation::KEYS, "Nodes", "+n[1,3],-n2");
    assert_eq!((change.more_nodes.as_deref(), change.less_nodes.as_deref()), (Some("n[1,3]"), Some("n2")));
    for (word, known) in [("CoreCnt", true), ("TRESPer", true), ("Burst", true), ("TRES", false), ("Com", false)] {
        assert_eq!(reservation::not_done(word).is_some(), known, "{word}");
    }
    let cores = change::reservation(&json!({"core_count": 4})).unwrap_err();
    assert_eq!((cores.source.as_str(), cores.status), ("core_count", 501));
}

#[test]
fn keys_of_partitions() {
    let set = |name: &str, sign: Option<char>, value: &str, before: &squall_model::config::PartitionConfig| {
        let mut config = before.clone();
        let done = Key::find(partition::KEYS, name).unwrap().read(&mut config, sign, value, &Zoned::now());
        done.map(|()| config)
    };
    let fresh = squall_model::config::PartitionConfig { min_nodes: 9, default: false, ..Default::default() };
    let mut seen = Vec::new();
    for key in partition::KEYS {
        if key.name() == "Exclusive" {
            continue;
        }
        let values =
            ["7", "0.5", "DRAIN", "YES", "EXCLUSIVE", "CANCEL", "REPLACE", "n[1-3]", "DefCpuPerGPU=7", "CPU=7"];
        let found = values.iter().find_map(|value| set(key.name(), None, value, &fresh).ok().filter(|to| *to != fresh));
        let found = found.unwrap_or_else(|| panic!("{} sets nothing", key.name()));
        assert!(!seen.contains(&found), "{} sets what another key sets", key.name());
        seen.push(found);
    }
    names_are_found(partition::KEYS);
    let allowed = set("AllowAccounts", None, "a,b", &fresh).unwrap();
    assert_eq!(set("AllowAccounts", Some('-'), "a", &allowed).unwrap().allow_accounts, ["b"]);
    assert_eq!(set("DenyAccounts", None, "c", &allowed).unwrap().allow_accounts, [""; 0]);
    assert_eq!(set("AllowAccounts", None, "ALL", &allowed).unwrap().allow_accounts, [""; 0]);
    assert_eq!(set("MaxTime", None, "soon", &fresh), Err(Bad::Value));
    assert!(partition::asks_for_nothing("CpuBind", "off") && !partition::asks_for_nothing("CpuBind", "core"));
    let exclusive = |value: &str| {
        let to = set("Exclusive", None, value, &fresh).unwrap();
        (to.oversubscribe, to.exclusive_user)
    };
    assert_eq!(exclusive("node"), (OverSubscribe::Exclusive, false));
    assert_eq!((exclusive("USER"), exclusive("NO")), ((OverSubscribe::No, true), (OverSubscribe::No, false)));
    assert!(set("Exclusive", None, "topo", &fresh).unwrap().exclusive_topo);
    assert!(matches!(set("Exclusive", None, "mcs", &fresh), Err(Bad::Value)));
    let both = set("JobDefaults", None, "DefCpuPerGPU=2,DefMemPerGPU=100", &fresh).unwrap();
    assert_eq!((both.def_cpu_per_gpu, both.def_mem_per_gpu_mb), (2, 100));
    assert_eq!(set("JobDefaults", None, "(null)", &both).unwrap(), fresh);
    let hosts = set("AllocNodes", None, "login[1-2]", &fresh).unwrap();
    assert!(hosts.takes_jobs_from("login2") && !hosts.takes_jobs_from("n1") && fresh.takes_jobs_from("n1"));
    assert_eq!(set("AllocN", None, "all", &hosts).unwrap(), fresh);
}
