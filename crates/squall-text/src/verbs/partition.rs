//! `scontrol create partition` and `update partition`.

use squall_model::billing::BillingWeights;
use squall_model::config::{PartitionConfig, PartitionState, Share};
use squall_model::duration::{parse_limit, whole_minutes};
use squall_model::gang::OverSubscribe;
use squall_model::hostlist;
use squall_model::limits::OVER_TIME_UNLIMITED;
use squall_model::places::OnNodeFail;
use squall_model::policy::{PreemptMode, Seconds};

use super::key::Set::{Names, Number, Own, Text, Truth};
use super::key::{Bad, Key, Set, key, means};

/// The keys. An abbreviation means the first key that it fits.
pub static KEYS: &[Key<PartitionConfig>] = &[
    row(&[("State", 2)], Own(state)),
    row(&[("MaxTime", 4)], Own(|to, _, value| limit(value).map(|limit| to.max_time_s = limit))),
    row(&[("DefaultTime", 8)], Own(|to, _, value| limit(value).map(|limit| to.default_time_s = limit))),
    row(&[("MaxNodes", 4)], Own(|to, _, value| count(value).map(|count| to.max_nodes = count))),
    row(&[("MaxCPUsPerNode", 4)], Own(|to, _, value| count(value).map(|count| to.max_cpus_per_node = count))),
    row(&[("MaxCPUsPerSocket", 11)], Own(|to, _, value| count(value).map(|count| to.max_cpus_per_socket = count))),
    row(&[("MinNodes", 2)], Number(|to, count| to.min_nodes = count)),
    row(&[("Priority", 3)], Number(|to, both| (to.priority_tier, to.priority_job_factor) = (both, both))),
    row(&[("PriorityTier", 9)], Number(|to, tier| to.priority_tier = tier)),
    row(&[("PriorityJobFactor", 9)], Number(|to, factor| to.priority_job_factor = factor)),
    row(&[("LeaseJobs", 2)], Number(|to, jobs| to.lease_jobs = jobs)),
    row(&[("GraceTime", 5)], Number(|to, seconds| to.grace_time_s = Seconds(u64::from(seconds)))),
    row(
        &[("DefMemPerCPU", 10)],
        Own(|to, _, mb| memory((&mut to.def_mem_per_cpu_mb, &mut to.def_mem_per_node_mb), mb)),
    ),
    row(
        &[("DefMemPerNode", 10)],
        Own(|to, _, mb| memory((&mut to.def_mem_per_node_mb, &mut to.def_mem_per_cpu_mb), mb)),
    ),
    row(
        &[("MaxMemPerCPU", 10)],
        Own(|to, _, mb| memory((&mut to.max_mem_per_cpu_mb, &mut to.max_mem_per_node_mb), mb)),
    ),
    row(
        &[("MaxMemPerNode", 10)],
        Own(|to, _, mb| memory((&mut to.max_mem_per_node_mb, &mut to.max_mem_per_cpu_mb), mb)),
    ),
    row(&[("Nodes", 1)], Own(nodes)),
    row(&[("Default", 7)], Truth(|to, yes| to.default = yes)),
    row(&[("LLN", 1)], Truth(|to, yes| to.lln = yes)),
    row(&[("Exclusive", 9)], Own(exclusive)),
    row(&[("ExclusiveUser", 1)], Truth(|to, yes| to.exclusive_user = yes)),
    row(&[("ExclusiveTopo", 10)], Truth(|to, yes| to.exclusive_topo = yes)),
    row(&[("DisableRootJobs", 1)], Truth(|to, yes| to.disable_root_jobs = Some(yes))),
    row(&[("ReqResv", 3)], Truth(|to, yes| to.req_resv = yes)),
    row(&[("RootOnly", 3)], Truth(|to, yes| to.root_only = yes)),
    row(&[("OverTimeLimit", 5)], Own(over_time_limit)),
    row(&[("Hidden", 1)], Truth(|to, yes| to.hidden = yes)),
    row(&[("AllocNodes", 6)], Text(|to, hosts| to.alloc_nodes = unless(hosts, "ALL"))),
    row(&[("Alternate", 3)], Text(|to, name| to.alternate = unless(name, "NONE"))),
    row(&[("JobDefaults", 4)], Own(job_defaults)),
    row(&[("PowerDownOnIdle", 2)], Truth(|to, yes| to.power_down_on_idle = yes)),
    row(&[("OnNodeFail", 2)], Own(on_node_fail)),
    row(&[("SpareNodes", 6)], Number(|to, count| to.spare_nodes = Some(count).filter(|count| *count > 0))),
    row(&[("SpareBilling", 6)], Own(spare_billing)),
    row(&[("TRESBillingWeights", 1)], Own(billing_weights)),
    row(&[("OverSubscribe", 5), ("Shared", 2)], Own(oversubscribe)),
    row(&[("PreemptMode", 3)], Own(preempt_mode)),
    row(&[("PartitionName", 3)], Text(|to, name| to.name = name)),
    row(&[("QoS", 1)], Text(|to, name| to.qos = if name == "N/A" { String::new() } else { name })),
    row(&[("AllowGroups", 6)], Names(|to, sign, names| change(&mut to.allow_groups, sign, names))),
    row(&[("AllowUsers", 6)], Names(|to, sign, names| change(&mut to.allow_users, sign, names))),
    row(
        &[("AllowAccounts", 6)],
        Names(|to, sign, names| either((&mut to.allow_accounts, &mut to.deny_accounts), sign, names)),
    ),
    row(&[("AllowQos", 6)], Names(|to, sign, names| either((&mut to.allow_qos, &mut to.deny_qos), sign, names))),
    row(
        &[("DenyAccounts", 5)],
        Names(|to, sign, names| either((&mut to.deny_accounts, &mut to.allow_accounts), sign, names)),
    ),
    row(&[("DenyQos", 5)], Names(|to, sign, names| either((&mut to.deny_qos, &mut to.allow_qos), sign, names))),
];

