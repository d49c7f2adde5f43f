//! Programs that the cluster runs as root around each job: prologs and epilogs.

use serde::{Deserialize, Serialize};

use super::words;

/// Programs that run around each job, and when. Each path is a program, or a folder of programs that run in the order
/// of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hooks {
    /// Programs that run on each node before the job's first process there. Empty: none.
    #[serde(alias = "Prolog", deserialize_with = "words::names")]
    pub prolog: Vec<String>,
    /// Programs that run on each node after the job's last process there. Empty: none.
    #[serde(alias = "Epilog", deserialize_with = "words::names")]
    pub epilog: Vec<String>,
    /// Programs that run on the controller's machine before the job is sent to its nodes. Empty: none.
    #[serde(alias = "PrologSlurmctld", deserialize_with = "words::names")]
    pub prolog_slurmctld: Vec<String>,
    /// Programs that run on the controller's machine after the job has left its nodes. Empty: none.
    #[serde(alias = "EpilogSlurmctld", deserialize_with = "words::names")]
    pub epilog_slurmctld: Vec<String>,
    /// When and how prologs run.
    #[serde(alias = "PrologFlags")]
    pub prolog_flags: PrologFlags,
    /// Time limit of prologs, seconds. 0: `prolog_epilog_timeout_s`.
    #[serde(alias = "PrologTimeout")]
    pub prolog_timeout_s: u64,
    /// Time limit of epilogs, seconds. 0: `prolog_epilog_timeout_s`.
    #[serde(alias = "EpilogTimeout")]
    pub epilog_timeout_s: u64,
    /// Time limit of prologs and epilogs, seconds. Default 0: none.
    #[serde(alias = "PrologEpilogTimeout")]
    pub prolog_epilog_timeout_s: u64,
}

impl Hooks {
    /// Returns whether no program is configured and every other setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether nodes run programs around jobs.
    pub fn on_nodes(&self) -> bool {
        !self.prolog.is_empty() || !self.epilog.is_empty()
    }

    /// Returns whether the start of a job waits for the prologs of all of its nodes: its script (`DeferBatch`), or the
    /// command of its `salloc` (`Alloc` without `NoHold`).
    pub fn are_awaited(&self, batch: bool) -> bool {
        let flags = self.prolog_flags;
        !self.prolog.is_empty() && if batch { flags.defer_batch } else { flags.alloc && !flags.no_hold }
    }

    /// Returns whether the controller runs programs.
    pub fn are_of_controller(&self) -> bool {
        !self.prolog_slurmctld.is_empty() || !self.epilog_slurmctld.is_empty()
    }

    /// Returns the time limit of prologs, seconds; None: they have none.
    pub fn prolog_limit_s(&self) -> Option<u64> {
        [self.prolog_timeout_s, self.prolog_epilog_timeout_s].into_iter().find(|limit| *limit > 0)
    }

    /// Returns the time limit of epilogs, seconds; None: they have none.
    pub fn epilog_limit_s(&self) -> Option<u64> {
        [self.epilog_timeout_s, self.prolog_epilog_timeout_s].into_iter().find(|limit| *limit > 0)
    }

    /// Returns the first path that is not absolute, with its key.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let lists = [
            ("prolog", &self.prolog),
            ("epilog", &self.epilog),
            ("prolog_slurmctld", &self.prolog_slurmctld),
            ("epilog_slurmctld", &self.epilog_slurmctld),
        ];
        let relative = lists.into_iter().find_map(|(key, list)| Some((key, list.iter().find(|path| !is_path(path))?)));
        relative.map(|(key, path)| (key, path_fault(path)))
    }
}

/// Returns whether a text is an absolute path.
pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains('\0')
}

/// Returns what is wrong with a text that is no absolute path.
pub(super) fn path_fault(path: &str) -> String {
    format!("`{path}` is not an absolute path")
}

/// Slurm's `PrologFlags`. A flag that another one implies is set with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrologFlags {
    /// `Alloc`: the prolog runs on all nodes as soon as the job has them. Otherwise it runs on a node before the job's
    /// first step there.
    pub alloc: bool,
    /// `Contain`: each job has a cgroup from its start on. It always has where the node has cgroups; implies `Alloc`.
    pub contain: bool,
    /// `DeferBatch`: a script starts when the prologs of all of the job's nodes have ended; implies `Alloc`.
    pub defer_batch: bool,
    /// `ForceRequeueOnFail`: a job with a failing prolog is requeued even if it has `--no-requeue`.
    pub force_requeue: bool,
    /// `NoHold`: `salloc` does not wait for the prologs; implies `Alloc`.
    pub no_hold: bool,
    /// `RunInJob`: prolog and epilog run in the job's cgroup; implies `Contain`.
    pub run_in_job: bool,
    /// `Serial`: a node runs one prolog or epilog at a time.
    pub serial: bool,
}

