//! Generic resources such as GPUs: devices of nodes, requests of jobs, and devices allocated to a job or step.

use std::collections::BTreeMap;
use std::ops::Range;

use minicbor::{Decode, Encode};

use crate::config::{Config, GresConfig};
use crate::hostlist;
use crate::job::JobSpec;
use crate::job::gpus::{GpuCount, Gpus};
use crate::limits::GRES_PER_NODE_MAX;
use crate::set::{CoreSet, NodeSet};

/// Requested number of devices of a name (`gpu:2`), or of one type of that name (`gpu:a100:2`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Count {
    /// Name of the resource, such as `gpu`.
    #[n(0)]
    pub name: String,
    /// Type of the device, such as `a100`. None: any type.
    #[n(1)]
    pub model: Option<String>,
    /// Number of devices.
    #[n(2)]
    pub count: u32,
}

impl Count {
    /// Returns name and type of the devices as text: `gpu`, `gpu:a100`.
    pub fn kind(&self) -> String {
        self.model.as_ref().map_or_else(|| self.name.clone(), |model| format!("{}:{model}", self.name))
    }
}

/// Reads a list such as `gpu:2,gpu:a100:1,fpga`. None: malformed.
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

/// Generic resources that a job or step requests, from all its options together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// Devices on each node: `--gres`, `--gpus-per-node`.
    pub per_node: Vec<Count>,
    /// Devices over all nodes: `--gpus`.
    pub per_job: Vec<Count>,
    /// Devices for each task: `--gpus-per-task`.
    pub per_task: Vec<Count>,
    /// `--cpus-per-gpu`; 0: not given.
    pub cpus_per_gpu: u32,
    /// `--mem-per-gpu`, MiB; 0: not given.
    pub mem_per_gpu_mb: u64,
}

impl Ask {
    /// Returns the resources that a job requests. None: its `--gres` is malformed.
    pub fn of_job(spec: &JobSpec) -> Option<Self> {
        match (spec.need.gres.as_deref(), spec.options.get()) {
            (None, None) => Some(Self::default()),
            (gres, _) => Self::of(gres, &spec.options.gpus),
        }
    }

    /// Returns the resources that `--gres` and the options about GPUs request together. None: `--gres` is malformed.
    pub fn of(gres: Option<&str>, gpus: &Gpus) -> Option<Self> {
        let listed = |count: &Option<GpuCount>| count.as_ref().map(|given| given.value.clone()).unwrap_or_default();
        let mut ask = Self {
            per_node: gres.map_or(Some(Vec::new()), |text| parse(text).map(once))?,
            per_job: listed(&gpus.total),
            per_task: listed(&gpus.per_task),
            cpus_per_gpu: gpus.cpus.unwrap_or(0),
            mem_per_gpu_mb: gpus.memory_mb.as_ref().map_or(0, |given| given.value),
        };
        // GPUs in --gres take precedence over --gpus-per-node.
        if ask.per_node.iter().all(|known| known.name != "gpu") {
            ask.per_node.extend(listed(&gpus.per_node));
        }
        for list in [&mut ask.per_node, &mut ask.per_job, &mut ask.per_task] {
            list.retain(|asked| asked.count > 0);
        }
        // The options are not summed. `--gpus-per-task` gives the number for each task; a total in addition to it only
        // determines the number of tasks, and a total in addition to a number for each node that of nodes. If there is
        // a number for each node and one for each task, the tasks share the node's devices.
        if !ask.per_task.is_empty() {
            ask.per_job.clear();
        }
        let of_nodes = &ask.per_node;
        ask.per_job.retain(|total| of_nodes.iter().all(|each| each.name != total.name));
        Some(ask)
    }

    /// Returns whether no generic resources are requested.
    pub fn is_empty(&self) -> bool {
        self.per_node.is_empty() && self.per_job.is_empty() && self.per_task.is_empty()
    }

    /// Returns the counts for each task of resources for which there is no count for each node.
    fn beside_nodes(&self) -> impl Iterator<Item = &Count> {
        self.per_task.iter().filter(|own| self.per_node.iter().all(|each| each.name != own.name))
    }

