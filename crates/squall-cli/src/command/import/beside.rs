//! Files beside slurm.conf: gres.conf, cgroup.conf, and those that Squall does not read.

use std::fmt::Write as _;

use squall_model::config::Detect;
use squall_model::gres;

use super::globals::Globals;
use super::keys::Rule::{self, Elsewhere, Missing, Moot, Taken};
use super::lines::{ALWAYS, unknown};
use super::parse::{Entry, Origin, Pair, Read, entries};
use super::report::{Fate, Report};
use super::value::Outcome;
use super::{keys, value};

/// Name of the file that lists devices.
pub(super) const DEVICES: &str = "gres.conf";
/// Name of the file about confinement.
pub(super) const CONFINEMENT: &str = "cgroup.conf";

/// Other files of Slurm, and what happens instead.
pub(super) const OTHERS: [(&str, &str); 11] = [
    ("acct_gather.conf", "energy, networks and file systems are not measured"),
    ("burst_buffer.conf", "there are no burst buffers"),
    ("cli_filter.lua", "no filter sees the options of commands"),
    ("helpers.conf", "features of nodes are as configured"),
    ("job_container.conf", "its BasePath is private_tmp of squall.toml, its Dirs is private_tmp_dirs"),
    ("job_submit.lua", "jobs are neither changed nor refused by a script"),
    ("mpi.conf", "PMIx and PMI2 are served without settings"),
    ("namespace.yaml", "private_tmp of squall.toml gives each job a /tmp of its own"),
    ("oci.conf", "crun or runc is called without settings: container_runtime names another program"),
    ("plugstack.conf", "SPANK plugins are not loaded"),
    ("slurmdbd.conf", "accounting is a part of the controller: bring accounts by `sacctmgr dump` and `sacctmgr load`"),
];

const MECHANISM: &str = "cgroups are found and made by the node daemon";

/// All keys of cgroup.conf.
const CGROUP: &[(&str, Rule)] = &[
    ("AllowedDevicesFile", Moot("only devices of gres.conf are ever kept from jobs")),
    ("AllowedKmemSpace", Moot("Slurm has given it up")),
    ("AllowedRAMSpace", Missing(&["100"], "a job has as much memory as it asks for")),
    ("AllowedSwapSpace", Missing(&["0"], "swap space is not limited by itself")),
    ("CgroupAutomount", Moot(MECHANISM)),
    ("CgroupMountpoint", Moot(MECHANISM)),
    ("CgroupPlugin", Moot(MECHANISM)),
    ("CgroupReleaseAgentDir", Moot("Slurm has given it up")),
    ("CgroupSlice", Moot(MECHANISM)),
    ("ConstrainCores", Taken("constrain_cores", value::yes)),
    ("ConstrainDevices", Taken("constrain_devices", value::yes)),
    ("ConstrainKmemSpace", Moot("Slurm has given it up")),
    ("ConstrainRAMSpace", Missing(&["yes"], "a job that asks for memory is always limited to it")),
    ("ConstrainSwapSpace", Taken("constrain_swap_space", value::yes)),
    ("EnableControllers", Moot(MECHANISM)),
    ("EnableExtraControllers", Moot(MECHANISM)),
    ("IgnoreSystemd", Moot(MECHANISM)),
    ("IgnoreSystemdOnFailure", Moot(MECHANISM)),
    ("MaxKmemPercent", Moot("Slurm has given it up")),
    ("MaxRAMPercent", Missing(&["100"], "a job has as much memory as it asks for")),
    ("MaxSwapPercent", Missing(&["100"], "swap space is not limited by itself")),
    ("MemorySwappiness", Missing(&[], "the kernel's setting is left alone")),
    ("MinKmemSpace", Moot("Slurm has given it up")),
    ("MinRAMSpace", Moot("a job gets what it asks for, however little")),
    ("SignalChildrenProcesses", Missing(&["no"], "signals go to the processes of a step as `scancel` says")),
    ("SystemdTimeout", Moot(MECHANISM)),
    ("TaskAffinity", Moot("Slurm has given it up")),
];

/// Reports what becomes of cgroup.conf.
pub(super) fn confinement(
    text: &str,
    read: Read<'_>,
    globals: &mut Globals,
    report: &mut Report,
) -> Result<(), String> {
    each(CONFINEMENT, text, read, report, |origin, pair, report| {
        let (fate, text) = match keys::named(CGROUP, &pair.key) {
            None => {
                let names: Vec<&str> = CGROUP.iter().map(|(name, _)| *name).collect();
                (Fate::Unknown, unknown(&pair.key, &names))
            }
            Some((_, Missing(words, _))) if keys::only(&pair.value, words) => (Fate::Moot, ALWAYS.to_owned()),
            Some((_, Missing(_, instead))) => (Fate::Missing, (*instead).to_owned()),
            Some((_, Moot(why))) => (Fate::Moot, (*why).to_owned()),
            Some((name, Taken(key, value))) => match value(&pair.value) {
                Ok(value) => return globals.settle(origin, name, Outcome::set(key, value), report),
                Err(problem) => (Fate::Wrong, problem),
            },
            Some((_, Elsewhere | Rule::By(_))) => return,
        };
        report.add(origin, &pair.key, fate, text);
    })
}

