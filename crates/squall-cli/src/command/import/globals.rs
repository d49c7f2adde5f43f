//! Settings of the whole cluster: those of `keys.rs` one by one, and those that depend on each other.

use std::collections::BTreeMap;

use squall_model::config::SelectTypeParameters;
use squall_model::policy::{PreemptMode, PreemptType};

use super::keys::{self, Rule};
use super::lines::{ALWAYS, shown, unknown};
use super::nodes::Nodes;
use super::parse::{Origin, Pair};
use super::partitions::Cluster;
use super::report::{Fate, Report};
use super::value::{self, Outcome, quoted};

/// What becomes of all controllers but the first.
const OTHERS: &str = "one controller runs, the one that is named first; squall.toml has all in [[controllers]], to be \
    switched on when [log] names the servers of etcd";
/// Port of Slurm's controller.
const CONTROLLER_PORT: u16 = 6817;

/// A setting of the whole cluster.
#[derive(Clone, Debug)]
struct Setting {
    origin: Origin,
    value: String,
}

/// A key of `squall.toml` with its value as TOML, and the line that it comes from.
#[derive(Clone, Debug)]
pub(super) struct TomlKey {
    /// Name of the setting in slurm.conf.
    from: &'static str,
    pub(super) key: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

/// All settings of the whole cluster.
#[derive(Debug, Default)]
pub(super) struct Globals {
    /// Settings that depend on others, by their names in Slurm's spelling.
    apart: BTreeMap<&'static str, Setting>,
    /// What the settings have become.
    pub(super) made: Vec<TomlKey>,
    /// Where each key stood last.
    seen: BTreeMap<&'static str, Origin>,
    /// Hosts of the controller, in order.
    hosts: Vec<Setting>,
    /// The controllers, if there are several: name, `HOST:PORT`, and the line that they come from.
    pub(super) controllers: Vec<(String, String, Origin)>,
}

impl Globals {
    /// Reads one setting.
    pub(super) fn read(&mut self, origin: &Origin, pair: &Pair, report: &mut Report) {
        let value = pair.value.as_str();
        let Some((name, rule)) = keys::find(&pair.key) else {
            let names: Vec<&str> = keys::KEYS.iter().copied().chain(keys::same("")).map(|(name, _)| name).collect();
            let lines = ["NodeName", "PartitionName", "NodeSet", "DownNodes", "Include"];
            let text = unknown(&pair.key, &[&names[..], &lines].concat());
            return report.add(origin, &pair.key, Fate::Unknown, text);
        };
        let setting = Setting { origin: origin.clone(), value: value.to_owned() };
        match name {
            "BackupController" if value::is_none(value) => return report.add(origin, name, Fate::Moot, ALWAYS),
            "SlurmctldHost" | "BackupController" => return self.hosts.push(setting),
            // The first one, wherever its line stands.
            "ControlMachine" => return self.hosts.insert(0, setting),
            _ => {}
        }
        if let Some(before) = self.seen.insert(name, origin.clone()) {
            self.made.retain(|made| made.from != name);
            report.rows.retain(|row| row.origin != before || row.key != name);
            report.add(&before, name, Fate::Moot, format!("{origin} sets it again"));
        }
        let programs = ["TaskProlog", "TaskEpilog"];
        let outcome = match rule {
            // Slurm takes these as if the line were not there.
            Rule::Taken(..) | Rule::Same(..) if value::is_none(value) && !programs.contains(&name) => Some(Ok(unset())),
            Rule::Missing(..) if value.is_empty() => Some(Ok(unset())),
            _ => rule.outcome(name, value),
        };
        match outcome {
            Some(outcome) => self.record(origin, name, outcome, report),
            None => drop(self.apart.insert(name, setting)),
        }
    }

    /// Adds what a setting becomes, and its row in the report.
    pub(super) fn record(
        &mut self,
        origin: &Origin,
        name: &'static str,
        outcome: Result<Outcome, String>,
        report: &mut Report,
    ) {
        let outcome = outcome.unwrap_or_else(|problem| Outcome::none(Fate::Wrong, problem));
        let text = if outcome.text.is_empty() { shown(&outcome.set) } else { outcome.text };
        report.add(origin, name, outcome.fate, text);
        let made = |(key, value)| TomlKey { from: name, key, value, origin: origin.clone() };
        self.made.extend(outcome.set.into_iter().map(made));
    }

    /// Takes a setting that depends on others, for which `outcome` says what it becomes.
    fn take(&mut self, name: &'static str, report: &mut Report, outcome: impl FnOnce(&str) -> Outcome) {
        if let Some(Setting { origin, value }) = self.apart.remove(name) {
            let outcome = outcome(&value);
            self.record(&origin, name, Ok(outcome), report);
        }
    }

