//! Generic resources such as GPUs: devices of nodes, requests of jobs, and devices allocated to a job or step.

use std::collections::BTreeMap;
use std::ops::Range;

use minicbor::{Decode, Encode};

use crate::config::{Config, GresConfig};
use crate::found::FoundDevice;
use crate::hostlist;
use crate::limits::GRES_PER_NODE_MAX;
use crate::linked;
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
    /// Whether the job wants only CPUs near its devices: `--gres-flags=enforce-binding`.
    pub bound: bool,
}

impl Ask {
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
        let of_tasks =
            self.beside_nodes().map(|asked| Count { count: asked.count.saturating_mul(tasks), ..asked.clone() });
        // Counts of one type come first: counts of any type get the devices that are left.
        let mut all: Vec<Count> = each.chain(of_job).chain(of_tasks).filter(|asked| asked.count > 0).collect();
        all.sort_by_key(|asked| asked.model.is_none());
        all
    }

    /// Returns the number of devices of each name and type that a job with `nodes` nodes and `tasks` tasks asks for.
    pub fn kinds(&self, nodes: u32, tasks: u32) -> Vec<Count> {
        let of_nodes = self.per_node.iter().map(|asked| (asked, nodes));
        let of_job = self.per_job.iter().map(|asked| (asked, 1));
        let of_tasks = self.beside_nodes().map(|asked| (asked, tasks));
        let times = |(asked, times): (&Count, u32)| Count { count: asked.count.saturating_mul(times), ..asked.clone() };
        of_nodes.chain(of_job).chain(of_tasks).map(times).collect()
    }

    /// Returns the number of devices of each name for a job with `nodes` nodes and `tasks` tasks: `gres/gpu=4` in lists
    /// of trackable resources.
    pub fn totals(&self, nodes: u32, tasks: u32) -> BTreeMap<String, u32> {
        let mut totals = BTreeMap::new();
        let of_nodes = self.per_node.iter().map(|asked| (asked, nodes));
        let of_job = self.per_job.iter().map(|asked| (asked, 1));
        let of_tasks = self.beside_nodes().map(|asked| (asked, tasks));
        for (asked, times) in of_nodes.chain(of_job).chain(of_tasks) {
            let total: &mut u32 = totals.entry(asked.name.clone()).or_default();
            *total = total.saturating_add(asked.count.saturating_mul(times));
        }
        totals
    }

    /// Returns the number of GPUs for a job with `nodes` nodes and `tasks` tasks.
    pub fn gpus(&self, nodes: u32, tasks: u32) -> u32 {
        if self.is_empty() { 0 } else { self.totals(nodes, tasks).get("gpu").copied().unwrap_or(0) }
    }
}

/// Removes repetitions of the same name and type: the last count is kept.
pub(crate) fn once(counts: Vec<Count>) -> Vec<Count> {
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
pub struct DeviceGroup {
    /// Name of the resource, such as `gpu`.
    pub name: String,
    /// Type of the devices, such as `a100`. None: no type is configured.
    pub model: Option<String>,
    /// Indices of these devices among all devices of the name on the node.
    pub indices: Range<usize>,
    /// Cores near these devices. Empty: all cores are equally near.
    pub cores: CoreSet,
    /// Paths of the device files as a host list, in the order of the indices. Devices at the end may have none.
    pub file: String,
    /// Whether all these files are of each device.
    pub shared: bool,
    /// Name by which programs choose the device, if it is a part of one (MIG). Empty: by its number.
    pub id: String,
    /// Number of links to each device of the node, -1 in the device's own place. Empty: there are none, or these are
    /// several devices.
    pub links: Vec<i32>,
}

impl DeviceGroup {
    /// Returns one of the devices for a choice among several. `near`: whether it is near CPUs that the job can get.
    fn device(&self, index: usize, near: bool) -> linked::Device<'_> {
        linked::Device { index, kind: self.indices.start, links: &self.links, cores: &self.cores, near }
    }

    /// Returns the index of each device with the paths of its files.
    pub fn files(&self) -> impl Iterator<Item = (usize, Vec<String>)> {
        let mut all = hostlist::expand(&self.file).unwrap_or_default();
        all.retain(|file| !file.is_empty());
        self.indices.clone().enumerate().map(move |(place, index)| {
            let own = if self.shared { all.clone() } else { all.get(place).cloned().into_iter().collect() };
            (index, own)
        })
    }
}

