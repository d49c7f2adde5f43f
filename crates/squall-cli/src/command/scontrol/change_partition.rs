//! `scontrol create partition`, `update partition` and `delete partition`.

use squall_model::config::{PartitionConfig, PartitionState};
use squall_model::duration::{parse_limit, whole_minutes};
use squall_model::gang::OverSubscribe;
use squall_model::hostlist;
use squall_model::policy::{PreemptMode, Seconds};
use squall_model::wire::client::Request;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::all_partitions;
use crate::command::scontrol::arguments::{Change, bad_state, changes, invalid, unsupported};
use crate::command::scontrol::{ask_done, means};

const STATES: &str = "Acceptable State values are \"UP\", \"DOWN\", \"DRAIN\" and \"INACTIVE\"";

/// Keys of scontrol(1) for features that Squall's partitions don't have: name, fewest letters, and the values that
/// switch the feature off.
const FIXED: &[(&str, usize, &[&str])] = &[
    ("AllocNodes", 6, &["ALL", ""]),
    ("Alternate", 3, &["NONE", ""]),
    ("CpuBind", 7, &["OFF", ""]),
    ("DisableRootJobs", 1, NO),
    ("Hidden", 1, NO),
    ("JobDefaults", 4, &["(null)", ""]),
    ("OverTimeLimit", 5, &["NONE"]),
    ("ReqResv", 3, NO),
    ("RootOnly", 3, NO),
    ("TRESBillingWeights", 1, &[""]),
];
const NO: &[&str] = &["NO", "N"];

/// Returns whether the arguments are about a partition: `partition …` or `… PartitionName=NAME …`.
pub(super) fn is_meant(words: &[String]) -> bool {
    words.iter().any(|word| match word.split_once('=') {
        Some((key, _)) => means(key, "PartitionName", 3) && words.iter().all(|w| !means(w, "reservation", 3)),
        None => means(word, "PartitionName", 3) && words.first() == Some(word),
    })
}

/// Runs `create PartitionName=NAME Nodes=LIST KEY=VALUE …`.
pub(super) fn create(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let words = joined(words);
    let words = changes(call, &words)?;
    let nodes = PartitionConfig::NO_NODES.to_owned();
    let fresh = PartitionConfig { name: String::new(), nodes, ..PartitionConfig::default() };
    let config = changed(call, fresh, &words)?;
    let request = Request::ChangePartition { name: config.name.clone(), was: None, now: Some(Box::new(config)) };
    ask_done(call, &request, "Error creating the partition")
}

/// Runs `update PartitionName=NAME KEY=VALUE …`.
pub(super) fn update(call: &mut Call<'_>, words: &[Change<'_>]) -> Result<(), Fail> {
    const WHAT: &str = "slurm_update error";
    let name = name(words);
    if words.len() < 2 {
        call.say("No changes specified");
        return Err(Fail(1));
    }
    let was = present(call, name, WHAT)?;
    let now = changed(call, was.clone(), words)?;
    let is_state = |word: &Change<'_>| means(word.key, "State", 2) || means(word.key, "PartitionName", 3);
    let request = if words.iter().all(is_state) {
        // A new state is the only change that a cluster divided into cells accepts.
        Request::UpdatePartition { name: name.to_owned(), state: now.state }
    } else {
        Request::ChangePartition { name: name.to_owned(), was: Some(Box::new(was)), now: Some(Box::new(now)) }
    };
    ask_done(call, &request, WHAT)
}

/// Runs `delete PartitionName=NAME`.
pub(super) fn delete(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let given = joined(words);
    let what = format!("delete_partition {}", given.join(" "));
    let words = changes(call, &given)?;
    let name = name(&words);
    let was = present(call, name, &what)?;
    ask_done(call, &Request::ChangePartition { name: name.to_owned(), was: Some(Box::new(was)), now: None }, &what)
}

/// Rewrites `partition NAME …` and `partition PartitionName=NAME …` as `PartitionName=NAME …`.
fn joined(words: &[String]) -> Vec<String> {
    match words {
        [entity, name, rest @ ..] if !entity.contains('=') && !name.contains('=') => {
            std::iter::once(format!("{entity}={name}")).chain(rest.iter().cloned()).collect()
        }
        [entity, rest @ ..] if !entity.contains('=') => rest.to_vec(),
        _ => words.to_vec(),
    }
}

fn name<'a>(words: &[Change<'a>]) -> &'a str {
    words.iter().find(|word| means(word.key, "PartitionName", 3)).map_or("", |word| word.value)
}

/// Asks the controller for the present configuration of the partition `name`.
fn present(call: &mut Call<'_>, name: &str, what: &str) -> Result<PartitionConfig, Fail> {
    let all = match all_partitions(call) {
        Ok(all) => all,
        Err(e) => return call.failed(what, &e),
    };
    if let Some(partition) = all.into_iter().find(|p| p.config.name == name) {
        return Ok(partition.config);
    }
    call.say(&format!("{what}: Invalid partition name specified"));
    Err(Fail(1))
}

