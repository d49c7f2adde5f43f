//! `scontrol show config` and `scontrol write config`.

use std::fmt::Write;
use std::path::PathBuf;

use squall_files::place::Place;
use squall_model::config::{Config, RoutePolicy, SchedulerType};
use squall_model::duration::{format_limit, format_memory_mb};
use squall_model::gang::TimeSlice;
use squall_model::hostlist;
use squall_model::limits;
use squall_model::policy::{PreemptType, PriorityType, Seconds};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::ControllerInfo;

use crate::client::unexpected;
use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::controllers;
use crate::command::sinfo::all_partitions;
use squall_text::columns::entities::{gres_types, resources};
use squall_text::format::words;

/// Keys of the controllers' hosts.
const HOSTS: [&str; 5] =
    ["SlurmctldHost[0]", "SlurmctldHost[1]", "SlurmctldHost[2]", "SlurmctldHost[3]", "SlurmctldHost[4]"];

const WHAT: &str = "slurm_ctl_conf_ptr error";

/// Prints the configuration in Slurm's format.
pub(super) fn show(call: &mut Call<'_>) -> Result<(), Fail> {
    let config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let (host, trouble, started, next_job, version) = match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { host, trouble, started, next_job, cluster_version, .. }) => {
            (host, trouble, started, next_job, cluster_version)
        }
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let mut text = format!("Configuration data as of {}\n", call.clock(call.now).show(call.now));
    let mut all = settings(&config);
    let several = controllers::several(call);
    let named =
        |one: &ControllerInfo| format!("{}({})", one.name, one.address.rsplit_once(':').map_or("", |(host, _)| host));
    let hosts = if several.is_empty() { vec![host.clone()] } else { several.iter().map(named).collect() };
    all.extend(HOSTS.into_iter().zip(hosts));
    all.push(("ClusterVersion", version.to_string()));
    all.extend([("BOOT_TIME", call.clock(call.now).show(started)), ("NEXT_JOB_ID", next_job.to_string())]);
    all.extend(home(call));
    all.sort_by_key(|(key, _)| key.to_lowercase());
    for (key, value) in all {
        let _ = writeln!(text, "{key:<23} = {value}");
    }
    text.push_str("\nMPI Plugins Configuration:\n");
    for (key, value) in PMIX {
        let _ = writeln!(text, "{key:<23} = {value}");
    }
    let _ = write!(text, "\n{}", controllers::status(&several, &host));
    call.print(&text);
    if let Some(trouble) = trouble {
        call.complain(&trouble);
    }
    Ok(())
}

/// Returns the settings that follow from the configuration, or are the same in every cluster.
pub(super) fn settings(config: &Config) -> Vec<(&'static str, String)> {
    let mut all = values(config);
    all.extend([
        ("SlurmctldDebug", config.slurmctld_debug.to_string()),
        ("SlurmdDebug", config.slurmd_debug.to_string()),
    ]);
    all.extend(precedence(config));
    all.extend(programs(config));
    all.extend(FIXED.iter().map(|(key, value)| (*key, (*value).to_owned())));
    all
}

/// Returns the settings that name the state folder's files and the user who runs the daemons.
fn home(call: &mut Call<'_>) -> Vec<(&'static str, String)> {
    let none = || "(null)".to_owned();
    let Some((file, uid)) = call.controller.home() else {
        let keys = ["SLURM_CONF", "SlurmUser", "SlurmdUser", "StateSaveLocation", "SlurmctldLogFile", "SlurmdLogFile"];
        return keys.into_iter().chain(["SlurmdSpoolDir"]).map(|key| (key, none())).collect();
    };
    let owner = format!("{}({uid})", call.people.user(uid));
    let place = file.parent().and_then(|dir| Place::at(dir).ok());
    let at = |path: fn(&Place) -> PathBuf| place.as_ref().map_or_else(none, |place| path(place).display().to_string());
    vec![
        ("SLURM_CONF", file.display().to_string()),
        ("SlurmUser", owner.clone()),
        ("SlurmdUser", owner),
        ("StateSaveLocation", at(|place| place.dir().to_owned())),
        ("SlurmctldLogFile", at(Place::log)),
        ("SlurmdLogFile", at(Place::log)),
        ("SlurmdSpoolDir", at(|place| place.node("%n"))),
    ]
}