    /// Takes the filter of submissions. `script`: path of `job_submit.lua`, if it is there.
    pub(super) fn filter(&mut self, script: Option<&str>, report: &mut Report) {
        self.take("JobSubmitPlugins", report, |given| value::submit(given, script));
    }

    fn value(&self, name: &str) -> &str {
        self.apart.get(name).map_or("", |setting| setting.value.as_str())
    }

    /// Returns whether jobs have folders of their own.
    pub(super) fn has_folders(&self) -> bool {
        let of = |name| self.value(name).rsplit('/').next() == Some("tmpfs");
        of("JobContainerType") || of("NamespaceType")
    }

    /// Returns whether nodes have what the file says, even if their machines have less.
    pub(super) fn forces(&self) -> bool {
        self.value("FastSchedule") == "2"
            || self
                .value("SlurmdParameters")
                .split(',')
                .any(|word| word.trim().eq_ignore_ascii_case("config_overrides"))
    }

    /// Returns what lines of partitions depend on.
    pub(super) fn cluster(&self) -> Cluster {
        Cluster {
            whole_nodes: is_plugin(self.value("SelectType"), "linear"),
            suspends: preempt_type(self.value("PreemptType")) == Some(PreemptType::Partition)
                && words(self.value("PreemptMode")).any(|word| word == "GANG"),
        }
    }

    /// Returns whether Slurm reads topology.conf.
    pub(super) fn has_topology(&self) -> bool {
        let plugin = self.value("TopologyPlugin");
        !["", "none", "default", "flat"].iter().any(|flat| is_plugin(plugin, flat))
    }

    /// Returns the names of generic resources, as `GresTypes` lists them.
    pub(super) fn gres_types(&self) -> Vec<String> {
        let list = self.made.iter().find(|made| made.key == "GresTypes").map_or("", |made| made.value.as_str());
        list.trim_matches('"').split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    }

    /// Reads the settings that depend on others and on the nodes.
    pub(super) fn finish(&mut self, nodes: &Nodes, report: &mut Report) {
        self.controller(nodes, report);
        self.preemption(report);
        self.topology(report);
        self.selection(report);
        for name in ["JobContainerType", "NamespaceType"] {
            self.take(name, report, value::folders);
        }
        let kind = self.value("JobCompType");
        let completes = kind.is_empty() || value::job_completion(kind).is_some();
        self.take("JobCompType", report, |value| match value::job_completion(value) {
            Some(name) => Outcome::set("accounting.job_comp_type", quoted(name)),
            None if value.ends_with("none") => Outcome::set("accounting.job_comp_type", quoted(value)),
            None if value::is_none(value) => Outcome::none(Fate::Moot, ALWAYS),
            None => Outcome::none(
                Fate::Missing,
                "ended jobs go to a file or to Elasticsearch ([accounting]), or `sacct -P`",
            ),
        });
        self.take("JobCompLoc", report, |value| {
            if completes {
                Outcome::set("accounting.job_comp_loc", quoted(value))
            } else {
                Outcome::none(Fate::Moot, "it belongs to JobCompType")
            }
        });
        self.take("FastSchedule", report, |value| match value {
            "2" => Outcome::none(Fate::Taken, "force = true of all nodes"),
            _ => Outcome::none(Fate::Moot, "Slurm has given it up"),
        });
        self.take("SlurmdParameters", report, |value| {
            let mut others: Vec<&str> = value.split(',').map(str::trim).collect();
            let all = others.len();
            others.retain(|word| !word.eq_ignore_ascii_case("config_overrides") && !value::is_none(word));
            match others.as_slice() {
                [] if all > 0 && !value::is_none(value) => Outcome::none(Fate::Taken, "force = true of all nodes"),
                [] => unset(),
                _ => Outcome::none(Fate::Missing, format!("{}: nodes behave as without it", others.join(","))),
            }
        });
    }

