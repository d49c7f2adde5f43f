//! The table of all commands, and the commands about it: help, manual pages, completion, links.

mod complete;
#[cfg(test)]
mod effects;
mod links;
mod man;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use squall_files::place::Place;
use squall_model::config::Release;
use squall_text::format::words::show_release;
use squall_text::hints;
use squall_text::page::{Page, job};

use crate::command;
use crate::hall::{hint, print};

/// A command: its description, and the function that runs it, which gets the arguments after the name.
pub(crate) struct Command {
    pub(crate) page: &'static Page,
    run: Run,
    /// Whether the command is one of Slurm's, for which `squall links` creates a link.
    pub(crate) slurm: bool,
}

impl Command {
    /// Returns the command's name behind `squall`: `up`, `squeue`.
    fn word(&self) -> &'static str {
        self.page.name.trim_start_matches("squall ")
    }
}

/// Every command, in the order of `squall help`.
pub(crate) static COMMANDS: &[Command] = &[
    ours(&command::up::PAGE, command::up::run),
    ours(&command::down::PAGE, command::down::run),
    ours(&command::why::PAGE, command::why::run),
    ours(&command::forecast::PAGE, command::forecast::run),
    ours(&command::report::PAGE, command::report::run),
    ours(&command::tail::PAGE, command::tail::run),
    ours(&command::top::PAGE, command::top::run),
    ours(&command::events::PAGE, command::events::run),
    ours(&command::what_if::PAGE, command::what_if::run),
    ours(&command::import::PAGE, command::import::run),
    ours(&command::check::PAGE, command::check::run),
    ours(&command::token::PAGE, command::token::run),
    ours(&command::rest::WEB, command::rest::web),
    ours(&command::doctor::PAGE, command::doctor::run),
    ours(&command::backup::PAGE, command::backup::run),
    ours(&command::restore::PAGE, command::restore::run),
    ours(&command::accounting::PAGE, command::accounting::run),
    ours(&command::metrics::PAGE, command::metrics::run),
    ours(&links::PAGE, links::run),
    ours(&man::PAGE, man::run),
    ours(&complete::COMPLETIONS, complete::completions),
    ours(&complete::COMPLETE, complete::complete),
    ours(&command::daemons::CONTROLLER, command::daemons::controller),
    ours(&command::daemons::FRONT, command::daemons::front),
    ours(&command::daemons::NODE, command::daemons::node),
    ours(&command::daemons::LOGIN, command::daemons::login),
    ours(&command::rest::REST, command::rest::rest),
    ours(&command::mail::PAGE, command::mail::run),
    ours(&command::supervise::PAGE, command::supervise::run),
    ours(&command::step::PAGE, command::step::run),
    ours(&command::layout::PAGE, command::layout::run),
    #[cfg(feature = "bench")]
    ours(&squall_lab::bench::PAGE, squall_lab::bench::run),
    #[cfg(feature = "lab")]
    ours(&squall_lab::esp::PAGE, squall_lab::esp::run),
    ours(&command::sim::PAGE, command::sim::run),
    slurm(&job::SBATCH, command::sbatch::run),
    slurm(&command::squeue::PAGE, command::squeue::run),
    slurm(&command::sinfo::PAGE, command::sinfo::run),
    slurm(&job::SALLOC, command::salloc::run),
    slurm(&job::SRUN, command::srun::run),
    slurm(&command::sacct::PAGE, command::sacct::run),
    slurm(&command::scancel::PAGE, command::scancel::run),
    slurm(&command::scontrol::PAGE, command::scontrol::run),
    slurm(&command::sattach::PAGE, command::sattach::run),
    slurm(&command::sstat::PAGE, command::sstat::run),
    slurm(&command::swait::PAGE, command::swait::run),
    slurm(&command::seff::PAGE, command::seff::run),
    slurm(&command::sbcast::PAGE, command::sbcast::run),
    slurm(&command::sacctmgr::PAGE, command::sacctmgr::run),
    slurm(&command::sshare::PAGE, command::sshare::run),
    slurm(&command::sreport::PAGE, command::sreport::run),
    slurm(&command::sprio::PAGE, command::sprio::run),
    slurm(&command::sdiag::PAGE, command::sdiag::run),
];

/// Commands that only some builds have, each with the `make` target that builds it.
const BUILDS: [(&str, &str); 2] = [("bench", "build"), ("esp", "lab")];

