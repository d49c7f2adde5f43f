//! Options about GPUs.

use minicbor::{Decode, Encode};

use super::JobSpec;
use super::options::AsGiven;
use crate::duration::parse_memory_mb;
use crate::gres::{self, Ask, Count};
use crate::set::CoreSet;

/// A number of GPUs, in total (`4`) or of each type (`a100:2,v100:1`).
pub type GpuCount = AsGiven<Vec<Count>>;

/// Values of the options about GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Gpus {
    /// `--gpus`: number of GPUs of the whole job.
    #[n(0)]
    pub total: Option<GpuCount>,
    /// `--gpus-per-node`: number of GPUs of each node.
    #[n(1)]
    pub per_node: Option<GpuCount>,
    /// `--gpus-per-socket`: number of GPUs of each socket, which is 0.
    #[n(2)]
    pub per_socket: Option<GpuCount>,
    /// `--gpus-per-task`: number of GPUs of each task.
    #[n(3)]
    pub per_task: Option<GpuCount>,
    /// `--cpus-per-gpu`: number of CPUs for each GPU.
    #[n(4)]
    pub cpus: Option<u32>,
    /// `--mem-per-gpu`: memory for each GPU, MiB.
    #[n(5)]
    pub memory_mb: Option<AsGiven<u64>>,
    /// `--ntasks-per-gpu`: number of tasks that share a GPU.
    #[n(6)]
    pub tasks: Option<u32>,
    /// `--gpu-bind`: which GPUs of the step each task gets.
    #[n(7)]
    pub bind: Option<AsGiven<GpuBind>>,
}