/// Runs `write config [FILE]`: writes the configuration, with partitions as they are now.
pub(super) fn write(call: &mut Call<'_>, file: Option<&str>) -> Result<(), Fail> {
    let mut config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    config.partitions = match all_partitions(call) {
        Ok(all) => all.into_iter().map(|one| one.config).collect(),
        Err(e) => return call.failed(WHAT, &e),
    };
    let path = match (file, call.controller.home()) {
        (Some(file), _) => PathBuf::from(file),
        (None, Some((known, _))) => PathBuf::from(format!("{}.{}", known.display(), call.now.secs())),
        (None, None) => {
            return call.fail("write config: name a file, for it is not known here where the configuration is");
        }
    };
    let text = match config.to_toml() {
        Ok(text) => text,
        Err(problem) => return call.fail(&format!("write config: {problem}")),
    };
    match std::fs::write(&path, text) {
        Ok(()) => {
            call.print(&format!("Slurm config saved to {}\n", path.display()));
            Ok(())
        }
        Err(e) => call.fail(&format!("write config: {}: {e}: name a file that can be written", path.display())),
    }
}

/// Settings that are the same in every cluster. Programs read them to find out whether a feature of Slurm is in use.
const FIXED: &[(&str, &str)] = &[
    ("AccountingStorageBackupHost", "(null)"),
    ("AccountingStorageExternalHost", "(null)"),
    ("AccountingStorageParameters", "(null)"),
    ("AuthAltTypes", "(null)"),
    ("AuthAltParameters", "(null)"),
    ("AuthInfo", "(null)"),
    ("BcastExclude", "(null)"),
    ("BcastParameters", "(null)"),
    ("CommunicationParameters", "(null)"),
    ("CpuFreqGovernors", "(null)"),
    ("DebugFlags", "(null)"),
    ("GpuFreqDef", "(null)"),
    ("InteractiveStepOptions", "(null)"),
    ("JobCompHost", "(null)"),
    ("JobCompLoc", "(null)"),
    ("JobCompUser", "(null)"),
    ("JobCredentialPrivateKey", "(null)"),
    ("JobCredentialPublicCertificate", "(null)"),
    ("MCSParameters", "(null)"),
    ("PluginDir", "(null)"),
    ("PlugStackConfig", "(null)"),
    ("PowerParameters", "(null)"),
    ("PrEpParameters", "(null)"),
    ("PrEpPlugins", "(null)"),
    ("PrioritySiteFactorParameters", "(null)"),
    ("PrioritySiteFactorPlugin", "(null)"),
    ("ReconfigFlags", "(null)"),
    ("ScronParameters", "(null)"),
    ("SlurmctldAddr", "(null)"),
    ("SlurmctldSyslogDebug", "(null)"),
    ("SlurmctldPrimaryOffProg", "(null)"),
    ("SlurmctldPrimaryOnProg", "(null)"),
    ("SlurmdPidFile", "(null)"),
    ("SlurmdSyslogDebug", "(null)"),
    ("SlurmSchedLogFile", "(null)"),
    ("SlurmctldPidFile", "(null)"),
    ("SlurmctldPlugstack", "(null)"),
    ("SwitchParameters", "(null)"),
    ("X11Parameters", "(null)"),
    ("AccountingStoragePort", "0"),
    ("AcctGatherNodeFreq", "0 sec"),
    ("AllowSpecResourcesUsage", "No"),
    ("CoreSpecPlugin", "core_spec/none"),
    ("CpuFreqDef", "Unknown"),
    ("CredType", "cred/none"),
    ("EioTimeout", "0"),
    ("EpilogMsgTime", "0 usec"),
    ("ExtSensorsType", "ext_sensors/none"),
    ("ExtSensorsFreq", "0 sec"),
    ("GetEnvTimeout", "0 sec"),
    ("GroupUpdateForce", "0"),
    ("GroupUpdateTime", "0 sec"),
    ("HASH_VAL", "Match"),
    ("JobCompPort", "0"),
    ("LaunchType", "launch/slurm"),
    ("LogTimeFormat", "iso8601_ms"),
    ("MaxDBDMsgs", "0"),
    ("PowerPlugin", ""),
    ("SlurmSchedLogLevel", "0"),
    ("TCPTimeout", "0 sec"),
    ("AccountingStorageHost", "localhost"),
    ("AccountingStorageUser", "N/A"),
    ("AccountingStoreFlags", "(null)"),
    ("AcctGatherEnergyType", "(null)"),
    ("AcctGatherFilesystemType", "(null)"),
    ("AcctGatherInterconnectType", "(null)"),
    ("AcctGatherProfileType", "(null)"),
    ("BurstBufferType", "(null)"),
    ("CliFilterPlugins", "(null)"),
    ("DefMemPerNode", "UNLIMITED"),
    ("FederationParameters", "(null)"),
    ("JobAcctGatherParams", "(null)"),
    ("JobContainerType", "(null)"),
    ("JobDefaults", "(null)"),
    ("JobFileAppend", "0"),
    ("JobSubmitPlugins", "(null)"),
    ("LaunchParameters", "(null)"),
    ("MCSPlugin", "mcs/none"),
    ("NodeFeaturesPlugins", "(null)"),
    ("OverTimeLimit", "0 min"),
    ("PriorityParameters", "(null)"),
    ("PropagatePrioProcess", "0"),
    ("PropagateResourceLimits", "ALL"),
    ("PropagateResourceLimitsExcept", "(null)"),
    ("RequeueExit", "(null)"),
    ("RequeueExitHold", "(null)"),
    ("ResvEpilog", "(null)"),
    ("ResvOverRun", "0 min"),
    ("ResvProlog", "(null)"),
    ("SlurmctldParameters", "(null)"),
    ("SlurmctldPort", "6817"),
    ("SlurmdParameters", "(null)"),
    ("SlurmdPort", "6818"),
    ("SrunEpilog", "(null)"),
    ("SrunPortRange", "0-0"),
    ("SrunProlog", "(null)"),
    ("SwitchType", "switch/none"),
    ("TaskPluginParam", "(null type)"),
    ("TmpFS", "/tmp"),
    ("TrackWCKey", "No"),
    ("UsePam", "No"),
    ("VSizeFactor", "0 percent"),
];

