//! `squall import`: makes Squall's configuration files from Slurm's and reports what became of each line. The files are
//! read, checked and written here; all else in this folder is texts in, texts out.

#[cfg(test)]
mod audit;
mod beside;
mod globals;
mod history;
mod keys;
mod lines;
mod nodes;
mod parse;
mod partitions;
mod report;
#[cfg(test)]
pub(super) mod tests;
mod translate;
mod value;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use squall_files::place::{CONFIG_FILES, Place};
use squall_files::users;
use squall_host::config_files::{CheckedConfig, ConfigFiles};
use squall_host::controld::{ControllerError, read_config};
use squall_host::life::{self, Daemon};
use squall_host::past;
use squall_model::job::Owner;
use squall_model::policy::{NORMAL, ROOT};
use squall_model::time::Time;
use squall_text::format::harmless_lines;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

use report::{Fate, Report};
use translate::{Site, Translation, translate};

pub(super) use translate::at_origin;

/// `squall import`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall import",
    about: "make a configuration from Slurm's, and report on each line",
    synopsis: &["DIR [--output=DIR2] [--force]", "--history=FILE [--state=DIR]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Reads slurm.conf in DIR, or the file that DIR names, with gres.conf, cgroup.conf and topology.conf or topology.yaml beside \
it. Writes squall.toml, and what Squall needs beside it, into DIR2, and reports what became of each line: taken, moot (there \
is nothing of the kind) or missing, with what happens instead.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("output", 'o', Arg::Needed("DIR2"), "write there (otherwise ./squall)"),
    flag("force", '\0', Arg::None, "replace files that are there; the old ones are kept with the ending .old"),
    flag(
        "history",
        '\0',
        Arg::Needed("FILE"),
        "instead, bring jobs that have ended into accounting, from what `sacct -aP -S DATE -o ...` of Slurm has written; the cluster must be down. Rows that are there already are left alone",
    ),
    flag(
        "state",
        '\0',
        Arg::Needed("DIR"),
        "the cluster's state folder, for --history (otherwise the machine's, or your own)",
    ),
];

/// Name of Slurm's configuration file.
pub(super) const SLURM_CONF: &str = "slurm.conf";

/// Slurm's configuration as Squall's, checked.
pub(super) struct ImportedConfig {
    /// Squall's configuration files.
    pub(super) files: ConfigFiles,
    /// What the check has found.
    pub(super) checked: CheckedConfig,
    report: Report,
}

impl ImportedConfig {
    /// Returns the rows about settings that Squall lacks, that Slurm does not know, or that are wrong, as lines.
    pub(super) fn lacks(&self) -> String {
        self.report.lines(|fate| fate == Fate::Missing || fate.is_fault())
    }

    /// Returns the commands that make the QOS and accounts which partitions name. Empty: they name none.
    fn records(&self) -> String {
        let partitions = || self.checked.config.partitions.iter();
        let levels = partitions().flat_map(|p| p.allow_qos.iter().chain(&p.deny_qos).chain([&p.qos]));
        let accounts = partitions().flat_map(|p| p.allow_accounts.iter().chain(&p.deny_accounts));
        let named = |all: BTreeSet<&String>, always: &str| {
            let other =
                |name: &&&String| !name.is_empty() && ![always, "ALL"].iter().any(|a| name.eq_ignore_ascii_case(a));
            all.iter().filter(other).map(|name| name.as_str()).collect::<Vec<_>>().join(",")
        };
        let (levels, accounts) = (named(levels.collect(), NORMAL), named(accounts.collect(), ROOT));
        let line = |what: &str, names: &str| match names {
            "" => String::new(),
            names => format!("  sacctmgr -i add {what} {names}\n"),
        };
        let lines = line("qos", &levels) + &line("account", &accounts);
        if lines.is_empty() {
            return lines;
        }
        format!("partitions name QOS or accounts. Bring them by `sacctmgr load`, or make them when it is up:\n{lines}")
    }

