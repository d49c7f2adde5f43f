//! sbatch: submits a batch script.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use squall_model::encoding::ByteBuf;
use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, Outcome};
use squall_model::wire::client::{Answer, Request};

use crate::capture::{self, Vars};
use crate::command::plugins::Beside;
use crate::command::submission;
use crate::contact::{Patience, fresh_key};
use crate::hall::hint;
use squall_client::{Client, ClientError, unexpected};
use squall_text::hints;
use squall_text::options::collect::{self, CommandLine};
use squall_text::options::getopt::ParsedOption;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::{Source, Stop, Tool};
use squall_text::refusal;
use squall_text::script::{Script, translate};

const SBATCH: Tool = Tool::Sbatch;

/// Runs sbatch.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    submission::ended(SBATCH, submit(args))
}

fn submit(args: &[OsString]) -> Result<u8, Stop> {
    let mut vars: Vars = std::env::vars_os().collect();
    let mut plugins = Beside::start(SBATCH)?;
    let (mut all, script) = gather(args, &vars)?;
    plugins.give(&mut all, &mut vars)?;
    let env = environment(&mut all[0], &vars)?;
    let wrapped = all.iter().any(|asked| asked.batch.wrap.is_some());
    for asked in &mut all {
        complete(asked, &script, wrapped, args)?;
    }
    let specs: Vec<JobSpec> = all.iter_mut().map(|asked| std::mem::take(&mut asked.spec)).collect();
    let asked = all.swap_remove(0);
    submission::become_owner(asked.run_as)?;
    if asked.test_only {
        return test_only(specs);
    }
    submission::known_cluster(SBATCH, asked.clusters.as_deref())?;
    let (script, env, key) = (ByteBuf::from(script.body), ByteBuf::from(env), fresh_key());
    let request = match <[JobSpec; 1]>::try_from(specs) {
        Ok([spec]) => Request::Submit { spec: Arc::new(spec), script, env, key },
        Err(specs) => Request::SubmitHet { specs, script, env, key, immediate_s: None },
    };
    let (mut client, answer) = Patience::new("sbatch").ask(&request).map_err(|e| {
        submission::hint_refused(SBATCH, &e);
        failed(&e)
    })?;
    let Answer::Submitted { job, note, message } = answer else { return Err(failed(&unexpected())) };
    submission::tell("sbatch", message.as_deref());
    if let Some(note) = note {
        eprintln!("sbatch: warning: {}", refusal::detail(&note).unwrap_or_else(|| refusal::text(&note)));
    }
    tell(&asked, job, client.cluster().map_err(|e| failed(&e))?);
    if asked.batch.wait { Ok(wait(client, job)) } else { Ok(0) }
}

fn failed(error: &ClientError) -> Stop {
    Stop::Bad { lines: error.lines(SBATCH.failed()), exit: 1 }
}

/// Builds requests from script, variables and command line: one for each component, of which the first has the script.
fn gather(args: &[OsString], vars: &Vars) -> Result<(Vec<SubmitOptions>, Script), Stop> {
    let mut lines = collect::lines(SBATCH, args)?;
    let script = script(&lines)?;
    let operands = lines.last().map_or(&[][..], |line| line.operands);
    hint("sbatch", hints::of_script(&script).into_iter().chain(hints::behind_script(operands)));
    if script.has_old_marks() {
        eprintln!(
            "sbatch: error: Change from #SLURM to #SBATCH in your script and verify the options are valid in sbatch"
        );
    }
    let shown = lines.iter().map(|line| line.count("verbose")).sum::<usize>() > 2;
    let said = directives(&script, shown)?;
    lines.resize_with(lines.len().max(said.len()), || CommandLine { options: Vec::new(), operands: &[] });
    let ignored =
        vars.iter().any(|(name, value)| name == "SBATCH_IGNORE_PBS" && collect::sets_flag(&value.to_string_lossy()))
            || lines.iter().any(|line| line.count("ignore-pbs") > 0);
    let (mut all, mut of_script) = (Vec::new(), Vec::new());
    for (at, said) in said.into_iter().chain(std::iter::repeat_with(Vec::new)).take(lines.len()).enumerate() {
        if let Some(before) = at.checked_sub(1) {
            let carried = collect::carried(&lines[before].options);
            lines[at].options.splice(0..0, carried);
        }
        let mut asked = SubmitOptions::new(SBATCH);
        of_script = collect::carried(&of_script);
        apply_script(&mut asked, said, &mut of_script)?;
        if !(ignored || asked.batch.ignore_pbs) {
            show_words(&translate::apply(&mut asked, &script)?, shown);
        }
        submission::apply(&mut asked, SBATCH, &lines[at], vars)?;
        all.push(asked);
    }
    for word in operands.iter().skip(1) {
        let Some(word) = word.to_str() else {
            return Err(Stop::bad(format!("script argument {} is not UTF-8 text", word.to_string_lossy())));
        };
        all[0].spec.args.push(word.to_owned());
    }
    Ok((all, script))
}

/// Applies the options that a component has in the script, after those inherited from the component before.
fn apply_script(
    asked: &mut SubmitOptions,
    said: Vec<ScriptOption>,
    of_script: &mut Vec<ParsedOption>,
) -> Result<(), Stop> {
    for option in of_script.iter() {
        collect::apply_option(asked, SBATCH, option, &Source::Script(0))?;
    }
    for (option, line, place) in said {
        collect::apply_option(asked, SBATCH, &option, &Source::Script(line)).map_err(|stop| stop.at(&place))?;
        of_script.push(option);
    }
    Ok(())
}

