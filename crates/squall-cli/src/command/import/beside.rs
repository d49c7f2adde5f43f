//! Files beside slurm.conf: gres.conf, cgroup.conf, and those that Squall does not read.

use std::fmt::Write as _;

use squall_model::config::Detect;
use squall_model::gres;

use super::globals::Globals;
use super::keys::Rule::{self, Missing, Moot, Taken};
use super::lines::unknown;
use super::parse::{Entry, Origin, Pair, Read, entries};
use super::report::{Fate, Report};
use super::value::Outcome;
use super::{keys, value};

/// Name of the file that lists devices.
pub(super) const DEVICES: &str = "gres.conf";
/// Name of the file about confinement.
pub(super) const CONFINEMENT: &str = "cgroup.conf";

/// Name of the file about folders that each job has for itself.
pub(super) const FOLDERS_OF_JOBS: &str = "job_container.conf";

/// Name of the script that filters submissions.
pub(super) const SUBMIT: &str = "job_submit.lua";

/// Other files of Slurm, and what happens instead.
pub(super) const OTHERS: [(&str, &str); 9] = [
    ("acct_gather.conf", "what else is measured is in [energy]; networks and file systems are not"),
    ("burst_buffer.conf", "there are no burst buffers"),
    ("cli_filter.lua", "no filter sees the options of commands"),
    ("helpers.conf", "features of nodes are as configured"),
    ("mpi.conf", "PMIx and PMI2 are served without settings"),
    ("namespace.yaml", "jobs have no namespaces but those of their folders, as job_container.conf describes them"),
    ("oci.conf", "crun or runc is called without settings"),
    ("plugstack.conf", "its SPANK plugins are loaded if [slurm] plugstack names it"),
    ("slurmdbd.conf", "accounting is a part of the controller: bring accounts by `sacctmgr dump` and `sacctmgr load`"),
];

/// No table of `squall.toml` has the keys of these files.
const FILE: &str = "none";

const MECHANISM: &str = "cgroups are found and made by the node daemon";

/// All keys of cgroup.conf.
pub(super) const CGROUP: &[(&str, Rule)] = &[
    ("AllowedDevicesFile", Moot("only devices of gres.conf are ever kept from jobs")),
    ("AllowedKmemSpace", Moot("Slurm has given it up")),
    ("AllowedRAMSpace", Missing(&["100"], "a job has as much memory as it asks for")),
    ("AllowedSwapSpace", Missing(&["0"], "swap space is not limited by itself")),
    ("CgroupAutomount", Moot(MECHANISM)),
    ("CgroupJobIdPaths", Moot(MECHANISM)),
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
        let Some((name, rule)) = keys::named(CGROUP, FILE, &pair.key) else {
            let names: Vec<&str> = CGROUP.iter().map(|(name, _)| *name).collect();
            return report.add(origin, &pair.key, Fate::Unknown, unknown(&pair.key, &names));
        };
        if let Some(outcome) = rule.outcome(name, &pair.value) {
            globals.record(origin, name, outcome, report);
        }
    })
}

/// All keys of job_container.conf but those that are taken.
const FOLDERS: &[(&str, Rule)] = &[
    ("AutoBasePath", Moot("node daemons make the folder")),
    ("CloneNSEpilog", Missing(&[], NO_PROGRAM)),
    ("CloneNSEpilog_Wait", Missing(&[], NO_PROGRAM)),
    ("CloneNSScript", Missing(&[], NO_PROGRAM)),
    ("CloneNSScript_Wait", Missing(&[], NO_PROGRAM)),
    ("EntireStepInNS", Moot("all processes of a job have its folders")),
    ("InitScript", Missing(&[], NO_PROGRAM)),
    ("NodeName", Moot("the folders are the same on all nodes")),
    ("Shared", Missing(&["no", "false"], "mounts of the node after the job's start do not reach the job")),
];
const NO_PROGRAM: &str = "no program runs when a job's folders are made: use a prolog";

/// Takes a job's own folders from job_container.conf.
pub(super) fn folders(text: &str, read: Read<'_>, globals: &mut Globals, report: &mut Report) -> Result<(), String> {
    let used = globals.has_folders();
    let mut taken: Vec<(&str, String)> = Vec::new();
    each(FOLDERS_OF_JOBS, text, read, report, |origin, pair, report| {
        let known = [("BasePath", "private_tmp"), ("Dirs", "private_tmp_dirs")];
        let known = known.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(&pair.key));
        let (fate, text) = match (known, keys::named(FOLDERS, FILE, &pair.key)) {
            _ if !used => (Fate::Moot, "JobContainerType does not name job_container/tmpfs".to_owned()),
            (Some((name, key)), _) => match taken.iter().find(|(before, _)| *before == name) {
                None => {
                    taken.push((name, pair.value.clone()));
                    let outcome = Outcome::set(key, value::quoted(&pair.value));
                    return globals.record(origin, name, Ok(outcome), report);
                }
                Some((_, before)) if *before == pair.value => (Fate::Moot, format!("{name} is `{before}` already")),
                Some((_, before)) => (Fate::Missing, format!("all nodes have the same folders: `{before}` is taken")),
            },
            (None, None) => {
                let names: Vec<&str> = FOLDERS.iter().map(|(name, _)| *name).chain(["BasePath", "Dirs"]).collect();
                (Fate::Unknown, unknown(&pair.key, &names))
            }
            (None, Some((name, rule))) => match rule.outcome(name, &pair.value) {
                Some(outcome) => return globals.record(origin, name, outcome, report),
                None => return,
            },
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
    let links = words.iter().position(|word| word.to_ascii_lowercase().starts_with("links="));
    if let Some(at) = links
        && gres::parse_conf(&words.join(" ")).is_err()
    {
        let word = words.remove(at);
        if gres::parse_conf(&words.join(" ")).is_ok() {
            say(Fate::Missing, "Links", "links are read from a line of one device");
            plain = false;
        } else {
            words.insert(at, word);
        }
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