/// Calls `judge` for each setting of a file.
fn each(
    name: &str,
    text: &str,
    read: Read<'_>,
    report: &mut Report,
    mut judge: impl FnMut(&Origin, &Pair, &mut Report),
) -> Result<(), String> {
    for Entry { origin, pairs } in entries(name, text, read)? {
        match pairs {
            Ok(pairs) => pairs.iter().for_each(|pair| judge(&origin, pair, report)),
            Err(problem) => report.add(&origin, "", Fate::Wrong, problem),
        }
    }
    Ok(())
}

/// Returns gres.conf as Squall reads it; None: no line is left. `types`: the names in `GresTypes`.
pub(super) fn devices(
    text: &str,
    types: &[String],
    read: Read<'_>,
    report: &mut Report,
) -> Result<Option<String>, String> {
    let mut made = String::new();
    let lines = entries(DEVICES, text, read)?;
    let mut same = true;
    for Entry { origin, pairs } in &lines {
        same &= &*origin.file == DEVICES;
        let pairs = match pairs {
            Ok(pairs) => pairs,
            Err(problem) => {
                report.add(origin, "", Fate::Wrong, problem.clone());
                same = false;
                continue;
            }
        };
        let name = pairs.iter().find(|pair| pair.key.eq_ignore_ascii_case("Name")).map(|pair| pair.value.as_str());
        if let Some(name) = name.filter(|name| !types.iter().any(|known| known == name)) {
            report.add(origin, format!("Name={name}"), Fate::Moot, "GresTypes of slurm.conf does not name it");
            same = false;
            continue;
        }
        let line = device(origin, pairs, report);
        same &= line.as_ref().is_some_and(|(_, plain)| *plain);
        if let Some((line, _)) = line {
            let _ = writeln!(made, "{line}");
        }
    }
    // Without a line that had to be changed, comments stay.
    let whole = same && gres::parse_conf(text).is_ok();
    Ok(if whole { Some(text.to_owned()) } else { Some(made).filter(|made| !made.is_empty()) })
}

/// Returns a line of gres.conf as Squall reads it, and whether it is as it was. None: it is left out.
fn device(origin: &Origin, pairs: &[Pair], report: &mut Report) -> Option<(String, bool)> {
    let mut words = Vec::new();
    let mut plain = true;
    let head: Vec<String> = pairs.iter().take(2).map(|pair| format!("{}={}", pair.key, pair.value)).collect();
    let head = head.join(" ");
    let mut say = |fate, key: &str, text: &str| report.add(origin, format!("{head} {key}"), fate, text);
    for Pair { key, value } in pairs {
        let word = match key.to_ascii_lowercase().as_str() {
            "flags" => {
                say(Fate::Missing, "Flags", "devices of a name are all alike");
                None
            }
            "links" => {
                say(Fate::Missing, "Links", "devices are chosen by the cores near them, not by their links");
                None
            }
            "autodetect" if value.parse::<Detect>().is_err() => {
                say(
                    Fate::Missing,
                    "AutoDetect",
                    "devices are not detected in this way: name them by File, or give a Count",
                );
                None
            }
            "count" => {
                let Some(count) = value::devices(value) else {
                    say(Fate::Missing, "Count", "the count is too large for a list of devices: the line is left out");
                    return None;
                };
                Some(format!("Count={count}"))
            }
            _ => Some(format!("{key}={value}")),
        };
        plain &= word.as_ref().is_some_and(|word| *word == format!("{key}={value}"));
        words.extend(word);
    }
    let line = words.join(" ");
    let is_named = |name: &str| pairs.iter().any(|pair| pair.key.eq_ignore_ascii_case(name));
    match gres::parse_conf(&line) {
        _ if !is_named("Name") && words.iter().all(|word| !word.to_ascii_lowercase().starts_with("autodetect=")) => {
            None
        }
        Ok(_) => {
            report.add(origin, "", Fate::Taken, format!("`{line}` of {DEVICES}"));
            Some((line, plain))
        }
        Err(problem) => {
            report.add(origin, "", Fate::Wrong, problem.trim_start_matches("line 1: "));
            None
        }
    }
}
