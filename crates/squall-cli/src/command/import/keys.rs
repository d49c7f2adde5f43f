//! Every key of slurm.conf, and what becomes of it: the keys that `squall.toml` has too, and a table of all others.

use squall_model::config::{Config, Key, SECTIONS, Section, Shown};

use super::lines::ALWAYS;
use super::report::Fate;
use super::value::{self, Outcome};

/// What becomes of a key.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// It is this key of `squall.toml`, which says what Slurm calls it, and of which form its value is.
    Same(&'static Section, &'static Key),
    /// It is this key of `squall.toml`, with the value that the function reads.
    Taken(&'static str, fn(&str) -> Result<String, String>),
    /// What it becomes depends on its value.
    By(fn(&str) -> Result<Outcome, String>),
    /// What it becomes depends on other keys: see `translate.rs`.
    Elsewhere,
    /// There is nothing that it could change, for this reason.
    Moot(&'static str),
    /// Squall lacks it, and does this instead. With one of these values (or with these words only) it is what Squall
    /// does anyway.
    Missing(&'static [&'static str], &'static str),
}

use Rule::{By, Elsewhere, Missing, Moot, Same, Taken};

impl Rule {
    /// Returns what a setting of Slurm's name `name` becomes. None: it depends on others.
    pub(super) fn outcome(self, name: &str, value: &str) -> Option<Result<Outcome, String>> {
        Some(match self {
            Elsewhere => return None,
            Same(section, key) => read(section, key, value).map(|value| {
                let path = section.path(key);
                let path = if key.slurm.contains(&name) && path == key.name { name.to_owned() } else { path };
                Outcome::set(path, value)
            }),
            Taken(key, read) => read(value).map(|value| Outcome::set(key, value)),
            By(read) => read(value),
            Moot(why) => Ok(Outcome::none(Fate::Moot, why)),
            Missing(words, _) if only(value, words) => Ok(Outcome::none(Fate::Moot, ALWAYS)),
            Missing(_, instead) => Ok(Outcome::none(Fate::Missing, instead)),
        })
    }
}

const DATABASE: &str = "accounting is a part of the controller: there is no database to reach";
const GONE: &str = "Slurm has given it up";
const CREDENTIALS: &str = "machines are known by keys of their own, and users by the kernel";
const TAKEOVER: &str = "no program runs when another controller takes over";
const BUFFERS: &str = "there are no burst buffers: stage files in the script";
const FILTER: &str = "no filter sees the options of commands";
const PROLOGS: &str = "prologs and epilogs are programs: name them by Prolog, Epilog and their like";
const LOGS: &str = "logs are in log/ of the state folder";
const WEB: &str = "the HTTP server has a table of its own, [rest] of squall.toml";
const METRICS: &str = "the HTTP server has them at /metrics, for each token of `scontrol token`";
const PIDS: &str = "pid files are in run/ of the state folder";

/// Keys that slurm.conf of Slurm 26.05 has outside the lines of nodes and partitions, by name. Those that are missing here
/// are the same in `squall.toml`.
pub(super) const KEYS: &[(&str, Rule)] = &[
    ("AccountingStorageBackupHost", Moot(DATABASE)),
    ("AccountingStorageExternalHost", Missing(&["none", "(null)"], "usage goes to this cluster's accounting only")),
    ("AccountingStorageHost", Moot(DATABASE)),
    ("AccountingStorageParameters", Moot(DATABASE)),
    ("AccountingStoragePass", Moot(DATABASE)),
    ("AccountingStoragePort", Moot(DATABASE)),
    (
        "AccountingStorageTRES",
        Missing(
            &["cpu", "mem", "node", "billing", "gres/gpu"],
            "cpu, mem, node, billing and gres/gpu are accounted, others are not",
        ),
    ),
    ("AccountingStorageType", Moot(DATABASE)),
    ("AccountingStorageUser", Moot(DATABASE)),
    (
        "AccountingStoreFlags",
        Missing(
            &["job_comment", "job_extra", "none", "(null)"],
            "`sacct -B` has a script until MinJobAge after the job's end; environments are not kept",
        ),
    ),
    ("AccountingStoreJobComment", Moot("comments are always kept")),
    ("AcctGatherEnergyType", By(value::energy)),
    (
        "AcctGatherFilesystemType",
        Missing(&["acct_gather_filesystem/none", "none", "(null)"], "use of file systems is not measured"),
    ),
    (
        "AcctGatherInfinibandType",
        Missing(&["acct_gather_infiniband/none", "none", "(null)"], "use of networks is not measured"),
    ),
    (
        "AcctGatherInterconnectType",
        Missing(&["acct_gather_interconnect/none", "none", "(null)"], "use of networks is not measured"),
    ),
    ("AcctGatherNodeFreq", By(value::energy_interval)),
    (
        "AcctGatherProfileType",
        Missing(&["acct_gather_profile/none", "none", "(null)"], "no profiles of tasks are recorded"),
    ),
    (
        "AllowSpecResourcesUsage",
        Missing(
            &["no", "0"],
            "jobs can't change CoreSpecCount: --core-spec and --thread-spec are ignored with a warning",
        ),
    ),
    ("AuthAltParameters", Moot(CREDENTIALS)),
    ("AuthAltTypes", Moot("users of the web interface have tokens: `scontrol token` makes them")),
    ("AuthInfo", Moot(CREDENTIALS)),
    ("AuthType", Moot(CREDENTIALS)),
    ("BackupAddr", Elsewhere),
    ("BackupController", Elsewhere),
    ("BatchStartTimeout", Moot("a node reports by itself what it could not start")),
    ("BcastExclude", Moot("`srun --bcast` copies the program alone")),
    ("BcastParameters", Missing(&["none", "(null)"], "DestDir and the like are given with each `sbcast`")),
    ("BurstBufferParameters", Missing(&["none", "(null)"], BUFFERS)),
    ("BurstBufferType", Missing(&["burst_buffer/none", "none", "(null)"], BUFFERS)),
    ("CertgenParameters", Moot(CREDENTIALS)),
    ("CertgenType", Moot(CREDENTIALS)),
    ("CertmgrParameters", Moot(CREDENTIALS)),
    ("CertmgrType", Moot(CREDENTIALS)),
    ("CliFilterParameters", Missing(&["none", "(null)"], FILTER)),
    ("CliFilterPlugins", Missing(&["cli_filter/none", "none", "(null)"], FILTER)),
    ("CommunicationParameters", Moot("links between machines are Squall's own")),
    ("ControlAddr", Elsewhere),
    ("ControlMachine", Elsewhere),
    ("CoreSpecPlugin", Moot("CoreSpecCount and CPUSpecList of nodes need no plugin")),
    ("CpuFreqDef", Missing(&["none", "(null)"], "steps without --cpu-freq leave the frequency of their CPUs as it is")),
    ("CpuFreqGovernors", Missing(&["none", "(null)"], "--cpu-freq may name each governor that the node has")),
    ("CredType", Moot(CREDENTIALS)),
    ("CryptoType", Moot(CREDENTIALS)),
    ("DataParserParameters", Moot("each command names the version that it wants: --json=v0.0.43")),
    ("DebugFlags", Missing(&["0", "none", "(null)"], "logs have levels only (SlurmctldDebug, SlurmdDebug)")),
    ("DependencyParameters", By(value::dependency)),
    ("EioTimeout", Moot("srun waits until the last output has come")),
    ("EpilogMsgTime", Moot("ends of jobs are merged on their way to the controller")),
    ("ExtSensorsFreq", Moot(GONE)),
    ("ExtSensorsType", Moot(GONE)),
    ("FairShareDampeningFactor", Moot("fair share is by Fair Tree, which has no such factor")),
    ("FastSchedule", Elsewhere),
    ("FederationParameters", Missing(&["none", "(null)"], "there is no federation of clusters")),
    ("GetEnvTimeout", Moot("`sbatch --get-user-env` has a timeout of its own")),
    ("GpuFreqDef", Missing(&["none", "(null)"], "the frequency of GPUs is left to the nodes")),
    ("GroupUpdateForce", Moot("groups are looked up on the controller's machine")),
    ("GroupUpdateTime", Moot("groups are looked up on the controller's machine")),
    ("HashPlugin", Moot(CREDENTIALS)),
    ("HttpParserType", Moot(WEB)),
    ("InteractiveStepOptions", Missing(&["none", "(null)"], "salloc runs its command where it is called")),
    ("JobAcctGatherFrequency", Moot("usage is read when steps end and when it is asked for")),
    ("JobAcctGatherParams", By(value::gather_params)),
    ("JobAcctGatherType", Moot("usage is read from cgroups or /proc, whichever the node has")),
    ("JobCompHost", Moot("it belongs to JobCompType")),
    ("JobCompLoc", Elsewhere),
    ("JobCompParams", Moot("it belongs to JobCompType")),
    ("JobCompPass", Moot("it belongs to JobCompType")),
    ("JobCompPassScript", Moot("it belongs to JobCompType")),
    ("JobCompPort", Moot("it belongs to JobCompType")),
    ("JobCompType", Elsewhere),
    ("JobCompUser", Moot("it belongs to JobCompType")),
    ("JobContainerType", Elsewhere),
    ("JobCredentialPrivateKey", Moot(CREDENTIALS)),
    ("JobCredentialPublicCertificate", Moot(CREDENTIALS)),
    ("JobSubmitPlugins", Elsewhere),
    ("KeepAliveTime", Moot("links are checked by messages of their own")),
    (
        "LaunchParameters",
        Missing(
            &["send_gids", "slurmstepd_memlock", "slurmstepd_memlock_all", "mpir_use_nodeaddr", "none", "(null)"],
            "srun and salloc behave as without the words",
        ),
    ),
    ("LaunchType", Moot("srun launches in one way")),
    ("LicenseParameters", Missing(&["none", "(null)"], "licenses are counted here only")),
    ("Licenses", Taken("Licenses", value::licenses)),
    ("LogTimeFormat", Moot("times in logs are UTC with milliseconds")),
    ("MaxArraySize", By(value::array_size)),
    ("MaxDBDMsgs", Moot(DATABASE)),
    ("MaxNodeCount", Moot("nodes may join at any time")),
    ("MaxStepCount", Missing(&["40000"], "the limit is fixed")),
    ("MCSParameters", Missing(&["none", "(null)"], "there is no multi-category security")),
    ("MCSPlugin", Missing(&["mcs/none", "none", "(null)"], "there is no multi-category security")),
    ("MessageTimeout", Moot("messages are sent again until they are acknowledged")),
    ("MetricsAuthUsers", Moot(METRICS)),
    ("MetricsParameters", Moot(METRICS)),
    ("MetricsType", Moot(METRICS)),
    ("MpiDefault", Moot("PMIx and PMI2 are always served")),
    ("MpiParams", By(value::mpi)),
    ("NamespaceType", Elsewhere),
    ("NodeFeaturesPlugins", Missing(&["none", "(null)"], "features are as configured: no node is rebooted for one")),
    ("PluginDir", Moot("there are no plugins")),
    ("PlugStackConfig", By(value::plugstack)),
    ("PowerParameters", Moot(GONE)),
    ("PowerPlugin", Moot(GONE)),
    ("PreemptMode", Elsewhere),
    (
        "PreemptParameters",
        Missing(
            &["youngest_first", "none", "(null)"],
            "the fewest jobs are preempted, of these the cheapest and youngest",
        ),
    ),
    ("PreemptType", Elsewhere),
    ("PrEpParameters", Missing(&["none", "(null)"], PROLOGS)),
    ("PrEpPlugins", Missing(&["prep/script", "none", "(null)"], PROLOGS)),
    ("PriorityFlags", By(|value| Ok(value::priority_flags(value)))),
    ("PriorityParameters", Missing(&["none", "(null)"], "priorities have Slurm's factors only")),
    ("PrioritySiteFactorParameters", Missing(&["none", "(null)"], "priorities have no factor of a site")),
    (
        "PrioritySiteFactorPlugin",
        Missing(&["site_factor/none", "none", "(null)"], "priorities have no factor of a site"),
    ),
    ("PriorityType", By(value::priority_type)),
    ("PriorityUsageResetPeriod", By(value::reset_period)),
    ("ProctrackType", Moot("processes are found by their cgroup, or by a mark in their environment")),
    ("PrologFlags", By(value::prolog_flags)),
    ("PropagatePrioProcess", Missing(&["0"], "tasks have the nice value of the node daemon")),
    (
        "ReconfigFlags",
        Missing(&["none", "(null)"], "`scontrol reconfigure` drops changes of partitions made by scontrol"),
    ),
    ("ResumeTimeout", By(value::resume_timeout)),
    ("ResvEpilog", Missing(&["none", "(null)"], "no program runs at the start or end of a reservation")),
    ("ResvProlog", Missing(&["none", "(null)"], "no program runs at the start or end of a reservation")),
    ("RoutePlugin", By(value::route)),
    ("SallocDefaultCommand", Moot("Slurm has given it up: salloc without a command starts the user's shell")),
    ("SbcastParameters", Missing(&["none", "(null)"], "options are given with each `sbcast`")),
    ("SchedulerParameters", By(value::scheduler)),
    ("SchedulerTimeSlice", Taken("SchedulerTimeSlice", value::number)),
    ("SchedulerType", By(value::scheduler_type)),
    ("ScronParameters", Missing(&["none", "(null)"], "there is no scrontab")),
    ("SelectType", Elsewhere),
    ("SelectTypeParameters", Elsewhere),
    ("SlurmctldAddr", Elsewhere),
    ("SlurmctldHost", Elsewhere),
    ("SlurmctldHttpAuthParameters", Moot(WEB)),
    ("SlurmctldLogFile", Moot(LOGS)),
    (
        "SlurmctldParameters",
        Missing(
            &[
                "enable_configless",
                "enable_stepmgr",
                "cloud_dns",
                "no_quick_restart",
                "max_powered_nodes",
                "none",
                "(null)",
            ],
            "the controller behaves as without the words",
        ),
    ),
    ("SlurmctldPidFile", Moot(PIDS)),
    ("SlurmctldPort", Elsewhere),
    ("SlurmctldPrimaryOffProg", Missing(&["none", "(null)"], TAKEOVER)),
    ("SlurmctldPrimaryOnProg", Missing(&["none", "(null)"], TAKEOVER)),
    ("SlurmctldSyslogDebug", Moot("daemons log to files, or to systemd's journal")),
    ("SlurmctldTimeout", Moot("lease_s in [log] is the time after which another controller takes over")),
    ("SlurmdHttpAuthParameters", Moot(WEB)),
    ("SlurmdLogFile", Moot(LOGS)),
    ("SlurmdParameters", Elsewhere),
    ("SlurmdPidFile", Moot(PIDS)),
    ("SlurmdPort", Elsewhere),
    ("SlurmdSpoolDir", Moot("each node has its spool in node/NAME of the state folder")),
    ("SlurmdSyslogDebug", Moot("daemons log to files, or to systemd's journal")),
    ("SlurmdTimeout", By(value::node_timeout)),
    ("SlurmdUser", Moot("node daemons run as the user who starts them: as root for jobs of all users")),
    ("SlurmSchedLogFile", Missing(&["none", "(null)"], "`squall why JOB` says why a job waits")),
    ("SlurmSchedLogLevel", Missing(&["0"], "`squall why JOB` says why a job waits")),
    ("SlurmUser", Moot("the cluster runs as the user who starts it: as root for jobs of all users")),
    ("SrunPortRange", By(value::srun_ports)),
    ("StateSaveLocation", Moot("`squall up --state DIR` names the state folder")),
    ("SuspendTime", By(value::suspend_time)),
    ("SwitchParameters", Missing(&["none", "(null)"], "nothing is set up in the network for a job")),
    ("SwitchType", Missing(&["switch/none", "none", "(null)"], "nothing is set up in the network for a job")),
    ("TaskPlugin", By(value::task_plugin)),
    ("TaskPluginParam", Missing(&["none", "(null)"], "tasks are bound as `srun --cpu-bind` says")),
    ("TCPTimeout", Moot("messages are sent again until they are acknowledged")),
    ("TLSParameters", Moot(CREDENTIALS)),
    ("TLSType", Moot(CREDENTIALS)),
    ("TopologyParam", Elsewhere),
    ("TopologyPlugin", Elsewhere),
    ("TrackWCKey", Missing(&["NO", "0"], "a job's wckey is kept and not checked")),
    ("TreeWidth", By(value::tree_width)),
    ("UrlParserType", Moot(WEB)),
    ("UsePAM", Missing(&["NO", "0"], "tasks have no PAM session")),
    ("VSizeFactor", Missing(&["0"], "virtual memory is not limited")),
    ("X11Parameters", Missing(&["none", "(null)"], "the cookie for X11 is in the step's own folder")),
];

/// Keys of older releases of Slurm.
pub(super) const OLD: [(&str, Rule); 15] = [
    ("AccountingStorageLoc", Moot(DATABASE)),
    ("CacheGroups", Moot("Slurm has given it up")),
    ("CheckpointType", Moot("Slurm has given it up")),
    ("DefaultStorageHost", Moot(DATABASE)),
    ("DefaultStorageLoc", Moot(DATABASE)),
    ("DefaultStoragePass", Moot(DATABASE)),
    ("DefaultStoragePort", Moot(DATABASE)),
    ("DefaultStorageType", Moot(DATABASE)),
    ("DefaultStorageUser", Moot(DATABASE)),
    ("MemLimitEnforce", Moot("Slurm has given it up: memory is limited by cgroups")),
    ("SchedulerAuth", Moot("Slurm has given it up")),
    ("SchedulerPort", Moot("Slurm has given it up")),
    ("SchedulerRootFilter", Moot("Slurm has given it up")),
    ("SlurmctldPlugstack", Moot("there are no plugins")),
    ("UseSPANK", Moot("there are no plugins")),
];

/// Returns the rule for a key of slurm.conf and its name in Slurm's spelling.
pub(super) fn find(key: &str) -> Option<(&'static str, Rule)> {
    named(KEYS.iter().chain(&OLD), "", key)
}

/// Returns the row of a table for a key, whatever its case, or that of the same key in a table of `squall.toml`.
pub(super) fn named(
    rows: impl IntoIterator<Item = &'static (&'static str, Rule)>,
    table: &str,
    key: &str,
) -> Option<(&'static str, Rule)> {
    rows.into_iter().copied().chain(same(table)).find(|(name, _)| name.eq_ignore_ascii_case(key))
}

