//! Power saving: which nodes are switched off when they idle, and by which programs.

use serde::{Deserialize, Serialize};

use super::hooks::{is_path, path_fault};
use super::words;
use super::{Config, NodeStart, PartitionConfig};
use crate::hostlist;

/// Lists of nodes, each with the number of its nodes that stay up; None: all.
type Exceptions = Vec<(Vec<String>, Option<usize>)>;

/// Power saving: programs that switch nodes off and on, and when they run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PowerConfig {
    /// Program that switches nodes off, called with a host list. Empty: none.
    #[serde(alias = "SuspendProgram")]
    pub suspend_program: String,
    /// Program that switches nodes on, called with a host list. Empty: none.
    #[serde(alias = "ResumeProgram")]
    pub resume_program: String,
    /// Program that is called with the nodes that did not come in time. Empty: none.
    #[serde(alias = "ResumeFailProgram")]
    pub resume_fail_program: String,
    /// Seconds without a job after which a node is switched off. None: never.
    #[serde(alias = "SuspendTime")]
    pub suspend_time_s: Option<u64>,
    /// Seconds that a node needs to go down. Before, it is not switched on again. Default 30.
    #[serde(alias = "SuspendTimeout")]
    pub suspend_timeout_s: u64,
    /// Nodes switched off per minute, at most. Default 60; 0: no limit.
    #[serde(alias = "SuspendRate")]
    pub suspend_rate: u32,
    /// Nodes switched on per minute, at most. Default 300; 0: no limit.
    #[serde(alias = "ResumeRate")]
    pub resume_rate: u32,
    /// Nodes that are never switched off for want of jobs, as a host list.
    #[serde(alias = "SuspendExcNodes")]
    pub suspend_exc_nodes: String,
    /// Partitions with nodes that are never switched off for want of jobs.
    #[serde(alias = "SuspendExcParts", deserialize_with = "words::names")]
    pub suspend_exc_parts: Vec<String>,
    /// States in which nodes are not switched off for want of jobs.
    #[serde(alias = "SuspendExcStates", deserialize_with = "words::names")]
    pub suspend_exc_states: Vec<String>,
}

impl Default for PowerConfig {
    fn default() -> Self {
        Self {
            suspend_program: String::new(),
            resume_program: String::new(),
            resume_fail_program: String::new(),
            suspend_time_s: None,
            suspend_timeout_s: 30,
            suspend_rate: 60,
            resume_rate: 300,
            suspend_exc_nodes: String::new(),
            suspend_exc_parts: Vec::new(),
            suspend_exc_states: Vec::new(),
        }
    }
}

impl PowerConfig {
    /// States that `suspend_exc_states` may name.
    pub const STATES: [&str; 7] = ["CLOUD", "DOWN", "DRAIN", "FAIL", "MAINTENANCE", "NOT_RESPONDING", "RESERVED"];

    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the controller's host runs programs.
    pub fn has_programs(&self) -> bool {
        [&self.suspend_program, &self.resume_program, &self.resume_fail_program].iter().any(|path| !path.is_empty())
    }

    /// Returns whether nodes in a state are not switched off for want of jobs.
    pub fn spares(&self, state: &str) -> bool {
        self.suspend_exc_states.iter().any(|named| named.eq_ignore_ascii_case(state))
    }

    /// Returns the lists of nodes of `suspend_exc_nodes`, each with the number of its nodes that stay up. None: all of
    /// them do. The error says what is wrong with the text.
    pub fn exceptions(&self) -> Result<Exceptions, String> {
        let mut inside = false;
        // A comma between brackets does not separate lists.
        let separates = |at: char| {
            inside = if at == '[' { true } else { inside && at != ']' };
            at == ',' && !inside
        };
        let lists = self.suspend_exc_nodes.split(separates).filter(|list| !list.is_empty());
        let read = |list: &str| {
            let (names, count) = match list.split_once(':') {
                Some((names, count)) => {
                    let number = count.parse().ok().filter(|count| *count > 0);
                    (names, Some(number.ok_or_else(|| format!("`{count}` is no number of nodes"))?))
                }
                None => (list, None),
            };
            Ok((hostlist::expand(names).map_err(|problem| problem.to_string())?, count))
        };
        lists.map(read).collect()
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let programs = [
            ("suspend_program", &self.suspend_program),
            ("resume_program", &self.resume_program),
            ("resume_fail_program", &self.resume_fail_program),
        ];
        if let Some((key, path)) = programs.into_iter().find(|(_, path)| !path.is_empty() && !is_path(path)) {
            return Some((key, path_fault(path)));
        }
        if self.suspend_time_s.is_some() && programs[..2].iter().any(|(_, path)| path.is_empty()) {
            return Some(("suspend_time_s", "nodes that sleep need suspend_program and resume_program".to_owned()));
        }
        if let Err(problem) = self.exceptions() {
            return Some(("suspend_exc_nodes", format!("`{}`: {problem}", self.suspend_exc_nodes)));
        }
        let known = |state: &&String| Self::STATES.iter().any(|known| known.eq_ignore_ascii_case(state));
        let strange = self.suspend_exc_states.iter().find(|state| !known(state));
        strange.map(|state| ("suspend_exc_states", format!("`{state}` is none of {}", Self::STATES.join(", "))))
    }
}

