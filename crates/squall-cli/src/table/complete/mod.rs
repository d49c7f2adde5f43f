//! `squall completions` and `squall complete`: completion of command lines in bash, zsh and fish.
//!
//! The scripts for the shells are the same for all commands. They pass the words to `squall complete`, which knows the
//! option tables and asks the controller for partitions, nodes, jobs and users.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use squall_client::Client;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_text::format::harmless;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::complete::{Completion, ValueKind};
use squall_text::page::{Options, Page};

use super::COMMANDS;
use crate::command;
use crate::hall::print;

/// Scripts for shells: the folder, what stands before and behind a command's name in the file's name, and the text.
const SCRIPTS: [(&str, &str, &str, &str); 3] = [
    ("bash", "", ".bash", include_str!("squall.bash")),
    ("zsh", "_", "", include_str!("squall.zsh")),
    ("fish", "", ".fish", include_str!("squall.fish")),
];

/// Place in a script where the name of the command belongs.
const NAME: &str = "@NAME@";

const OWN: &[Flag] = &[flag("help", 'h', Arg::None, "show this help")];

/// `squall completions`, for its help, manual page and completion.
pub(crate) static COMPLETIONS: Page = Page {
    name: "squall completions",
    about: "write completions for bash, zsh and fish",
    synopsis: &["DIR"],
    options: Options::Own(OWN),
    notes: "\
Writes a script for each command into DIR/bash, DIR/zsh and DIR/fish. Partitions, nodes, jobs and users are completed live.
  bash: for file in DIR/bash/*; do . $file; done
  zsh:  fpath=(DIR/zsh $fpath); autoload -Uz compinit; compinit
  fish: set --prepend fish_complete_path DIR/fish
",
};

/// `squall complete`, which the scripts of shells call.
pub(crate) static COMPLETE: Page = Page {
    name: "squall complete",
    about: "complete a command line (for shells)",
    synopsis: &["COMMAND WORD..."],
    options: Options::Own(OWN),
    notes: "Prints a line for each completion of the last WORD: the word, and behind a tab what it is.\n",
};

/// Runs `squall completions`.
pub(crate) fn completions(args: &[OsString]) -> ExitCode {
    command::own(&COMPLETIONS, args, |given| {
        let [dir] = given.operands.as_slice() else { return Err("in which folder? `squall completions DIR`".into()) };
        write_all(Path::new(dir))
    })
}

fn write_all(dir: &Path) -> Result<String, String> {
    let slurm = COMMANDS.iter().filter(|command| command.slurm).map(|command| command.page.name);
    let names: Vec<&str> = slurm.chain(["squall"]).collect();
    for (folder, before, behind, script) in SCRIPTS {
        let folder = dir.join(folder);
        std::fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
        for name in &names {
            let path = folder.join(format!("{before}{name}{behind}"));
            std::fs::write(&path, script.replace(NAME, name))
                .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
    }
    Ok(format!("completions of {} commands in {1}/bash, {1}/zsh and {1}/fish\n", names.len(), dir.display()))
}

/// Runs `squall complete`. It never fails: a shell has no place for an error.
pub(crate) fn complete(args: &[OsString]) -> ExitCode {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let Some((command, words)) = words.split_first() else { return ExitCode::SUCCESS };
    if words.is_empty() && ["-h", "--help"].contains(&command.as_str()) {
        print(&COMPLETE.help());
        return ExitCode::SUCCESS;
    }
    let name = Path::new(command).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let found = match (name.as_str(), words) {
        ("squall", [] | [_]) => commands(words.first().map_or("", String::as_str)),
        ("squall", [name, rest @ ..]) => words_of(name, rest),
        _ => words_of(&name, words),
    };
    for (word, about) in found {
        // Names of jobs are texts of users.
        print(&format!("{}\t{}\n", harmless(&word), harmless(&about)));
    }
    ExitCode::SUCCESS
}

fn commands(typed: &str) -> Vec<(String, String)> {
    let all = COMMANDS.iter().map(|command| (command.word().to_owned(), command.page.about.to_owned()));
    all.filter(|(word, _)| word.starts_with(typed)).collect()
}

fn words_of(command: &str, words: &[String]) -> Vec<(String, String)> {
    let Some(command) = super::find(command) else { return Vec::new() };
    match command.page.complete(words) {
        Completion::Options(found) => found,
        Completion::Value { before, typed, wanted } => {
            let values = values(wanted).into_iter().filter(|(value, _)| value.starts_with(&typed));
            values.map(|(value, about)| (format!("{before}{value}"), about)).collect()
        }
    }
}

/// Returns all values of a kind, with what they are. None that can't be had now: a shell does not wait.
fn values(wanted: ValueKind) -> Vec<(String, String)> {
    let plain = |names: BTreeSet<String>| names.into_iter().map(|name| (name, String::new())).collect();
    match wanted {
        ValueKind::Words(words) => words.iter().map(|word| ((*word).to_owned(), String::new())).collect(),
        ValueKind::Files => Vec::new(),
        ValueKind::Partitions => {
            let Some(Answer::Partitions(all)) = ask(&Request::Partitions) else { return Vec::new() };
            plain(all.into_iter().map(|partition| partition.config.name).collect())
        }
        ValueKind::Nodes => {
            let Some(Answer::Nodes(all)) = ask(&Request::Nodes) else { return Vec::new() };
            plain(all.into_iter().map(|node| node.name).collect())
        }
        ValueKind::Jobs => jobs(),
        ValueKind::Users | ValueKind::Accounts | ValueKind::Qos => {
            let Some(Answer::Policy(policy)) = ask(&Request::Policy) else { return Vec::new() };
            plain(match wanted {
                ValueKind::Users => policy.users.keys().cloned().collect(),
                ValueKind::Accounts => policy.accounts.keys().cloned().collect(),
                _ => policy.qos.keys().cloned().collect(),
            })
        }
        ValueKind::Reservations => {
            let Some(Answer::Reservations(all)) = ask(&Request::Reservations) else { return Vec::new() };
            plain(all.into_iter().map(|one| one.reservation.name).collect())
        }
    }
}

fn ask(request: &Request) -> Option<Answer> {
    Client::connect("squall").ok()?.ask(request).ok()
}

/// Returns the jobs that wait or run, each with its name.
fn jobs() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let listed = Client::connect("squall").and_then(|mut client| {
        client.pages(JobSelection::default(), false, false, |page| {
            let jobs = page.jobs.iter();
            all.extend(jobs.map(|job| {
                let name = page.specs.get(job.spec as usize).map(|spec| spec.name.clone()).unwrap_or_default();
                (job.id.to_string(), name)
            }));
        })
    });
    if listed.is_ok() { all } else { Vec::new() }
}