/// Settings of Slurm's PMIx plugin, as they apply to Squall's step daemons.
const PMIX: &[(&str, &str)] = &[
    ("PMIxCliTmpDirBase", "(null)"),
    ("PMIxCollFence", "(null)"),
    ("PMIxDebug", "0"),
    ("PMIxDirectConn", "yes"),
    ("PMIxDirectConnEarly", "no"),
    ("PMIxDirectConnUCX", "no"),
    ("PMIxDirectSameArch", "no"),
    ("PMIxEnv", "(null)"),
    ("PMIxFenceBarrier", "no"),
    ("PMIxNetDevicesUCX", "(null)"),
    ("PMIxTimeout", "0"),
    ("PMIxTlsUCX", "(null)"),
];

fn yes(value: bool) -> String {
    if value { "Yes" } else { "No" }.to_owned()
}

/// Returns `text`, or the replacement `none` if `text` is empty.
fn or(text: &str, none: &str) -> String {
    if text.is_empty() { none } else { text }.to_owned()
}

fn number(value: bool) -> String {
    u32::from(value).to_string()
}

/// Formats a time slice as Slurm does (`30 sec`) if it is whole seconds.
fn time_slice(slice: TimeSlice) -> String {
    match slice.to_string() {
        whole if whole.bytes().all(|b| b.is_ascii_digit()) => format!("{whole} sec"),
        part => part,
    }
}

/// Returns the settings of preemption and of priorities.
fn precedence(config: &Config) -> Vec<(&'static str, String)> {
    let time = |seconds: Seconds| format_limit(Some(seconds.0));
    let preempt = match config.preempt_type {
        PreemptType::None => "preempt/none",
        PreemptType::Qos => "preempt/qos",
        PreemptType::Partition => "preempt/partition_prio",
    };
    let priority = match config.priority_type {
        PriorityType::Basic => "priority/basic",
        PriorityType::Multifactor => "priority/multifactor",
    };
    let mut all = vec![
        ("PreemptExemptTime", time(config.preempt_exempt_time_s)),
        ("PreemptMode", config.preempt_mode.into()),
        ("PreemptType", preempt.to_owned()),
        ("PriorityType", priority.to_owned()),
    ];
    if config.priority_type == PriorityType::Basic {
        return all;
    }
    all.extend([
        ("PriorityCalcPeriod", time(config.priority_calc_period_s)),
        ("PriorityDecayHalfLife", time(config.priority_decay_half_life_s)),
        ("PriorityFavorSmall", yes(config.priority_favor_small)),
        ("PriorityMaxAge", time(config.priority_max_age_s)),
        ("PriorityUsageResetPeriod", format!("{:?}", config.priority_usage_reset_period).to_uppercase()),
        ("PriorityWeightAge", config.priority_weight_age.to_string()),
        ("PriorityWeightAssoc", config.priority_weight_assoc.to_string()),
        ("PriorityWeightFairShare", config.priority_weight_fairshare.to_string()),
        ("PriorityWeightJobSize", config.priority_weight_job_size.to_string()),
        ("PriorityWeightPartition", config.priority_weight_partition.to_string()),
        ("PriorityWeightQOS", config.priority_weight_qos.to_string()),
    ]);
    all
}