/// Returns the keys of a table of `squall.toml` that may be repeated, or of all others if `table` is empty, by the names
/// that Slurm has for them. Of those others only the keys that `scontrol show config` has are of slurm.conf.
pub(super) fn same(table: &str) -> impl Iterator<Item = (&'static str, Rule)> {
    let here = move |section: &&Section| if section.repeated { section.table == table } else { table.is_empty() };
    let keys = SECTIONS.iter().filter(here).flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    let plain = |key: &Key| key.shown().is_some_and(|(_, shown)| !matches!(shown, Shown::Means(_)));
    // The name of a node or partition begins its line.
    let keys = keys.filter(move |(section, key)| if section.repeated { key.name != "name" } else { plain(key) });
    keys.flat_map(|(section, key)| key.names().map(move |name| (name, Same(section, key))))
}

/// Reads the value of a key that is the same, as TOML.
pub(super) fn read(section: &Section, key: &Key, value: &str) -> Result<String, String> {
    match (key.kind, key.unit) {
        _ if key.shown().is_some_and(|(_, shown)| shown == Shown::Limit) => value::seconds_or_none(value),
        ("boolean", _) => value::yes(value),
        ("time", _) => value::time(value),
        (_, "MiB") => value::memory(value),
        ("number" | "port", _) => value::number(value),
        ("word" | "words" | "level" | "parameters", _) => {
            let text = value::quoted(value);
            let read = Config::from_toml(&format!("{} = {text}", section.path(key)));
            let why = |problem: String| problem.trim_end().lines().last().unwrap_or_default().to_owned();
            read.map(|_| text).map_err(why)
        }
        _ => value::text(value),
    }
}