/// Pages of the book that `squall help TOPIC` shows.
const TOPICS: [(&str, &str); 13] = [
    ("quickstart", include_str!("../../../../docs/quickstart.md")),
    ("slurm", include_str!("../../../../docs/slurm.md")),
    ("mpi", include_str!("../../../../docs/mpi.md")),
    ("gpus", include_str!("../../../../docs/gpus.md")),
    ("topology", include_str!("../../../../docs/topology.md")),
    ("gangs", include_str!("../../../../docs/gangs.md")),
    ("events", include_str!("../../../../docs/events.md")),
    ("limits", include_str!("../../../../docs/admin/users-and-limits.md")),
    ("accounting", include_str!("../../../../docs/admin/accounting.md")),
    ("configuration", include_str!("../../../../docs/admin/configuration.md")),
    ("keys", include_str!("../../../../docs/reference/configuration.md")),
    ("login-hosts", include_str!("../../../../docs/admin/login-hosts.md")),
    ("troubleshooting", include_str!("../../../../docs/admin/troubleshooting.md")),
];

type Run = fn(&[OsString]) -> ExitCode;

const fn ours(page: &'static Page, run: Run) -> Command {
    Command { page, run, slurm: false }
}

const fn slurm(page: &'static Page, run: Run) -> Command {
    Command { page, run, slurm: true }
}

/// Runs the command that the program is called by (such as `squeue`), otherwise the one that its first argument names.
pub fn run() -> ExitCode {
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rest: Vec<OsString> = args.collect();
    if let Some(command) = find(&called) {
        return start(command, &rest);
    }
    let word = rest.first().map(|w| w.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(command) = find(&word) {
        return start(command, &rest[1..]);
    }
    match word.as_str() {
        "help" if rest.len() > 1 => help_of(&rest[1].to_string_lossy()),
        "" | "help" | "-h" | "--help" => {
            help();
            ExitCode::SUCCESS
        }
        "version" | "-V" | "--version" => {
            print(&format!("squall {}\n", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        _ => unknown(&word),
    }
}

fn start(command: &Command, args: &[OsString]) -> ExitCode {
    if command.slurm || command.word() == "rest" {
        let named = Place::find().and_then(|place| place.release());
        show_release(named.and_then(|name| Release::parse(&name)).unwrap_or_default());
    }
    hint(command.page.name, hints::of_arguments(args));
    (command.run)(args)
}

/// Runs `squall help COMMAND` and `squall help TOPIC`.
fn help_of(word: &str) -> ExitCode {
    if let Some(command) = find(word) {
        print(&command.page.help());
        return ExitCode::SUCCESS;
    }
    if let Some((_, text)) = TOPICS.iter().find(|(topic, _)| *topic == word) {
        print(text);
        return ExitCode::SUCCESS;
    }
    unknown(word)
}

fn unknown(word: &str) -> ExitCode {
    if let Some((_, target)) = BUILDS.iter().find(|(command, _)| *command == word) {
        eprintln!("squall: error: this program has no `{word}`; `make {target}` builds one that has it");
        return ExitCode::FAILURE;
    }
    let names: Vec<&str> = COMMANDS.iter().map(Command::word).chain(TOPICS.iter().map(|(topic, _)| *topic)).collect();
    let meant = squall_model::config::similar(word, &names).map(|name| format!("; did you mean `{name}`?"));
    let end = if meant.is_some() { "" } else { ";" };
    eprintln!("squall: error: there is no command `{word}`{}{end} `squall help` lists them", meant.unwrap_or_default());
    ExitCode::from(2)
}

fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.word() == name)
}

fn help() {
    let mut text =
        String::from("squall: an HPC resource manager with Slurm's commands\n\nusage: squall COMMAND [ARGUMENTS]\n");
    for (title, slurm) in [("The cluster", false), ("Slurm's commands", true)] {
        text.extend(["\n", title, ":\n"]);
        for command in COMMANDS.iter().filter(|command| command.slurm == slurm) {
            let _ = writeln!(text, "  {:<11} {}", command.word(), command.page.about);
        }
    }
    let topics: Vec<&str> = TOPICS.iter().map(|(topic, _)| *topic).collect();
    let _ = write!(
        text,
        "\nsquall help COMMAND, or squall help TOPIC. Topics: {},\n{}\n\n\
         First steps: squall up; squall sbatch --wrap hostname; squall squeue; squall sacct; squall down\n",
        topics[..4].join(", "),
        topics[4..].join(", "),
    );
    print(&text);
}