/// Returns the settings of programs around jobs, of checks of nodes and of power saving.
fn programs(config: &Config) -> Vec<(&'static str, String)> {
    let (hooks, health, power) = (&config.hooks, &config.health, &config.power);
    let seconds = |s: u64| format!("{s} sec");
    let list = |paths: &[String]| or(&paths.join(","), "(null)");
    // Slurm's number for "no limit".
    let limit = |s: u64| if s == 0 { "65534".to_owned() } else { s.to_string() };
    vec![
        ("Epilog", list(&hooks.epilog)),
        ("EpilogSlurmctld", list(&hooks.epilog_slurmctld)),
        ("EpilogTimeout", limit(hooks.epilog_timeout_s)),
        ("HealthCheckInterval", seconds(health.interval_s)),
        ("HealthCheckNodeState", health.node_state.into()),
        ("HealthCheckProgram", or(&health.program, "(null)")),
        ("Prolog", list(&hooks.prolog)),
        ("PrologEpilogTimeout", limit(hooks.prolog_epilog_timeout_s)),
        ("PrologFlags", or(&String::from(hooks.prolog_flags), "(null)")),
        ("PrologSlurmctld", list(&hooks.prolog_slurmctld)),
        ("PrologTimeout", limit(hooks.prolog_timeout_s)),
        ("RebootProgram", or(&health.reboot_program, "(null)")),
        ("ResumeTimeout", seconds(health.resume_timeout_s)),
        ("ResumeProgram", or(&power.resume_program, "(null)")),
        ("ResumeFailProgram", or(&power.resume_fail_program, "(null)")),
        ("ResumeRate", format!("{} nodes/min", power.resume_rate)),
        ("SuspendExcNodes", or(&power.suspend_exc_nodes, "(null)")),
        ("SuspendExcParts", list(&power.suspend_exc_parts)),
        ("SuspendExcStates", list(&power.suspend_exc_states)),
        ("SuspendProgram", or(&power.suspend_program, "(null)")),
        ("SuspendRate", format!("{} nodes/min", power.suspend_rate)),
        ("SuspendTime", power.suspend_time_s.map_or_else(|| "INFINITE".to_owned(), seconds)),
        ("SuspendTimeout", seconds(power.suspend_timeout_s)),
        ("ReturnToService", health.return_to_service.unwrap_or(1).to_string()),
        ("UnkillableStepProgram", or(&health.unkillable_step_program, "(null)")),
        ("UnkillableStepTimeout", seconds(health.unkillable_step_timeout_s)),
    ]
}

/// Returns the number of nodes that the configuration names.
fn nodes(config: &Config) -> usize {
    config.nodes.iter().filter_map(|node| hostlist::expand(&node.name).ok()).map(|names| names.len()).sum()
}

fn memory(mb: u64) -> String {
    match mb {
        0 => "UNLIMITED".to_owned(),
        mb => format_memory_mb(mb).trim_end_matches('M').to_owned(),
    }
}

fn mpi_params(config: &Config) -> String {
    config.mpi_ports.map_or_else(|| "(null)".to_owned(), |ports| format!("ports={}", String::from(ports)))
}

/// Returns the resources that are accounted.
fn accounted(config: &Config) -> String {
    resources(config).into_iter().map(|resource| resource.name).collect::<Vec<_>>().join(",")
}