/// Returns whether all words of a value are among these. `NO` and `0` stand for `false`, too.
fn only(value: &str, words: &[&str]) -> bool {
    let is_no = |word: &str| ["NO", "0", "false"].iter().any(|no| no.eq_ignore_ascii_case(word));
    let none = words.iter().any(|word| is_no(word));
    let known = |word: &str| words.iter().any(|known| known.eq_ignore_ascii_case(word)) || (none && is_no(word));
    known(value) || (!value.is_empty() && value.split(',').map(str::trim).all(|word| word.is_empty() || known(word)))
}

#[cfg(test)]
mod tests {
    use super::super::beside::{CGROUP, OTHERS};
    use super::super::nodes::KEYS as NODES;
    use super::super::partitions::KEYS as PARTITIONS;
    use super::{KEYS, OLD, Rule, find, only, same};
    use squall_model::config::Config;

    /// Settings that Squall lacks, and whose texts name a key that it has: another one, which does part of it.
    const OTHER_KEYS: [&str; 2] = ["PrEpParameters", "PrEpPlugins"];

    /// Words of a text that denies something, and a key that shows that it is there.
    const DENIALS: [(&str, &str); 8] = [
        ("no web", "rest.listen"),
        ("no metrics", "rest.listen"),
        ("no mail", "MailProg"),
        ("not switched off", "power.suspend_program"),
        ("not forwarded", "hooks.prolog_flags"),
        ("not by their links", "gres"),
        ("is not managed by power", "power.resume_program"),
        ("no prolog", "hooks.prolog"),
    ];