/// Returns the partition's configuration with all changes of the command line applied.
fn changed(call: &mut Call<'_>, mut config: PartitionConfig, words: &[Change<'_>]) -> Result<PartitionConfig, Fail> {
    for word in words {
        if means(word.key, "State", 2) {
            let Some(state) = state(word.value) else { return bad_state(call, word, STATES) };
            config.state = state;
            continue;
        }
        match set_limit(&mut config, word)
            .or_else(|| set_memory(&mut config, word))
            .or_else(|| set_other(&mut config, word))
        {
            Some(true) => {}
            Some(false) => return invalid(call, &format!("{}={}", word.key, word.value)),
            None if asks_for_nothing(word) => {}
            None => return unsupported(call, word),
        }
    }
    Ok(config)
}

/// Returns whether a word is a key of [`FIXED`] with the value that switches the feature off.
fn asks_for_nothing(word: &Change<'_>) -> bool {
    let fixed = FIXED.iter().find(|(name, least, _)| means(word.key, name, *least));
    fixed.is_some_and(|(_, _, values)| values.iter().any(|value| value.eq_ignore_ascii_case(word.value)))
}

/// Parses the state of a partition, abbreviated down to one letter. The order is Slurm's: `D` is `DOWN`.
fn state(text: &str) -> Option<PartitionState> {
    let states = [
        ("INACTIVE", PartitionState::Inactive),
        ("DOWN", PartitionState::Down),
        ("UP", PartitionState::Up),
        ("DRAIN", PartitionState::Drain),
    ];
    states.into_iter().find(|(name, _)| means(text, name, 1)).map(|(_, state)| state)
}

/// Sets a key that takes a time or a count. Some(true): it was set. Some(false): the value is invalid. None: it is
/// another key.
fn set_limit(config: &mut PartitionConfig, word: &Change<'_>) -> Option<bool> {
    let is = |name, least| means(word.key, name, least);
    let limit = || match word.value {
        "NONE" => Some(None),
        text => parse_limit(text).ok().map(|limit| limit.map(whole_minutes)),
    };
    let count = || match word.value.to_ascii_uppercase().as_str() {
        "UNLIMITED" | "INFINITE" | "-1" => Some(None),
        text => text.parse::<u32>().ok().map(Some),
    };
    let number = || word.value.parse::<u32>().ok();
    let done = if is("MaxTime", 4) {
        limit().map(|limit| config.max_time_s = limit)
    } else if is("DefaultTime", 8) {
        limit().map(|limit| config.default_time_s = limit)
    } else if is("MaxNodes", 4) {
        count().map(|count| config.max_nodes = count)
    } else if is("MaxCPUsPerNode", 4) {
        count().map(|count| config.max_cpus_per_node = count)
    } else if is("MaxCPUsPerSocket", 11) {
        count().map(|count| config.max_cpus_per_socket = count)
    } else if is("MinNodes", 2) {
        number().map(|count| config.min_nodes = count)
    } else if is("Priority", 3) {
        number().map(|both| (config.priority_tier, config.priority_job_factor) = (both, both))
    } else if is("PriorityTier", 9) {
        number().map(|tier| config.priority_tier = tier)
    } else if is("PriorityJobFactor", 9) {
        number().map(|factor| config.priority_job_factor = factor)
    } else if is("LeaseJobs", 2) {
        number().map(|jobs| config.lease_jobs = jobs)
    } else if is("GraceTime", 5) {
        number().map(|seconds| config.grace_time_s = Seconds(u64::from(seconds)))
    } else {
        return None;
    };
    Some(done.is_some())
}

/// Sets a default or limit of memory, MiB; one for CPUs replaces one for nodes, and the other way round. Returns as
/// [`set_limit`].
fn set_memory(config: &mut PartitionConfig, word: &Change<'_>) -> Option<bool> {
    let is = |name| means(word.key, name, 10);
    let mb = match word.value.to_ascii_uppercase().as_str() {
        "UNLIMITED" | "INFINITE" | "-1" => Some(0),
        text => text.parse::<u64>().ok(),
    };
    let (default, most) = (
        (&mut config.def_mem_per_cpu_mb, &mut config.def_mem_per_node_mb),
        (&mut config.max_mem_per_cpu_mb, &mut config.max_mem_per_node_mb),
    );
    let (set, other) = if is("DefMemPerCPU") {
        default
    } else if is("DefMemPerNode") {
        (default.1, default.0)
    } else if is("MaxMemPerCPU") {
        most
    } else if is("MaxMemPerNode") {
        (most.1, most.0)
    } else {
        return None;
    };
    Some(mb.map(|mb| (*set, *other) = (mb, 0)).is_some())
}

