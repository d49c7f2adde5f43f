//! Generic resources such as GPUs: what nodes have, what jobs ask for, which of them a job or step holds.

use std::collections::BTreeMap;
use std::ops::Range;

use minicbor::{Decode, Encode};

use crate::config::{Config, GresConfig};
use crate::hostlist;
use crate::job::JobSpec;
use crate::job::gpus::{GpuCount, Gpus};
use crate::limits::GRES_PER_NODE_MAX;
use crate::set::{CoreSet, NodeSet};

/// So many of a name: `gpu:2`, or of one type of it: `gpu:a100:2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Count {
    /// `gpu`.
    #[n(0)]
    pub name: String,
    /// `a100`; None: any.
    #[n(1)]
    pub model: Option<String>,
    /// How many.
    #[n(2)]
    pub count: u32,
}

impl Count {
    /// What is counted: `gpu`, `gpu:a100`.
    pub fn kind(&self) -> String {
        self.model.as_ref().map_or_else(|| self.name.clone(), |model| format!("{}:{model}", self.name))
    }
}

/// Reads `gpu:2,gpu:a100:1,fpga`. None: that is no such list.
pub fn parse(text: &str) -> Option<Vec<Count>> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none");
    words.map(|word| count(word.trim_start_matches("gres:").trim_start_matches("gres/"))).collect()
}

fn count(word: &str) -> Option<Count> {
    let word = word.split('(').next()?;
    let (name, rest) = word.split_once(':').map_or((word, None), |(name, rest)| (name, Some(rest)));
    let (model, count) = match rest.map(|rest| (rest, rest.rsplit_once(':'))) {
        None => (None, 1),
        Some((_, Some((model, number)))) => (Some(model), number.parse().ok()?),
        Some((rest, None)) if rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') => (None, rest.parse().ok()?),
        Some((rest, None)) => (Some(rest), 1),
    };
    let fine = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    let valid = fine(name) && model.is_none_or(fine);
    valid.then(|| Count { name: name.to_owned(), model: model.map(str::to_owned), count })
}

/// What a job or step asks for, with all options together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// `--gres`, `--gpus-per-node`: on each node.
    pub per_node: Vec<Count>,
    /// `--gpus`: over all nodes.
    pub per_job: Vec<Count>,
    /// `--gpus-per-task`: for each task.
    pub per_task: Vec<Count>,
    /// `--cpus-per-gpu`.
    pub cpus_per_gpu: u32,
    /// `--mem-per-gpu`, MiB.
    pub mem_per_gpu_mb: u64,
}

impl Ask {
    /// What a job asks for. None: its `--gres` can't be understood.
    pub fn of_job(spec: &JobSpec) -> Option<Self> {
        match (spec.need.gres.as_deref(), spec.options.get()) {
            (None, None) => Some(Self::default()),
            (gres, _) => Self::of(gres, &spec.options.gpus),
        }
    }

    /// Returns what `--gres` and the options about GPUs ask for together. None: `--gres` can't be understood.
    pub fn of(gres: Option<&str>, gpus: &Gpus) -> Option<Self> {
        let listed = |count: &Option<GpuCount>| count.as_ref().map(|given| given.value.clone()).unwrap_or_default();
        let mut ask = Self {
            per_node: gres.map_or(Some(Vec::new()), |text| parse(text).map(once))?,
            per_job: listed(&gpus.total),
            per_task: listed(&gpus.per_task),
            cpus_per_gpu: gpus.cpus.unwrap_or(0),
            mem_per_gpu_mb: gpus.memory_mb.as_ref().map_or(0, |given| given.value),
        };
        // --gres goes before it.
        if ask.per_node.iter().all(|known| known.name != "gpu") {
            ask.per_node.extend(listed(&gpus.per_node));
        }
        for list in [&mut ask.per_node, &mut ask.per_job, &mut ask.per_task] {
            list.retain(|asked| asked.count > 0);
        }
        // The options do not add up: `--gpus-per-task` says how many there are for each, and a total in addition to it or
        // to a number for each node says of how many tasks or nodes. Where nodes and tasks have a number, tasks share
        // what their node gives.
        if !ask.per_task.is_empty() {
            ask.per_job.clear();
        }
        let of_nodes = &ask.per_node;
        ask.per_job.retain(|total| of_nodes.iter().all(|each| each.name != total.name));
        Some(ask)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.per_node.is_empty() && self.per_job.is_empty() && self.per_task.is_empty()
    }

