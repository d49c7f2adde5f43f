//! Lines of partitions.

use std::collections::BTreeMap;

use squall_model::config::PartitionConfig;

use super::keys::Rule::{self, Elsewhere, Missing, Taken};
use super::lines::{self, ConfigLine, Settings};
use super::nodes::Nodes;
use super::parse::Origin;
use super::report::{Fate, Report};
use super::value;

const NONE: &[&str] = &["none", "(null)"];

/// All keys of a `PartitionName` line but the first, and those that are the same in `[[partitions]]`.
pub(super) const KEYS: &[(&str, Rule)] = &[
    ("CpuBind", Missing(NONE, "tasks are bound as `srun --cpu-bind` says")),
    ("Default", Elsewhere),
    ("DefaultTime", Elsewhere),
    ("Exclusive", Elsewhere),
    ("JobDefaults", Elsewhere),
    ("MaxCPUsPerNode", Taken("MaxCPUsPerNode", value::count)),
    ("MaxCPUsPerSocket", Taken("MaxCPUsPerSocket", value::count)),
    ("MaxNodes", Elsewhere),
    ("MaxTime", Taken("MaxTime", value::limit)),
    ("Nodes", Elsewhere),
    ("OverSubscribe", Elsewhere),
    ("PreemptMode", Elsewhere),
    ("Priority", Elsewhere),
    ("SelectTypeParameters", Missing(NONE, "CPUs and memory are allocated as in the whole cluster")),
    ("Shared", Elsewhere),
    ("State", Elsewhere),
    ("SuspendTime", Taken("SuspendTime", value::seconds_or_never)),
    ("Topology", Missing(NONE, "there is one topology for all partitions")),
    ("TRESBillingWeights", Taken("TRESBillingWeights", value::billing_weights)),
];

/// Settings of the whole cluster on which lines of partitions depend.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cluster {
    /// Whether jobs get whole nodes (`SelectType=select/linear`).
    pub(super) whole_nodes: bool,
    /// Whether jobs may be suspended for others: `preempt/partition_prio` with GANG.
    pub(super) suspends: bool,
}

/// A partition: keys of `[[partitions]]` with their values as TOML.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) origin: Origin,
    pub(super) fields: Vec<(&'static str, String)>,
}

/// All partitions.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    pub(super) all: Vec<Partition>,
    known: BTreeMap<String, Origin>,
    defaults: Settings,
    /// Index of the default partition.
    first: Option<usize>,
}

impl Partitions {
    /// Reads a `PartitionName` line. All nodes and sets of nodes must have been read.
    pub(super) fn line(
        &mut self,
        line: &ConfigLine<'_>,
        name: &str,
        nodes: &Nodes,
        cluster: Cluster,
        report: &mut Report,
    ) {
        let own = line.settings(KEYS, "partitions", report);
        if name.eq_ignore_ascii_case("DEFAULT") {
            line.say(report, "", Fate::Taken, "defaults of the PartitionName lines that follow");
            self.defaults.extend(own);
            return;
        }
        let mut merged = self.defaults.clone();
        merged.extend(own);
        let Some(members) = members(line, &merged, nodes, report) else { return };
        if let Some(before) = self.known.get(name) {
            return line.say(report, "", Fate::Wrong, format!("partition `{name}` stands in {before} already"));
        }
        self.known.insert(name.to_owned(), line.origin.clone());
        let mut fields = vec![("PartitionName", value::quoted(name)), ("Nodes", members)];
        fields.extend(lines::fields(KEYS, "partitions", &merged));
        others(line, &merged, cluster, &mut fields, report);
        match merged.get("Default").map(|text| value::yes(text)) {
            Some(Ok(yes)) if yes == "true" => self.first = Some(self.all.len()),
            Some(Err(problem)) => line.say(report, "Default", Fate::Wrong, problem),
            _ => {}
        }
        let fields = lines::once(fields);
        line.say(report, "", Fate::Taken, lines::shown(&fields));
        self.all.push(Partition { origin: line.origin.clone(), fields });
    }

    /// Marks the default partition, and that all others are none. In Slurm there is none unless a line says so.
    pub(super) fn mark_default(&mut self) {
        for (at, partition) in self.all.iter_mut().enumerate() {
            partition.fields.push(("Default", (self.first == Some(at)).to_string()));
        }
    }
}

/// Returns the nodes of a partition, as TOML. None: its list is malformed.
fn members(line: &ConfigLine<'_>, settings: &Settings, nodes: &Nodes, report: &mut Report) -> Option<String> {
    let list = settings.get("Nodes").map_or("", String::as_str);
    if list.eq_ignore_ascii_case("ALL") {
        return Some(value::quoted("ALL"));
    }
    let (members, strangers) = match nodes.members(list) {
        Ok(both) => both,
        Err(problem) => {
            line.say(report, "Nodes", Fate::Wrong, problem);
            return None;
        }
    };
    if !strangers.is_empty() {
        let strangers = squall_model::hostlist::compress(&strangers);
        line.say(report, "Nodes", Fate::Wrong, format!("no NodeName line has `{strangers}`: it is left out"));
    }
    if members.is_empty() {
        return Some(value::quoted(PartitionConfig::NO_NODES));
    }
    Some(value::quoted(&squall_model::hostlist::compress(members)))
}

