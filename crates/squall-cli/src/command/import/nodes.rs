//! Lines of nodes: `NodeName`, `NodeSet`, `DownNodes`.

use std::collections::BTreeMap;

use squall_model::limits::GRES_PER_NODE_MAX;
use squall_model::{gres, hostlist};

use super::keys::Rule::{self, Elsewhere, Missing, Moot, Taken};
use super::lines::{self, ConfigLine, Settings};
use super::parse::Origin;
use super::report::{Fate, Report};
use super::value;

const NONE: &[&str] = &["none", "(null)"];

/// All keys of a `NodeName` line but the first, and those that are the same in `[[nodes]]`.
pub(super) const KEYS: &[(&str, Rule)] = &[
    ("BcastAddr", Moot("nodes join by themselves, with an address of their own")),
    ("Boards", Elsewhere),
    ("CoreSpecCount", Elsewhere),
    ("CpuBind", Missing(NONE, "tasks are bound as `srun --cpu-bind` says")),
    ("CPUs", Elsewhere),
    ("CPUSpecList", Elsewhere),
    ("Feature", Taken("Features", value::text)),
    ("Features", Taken("Features", value::text)),
    ("Gres", Elsewhere),
    ("GresConf", Missing(NONE, "devices are listed in gres.conf")),
    ("MemSpecLimit", Elsewhere),
    ("NodeAddr", Elsewhere),
    ("NodeHostname", Elsewhere),
    ("Parameters", Missing(NONE, "nodes have no parameters of their own")),
    ("Port", Moot("each node daemon has a port of its own")),
    ("Procs", Elsewhere),
    ("RealMemory", Elsewhere),
    ("Reason", Moot("it belongs to State")),
    ("RestrictedCoresPerGPU", Missing(&["0"], "no cores are kept for jobs with GPUs")),
    ("Sockets", Elsewhere),
    ("SocketsPerBoard", Elsewhere),
    ("State", Elsewhere),
    ("SuspendTime", Missing(&["NONE", "INFINITE", "-1"], "a node has the time of its partition or of the cluster")),
    ("Topology", Missing(NONE, "topology.conf or topology.yaml names the nodes")),
    ("TRESWeights", Missing(NONE, "the order of nodes follows Weight only")),
];

/// Nodes of one line that are described alike.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) origin: Origin,
    pub(super) names: Vec<String>,
    /// Keys of `[[nodes]]` with their values as TOML, without the name.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Whether the nodes run on other machines.
    pub(super) remote: bool,
    pub(super) features: Vec<String>,
}

/// All nodes, and the named sets of nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) groups: Vec<Group>,
    sets: BTreeMap<String, Vec<String>>,
    known: BTreeMap<String, Origin>,
    defaults: Settings,
}

impl Nodes {
    /// Reads a `NodeName` line. `here`: names and addresses of this machine.
    pub(super) fn line(&mut self, line: &ConfigLine<'_>, names: &str, here: &[String], report: &mut Report) {
        let own = line.settings(KEYS, "nodes", report);
        if names.eq_ignore_ascii_case("DEFAULT") {
            line.say(report, "", Fate::Taken, "defaults of the NodeName lines that follow");
            Self::state(line, &own, "NAME", report);
            self.defaults.extend(own);
            return;
        }
        let all = match hostlist::expand(names) {
            Ok(all) => all,
            Err(problem) => return line.say(report, "", Fate::Wrong, format!("`{names}`: {problem}")),
        };
        let mut merged = self.defaults.clone();
        // A line with another spelling of a key replaces the default.
        for (name, others) in [("CPUs", "Procs"), ("Features", "Feature"), ("Sockets", "SocketsPerBoard")] {
            for (name, other) in [(name, others), (others, name)] {
                if own.contains_key(name) {
                    merged.remove(other);
                }
            }
        }
        merged.extend(own.clone());
        let mut fields = lines::fields(KEYS, "nodes", &merged);
        hardware(line, &merged, &mut fields, report);
        devices(line, &merged, &mut fields, report);
        let state = merged.get("State").map(|state| state.to_ascii_uppercase()).unwrap_or_default();
        if ["CLOUD", "FUTURE"].contains(&state.as_str()) {
            fields.push(("state", format!("\"{state}\"")));
        }
        Self::state(line, &own, names, report);
        self.add(line, &all, &lines::once(fields), &merged, here, report);
    }

