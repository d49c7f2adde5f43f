//! The commands, one file (or folder) each.

pub(crate) mod accounting;
pub(crate) mod allocation;
pub(crate) mod backup;
mod cells;
pub(crate) mod check;
mod check_scripts;
mod configure;
pub(crate) mod daemons;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod events;
pub(crate) mod forecast;
pub(crate) mod hostfile;
pub(crate) mod import;
pub(crate) mod layout;
pub(crate) mod listing;
pub(crate) mod mail;
pub(crate) mod metrics;
mod plugins;
pub(crate) mod report;
pub(crate) mod rest;
pub(crate) mod restore;
pub(crate) mod sacct;
pub(crate) mod sacctmgr;
pub(crate) mod salloc;
pub(crate) mod sattach;
pub(crate) mod sbatch;
pub(crate) mod sbcast;
pub(crate) mod scancel;
pub(crate) mod scontrol;
pub(crate) mod sdiag;
pub(crate) mod seff;
pub(crate) mod sim;
pub(crate) mod sinfo;
pub(crate) mod sprio;
pub(crate) mod squeue;
pub(crate) mod sreport;
pub(crate) mod srun;
pub(crate) mod sshare;
pub(crate) mod sstat;
pub(crate) mod step;
pub(crate) mod submission;
pub(crate) mod supervise;
pub(crate) mod swait;
pub(crate) mod tail;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod up;
pub(crate) mod what_if;
pub(crate) mod why;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use squall_files::place::{Place, STATE_VARIABLE};
use squall_host::life;
use squall_text::format::harmless_lines;
use squall_text::options::flag::Arguments;
use squall_text::page::Page;

/// Ends a command that starts or ends daemons: prints its result or its error, and returns the exit code.
fn end(command: &str, done: Result<String, String>) -> ExitCode {
    match done {
        Ok(text) => {
            crate::hall::print(&text);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("squall {command}: error: {}", harmless_lines(&problem));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command of Squall's own: answers `--help`, or calls `deed` with the parsed command line and prints its result
/// or its error.
pub(crate) fn own(page: &Page, args: &[OsString], deed: impl FnOnce(&Arguments) -> Result<String, String>) -> ExitCode {
    let name = page.name.trim_start_matches("squall ");
    let given = match page.parse(args) {
        Ok(given) => given,
        Err(problem) => {
            let problem = problem.replace('\n', "; ");
            eprintln!("squall {name}: error: {}; see `squall {name} --help`", harmless_lines(&problem));
            return ExitCode::FAILURE;
        }
    };
    let done = match () {
        () if given.has("help") => Ok(page.help()),
        () if given.has("usage") => Ok(page.usage()),
        () if given.has("version") => Ok(format!("squall {}\n", env!("CARGO_PKG_VERSION"))),
        () => deed(&given),
    };
    end(name, done)
}

/// Refuses operands.
fn no_operand(page: &Page, given: &Arguments) -> Result<(), String> {
    let Some(operand) = given.operands.first() else { return Ok(()) };
    Err(format!("unexpected argument `{operand}`; see `{} --help`", page.name))
}

/// Returns the operand, if there is one. Refuses several.
pub(crate) fn one_operand(page: &Page, given: &Arguments) -> Result<Option<String>, String> {
    match given.operands.as_slice() {
        [_, operand, ..] => Err(format!("unexpected argument `{operand}`; see `{} --help`", page.name)),
        operands => Ok(operands.first().cloned()),
    }
}

/// Returns the state folder that `--state` names, otherwise that of the cluster that commands talk to, otherwise this
/// user's default.
fn found_place(given: &Arguments) -> Result<Place, String> {
    let state = given.last("state").map(Path::new);
    let found = if state.is_none() { Place::find() } else { None };
    found.map_or_else(|| place(state), Ok)
}

/// Refuses users other than root and the owner of the cluster's state folder. Called before anything is printed or
/// done.
fn owned(place: &Place) -> Result<(), String> {
    let dir = place.dir();
    let owner = std::fs::metadata(dir).map_err(|e| format!("{}: {e}", dir.display()))?.uid();
    let me = rustix::process::geteuid();
    if me.is_root() || me.as_raw() == owner {
        return Ok(());
    }
    let name = squall_files::users::by_uid(owner).map_or_else(|| format!("uid {owner}"), |user| user.name);
    let may = if owner == 0 { "only root may do that".to_owned() } else { format!("only {name} and root may do that") };
    Err(format!("the cluster in {} is {name}'s: {may}", dir.display()))
}

/// Like [`owned`], and refuses root, too, where the cluster is a user's: what root writes below a folder of the user's may
/// become any file.
fn owned_by_caller(place: &Place) -> Result<(), String> {
    owned(place)?;
    let owner = std::fs::metadata(place.dir()).map_err(|e| format!("{}: {e}", place.dir().display()))?.uid();
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let name = squall_files::users::by_uid(owner).map_or_else(|| format!("#{owner}"), |user| user.name);
    Err(format!("the cluster in {} is {name}'s: run this as {name} (`sudo -u {name} ...`)", place.dir().display()))
}

/// Returns the part of the message after a start that tells how commands find this cluster.
fn how_to_reach(place: &Place) -> String {
    let same = |other: &Place| {
        let path = |place: &Place| place.dir().canonicalize().ok();
        other == place || path(other).is_some_and(|other| Some(other) == path(place))
    };
    let found = Place::find();
    if found.as_ref().is_some_and(same) {
        let told = std::env::var_os(STATE_VARIABLE).filter(|dir| !dir.is_empty());
        let where_told = told.map_or("", |_| ", while SQUALL_STATE says so");
        return format!("commands talk to this cluster{where_told}\n");
    }
    let others = found.map(|other| format!("commands talk to the cluster in {}; ", other.dir().display()));
    let path = place.dir().display().to_string();
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c));
    let path = if plain { path } else { format!("'{}'", path.replace('\'', "'\\''")) };
    format!("{}to talk to this one: export SQUALL_STATE={path}\n", others.unwrap_or_default())
}

/// Returns the cluster's state folder: the one that `--state` names, otherwise this user's default.
fn place(state: Option<&Path>) -> Result<Place, String> {
    match state {
        Some(dir) => Place::at(dir).map_err(|e| format!("{}: {e}", dir.display())),
        None => life::default_place().map_err(|e| format!("no place for the cluster's state: {e}")),
    }
}
