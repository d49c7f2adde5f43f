//! Keys about programs of the site: around jobs, on nodes, and before submissions are decided.

use super::Shown::{In, Limit, Means, Never, Or};
use super::{Key, key};

#[rustfmt::skip]
pub(super) const HOOKS: &[Key] = &[
    key("prolog", &["Prolog"], "list of paths", "[\"/etc/squall/prolog.d\"]",
        "Programs that run on a node before the job's first process there. If one fails, the node is drained."),
    key("epilog", &["Epilog"], "list of paths", "[\"/etc/squall/epilog.d\"]",
        "Programs that run on a node after the job's last process there. If one fails, the node is drained."),
    key("prolog_slurmctld", &["PrologSlurmctld"], "list of paths", "[\"/etc/squall/prolog-head\"]",
        "Programs that run on the controller's machine before a job is sent to its nodes."),
    key("epilog_slurmctld", &["EpilogSlurmctld"], "list of paths", "[\"/etc/squall/epilog-head\"]",
        "Programs that run on the controller's machine after a job has left its nodes."),
    key("prolog_flags", &["PrologFlags"], "words", "\"Alloc,NoHold\"",
        "Slurm's flags: `Alloc`, `Contain`, `DeferBatch`, `ForceRequeueOnFail`, `NoHold`, `RunInJob`, `Serial`."),
    key("prolog_timeout_s", &["PrologTimeout"], "number", "120",
        "Time limit of prologs; 0: `prolog_epilog_timeout_s`.").of("seconds").shown_as(Limit),
    key("epilog_timeout_s", &["EpilogTimeout"], "number", "120",
        "Time limit of epilogs; 0: `prolog_epilog_timeout_s`.").of("seconds").shown_as(Limit),
    key("prolog_epilog_timeout_s", &["PrologEpilogTimeout"], "number", "300",
        "Time limit of prologs and epilogs; 0: none.").of("seconds").shown_as(Limit),
];

#[rustfmt::skip]
pub(super) const HEALTH: &[Key] = &[
    key("program", &["HealthCheckProgram"], "path", "\"/usr/sbin/nhc\"",
        "Program that node daemons run to check their node; a node that fails it is drained. Empty: none."),
    key("interval_s", &["HealthCheckInterval"], "number", "300",
        "Time between two checks; 0: one check when the node daemon starts.").of("seconds"),
    key("timeout_s", &["HealthCheckTimeout"], "number", "30",
        "Time limit of a check.").of("seconds"),
    key("node_state", &["HealthCheckNodeState"], "words", "\"IDLE,CYCLE\"",
        "States in which nodes are checked: `ANY`, `IDLE`, `MIXED`, `ALLOC`, `CYCLE`, `START_ONLY`, as in Slurm."),
    key("after_fault", &[], "path", "\"/etc/squall/after-fault\"",
        "Program that runs on a node between a fault and its next job. The node is drained until it succeeds. Empty: none."),
    key("resume", &[], "boolean", "true",
        "Whether a node that a check has drained gets jobs again after a check that succeeds."),
    key("unkillable_step_timeout_s", &["UnkillableStepTimeout"], "number", "120",
        "Time after KILL after which a node with processes of the job is drained; 0: never.").of("seconds"),
    key("unkillable_step_program", &["UnkillableStepProgram"], "path", "\"/etc/squall/unkillable\"",
        "Program that the node daemon runs then; empty: none."),
    key("reboot_program", &["RebootProgram"], "path", "\"/usr/sbin/reboot\"",
        "Program by which node daemons reboot their machine (`scontrol reboot`); empty: none."),
    key("resume_timeout_s", &["ResumeTimeout"], "number", "600",
        "Time for a reboot or a start (`[power]`), after which the node is down.").of("seconds"),
    key("return_to_service", &["ReturnToService"], "number", "2",
        "When a node that is down returns to service, as in Slurm: 0, 1 or 2.")
        .or("a node that did not respond returns when it answers, also after a reboot").shown_as(Or("1")),
    key("launch_failures", &[], "number", "3",
        "Launches in a row, at least 10 s apart, that a node fails by its own fault before it is drained; 0: never."),
];