    /// Adds the nodes of a line; those on this machine and others apart.
    fn add(
        &mut self,
        line: &ConfigLine<'_>,
        names: &[String],
        fields: &[(&'static str, String)],
        settings: &Settings,
        here: &[String],
        report: &mut Report,
    ) {
        let mut parts = [Vec::new(), Vec::new()];
        let hosts = |key: &str| settings.get(key).and_then(|list| hostlist::expand(list).ok());
        let (hosts, addresses) = (hosts("NodeHostname"), hosts("NodeAddr"));
        for (at, name) in names.iter().enumerate() {
            if let Some(before) = self.known.get(name) {
                line.say(report, "", Fate::Wrong, format!("node `{name}` stands in {before} already"));
                continue;
            }
            self.known.insert(name.clone(), line.origin.clone());
            let of = |list: &Option<Vec<String>>| list.as_ref().and_then(|list| list.get(at).or(list.last()).cloned());
            let machine = of(&hosts).or_else(|| of(&addresses)).unwrap_or_else(|| name.clone());
            let is_here = here.iter().any(|known| known.eq_ignore_ascii_case(&machine));
            parts[usize::from(!is_here)].push(name.clone());
        }
        if parts.iter().all(Vec::is_empty) {
            return;
        }
        let name = ("NodeName", value::quoted(&hostlist::compress(parts.iter().flatten())));
        line.say(report, "", Fate::Taken, lines::shown(&[&[name], fields].concat()));
        for key in ["NodeAddr", "NodeHostname"].iter().filter(|key| settings.contains_key(*key)) {
            let why = if parts[1].is_empty() {
                "nodes of this machine need no address"
            } else {
                "nodes of other machines join by themselves: see `squall token`"
            };
            line.say(report, key, Fate::Moot, why);
        }
        let list = |key: &str| settings.get(key).map_or("", String::as_str).split(',');
        let features = list("Feature").chain(list("Features")).map(str::trim).filter(|word| !word.is_empty());
        let features: Vec<String> = features.map(str::to_owned).collect();
        for (names, remote) in parts.into_iter().zip([false, true]).filter(|(names, _)| !names.is_empty()) {
            let (origin, fields, features) = (line.origin.clone(), fields.to_vec(), features.clone());
            self.groups.push(Group { origin, names, fields, remote, features });
        }
    }

    /// Reports the state in which nodes start.
    fn state(line: &ConfigLine<'_>, own: &Settings, names: &str, report: &mut Report) {
        let Some(state) = own.get("State") else { return };
        match state.to_ascii_uppercase().as_str() {
            "UNKNOWN" | "IDLE" => line.say(report, "State", Fate::Moot, "nodes are idle when they have joined"),
            state @ ("CLOUD" | "FUTURE") => line.say(report, "State", Fate::Taken, format!("state = \"{state}\"")),
            "EXTERNAL" => {
                line.say(report, "State", Fate::Missing, "the nodes are shown as unknown until they join");
            }
            _ => {
                let state = state.to_ascii_lowercase();
                let text = format!(
                    "nodes are idle when they have joined: run `scontrol update nodename={names} state={state} \
                     reason=...`"
                );
                line.say(report, "State", Fate::Missing, text);
            }
        }
    }

    /// Reads a `NodeSet` line. Nodes must stand before it or after it, so the sets are read when all nodes are known.
    pub(super) fn set(&mut self, line: &ConfigLine<'_>, name: &str, report: &mut Report) {
        let mut members = Vec::new();
        for pair in line.pairs {
            match pair.key.to_ascii_lowercase().as_str() {
                "feature" => {
                    let has = |group: &&Group| group.features.contains(&pair.value);
                    members.extend(self.groups.iter().filter(has).flat_map(|group| group.names.clone()));
                }
                "nodes" => match hostlist::expand(&pair.value) {
                    Ok(names) => members.extend(names),
                    Err(problem) => line.say(report, "Nodes", Fate::Wrong, format!("`{}`: {problem}", pair.value)),
                },
                _ => line.say(report, &pair.key, Fate::Unknown, lines::unknown(&pair.key, &["Feature", "Nodes"])),
            }
        }
        members.sort();
        members.dedup();
        let list = hostlist::compress(&members);
        line.say(report, "", Fate::Taken, format!("`{list}` in the partitions that name it"));
        self.sets.insert(name.to_owned(), members);
    }

    /// Returns the nodes of a partition's list, in which names of sets stand for their nodes, and the names that are no
    /// nodes.
    pub(super) fn members(&self, list: &str) -> Result<(Vec<String>, Vec<String>), String> {
        let names = hostlist::expand(list).map_err(|problem| format!("`{list}`: {problem}"))?;
        let resolved = names.into_iter().flat_map(|name| self.sets.get(&name).cloned().unwrap_or(vec![name]));
        Ok(resolved.partition(|name| self.known.contains_key(name)))
    }

    /// Leaves out resources of nodes that `GresTypes` does not name.
    pub(super) fn check_devices(&mut self, types: &[String], report: &mut Report) {
        if types.is_empty() {
            return;
        }
        for group in &mut self.groups {
            let (origin, names) = (&group.origin, &group.names);
            group.fields.retain(|(key, text)| {
                let counts = if *key == "Gres" { gres::parse(text.trim_matches('"')) } else { None };
                let unnamed = counts.into_iter().flatten().find(|count| !types.contains(&count.name));
                if let Some(count) = &unnamed {
                    let key = format!("NodeName={} Gres", hostlist::compress(names));
                    let text = format!("GresTypes does not name `{}`: add it there; Gres is left out", count.name);
                    report.add(origin, key, Fate::Wrong, text);
                }
                unnamed.is_none()
            });
        }
    }

    /// Returns whether some nodes run on other machines.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.groups.iter().any(|group| group.remote)
    }

    /// Returns the number of nodes on this machine.
    pub(super) fn here(&self) -> usize {
        self.groups.iter().filter(|group| !group.remote).map(|group| group.names.len()).sum()
    }
}

/// Adds the fields of CPUs and memory.
fn hardware(line: &ConfigLine<'_>, settings: &Settings, fields: &mut Vec<(&'static str, String)>, report: &mut Report) {
    let mut number = |key: &'static str| {
        let value = settings.get(key)?;
        let number = value.parse::<u32>();
        if number.is_err() {
            line.say(report, key, Fate::Wrong, format!("`{value}` is no whole number"));
        }
        number.ok()
    };
    let boards = number("Boards");
    let per_board = number("SocketsPerBoard");
    let sockets = number("Sockets").or_else(|| Some(per_board?.saturating_mul(boards.unwrap_or(1))));
    let cpus = number("CPUs").or_else(|| number("Procs"));
    let of = |key: &str| settings.get(key).and_then(|value| value.parse::<u32>().ok());
    let parts = [sockets, of("CoresPerSocket"), of("ThreadsPerCore")];
    let product = parts.iter().flatten().fold(1_u32, |product, part| product.saturating_mul(*part));
    let cpus = cpus.or_else(|| parts.iter().any(Option::is_some).then_some(product));
    fields.extend(sockets.map(|sockets| ("Sockets", sockets.to_string())));
    fields.extend(cpus.map(|cpus| ("CPUs", cpus.to_string())));
    let mut memory = |key: &'static str| match value::memory(settings.get(key)?) {
        Ok(megabytes) => megabytes.parse::<u64>().ok(),
        Err(problem) => {
            line.say(report, key, Fate::Wrong, problem);
            None
        }
    };
    let (all, kept) = (memory("RealMemory"), memory("MemSpecLimit").unwrap_or(0));
    fields.extend(all.map(|all| ("RealMemory", all.to_string())));
    match all {
        Some(all) if kept >= all => line.say(report, "MemSpecLimit", Fate::Wrong, "it leaves no memory to jobs"),
        _ if kept > 0 => fields.push(("MemSpecLimit", kept.to_string())),
        _ => {}
    }
    kept_cores(line, settings, fields, report);
}