    /// What tasks need on top of what their node gives anyway.
    fn beside_nodes(&self) -> impl Iterator<Item = &Count> {
        self.per_task.iter().filter(|own| self.per_node.iter().all(|each| each.name != own.name))
    }

    /// Every count that is asked for.
    pub fn counts(&self) -> impl Iterator<Item = &Count> {
        self.per_node.iter().chain(&self.per_job).chain(&self.per_task)
    }

    /// What the node at a place among `nodes` must give, for so many tasks there.
    pub fn on_node(&self, place: u32, nodes: u32, tasks: u32) -> Vec<Count> {
        let share = |total: u32| total / nodes.max(1) + u32::from(place < total % nodes.max(1));
        let each = self.per_node.iter().cloned();
        let of_job = self.per_job.iter().map(|asked| Count { count: share(asked.count), ..asked.clone() });
        let of_tasks = self.beside_nodes().map(|asked| Count { count: asked.count * tasks, ..asked.clone() });
        // Types first: what may be any takes what is left.
        let mut all: Vec<Count> = each.chain(of_job).chain(of_tasks).filter(|asked| asked.count > 0).collect();
        all.sort_by_key(|asked| asked.model.is_none());
        all
    }

    /// How many of each name a job has over so many nodes and tasks: `gres/gpu=4` in lists of trackable resources.
    pub fn totals(&self, nodes: u32, tasks: u32) -> BTreeMap<String, u32> {
        let mut totals = BTreeMap::new();
        let of_nodes = self.per_node.iter().map(|asked| (asked, nodes));
        let of_job = self.per_job.iter().map(|asked| (asked, 1));
        let of_tasks = self.beside_nodes().map(|asked| (asked, tasks));
        for (asked, times) in of_nodes.chain(of_job).chain(of_tasks) {
            *totals.entry(asked.name.clone()).or_default() += asked.count.saturating_mul(times);
        }
        totals
    }

    /// How many GPUs a job has over so many nodes and tasks.
    pub fn gpus(&self, nodes: u32, tasks: u32) -> u32 {
        if self.is_empty() { 0 } else { self.totals(nodes, tasks).get("gpu").copied().unwrap_or(0) }
    }
}

/// Each kind once: the last one counts.
fn once(counts: Vec<Count>) -> Vec<Count> {
    let mut all: Vec<Count> = Vec::new();
    for asked in counts {
        match all.iter_mut().find(|known| known.name == asked.name && known.model == asked.model) {
            Some(known) => known.count = asked.count,
            None => all.push(asked),
        }
    }
    all
}

/// `4`, `a100:2`, `a100:2,v100:1`.
pub(crate) fn gpus(value: &str) -> Option<Vec<Count>> {
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none");
    words.map(|word| count(&format!("gpu:{}", word.trim_start_matches("gpu:")))).collect()
}

/// Devices of one name and type on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// `gpu`.
    pub name: String,
    /// `a100`.
    pub model: Option<String>,
    /// Their indices among the node's devices of that name.
    pub indices: Range<usize>,
    /// Cores that are near them; empty: all.
    pub cores: CoreSet,
}

/// What a node has, and what of it is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGres {
    /// By name in the configuration's order.
    pub kinds: Vec<Kind>,
    /// Indices that jobs hold, by name.
    pub held: BTreeMap<String, CoreSet>,
}

impl NodeGres {
    /// What the configuration says of a node, or an operator (`gpu:a100:4`); None: it has none.
    pub fn of(config: &Config, node: &str, changed: Option<&str>) -> Option<Self> {
        let entry = config.nodes.iter().find(|entry| hostlist::contains(&entry.name, node));
        let counts = changed.or_else(|| Some(&*entry?.gres)).and_then(parse).unwrap_or_default();
        let lines = || {
            let applies = |line: &&GresConfig| line.node_name.is_empty() || hostlist::contains(&line.node_name, node);
            config.gres.iter().filter(applies)
        };
        let mut all = Self::default();
        if counts.is_empty() && changed.is_none() {
            lines().for_each(|line| all.add(&line.name, line.model(), line.devices(), line.near()));
        }
        for Count { name, model, count } in counts {
            let mut left = count;
            for line in lines().filter(|line| line.name == name && (model.is_none() || line.model() == model)) {
                let here = line.devices().min(left);
                all.add(&name, line.model().or_else(|| model.clone()), here, line.near());
                left -= here;
            }
            all.add(&name, model, left, CoreSet::new());
        }
        (!all.kinds.is_empty()).then_some(all)
    }