    fn is_known(key: &str) -> bool {
        !matches!(Config::from_toml(&format!("{key} = []\n")), Err(problem) if problem.contains("unknown key"))
    }

    #[test]
    fn the_table_is_sorted_and_agrees_with_the_configuration() {
        let names: Vec<String> = KEYS.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        assert!(names.is_sorted(), "a key stands out of order");
        let apart = ["ControlMachine", "PreemptMode", "PreemptType", "SlurmctldHost", "SlurmctldPort", "SlurmdPort"];
        let apart = apart.iter().chain(&["SelectTypeParameters", "TopologyParam", "TopologyPlugin"]);
        assert_eq!(KEYS.len() + same("").filter(|(name, _)| KEYS.iter().all(|(row, _)| row != name)).count(), 244);
        for (name, rule) in KEYS.iter().chain(&OLD) {
            match rule {
                Rule::Taken(key, _) => assert!(is_known(key), "{name}: the configuration has no `{key}`"),
                Rule::Elsewhere => {
                    let taken = apart.clone().any(|known| known == name);
                    assert_eq!(is_known(name), taken, "{name}");
                }
                Rule::By(_) => {}
                _ => assert!(!is_known(name), "{name}: the configuration has it, so the import should take it"),
            }
        }
    }

    /// Checks finding F3 of the second audit: texts about what is missing had outlived what they were about.
    #[test]
    fn what_the_import_calls_missing_is_missing() {
        let rules = KEYS.iter().chain(&OLD).chain(NODES).chain(PARTITIONS).chain(CGROUP);
        let mut texts: Vec<(&str, &str, bool)> = Vec::new();
        for (name, rule) in rules {
            match rule {
                Rule::Missing(_, text) => texts.push((name, text, true)),
                Rule::Moot(text) => texts.push((name, text, false)),
                _ => {}
            }
        }
        texts.extend(OTHERS.iter().map(|(name, text)| (*name, *text, true)));
        for (name, text, missing) in texts {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            // Slurm's words for other things than keys begin with a capital: `Count`, `Nodes`.
            let keys: Vec<&str> = words.filter(|word| word.contains('_') && is_known(word)).collect();
            let other = OTHER_KEYS.contains(&name) || keys.is_empty() || !missing;
            assert!(other, "{name}: `{text}` names {keys:?}, so the import should set it");
            for (denial, key) in DENIALS.iter().filter(|(denial, _)| text.contains(denial)) {
                assert!(!is_known(key), "{name}: `{text}` denies what `{key}` does ({denial})");
            }
        }
    }

    #[test]
    fn keys_are_found_in_any_case_and_words_are_compared_one_by_one() {
        assert_eq!(find("killwait").map(|(name, _)| name), Some("KillWait"));
        assert!(find("KilWait").is_none());
        assert!(only("task/affinity,task/cgroup", &["task/affinity", "task/cgroup"]) && only("0", &["0"]));
        assert!(only("False", &["NO", "0"]) && !only("true", &["NO"]));
        assert!(!only("jobs,usage", &["jobs"]) && !only("", &["none"]));
    }
}