/// Devices of a node, and which of these are allocated to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGres {
    /// All devices of the node, grouped by name, type and near cores, in the order of the configuration.
    pub kinds: Vec<DeviceGroup>,
    /// Indices of the devices allocated to jobs, by resource name.
    pub held: BTreeMap<String, CoreSet>,
    /// For each part of a GPU (`shard`, `mps`), by resource name and index: the index of the GPU. Empty where GPUs are
    /// not shared: such resources are plain counts then.
    pub parts: BTreeMap<String, Vec<usize>>,
}

/// Names of the resource with GPUs, and of those with parts of GPUs that several jobs share.
pub const GPU: &str = "gpu";
const PARTS: [&str; 2] = ["shard", "mps"];

impl NodeGres {
    /// Returns the devices of a node as configured, or as an operator set them in `changed` (`gpu:a100:4`). `found`:
    /// those that the node has found, which are its own as far as the configuration does not name their files. None: the
    /// node has no devices.
    pub fn of(config: &Config, node: &str, changed: Option<&str>, found: &[FoundDevice]) -> Option<Self> {
        let entry = config.nodes.iter().find(|entry| hostlist::contains(&entry.name, node));
        Self::described(config, node, entry.map(|entry| &*entry.gres), changed, found)
    }

    /// Like `of`, for a node of which the configuration's entry says `gres`.
    pub fn described(
        config: &Config,
        node: &str,
        gres: Option<&str>,
        changed: Option<&str>,
        found: &[FoundDevice],
    ) -> Option<Self> {
        let counts = changed.or(gres).and_then(parse).unwrap_or_default();
        let applies = |line: &&GresConfig| line.node_name.is_empty() || hostlist::contains(&line.node_name, node);
        let configured: Vec<&GresConfig> =
            config.gres.iter().filter(|line| !line.name.is_empty()).filter(applies).collect();
        let detected = lines_of(found, &configured, &counts);
        let lines = || {
            let detected = detected.iter().map(|(line, id)| (line, *id));
            configured.iter().map(|line| (*line, "")).chain(detected)
        };
        let mut all = Self::default();
        if counts.is_empty() && changed.is_none() {
            lines().for_each(|(line, id)| all.add(&line.name, line.model(), line.devices(), Some((line, id))));
        }
        for Count { name, model, count } in counts {
            let mut left = count;
            for (line, id) in
                lines().filter(|(line, _)| line.name == name && (model.is_none() || line.model() == model))
            {
                let here = line.devices().min(left);
                all.add(&name, line.model().or_else(|| model.clone()), here, Some((line, id)));
                left -= here;
            }
            all.add(&name, model, left, None);
        }
        all.divide();
        (!all.kinds.is_empty()).then_some(all)
    }

    /// Adds devices; `line`: what says where they are, and the name of a part of a device.
    fn add(&mut self, name: &str, model: Option<String>, count: u32, line: Option<(&GresConfig, &str)>) {
        let first = self.kinds.iter().filter(|kind| kind.name == name).map(|kind| kind.indices.end).max().unwrap_or(0);
        let indices = first..first + (count as usize).min(GRES_PER_NODE_MAX - first.min(GRES_PER_NODE_MAX));
        if !indices.is_empty() {
            let mut kind = DeviceGroup { name: name.to_owned(), model, indices, ..DeviceGroup::default() };
            if let Some((line, id)) = line {
                kind.shared = !line.multiple_files.is_empty();
                kind.file.clone_from(if kind.shared { &line.multiple_files } else { &line.file });
                (kind.cores, kind.id, kind.links) = (line.near(), id.to_owned(), line.link_counts());
            }
            self.kinds.push(kind);
        }
    }