/// Returns the names of generic resources.
fn generic(config: &Config) -> String {
    let named = &config.gres_types;
    if named.is_empty() { Vec::from_iter(gres_types(config)).join(",") } else { named.clone() }
}

/// Returns the settings that depend on the configuration, as (key, value).
fn values(config: &Config) -> Vec<(&'static str, String)> {
    let seconds = |s: u64| format!("{s} sec");
    let words = |text: &str| text.to_owned();
    let route = match config.route_plugin {
        RoutePolicy::FanOut => "route/default",
        RoutePolicy::Topology => "route/topology",
    };
    let scheduler = match config.scheduler_type {
        SchedulerType::Backfill => "sched/backfill",
        SchedulerType::Builtin => "sched/builtin",
    };
    let parameters = String::from(config.scheduler_parameters.clone());
    vec![
        ("AccountingStorageEnforce", or(&String::from(config.accounting_storage_enforce), "none")),
        ("AccountingStorageTRES", accounted(config)),
        ("AccountingStorageType", words("accounting_storage/slurmdbd")),
        ("AuthType", words("auth/peercred")),
        ("BatchStartTimeout", seconds(10)),
        ("ClusterName", config.cluster.clone()),
        ("CompleteWait", seconds(0)),
        ("DefMemPerCPU", memory(config.def_mem_per_cpu_mb)),
        ("DependencyParameters", or(if config.kill_invalid_depend { "kill_invalid_depend" } else { "" }, "(null)")),
        ("DisableRootJobs", yes(false)),
        ("EnforcePartLimits", config.enforce_part_limits.into()),
        ("TaskEpilog", or(&config.task_epilog, "(null)")),
        ("TaskProlog", or(&config.task_prolog, "(null)")),
        ("FirstJobId", config.job_ids().start().to_string()),
        ("GresTypes", or(&generic(config), "(null)")),
        ("InactiveLimit", seconds(0)),
        ("JobAcctGatherFrequency", words("30")),
        ("JobAcctGatherType", words("jobacct_gather/cgroup")),
        ("JobCompType", words("jobcomp/none")),
        ("JobRequeue", number(config.job_requeue)),
        ("KillOnBadExit", words("0")),
        ("MailDomain", or(&config.mail_domain, "(null)")),
        ("MailProg", or(&config.mail_prog, "(null)")),
        ("Licenses", or(&config.licenses, "(null)")),
        ("KillWait", seconds(config.kill_wait_s)),
        ("MaxArraySize", config.max_array_size.to_string()),
        ("MaxJobCount", config.max_job_count.to_string()),
        ("MaxJobId", config.job_ids().end().to_string()),
        match config.max_mem_per_cpu_mb {
            0 => ("MaxMemPerNode", memory(config.max_mem_per_node_mb)),
            most => ("MaxMemPerCPU", memory(most)),
        },
        ("MaxNodeCount", nodes(config).to_string()),
        ("MULTIPLE_SLURMD", yes(nodes(config) > 1)),
        ("MaxStepCount", words("40000")),
        ("MaxTasksPerNode", limits::TASKS_PER_NODE_MAX.to_string()),
        ("MessageTimeout", seconds(10)),
        ("MsgAggregationParams", config.msg_aggregation_params.into()),
        ("MinJobAge", seconds(config.min_job_age_s)),
        ("MpiDefault", words("none")),
        ("MpiParams", mpi_params(config)),
        ("PrivateData", or(&String::from(config.private_data), "none")),
        ("ProctrackType", words("proctrack/cgroup")),
        ("RoutePlugin", words(route)),
        ("SchedulerTimeSlice", time_slice(config.scheduler_time_slice)),
        ("SchedulerParameters", or(&parameters, "(null)")),
        ("SchedulerType", words(scheduler)),
        ("SelectType", words("select/cons_tres")),
        ("SelectTypeParameters", config.select_type_parameters.into()),
        ("SlurmctldTimeout", seconds(120)),
        ("SlurmdTimeout", seconds(config.node_timeout_s)),
        ("SLURM_VERSION", words::slurm_version()),
        ("TaskPlugin", words("task/affinity,task/cgroup")),
        ("TopologyParam", or(&config.topology_param, "(null)")),
        ("TopologyPlugin", or(&config.topology_plugin, "topology/default")),
        ("TreeWidth", config.tree_width.to_string()),
        ("WaitTime", seconds(0)),
    ]
}