    fn add(&mut self, name: &str, model: Option<String>, count: u32, cores: CoreSet) {
        let first = self.kinds.iter().filter(|kind| kind.name == name).map(|kind| kind.indices.end).max().unwrap_or(0);
        let indices = first..first + (count as usize).min(GRES_PER_NODE_MAX - first.min(GRES_PER_NODE_MAX));
        if !indices.is_empty() {
            self.kinds.push(Kind { name: name.to_owned(), model, indices, cores });
        }
    }

    /// Free devices that will do, those near `cores` first.
    fn free(&self, asked: &Count, cores: &CoreSet) -> impl Iterator<Item = usize> {
        let held = self.held.get(&asked.name);
        let fits = |kind: &&Kind| kind.name == asked.name && (asked.model.is_none() || kind.model == asked.model);
        let (near, far): (Vec<&Kind>, Vec<&Kind>) =
            self.kinds.iter().filter(fits).partition(|kind| kind.cores.is_empty() || !kind.cores.is_disjoint(cores));
        let ranges: Vec<Range<usize>> = near.into_iter().chain(far).map(|kind| kind.indices.clone()).collect();
        let all = ranges.into_iter().flatten();
        all.filter(|index| held.is_none_or(|held| !held.contains(*index))).collect::<Vec<_>>().into_iter()
    }

    /// Takes what is asked for, or nothing: by name, which.
    pub fn take(&mut self, wanted: &[Count], cores: &CoreSet) -> Option<BTreeMap<String, CoreSet>> {
        let mut taken: BTreeMap<String, CoreSet> = BTreeMap::new();
        let before = self.held.clone();
        for asked in wanted {
            let indices: CoreSet = self.free(asked, cores).take(asked.count as usize).collect();
            if indices.len() < asked.count as usize {
                self.held = before;
                return None;
            }
            self.held.entry(asked.name.clone()).or_default().union_with(&indices);
            taken.entry(asked.name.clone()).or_default().union_with(&indices);
        }
        Some(taken)
    }

    /// How many of the tasks that ask for so much each there are devices for, beside what the node must give anyway;
    /// None: not even for that.
    pub fn tasks(&self, per_node: &[Count], per_task: &[Count]) -> Option<u32> {
        let mut rest = self.clone();
        rest.take(per_node, &CoreSet::new())?;
        let most = |asked: &Count| {
            let shared = per_node.iter().filter(|each| each.name == asked.name).map(|each| each.count).sum::<u32>();
            let devices = if shared > 0 { shared } else { rest.free(asked, &CoreSet::new()).count() as u32 };
            devices / asked.count.max(1)
        };
        Some(per_task.iter().map(most).min().unwrap_or(u32::MAX))
    }

    /// All devices.
    pub fn whole(&self) -> Vec<Count> {
        let count = |kind: &Kind| Count {
            name: kind.name.clone(),
            model: kind.model.clone(),
            count: kind.indices.len() as u32,
        };
        self.kinds.iter().map(count).collect()
    }

    /// As if nothing were held.
    #[must_use]
    pub fn vacant(&self) -> Self {
        Self { kinds: self.kinds.clone(), held: BTreeMap::new() }
    }

    /// Returns all devices: `gpu:a100:4,fpga:1`.
    pub fn text(&self) -> String {
        let words: Vec<String> = self.types().iter().map(|(name, all)| format!("{name}:{}", all.len())).collect();
        words.join(",")
    }

    /// Returns the devices that jobs hold: `gpu:a100:2(IDX:0-1),gpu:v100:0(IDX:N/A)`.
    pub fn used_text(&self) -> String {
        let words: Vec<String> = self.among(&self.held).map(|(name, here)| indexed(&name, &here)).collect();
        words.join(",")
    }

    /// Returns a word for each name and type among `held`, in the node's order: `gpu:a100:2(IDX:0-1)`.
    pub fn held_texts(&self, held: &BTreeMap<String, CoreSet>) -> Vec<String> {
        self.among(held).filter(|(_, here)| !here.is_empty()).map(|(name, here)| indexed(&name, &here)).collect()
    }

