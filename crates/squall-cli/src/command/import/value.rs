//! Reads values of slurm.conf and writes them as TOML.

use std::fmt::Write as _;

use squall_model::billing::{BillingWeights, PriorityFlags};
use squall_model::config::{Config, Ports, PrologFlags, SchedulerParameters};
use squall_model::duration::{parse_limit, parse_memory_mb};
use squall_model::gang::OverSubscribe;
use squall_model::license;
use squall_model::limits::{GRES_PER_NODE_MAX, NODE_TIMEOUT_ANY_S};

use super::report::Fate;

/// What a value becomes: keys of `squall.toml` with their values as TOML, and what the report says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) set: Vec<(String, String)>,
    pub(super) fate: Fate,
    /// Text of the report. Empty: the keys that are set.
    pub(super) text: String,
}

impl Outcome {
    /// Returns an outcome that sets one key.
    pub(super) fn set(key: impl Into<String>, value: String) -> Self {
        Self { set: vec![(key.into(), value)], fate: Fate::Taken, text: String::new() }
    }

    /// Returns an outcome that sets nothing.
    pub(super) fn none(fate: Fate, text: impl Into<String>) -> Self {
        Self { set: Vec::new(), fate, text: text.into() }
    }
}

/// Returns a TOML string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Returns whether the text is one of Slurm's words for "no limit".
pub(super) fn is_unlimited(text: &str) -> bool {
    ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Returns whether the text stands for nothing.
pub(super) fn is_none(text: &str) -> bool {
    text.is_empty() || text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("(null)")
}

/// Takes a text as it is.
#[expect(clippy::unnecessary_wraps, reason = "it stands in tables beside functions that may fail")]
pub(super) fn text(value: &str) -> Result<String, String> {
    Ok(quoted(value))
}

/// Reads a whole number.
pub(super) fn number(value: &str) -> Result<String, String> {
    let number: Result<u32, _> = value.parse();
    number.map(|number| number.to_string()).map_err(|_| format!("`{value}` is no whole number"))
}

/// Reads a whole number; Slurm's words for "no limit" stay.
pub(super) fn count(value: &str) -> Result<String, String> {
    if is_unlimited(value) { Ok(quoted("UNLIMITED")) } else { number(value) }
}

/// Reads a time limit in seconds; Slurm's words for "no limit" become 0.
pub(super) fn seconds_or_none(value: &str) -> Result<String, String> {
    if is_unlimited(value) || value == "65534" { Ok("0".to_owned()) } else { number(value) }
}

/// Reads a time in seconds; Slurm's words for "never" become -1.
pub(super) fn seconds_or_never(value: &str) -> Result<String, String> {
    if is_unlimited(value) || is_none(value) || value == "-1" { Ok("-1".to_owned()) } else { number(value) }
}

/// Reads `PrologFlags`.
pub(super) fn prolog_flags(value: &str) -> Result<Outcome, String> {
    let words = value.split(',').map(str::trim).filter(|word| !is_none(word));
    let (x11, others): (Vec<&str>, Vec<&str>) = words.partition(|word| word.eq_ignore_ascii_case("x11"));
    let others = others.join(",");
    PrologFlags::try_from(others.clone())?;
    let mut outcome = Outcome::set("hooks.prolog_flags", quoted(&others));
    if others.is_empty() {
        outcome.set.clear();
        if !x11.is_empty() {
            return Ok(Outcome::none(Fate::Moot, "`srun --x11` needs no flag"));
        }
    }
    Ok(outcome)
}

/// Reads `PlugStackConfig`. A relative path begins at the folder of slurm.conf, which is /etc/slurm on the machines.
pub(super) fn plugstack(value: &str) -> Result<Outcome, String> {
    if is_none(value) {
        return Ok(Outcome::none(Fate::Moot, super::lines::ALWAYS));
    }
    if value.ends_with('/') {
        return Err(format!("`{value}`: the path of a file is needed"));
    }
    let path = if value.starts_with('/') { value.to_owned() } else { format!("/etc/slurm/{value}") };
    Ok(Outcome::set("slurm.plugstack", quoted(&path)))
}

/// Reads `JobSubmitPlugins`. `script`: path of `job_submit.lua`, if it is there.
pub(super) fn submit(value: &str, script: Option<&str>) -> Outcome {
    let words: Vec<&str> = value.split(',').map(str::trim).filter(|word| !is_none(word)).collect();
    let is_lua = |word: &&str| word.rsplit('/').next() == Some("lua");
    let others: Vec<&str> = words.iter().copied().filter(|word| !is_lua(word)).collect();
    let lacks = "only Lua scripts and programs filter submissions ([submit])";
    match (words.len() > others.len(), script) {
        (true, None) => Outcome::none(Fate::Missing, "job_submit.lua is not beside slurm.conf: name it in [submit]"),
        (true, Some(script)) => {
            let mut outcome = Outcome::set("submit.lua", quoted(script));
            if !others.is_empty() {
                let text = format!("submit.lua = {}; not {}: {lacks}", quoted(script), others.join(","));
                (outcome.fate, outcome.text) = (Fate::Missing, text);
            }
            outcome
        }
        (false, _) if words.is_empty() => Outcome::none(Fate::Moot, super::lines::ALWAYS),
        (false, _) => Outcome::none(Fate::Missing, lacks),
    }
}

/// Reads `JobContainerType` and `NamespaceType`.
pub(super) fn folders(value: &str) -> Outcome {
    match value.rsplit('/').next() {
        Some("tmpfs") => Outcome::none(Fate::Moot, "job_container.conf says which folders each job has for itself"),
        Some("none" | "(null)") | None => Outcome::none(Fate::Moot, super::lines::ALWAYS),
        _ => Outcome::none(Fate::Missing, "jobs have no namespaces but those of job_container/tmpfs"),
    }
}

/// Reads YES or NO, or 1 or 0.
pub(super) fn yes(value: &str) -> Result<String, String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "y" | "true" | "t" | "up" | "1" => Ok("true".to_owned()),
        "no" | "n" | "false" | "f" | "down" | "0" => Ok("false".to_owned()),
        _ => Err(format!("`{value}`: YES or NO is needed")),
    }
}