    /// Says which GPU each part belongs to: that with the same file, or else they are spread over all.
    fn divide(&mut self) {
        let kinds = || self.kinds.iter().filter(|kind| kind.name == GPU);
        let gpus = kinds().map(|kind| kind.indices.end).max().unwrap_or(0);
        let files: BTreeMap<String, usize> = kinds()
            .flat_map(DeviceGroup::files)
            .flat_map(|(gpu, files)| files.into_iter().map(move |file| (file, gpu)))
            .collect();
        for kind in self.kinds.iter().filter(|kind| gpus > 0 && PARTS.contains(&&*kind.name)) {
            let (paths, count) = (hostlist::expand(&kind.file).unwrap_or_default(), kind.indices.len());
            let gpu = |place: usize| {
                let named = paths.get(place * paths.len() / count).and_then(|path| files.get(path));
                named.copied().unwrap_or(place * gpus / count)
            };
            self.parts.entry(kind.name.clone()).or_default().extend((0..count).map(gpu));
        }
    }

    /// Returns whether a device can be used although no job holds it itself: a GPU has no part that is held, a part
    /// belongs to a GPU that is not held.
    fn is_whole(&self, name: &str, index: usize) -> bool {
        let holds = |name: &str, index| self.held.get(name).is_some_and(|held| held.contains(index));
        if name == GPU {
            let part = |(name, gpus): (&String, &Vec<usize>)| {
                gpus.iter().enumerate().any(|(part, gpu)| *gpu == index && holds(name, part))
            };
            return !self.parts.iter().any(part);
        }
        self.parts.get(name).and_then(|gpus| gpus.get(index)).is_none_or(|gpu| !holds(GPU, *gpu))
    }