    /// Returns for each name and type (`gpu:a100`) the devices among `held`, which is by name.
    fn among(&self, held: &BTreeMap<String, CoreSet>) -> impl Iterator<Item = (String, CoreSet)> {
        self.types().into_iter().map(|(word, all)| {
            let name = word.split(':').next().unwrap_or_default();
            let here =
                held.get(name).into_iter().flat_map(CoreSet::iter).filter(|&index| all.contains(index)).collect();
            (word, here)
        })
    }

    /// Returns the devices of each name and type (`gpu:a100`), in the node's order. Devices that are near different cores
    /// are of one type for users.
    fn types(&self) -> Vec<(String, CoreSet)> {
        let mut types: Vec<(String, CoreSet)> = Vec::new();
        for kind in &self.kinds {
            let word = kind.model.as_ref().map_or_else(|| kind.name.clone(), |model| format!("{}:{model}", kind.name));
            match types.iter_mut().find(|(known, _)| *known == word) {
                Some((_, all)) => all.union_with(&kind.indices.clone().collect()),
                None => types.push((word, kind.indices.clone().collect())),
            }
        }
        types
    }
}

/// `gpu:a100:2(IDX:0-1)`.
fn indexed(name: &str, indices: &CoreSet) -> String {
    format!("{name}:{}(IDX:{})", indices.len(), index_text(indices))
}

/// `0-1,3`; `N/A` for none.
pub fn index_text(indices: &CoreSet) -> String {
    let list = indices.iter().map(|index| index as u32).collect::<crate::set::IndexSet>().to_string();
    if list.is_empty() { "N/A".to_owned() } else { list }
}

/// The same devices on each node of a set, held by a job or step.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    /// The nodes.
    #[n(0)]
    pub nodes: NodeSet,
    /// `gpu`.
    #[n(1)]
    pub name: String,
    /// Which of each node's devices of that name.
    #[n(2)]
    pub indices: CoreSet,
}

/// Adds a node's devices, joining an existing grant where they are the same.
pub fn grant(grants: &mut Vec<Grant>, node: crate::id::NodeId, taken: BTreeMap<String, CoreSet>) {
    for (name, indices) in taken {
        match grants.iter_mut().find(|grant| grant.name == name && grant.indices == indices) {
            Some(grant) => {
                grant.nodes.insert(node);
            }
            None => grants.push(Grant { nodes: NodeSet::one(node), name, indices }),
        }
    }
}

/// What of these is on a node, by name.
pub fn on_node(grants: &[Grant], node: crate::id::NodeId) -> BTreeMap<String, CoreSet> {
    let mut all: BTreeMap<String, CoreSet> = BTreeMap::new();
    for grant in grants.iter().filter(|grant| grant.nodes.contains(node)) {
        all.entry(grant.name.clone()).or_default().union_with(&grant.indices);
    }
    all
}

/// Reads a `gres.conf`: lines of `Key=Value`, as Slurm has them. The error names the line.
pub fn parse_conf(text: &str) -> Result<(Vec<GresConfig>, Vec<usize>), String> {
    let (mut all, mut detecting) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (mut entry, mut detects) = (GresConfig::default(), false);
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("line {number}: `{word}`: use KEY=VALUE"))?;
            let value = value.to_owned();
            match key.to_ascii_lowercase().as_str() {
                "nodename" => entry.node_name = value,
                "name" => entry.name = value,
                "type" => entry.kind = value,
                "file" | "multiplefiles" => entry.file = value,
                "count" => entry.count = value.parse().map_err(|_| format!("line {number}: `{word}`: no number"))?,
                "cores" | "cpus" => entry.cores = value,
                "autodetect" if value.eq_ignore_ascii_case("off") => {}
                "autodetect" => detects = true,
                "flags" | "links" => {}
                _ => {
                    return Err(format!(
                        "line {number}: `{key}` is not known; use NodeName, Name, Type, File, Count, Cores"
                    ));
                }
            }
        }
        if detects {
            detecting.push(number);
        }
        // How many devices such a line is about is not said: what the node's `gres` says counts.
        let unsaid = detects && entry.count == 0 && entry.file.is_empty();
        if !entry.name.is_empty() && !unsaid {
            entry.check().map_err(|problem| format!("line {number}: {problem}"))?;
            all.push(entry);
        }
    }
    Ok((all, detecting))
}

#[cfg(test)]
mod tests {
    use super::{Ask, Count, NodeGres, parse, parse_conf};
    use crate::config::{Config, NodeConfig};
    use crate::job::gpus::{GpuCount, Gpus};
    use crate::set::CoreSet;