impl PrologFlags {
    /// Returns each flag's name in Slurm's spelling, and whether it is set.
    fn words(self) -> [(&'static str, bool); 7] {
        [
            ("Alloc", self.alloc),
            ("Contain", self.contain),
            ("DeferBatch", self.defer_batch),
            ("ForceRequeueOnFail", self.force_requeue),
            ("NoHold", self.no_hold),
            ("RunInJob", self.run_in_job),
            ("Serial", self.serial),
        ]
    }
}

impl TryFrom<String> for PrologFlags {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut flags = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "none" => {}
                "alloc" => flags.alloc = true,
                "contain" => flags.contain = true,
                "deferbatch" => flags.defer_batch = true,
                "forcerequeueonfail" => flags.force_requeue = true,
                "nohold" => flags.no_hold = true,
                "runinjob" => flags.run_in_job = true,
                "serial" => flags.serial = true,
                "x11" => return Err("`X11`: X11 is not forwarded: leave it out".to_owned()),
                _ => {
                    let known: Vec<&str> = flags.words().iter().map(|(word, _)| *word).collect();
                    return Err(format!("`{word}` is none of {}", known.join(", ")));
                }
            }
        }
        if flags.serial && flags.run_in_job {
            return Err("`Serial` and `RunInJob` can't be combined".to_owned());
        }
        flags.contain |= flags.run_in_job;
        flags.alloc |= flags.contain || flags.defer_batch || flags.no_hold;
        Ok(flags)
    }
}

impl From<PrologFlags> for String {
    fn from(flags: PrologFlags) -> Self {
        let set: Vec<&str> = flags.words().into_iter().filter(|(_, set)| *set).map(|(word, _)| word).collect();
        set.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::PrologFlags;
    use crate::config::Config;

    #[test]
    fn paths_are_a_text_with_commas_or_a_list() {
        let text = "[hooks]\nProlog = \"/etc/a,/etc/b.d\"\nepilog = [\"/etc/c\"]\nPrologEpilogTimeout = 60\n\
                    epilog_timeout_s = 5\n";
        let config = Config::from_toml(text).expect("these are the words");
        assert_eq!(config.hooks.prolog, ["/etc/a", "/etc/b.d"]);
        assert_eq!((config.hooks.prolog_limit_s(), config.hooks.epilog_limit_s()), (Some(60), Some(5)));
        let again = Config::from_toml(&config.to_toml().expect("it is text")).expect("what is written is read");
        assert_eq!(again, config);
        let dotted = Config::from_toml("hooks.prolog = \"/etc/a,/etc/b.d\"\n").expect("dotted keys serve as well");
        assert_eq!(dotted.hooks.prolog, config.hooks.prolog);
        assert!(Config::default().to_toml().is_ok_and(|text| !text.contains("hooks")));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let refused = |text: &str| Config::from_toml(text).expect_err("it is wrong");
        assert!(
            refused("hooks.prolog = \"prolog.sh\"").contains("[hooks] prolog: `prolog.sh` is not an absolute path")
        );
        assert!(refused("hooks.prolog_flags = \"Alloc,Fast\"").contains("`Fast` is none of Alloc, Contain"));
        assert!(refused("hooks.prolog_flags = \"X11\"").contains("X11 is not forwarded"));
        assert!(refused("Prolog = \"/etc/prolog\"").contains("it belongs in [hooks]"));
    }

    #[test]
    fn flags_imply_others() {
        let flags = |text: &str| PrologFlags::try_from(text.to_owned()).map(String::from);
        assert_eq!(flags("nohold"), Ok("Alloc,NoHold".to_owned()));
        assert_eq!(flags("RunInJob"), Ok("Alloc,Contain,RunInJob".to_owned()));
        assert_eq!(flags("none"), Ok(String::new()));
        assert!(flags("Serial,RunInJob").is_err());
    }
}