    /// Reads host and ports of the controller.
    fn controller(&mut self, nodes: &Nodes, report: &mut Report) {
        let mut all = std::mem::take(&mut self.hosts);
        if let Some(address) = self.apart.remove("BackupAddr") {
            let second = all.get_mut(1);
            let fate = if second.is_some() { Fate::Taken } else { Fate::Moot };
            let text =
                if second.is_some() { "address of the second controller" } else { "there is no BackupController" };
            if let Some(second) = second {
                second.value = format!("{}({})", host(&second.value).0, address.value);
            }
            report.add(&address.origin, "BackupAddr", fate, text);
        }
        for other in all.iter().skip(1) {
            report.add(&other.origin, "SlurmctldHost", Fate::Missing, OTHERS);
        }
        if all.len() > 1 {
            let port = self.apart.get("SlurmctldPort").and_then(|setting| port(&setting.value));
            let port = port.unwrap_or(CONTROLLER_PORT);
            let of = |setting: &Setting| {
                let (host, address) = host(&setting.value);
                (host.to_owned(), format!("{address}:{port}"), setting.origin.clone())
            };
            self.controllers = all.iter().map(of).collect();
        }
        let first = all.into_iter().next();
        let hosts = ["SlurmctldAddr", "ControlAddr"].map(|name| (name, self.apart.remove(name)));
        let addresses = hosts.into_iter().filter_map(|(name, setting)| Some((name, setting?)));
        let named = first.map(|mut setting| {
            setting.value = host(&setting.value).1.to_owned();
            ("SlurmctldHost", setting)
        });
        // An address takes precedence over a name.
        for (at, (name, Setting { origin, value })) in addresses.chain(named).enumerate() {
            let outcome = match at {
                0 => Outcome::set("SlurmctldHost", quoted(&value)),
                _ => Outcome::none(Fate::Moot, "other machines use the address"),
            };
            self.record(&origin, name, Ok(outcome), report);
        }
        let listens = self.apart.contains_key("SlurmctldPort");
        self.take("SlurmctldPort", report, |value| match port(value) {
            Some(port) => Outcome::set("SlurmctldPort", port.to_string()),
            None => Outcome::none(Fate::Wrong, format!("`{value}` is no port")),
        });
        if let Some(group) = nodes.groups.iter().find(|group| group.remote && !listens) {
            let (origin, value) = (group.origin.clone(), CONTROLLER_PORT.to_string());
            self.made.push(TomlKey { from: "SlurmctldPort", key: "SlurmctldPort".to_owned(), value, origin });
        }
        self.take("SlurmdPort", report, |value| match port(value) {
            _ if nodes.here() > 1 || !nodes.are_elsewhere() => {
                Outcome::none(Fate::Moot, "each node daemon of a machine takes a free port")
            }
            Some(port) => Outcome::set("SlurmdPort", port.to_string()),
            None => Outcome::none(Fate::Wrong, format!("`{value}` is no port")),
        });
    }

    fn preemption(&mut self, report: &mut Report) {
        let kind = preempt_type(self.value("PreemptType"));
        self.take("PreemptType", report, |value| match kind {
            Some(PreemptType::None) => Outcome::set("PreemptType", quoted("preempt/none")),
            Some(PreemptType::Qos) => Outcome::set("PreemptType", quoted("preempt/qos")),
            Some(PreemptType::Partition) => Outcome::set("PreemptType", quoted("preempt/partition_prio")),
            None => Outcome::none(Fate::Missing, format!("{value}: there are preempt/qos and preempt/partition_prio")),
        });
        self.take("PreemptMode", report, |value| {
            let gang = words(value).any(|word| word == "GANG");
            let way = |word: String| match word.as_str() {
                "SUSPEND" => Some(PreemptMode::Suspend),
                "REQUEUE" => Some(PreemptMode::Requeue),
                "CANCEL" => Some(PreemptMode::Cancel),
                "OFF" => Some(PreemptMode::Off),
                _ => None,
            };
            let left: Vec<String> = words(value).filter(|w| w != "GANG" && way(w.clone()).is_none()).collect();
            let mode = words(value).find_map(way).unwrap_or(PreemptMode::Off);
            let impossible = mode == PreemptMode::Suspend && (kind == Some(PreemptType::Qos) || !gang);
            let name = match mode {
                _ if impossible => "OFF",
                PreemptMode::Suspend => "SUSPEND",
                // Slurm has no mode of this name any more.
                PreemptMode::Checkpoint => "CHECKPOINT",
                PreemptMode::Requeue => "REQUEUE",
                PreemptMode::Cancel => "CANCEL",
                PreemptMode::Off => "OFF",
            };
            let text = match (name, gang) {
                ("OFF", true) => "GANG".to_owned(),
                (name, true) => format!("{name},GANG"),
                (name, false) => name.to_owned(),
            };
            let mut outcome = Outcome::set("PreemptMode", quoted(&text));
            if impossible {
                outcome.fate = Fate::Missing;
                outcome.text =
                    "jobs are not preempted: SUSPEND needs GANG and PreemptType=preempt/partition_prio".into();
            } else if !left.is_empty() {
                outcome.fate = Fate::Missing;
                outcome.text = format!("{} is left out; the other words are taken", left.join(","));
            }
            outcome
        });
    }