    /// Returns the number of settings without a counterpart.
    pub(super) fn missing(&self) -> usize {
        self.report.count(Fate::Missing)
    }

    /// Returns the lines about settings that the administrator has to mend. None: there are none.
    pub(super) fn faults(&self) -> Option<String> {
        Some(self.report.lines(Fate::is_fault)).filter(|lines| !lines.is_empty())
    }
}

/// Runs `squall import`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, |given| import(&parse(given)?))
}

enum Options {
    /// Make a configuration from the files in `from`.
    Configuration { from: PathBuf, output: PathBuf, force: bool },
    /// Bring the jobs that a file lists.
    History { file: PathBuf, place: Place },
}

fn parse(given: &Arguments) -> Result<Options, String> {
    let (from, history) = (super::one_operand(&PAGE, given)?, given.last("history"));
    match (from, history) {
        (Some(_), Some(_)) => Err("DIR and --history: leave one of them out".to_owned()),
        (None, Some(_)) if given.has("force") || given.has("output") => {
            Err("--output and --force are not for --history".to_owned())
        }
        (Some(_), None) if given.has("state") => Err("--state is for --history".to_owned()),
        (None, Some(file)) => {
            Ok(Options::History { file: file.into(), place: super::place(given.last("state").map(Path::new))? })
        }
        (Some(from), None) => {
            let output = given.last("output").unwrap_or("squall");
            Ok(Options::Configuration { from: from.into(), output: output.into(), force: given.has("force") })
        }
        (None, None) => Err("which folder? `squall import /etc/slurm`".to_owned()),
    }
}

fn import(options: &Options) -> Result<String, String> {
    match options {
        Options::Configuration { from, output, force } => configuration(from, output, *force),
        Options::History { file, place } => bring(file, place),
    }
}

/// Brings the jobs of an archive of `sacctmgr` into accounting.
pub(super) fn load(file: &Path, place: &Place) -> Result<String, String> {
    bring(file, place)
}

/// Brings the jobs that a file lists into accounting.
fn bring(file: &Path, place: &Place) -> Result<String, String> {
    let text = std::fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let zone = jiff::tz::TimeZone::system();
    let time = |text: &str| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        let stamp = local.to_zoned(zone.clone()).ok()?.timestamp().as_second();
        u64::try_from(stamp).ok().map(Time::from_secs)
    };
    let world = history::World { owner: &owner, time: &time };
    let found = history::read(&String::from_utf8_lossy(&text), &world);
    let history = found.map_err(|problem| format!("{}: {problem}", file.display()))?;
    if let Some(cell) = place.cells().map_err(|e| e.to_string())?.values().next() {
        return Err(format!("the cluster has cells: name the state of one, as --state {}", cell.dir().display()));
    }
    if Daemon::Controller.pid(place).is_some() {
        return Err(format!(
            "the cluster in {} runs: end it by `squall down --keep-jobs`, import, and start it again",
            place.dir().display()
        ));
    }
    life::make_folders(place)?;
    let config = read_config(place).map_err(|e| e.to_string())?;
    let server = config.accounting.server().transpose()?;
    let brought = past::bring(place, server.as_ref(), &history.jobs)?;
    history.notes.iter().for_each(|note| eprintln!("squall import: {}: {}", file.display(), harmless_lines(note)));
    let highest = history.jobs.iter().map(|job| job.id.0).max().unwrap_or(0);
    let advice = match brought.added {
        0 => String::new(),
        _ => format!("to give new jobs higher ids: FirstJobId = {} in squall.toml\n", highest.saturating_add(1)),
    };
    Ok(format!("{} jobs were added, {} were there already\n{advice}", brought.added, brought.known))
}

/// Returns the user of a name as the owner of jobs. None: this machine does not know the user.
fn owner(name: &str) -> Option<Owner> {
    let user = users::by_name(name)?;
    let group = users::group_name(user.gid).unwrap_or_else(|| user.gid.to_string());
    Some(Owner { uid: user.uid, gid: user.gid, groups: Vec::new(), user: user.name, group })
}