    /// Restricts `free` to parts of one GPU: the one with the fewest free parts that suffice; of several the one with the
    /// lowest index. Whole devices are returned unchanged.
    fn of_one_gpu<'a>(&self, asked: &Count, free: Vec<linked::Device<'a>>) -> Vec<linked::Device<'a>> {
        let Some(gpus) = self.parts.get(&asked.name) else { return free };
        let mut of: Vec<(usize, Vec<linked::Device<'a>>)> = Vec::new();
        for device in free {
            let Some(gpu) = gpus.get(device.index) else { continue };
            match of.iter_mut().find(|(known, _)| known == gpu) {
                Some((_, all)) => all.push(device),
                None => of.push((*gpu, vec![device])),
            }
        }
        let enough = of.into_iter().map(|(_, all)| all).filter(|all| all.len() >= asked.count as usize);
        enough.min_by_key(Vec::len).unwrap_or_default()
    }

    /// Returns the free devices of the requested name and type, those near `cores` first.
    fn free(&self, asked: &Count, cores: &CoreSet) -> Vec<linked::Device<'_>> {
        let held = self.held.get(&asked.name);
        let fits =
            |kind: &&DeviceGroup| kind.name == asked.name && (asked.model.is_none() || kind.model == asked.model);
        let is_near = |kind: &DeviceGroup| kind.cores.is_empty() || !kind.cores.is_disjoint(cores);
        let (near, far): (Vec<&DeviceGroup>, Vec<&DeviceGroup>) =
            self.kinds.iter().filter(fits).partition(|kind| is_near(kind));
        let near = near.into_iter().map(|kind| (kind, true)).chain(far.into_iter().map(|kind| (kind, false)));
        let all = near
            .flat_map(|(kind, near)| kind.indices.clone().map(move |index| kind.device(index, near)))
            .filter(|device| held.is_none_or(|held| !held.contains(device.index)))
            .filter(|device| self.parts.is_empty() || self.is_whole(&asked.name, device.index));
        self.of_one_gpu(asked, all.collect())
    }

    /// Returns the cores near devices that were taken. Empty: all cores are equally near.
    pub fn cores_near(&self, taken: &BTreeMap<String, CoreSet>) -> CoreSet {
        let has = |kind: &&DeviceGroup| {
            taken.get(&kind.name).is_some_and(|indices| kind.indices.clone().any(|index| indices.contains(index)))
        };
        let mut cores = CoreSet::new();
        self.kinds.iter().filter(has).for_each(|kind| cores.union_with(&kind.cores));
        cores
    }

    /// Allocates the requested devices, preferably near `cores`, and returns their indices by name. None: too few are
    /// free, and nothing is allocated.
    pub fn take(&mut self, wanted: &[Count], cores: &CoreSet) -> Option<BTreeMap<String, CoreSet>> {
        let mut taken: BTreeMap<String, CoreSet> = BTreeMap::new();
        let before = self.held.clone();
        for asked in wanted {
            let free = self.free(asked, cores);
            let indices: CoreSet = linked::choose(&free, asked.count as usize).into_iter().collect();
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
            let same = per_node.iter().filter(|each| each.name == asked.name);
            let shared = same.fold(0_u32, |sum, each| sum.saturating_add(each.count));
            let devices = if shared > 0 { shared } else { rest.free(asked, &CoreSet::new()).len() as u32 };
            devices / asked.count.max(1)
        };
        Some(per_task.iter().map(most).min().unwrap_or(u32::MAX))
    }

    /// Returns the counts of all devices, free or not, without the parts of GPUs: a holder of the GPUs has these.
    pub fn whole(&self) -> Vec<Count> {
        let count = |kind: &DeviceGroup| Count {
            name: kind.name.clone(),
            model: kind.model.clone(),
            count: kind.indices.len() as u32,
        };
        self.kinds.iter().filter(|kind| !self.parts.contains_key(&kind.name)).map(count).collect()
    }

    /// Returns the number of devices of each name and type among those with the indices `held`, by resource name.
    pub fn counts(&self, held: &BTreeMap<String, CoreSet>) -> Vec<Count> {
        let count = |kind: &DeviceGroup| {
            let here = held.get(&kind.name)?;
            let count = here.iter().filter(|index| kind.indices.contains(index)).count() as u32;
            (count > 0).then(|| Count { name: kind.name.clone(), model: kind.model.clone(), count })
        };
        self.kinds.iter().filter_map(count).collect()
    }

    /// Returns the same devices with none of them allocated.
    #[must_use]
    pub fn vacant(&self) -> Self {
        Self { held: BTreeMap::new(), ..self.clone() }
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

/// Returns lines for the devices that a node has found, and the names of those that are parts. Devices with files that
/// the configuration names are left out. A type of the configuration that is a part of a device's name is its type.
fn lines_of<'a>(found: &'a [FoundDevice], configured: &[&GresConfig], counts: &[Count]) -> Vec<(GresConfig, &'a str)> {
    let named = |file: &String| {
        let lists = configured.iter().flat_map(|line| [&line.file, &line.multiple_files]);
        lists.flat_map(|list| hostlist::expand(list).unwrap_or_default()).any(|known| known == *file)
    };
    let fresh = found.iter().filter(|device| !device.files.iter().any(named));
    let line = |device: &'a FoundDevice| {
        let asked = counts.iter().filter(|count| count.name == device.name).filter_map(|count| count.model.as_deref());
        let kind = asked.filter(|model| device.kind.contains(*model)).max_by_key(|model| model.len());
        (line_of(device, kind.unwrap_or(&device.kind)), &*device.id)
    };
    fresh.map(line).collect()
}