#[rustfmt::skip]
pub(super) const POWER: &[Key] = &[
    key("suspend_program", &["SuspendProgram"], "path", "\"/etc/squall/suspend\"",
        "Program that switches nodes off; its argument is a host list. Empty: none."),
    key("resume_program", &["ResumeProgram"], "path", "\"/etc/squall/resume\"",
        "Program that switches nodes on; its argument is a host list. Empty: none."),
    key("resume_fail_program", &["ResumeFailProgram"], "path", "\"/etc/squall/resume-failed\"",
        "Program that is called with the nodes that were not there after `resume_timeout_s` of `[health]`. Empty: none."),
    key("suspend_time_s", &["SuspendTime"], "number", "600",
        "Time without a job after which a node is switched off.").of("seconds").or("never"),
    key("suspend_timeout_s", &["SuspendTimeout"], "number", "120",
        "Time that a node needs to go down; before, it is not switched on again.").of("seconds"),
    key("suspend_rate", &["SuspendRate"], "number", "20",
        "Nodes switched off per minute, at most; 0: no limit.").shown_as(In("nodes/min")),
    key("resume_rate", &["ResumeRate"], "number", "100",
        "Nodes switched on per minute, at most; 0: no limit.").shown_as(In("nodes/min")),
    key("suspend_exc_nodes", &["SuspendExcNodes"], "host list", "\"n[1-2]\"",
        "Nodes that are never switched off for want of jobs; `n[1-9]:2`: 2 of these stay up."),
    key("suspend_exc_parts", &["SuspendExcParts"], "list of names", "[\"interactive\"]",
        "Partitions with nodes that are never switched off for want of jobs."),
    key("suspend_exc_states", &["SuspendExcStates"], "list of names", "[\"DOWN\", \"DRAIN\"]",
        "States in which nodes are not switched off for want of jobs: `CLOUD`, `DOWN`, `DRAIN`, `FAIL`, `MAINTENANCE`, \
         `NOT_RESPONDING`, `RESERVED`."),
];

#[rustfmt::skip]
pub(super) const SUBMIT: &[Key] = &[
    key("lua", &[], "path", "\"job_submit.lua\"",
        "Lua script with `slurm_job_submit` and `slurm_job_modify`; a relative path begins at the folder of this file. Empty: none.")
        .akin(&["JobSubmitPlugins"]).called("JobSubmitPlugins").shown_as(Means("lua")),
    key("program", &[], "path", "\"/etc/squall/submit-filter\"",
        "Program that gets each job as JSON and returns what it changes; empty: none."),
    key("user", &[], "text", "\"squall-filter\"",
        "User as which script and program run if root starts the controller; empty: `nobody`."),
    key("allow_programs", &[], "boolean", "true",
        "Whether the script may start programs (`io.popen`, `os.execute`)."),
];

#[rustfmt::skip]
pub(super) const READERS: &[Key] = &[
    key("store", &[], "text", "\"postgresql://squall@db.example.org/squall\"",
        "Database in PostgreSQL that keeps the records, from the controller's next start on; no password: name a `passfile`.")
        .or("SQLite, in the state folder"),
    key("readers", &[], "text", "\"root\"",
        "Group whose members may read `records/records.db` in the state folder; empty: there is no such file."),
    key("purge_job_after", &["PurgeJobAfter"], "text", "\"12months\"",
        "Time after which the records of ended jobs are removed: `12months` (of 30 days), `90days`, `24hours`.").or("never")
        .shown_as(Never),
    key("purge_step_after", &["PurgeStepAfter"], "text", "\"3months\"",
        "Time after which the records of ended steps are removed.").or("with their jobs").shown_as(Never),
    key("job_comp_type", &["JobCompType"], "text", "\"none\"",
        "How other programs are told of ended jobs: `jobcomp/filetxt` (a line in a file) or `jobcomp/elasticsearch` (a document by HTTP).")
        .or("`none`").shown_as(Or("jobcomp/none")),
    key("job_comp_loc", &["JobCompLoc"], "text", "\"/var/log/squall/jobs\"",
        "Path of the file, or address such as `http://HOST:9200/slurm/_doc`.").or("none"),
];

#[rustfmt::skip]
pub(super) const ENERGY: &[Key] = &[
    key("acct_gather_energy_type", &["AcctGatherEnergyType"], "text", "\"rapl\"",
        "`rapl`: the counters of processors and memory; `pm_counters`: `file`; `none`.").or("`none`")
        .shown_as(Or("(null)")),
    key("acct_gather_node_freq_s", &["AcctGatherNodeFreq"], "number", "60",
        "Time between two readings.").of("seconds"),
    key("file", &[], "path", "\"/run/energy\"",
        "File with a number of joules that grows, as Cray's nodes have it; also what a site's own program leaves."),
];

#[rustfmt::skip]
pub(super) const FROM_SLURM: &[Key] = &[
    key("plugstack", &["PlugStackConfig"], "path", "\"/etc/slurm/plugstack.conf\"",
        "File that lists SPANK plugins, on each machine; a relative path begins at the state folder. Empty: none."),
    key("plugin_timeout_s", &[], "number", "60",
        "Time that a hook of a plugin may take.").of("seconds"),
    key("compatible", &[], "text", "\"26.05\"",
        "Release of Slurm whose number and forms commands show: 24.05, 25.11 or 26.05."),
];
