//! Settings of a cluster by Slurm's names, as `scontrol show config` shows them.

use squall_model::config::{Config, Key, SECTIONS, Shown};
use squall_model::duration::{format_limit, format_memory_mb};
use squall_model::hostlist;
use squall_model::policy::PriorityType;

use crate::columns::entities::{gres_types, resources};
use crate::format::words;

/// Keys of the controllers' hosts.
pub const HOSTS: [&str; 5] =
    ["SlurmctldHost[0]", "SlurmctldHost[1]", "SlurmctldHost[2]", "SlurmctldHost[3]", "SlurmctldHost[4]"];

/// Returns the controller's host, with the address that other machines use if it is another: `head(10.0.0.1)`.
pub fn own_host(config: &Config, host: &str) -> String {
    match config.slurmctld_host.0.as_str() {
        address if address.is_empty() || address == host => host.to_owned(),
        address => format!("{host}({address})"),
    }
}

/// Returns the settings that follow from the configuration in force, or are the same in every cluster.
pub fn settings(config: &Config) -> Result<Vec<(&'static str, String)>, String> {
    let ids = config.job_ids();
    let (first_job_id, max_job_id, gres_types) = (*ids.start(), *ids.end(), generic(config));
    let config = Config { first_job_id, max_job_id, gres_types, ..config.clone() };
    let values = config.values()?;
    let counts = |key: &Key| config.priority_type == PriorityType::Multifactor || !key.name.starts_with("priority_");
    let mut all = facts(&config);
    for section in SECTIONS.iter().filter(|section| !section.repeated) {
        for key in section.keys.iter().filter(|key| counts(key) || key.name == "priority_type") {
            let Some((name, shown)) = key.shown() else { continue };
            let value = values.get(&section.path(key)).map_or("", String::as_str);
            all.extend(written(key, shown, value).map(|value| (name, value)));
        }
    }
    all.extend(FIXED.iter().map(|(name, value)| (*name, (*value).to_owned())));
    all.extend(ABSENT.split_whitespace().map(|name| (name, "(null)".to_owned())));
    Ok(all)
}

/// Writes the value of a key as Slurm does. Empty: it has none. None: there is no line for it.
fn written(key: &Key, shown: Shown, value: &str) -> Option<String> {
    let seconds = || value.parse().ok();
    let text = match (shown, key.kind, key.unit) {
        (Shown::Never, ..) => return None,
        (Shown::Set, ..) if value.is_empty() => return None,
        (Shown::Or(none), ..) => or(value, none),
        (Shown::After(_), ..) if value.is_empty() => or("", "(null)"),
        (Shown::After(start), ..) => format!("{start}{value}"),
        (Shown::Means(word), ..) => or(if ["", "false"].contains(&value) { "" } else { word }, "(null)"),
        // Time slices below a second have a unit of their own.
        (Shown::In(unit), ..) if value.bytes().all(|b| b.is_ascii_digit()) => format!("{} {unit}", or(value, "0")),
        (Shown::Digit, ..) => u32::from(value == "true").to_string(),
        (Shown::Limit, ..) => if value == "0" { "65534" } else { value }.to_owned(),
        (_, "boolean", _) => if value == "true" { "Yes" } else { "No" }.to_owned(),
        (Shown::Usual, "time", _) => format_limit(seconds()),
        (_, _, "MiB") => memory(value.parse().unwrap_or(0)),
        (_, "number", "seconds") => {
            seconds().map_or_else(|| "INFINITE".to_owned(), |seconds: u64| format!("{seconds} sec"))
        }
        _ => or(value, "(null)"),
    };
    Some(text)
}