/// Returns a row of the table: REST doesn't change partitions.
const fn row(names: &'static [(&'static str, usize)], set: Set<PartitionConfig>) -> Key<PartitionConfig> {
    key(names, "", set)
}

/// Keys of scontrol(1) for features that Squall's partitions don't have: name, fewest letters, and the values that
/// switch the feature off.
const FIXED: &[(&str, usize, &[&str])] = &[("CpuBind", 7, &["OFF", ""])];

/// Slurm's keys that are not taken, each with its fewest letters and the reason.
pub static NOT_DONE: &[(&str, usize, &str)] = &[
    ("CpuBind", 7, "tasks are bound as `srun --cpu-bind` says"),
    ("Topology", 1, "there is one topology for all partitions"),
];

/// Returns why a key of Slurm is not taken. None: it is taken, or no key of Slurm.
pub fn not_done(word: &str) -> Option<&'static str> {
    NOT_DONE.iter().find(|(name, least, _)| means(word, name, *least)).map(|(.., why)| *why)
}

/// Returns whether a key is of a feature that partitions don't have, and the value switches it off.
pub fn asks_for_nothing(word: &str, value: &str) -> bool {
    let fixed = FIXED.iter().find(|(name, least, _)| means(word, name, *least));
    fixed.is_some_and(|(_, _, values)| values.iter().any(|off| off.eq_ignore_ascii_case(value)))
}

/// Reads the state of a partition, abbreviated down to one letter. The order is Slurm's: `D` is `DOWN`.
fn state(to: &mut PartitionConfig, _: Option<char>, value: &str) -> Result<(), Bad> {
    let states = [
        ("INACTIVE", PartitionState::Inactive),
        ("DOWN", PartitionState::Down),
        ("UP", PartitionState::Up),
        ("DRAIN", PartitionState::Drain),
    ];
    to.state = states.into_iter().find(|(name, _)| means(value, name, 1)).map(|(_, state)| state).ok_or(Bad::Value)?;
    Ok(())
}

fn limit(text: &str) -> Result<Option<u64>, Bad> {
    if text == "NONE" {
        return Ok(None);
    }
    parse_limit(text).map(|limit| limit.map(whole_minutes)).map_err(|_| Bad::Value)
}

