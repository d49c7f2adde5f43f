//! How nodes are checked, rebooted and returned to service.

use serde::{Deserialize, Serialize};

use super::hooks::{is_path, path_fault};
use crate::limits;

/// How nodes are checked, rebooted and returned to service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Program that node daemons run as root to check their node. The node is drained if it fails. Empty: none.
    #[serde(alias = "HealthCheckProgram")]
    pub program: String,
    /// Seconds between two checks. Default 0: the node is checked once, when its daemon starts.
    #[serde(alias = "HealthCheckInterval")]
    pub interval_s: u64,
    /// Time limit of a check, seconds. Default 60.
    #[serde(alias = "HealthCheckTimeout")]
    pub timeout_s: u64,
    /// States in which a node is checked.
    #[serde(alias = "HealthCheckNodeState")]
    pub node_state: CheckedStates,
    /// Program that the node daemon runs as root between a fault of its node and the next job there. Empty: none.
    pub after_fault: String,
    /// Whether a node that a failed check has drained gets jobs again after a check that succeeds. Default false.
    pub resume: bool,
    /// Seconds after the signal KILL after which a node that still has processes of the job is drained. Default 60;
    /// 0: never.
    #[serde(alias = "UnkillableStepTimeout")]
    pub unkillable_step_timeout_s: u64,
    /// Program that the node daemon runs as root when processes can't be killed. Empty: none.
    #[serde(alias = "UnkillableStepProgram")]
    pub unkillable_step_program: String,
    /// Program that node daemons run as root to reboot their machine (`scontrol reboot`). Empty: none.
    #[serde(alias = "RebootProgram")]
    pub reboot_program: String,
    /// Seconds that a node has to come back after a reboot before it is down. Default 60.
    #[serde(alias = "ResumeTimeout")]
    pub resume_timeout_s: u64,
    /// When a node that is down returns to service, as in Slurm: 0, 1 or 2. None: a node that did not respond returns
    /// when it answers, also after a reboot.
    #[serde(alias = "ReturnToService")]
    pub return_to_service: Option<u8>,
    /// Number of launch failures in a row, at least 10 s apart and by a node's own fault, after which it is drained. Default 10; 0: never.
    pub launch_failures: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            program: String::new(),
            interval_s: 0,
            timeout_s: 60,
            node_state: CheckedStates::default(),
            after_fault: String::new(),
            resume: false,
            unkillable_step_timeout_s: limits::UNKILLABLE_STEP_S,
            unkillable_step_program: String::new(),
            reboot_program: String::new(),
            resume_timeout_s: 60,
            return_to_service: None,
            launch_failures: limits::LAUNCH_FAILURES,
        }
    }
}

impl HealthConfig {
    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let programs = [
            ("program", &self.program),
            ("after_fault", &self.after_fault),
            ("unkillable_step_program", &self.unkillable_step_program),
            ("reboot_program", &self.reboot_program),
        ];
        let relative = programs.into_iter().find(|(_, path)| !path.is_empty() && !is_path(path));
        let service = self.return_to_service.filter(|value| *value > 2);
        relative
            .map(|(key, path)| (key, path_fault(path)))
            .or_else(|| service.map(|value| ("return_to_service", format!("{value}: use 0, 1 or 2"))))
            .or_else(|| (self.timeout_s == 0).then(|| ("timeout_s", "0: use 1 or more".to_owned())))
            .or_else(|| {
                let problem = "0: use 1 or more, as every node that reboots would be down at once";
                (self.resume_timeout_s == 0).then(|| ("resume_timeout_s", problem.to_owned()))
            })
    }
}

/// Slurm's `HealthCheckNodeState`: the states in which nodes are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckedStates {
    /// `IDLE`, `NONDRAINED_IDLE`: nodes without jobs.
    pub idle: bool,
    /// `MIXED`: nodes with jobs and free CPUs.
    pub mixed: bool,
    /// `ALLOC`: nodes with jobs on all CPUs.
    pub alloc: bool,
    /// `CYCLE`: checks of different nodes are spread over the interval.
    pub cycle: bool,
    /// `START_ONLY`: nodes are checked when their daemon starts, and not later.
    pub start_only: bool,
}

impl Default for CheckedStates {
    fn default() -> Self {
        Self { idle: true, mixed: true, alloc: true, cycle: false, start_only: false }
    }
}

impl TryFrom<String> for CheckedStates {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut states = Self { idle: false, mixed: false, alloc: false, cycle: false, start_only: false };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_uppercase().as_str() {
                "ANY" => (states.idle, states.mixed, states.alloc) = (true, true, true),
                "IDLE" | "NONDRAINED_IDLE" => states.idle = true,
                "MIXED" => states.mixed = true,
                "ALLOC" => states.alloc = true,
                "CYCLE" => states.cycle = true,
                "START_ONLY" => states.start_only = true,
                _ => {
                    let known = "ALLOC, ANY, CYCLE, IDLE, MIXED, NONDRAINED_IDLE, START_ONLY";
                    return Err(format!("`{word}` is none of {known}"));
                }
            }
        }
        if !states.idle && !states.mixed && !states.alloc {
            (states.idle, states.mixed, states.alloc) = (true, true, true);
        }
        Ok(states)
    }
}

impl From<CheckedStates> for String {
    fn from(states: CheckedStates) -> Self {
        let any = states.idle && states.mixed && states.alloc;
        let words = [
            ("ANY", any),
            ("IDLE", states.idle && !any),
            ("MIXED", states.mixed && !any),
            ("ALLOC", states.alloc && !any),
            ("CYCLE", states.cycle),
            ("START_ONLY", states.start_only),
        ];
        let set: Vec<&str> = words.into_iter().filter(|(_, set)| *set).map(|(word, _)| word).collect();
        set.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::CheckedStates;
    use crate::config::Config;

    #[test]
    fn states_are_slurms_words() {
        let states = |text: &str| CheckedStates::try_from(text.to_owned()).map(String::from);
        assert_eq!(states("cycle,any"), Ok("ANY,CYCLE".to_owned()));
        assert_eq!(states("CYCLE"), Ok("ANY,CYCLE".to_owned()));
        assert_eq!(states("IDLE,MIXED"), Ok("IDLE,MIXED".to_owned()));
        assert!(states("BUSY").is_err_and(|problem| problem.contains("`BUSY`")));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let refused = |text: &str| Config::from_toml(text).expect_err("it is wrong");
        assert!(refused("health.return_to_service = 3").contains("[health] return_to_service: 3: use 0, 1 or 2"));
        assert!(refused("health.program = \"nhc\"").contains("[health] program: `nhc` is not an absolute path"));
        assert!(refused("HealthCheckProgram = \"/usr/sbin/nhc\"").contains("it belongs in [health]"));
        let config = Config::from_toml("[health]\nHealthCheckProgram = \"/usr/sbin/nhc\"\n").expect("it is right");
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
    }
}