impl Config {
    /// Refuses partitions of which nodes are switched off, where no programs do that.
    pub(super) fn check_sleep(&self) -> Result<(), String> {
        let sleeps = |partition: &&PartitionConfig| {
            partition.power_down_on_idle || partition.suspend_time_s.is_some_and(|seconds| seconds >= 0)
        };
        let without = self.power.suspend_program.is_empty() || self.power.resume_program.is_empty();
        match self.partitions.iter().find(sleeps).filter(|_| without) {
            Some(partition) => Err(format!(
                "partition {}: nodes that sleep need suspend_program and resume_program in [power]",
                partition.name
            )),
            None => Ok(()),
        }
    }

    /// Returns the longest time limit of programs that switch nodes off or on, seconds.
    pub fn power_limit_s(&self) -> u64 {
        let own = |partition: &PartitionConfig| partition.suspend_timeout_s.max(partition.resume_timeout_s);
        let most = self.power.suspend_timeout_s.max(self.health.resume_timeout_s);
        self.partitions.iter().filter_map(own).fold(most, u64::max)
    }

    /// Returns whether a node is configured as one that comes and goes with its power.
    pub fn is_cloud(&self, name: &str) -> bool {
        self.nodes.iter().any(|entry| entry.state == NodeStart::Cloud && hostlist::contains(&entry.name, name))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const PROGRAMS: &str = "[power]\nSuspendProgram = \"/off\"\nResumeProgram = \"/on\"\n";

    #[test]
    fn wrong_values_are_refused_by_name() {
        let refused = |text: &str| Config::from_toml(text).expect_err("it is wrong");
        assert!(
            refused("power.suspend_program = \"off\"").contains("[power] suspend_program: `off` is not an absolute")
        );
        assert!(refused("power.suspend_time_s = 60").contains("nodes that sleep need suspend_program"));
        assert!(refused(&format!("{PROGRAMS}SuspendExcNodes = \"n[1-2]:x\"\n")).contains("`x` is no number of nodes"));
        let partition = "[[partitions]]\nname = \"p\"\n";
        assert!(refused(&format!("{partition}SuspendTime = 5\n")).contains("partition p: nodes that sleep need"));
        assert!(Config::from_toml(&format!("{partition}SuspendTime = -1\n")).is_ok());
        let states = format!("{PROGRAMS}suspend_exc_states = \"DOWN,BUSY\"\n");
        assert!(refused(&states).contains("`BUSY` is none of CLOUD, DOWN"));
        assert!(refused("[[nodes]]\nname = \"c1\"\nstate = \"CLOUD\"\ncpus = 2\n").contains("resume_program"));
        let config = format!("{PROGRAMS}[[nodes]]\nname = \"c1\"\nstate = \"CLOUD\"\n");
        assert!(refused(&config).contains("node c1: cloud nodes need cpus"));
    }

    #[test]
    fn exceptions_have_numbers() {
        let text = format!("{PROGRAMS}SuspendExcNodes = \"n[1,3]:1,m1,c[1-2]\"\n");
        let config = Config::from_toml(&text).expect("it is right");
        let lists = config.power.exceptions().expect("it is right");
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(lists, [(names(&["n1", "n3"]), Some(1)), (names(&["m1"]), None), (names(&["c1", "c2"]), None)]);
    }

    #[test]
    fn settings_are_slurms() {
        let text =
            format!("{PROGRAMS}SuspendTime = 600\nSuspendExcParts = \"login,fast\"\nSuspendExcStates = [\"down\"]\n");
        let config = Config::from_toml(&text).expect("it is right");
        assert_eq!(config.power.suspend_time_s, Some(600));
        assert_eq!(config.power.suspend_exc_parts, ["login", "fast"]);
        assert!(config.power.spares("DOWN") && !config.power.spares("DRAIN"));
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
    }
}
