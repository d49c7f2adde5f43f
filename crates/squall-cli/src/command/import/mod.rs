//! `squall import`: makes Squall's configuration files from Slurm's and reports what became of each line. The files are
//! read, checked and written here; all else in this folder is texts in, texts out.

mod beside;
mod globals;
mod keys;
mod lines;
mod nodes;
mod parse;
mod partitions;
mod report;
#[cfg(test)]
mod tests;
mod translate;
mod value;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use squall_files::place::Place;
use squall_host::config_files::{Checked, ConfigFiles};
use squall_host::controld::ControllerError;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

use report::{Fate, Report};
use translate::{Site, Translation, at_origin, translate};

/// `squall import`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall import",
    about: "make a configuration from Slurm's, and report on each line",
    synopsis: &["DIR [--output=DIR2] [--force]"],
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
];

/// Name of Slurm's configuration file.
pub(super) const SLURM_CONF: &str = "slurm.conf";

/// Slurm's configuration as Squall's, checked.
pub(super) struct Imported {
    /// Squall's configuration files.
    pub(super) files: ConfigFiles,
    /// What the check has found.
    pub(super) checked: Checked,
    report: Report,
}

impl Imported {
    /// Returns the rows about settings that Squall lacks, that Slurm does not know, or that are wrong, as lines.
    pub(super) fn lacks(&self) -> String {
        self.report.lines(|fate| fate == Fate::Missing || fate.is_fault())
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

struct Options {
    from: PathBuf,
    output: PathBuf,
    force: bool,
}

fn parse(given: &Arguments) -> Result<Options, String> {
    let from = super::one_operand(&PAGE, given)?.ok_or("which folder? `squall import /etc/slurm`")?;
    let output = given.last("output").unwrap_or("squall");
    Ok(Options { from: from.into(), output: output.into(), force: given.has("force") })
}

fn import(options: &Options) -> Result<String, String> {
    let imported = read(&options.from)?;
    let place = Place::at(&options.output).map_err(|e| format!("{}: {e}", options.output.display()))?;
    let there = ConfigFiles::NAMES.into_iter().map(|name| place.dir().join(name)).find(|path| path.exists());
    if let Some(path) = there.filter(|_| !options.force) {
        return Err(format!("{} is there already: use --force to replace it, or another --output DIR", path.display()));
    }
    std::fs::create_dir_all(place.dir()).map_err(|e| format!("cannot create {}: {e}", place.dir().display()))?;
    imported.files.write(&place)?;
    let notes = imported.checked.oddities.iter().chain(&imported.checked.notices);
    notes.for_each(|note| eprintln!("squall import: {note}"));
    let config = place.config().display().to_string();
    Ok(format!(
        "{}{config}: {}\nto start it: squall up --config {config}\n",
        imported.report.lines(|_| true),
        imported.report.summary()
    ))
}

/// Reads the slurm.conf at a path, or in the folder at a path, and the files beside it, and translates and checks them.
/// The error names file and line.
pub(super) fn read(path: &Path) -> Result<Imported, String> {
    let path = if path.is_dir() { path.join(SLURM_CONF) } else { path.to_owned() };
    let text_of = |path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => Err(format!("cannot read {}: {e}", path.display())),
    };
    let beside = |name: &str| path.with_file_name(name);
    let optional = |name: &str| Some(beside(name)).filter(|path| path.exists()).map(|path| text_of(&path)).transpose();
    let text = text_of(&path)?;
    let (devices, confinement) = (optional(beside::DEVICES)?, optional(beside::CONFINEMENT)?);
    let topology = ConfigFiles::TOPOLOGIES.into_iter().find(|name| beside(name).exists());
    let others = beside::OTHERS.iter().map(|(name, _)| *name).filter(|name| beside(name).exists());
    let site = Site {
        name: path.file_name().and_then(|name| name.to_str()).unwrap_or(SLURM_CONF),
        text: &text,
        read: &|name| text_of(&beside(name)),
        devices: devices.as_deref(),
        confinement: confinement.as_deref(),
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
    Ok(Imported { files, checked, report })
}

/// Returns names and addresses by which slurm.conf may call this machine.
fn here() -> Vec<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default().to_owned();
    let all = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into_iter().chain([name, short]);
    all.filter(|name| !name.is_empty()).collect()
}
