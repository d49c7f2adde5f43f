//! `squall check`: checks a configuration as `squall up` does and changes nothing.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use squall_files::users;
use squall_filter::Filter;
use squall_host::config_files::{CheckedConfig, ConfigFiles};
use squall_host::life;
use squall_host::plugins::conf;
use squall_model::config::{Config, Submit};
use squall_model::hostlist;
use squall_model::job::Owner;
use squall_model::wire::filter;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use super::check_scripts;
use super::import::{self, SLURM_CONF};

/// `squall check`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall check",
    about: "check a configuration, Squall's or Slurm's, without changing anything",
    synopsis: &["FILE", "--scripts FOLDER", "--submit=JOB.json [--lua=SCRIPT] [FILE]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Checks a configuration as `squall up` would, and changes nothing. FILE is squall.toml or slurm.conf, or a folder with one of \
them; the files beside it (gres.conf, topology.conf or topology.yaml) are checked, too. For slurm.conf it lists what has no \
counterpart here. The status is 1 if a cluster could not start with it.
With --scripts it reads the job scripts below FOLDER, which begin with `#!`, and lists each option of their #SBATCH lines, and \
of srun, salloc and sbatch in them, that is refused here. The status is 1 if there is one.
With --submit it shows what the submit filter would make of a job: what it changes, logs, and tells the user. JOB.json has \
the fields of `job_desc`, as {\"job\": {\"partition\": \"gpu\", \"time_limit\": 60}}. The script is that of FILE ([submit]), or \
SCRIPT. It runs as you. The status is 1 if the job is refused.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("scripts", '\0', Arg::None, "list the options in job scripts that are refused here"),
    flag("submit", '\0', Arg::Needed("JOB.json"), "show what the submit filter makes of this job; `-`: standard input"),
    flag("lua", '\0', Arg::Needed("SCRIPT"), "with --submit: the script to try, instead of that of the configuration"),
];

/// Name of Squall's configuration file.
const SQUALL_TOML: &str = "squall.toml";

/// Runs `squall check`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, |given| {
        let path = super::one_operand(&PAGE, given)?;
        if let Some(job) = given.last("submit") {
            return submit(job, given.last("lua"), path.as_ref().map(Path::new));
        }
        if given.has("scripts") {
            return check_scripts::check(Path::new(&path.ok_or("which folder? `squall check --scripts FOLDER`")?));
        }
        if given.has("lua") {
            return Err("--lua is for --submit".to_owned());
        }
        check(Path::new(&path.ok_or("which file? `squall check /etc/squall/squall.toml`")?))
    })
}

fn check(path: &Path) -> Result<String, String> {
    let inside = || [SQUALL_TOML, SLURM_CONF].map(|name| path.join(name)).into_iter().find(|path| path.exists());
    let found = if path.is_dir() { inside() } else { Some(path.to_owned()) };
    let none = || format!("{}: neither {SQUALL_TOML} nor {SLURM_CONF} is there", path.display());
    let path = found.ok_or_else(none)?;
    let mut text = String::new();
    let (files, checked) = if is_slurms(&path) { slurms(&path)? } else { own(&path)? };
    for note in checked.oddities.iter().chain(&checked.notices) {
        let _ = writeln!(text, "warning: {note}");
    }
    life::check_hardware(&checked.config).map_err(|problem| {
        let problem = at_line(files.text(), &problem);
        if is_slurms(&path) {
            return import::at_origin(files.text(), &problem);
        }
        format!("{}: {problem}", path.display())
    })?;
    for fault in plugins(&path, &checked.config)? {
        let _ = writeln!(text, "warning: {fault}");
    }
    Ok(format!("{text}{}: good: {}\n", path.display(), shown(&checked.config)))
}