    /// Returns all counts: for each node, for the job and for each task.
    pub fn counts(&self) -> impl Iterator<Item = &Count> {
        self.per_node.iter().chain(&self.per_job).chain(&self.per_task)
    }

    /// Returns the devices needed on the node with index `place` among the job's `nodes` nodes, for `tasks` tasks on
    /// it.
    pub fn on_node(&self, place: u32, nodes: u32, tasks: u32) -> Vec<Count> {
        let share = |total: u32| total / nodes.max(1) + u32::from(place < total % nodes.max(1));
        let each = self.per_node.iter().cloned();
        let of_job = self.per_job.iter().map(|asked| Count { count: share(asked.count), ..asked.clone() });
        let of_tasks = self.beside_nodes().map(|asked| Count { count: asked.count * tasks, ..asked.clone() });
        // Counts of one type come first: counts of any type get the devices that are left.
        let mut all: Vec<Count> = each.chain(of_job).chain(of_tasks).filter(|asked| asked.count > 0).collect();
        all.sort_by_key(|asked| asked.model.is_none());
        all
    }

    /// Returns the number of devices of each name for a job with `nodes` nodes and `tasks` tasks: `gres/gpu=4` in lists
    /// of trackable resources.
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

    /// Returns the number of GPUs for a job with `nodes` nodes and `tasks` tasks.
    pub fn gpus(&self, nodes: u32, tasks: u32) -> u32 {
        if self.is_empty() { 0 } else { self.totals(nodes, tasks).get("gpu").copied().unwrap_or(0) }
    }
}

/// Removes repetitions of the same name and type: the last count is kept.
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

/// Reads a number of GPUs: `4`, `a100:2`, `a100:2,v100:1`. None: malformed.
pub(crate) fn gpus(value: &str) -> Option<Vec<Count>> {
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none");
    words.map(|word| count(&format!("gpu:{}", word.trim_start_matches("gpu:")))).collect()
}

/// Devices of one name and type on a node that are near the same cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Name of the resource, such as `gpu`.
    pub name: String,
    /// Type of the devices, such as `a100`. None: no type is configured.
    pub model: Option<String>,
    /// Indices of these devices among all devices of the name on the node.
    pub indices: Range<usize>,
    /// Cores near these devices. Empty: all cores are equally near.
    pub cores: CoreSet,
}

/// Devices of a node, and which of these are allocated to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGres {
    /// All devices of the node, grouped by name, type and near cores, in the order of the configuration.
    pub kinds: Vec<Kind>,
    /// Indices of the devices allocated to jobs, by resource name.
    pub held: BTreeMap<String, CoreSet>,
}

impl NodeGres {
    /// Returns the devices of a node as configured, or as an operator set them in `changed` (`gpu:a100:4`). None: the
    /// node has no devices.
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

    /// Returns the indices of free devices of the requested name and type, those near `cores` first.
    fn free(&self, asked: &Count, cores: &CoreSet) -> impl Iterator<Item = usize> {
        let held = self.held.get(&asked.name);
        let fits = |kind: &&Kind| kind.name == asked.name && (asked.model.is_none() || kind.model == asked.model);
        let (near, far): (Vec<&Kind>, Vec<&Kind>) =
            self.kinds.iter().filter(fits).partition(|kind| kind.cores.is_empty() || !kind.cores.is_disjoint(cores));
        let ranges: Vec<Range<usize>> = near.into_iter().chain(far).map(|kind| kind.indices.clone()).collect();
        let all = ranges.into_iter().flatten();
        all.filter(|index| held.is_none_or(|held| !held.contains(*index))).collect::<Vec<_>>().into_iter()
    }

    /// Allocates the requested devices, preferably near `cores`, and returns their indices by name. None: too few are
    /// free, and nothing is allocated.
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

    /// Returns for how many tasks the free devices suffice, if the node first gives the devices in `per_node`. Tasks
    /// share the devices of `per_node` that have the same name. None: there are too few devices even for `per_node`.
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

    /// Returns the counts of all devices, free or not.
    pub fn whole(&self) -> Vec<Count> {
        let count = |kind: &Kind| Count {
            name: kind.name.clone(),
            model: kind.model.clone(),
            count: kind.indices.len() as u32,
        };
        self.kinds.iter().map(count).collect()
    }

