//! sbatch: queues a batch script.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_bytes::ByteBuf;
use squall_model::id::JobId;
use squall_model::job::{EndState, Outcome};
use squall_model::wire::client::{Answer, Request};

use crate::capture::{self, Vars};
use crate::client::{Client, ClientError, unexpected};
use crate::command::submission;
use crate::contact::{Patience, fresh_key};
use crate::options::asked::Asked;
use crate::options::collect::{self, Line};
use crate::options::{Source, Stop, Tool};
use crate::refusal;
use crate::script::Script;

const SBATCH: Tool = Tool::Sbatch;

/// Runs the command.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    submission::ended(SBATCH, submit(args))
}

fn submit(args: &[OsString]) -> Result<u8, Stop> {
    let vars: Vars = std::env::vars_os().collect();
    let (mut asked, script) = gather(args, &vars)?;
    let env = environment(&mut asked, &vars)?;
    complete(&mut asked, &script, args)?;
    if asked.test_only {
        return test_only(asked);
    }
    submission::known_cluster(SBATCH, asked.clusters.as_deref())?;
    let spec = std::mem::take(&mut asked.spec);
    let request = Request::Submit {
        spec: Box::new(spec),
        script: ByteBuf::from(script.body),
        env: ByteBuf::from(env),
        key: fresh_key(),
    };
    let (client, answer) = Patience::new("sbatch").ask(&request).map_err(|e| failed(&e))?;
    let Answer::Submitted { job, note } = answer else { return Err(failed(&unexpected())) };
    tell(&asked, job, note.as_deref(), client.cluster());
    if asked.batch.wait { Ok(wait(client, job)) } else { Ok(0) }
}

fn failed(error: &ClientError) -> Stop {
    Stop::Bad { lines: refusal::lines(refusal::failed(SBATCH), error), exit: 1 }
}

/// Script, variables and command line into one request.
fn gather(args: &[OsString], vars: &Vars) -> Result<(Asked, Script), Stop> {
    let line = collect::line(SBATCH, args)?;
    let script = script(&line)?;
    let mut asked = Asked::new(SBATCH);
    for directive in script.directives()? {
        let words: Vec<OsString> = directive.words.iter().map(OsString::from).collect();
        let place = format!("{}: line {}: #SBATCH {}", script.name(), directive.line, directive.words.join(" "));
        let found = collect::line(SBATCH, &words).map_err(|stop| stop.at(&place))?;
        if let Some(word) = found.operands.first() {
            let what = format!("Invalid directive found in batch script: {}", word.to_string_lossy());
            return Err(Stop::Bad { lines: vec![what, place], exit: 255 });
        }
        for option in &found.options {
            collect::obey(&mut asked, SBATCH, option, &Source::Script(directive.line))
                .map_err(|stop| stop.at(&place))?;
        }
    }
    submission::obey(&mut asked, SBATCH, &line, vars)?;
    for word in line.operands.iter().skip(1) {
        let Some(word) = word.to_str() else {
            return Err(Stop::bad(format!("script argument {} is not UTF-8 text", word.to_string_lossy())));
        };
        asked.spec.args.push(word.to_owned());
    }
    Ok((asked, script))
}

fn script(line: &Line<'_>) -> Result<Script, Stop> {
    match (line.value("wrap"), line.operands.first()) {
        (_, Some(name)) if name == ":" => Err(submission::heterogeneous()),
        (Some(_), Some(_)) => Err(Stop::bad("Script arguments not permitted with --wrap option")),
        (Some(command), None) => Script::wrap(command),
        (None, Some(name)) => {
            let here = capture::folder()?;
            let dir = line.value("chdir").map_or(here.clone(), |dir| here.join(dir));
            Script::open(Path::new(name), &dir).or_else(|stop| {
                // Found here though not there: Slurm looks from the folder of --chdir only, people don't.
                if dir == here { Err(stop) } else { Script::open(Path::new(name), &here).map_err(|_| stop) }
            })
        }
        (None, None) => Script::stdin(),
    }
}

/// The job's environment, by `--export` or `--export-file`.
fn environment(asked: &mut Asked, vars: &Vars) -> Result<Vec<u8>, Stop> {
    if let Some(list) = &asked.export {
        asked.others.insert("export", list.clone());
    }
    let exported = capture::export(SBATCH, vars, asked.export.as_deref())?;
    asked.spec.get_user_env |= exported.incomplete;
    match &asked.batch.export_file {
        Some(path) => capture::export_file(path),
        None => Ok(exported.env),
    }
}

/// What the options leave open.
fn complete(asked: &mut Asked, script: &Script, args: &[OsString]) -> Result<(), Stop> {
    let here = submission::place(asked, SBATCH, args)?;
    let path = script.path.as_ref().map(|path| absolute(path, &here));
    if asked.spec.name.is_empty() {
        let base = path.as_ref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
        let nameless = if asked.batch.wrap.is_some() { "wrap" } else { "sbatch" };
        asked.spec.name = base.unwrap_or_else(|| nameless.to_owned());
    }
    asked.spec.command = path.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    asked.spec.others = asked.other_pairs();
    Ok(())
}

/// Without `.` and `..` where that needs no look at the disk.
fn absolute(path: &Path, here: &Path) -> PathBuf {
    here.join(path).components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

/// What the user sees of an accepted job.
fn tell(asked: &Asked, job: JobId, note: Option<&str>, cluster: &str) {
    if asked.quiet {
        return;
    }
    if let Some(note) = note {
        eprintln!("sbatch: {note}");
    }
    let named = asked.clusters.is_some();
    let text = match (asked.batch.parsable, named) {
        (true, false) => format!("{job}\n"),
        (true, true) => format!("{job};{cluster}\n"),
        (false, false) => format!("Submitted batch job {job}\n"),
        (false, true) => format!("Submitted batch job {job} on cluster {cluster}\n"),
    };
    crate::print(&text);
}

fn test_only(asked: Asked) -> Result<u8, Stop> {
    match submission::would_start(SBATCH, asked.spec) {
        Ok(line) => {
            eprintln!("sbatch: {line}");
            Ok(0)
        }
        Err(error) => Err(Stop::Bad { lines: refusal::lines("allocation failure", &error), exit: 1 }),
    }
}

/// Waits for the end of a job, across restarts of the controller; the exit code for the shell.
fn wait(first: Client, job: JobId) -> u8 {
    let mut client = Some(first);
    loop {
        let connected = match client.take() {
            Some(client) => Ok(client),
            None => Patience::interrupted("sbatch").connect(),
        };
        let ask = |mut client: Client| {
            client.wait_up_to(None)?;
            client.ask(&Request::AwaitJob { job })
        };
        match connected.and_then(ask) {
            Ok(Answer::JobDone { outcome, .. }) => return code_of(&outcome),
            Err(error) if crate::contact::may_pass(&error) => {
                eprintln!("sbatch: error: Currently unable to load job state information, retrying: {error}");
            }
            Ok(_) | Err(_) => {
                eprintln!("sbatch: error: Job {job} no longer found and exit code not found");
                return 1;
            }
        }
    }
}

/// The script's exit code; 1 for a signal or for an end that has no code of its own.
fn code_of(outcome: &Outcome) -> u8 {
    match (outcome.exit.signal, outcome.exit.code, outcome.state) {
        (0, 0, EndState::Completed) => 0,
        (0, code, _) if code != 0 => code,
        _ => 1,
    }
}