    fn topology(&mut self, report: &mut Report) {
        self.take("TopologyPlugin", report, |value| {
            let known = ["default", "flat", "none", "tree", "block", "ring", "torus", "3d_torus", "torus3d"];
            match known.into_iter().find(|name| is_plugin(value, name)) {
                Some("default" | "flat" | "none") => Outcome::none(Fate::Moot, ALWAYS),
                Some(name) => Outcome::set("TopologyPlugin", quoted(&format!("topology/{name}"))),
                None => {
                    Outcome::none(Fate::Missing, format!("{value}: there are topology/tree, block, ring and 3d_torus"))
                }
            }
        });
        self.take("TopologyParam", report, |value| {
            let is = |word: &&str, name: &str| word.eq_ignore_ascii_case(name);
            let all: Vec<&str> = value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
            let others: Vec<&str> = all
                .iter()
                .copied()
                .filter(|w| !is(w, "dragonfly") && !is(w, "TopoOptional") && !is(w, "RouteTree"))
                .collect();
            let mut outcome = match others.as_slice() {
                [] => Outcome::none(Fate::Taken, String::new()),
                _ => Outcome::none(Fate::Missing, format!("{} has no counterpart", others.join(","))),
            };
            if all.iter().any(|word| is(word, "dragonfly")) {
                outcome.set.push(("TopologyParam".to_owned(), quoted("dragonfly")));
            }
            if all.iter().any(|word| is(word, "RouteTree")) {
                outcome.set.push(("RoutePlugin".to_owned(), quoted("route/topology")));
            }
            if outcome.set.is_empty() && outcome.fate == Fate::Taken {
                outcome = Outcome::none(Fate::Moot, "the topology counts for jobs that ask for it");
            }
            outcome
        });
    }

    /// Reads what is allocated: nodes, sockets, cores or CPUs.
    fn selection(&mut self, report: &mut Report) {
        self.take("SelectType", report, |value| match () {
            () if is_plugin(value, "linear") => {
                Outcome::none(Fate::Taken, "OverSubscribe = \"EXCLUSIVE\" of partitions")
            }
            () if is_plugin(value, "cons_tres") || is_plugin(value, "cons_res") => Outcome::none(Fate::Moot, ALWAYS),
            () => Outcome::none(Fate::Missing, "CPUs, memory and generic resources are allocated as by cons_tres"),
        });
        self.take("SelectTypeParameters", report, |value| {
            let (mut kept, mut lacks) = (Vec::new(), Vec::new());
            for word in value.split(',').map(str::trim).filter(|word| !value::is_none(word)) {
                match SelectTypeParameters::try_from(word.to_owned()) {
                    // This word needs others, which follow or come before it.
                    Err(_) if word.eq_ignore_ascii_case("CR_ONE_TASK_PER_CORE") => kept.push(word),
                    Ok(_) => kept.push(word),
                    Err(why) => lacks.push(why),
                }
            }
            let kept = kept.join(",");
            let read = SelectTypeParameters::try_from(kept.clone());
            lacks.extend(read.as_ref().err().cloned());
            let fate = if lacks.is_empty() { Fate::Taken } else { Fate::Missing };
            let mut outcome = Outcome::none(fate, lacks.join("; "));
            if read.is_ok_and(|read| read != SelectTypeParameters::default()) {
                outcome.set.push(("SelectTypeParameters".to_owned(), quoted(&kept)));
            } else if lacks.is_empty() {
                return Outcome::none(Fate::Moot, ALWAYS);
            }
            outcome
        });
    }
}

/// Returns what a setting without a value becomes.
fn unset() -> Outcome {
    Outcome::none(Fate::Moot, "it has no value")
}

/// Splits `head(10.0.0.1)` into a host's name and the address that other machines use, which may be the name.
fn host(value: &str) -> (&str, &str) {
    let (name, address) = value.split_once('(').unwrap_or((value, ""));
    let (name, address) = (name.trim(), address.trim_end_matches(')').trim());
    (name, if address.is_empty() { name } else { address })
}

/// Returns the first of the ports that a value names.
fn port(value: &str) -> Option<u16> {
    value.split(['-', ',']).next().and_then(|port| port.trim().parse().ok())
}

/// Returns whether a value names this plugin, with or without its kind before a slash.
fn is_plugin(value: &str, name: &str) -> bool {
    value.rsplit('/').next().unwrap_or_default().eq_ignore_ascii_case(name)
}

fn words(value: &str) -> impl Iterator<Item = String> {
    value.split(',').map(|word| word.trim().to_ascii_uppercase()).filter(|word| !word.is_empty())
}

/// Reads `PreemptType`. None: Squall has no such kind.
fn preempt_type(value: &str) -> Option<PreemptType> {
    match value {
        "" => Some(PreemptType::None),
        _ if is_plugin(value, "none") => Some(PreemptType::None),
        _ if is_plugin(value, "qos") => Some(PreemptType::Qos),
        _ if is_plugin(value, "partition_prio") => Some(PreemptType::Partition),
        _ => None,
    }
}
