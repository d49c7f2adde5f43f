//! In which units CPUs of nodes are given to jobs, and which nodes are taken first (`SelectTypeParameters`).

use serde::{Deserialize, Serialize};

use super::NodeConfig;

/// The smallest part of a node that a job holds. A job holds whole units, and no two jobs hold the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A CPU (hardware thread).
    #[default]
    Cpu,
    /// A core with all of its hardware threads.
    Core,
    /// A socket with all of its cores.
    Socket,
}

/// How resources of nodes are given to jobs, as in Slurm. The default is `CR_CPU_Memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SelectTypeParameters {
    /// The smallest part of a node that a job holds.
    pub unit: Unit,
    /// Whether memory is given out, too. Otherwise a job needs nodes that have its memory, used or not.
    pub memory: bool,
    /// Whether each task has a core of its own, unless `--ntasks-per-core` says.
    pub one_task_per_core: bool,
    /// Whether the nodes with the most free CPUs are taken first.
    pub least_loaded: bool,
    /// Whether the nodes of a job that holds more CPUs than its tasks need are filled one after the other.
    pub pack_nodes: bool,
    /// Whether a job gets cores of as few sockets of a node as possible. Otherwise it gets the first free ones.
    pub dist_block: bool,
}

impl Default for SelectTypeParameters {
    fn default() -> Self {
        Self {
            unit: Unit::Cpu,
            memory: true,
            one_task_per_core: false,
            least_loaded: false,
            pack_nodes: false,
            dist_block: false,
        }
    }
}

impl SelectTypeParameters {
    /// Returns whether these are the defaults, which are not written.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with nodes where jobs are to hold whole cores or sockets. None: nothing.
    pub(super) fn fault(self, node: &NodeConfig) -> Option<String> {
        let (cpus, sockets, cores) = (node.cpus?, node.sockets?, node.cores_per_socket?);
        let (cores, threads) = (sockets.saturating_mul(cores), node.threads_per_core?);
        let all = cores.saturating_mul(threads);
        (self.unit != Unit::Cpu && cpus != cores && cpus != all).then(|| {
            format!(
                "node {}: cpus = {cpus}: these are no whole cores; with CR_Core and CR_Socket use {all} (threads) or \
                 {cores} (cores), or leave cpus out",
                node.name
            )
        })
    }
}

/// Words that name the unit, with whether memory is given out.
const UNITS: [(&str, Unit, bool); 6] = [
    ("CR_CPU", Unit::Cpu, false),
    ("CR_CPU_MEMORY", Unit::Cpu, true),
    ("CR_CORE", Unit::Core, false),
    ("CR_CORE_MEMORY", Unit::Core, true),
    ("CR_SOCKET", Unit::Socket, false),
    ("CR_SOCKET_MEMORY", Unit::Socket, true),
];

/// Returns the reason why a word of Slurm's is refused. None: it is none of these.
fn refused(word: &str) -> Option<&'static str> {
    Some(match word {
        "CR_MEMORY" => "CPUs are given out, too: use CR_CPU_Memory",
        "LL_SHARED_GRES" | "MULTIPLE_SHARING_GRES_PJ" | "ONE_TASK_PER_SHARING_GRES" => {
            "devices are given out in the order of their numbers"
        }
        "ENFORCE_BINDING_GRES" => "devices near the job's cores are preferred, and never required",
        _ => return None,
    })
}

impl TryFrom<String> for SelectTypeParameters {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut read = Self::default();
        let mut unit: Option<&str> = None;
        for said in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let word = said.to_uppercase();
            if let Some((_, of, memory)) = UNITS.iter().find(|(name, ..)| *name == word) {
                if let Some(other) = unit.filter(|other| !other.eq_ignore_ascii_case(said)) {
                    return Err(format!("`{other}` and `{said}` exclude each other"));
                }
                (read.unit, read.memory, unit) = (*of, *memory, Some(said));
                continue;
            }
            match word.as_str() {
                "CR_ONE_TASK_PER_CORE" => read.one_task_per_core = true,
                "CR_LLN" => read.least_loaded = true,
                "CR_PACK_NODES" => read.pack_nodes = true,
                "CR_CORE_DEFAULT_DIST_BLOCK" => read.dist_block = true,
                other => {
                    return Err(match refused(other) {
                        Some(why) => format!("`{said}`: {why}"),
                        None => format!(
                            "`{said}`: use one of CR_CPU, CR_Core and CR_Socket, each with or without _Memory, and \
                             any of CR_ONE_TASK_PER_CORE, CR_LLN, CR_Pack_Nodes and CR_CORE_DEFAULT_DIST_BLOCK"
                        ),
                    });
                }
            }
        }
        if read.one_task_per_core && read.unit == Unit::Cpu {
            return Err("`CR_ONE_TASK_PER_CORE` needs CR_Core or CR_Socket: jobs then hold whole cores".to_owned());
        }
        Ok(read)
    }
}

impl From<SelectTypeParameters> for String {
    fn from(of: SelectTypeParameters) -> Self {
        let unit = UNITS.iter().find(|(_, unit, memory)| (*unit, *memory) == (of.unit, of.memory));
        let unit = unit.map_or("", |(name, ..)| *name);
        let flags = [
            (of.one_task_per_core, "CR_ONE_TASK_PER_CORE"),
            (of.least_loaded, "CR_LLN"),
            (of.pack_nodes, "CR_PACK_NODES"),
            (of.dist_block, "CR_CORE_DEFAULT_DIST_BLOCK"),
        ];
        let words = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word);
        std::iter::once(unit).chain(words).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::{SelectTypeParameters, Unit};

    fn read(text: &str) -> Result<SelectTypeParameters, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn words_are_taken_in_any_case_and_written_as_slurm_does() {
        for (text, unit, memory, written) in [
            ("", Unit::Cpu, true, "CR_CPU_MEMORY"),
            ("CR_CPU", Unit::Cpu, false, "CR_CPU"),
            ("CR_Core", Unit::Core, false, "CR_CORE"),
            (
                "cr_core_memory,CR_Core_Default_Dist_Block",
                Unit::Core,
                true,
                "CR_CORE_MEMORY,CR_CORE_DEFAULT_DIST_BLOCK",
            ),
            ("CR_Socket_Memory, CR_LLN", Unit::Socket, true, "CR_SOCKET_MEMORY,CR_LLN"),
            (
                "CR_Core,CR_ONE_TASK_PER_CORE,CR_Pack_Nodes",
                Unit::Core,
                false,
                "CR_CORE,CR_ONE_TASK_PER_CORE,CR_PACK_NODES",
            ),
        ] {
            let is = read(text).unwrap();
            assert_eq!((is.unit, is.memory, String::from(is).as_str()), (unit, memory, written), "{text}");
            assert_eq!(read(written), Ok(is));
        }
    }

    #[test]
    fn what_has_no_counterpart_is_refused_in_words() {
        for (text, why) in [
            ("CR_Memory", "use CR_CPU_Memory"),
            ("CR_CPU,CR_Core", "exclude each other"),
            ("CR_ONE_TASK_PER_CORE", "needs CR_Core or CR_Socket"),
            ("LL_SHARED_GRES", "in the order of their numbers"),
            ("CR_Cores", "use one of CR_CPU, CR_Core"),
        ] {
            assert!(read(text).is_err_and(|said| said.contains(why)), "{text}: {:?}", read(text));
        }
    }
}
