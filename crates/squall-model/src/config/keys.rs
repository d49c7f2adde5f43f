//! The keys of the configuration file as data, for the reference page, the manual page, errors about unknown keys,
//! `scontrol show config` and the import from Slurm.

mod programs;

use Shown::{After, Digit, In, Means, Never, Or, Set, Usual};
use programs::{ENERGY, FROM_SLURM, HEALTH, HOOKS, POWER, READERS, SUBMIT};

/// Keys that stand together in a table of the file, under one title.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Name of the table, as `partitions`. Empty: the top of the file, before the first table.
    pub table: &'static str,
    /// Whether the table may be repeated, as `[[partitions]]`.
    pub repeated: bool,
    /// Title for the reference, as `Timeouts`.
    pub title: &'static str,
    /// What the keys are about: one or more sentences. Empty: the title says it.
    pub about: &'static str,
    /// The keys, in the order of the reference.
    pub keys: &'static [Key],
}

impl Section {
    /// Returns the name of a key at the top of the file, as `hooks.prolog`, or in a table that may be repeated.
    pub fn path(&self, key: &Key) -> String {
        let plain = self.table.is_empty() || self.repeated;
        if plain { key.name.to_owned() } else { format!("{}.{}", self.table, key.name) }
    }

    /// Returns the line that begins the table, as `[[partitions]]`.
    fn head(&self) -> String {
        if self.repeated { format!("[[{}]]", self.table) } else { format!("[{}]", self.table) }
    }
}

/// A key of the configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Squall's name of the key.
    pub name: &'static str,
    /// Other names under which the file may have it, Slurm's usual one first.
    pub slurm: &'static [&'static str],
    /// Slurm's names of keys for the same purpose that the file can't have, because their values have another form.
    pub akin: &'static [&'static str],
    /// Form of the value, as `number`.
    pub kind: &'static str,
    /// Unit of the value, as `seconds`. Empty: it has none.
    pub unit: &'static str,
    /// What holds if the key has no default value, as `detected`. Empty: it has one.
    pub unset: &'static str,
    /// A value that the reader takes, as TOML.
    pub example: &'static str,
    /// What the key is for, in a sentence or two.
    pub what: &'static str,
    /// The name under which `scontrol show config` has the key. Empty: the first of Slurm's names.
    title: &'static str,
    /// How it is written there.
    shown: Shown,
}