/// Reads a length of time, in minutes or as `DAYS-HOURS:MINUTES:SECONDS`, and keeps Slurm's form.
pub(super) fn time(value: &str) -> Result<String, String> {
    match parse_limit(value) {
        // Slurm's way to turn off what the time would delay.
        _ if value == "-1" => Ok("0".to_owned()),
        Ok(Some(_)) => Ok(quoted(value)),
        Ok(None) => Err(format!("`{value}`: a length of time such as 7-0 is needed")),
        Err(_) => Err(format!("`{value}` is no length of time such as 7-0 (days-hours)")),
    }
}

/// Reads a limit on time, which may be unlimited, and keeps Slurm's form.
pub(super) fn limit(value: &str) -> Result<String, String> {
    match parse_limit(value) {
        Ok(Some(_)) => Ok(quoted(value)),
        Ok(None) => Ok(quoted("UNLIMITED")),
        Err(_) => Err(format!("`{value}` is no time such as 1-00:00:00 or UNLIMITED")),
    }
}

/// Reads an amount of memory in MiB, or with a suffix.
pub(super) fn memory(value: &str) -> Result<String, String> {
    if is_unlimited(value) {
        return Ok("0".to_owned());
    }
    let megabytes = parse_memory_mb(value).map_err(|_| format!("`{value}` is no memory such as 2048 or 2G"))?;
    Ok(megabytes.to_string())
}

/// Reads a number of devices, perhaps with a suffix as in `4K`. None: there are more than a node may have.
pub(super) fn devices(value: &str) -> Option<u32> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let times = match value[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1024,
        _ => return None,
    };
    let count = digits.parse::<u32>().ok()?.checked_mul(times)?;
    (count as usize <= GRES_PER_NODE_MAX).then_some(count)
}

/// Reads a list of licenses.
pub(super) fn licenses(value: &str) -> Result<String, String> {
    if value.eq_ignore_ascii_case("(null)") {
        return text("");
    }
    let known = license::parse(value).ok_or_else(|| format!("`{value}`: NAME:COUNT,NAME:COUNT is needed"))?;
    let words: Vec<String> = known.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    text(&words.join(","))
}

/// Reads `OverSubscribe`.
pub(super) fn oversubscribe(value: &str) -> Result<String, String> {
    OverSubscribe::try_from(value.to_owned()).map(|_| quoted(value))
}