/// Sets a key of another kind. Some(true): it was set. Some(false): the value is invalid. None: the key is unknown.
fn set_other(config: &mut PartitionConfig, word: &Change<'_>) -> Option<bool> {
    let is = |name, least| means(word.key, name, least);
    let value = word.value;
    if is("Nodes", 1) {
        return Some(nodes(config, word).map(|nodes| config.nodes = nodes).is_some());
    } else if is("Default", 7) {
        return Some(yes(value).map(|yes| config.default = yes).is_some());
    } else if is("LLN", 1) {
        return Some(yes(value).map(|yes| config.lln = yes).is_some());
    } else if is("ExclusiveUser", 1) {
        return Some(yes(value).map(|yes| config.exclusive_user = yes).is_some());
    } else if is("PowerDownOnIdle", 2) {
        return Some(yes(value).map(|yes| config.power_down_on_idle = yes).is_some());
    } else if is("OverSubscribe", 5) || is("Shared", 2) {
        return Some(oversubscribe(value).map(|over| config.oversubscribe = over).is_some());
    } else if is("PreemptMode", 3) {
        return Some(preempt_mode(value).map(|mode| config.preempt_mode = Some(mode)).is_some());
    } else if is("PartitionName", 3) {
        value.clone_into(&mut config.name);
    } else if is("QoS", 1) {
        Some(value).filter(|name| *name != "N/A").unwrap_or_default().clone_into(&mut config.qos);
    } else if is("AllowGroups", 6) {
        config.allow_groups = list(&config.allow_groups, word);
    } else if is("AllowUsers", 6) {
        config.allow_users = list(&config.allow_users, word);
    } else if is("AllowAccounts", 6) {
        config.deny_accounts.clear();
        config.allow_accounts = list(&config.allow_accounts, word);
    } else if is("AllowQos", 6) {
        config.deny_qos.clear();
        config.allow_qos = list(&config.allow_qos, word);
    } else if is("DenyAccounts", 5) {
        config.allow_accounts.clear();
        config.deny_accounts = list(&config.deny_accounts, word);
    } else if is("DenyQos", 5) {
        config.allow_qos.clear();
        config.deny_qos = list(&config.deny_qos, word);
    } else {
        return None;
    }
    Some(true)
}

fn yes(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        text if means(text, "NO", 1) => Some(false),
        text => means(text, "YES", 1).then_some(true),
    }
}

/// Parses a value of `OverSubscribe` such as `FORCE:2`; the word may be abbreviated down to one letter.
fn oversubscribe(text: &str) -> Option<OverSubscribe> {
    let word = text.split(':').next().unwrap_or_default();
    let name = ["NO", "EXCLUSIVE", "YES", "FORCE"].into_iter().find(|name| means(word, name, 1))?;
    OverSubscribe::try_from(format!("{name}{}", &text[word.len()..])).ok()
}

/// Changes a list of names: `=` replaces it, `+=` adds, `-=` removes. Returns an empty list for `ALL` or an empty
/// value.
fn list(present: &[String], word: &Change<'_>) -> Vec<String> {
    let everybody = word.value.eq_ignore_ascii_case("ALL") || word.value == "(null)";
    let names = || word.value.split(',').filter(|name| !name.is_empty() && !everybody).map(str::to_owned);
    match word.sign {
        Some('+') => present.iter().cloned().chain(names().filter(|name| !present.contains(name))).collect(),
        Some('-') => present.iter().filter(|name| names().all(|gone| gone != **name)).cloned().collect(),
        _ => names().collect(),
    }
}

/// Changes the nodes of a partition: `=` replaces the list, `+=` adds, `-=` removes. None: the list is malformed.
fn nodes(config: &PartitionConfig, word: &Change<'_>) -> Option<String> {
    let some = |list: String| if list.is_empty() { PartitionConfig::NO_NODES.to_owned() } else { list };
    let Some(sign) = word.sign else { return Some(some(word.value.to_owned())) };
    let (mut all, named) = (hostlist::expand(config.named_nodes()).ok()?, hostlist::expand(word.value).ok()?);
    all.retain(|name| !named.contains(name));
    if sign == '+' {
        all.extend(named);
    }
    Some(some(hostlist::compress(all)))
}

fn preempt_mode(text: &str) -> Option<PreemptMode> {
    let upper = text.to_ascii_uppercase();
    match upper.split(',').find(|word| *word != "GANG")? {
        "OFF" => Some(PreemptMode::Off),
        "CANCEL" => Some(PreemptMode::Cancel),
        "REQUEUE" => Some(PreemptMode::Requeue),
        "SUSPEND" => Some(PreemptMode::Suspend),
        _ => None,
    }
}