/// Adds the fields that depend on several settings.
fn others(
    line: &ConfigLine<'_>,
    settings: &Settings,
    cluster: Cluster,
    fields: &mut Vec<(&'static str, String)>,
    report: &mut Report,
) {
    let mut wrong = |key: &str, problem: String| line.say(report, key, Fate::Wrong, problem);
    if let Some(time) = settings.get("DefaultTime").filter(|time| !time.eq_ignore_ascii_case("NONE")) {
        match value::limit(time) {
            Ok(time) => fields.push(("DefaultTime", time)),
            Err(problem) => wrong("DefaultTime", problem),
        }
    }
    if let Some(most) = settings.get("MaxNodes").filter(|most| !value::is_unlimited(most)) {
        match value::number(most) {
            Ok(most) => fields.push(("MaxNodes", most)),
            Err(problem) => wrong("MaxNodes", problem),
        }
    }
    if let Some(both) = settings.get("Priority") {
        match value::number(both) {
            Ok(both) => fields.extend(["PriorityTier", "PriorityJobFactor"].map(|key| (key, both.clone()))),
            Err(problem) => wrong("Priority", problem),
        }
    }
    if let Some(state) = settings.get("State") {
        match state.to_ascii_uppercase().as_str() {
            state @ ("UP" | "DOWN" | "DRAIN" | "INACTIVE") => fields.push(("State", value::quoted(state))),
            _ => wrong("State", format!("`{state}`: UP, DOWN, DRAIN or INACTIVE is needed")),
        }
    }
    let shares = settings.get("OverSubscribe").or(settings.get("Shared")).map_or("NO", String::as_str);
    let shares = if cluster.whole_nodes && shares.eq_ignore_ascii_case("NO") { "EXCLUSIVE" } else { shares };
    match value::oversubscribe(shares) {
        Ok(_) if shares.eq_ignore_ascii_case("NO") => {}
        Ok(shares) => fields.push(("OverSubscribe", shares)),
        Err(problem) => wrong("OverSubscribe", problem),
    }
    preempt(line, settings, cluster, fields, report);
    exclusive(line, settings, fields, report);
    for word in settings.get("JobDefaults").map_or("", String::as_str).split(',').filter(|word| !word.is_empty()) {
        let (name, number) = word.split_once('=').unwrap_or((word, ""));
        let key = ["DefCPUPerGPU", "def_mem_per_gpu_mb"].into_iter().zip(["DefCPUPerGPU", "DefMemPerGPU"]);
        match (key.into_iter().find(|(_, slurms)| slurms.eq_ignore_ascii_case(name)), value::number(number)) {
            (Some((key, _)), Ok(number)) => fields.push((key, number)),
            (Some(_), Err(problem)) => line.say(report, "JobDefaults", Fate::Wrong, problem),
            (None, _) => line.say(report, "JobDefaults", Fate::Wrong, format!("`{name}` is no default of jobs")),
        }
    }
}

/// Adds what `Exclusive` means, which newer releases have in place of `ExclusiveUser` and `OverSubscribe=EXCLUSIVE`.
fn exclusive(
    line: &ConfigLine<'_>,
    settings: &Settings,
    fields: &mut Vec<(&'static str, String)>,
    report: &mut Report,
) {
    match settings.get("Exclusive").map(|word| word.to_ascii_uppercase()).as_deref() {
        None | Some("NO") => {}
        Some("NODE") => fields.push(("OverSubscribe", value::quoted("EXCLUSIVE"))),
        Some("USER") => fields.push(("ExclusiveUser", "true".to_owned())),
        Some("TOPO") => fields.push(("ExclusiveTopo", "true".to_owned())),
        Some(word) => line.say(report, "Exclusive", Fate::Wrong, format!("`{word}`: NO, NODE, USER or TOPO is needed")),
    }
}

/// Adds the partition's own `PreemptMode`.
fn preempt(
    line: &ConfigLine<'_>,
    settings: &Settings,
    cluster: Cluster,
    fields: &mut Vec<(&'static str, String)>,
    report: &mut Report,
) {
    let Some(mode) = settings.get("PreemptMode") else { return };
    let words: Vec<String> = mode.split(',').map(|word| word.trim().to_ascii_uppercase()).collect();
    let others = |word: &&String| !["GANG", "OFF", "CANCEL", "REQUEUE", "SUSPEND"].contains(&word.as_str());
    if let Some(word) = words.iter().find(others) {
        line.say(report, "PreemptMode", Fate::Missing, format!("{word} is left out"));
    }
    match words.iter().find(|word| ["OFF", "CANCEL", "REQUEUE", "SUSPEND"].contains(&word.as_str())) {
        Some(word) if word == "SUSPEND" && !cluster.suspends => {
            let text =
                "jobs are not preempted: SUSPEND needs PreemptType=preempt/partition_prio and GANG in PreemptMode";
            line.say(report, "PreemptMode", Fate::Missing, text);
            fields.push(("PreemptMode", value::quoted("OFF")));
        }
        Some(word) => fields.push(("PreemptMode", value::quoted(word))),
        None => {}
    }
}