/// Reads `SchedulerParameters`: words that Slurm does not know are left out.
pub(super) fn scheduler(value: &str) -> Result<Outcome, String> {
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        words.partition(|word| SchedulerParameters::try_from((*word).to_owned()).is_ok());
    let parameters = SchedulerParameters::try_from(known.join(","))?;
    let (_, missing) = parameters.without_effect();
    let mut outcome = Outcome::set("SchedulerParameters", quoted(&known.join(",")));
    let mut lacks = Vec::new();
    if !missing.is_empty() {
        lacks.push(format!("{} not supported, and passed over", missing.join(",")));
    }
    if !unknown.is_empty() {
        lacks.push(format!("{} not known, and left out", unknown.join(",")));
    }
    if !lacks.is_empty() {
        outcome.fate = Fate::Missing;
        outcome.text = format!("{}; the other words are taken", lacks.join("; "));
    }
    if known.is_empty() {
        outcome.set.clear();
    }
    Ok(outcome)
}

/// Reads `DependencyParameters`.
pub(super) fn dependency(value: &str) -> Result<Outcome, String> {
    let mut outcome = Outcome::none(Fate::Moot, "dependencies on jobs of other clusters are not taken");
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "kill_invalid_depend" => outcome = Outcome::set("kill_invalid_depend", "true".to_owned()),
            "disable_remote_singleton" => {}
            _ => return Err(format!("`{word}`: kill_invalid_depend or disable_remote_singleton is needed")),
        }
    }
    Ok(outcome)
}

/// Reads `MpiParams`: `ports=12000-12999`, and words that only Slurm's own launchers of MPI programs need.
pub(super) fn mpi(value: &str) -> Result<Outcome, String> {
    match value.split(',').find(|word| word.starts_with("ports=")) {
        Some(ports) => Ok(Outcome::set("mpi_ports", quoted(&String::from(Ports::try_from(ports.to_owned())?)))),
        None => Ok(Outcome::none(Fate::Moot, "MPI programs are served without reserved ports")),
    }
}

/// Reads `JobCompType`. None: it is none of the types that are there.
pub(super) fn job_completion(value: &str) -> Option<&'static str> {
    match value.rsplit('/').next()? {
        "filetxt" => Some("jobcomp/filetxt"),
        "elasticsearch" => Some("jobcomp/elasticsearch"),
        _ => None,
    }
}

/// Reads `SrunPortRange`; `0-0` is Slurm's way to say any port.
pub(super) fn srun_ports(value: &str) -> Result<Outcome, String> {
    if is_none(value) || value == "0-0" {
        return Ok(Outcome::none(Fate::Moot, super::lines::ALWAYS));
    }
    Ok(Outcome::set("SrunPortRange", quoted(&String::from(Ports::try_from(value.to_owned())?))))
}