/// How `scontrol show config` writes the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// As form and unit of the value say: a number of seconds as `30 sec`, an empty text as `(null)`.
    Usual,
    /// As usual, but only if it is set.
    Set,
    /// Not at all: the name is of another file of Slurm, or Squall's own.
    Never,
    /// As the value, or as this text if there is none.
    Or(&'static str),
    /// As this text and the value.
    After(&'static str),
    /// As this word if there is a value other than `false`.
    Means(&'static str),
    /// As a number with this unit.
    In(&'static str),
    /// As 1 or 0.
    Digit,
    /// As a number of seconds without a unit, of which 65534 is Slurm's for no limit.
    Limit,
}

impl Key {
    /// Returns the form of the value with its unit, as `number, MiB`.
    pub fn form(&self) -> String {
        if self.unit.is_empty() { self.kind.to_owned() } else { format!("{}, {}", self.kind, self.unit) }
    }

    /// Returns the name under which `scontrol show config` has the key, and how it is written there. None: it has not.
    pub fn shown(&self) -> Option<(&'static str, Shown)> {
        let name = if self.title.is_empty() { self.names().next()? } else { self.title };
        (self.shown != Never).then_some((name, self.shown))
    }

    /// Returns Slurm's names of the key, and those of keys for the same purpose.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.slurm.iter().chain(self.akin).copied()
    }

    /// Returns the key with the way in which `scontrol show config` writes it.
    const fn shown_as(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// Returns the key with its name in `scontrol show config`.
    const fn called(self, title: &'static str) -> Self {
        Self { title, ..self }
    }

    /// Returns the key with what holds if it is not set.
    const fn or(self, unset: &'static str) -> Self {
        Self { unset, ..self }
    }

    /// Returns the key with Slurm's names for the same purpose.
    const fn akin(self, akin: &'static [&'static str]) -> Self {
        Self { akin, ..self }
    }

    /// Returns the key with the unit of its value.
    const fn of(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }
}

/// Returns a key: its name, other names, form, example, meaning.
const fn key(
    name: &'static str,
    slurm: &'static [&'static str],
    kind: &'static str,
    example: &'static str,
    what: &'static str,
) -> Key {
    Key { name, slurm, akin: &[], kind, unit: "", unset: "", example, what, title: "", shown: Usual }
}

/// Returns a section of keys at the top of the file.
const fn top(title: &'static str, about: &'static str, keys: &'static [Key]) -> Section {
    Section { table: "", repeated: false, title, about, keys }
}

/// Returns the section of a table that may be repeated.
const fn tables(table: &'static str, title: &'static str, about: &'static str, keys: &'static [Key]) -> Section {
    Section { table, repeated: true, title, about, keys }
}

/// Returns what to do about a key that a table can't have: it has another name here, or belongs in other tables. None:
/// no table has it.
pub(super) fn remedy(word: &str) -> Option<String> {
    let named = |name: &&str| name.eq_ignore_ascii_case(word);
    let akin = |key: &&Key| key.akin.iter().any(named);
    for section in SECTIONS {
        if let Some(key) = section.keys.iter().find(akin) {
            return Some(format!("its name here is `{}` ({})", section.path(key), key.form()));
        }
    }
    let has = |key: &Key| named(&key.name) || key.slurm.iter().any(named);
    let places: Vec<&Section> = SECTIONS.iter().filter(|section| section.keys.iter().any(has)).collect();
    if places.iter().any(|section| section.table.is_empty()) {
        return Some("it belongs at the top of the file, before the first [table]".to_owned());
    }
    let places: Vec<String> = places.iter().map(|section| section.head()).collect();
    (!places.is_empty()).then(|| format!("it belongs in {}", places.join(" or ")))
}

/// All keys, in the order of the reference.
pub const SECTIONS: &[Section] = &[
    top("Cluster", "", CLUSTER),
    tables("nodes", "Nodes", "A table for each kind of node. Unset values are detected.", NODES),
    tables("partitions", "Partitions", "Without a table there is one partition `debug` of all nodes.", PARTITIONS),
    top("Jobs", "", JOBS),
    top("Limits of the queue", "A submission beyond a limit is refused.", QUEUE),
    top("Timeouts", "", TIMEOUTS),
    top("Scheduling", "", SCHEDULING),
    top("Priority", "The weights need `priority_type = \"priority/multifactor\"`.", PRIORITY),
    top("Preemption and gang scheduling", "", PREEMPTION),
    top("Accounting", "Accounts, users, QOS and their limits are made by `sacctmgr`.", ACCOUNTING),
    top("Licenses and generic resources", "", RESOURCES),
    tables("gres", "Devices", "A table is a line of `gres.conf`. A `gres.conf` beside the file serves as well.", GRES),
    top("Network", "", NETWORK),
    tables(
        "controllers",
        "Several controllers",
        "A table for each, in order of preference; the file is the same on all. One leads, the others can take over.",
        CONTROLLERS,
    ),
    Section {
        table: "log",
        repeated: false,
        title: "Log of several controllers",
        about: "Where several controllers keep their log: in etcd. Nodes and login hosts don't get this table.",
        keys: LOG,
    },
    Section {
        table: "rest",
        repeated: false,
        title: "HTTP server",
        about: "It serves Slurm's REST interface, metrics and the dashboard.",
        keys: REST,
    },
    Section {
        table: "hooks",
        repeated: false,
        title: "Prologs and epilogs",
        about: "Programs that run as root around each job. A folder stands for its programs, in the order of their names.",
        keys: HOOKS,
    },
    Section {
        table: "health",
        repeated: false,
        title: "Health of nodes",
        about: "How nodes are checked, rebooted and returned to service.",
        keys: HEALTH,
    },
    Section {
        table: "power",
        repeated: false,
        title: "Power saving",
        about: "Nodes that are switched off while no job needs them. The programs run on the controller's machine.",
        keys: POWER,
    },
    Section {
        table: "submit",
        repeated: false,
        title: "Submit filter",
        about: "A script or program of the site that changes or refuses jobs when they are submitted.",
        keys: SUBMIT,
    },
    Section {
        table: "accounting",
        repeated: false,
        title: "Accounting as data",
        about: "Where the records are, who reads them without Squall, and how long they are kept.",
        keys: READERS,
    },
    Section {
        table: "energy",
        repeated: false,
        title: "Energy",
        about: "By what nodes measure the energy that jobs use.",
        keys: ENERGY,
    },
    Section {
        table: "slurm",
        repeated: false,
        title: "Taken over from Slurm",
        about: "Plugins of SPANK run as they are, in processes beside jobs and commands.",
        keys: FROM_SLURM,
    },
    top("Topology", "", TOPOLOGY),
    tables("switches", "Switches", "Leaf switches with their nodes. Adjacent ones follow each other.", SWITCHES),
    Section {
        table: "topology",
        repeated: false,
        title: "Topology file",
        about: "A `topology.yaml` or `topology.conf` beside the file goes before this table.",
        keys: TOPOLOGY_FILE,
    },
    top("Logs", "", LOGS),
    top("Cells", "`squall up --cells N` sets this key in the file of each cell.", CELLS),
];

#[rustfmt::skip]
const CLUSTER: &[Key] = &[
    key("cluster", &["ClusterName"], "text", "\"lab\"",
        "Name of the cluster (`SLURM_CLUSTER_NAME`)."),
    key("open", &[], "boolean", "false",
        "Whether nodes that no `[[nodes]]` table lists may join."),
];

#[rustfmt::skip]
const NODES: &[Key] = &[
    key("name", &["NodeName"], "host list", "\"n[1-4]\"",
        "Names of the nodes."),
    key("cpus", &["CPUs"], "number", "8",
        "CPUs of each node on which jobs may run.").or("detected"),
    key("sockets", &["Sockets"], "number", "2",
        "Sockets of each node.").or("detected"),
    key("cores_per_socket", &["CoresPerSocket"], "number", "16",
        "Cores of each socket.").or("detected"),
    key("threads_per_core", &["ThreadsPerCore"], "number", "2",
        "Hardware threads of each core.").or("detected"),
    key("memory_mb", &["RealMemory"], "number", "64000",
        "Memory of each node. Nodes of one machine share its memory equally if it is unset.").of("MiB").or("detected"),
    key("core_spec_count", &["CoreSpecCount"], "number", "2",
        "Cores of each node that are kept for the system: the last ones of its sockets in turn.").or("none"),
    key("cpu_spec_list", &["CpuSpecList", "CPUSpecList"], "list of CPUs", "\"0-3\"",
        "CPUs of which the cores are kept for the system, instead of `core_spec_count`; all threads of a core follow each other.")
        .or("none"),
    key("mem_spec_limit_mb", &["MemSpecLimit"], "number", "4000",
        "Memory of each node that is kept for the system.").of("MiB").or("`0`"),
    key("tmp_disk_mb", &["TmpDisk"], "number", "100000",
        "Scratch space of each node in `tmp_fs`, at most what is free there when its daemon starts.").of("MiB").or("detected"),
    key("features", &["Features", "Feature"], "list of names", "[\"amd\", \"nvme\"]",
        "Features of the nodes, for `--constraint`. A text with commas is taken too."),
    key("weight", &["Weight"], "number", "10",
        "Nodes of lower weight are allocated first.").or("`1`"),
    key("gres", &["Gres"], "text", "\"gpu:a100:4\"",
        "Generic resources of each node, as `NAME[:TYPE]:COUNT`, separated by commas."),
    key("force", &[], "boolean", "true",
        "Whether the values hold even if the machine has less. Otherwise such a node is refused or drained."),
    key("emulated", &[], "boolean", "true",
        "Whether the nodes are emulated: many in one process, with timers instead of tasks."),
    key("remote", &[], "boolean", "true",
        "Whether each node is a machine of its own that joins. `squall up` does not start it."),
    key("state", &["State"], "word", "\"FUTURE\"",
        "`FUTURE`: the nodes may join some day; until then they are not shown, and no job waits for them. `CLOUD`: they are \
         powered down until a job needs them; they need `cpus`, and `[power]`.")
        .or("`UNKNOWN`"),
];

#[rustfmt::skip]
const PARTITIONS: &[Key] = &[
    key("name", &["PartitionName"], "text", "\"short\"",
        "Name of the partition."),
    key("nodes", &["Nodes"], "host list", "\"n[1-2]\"",
        "Nodes of the partition; `ALL` or empty: all nodes; `NONE`: no node."),
    key("default", &["Default"], "boolean", "true",
        "Whether jobs without `--partition` use it. If no partition has it set, it is the first without `false`."),
    key("state", &["State"], "word", "\"drain\"",
        "`up`, `down` (starts no jobs), `drain` (accepts no jobs) or `inactive` (neither)."),
    key("max_time_s", &["MaxTime"], "time", "\"1-00:00:00\"",
        "Longest time limit of a job. A number is seconds, a text is as in Slurm: `\"60\"` is 60 minutes.").of("seconds")
        .or("no limit"),
    key("default_time_s", &["DefaultTime"], "time", "\"30\"",
        "Time limit of jobs without `--time`, in the same forms.").of("seconds").or("`max_time_s`"),
    key("max_nodes", &["MaxNodes"], "number", "4",
        "Most nodes of a job.").or("no limit"),
    key("min_nodes", &["MinNodes"], "number", "2",
        "Fewest nodes of a job."),
    key("allow_users", &[], "list of names", "[\"alice\", \"bob\"]",
        "Users that may use the partition; empty: all."),
    key("allow_groups", &["AllowGroups"], "list of names", "[\"physics\"]",
        "Groups whose members may use the partition; empty: all users."),
    key("allow_accounts", &["AllowAccounts"], "list of names", "[\"lab\"]",
        "Accounts that may use the partition; empty: all."),
    key("deny_accounts", &["DenyAccounts"], "list of names", "[\"guests\"]",
        "Accounts that may not use the partition."),
    key("allow_qos", &["AllowQos"], "list of names", "[\"normal\", \"high\"]",
        "QOS that may use the partition; empty: all."),
    key("deny_qos", &["DenyQos"], "list of names", "[\"low\"]",
        "QOS that may not use the partition."),
    key("qos", &["QOS", "QoS"], "text", "\"gpu\"",
        "QOS whose limits all jobs of the partition share; empty: none."),
    key("priority_tier", &["PriorityTier"], "number", "10",
        "Jobs of a partition with a higher tier are scheduled first, and may preempt."),
    key("priority_job_factor", &["PriorityJobFactor"], "number", "1000",
        "Priority factor of the partition relative to others, for `priority_weight_partition`."),
    key("preempt_mode", &["PreemptMode"], "word", "\"requeue\"",
        "What happens to preempted jobs of the partition: `off`, `cancel`, `requeue`, `checkpoint` or `suspend`.")
        .or("the cluster's"),
    key("grace_time_s", &["GraceTime"], "number", "60",
        "Time between warning and end of preempted jobs.").of("seconds"),
    key("oversubscribe", &["OverSubscribe"], "word", "\"FORCE:2\"",
        "How many jobs may hold a core: `NO` (one), `EXCLUSIVE` (whole nodes), `YES:N` (if they ask), `FORCE:N`."),
    key("exclusive_user", &["ExclusiveUser"], "boolean", "true",
        "Whether no other user's job runs on the nodes of a job."),
    key("exclusive_topo", &["ExclusiveTopo"], "boolean", "true",
        "Whether no other job runs in the [blocks](../topology.md#blocks) of a job's nodes, which it gets whole.")
        .or("`false`"),
    key("lease_jobs", &[], "number", "8",
        "Jobs that a node may prefetch for each running one. For partitions of short jobs."),
    key("def_mem_per_cpu_mb", &[], "number", "2000",
        "Memory for each CPU of a job that requests none.").of("MiB").or("the cluster's").akin(&["DefMemPerCPU"]),
    key("def_mem_per_node_mb", &[], "number", "4000",
        "Memory on each node of a job that requests none.").of("MiB").or("the cluster's").akin(&["DefMemPerNode"]),
    key("def_mem_per_gpu_mb", &[], "number", "16000",
        "Memory for each GPU of a job that requests GPUs and no memory.").of("MiB").or("the cluster's")
        .akin(&["DefMemPerGPU"]),
    key("max_mem_per_cpu_mb", &[], "number", "4000",
        "Most memory for each CPU; a job that requests more gets more CPUs.").of("MiB").or("the cluster's")
        .akin(&["MaxMemPerCPU"]),
    key("max_mem_per_node_mb", &[], "number", "250000",
        "Most memory of a job on each node.").of("MiB").or("the cluster's").akin(&["MaxMemPerNode"]),
    key("max_cpus_per_node", &["MaxCPUsPerNode"], "number", "24",
        "Most CPUs that all jobs of the partition together hold on a node.").or("no limit"),
    key("max_cpus_per_socket", &["MaxCPUsPerSocket"], "number", "12",
        "Most CPUs that all jobs of the partition together hold on a socket.").or("no limit"),
    key("node_fence_s", &[], "number", "60",
        "As the cluster's, for jobs of the partition.").of("seconds").or("the cluster's"),
    key("lln", &["LLN"], "boolean", "true",
        "Whether the nodes with the most free CPUs are taken first.").or("`false`"),
    key("suspend_time_s", &["SuspendTime"], "number", "300",
        "Time without a job after which a node is switched off; -1: never.").of("seconds").or("that of `[power]`"),
    key("suspend_timeout_s", &["SuspendTimeout"], "number", "60",
        "Time that a node needs to go down.").of("seconds").or("that of `[power]`"),
    key("resume_timeout_s", &["ResumeTimeout"], "number", "900",
        "Time for a reboot or a start, after which the node is down.").of("seconds").or("that of `[health]`"),
    key("power_down_on_idle", &["PowerDownOnIdle"], "boolean", "true",
        "Whether a node is switched off as soon as its jobs, one of them of this partition, have ended.").or("`false`"),
    key("on_node_fail", &["OnNodeFail"], "word", "\"replace\"",
        "What happens to a running job when one of its nodes fails, unless `--on-node-fail` says: `end`, `requeue`, `replace` or `shrink`.").or("the cluster's"),
    key("spare_nodes", &["SpareNodes"], "number", "2",
        "Nodes that are kept free to replace failed ones of jobs of the partition, less those that are down.").or("0"),
    key("spare_billing", &["SpareBilling"], "number", "0.5",
        "Factor for the usage of the spare nodes that jobs hold (`--spare-nodes`), from 0 to 1.").or("1"),
    key("over_time_limit_min", &["OverTimeLimit"], "number", "5",
        "Time that jobs run on after their time limit.").of("minutes").or("the cluster's"),
    key("disable_root_jobs", &["DisableRootJobs"], "boolean", "true",
        "Whether root may run no jobs here.").or("the cluster's"),
    key("root_only", &["RootOnly"], "boolean", "true",
        "Whether only root may submit jobs.").or("`false`"),
    key("req_resv", &["ReqResv"], "boolean", "true",
        "Whether jobs must name a reservation.").or("`false`"),
    key("hidden", &["Hidden"], "boolean", "true",
        "Whether lists leave the partition and its jobs out, unless `--all` or `--partition` asks for them.").or("`false`"),
    key("alloc_nodes", &["AllocNodes"], "host list", "\"login[1-2]\"",
        "Hosts from which jobs may be submitted; `ALL` or empty: all.").or("`\"\"`"),
    key("alternate", &["Alternate"], "text", "\"long\"",
        "Partition that takes new jobs while this one is drained or inactive.").or("none"),
    key("def_cpu_per_gpu", &["DefCPUPerGPU"], "number", "8",
        "CPUs for each GPU of a job that requests GPUs and no CPUs.").or("the cluster's"),
    key("tres_billing_weights", &["TRESBillingWeights"], "text", "\"CPU=1.0,Mem=0.25G,GRES/gpu=2.0\"",
        "Billing units of a job for each CPU, for memory, nodes, generic resources and licenses.").or("one for each CPU"),
];

#[rustfmt::skip]
const JOBS: &[Key] = &[
    key("job_requeue", &[], "boolean", "false",
        "Whether jobs are requeued when a node fails, unless `--requeue` or `--no-requeue` says.")
        .akin(&["JobRequeue"]).shown_as(Digit),
    key("kill_invalid_depend", &[], "boolean", "true",
        "Whether jobs with a dependency that can never be satisfied are cancelled.")
        .akin(&["DependencyParameters"]).shown_as(Means("kill_invalid_depend")),
    key("def_mem_per_cpu_mb", &[], "number", "2000",
        "Memory for each CPU of a job that requests none; 0: no limit.").of("MiB")
        .akin(&["DefMemPerCPU"]),
    key("def_mem_per_node_mb", &[], "number", "4000",
        "Memory on each node of a job that requests none, instead of `def_mem_per_cpu_mb`; 0: no limit.").of("MiB")
        .or("`0`").akin(&["DefMemPerNode"]),
    key("def_mem_per_gpu_mb", &[], "number", "16000",
        "Memory for each GPU of a job that requests GPUs and no memory; 0: the other defaults hold.").of("MiB")
        .or("`0`").akin(&["DefMemPerGPU"]).called("JobDefaults").shown_as(After("DefMemPerGPU=")),
    key("def_cpu_per_gpu", &["DefCPUPerGPU"], "number", "8",
        "CPUs for each GPU of a job that requests GPUs and no CPUs; 0: as its tasks need.").or("`0`").shown_as(Set),
    key("max_mem_per_cpu_mb", &[], "number", "4000",
        "Most memory for each CPU; a job that requests more gets more CPUs; 0: no limit.").of("MiB")
        .or("`0`").akin(&["MaxMemPerCPU"]).shown_as(Set),
    key("max_mem_per_node_mb", &[], "number", "250000",
        "Most memory of a job on each node, instead of `max_mem_per_cpu_mb`; 0: no limit.").of("MiB")
        .or("`0`").akin(&["MaxMemPerNode"]),
    key("propagate_limits", &["PropagateResourceLimits"], "list of names", "\"NOFILE,CORE\"",
        "Resource limits of the submitting process that jobs get, unless `--propagate` says: `ALL`, `NONE` or names such as `NOFILE`.")
        .or("`ALL`").shown_as(Or("ALL")),
    key("propagate_limits_except", &["PropagateResourceLimitsExcept"], "list of names", "\"MEMLOCK\"",
        "Resource limits of the submitting process that jobs do not get, unless `--propagate` says.").or("none"),
    key("kill_on_bad_exit", &["KillOnBadExit"], "boolean", "true",
        "Whether a step ends when a task fails, unless `srun --kill-on-bad-exit` says.").or("`false`").shown_as(Digit),
    key("wait_time_s", &["WaitTime"], "number", "30",
        "Time from the end of a step's first task until the others are killed, unless `srun --wait` says; 0: no limit.")
        .of("seconds").or("`0`").shown_as(In("sec")),
    key("over_time_limit_min", &["OverTimeLimit"], "number", "5",
        "Time that jobs run on after their time limit; 65535: they are not ended by it.").of("minutes").or("`0`")
        .shown_as(In("min")),
    key("disable_root_jobs", &["DisableRootJobs"], "boolean", "true",
        "Whether root may run no jobs.").or("`false`"),
    key("requeue_exit", &["RequeueExit"], "exit codes", "\"1-5,100\"",
        "Exit codes of batch scripts after which their jobs are requeued, if they may be (`--no-requeue`).").or("none"),
    key("requeue_exit_hold", &["RequeueExitHold"], "exit codes", "\"127\"",
        "Exit codes of batch scripts after which their jobs are requeued and held, in state `SPECIAL_EXIT`.").or("none"),
    key("job_file_append", &["JobFileAppend"], "boolean", "true",
        "Whether output files of batch jobs are appended to, unless `--open-mode` says.").or("`false`").shown_as(Digit),
    key("resv_over_run_min", &["ResvOverRun"], "number", "5",
        "Time that jobs run on after the end of their reservation; 65535: they are not ended by it.").of("minutes")
        .or("`0`").shown_as(In("min")),
    key("max_tasks_per_node", &["MaxTasksPerNode"], "number", "512",
        "Most tasks of a step on a node, and most of `--ntasks-per-node`; at most 4096.").or("`4096`")
        .shown_as(Or("4096")),
    key("srun_prolog", &["SrunProlog"], "path", "\"/etc/squall/srun-prolog\"",
        "Program that `srun` runs before its step, as its user, unless `--prolog` says.").or("none"),
    key("srun_epilog", &["SrunEpilog"], "path", "\"/etc/squall/srun-epilog\"",
        "Program that `srun` runs after its step, as its user, unless `--epilog` says.").or("none"),
    key("tmp_fs", &["TmpFS"], "path", "\"/scratch\"",
        "Folder on the nodes of which free space is scratch space (`--tmp`).").or("`/tmp`").shown_as(Or("/tmp")),
    key("mpi_ports", &["MpiParams"], "range of ports", "\"12000-12999\"",
        "Ports of which each step reserves as many as the node with the most tasks has tasks, and one more (`SLURM_STEP_RESV_PORTS`).")
        .or("steps reserve none").shown_as(After("ports=")),
    key("task_prolog", &["TaskProlog"], "path", "\"/etc/squall/prolog\"",
        "Program that runs as the user before each task; its `export NAME=VALUE` lines set variables."),
    key("task_epilog", &["TaskEpilog"], "path", "\"/etc/squall/epilog\"",
        "Program that runs as the user after each task."),
    key("private_tmp", &[], "path", "\"/var/lib/squall/jobs\"",
        "Folder in which each job gets a `/tmp` and `/dev/shm` of its own. Root's clusters only.").or("none")
        .akin(&["BasePath", "JobContainerType"]).called("JobContainerType").shown_as(Means("job_container/tmpfs")),
    key("private_tmp_dirs", &[], "list of paths", "\"/tmp,/var/tmp\"",
        "Folders that each job has for itself.").or("`/tmp,/dev/shm`").akin(&["Dirs"]).shown_as(Never),
    key("auto_detect", &["AutoDetect"], "word", "\"nvml\"",
        "How nodes find their GPUs: `nvml` (NVIDIA's library), `nvidia` (its driver's folder), `rsmi` (AMD's, by the kernel's) or `off`.")
        .or("`off`").shown_as(Never),
    key("constrain_devices", &["ConstrainDevices"], "boolean", "true",
        "Whether jobs can't open device files of generic resources (`file`) that they do not hold. If set to true, a node that can't see to it starts no job.")
        .or("where the kernel can").shown_as(Never),
    key("constrain_cores", &["ConstrainCores"], "boolean", "true",
        "Whether processes can't leave the cores of their step (cpuset). If set to true, a node that can't see to it starts no step.")
        .or("where the kernel can").shown_as(Never),
    key("constrain_swap_space", &["ConstrainSwapSpace"], "boolean", "false",
        "Whether jobs with limited memory have no swap space, where the kernel counts it.").or("`true`")
        .shown_as(Never),
    key("mail_prog", &["MailProg"], "path", "\"/usr/bin/mail\"",
        "Program that sends mail about jobs (`--mail-type`), called as `PROGRAM -s SUBJECT USER`.").or("none"),
    key("mail_relay", &[], "address", "\"127.0.0.1:25\"",
        "SMTP relay that sends mail about jobs if there is no `mail_prog`.").or("none"),
    key("mail_domain", &["MailDomain"], "text", "\"example.org\"",
        "Domain of users that `--mail-user` names without one.").or("none"),
    key("container_runtime", &[], "path or name", "\"crun\"",
        "Program that runs OCI containers for `--container`; `none`: containers are refused.")
        .or("`crun`, or else `runc`").akin(&["RunTimeRun"]).shown_as(Never),
    key("job_report", &[], "boolean", "true",
        "Whether the output of batch jobs ends with a line about their end and usage, unless `--report` says.")
        .or("`false`"),
    key("checkpoint_dir", &["JobCheckpointDir"], "path", "\"/var/spool/squall/checkpoints\"",
        "Folder on the nodes for checkpoints of jobs (`scontrol checkpoint`), local or shared.")
        .or("none").shown_as(Never),
    key("checkpoint_shared", &[], "boolean", "true",
        "Whether all nodes share `checkpoint_dir`: a job comes back on any node, and not only on the one that has its checkpoint.")
        .or("`false`").shown_as(Never),
    key("criu", &[], "path or name", "\"/usr/sbin/criu\"",
        "Program that makes and restores checkpoints: CRIU, version 4.2 or later.")
        .or("`criu`").shown_as(Never),
    key("nodes_vouch_for_users", &[], "boolean", "true",
        "Whether commands in a job on another machine may change all jobs of its user, and not only those of their node and what was submitted from within them."),
    key("own_step_daemons", &[], "boolean", "true",
        "Whether each batch script has a step daemon of its own. For file systems of users that may hang."),
    key("max_processes_per_job", &[], "number", "4096",
        "Most processes and threads of a job on a node, but at most half of those that the kernel allows; 0: no limit. Needs cgroups v2."),
];

#[rustfmt::skip]
const QUEUE: &[Key] = &[
    key("max_job_count", &["MaxJobCount"], "number", "100000",
        "Most jobs in the queue."),
    key("max_jobs_per_user", &[], "number", "5000",
        "Most jobs of one user in the queue, each task of an array counted; 0: `max_job_count`. Not for root."),
    key("max_content_per_user_mb", &[], "number", "256",
        "Most memory for scripts and environments of one user's jobs; 0: no limit. Not for root.").of("MiB"),
    key("max_array_size", &["MaxArraySize"], "number", "10001",
        "Highest index of an array plus one; at most 4000001."),
    key("first_job_id", &["FirstJobId"], "number", "1000",
        "The lowest job id. Not for cells."),
    key("max_job_id", &["MaxJobId"], "number", "9999999",
        "The highest job id. After it numbering starts again and skips ids in use."),
    key("min_job_age_s", &["MinJobAge"], "number", "600",
        "Time that an ended job stays in the controller's memory, where `squeue` and `scontrol` find it.")
        .of("seconds"),
];

#[rustfmt::skip]
const TIMEOUTS: &[Key] = &[
    key("kill_wait_s", &["KillWait"], "number", "60",
        "Time between the signals TERM and KILL.").of("seconds"),
    key("node_timeout_s", &["SlurmdTimeout"], "number", "120",
        "Silence after which a node is down and gets no new work; at least 3 for each level of the tree: 6 for 64 nodes, 9 for 1,024, 12 for 10,080.").of("seconds"),
    key("node_lost_s", &[], "number", "600",
        "Silence after which `node_lost_action` applies to a node's jobs; at least `node_timeout_s`.").of("seconds"),
    key("node_lost_action", &["NodeLostAction"], "word", "\"requeue\"",
        "What happens to jobs of a lost node: `wait` (they count as running) or `requeue` (they may then run twice).")
        .shown_as(Never),
    key("node_fence_s", &[], "number", "60",
        "Gives every job a node fence: a node that can't show for so long that the controller hears it ends the job there, which then may run again elsewhere. At least 30, with several controllers 10, and more than three beats.").of("seconds")
        .or("only jobs with `--node-fence=SECONDS` have one"),
    key("complete_wait_s", &["CompleteWait"], "number", "32",
        "Time for which no job starts in the partitions of a job that is completing, so that its nodes stay together; 0: none.")
        .of("seconds").or("`0`").shown_as(In("sec")),
    key("inactive_limit_s", &["InactiveLimit"], "number", "120",
        "Time until an allocation ends whose `salloc` or `srun` on another machine is cut off; 0: never.").of("seconds")
        .or("`60`").shown_as(In("sec")),
    key("max_batch_requeue", &["MaxBatchRequeue"], "number", "5",
        "Launches of a job in a row that fail by the fault of nodes before it is held (`JobHoldMaxRequeue`).")
        .or("no limit").shown_as(Or("4294967295")),
    key("on_node_fail", &["OnNodeFail"], "word", "\"replace\"",
        "What happens to a running job when one of its nodes fails, unless `--on-node-fail` or the partition says: `end`, `requeue` (if it may be, or else `end`), `replace` or `shrink`.")
        .or("`requeue`").shown_as(Never),
];

#[rustfmt::skip]
const SCHEDULING: &[Key] = &[
    key("scheduler_type", &["SchedulerType"], "word", "\"sched/builtin\"",
        "`sched/backfill` (jobs may start early if they delay no reserved one) or `sched/builtin` (in order)."),
    key("scheduler_parameters", &["SchedulerParameters"], "parameters", "\"bf_window=1440,bf_max_job_test=500\"",
        "`bf_window` (minutes), `bf_max_job_test`, `bf_job_part_count_reserve`, `max_switch_wait` (s), `delay_boot` (minutes), `enable_user_top`."),
    key("select_type_parameters", &["SelectTypeParameters"], "words", "\"CR_Core_Memory\"",
        "What a job holds at least: `CR_CPU` (hardware threads), `CR_Core` or `CR_Socket`, with memory if `_Memory` follows; `CR_ONE_TASK_PER_CORE`, `CR_LLN`, `CR_Pack_Nodes`, `CR_CORE_DEFAULT_DIST_BLOCK`.")
        .or("`CR_CPU_Memory`").shown_as(Or("CR_CPU_MEMORY")),
    key("enforce_part_limits", &["EnforcePartLimits"], "word", "\"ALL\"",
        "Whether jobs beyond limits of partitions are refused: `NO` (they stay pending), `ANY` or `ALL`."),
];

#[rustfmt::skip]
const PRIORITY: &[Key] = &[
    key("priority_type", &["PriorityType"], "word", "\"priority/multifactor\"",
        "Order of pending jobs: `priority/basic` (by submission) or `priority/multifactor` (by points)."),
    key("priority_weight_age", &["PriorityWeightAge"], "number", "1000",
        "Points of a job that has waited for `priority_max_age_s`; fewer for a shorter wait.").of("points"),
    key("priority_weight_fairshare", &["PriorityWeightFairshare"], "number", "10000",
        "Points of a job of an association that has used none of its share; fewer the more is used.").of("points")
        .called("PriorityWeightFairShare"),
    key("priority_weight_job_size", &["PriorityWeightJobSize"], "number", "500",
        "Points of a job that requests the whole cluster; fewer for a smaller one.").of("points"),
    key("priority_weight_partition", &["PriorityWeightPartition"], "number", "1000",
        "Points of a job in the partition with the highest `priority_job_factor`.").of("points"),
    key("priority_weight_qos", &["PriorityWeightQOS"], "number", "2000",
        "Points of a job with the QOS of highest priority.").of("points"),
    key("priority_weight_assoc", &["PriorityWeightAssoc"], "number", "100",
        "Points of a job of the association with the highest priority.").of("points"),
    key("priority_max_age_s", &["PriorityMaxAge"], "time", "\"14-0\"",
        "Wait after which points for age no longer grow. A text is Slurm's form: `\"14-0\"` is 14 days.").of("seconds"),
    key("priority_decay_half_life_s", &["PriorityDecayHalfLife"], "time", "86400",
        "Time after which recorded usage counts half; 0: usage does not decay.").of("seconds"),
    key("priority_flags", &["PriorityFlags"], "words", "\"MAX_TRES\"",
        "How billing combines weighted resources: the largest of a node's (`MAX_TRES`), or of CPUs, memory and nodes (`MAX_TRES_GRES`), and the sum of the rest.")
        .or("their sum").shown_as(Set),
    key("priority_weight_tres", &["PriorityWeightTRES"], "words", "\"CPU=1000,GRES/gpu=3000\"",
        "Points of a job that requests all that its partition has of a resource: `CPU`, `Mem`, `Node`, `GRES/NAME[:TYPE]`, `billing`.")
        .or("none").shown_as(Or("(null)")),
    key("priority_usage_reset_period", &["PriorityUsageResetPeriod"], "word", "\"MONTHLY\"",
        "When usage is reset to zero, in UTC: `NONE`, `DAILY`, `WEEKLY`, `MONTHLY`, `QUARTERLY` or `YEARLY`."),
    key("priority_favor_small", &["PriorityFavorSmall"], "boolean", "true",
        "Whether smaller jobs get more points for their size."),
    key("priority_calc_period_s", &["PriorityCalcPeriod"], "time", "60",
        "Time between two calculations of fair-share factors.").of("seconds"),
];

#[rustfmt::skip]
const PREEMPTION: &[Key] = &[
    key("preempt_type", &["PreemptType"], "word", "\"preempt/qos\"",
        "Which jobs may be preempted: `preempt/none`, `preempt/qos` or `preempt/partition_prio` (by tier)."),
    key("preempt_mode", &["PreemptMode"], "words", "\"GANG,SUSPEND\"",
        "What happens to preempted jobs: `OFF`, `CANCEL`, `REQUEUE`, `CHECKPOINT`, `SUSPEND`. With `GANG` jobs share cores in turns."),
    key("preempt_exempt_time_s", &["PreemptExemptTime"], "time", "600",
        "Time that a job runs before it can be preempted.").of("seconds"),
    key("scheduler_time_slice", &["SchedulerTimeSlice"], "time", "\"10ms\"",
        "Length of a turn of jobs that share cores: seconds, or a text with `us`, `ms` or `s`; 100 us at least.")
        .of("seconds").shown_as(In("sec")),
    key("coscheduling", &["Coscheduling"], "word", "\"gang\"",
        "How jobs on the same cores share time: `batch` (not at all), `gang`, `flexible` or `implicit`.")
        .or("`gang` with `GANG`, otherwise `implicit`").shown_as(Never),
    key("gang_switch", &[], "word", "\"freeze\"",
        "How nodes stop jobs outside their turn: `auto`, `freeze` (their cgroup) or `idle` (`cpu.idle`)."),
];

#[rustfmt::skip]
const ACCOUNTING: &[Key] = &[
    key("accounting_storage_enforce", &["AccountingStorageEnforce"], "words", "\"associations,qos\"",
        "What jobs need, and how limits apply: `associations`, `limits`, `qos`, `safe`, `all` or `none`.")
        .shown_as(Or("none")),
    key("default_account", &[], "text", "\"guests\"",
        "Account of jobs without `--account` of users that have no default account."),
    key("default_qos", &[], "text", "\"low\"",
        "QOS of jobs without `--qos`."),
    key("private_data", &["PrivateData"], "words", "\"jobs,usage\"",
        "What users do not see of others: `accounts`, `events`, `jobs`, `nodes`, `partitions`, `reservations`, `usage`, `users`, `all` or `none`.")
        .shown_as(Or("none")),
];

#[rustfmt::skip]
const RESOURCES: &[Key] = &[
    key("licenses", &["Licenses"], "text", "\"fluent:10,matlab:2\"",
        "Licenses of the whole cluster, for `--licenses`."),
    key("gres_types", &["GresTypes"], "text", "\"gpu,fpga\"",
        "Names of generic resources that nodes may have; empty: any."),
];

#[rustfmt::skip]
const GRES: &[Key] = &[
    key("node_name", &["NodeName"], "host list", "\"g[1-2]\"",
        "Nodes with the devices; empty: every node."),
    key("name", &["Name"], "text", "\"gpu\"",
        "Name of the generic resource."),
    key("type", &["Type"], "text", "\"a100\"",
        "Type of the devices; empty: none."),
    key("file", &["File"], "host list", "\"/dev/nvidia[0-3]\"",
        "Device files."),
    key("count", &["Count"], "number", "4",
        "Number of devices; 0: as many as device files, or one."),
    key("cores", &["Cores"], "list of cores", "\"0-7,16-23\"",
        "Cores near the devices; empty: all."),
    key("multiple_files", &["MultipleFiles"], "host list", "\"/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21\"",
        "Device files of one device that has several.").or("none"),
    key("links", &["Links"], "list of numbers", "\"-1,4,0,0\"",
        "Number of links from this one device to each of the node, -1 for itself.").or("none"),
    key("auto_detect", &["AutoDetect"], "word", "\"nvml\"",
        "How GPUs of these nodes are found: `nvml`, `nvidia`, `rsmi` or `off`.").or("as of all nodes"),
];

#[rustfmt::skip]
const NETWORK: &[Key] = &[
    key("slurmctld_host", &["SlurmctldHost", "ControlMachine"], "name or address", "\"10.0.0.1\"",
        "Where other machines reach the controller; empty: this host's name. It listens on an address only.")
        .akin(&["SlurmctldAddr", "ControlAddr"]).shown_as(Never),
    key("slurmctld_port", &["SlurmctldPort"], "port", "6817",
        "Port of the controller for other machines; 0: the cluster is on this machine only."),
    key("slurmd_port", &["SlurmdPort"], "port", "6818",
        "Port of node daemons for each other; 0: a free one."),
    key("srun_port_range", &["SrunPortRange"], "range of ports", "\"60001-63000\"",
        "Ports at which `srun` and `sattach` listen for tasks on other machines, for firewalls.").or("any")
        .shown_as(Or("0-0")),
    key("min_uid", &[], "number", "500",
        "Lowest uid that the controller accepts in requests from jobs on other machines."),
    key("tree_width", &["TreeWidth"], "number", "50",
        "Most children of a node in the tree that carries cluster-wide messages."),
    key("route_plugin", &["RoutePlugin"], "word", "\"route/topology\"",
        "Order of that tree: `route/default` (as nodes are listed) or `route/topology` (by switches)."),
    key("msg_aggregation_params", &["MsgAggregationParams"], "parameters", "\"WindowMsgs=100,WindowTime=50\"",
        "Most reports of nodes in one message, and their longest delay in milliseconds."),
    key("multicast", &[], "address and port", "\"239.255.77.1:6819\"",
        "IPv4 group for sending files to all machines at once; empty: by TCP only."),
    key("multicast_interface", &[], "address", "\"10.0.0.1\"",
        "The controller's interface for multicast; empty: that of `slurmctld_host` or the kernel's choice."),
];

#[rustfmt::skip]
const CONTROLLERS: &[Key] = &[
    key("name", &[], "text", "\"head1\"",
        "Name of the controller; empty: the host in `address`."),
    key("address", &[], "address and port", "\"10.0.0.1:6817\"",
        "Where other machines reach it, `HOST:PORT`. It listens there; if HOST is an address, on that only."),
];

#[rustfmt::skip]
const LOG: &[Key] = &[
    key("etcd", &[], "list of addresses", "[\"10.0.0.1:2379\", \"10.0.0.2:2379\"]",
        "The servers of etcd, each `HOST:PORT`."),
    key("prefix", &[], "text", "\"/site/lab\"",
        "Beginning of the keys in etcd; empty: `/squall/` and the cluster's name."),
    key("ca", &[], "path", "\"/etc/squall/etcd-ca.pem\"",
        "Certificate of the authority of etcd's servers (PEM); empty: no TLS."),
    key("certificate", &[], "path", "\"/etc/squall/etcd.pem\"",
        "Certificate that controllers show to etcd (PEM); empty: none."),
    key("certificate_key", &[], "path", "\"/etc/squall/etcd.key\"",
        "Key of that certificate (PEM)."),
    key("user", &[], "text", "\"squall\"",
        "The controllers' user in etcd; empty: none."),
    key("password_file", &[], "path", "\"/etc/squall/etcd.password\"",
        "File with the password of that user."),
    key("lease_s", &[], "number", "5",
        "Time after which a controller that does not answer no longer leads.").of("seconds")
        .akin(&["SlurmctldTimeout"]),
    key("quota_mb", &[], "number", "4096",
        "Most that the log may take in etcd.").of("MiB"),
];

#[rustfmt::skip]
const REST: &[Key] = &[
    key("listen", &[], "list of addresses", "\"0.0.0.0:6820,unix:/run/squall/rest.sock\"",
        "Where the server listens: `HOST:PORT` or `unix:PATH`, several separated by commas; empty: there is no server.")
        .called("AuthAltTypes").shown_as(Means("auth/jwt")),
    key("user", &[], "text", "\"squall-rest\"",
        "User as which it runs if root starts it; empty: `nobody`."),
    key("certificate", &[], "path", "\"/etc/squall/rest.pem\"",
        "The server's certificate (PEM), with those that lead to its authority; empty: no TLS."),
    key("certificate_key", &[], "path", "\"/etc/squall/rest.key\"",
        "Key of the certificate (PEM)."),
    key("jwks", &[], "path", "\"/etc/squall/jwks.json\"",
        "Public keys (JWKS) of others that issue tokens; empty: only tokens of the cluster are valid."),
    key("audience", &[], "text", "\"squall\"",
        "Audience (`aud`) that tokens of others must be for; empty: any, also those for other services."),
];

#[rustfmt::skip]
const TOPOLOGY: &[Key] = &[
    key("topology_plugin", &["TopologyPlugin"], "word", "\"topology/tree\"",
        "Kind of network, as `topology/tree` or `topology/torus3d`; empty: as the topology file states.")
        .shown_as(Or("topology/default")),
    key("topology_param", &["TopologyParam"], "word", "\"dragonfly\"",
        "Option of the plugin: `dragonfly`; empty: none."),
];

#[rustfmt::skip]
const SWITCHES: &[Key] = &[
    key("name", &["SwitchName"], "text", "\"s1\"",
        "Name of the switch."),
    key("nodes", &["Nodes"], "host list", "\"n[1-16]\"",
        "Nodes connected to the switch."),
];

#[rustfmt::skip]
const TOPOLOGY_FILE: &[Key] = &[
    key("name", &[], "text", "\"topology.conf\"",
        "Name of the file; empty: there is none."),
    key("text", &[], "text", "\"SwitchName=s1 Nodes=n[1-2]\"",
        "Content of the file."),
];

#[rustfmt::skip]
const LOGS: &[Key] = &[
    key("slurmctld_debug", &["SlurmctldDebug"], "level", "\"debug\"",
        "Level of the controller's log: `quiet`, `error`, `warn`, `info`, `debug` or `trace`, or as in Slurm."),
    key("slurmd_debug", &["SlurmdDebug"], "level", "\"debug\"",
        "Level of the node daemons' logs."),
];

#[rustfmt::skip]
const CELLS: &[Key] = &[
    key("cell", &[], "number", "1",
        "Number of this cluster among the cells behind one front; it determines the range of job ids; below 64.")
        .or("it is no cell"),
];