/// Settings that no cluster has.
const ABSENT: &str = "\
    AccountingStorageBackupHost AccountingStorageExternalHost AccountingStorageParameters AccountingStoreFlags \
    AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherProfileType AuthAltParameters \
    AuthInfo BcastExclude BcastParameters BurstBufferType CliFilterPlugins CommunicationParameters CpuFreqGovernors \
    DebugFlags FederationParameters GpuFreqDef InteractiveStepOptions JobAcctGatherParams JobCompHost \
    JobCompUser JobCredentialPrivateKey JobCredentialPublicCertificate LaunchParameters \
    MCSParameters NodeFeaturesPlugins PluginDir PowerParameters PrEpParameters PrEpPlugins \
    PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin \
    ReconfigFlags ResvEpilog ResvProlog ScronParameters SlurmctldAddr \
    SlurmctldParameters SlurmctldPlugstack SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug \
    SlurmdSyslogDebug SlurmSchedLogFile SwitchParameters X11Parameters";

/// Settings that are the same in every cluster. Programs read them to find out whether a feature of Slurm is in use.
const FIXED: &[(&str, &str)] = &[
    ("AccountingStorageHost", "localhost"),
    ("AccountingStoragePort", "0"),
    ("AccountingStorageType", "accounting_storage/slurmdbd"),
    ("AccountingStorageUser", "N/A"),
    ("AllowSpecResourcesUsage", "No"),
    ("AuthType", "auth/peercred"),
    ("BatchStartTimeout", "10 sec"),
    ("CoreSpecPlugin", "core_spec/none"),
    ("CpuFreqDef", "Unknown"),
    ("CredType", "cred/none"),
    ("EioTimeout", "0"),
    ("EpilogMsgTime", "0 usec"),
    ("ExtSensorsFreq", "0 sec"),
    ("ExtSensorsType", "ext_sensors/none"),
    ("GetEnvTimeout", "0 sec"),
    ("GroupUpdateForce", "0"),
    ("GroupUpdateTime", "0 sec"),
    ("HASH_VAL", "Match"),
    ("JobAcctGatherFrequency", "0"),
    ("JobAcctGatherType", "jobacct_gather/cgroup"),
    ("JobCompPort", "0"),
    ("LaunchType", "launch/slurm"),
    ("LogTimeFormat", "iso8601_ms"),
    ("MaxDBDMsgs", "0"),
    ("MaxStepCount", "40000"),
    ("MCSPlugin", "mcs/none"),
    ("MessageTimeout", "10 sec"),
    ("MpiDefault", "none"),
    ("PowerPlugin", ""),
    ("ProctrackType", "proctrack/cgroup"),
    ("PropagatePrioProcess", "0"),
    ("SelectType", "select/cons_tres"),
    ("SlurmSchedLogLevel", "0"),
    ("SwitchType", "switch/none"),
    ("TaskPlugin", "task/affinity,task/cgroup"),
    ("TaskPluginParam", "(null type)"),
    ("TCPTimeout", "0 sec"),
    ("TrackWCKey", "No"),
    ("UsePam", "No"),
    ("VSizeFactor", "0 percent"),
];

/// Returns `text`, or the replacement `none` if `text` is empty.
fn or(text: &str, none: &str) -> String {
    if text.is_empty() { none } else { text }.to_owned()
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

/// Returns the resources that are accounted.
fn accounted(config: &Config) -> String {
    resources(config).into_iter().map(|resource| resource.name).collect::<Vec<_>>().join(",")
}

/// Returns the names of generic resources.
fn generic(config: &Config) -> String {
    let named = &config.gres_types;
    if named.is_empty() { Vec::from_iter(gres_types(config)).join(",") } else { named.clone() }
}

/// Returns the settings that are not values of keys, and yet not the same in every cluster.
fn facts(config: &Config) -> Vec<(&'static str, String)> {
    let forced = !config.nodes.is_empty() && config.nodes.iter().all(|node| node.force);
    vec![
        ("AccountingStorageTRES", accounted(config)),
        ("MaxNodeCount", nodes(config).to_string()),
        ("MULTIPLE_SLURMD", if nodes(config) > 1 { "Yes" } else { "No" }.to_owned()),
        ("SLURM_VERSION", words::slurm_version()),
        ("SlurmdParameters", or(if forced { "config_overrides" } else { "" }, "(null)")),
    ]
}