/// `--gpu-bind`: which of a node's GPUs each task of a step gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum GpuBind {
    /// `none`: each task may use all GPUs of the step on its node.
    #[default]
    #[n(0)]
    None,
    /// `map_gpu`: one GPU for each task, by its index among the step's GPUs. The list repeats if there are more tasks.
    #[n(1)]
    Map(#[n(0)] Vec<u32>),
    /// `mask_gpu`: a set of GPUs for each task, by index among the step's GPUs. The list repeats if there are more
    /// tasks.
    #[n(2)]
    Mask(#[n(0)] Vec<CoreSet>),
    /// `per_task`: this number of GPUs for each task.
    #[n(3)]
    PerTask(#[n(0)] u32),
    /// `single`: one GPU for each task; this number of tasks share it.
    #[n(4)]
    Single(#[n(0)] u32),
    /// `closest`: the GPUs near the task's CPUs, or all if none is.
    #[n(5)]
    Closest,
}

impl GpuCount {
    /// Reads a number of GPUs: `4`, or `a100:2,v100:1`. None: malformed.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self { text: text.to_owned(), value: gres::gpus(text)? })
    }
    /// Returns a request for `count` GPUs of any type.
    pub fn any(count: u32) -> Self {
        Self { text: count.to_string(), value: vec![Count { name: "gpu".to_owned(), model: None, count }] }
    }
    /// Returns the number of GPUs of all types together. None: the list is empty.
    pub fn count(&self) -> Option<u32> {
        let all = gres::once(self.value.clone());
        all.iter().map(|asked| asked.count).reduce(u32::saturating_add)
    }
}

impl Ask {
    /// Returns the resources that a job requests. None: its `--gres` is malformed.
    pub fn of_job(spec: &JobSpec) -> Option<Self> {
        match (spec.need.gres.as_deref(), spec.options.get()) {
            (None, None) => Some(Self::default()),
            (gres, _) => {
                let bound = spec.options.enforce_binding == Some(true);
                let mut ask = Self { bound, ..Self::of(gres, &spec.options.gpus)? };
                // With a task for each GPU of the job, a node's GPUs are as many as its tasks.
                if let (Some(1), [all]) = (spec.options.gpus.tasks, ask.per_job.as_slice())
                    && spec.need.ntasks == Some(all.count)
                {
                    ask.per_task = vec![Count { count: 1, ..all.clone() }];
                    ask.per_job.clear();
                }
                Some(ask)
            }
        }
    }

    /// Returns the resources that `--gres` and the options about GPUs request together. None: `--gres` is malformed.
    pub fn of(gres: Option<&str>, gpus: &Gpus) -> Option<Self> {
        let listed = |count: &Option<GpuCount>| count.as_ref().map(|given| given.value.clone()).unwrap_or_default();
        let mut ask = Self {
            per_node: gres.map_or(Some(Vec::new()), |text| gres::parse(text).map(gres::once))?,
            per_job: listed(&gpus.total),
            per_task: listed(&gpus.per_task),
            cpus_per_gpu: gpus.cpus.unwrap_or(0),
            mem_per_gpu_mb: gpus.memory_mb.as_ref().map_or(0, |given| given.value),
            bound: false,
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
}

/// Returns the name of a resource that is requested both with and without a type, in one option or in several. None:
/// there is none.
pub fn mixed(gres: Option<&str>, gpus: &Gpus) -> Option<String> {
    let by_gres = gres.and_then(gres::parse).unwrap_or_default();
    let of_gpus = [&gpus.total, &gpus.per_node, &gpus.per_task].into_iter().flatten();
    let all: Vec<Count> = by_gres.into_iter().chain(of_gpus.flat_map(|given| given.value.clone())).collect();
    let asked = || all.iter().filter(|asked| asked.count > 0);
    let typed = |name: &str| asked().any(|other| other.name == name && other.model.is_some());
    asked().find(|one| one.model.is_none() && typed(&one.name)).map(|one| one.name.clone())
}

impl AsGiven<u64> {
    /// Reads an amount of memory in MiB: `4G`, or a number of MiB without a unit. None: malformed.
    pub fn memory(text: &str) -> Option<Self> {
        Some(Self { text: text.to_owned(), value: parse_memory_mb(text).ok()? })
    }
}

impl AsGiven<GpuBind> {
    /// Reads the value of `--gpu-bind`:
    /// `[verbose,]{closest|none|single:TASKS|per_task:GPUS|map_gpu:LIST|mask_gpu:LIST}`. None: malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let how = text.strip_prefix("verbose,").or_else(|| text.strip_prefix("v,")).unwrap_or(text);
        let (name, list) = how.split_once(':').unwrap_or((how, ""));
        let counted = || list.parse().ok().filter(|count: &u32| *count > 0);
        let value = match name.to_ascii_lowercase().as_str() {
            "closest" if list.is_empty() => Some(GpuBind::Closest),
            "none" if list.is_empty() => Some(GpuBind::None),
            "single" => counted().map(GpuBind::Single),
            "per_task" => counted().map(GpuBind::PerTask),
            "map_gpu" | "map" => {
                list.split(',').map(|place| place.parse().ok()).collect::<Option<_>>().map(GpuBind::Map)
            }
            "mask_gpu" | "mask" => list.split(',').map(CoreSet::from_hex).collect::<Option<_>>().map(GpuBind::Mask),
            _ => None,
        };
        value.map(|value| Self { text: text.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::{GpuBind, GpuCount};
    use crate::job::options::AsGiven;

    #[test]
    fn counts_have_types() {
        let read = |text| GpuCount::parse(text).map(|given| (given.count(), given.value.len()));
        assert_eq!((read("4"), read("a100:2,v100:1")), (Some((Some(4), 1)), Some((Some(3), 2))));
        assert_eq!(read("2,3"), Some((Some(3), 2)), "of the same type the last counts");
        assert_eq!((read("none"), read("a:b:c")), (Some((None, 0)), None));
        assert_eq!(GpuCount::parse("2"), Some(GpuCount::any(2)));
    }

    #[test]
    fn bindings_are_told_from_nonsense() {
        let read = |text| AsGiven::<GpuBind>::parse(text).map(|given| given.value);
        for text in ["none", "single:2", "per_task:1", "map_gpu:0,1", "mask_gpu:0x1,0x3", "mask:ff"] {
            assert!(read(text).is_some(), "{text}");
        }
        assert_eq!((read("verbose,none"), read("v,map:1")), (Some(GpuBind::None), Some(GpuBind::Map(vec![1]))));
        assert_eq!((read("closest"), read("verbose,closest")), (Some(GpuBind::Closest), Some(GpuBind::Closest)));
        for text in ["foo", "verbose", "single", "single:0", "mask_gpu:x", "map_gpu:"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