fn is_unlimited(text: &str) -> bool {
    ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn count(text: &str) -> Result<Option<u32>, Bad> {
    if is_unlimited(text) { Ok(None) } else { text.parse().map(Some).map_err(|_| Bad::Value) }
}

/// Sets an amount of memory, MiB, in place of the `other` one: for CPUs or for nodes. 0: unlimited.
fn memory((amount, other): (&mut u64, &mut u64), text: &str) -> Result<(), Bad> {
    let mb = if is_unlimited(text) { 0 } else { text.parse().map_err(|_| Bad::Value)? };
    (*amount, *other) = (mb, 0);
    Ok(())
}

/// Reads a value of `OverSubscribe` such as `FORCE:2`; the word may be abbreviated down to one letter.
fn oversubscribe(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let word = text.split(':').next().unwrap_or_default();
    let name = ["NO", "EXCLUSIVE", "YES", "FORCE"].into_iter().find(|name| means(word, name, 1)).ok_or(Bad::Value)?;
    to.oversubscribe = OverSubscribe::try_from(format!("{name}{}", &text[word.len()..])).map_err(|_| Bad::Value)?;
    Ok(())
}

/// Returns a text, or none in place of a word that means none.
fn unless(text: String, none: &str) -> String {
    if text.eq_ignore_ascii_case(none) { String::new() } else { text }
}

/// Reads which other jobs may share the nodes of a job: `NO` (all), `NODE` (none), `USER` (those of its user), `TOPO`
/// (none, nor its blocks).
fn exclusive(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let shared = if to.oversubscribe == OverSubscribe::Exclusive { OverSubscribe::No } else { to.oversubscribe };
    let (nodes, user, blocks) = match text.to_ascii_uppercase().as_str() {
        "NO" => (shared, false, false),
        "USER" => (shared, true, false),
        "TOPO" => (shared, false, true),
        "NODE" => (OverSubscribe::Exclusive, false, false),
        _ => return Err(Bad::Value),
    };
    (to.oversubscribe, to.exclusive_user, to.exclusive_topo) = (nodes, user, blocks);
    Ok(())
}

/// Reads `DefCPUPerGPU=4,DefMemPerGPU=1000`; empty or `(null)`: neither.
fn job_defaults(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let (mut cpus, mut memory_mb) = (0, 0);
    for word in text.split(',').filter(|word| !word.is_empty() && *word != "(null)") {
        let (name, value) = word.split_once('=').ok_or(Bad::Value)?;
        let target = match name.to_ascii_lowercase().as_str() {
            "defcpupergpu" => &mut cpus,
            "defmempergpu" => &mut memory_mb,
            _ => return Err(Bad::Value),
        };
        *target = value.parse().map_err(|_| Bad::Value)?;
    }
    (to.def_cpu_per_gpu, to.def_mem_per_gpu_mb) = (cpus, memory_mb);
    Ok(())
}

/// Reads a value of `OnNodeFail`; `NONE`: as the cluster says.
fn on_node_fail(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    to.on_node_fail = match text {
        "NONE" => None,
        word => Some(OnNodeFail::parse(word).ok_or(Bad::Value)?),
    };
    Ok(())
}

/// Reads the factor for the usage of spare nodes, from 0 to 1.
fn spare_billing(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let number: f64 = text.parse().map_err(|_| Bad::Value)?;
    to.spare_billing = Share::try_from(number).map_err(|_| Bad::Value)?;
    Ok(())
}

/// Reads what jobs are billed for each resource; empty or `(null)`: their CPUs.
fn billing_weights(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let text = if text == "(null)" { "" } else { text };
    to.tres_billing_weights = BillingWeights::try_from(text.to_owned()).map_err(Bad::Because)?;
    Ok(())
}

/// Reads minutes beyond the time limit; `NONE`: as the cluster says.
fn over_time_limit(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let unlimited = || text.eq_ignore_ascii_case("UNLIMITED").then_some(OVER_TIME_UNLIMITED);
    let minutes = || text.parse::<u16>().ok().map(u64::from);
    let none = text.eq_ignore_ascii_case("NONE");
    to.over_time_limit_min = if none { None } else { Some(unlimited().or_else(minutes).ok_or(Bad::Value)?) };
    Ok(())
}

fn preempt_mode(to: &mut PartitionConfig, _: Option<char>, text: &str) -> Result<(), Bad> {
    let upper = text.to_ascii_uppercase();
    to.preempt_mode = match upper.split(',').find(|word| *word != "GANG") {
        Some("OFF") => Some(PreemptMode::Off),
        Some("CANCEL") => Some(PreemptMode::Cancel),
        Some("REQUEUE") => Some(PreemptMode::Requeue),
        Some("CHECKPOINT") => Some(PreemptMode::Checkpoint),
        Some("SUSPEND") => Some(PreemptMode::Suspend),
        _ => return Err(Bad::Value),
    };
    Ok(())
}

/// Changes a list of names: `=` replaces it, `+=` adds, `-=` removes. `ALL` and `(null)` are no names.
fn change(list: &mut Vec<String>, sign: Option<char>, mut names: Vec<String>) {
    if matches!(names.as_slice(), [one] if one.eq_ignore_ascii_case("ALL") || one == "(null)") {
        names.clear();
    }
    match sign {
        Some('+') => {
            names.retain(|name| !list.contains(name));
            list.append(&mut names);
        }
        Some('-') => list.retain(|name| !names.contains(name)),
        _ => *list = names,
    }
}

/// Changes a list and empties the one that may not stand beside it.
fn either((list, other): (&mut Vec<String>, &mut Vec<String>), sign: Option<char>, names: Vec<String>) {
    other.clear();
    change(list, sign, names);
}

/// Changes the nodes of a partition: `=` replaces the list, `+=` adds, `-=` removes.
fn nodes(to: &mut PartitionConfig, sign: Option<char>, value: &str) -> Result<(), Bad> {
    let mut list = value.to_owned();
    if let Some(sign) = sign {
        let expanded = |list: &str| hostlist::expand(list).map_err(|_| Bad::Value);
        let (mut all, named) = (expanded(to.named_nodes())?, expanded(value)?);
        all.retain(|name| !named.contains(name));
        if sign == '+' {
            all.extend(named);
        }
        list = hostlist::compress(all);
    }
    to.nodes = if list.is_empty() { PartitionConfig::NO_NODES.to_owned() } else { list };
    Ok(())
}