/// Prints the words of the options in the script, for `-vvv`; nothing unless `shown`.
fn show_words(words: &[String], shown: bool) {
    for word in words.iter().filter(|_| shown) {
        eprintln!("sbatch: debug2: Found in script, argument \"{word}\"");
    }
}

/// An option in a script: the option, its line number, and the text that names its place in error messages.
type ScriptOption = (ParsedOption, u32, String);

/// Returns the options in a script, one list for each component of the job.
fn directives(script: &Script, shown: bool) -> Result<Vec<Vec<ScriptOption>>, Stop> {
    let mut all: Vec<Vec<ScriptOption>> = vec![Vec::new()];
    for directive in script.directives()? {
        show_words(&directive.words, shown);
        let words: Vec<OsString> = directive.words.iter().map(OsString::from).collect();
        let place = format!("{}: line {}: #SBATCH {}", script.name(), directive.line, directive.words.join(" "));
        let found = collect::line(SBATCH, &words).map_err(|stop| stop.at(&place))?;
        if let Some(word) = found.operands.first() {
            let what = format!("Invalid directive found in batch script: {}", word.to_string_lossy());
            return Err(Stop::Bad { lines: vec![what, place], exit: 255 });
        }
        all.resize_with(all.len().max(directive.component + 1), Vec::new);
        all[directive.component]
            .extend(found.options.into_iter().map(|option| (option, directive.line, place.clone())));
    }
    Ok(all)
}

fn script(lines: &[CommandLine<'_>]) -> Result<Script, Stop> {
    let value = |long| lines.iter().find_map(|line| line.value(long));
    match (value("wrap"), lines.last().and_then(|line| line.operands.first())) {
        (Some(_), Some(_)) => Err(Stop::bad("Script arguments not permitted with --wrap option")),
        (Some(command), None) => Script::wrap(command),
        (None, Some(name)) => {
            let here = capture::folder()?;
            let dir = value("chdir").map_or(here.clone(), |dir| here.join(dir));
            Script::open(Path::new(name), &dir).or_else(|stop| {
                // Slurm looks only in the folder of --chdir; users expect a script here to be found, too.
                if dir == here { Err(stop) } else { Script::open(Path::new(name), &here).map_err(|_| stop) }
            })
        }
        (None, None) => Script::stdin(),
    }
}

/// Returns the job's environment according to `--export` or `--export-file`.
fn environment(asked: &mut SubmitOptions, vars: &Vars) -> Result<Vec<u8>, Stop> {
    if let Some(list) = &asked.export {
        asked.spec.options.shown.export = Some(list.clone());
    }
    let exported = capture::export(SBATCH, vars, asked.export.as_deref())?;
    asked.spec.get_user_env |= exported.incomplete;
    match &asked.batch.export_file {
        Some(path) => capture::export_file(path),
        None => Ok(exported.env),
    }
}

/// Fills in what the options leave open: working directory, umask, name, command.
fn complete(asked: &mut SubmitOptions, script: &Script, wrapped: bool, args: &[OsString]) -> Result<(), Stop> {
    let here = submission::place(asked, SBATCH, args)?;
    asked.spec.umask = asked.batch.umask.unwrap_or(asked.spec.umask);
    let path = script.path.as_ref().map(|path| absolute(path, &here));
    if asked.spec.name.is_empty() {
        let base = path.as_ref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
        let nameless = if wrapped { "wrap" } else { "sbatch" };
        asked.spec.name = base.unwrap_or_else(|| nameless.to_owned());
    }
    asked.spec.command = path.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(())
}

/// Makes a path absolute and removes `.` parts, without looking at the disk.
fn absolute(path: &Path, here: &Path) -> PathBuf {
    here.join(path).components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

/// Prints the message for an accepted job.
fn tell(asked: &SubmitOptions, job: JobId, cluster: &str) {
    if asked.quiet {
        return;
    }
    let named = asked.clusters.is_some();
    let text = match (asked.batch.parsable, named) {
        (true, false) => format!("{job}\n"),
        (true, true) => format!("{job};{cluster}\n"),
        (false, false) => format!("Submitted batch job {job}\n"),
        (false, true) => format!("Submitted batch job {job} on cluster {cluster}\n"),
    };
    crate::hall::print(&text);
}

fn test_only(specs: Vec<JobSpec>) -> Result<u8, Stop> {
    let Ok([spec]) = <[JobSpec; 1]>::try_from(specs) else {
        return Err(Stop::bad("--test-only is for jobs of one component"));
    };
    match submission::would_start(SBATCH, spec) {
        Ok(line) => {
            eprintln!("sbatch: {line}");
            Ok(0)
        }
        Err(error) => Err(Stop::Bad { lines: error.lines("allocation failure"), exit: 1 }),
    }
}

/// Waits for the end of a job, across restarts of the controller; returns the exit code for the shell.
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

/// Returns the script's exit code; 1 for a signal or for an end without an exit code.
fn code_of(outcome: &Outcome) -> u8 {
    match (outcome.exit.signal, outcome.exit.code, outcome.state) {
        (0, 0, EndState::Completed) => 0,
        (0, code, _) if code != 0 => code,
        _ => 1,
    }
}