/// Reads `TaskPlugin`: Slurm has these plugins.
pub(super) fn task_plugin(value: &str) -> Result<Outcome, String> {
    let is_known = |word: &str| {
        let name = word.trim().rsplit('/').next().unwrap_or_default();
        is_none(name) || ["affinity", "cgroup"].iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    match value.split(',').find(|word| !is_known(word)) {
        Some(word) => Err(format!("`{word}`: task/affinity, task/cgroup or task/none is needed")),
        None => Ok(Outcome::none(
            Fate::Moot,
            "tasks are bound by --cpu-bind and confined by cgroups, as far as the node has them",
        )),
    }
}

/// Reads `AcctGatherEnergyType`.
pub(super) fn energy(value: &str) -> Result<Outcome, String> {
    Ok(match value.rsplit('/').next().unwrap_or_default() {
        "rapl" => Outcome::set("energy.acct_gather_energy_type", quoted("rapl")),
        "pm_counters" | "cray_aries" => Outcome::set("energy.acct_gather_energy_type", quoted("pm_counters")),
        name if is_none(name) => Outcome::none(Fate::Moot, super::lines::ALWAYS),
        "gpu" | "ipmi" | "xcc" => Outcome::none(
            Fate::Missing,
            "nodes read RAPL, or a file with joules ([energy] file) that a program of the site writes",
        ),
        name => {
            return Err(format!("`{name}`: acct_gather_energy/rapl, pm_counters, ipmi, xcc, gpu or none is needed"));
        }
    })
}

/// Reads `AcctGatherNodeFreq`; 0 is Slurm's way not to measure.
pub(super) fn energy_interval(value: &str) -> Result<Outcome, String> {
    let seconds: u32 = value.parse().map_err(|_| format!("`{value}` is no number of seconds"))?;
    match seconds {
        0 => Ok(Outcome::none(Fate::Moot, "AcctGatherEnergyType says whether energy is measured")),
        _ => Ok(Outcome::set("energy.acct_gather_node_freq_s", seconds.min(600).to_string())),
    }
}

/// Reads `JobAcctGatherParams`, of which every word is about Slurm's own sampling.
pub(super) fn gather_params(value: &str) -> Result<Outcome, String> {
    const WORDS: [&str; 7] =
        ["NoShared", "UsePss", "UseRss", "OverMemoryKill", "NoOverMemoryKill", "DisableGPUAcct", "no_file_cache"];
    let is_known = |word: &&str| is_none(word) || WORDS.iter().any(|known| known.eq_ignore_ascii_case(word));
    match value.split(',').map(str::trim).find(|word| !is_known(word)) {
        Some(word) => Err(format!("`{word}` is no word of JobAcctGatherParams")),
        None => Ok(Outcome::none(Fate::Moot, "the kernel counts and limits the memory of each step")),
    }
}

/// Reads the name of a plugin of `kind`; Slurm has these `names`.
fn plugin(key: &'static str, kind: &str, names: [&str; 2], value: &str) -> Result<Outcome, String> {
    let name = value.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    match names.iter().find(|known| **known == name) {
        Some(known) => Ok(Outcome::set(key, quoted(&format!("{kind}/{known}")))),
        None => Err(format!("`{value}`: {kind}/{} or {kind}/{} is needed", names[0], names[1])),
    }
}

/// Reads `PriorityType`.
pub(super) fn priority_type(value: &str) -> Result<Outcome, String> {
    plugin("PriorityType", "priority", ["basic", "multifactor"], value)
}

/// Reads `TRESBillingWeights`.
pub(super) fn billing_weights(value: &str) -> Result<String, String> {
    let value = if is_none(value) { "" } else { value };
    BillingWeights::try_from(value.to_owned()).map(|weights| quoted(weights.as_str()))
}

/// Reads `PriorityFlags`: those about billing are taken.
pub(super) fn priority_flags(value: &str) -> Outcome {
    let words =
        value.split(',').map(str::trim).filter(|word| !is_none(word) && !word.eq_ignore_ascii_case("FAIR_TREE"));
    let (known, others): (Vec<&str>, Vec<&str>) =
        words.partition(|word| PriorityFlags::try_from((*word).to_owned()).is_ok());
    let lacks = "priorities are computed by Fair Tree, as without these flags";
    if known.is_empty() {
        let (fate, text) = if others.is_empty() { (Fate::Moot, super::lines::ALWAYS) } else { (Fate::Missing, lacks) };
        return Outcome::none(fate, text);
    }
    let mut outcome = Outcome::set("PriorityFlags", quoted(&known.join(",")));
    if !others.is_empty() {
        let text = format!("PriorityFlags = {}; not {}: {lacks}", quoted(&known.join(",")), others.join(","));
        (outcome.fate, outcome.text) = (Fate::Missing, text);
    }
    outcome
}

/// Reads `SchedulerType`.
pub(super) fn scheduler_type(value: &str) -> Result<Outcome, String> {
    plugin("SchedulerType", "sched", ["backfill", "builtin"], value)
}

/// Reads `RoutePlugin`.
pub(super) fn route(value: &str) -> Result<Outcome, String> {
    plugin("RoutePlugin", "route", ["default", "topology"], value)
}

/// Reads `SuspendTime`: seconds, or a word for "never".
pub(super) fn suspend_time(value: &str) -> Result<Outcome, String> {
    if is_unlimited(value) || is_none(value) {
        return Ok(Outcome::none(Fate::Moot, "nodes are not powered down unless it is set"));
    }
    number(value).map(|seconds| Outcome::set("power.suspend_time_s", seconds))
}

/// Reads `PriorityUsageResetPeriod`.
pub(super) fn reset_period(value: &str) -> Result<Outcome, String> {
    let word = value.to_ascii_uppercase();
    match word.as_str() {
        "NONE" | "DAILY" | "WEEKLY" | "MONTHLY" | "QUARTERLY" | "YEARLY" => {
            Ok(Outcome::set("PriorityUsageResetPeriod", quoted(&word)))
        }
        "NOW" => Ok(Outcome::none(Fate::Missing, "use `sacctmgr modify account root set RawUsage=0` once")),
        _ => Err(format!("`{value}`: NONE, NOW, DAILY, WEEKLY, MONTHLY, QUARTERLY or YEARLY is needed")),
    }
}

/// Reads `MaxArraySize`.
pub(super) fn array_size(value: &str) -> Result<Outcome, String> {
    match number(value)?.as_str() {
        "0" => Ok(Outcome::none(Fate::Missing, "arrays can't be turned off")),
        number => Ok(Outcome::set("MaxArraySize", number.to_owned())),
    }
}

/// Reads `TreeWidth`; 0 stands for a tree of one level.
pub(super) fn tree_width(value: &str) -> Result<Outcome, String> {
    let width = number(value)?;
    Ok(Outcome::set("TreeWidth", if width == "0" { "65533".to_owned() } else { width }))
}

/// Reads `ResumeTimeout`: a node needs some time to boot.
pub(super) fn resume_timeout(value: &str) -> Result<Outcome, String> {
    let mut outcome = Outcome::set("health.resume_timeout_s", number(value)?);
    if outcome.set[0].1 == "0" {
        "1".clone_into(&mut outcome.set[0].1);
        "health.resume_timeout_s = 1: with 0 every node that reboots would be down at once"
            .clone_into(&mut outcome.text);
    }
    Ok(outcome)
}

/// Reads `SlurmdTimeout`. One that is shorter than every cluster may have might take down healthy nodes, and jobs of a silent
/// node are not given up before it is down.
pub(super) fn node_timeout(value: &str) -> Result<Outcome, String> {
    let seconds: u64 = value.parse().map_err(|_| format!("`{value}` is no number of seconds"))?;
    if seconds == 0 {
        return Ok(Outcome::none(Fate::Missing, "a silent node is always down, after 60 s"));
    }
    let short = seconds < NODE_TIMEOUT_ANY_S;
    let seconds = seconds.max(NODE_TIMEOUT_ANY_S);
    let mut outcome = Outcome::set("SlurmdTimeout", seconds.to_string());
    if short {
        outcome.text = format!(
            "SlurmdTimeout = {seconds}, not {value}: less would take down healthy nodes of a large cluster. A small one may have \
             less (see node_timeout_s)"
        );
    }
    if seconds > Config::default().node_lost_s {
        outcome.set.push(("node_lost_s".to_owned(), seconds.to_string()));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::{limit, memory, node_timeout, quoted, resume_timeout, scheduler, time, yes};
    use crate::command::import::report::Fate;

    #[test]
    fn values_keep_their_meaning() {
        assert_eq!(limit("INFINITE").unwrap(), "\"UNLIMITED\"");
        assert_eq!(limit("1-00:00:00").unwrap(), "\"1-00:00:00\"");
        assert_eq!((time("-1").unwrap().as_str(), time("7-0").unwrap().as_str()), ("0", "\"7-0\""));
        assert_eq!((memory("2G").unwrap().as_str(), memory("UNLIMITED").unwrap().as_str()), ("2048", "0"));
        assert_eq!((yes("YES").unwrap().as_str(), yes("0").unwrap().as_str()), ("true", "false"));
        assert_eq!(quoted("a\"b\\\n"), "\"a\\\"b\\\\\\u000A\"");
        assert!(limit("soon").is_err() && memory("much").is_err() && yes("perhaps").is_err());
    }

    #[test]
    fn timeouts_and_words_that_squall_can_not_have_are_mended() {
        let set =
            |value: &str| node_timeout(value).unwrap().set.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
        for short in ["1", "10", "29"] {
            assert_eq!(set(short), vec!["SlurmdTimeout=30"]);
            let text = node_timeout(short).unwrap().text;
            assert!(text.starts_with(&format!("SlurmdTimeout = 30, not {short}: ")), "{text}");
        }
        assert!(
            node_timeout("30").unwrap().text.is_empty() && resume_timeout("0").unwrap().text.contains("down at once")
        );
        assert_eq!(set("600"), vec!["SlurmdTimeout=600", "node_lost_s=600"]);
        assert_eq!(set("0"), Vec::<String>::new());
        let words = scheduler("bf_window=60, bf_max_job_user=9,bf_nonsense").unwrap();
        assert_eq!((words.fate, words.set[0].1.as_str()), (Fate::Missing, "\"bf_window=60,bf_max_job_user=9\""));
        assert!(words.text.contains("bf_nonsense not known"), "{}", words.text);
    }
}