    /// Returns the same devices with none of them allocated.
    #[must_use]
    pub fn vacant(&self) -> Self {
        Self { kinds: self.kinds.clone(), held: BTreeMap::new() }
    }

    /// Returns all devices as text: `gpu:a100:4,fpga:1`.
    pub fn text(&self) -> String {
        let words: Vec<String> = self.types().iter().map(|(name, all)| format!("{name}:{}", all.len())).collect();
        words.join(",")
    }

    /// Returns the allocated devices as text: `gpu:a100:2(IDX:0-1),gpu:v100:0(IDX:N/A)`.
    pub fn used_text(&self) -> String {
        let words: Vec<String> = self.among(&self.held).map(|(name, here)| indexed(&name, &here)).collect();
        words.join(",")
    }

    /// Returns a text for each name and type among the devices `held`, in the node's order: `gpu:a100:2(IDX:0-1)`.
    pub fn held_texts(&self, held: &BTreeMap<String, CoreSet>) -> Vec<String> {
        self.among(held).filter(|(_, here)| !here.is_empty()).map(|(name, here)| indexed(&name, &here)).collect()
    }

    /// Returns which of the devices `held` (indices by resource name) are of each name and type (`gpu:a100`).
    fn among(&self, held: &BTreeMap<String, CoreSet>) -> impl Iterator<Item = (String, CoreSet)> {
        self.types().into_iter().map(|(word, all)| {
            let name = word.split(':').next().unwrap_or_default();
            let here =
                held.get(name).into_iter().flat_map(CoreSet::iter).filter(|&index| all.contains(index)).collect();
            (word, here)
        })
    }

    /// Returns the device indices of each name and type (`gpu:a100`), in the node's order. Devices near different cores
    /// are not distinguished here, because users see one type.
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

/// Formats a number of devices with their indices: `gpu:a100:2(IDX:0-1)`.
fn indexed(name: &str, indices: &CoreSet) -> String {
    format!("{name}:{}(IDX:{})", indices.len(), index_text(indices))
}

/// Formats a list of indices: `0-1,3`; `N/A` for an empty list.
pub fn index_text(indices: &CoreSet) -> String {
    let list = indices.iter().map(|index| index as u32).collect::<crate::set::IndexSet>().to_string();
    if list.is_empty() { "N/A".to_owned() } else { list }
}

/// Devices allocated to a job or step: the same devices on each of several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    /// Nodes on which these devices are allocated.
    #[n(0)]
    pub nodes: NodeSet,
    /// Name of the resource, such as `gpu`.
    #[n(1)]
    pub name: String,
    /// Indices of the devices among those of the name on each node.
    #[n(2)]
    pub indices: CoreSet,
}

/// Adds the devices `taken` on a node, to an existing grant if the devices are the same.
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

/// Returns the indices of the devices that `grants` contain on a node, by resource name.
pub fn on_node(grants: &[Grant], node: crate::id::NodeId) -> BTreeMap<String, CoreSet> {
    let mut all: BTreeMap<String, CoreSet> = BTreeMap::new();
    for grant in grants.iter().filter(|grant| grant.nodes.contains(node)) {
        all.entry(grant.name.clone()).or_default().union_with(&grant.indices);
    }
    all
}

/// Reads a `gres.conf`: lines of `Key=Value` as in Slurm. Returns the entries, and the numbers of the lines with
/// AutoDetect. The error names the line.
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
        // The line does not give the number of devices, so the number in the node's `gres` counts.
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
        // faults.md E: AutoDetect is accepted; lines with nothing but AutoDetect define no devices.
        let detecting = "Name=gpu\nAutoDetect=nvml\nNodeName=n1 Name=gpu AutoDetect=rsmi\nAutoDetect=off\n";
        let (lines, detecting) = parse_conf(detecting).expect("it is one");
        assert_eq!((lines.len(), detecting), (1, vec![2, 3]));
        assert!(parse_conf("Name=gpu Foo=1").unwrap_err().contains("`Foo`"));
    }
}