/// Returns a device as a line of `gres.conf`. `kind`: its type.
fn line_of(device: &FoundDevice, kind: &str) -> GresConfig {
    let cores: Vec<String> = device.cores.iter().map(|core| core.to_string()).collect();
    let links: Vec<String> = device.links.iter().map(ToString::to_string).collect();
    GresConfig {
        name: device.name.clone(),
        kind: kind.to_owned(),
        multiple_files: device.files.join(","),
        cores: cores.join(","),
        links: links.join(","),
        ..GresConfig::default()
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

/// Returns the number of granted devices of each name and type on `nodes`. `of`: the devices of a node.
pub fn held_counts<'a>(
    grants: &[Grant],
    nodes: &NodeSet,
    of: impl Fn(crate::id::NodeId) -> Option<&'a NodeGres>,
) -> Vec<Count> {
    let on = |node| of(node).map(|has| has.counts(&on_node(grants, node)));
    nodes.iter().filter_map(on).flatten().collect()
}

/// Reads a `gres.conf`: lines of `Key=Value` as in Slurm. The error names the line.
pub fn parse_conf(text: &str) -> Result<Vec<GresConfig>, String> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut entry = GresConfig::default();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("line {number}: `{word}`: use KEY=VALUE"))?;
            let value = value.to_owned();
            match key.to_ascii_lowercase().as_str() {
                "nodename" => entry.node_name = value,
                "name" => entry.name = value,
                "type" => entry.kind = value,
                "file" => entry.file = value,
                "multiplefiles" => entry.multiple_files = value,
                "count" => entry.count = value.parse().map_err(|_| format!("line {number}: `{word}`: no number"))?,
                "cores" | "cpus" => entry.cores = value,
                "autodetect" => {
                    entry.auto_detect = Some(value.parse().map_err(|problem| format!("line {number}: {problem}"))?);
                }
                "links" => entry.links = value,
                "flags" => {}
                _ => {
                    return Err(format!(
                        "line {number}: `{key}` is not known; use NodeName, Name, Type, File, Count, Cores, Links"
                    ));
                }
            }
        }
        // A line that only says how devices are found does not give their number.
        let detects = entry.auto_detect.is_some_and(|way| !way.is_off());
        if detects && entry.count == 0 && entry.file.is_empty() && entry.multiple_files.is_empty() {
            entry.name.clear();
        }
        if !entry.name.is_empty() || entry.auto_detect.is_some() {
            entry.check().map_err(|problem| format!("line {number}: {problem}"))?;
            all.push(entry);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{Ask, Count, NodeGres, parse, parse_conf};
    use crate::config::{Config, Detect, NodeConfig};
    use crate::found::FoundDevice;
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
        let gres = parse_conf(lines).expect("it is one");
        let node = NodeConfig { name: "n[1-3]".into(), gres: "gpu:3".into(), ..NodeConfig::default() };
        let config = Config { nodes: vec![node], gres, ..Config::default() };
        let mut n1 = NodeGres::of(&config, "n1", None, &[]).expect("it has some");
        assert_eq!(n1.text(), "gpu:a100:2,gpu:v100:1");
        assert_eq!(NodeGres::of(&config, "n3", None, &[]).expect("it has some").text(), "gpu:v100:1,gpu:2");
        let near: CoreSet = [2].into_iter().collect();
        let taken = n1.take(&[counts("gpu", None, 1)], &near).expect("there is one");
        assert_eq!(taken["gpu"].iter().collect::<Vec<_>>(), [2], "the one beside the core");
        assert_eq!(n1.used_text(), "gpu:a100:0(IDX:N/A),gpu:v100:1(IDX:2)");
        assert_eq!(n1.held_texts(&taken), ["gpu:v100:1(IDX:2)"]);
        assert_eq!(n1.take(&[counts("gpu", Some("v100"), 1)], &near), None);
        assert_eq!(n1.tasks(&[counts("gpu", None, 1)], &[counts("gpu", None, 1)]), Some(1));
        let lines = parse_conf("Name=gpu File=/dev/a Cores=0\nName=gpu File=/dev/b Cores=1").expect("it is one");
        let mut two = NodeGres::of(&Config { gres: lines, ..Config::default() }, "n", None, &[]).expect("it has some");
        two.take(&[counts("gpu", None, 2)], &CoreSet::new()).expect("there are two");
        assert_eq!((two.text(), two.used_text()), ("gpu:2".into(), "gpu:2(IDX:0-1)".into()), "of one kind");
        let detecting = "Name=gpu\nAutoDetect=nvml\nNodeName=n1 Name=gpu AutoDetect=RSMI\nNodeName=n2 AutoDetect=off\n";
        let gres = parse_conf(detecting).expect("it is one");
        assert_eq!(gres.iter().filter(|line| !line.name.is_empty()).count(), 1, "the others define no devices");
        let config = Config { gres, ..Config::default() };
        let ways = ["n1", "n2", "n3"].map(|node| config.detects(node));
        assert_eq!(ways, [Detect::Rsmi, Detect::Off, Detect::Nvml]);
        assert!(parse_conf("AutoDetect=full").unwrap_err().contains("line 1: AutoDetect=full: use nvml,"));
        assert!(parse_conf("Name=gpu Foo=1").unwrap_err().contains("`Foo`"));
    }

    #[test]
    fn devices_that_a_node_has_found_are_its_own() {
        let device = |kind: &str, files: &[&str], core: usize| FoundDevice {
            kind: kind.into(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            cores: [core].into_iter().collect(),
            id: if files.len() > 1 { format!("MIG-{core}") } else { String::new() },
            ..FoundDevice::gpu()
        };
        let found = [
            device("nvidia_a100-sxm4", &["/dev/nvidia0"], 0),
            device("nvidia_a100-sxm4", &["/dev/nvidia1"], 1),
            device("nvidia_a100_mig_1g.5gb", &["/dev/nvidia2", "/dev/cap1"], 2),
            device("nvidia_a100_mig_1g.5gb", &["/dev/nvidia2", "/dev/cap2"], 3),
        ];
        let of = |gres: &str, lines: &str| {
            let node = NodeConfig { name: "n".into(), gres: gres.into(), ..NodeConfig::default() };
            let gres = parse_conf(lines).expect("it is one");
            NodeGres::of(&Config { nodes: vec![node], gres, ..Config::default() }, "n", None, &found).expect("some")
        };
        assert_eq!(of("", "").text(), "gpu:nvidia_a100-sxm4:2,gpu:nvidia_a100_mig_1g.5gb:2");
        let typed = of("gpu:a100:2,gpu:1g.5gb:1", "");
        assert_eq!(typed.text(), "gpu:a100:2,gpu:1g.5gb:1");
        let last = &typed.kinds[2];
        assert_eq!((&*last.id, last.cores.iter().collect::<Vec<_>>()), ("MIG-2", vec![2]));
        let files: Vec<_> = last.files().collect();
        assert_eq!(files, [(2, vec!["/dev/nvidia2".to_owned(), "/dev/cap1".to_owned()])]);
        assert_eq!(of("gpu:3", "").kinds.iter().map(|kind| kind.indices.len()).sum::<usize>(), 3);
        // What the configuration says of a file counts.
        assert_eq!(of("", "Name=gpu Type=mine File=/dev/nvidia[0-2] Cores=7").text(), "gpu:mine:3");
    }

    #[test]
    fn gpus_that_are_linked_come_together() {
        let row =
            |own: usize, core: usize, links: &str| format!("Name=gpu File=/dev/gpu{own} Cores={core} Links={links}\n");
        let lines =
            [row(0, 0, "-1,1,4,1"), row(1, 0, "1,-1,1,4"), row(2, 1, "4,1,-1,1"), row(3, 1, "1,4,1,-1")].concat();
        let gres = parse_conf(&lines).expect("it is one");
        let take = |has: &mut NodeGres, count| {
            let taken = has.take(&[counts("gpu", None, count)], &CoreSet::first(2)).expect("there are so many");
            let cores = has.cores_near(&taken).iter().collect::<Vec<_>>();
            (taken["gpu"].iter().collect::<Vec<_>>(), cores)
        };
        let mut has = NodeGres::of(&Config { gres, ..Config::default() }, "n", None, &[]).expect("it has some");
        assert_eq!(take(&mut has, 2), (vec![0, 2], vec![0, 1]));
        assert_eq!(take(&mut has, 1), (vec![1], vec![0]));
        for (wrong, why) in [("1,2", "with -1 for the device itself"), ("-1,x", "use a list"), ("-1,-1", "use a list")]
        {
            let said = parse_conf(&format!("Name=gpu File=/dev/a Links={wrong}")).unwrap_err();
            assert!(said.contains("line 1: Links=") && said.contains(why), "{said}");
        }
        let several = parse_conf("Name=gpu File=/dev/gpu[0-1] Links=-1,2").unwrap_err();
        assert!(several.contains("only a line of one device"), "{several}");
        // Links that a node has found, as by NVIDIA's library.
        let device = |own: usize, links: &[i32]| FoundDevice {
            files: vec![format!("/dev/nvidia{own}")],
            links: links.to_vec(),
            ..FoundDevice::gpu()
        };
        let found = [device(0, &[-1, 0, 0]), device(1, &[0, -1, 2]), device(2, &[0, 2, -1])];
        let mut has = NodeGres::of(&Config::default(), "n", None, &found).expect("it has some");
        assert_eq!(take(&mut has, 2).0, [1, 2]);
    }

    #[test]
    fn gpus_are_shared_by_parts() {
        let node = |gres: &str, lines: &str| {
            let node = NodeConfig { name: "n".into(), gres: gres.into(), ..NodeConfig::default() };
            let gres = parse_conf(lines).expect("it is one");
            NodeGres::of(&Config { nodes: vec![node], gres, ..Config::default() }, "n", None, &[]).expect("some")
        };
        let mut has = node("gpu:2,shard:8", "");
        assert_eq!(has.parts["shard"], [0, 0, 0, 0, 1, 1, 1, 1]);
        let take = |has: &mut NodeGres, name: &str, count| {
            let taken = has.take(&[counts(name, None, count)], &CoreSet::new())?;
            Some(taken[name].iter().collect::<Vec<_>>())
        };
        assert_eq!(take(&mut has, "shard", 3), Some(vec![0, 1, 2]));
        assert_eq!(take(&mut has, "shard", 2), Some(vec![4, 5]), "all of a job's are of one GPU");
        assert_eq!(take(&mut has, "shard", 1), Some(vec![3]), "what is left of the first");
        assert_eq!((take(&mut has, "gpu", 1), take(&mut has, "shard", 3)), (None, None));
        has.held.get_mut("shard").expect("some are").subtract(&[4, 5].into_iter().collect());
        assert_eq!(take(&mut has, "gpu", 1), Some(vec![1]), "no part of it is held");
        assert_eq!(take(&mut has, "shard", 1), None, "its parts are not free now");
        assert_eq!(has.whole(), [counts("gpu", None, 2)]);
        assert_eq!(has.tasks(&[], &[counts("shard", None, 1)]), Some(0));
        assert_eq!(has.vacant().tasks(&[], &[counts("shard", None, 1)]), Some(4));
        let lines =
            "Name=gpu File=/dev/a\nName=gpu File=/dev/b\nName=mps Count=2 File=/dev/b\nName=mps Count=3 File=/dev/a";
        assert_eq!(node("", lines).parts["mps"], [1, 1, 0, 0, 0]);
        let mut plain = node("shard:4", "");
        assert_eq!(take(&mut plain, "shard", 4), Some(vec![0, 1, 2, 3]), "no GPUs: plain counts");
    }
}
