//! The user's programs around a step: `--prolog` and `--epilog`, which srun runs, and those that run around each task.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use squall_engine::environment::job_env;
use squall_host::sys::command::unblock_signals;
use squall_model::config::SrunDefaults;
use squall_model::job::options::TaskScripts;
use squall_model::step::JobFacts;

use crate::capture::Vars;
use squall_text::options::Stop;
use squall_text::options::submit::SubmitOptions;

/// Takes the site's programs around a step where the user names none. Their paths are absolute.
pub(super) fn complete(asked: &mut SubmitOptions, usual: SrunDefaults) {
    let TaskScripts { prolog, epilog } = &mut asked.run.around;
    for (own, usual) in [(prolog, usual.prolog), (epilog, usual.epilog)] {
        if own.is_empty() {
            *own = usual;
        }
    }
}

/// Replaces the names of prolog and epilog programs by their absolute paths. A name without a file is reported and
/// stays; running it fails later.
pub(super) fn find(asked: &mut SubmitOptions, vars: &Vars) {
    let dir = asked.spec.work_dir.clone();
    let whole = |option: &str, name: &mut String| {
        if name.is_empty() {
            return;
        }
        match search(name, Path::new(&dir), vars) {
            Some(path) => *name = path.to_string_lossy().into_owned(),
            None => eprintln!("srun: error: {option} '{name}' not found in PATH or CWD ({dir}), or wrong permissions"),
        }
    };
    let TaskScripts { prolog, epilog } = &mut asked.run.around;
    for (option, name) in [("prolog", prolog), ("epilog", epilog)] {
        if !is_none(name) {
            whole(option, name);
        }
    }
    if !asked.spec.options.step.scripts.is_empty() {
        let TaskScripts { prolog, epilog } = &mut asked.spec.options.step.scripts;
        whole("task-prolog", prolog);
        whole("task-epilog", epilog);
    }
}

/// Returns whether the option is `none`: then no program runs, not even the site's.
fn is_none(name: &str) -> bool {
    name.eq_ignore_ascii_case("none")
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
pub(super) fn has_prolog(asked: &SubmitOptions) -> bool {
    let name = &asked.run.around.prolog;
    !name.is_empty() && !is_none(name)
}

/// Runs the step between the programs of `--prolog` and `--epilog`, which get the tasks' command line as arguments.
/// `facts`: the allocation, if srun's own environment doesn't describe it.
pub(super) fn around<T>(
    asked: &SubmitOptions,
    command: &[OsString],
    facts: Option<&JobFacts>,
    step: impl FnOnce() -> Result<T, Stop>,
) -> Result<T, Stop> {
    let TaskScripts { prolog, epilog } = &asked.run.around;
    let run = |option: &str, name: &str| {
        if name.is_empty() || is_none(name) { 0 } else { run(name, option, command, facts) }
    };
    match run("prolog", prolog) {
        0 => {}
        code => return Err(Stop::bad(format!("srun prolog failed rc = {code}. Aborting step."))),
    }
    let result = step();
    match run("epilog", epilog) {
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