/// Adds the cores that are kept for the system.
fn kept_cores(
    line: &ConfigLine<'_>,
    settings: &Settings,
    fields: &mut Vec<(&'static str, String)>,
    report: &mut Report,
) {
    for (key, read) in [("CoreSpecCount", value::number as fn(&str) -> _), ("CPUSpecList", value::text)] {
        let Some(given) = settings.get(key).filter(|given| !value::is_none(given) && *given != "0") else { continue };
        match read(given) {
            Ok(value) => fields.push((key, value)),
            Err(problem) => line.say(report, key, Fate::Wrong, problem),
        }
    }
}

/// Adds the generic resources.
fn devices(line: &ConfigLine<'_>, settings: &Settings, fields: &mut Vec<(&'static str, String)>, report: &mut Report) {
    let Some(text) = settings.get("Gres").filter(|text| !value::is_none(text)) else { return };
    let plain = text.replace(":no_consume", "");
    let counts = gres::parse(&plain).filter(|all| all.iter().all(|one| one.count as usize <= GRES_PER_NODE_MAX));
    match counts {
        Some(_) if plain != *text => {
            line.say(report, "Gres", Fate::Missing, "no_consume is left out: a resource has as many users as devices");
            fields.push(("Gres", value::quoted(&plain)));
        }
        Some(_) => fields.push(("Gres", value::quoted(text))),
        None => {
            let text = format!("`{text}` is left out: NAME[:TYPE]:COUNT is needed, with at most {GRES_PER_NODE_MAX}");
            line.say(report, "Gres", Fate::Missing, text);
        }
    }
}

/// Reports a `DownNodes` line.
pub(super) fn down(line: &ConfigLine<'_>, names: &str, report: &mut Report) {
    let of = |key: &str| line.pairs.iter().find(|pair| pair.key.eq_ignore_ascii_case(key)).map(|pair| &*pair.value);
    let (state, reason) = (of("State").unwrap_or("DOWN").to_ascii_lowercase(), of("Reason").unwrap_or("..."));
    let text = format!("run `scontrol update nodename={names} state={state} reason=\"{reason}\"` after the start");
    line.say(report, "", Fate::Missing, text);
}
