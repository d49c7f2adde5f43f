//! The user's programs around a step: `--prolog` and `--epilog`, which srun runs, and those that run around each task.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use squall_engine::environment::job_env;
use squall_host::sys::command::unblock_signals;
use squall_model::step::JobFacts;

use crate::capture::Vars;
use crate::options::Stop;
use crate::options::asked::Asked;

/// Options whose value is a program around a step or a task.
const OPTIONS: [&str; 4] = ["prolog", "epilog", "task-prolog", "task-epilog"];

/// Replaces the programs' names by absolute paths. An unknown name is reported and stays: running it fails later.
pub(super) fn find(asked: &mut Asked, vars: &Vars) {
    for option in OPTIONS {
        let Some(name) = asked.others.get(option).filter(|name| !is_none(option, name)) else { continue };
        let dir = asked.spec.work_dir.clone();
        match search(name, Path::new(&dir), vars) {
            Some(path) => drop(asked.others.insert(option, path.to_string_lossy().into_owned())),
            None => {
                eprintln!("srun: error: {option} '{name}' not found in PATH or CWD ({dir}), or wrong permissions");
            }
        }
    }
}

/// Returns whether the value is `none`: `--prolog=none` switches off the site's prolog, too.
fn is_none(option: &str, name: &str) -> bool {
    !option.starts_with("task") && name.eq_ignore_ascii_case("none")
}

fn search(name: &str, dir: &Path, vars: &Vars) -> Option<PathBuf> {
    let fits = |path: &PathBuf| {
        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
        path.is_file() && rustix::fs::access(path, access).is_ok()
    };
    let here = dir.join(name);
    if name.contains('/') {
        return Some(here).filter(fits);
    }
    let path = vars.iter().find(|(variable, _)| variable == "PATH").map(|(_, path)| path.clone()).unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|folder| dir.join(folder).join(name));
    folders.chain([here]).find(fits)
}

/// Returns whether a prolog must run before the step.
pub(super) fn has_prolog(asked: &Asked) -> bool {
    asked.others.get("prolog").is_some_and(|name| !is_none("prolog", name))
}

/// Runs the step between `--prolog` and `--epilog`, which get the tasks' arguments. `facts`: the allocation, if srun's
/// own environment doesn't describe it.
pub(super) fn around<T>(
    asked: &Asked,
    command: &[OsString],
    facts: Option<&JobFacts>,
    step: impl FnOnce() -> Result<T, Stop>,
) -> Result<T, Stop> {
    let run = |option: &str| {
        let script = asked.others.get(option).filter(|name| !is_none(option, name));
        script.map_or(0, |script| run(script, option, command, facts))
    };
    match run("prolog") {
        0 => {}
        code => return Err(Stop::bad(format!("srun prolog failed rc = {code}. Aborting step."))),
    }
    let result = step();
    match run("epilog") {
        0 => {}
        code => eprintln!("srun: error: srun epilog failed status={code}"),
    }
    result
}

/// Runs a program and returns its exit code; 1 if it was killed by a signal, 0 if it can't be started (which is
/// reported).
fn run(script: &str, option: &str, command: &[OsString], facts: Option<&JobFacts>) -> i32 {
    let mut child = Command::new(script);
    child.args(command).envs(facts.map(job_env).unwrap_or_default());
    child.env("SLURM_SCRIPT_CONTEXT", format!("{option}_srun"));
    match unblock_signals(&mut child).status() {
        Err(e) => {
            eprintln!("srun: Access denied for {script}: {e}");
            0
        }
        Ok(status) => status.code().unwrap_or_else(|| {
            eprintln!("srun: error: script did not exit normally");
            1
        }),
    }
}