fn configuration(from: &Path, output: &Path, force: bool) -> Result<String, String> {
    let imported = read(from)?;
    let place = Place::at(output).map_err(|e| format!("{}: {e}", output.display()))?;
    let inside = if from.is_dir() { from.join(SLURM_CONF) } else { from.to_owned() };
    let folder = std::path::absolute(inside).ok().and_then(|file| file.parent()?.canonicalize().ok());
    if folder.is_some_and(|folder| output.canonicalize().is_ok_and(|output| output == folder)) {
        return Err(format!(
            "{}: Squall's gres.conf and topology file would replace Slurm's there: use another --output DIR",
            output.display()
        ));
    }
    let there = CONFIG_FILES.into_iter().map(|name| place.dir().join(name)).find(|path| path.exists());
    if let Some(path) = there.filter(|_| !force) {
        return Err(format!("{} is there already: use --force to replace it, or another --output DIR", path.display()));
    }
    std::fs::create_dir_all(place.dir()).map_err(|e| format!("cannot create {}: {e}", place.dir().display()))?;
    imported.files.write(&place)?;
    let notes = imported.checked.oddities.iter().chain(&imported.checked.notices);
    notes.for_each(|note| eprintln!("squall import: {}", harmless_lines(note)));
    let config = place.config().display().to_string();
    Ok(format!(
        "{}{config}: {}\nto start it: squall up --config {config}\n{}",
        imported.report.lines(|_| true),
        imported.report.summary(),
        imported.records()
    ))
}

/// Reads the slurm.conf at a path, or in the folder at a path, and the files beside it, and translates and checks them.
/// The error names file and line.
pub(super) fn read(path: &Path) -> Result<ImportedConfig, String> {
    let path = if path.is_dir() { path.join(SLURM_CONF) } else { path.to_owned() };
    let text_of = |path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => Err(format!("cannot read {}: {e}", path.display())),
    };
    let beside = |name: &str| path.with_file_name(name);
    let optional = |name: &str| Some(beside(name)).filter(|path| path.exists()).map(|path| text_of(&path)).transpose();
    let text = text_of(&path)?;
    let (devices, confinement) = (optional(beside::DEVICES)?, optional(beside::CONFINEMENT)?);
    let folders = optional(beside::FOLDERS_OF_JOBS)?;
    let submit = std::path::absolute(beside(beside::SUBMIT)).ok().filter(|path| path.exists());
    let submit = submit.map(|path| path.display().to_string());
    let topology = ConfigFiles::TOPOLOGIES.into_iter().find(|name| beside(name).exists());
    let others = beside::OTHERS.iter().map(|(name, _)| *name).filter(|name| beside(name).exists());
    let site = Site {
        name: path.file_name().and_then(|name| name.to_str()).unwrap_or(SLURM_CONF),
        text: &text,
        read: &|name| text_of(&beside(name)),
        devices: devices.as_deref(),
        confinement: confinement.as_deref(),
        folders: folders.as_deref(),
        submit: submit.as_deref(),
        topology,
        others: &others.collect::<Vec<_>>(),
        here: &here(),
    };
    let Translation { toml, devices, has_topology, report } = translate(&site)?;
    let files = ConfigFiles::beside(&path, toml.clone()).map_err(|e| e.to_string())?;
    let files = files.with_devices(devices);
    let files = if has_topology { files } else { files.without_topology() };
    let checked = files.check().map_err(|problem| match &problem {
        ControllerError::Config { path: at, problem } if *at == path => {
            let faults = report.lines(Fate::is_fault);
            format!("{faults}{}", at_origin(&toml, problem))
        }
        other => other.to_string(),
    })?;
    Ok(ImportedConfig { files, checked, report })
}

/// Returns names and addresses by which slurm.conf may call this machine.
fn here() -> Vec<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default().to_owned();
    let all = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into_iter().chain([name, short]);
    all.filter(|name| !name.is_empty()).collect()
}