/// Reads the file that lists SPANK plugins, if there is one; returns what is wrong with plugins that are optional, or that
/// this machine lacks.
fn plugins(path: &Path, config: &Config) -> Result<Vec<String>, String> {
    let plugstack = &config.slurm.plugstack;
    if plugstack.is_empty() {
        return Ok(Vec::new());
    }
    let file = path.parent().unwrap_or(Path::new(".")).join(plugstack);
    // Nodes and login hosts may have it, and this machine none.
    if !file.exists() {
        return Ok(vec![format!("{}: this machine lacks the file with the SPANK plugins", file.display())]);
    }
    let file = std::path::absolute(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(conf::faults(&conf::read(&file)?))
}

/// Shows what the submit filter makes of a job.
fn submit(job: &str, script: Option<&str>, config: Option<&Path>) -> Result<String, String> {
    let text = if job == "-" {
        std::io::read_to_string(std::io::stdin()).map_err(|e| format!("standard input: {e}"))?
    } else {
        std::fs::read_to_string(job).map_err(|e| format!("{job}: {e}"))?
    };
    let (checked, beside) = match config {
        None => (Config::default(), String::new()),
        Some(path) => {
            let path = if path.is_dir() { path.join(SQUALL_TOML) } else { path.to_owned() };
            let beside = std::path::absolute(&path).ok().and_then(|path| Some(path.parent()?.display().to_string()));
            (own(&path)?.1.config, beside.unwrap_or_default())
        }
    };
    let absolute = |script: &str| std::path::absolute(script).map(|path| path.display().to_string());
    let script = script.map(absolute).transpose().map_err(|e| e.to_string())?;
    let lua = script.map(|lua| Submit { lua, program: String::new(), ..checked.submit.clone() });
    let mut filtered = checked;
    filtered.submit = lua.unwrap_or(filtered.submit);
    filtered.complete();
    let script = filter::script_of(&filtered.submit, &beside, filtered.partitions);
    let script = script.ok_or("which script? --lua=job_submit.lua, or a FILE with [submit]")?;
    let mut filter = Filter::load(script, |_| Ok(()))?;
    let (shown, accepted) =
        squall_filter::rehearse(&mut filter, &text, caller()).map_err(|problem| format!("{job}: {problem}"))?;
    if accepted {
        return Ok(shown);
    }
    crate::hall::print(&shown);
    Err("the submit filter refuses the job".to_owned())
}

/// Returns the user who runs this command.
fn caller() -> Owner {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let user = users::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name);
    let group = users::group_name(gid).unwrap_or_else(|| gid.to_string());
    Owner { uid, gid, groups: Vec::new(), user, group }
}

/// Puts the line of `text` before a message about a node. The message has the node's name in backticks.
fn at_line(text: &str, problem: &str) -> String {
    let name = problem.split('`').nth(1).map(|name| format!("\"{name}\""));
    let line = name.and_then(|name| text.lines().position(|line| line.contains(&name)));
    line.map_or_else(|| problem.to_owned(), |line| format!("line {}: {problem}", line + 1))
}

/// Returns whether a file is one of Slurm's: whether it ends in `.conf`.
fn is_slurms(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "conf")
}

fn own(path: &Path) -> Result<(ConfigFiles, CheckedConfig), String> {
    let files = ConfigFiles::read(path).map_err(|e| e.to_string())?;
    let files = files.ok_or_else(|| format!("{}: there is no such file", path.display()))?;
    let checked = files.check().map_err(|e| e.to_string())?;
    Ok((files, checked))
}

/// Checks a slurm.conf, and prints what has no counterpart.
fn slurms(path: &Path) -> Result<(ConfigFiles, CheckedConfig), String> {
    let imported = import::read(path)?;
    crate::hall::print(&imported.lacks());
    match imported.faults() {
        Some(lines) => Err(format!("{}: {} to mend, see above", path.display(), count(lines.lines().count(), "line"))),
        None => Ok((imported.files, imported.checked)),
    }
}

/// Returns what a configuration is about: `cluster lab, 4 nodes, 2 partitions`.
pub(super) fn shown(config: &Config) -> String {
    let nodes = config.nodes.iter().filter_map(|entry| hostlist::expand(&entry.name).ok());
    let nodes: usize = nodes.map(|names| names.len()).sum();
    let nodes = if nodes == 0 { "this machine as its node".to_owned() } else { count(nodes, "node") };
    format!("cluster {}, {nodes}, {}", config.cluster, count(config.partitions.len(), "partition"))
}

fn count(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}
