//! What the configuration says of all jobs: resource limits that they inherit, exit codes after which they are requeued.

use super::Config;

/// Resource limits that jobs may inherit from the submitting process: Slurm's name, Linux's number (setrlimit(2)).
pub const RLIMITS: [(&str, u32); 10] = [
    ("CPU", 0),
    ("FSIZE", 1),
    ("DATA", 2),
    ("STACK", 3),
    ("CORE", 4),
    ("RSS", 5),
    ("NPROC", 6),
    ("NOFILE", 7),
    ("MEMLOCK", 8),
    ("AS", 9),
];

/// Returns the numbers of the resource limits that a list names, as `NOFILE,MEMLOCK`, `ALL` or `NONE`; each may begin
/// with `RLIMIT_`. None: a name is unknown.
pub fn rlimits(list: &str) -> Option<Vec<u32>> {
    if list.trim().eq_ignore_ascii_case("NONE") {
        return Some(Vec::new());
    }
    let mut numbers = Vec::new();
    for name in list.split(',') {
        let name = name.trim().to_ascii_uppercase();
        let name = name.trim_start_matches("RLIMIT_");
        let named = RLIMITS.iter().filter(|(known, _)| name == "ALL" || *known == name);
        let before = numbers.len();
        numbers.extend(named.map(|(_, number)| *number));
        if numbers.len() == before {
            return None;
        }
    }
    Some(numbers)
}

/// Returns whether a list of exit codes and ranges, as `1-5,7`, has a code. None: the list is wrong.
fn has_code(list: &str, code: u8) -> Option<bool> {
    let mut has = false;
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u8, u8) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        has |= (first..=last).contains(&code);
    }
    Some(has)
}

impl Config {
    /// Returns whether jobs inherit this resource limit, unless `--propagate` says.
    pub fn propagates(&self, number: u32) -> bool {
        let named = |list: &str| rlimits(list).is_some_and(|numbers| numbers.contains(&number));
        let (only, except) = (&self.propagate_limits, &self.propagate_limits_except);
        (only.is_empty() || named(only)) && (except.is_empty() || !named(except))
    }

    /// Returns whether a job that may be requeued goes back to the queue after this exit code, and whether it is held then.
    /// None: it does not go back.
    pub fn requeues_after(&self, code: u8) -> Option<bool> {
        let lists = [(&self.requeue_exit_hold, true), (&self.requeue_exit, false)];
        lists.into_iter().find(|(list, _)| has_code(list, code) == Some(true)).map(|(_, hold)| hold)
    }

    pub(super) fn check_inherited(&self) -> Result<(), String> {
        let limits =
            [("propagate_limits", &self.propagate_limits), ("propagate_limits_except", &self.propagate_limits_except)];
        if let Some((key, list)) = limits.into_iter().find(|(_, list)| !list.is_empty() && rlimits(list).is_none()) {
            let known = RLIMITS.map(|(name, _)| name).join(",");
            return Err(format!("{key} = \"{list}\": use ALL, NONE or names among {known}"));
        }
        let codes = [("requeue_exit", &self.requeue_exit), ("requeue_exit_hold", &self.requeue_exit_hold)];
        match codes.into_iter().find(|(_, list)| has_code(list, 0).is_none()) {
            Some((key, list)) => {
                Err(format!("{key} = \"{list}\": use exit codes from 0 to 255 and ranges, as 1-5,100"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, RLIMITS};

    #[test]
    fn limits_are_inherited_as_the_lists_say() {
        let of = |text: &str| {
            let config = Config::from_toml(text).expect("it is right");
            RLIMITS.iter().filter(|(_, number)| config.propagates(*number)).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        assert_eq!(of("").len(), 10);
        assert_eq!(of("PropagateResourceLimits = \"NONE\""), [""; 0]);
        assert_eq!(of("propagate_limits = \"core,RLIMIT_NOFILE\""), ["CORE", "NOFILE"]);
        assert_eq!(of("PropagateResourceLimitsExcept = \"MEMLOCK\"").len(), 9);
        let wrong = Config::from_toml("propagate_limits = \"NOFILES\"").unwrap_err();
        assert!(wrong.contains("NOFILES") && wrong.contains("MEMLOCK"), "{wrong}");
    }

    #[test]
    fn exit_codes_are_single_ones_and_ranges() {
        let config = Config::from_toml("RequeueExit = \"1-5, 7\"\nRequeueExitHold = \"3\"").expect("it is right");
        let after = [0, 1, 3, 6, 7].map(|code| config.requeues_after(code));
        assert_eq!(after, [None, Some(false), Some(true), None, Some(false)]);
        for wrong in ["x", "1-", "256", "1--2"] {
            assert!(Config::from_toml(&format!("requeue_exit = \"{wrong}\"")).is_err(), "{wrong}");
        }
    }
}