    fn counts(name: &str, model: Option<&str>, count: u32) -> Count {
        Count { name: name.into(), model: model.map(str::to_owned), count }
    }

    #[test]
    fn names_types_and_counts_are_told_apart() {
        let all = parse("gpu:2,gpu:a100:1,fpga,gpu:v100,gres:x:3").expect("it is a list");
        let expected = [
            counts("gpu", None, 2),
            counts("gpu", Some("a100"), 1),
            counts("fpga", None, 1),
            counts("gpu", Some("v100"), 1),
            counts("x", None, 3),
        ];
        assert_eq!(all, expected);
        assert_eq!(parse("none"), Some(vec![]));
        for wrong in ["gpu:", "gpu:a:b", ":2", "gpu:-1", "g u:1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn options_add_up_to_what_nodes_give() {
        let ask = |gpus: &Gpus| Ask::of(None, gpus).expect("it is understood");
        let five = ask(&Gpus { total: GpuCount::parse("5"), ..Gpus::default() });
        let shares: Vec<u32> = (0..2).map(|place| five.on_node(place, 2, 1)[0].count).collect();
        assert_eq!((shares, five.totals(2, 2)["gpu"]), (vec![3, 2], 5));
        let of_tasks = ask(&Gpus { per_task: GpuCount::parse("a100:2"), ..Gpus::default() });
        assert_eq!(of_tasks.on_node(0, 1, 3), [counts("gpu", Some("a100"), 6)]);
        let mut both = Gpus { total: GpuCount::parse("2"), per_node: GpuCount::parse("1"), ..Gpus::default() };
        assert_eq!(ask(&both).on_node(0, 2, 1), [counts("gpu", None, 1)]);
        both.per_task = GpuCount::parse("1");
        assert_eq!(ask(&both).on_node(0, 1, 1), [counts("gpu", None, 1)], "they say the same");
    }

    #[test]
    fn lines_of_a_gres_conf_give_types_and_cores() {
        let lines = "# ours\nNodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-1\nName=gpu Type=v100 Count=1 Cores=2,3";
        let (gres, _) = parse_conf(lines).expect("it is one");
        let node = NodeConfig { name: "n[1-3]".into(), gres: "gpu:3".into(), ..NodeConfig::default() };
        let config = Config { nodes: vec![node], gres, ..Config::default() };
        let mut n1 = NodeGres::of(&config, "n1", None).expect("it has some");
        assert_eq!(n1.text(), "gpu:a100:2,gpu:v100:1");
        assert_eq!(NodeGres::of(&config, "n3", None).expect("it has some").text(), "gpu:v100:1,gpu:2");
        let near: CoreSet = [2].into_iter().collect();
        let taken = n1.take(&[counts("gpu", None, 1)], &near).expect("there is one");
        assert_eq!(taken["gpu"].iter().collect::<Vec<_>>(), [2], "the one beside the core");
        assert_eq!(n1.used_text(), "gpu:a100:0(IDX:N/A),gpu:v100:1(IDX:2)");
        assert_eq!(n1.held_texts(&taken), ["gpu:v100:1(IDX:2)"]);
        assert_eq!(n1.take(&[counts("gpu", Some("v100"), 1)], &near), None);
        assert_eq!(n1.tasks(&[counts("gpu", None, 1)], &[counts("gpu", None, 1)]), Some(1));
        let (lines, _) = parse_conf("Name=gpu File=/dev/a Cores=0\nName=gpu File=/dev/b Cores=1").expect("it is one");
        let mut two = NodeGres::of(&Config { gres: lines, ..Config::default() }, "n", None).expect("it has some");
        two.take(&[counts("gpu", None, 2)], &CoreSet::new()).expect("there are two");
        assert_eq!((two.text(), two.used_text()), ("gpu:2".into(), "gpu:2(IDX:0-1)".into()), "of one kind");
        // faults.md E: AutoDetect is known; lines that only say it name no devices.
        let detecting = "Name=gpu\nAutoDetect=nvml\nNodeName=n1 Name=gpu AutoDetect=rsmi\nAutoDetect=off\n";
        let (lines, detecting) = parse_conf(detecting).expect("it is one");
        assert_eq!((lines.len(), detecting), (1, vec![2, 3]));
        assert!(parse_conf("Name=gpu Foo=1").unwrap_err().contains("`Foo`"));
    }
}
