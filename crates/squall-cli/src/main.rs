//! Squall's one binary. It runs the command that it is called by (such as `squeue`), otherwise the one that its first
//! argument names.

/// Prints to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::complain(&format!($($text)*)) };
}

/// Prints a line to standard error. Unlike `std`'s macro it does not panic if standard error is closed.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::complain(&(format!($($text)*) + "\n")) };
}

mod capture;
mod command;
mod contact;
mod lab;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use squall_client as client;
use squall_model::plain::plain;

/// A command: its name, a description, and the function that runs it, which gets the arguments after the name.
struct Command {
    name: &'static str,
    about: &'static str,
    run: Run,
    /// Whether the command is one of Slurm's, for which `squall links` creates a link.
    slurm: bool,
    /// Whether this build has the command: those of the laboratory can be left out.
    here: bool,
}

/// Every command, in the order of `squall help`.
const COMMANDS: &[Command] = &[
    ours("up", "start a cluster on this machine, or resume it", command::up::run),
    ours("down", "end it; the state stays", command::down::run),
    ours("why", "say why a job waits, and what would let it start", command::why::run),
    lab("what-if", "run past jobs once more, under another policy or configuration", lab::WHAT_IF),
    ours("import", "make a configuration from Slurm's, and report on each line", command::import::run),
    ours("check", "check a configuration, Squall's or Slurm's, without changing anything", command::check::run),
    ours("token", "let another machine join the cluster as a node or a login host", command::token::run),
    ours("doctor", "check this machine and its daemons, and say what to do", command::doctor::run),
    ours("links", "create Slurm's command names as links to this program", command::links::run),
    ours("controller", "run a cluster's controller in the foreground", command::daemons::controller),
    ours("front", "run the front of several cells in the foreground", command::daemons::front),
    ours("node", "run a node daemon in the foreground", command::daemons::node),
    ours("supervise", "start daemons again that die, in the foreground (`up --keep`)", command::supervise::run),
    ours("login", "run the daemon of a login host in the foreground", command::daemons::login),
    ours("step", "serve one step on a node (started by the node daemon)", command::step::run),
    lab("layout", "where the ranks of a process grid go on a torus", lab::LAYOUT),
    lab("bench", "measure this machine: spawn, throughput, submit, restart, aggregate", lab::BENCH),
    lab("esp", "run the ESP workload on a cluster: utilisation, waits, messages", lab::ESP),
    lab("sim", "simulate clusters: stories, random faults, planted bugs", lab::SIM),
    slurm("sbatch", "queue a batch script", command::sbatch::run),
    slurm("squeue", "show what waits and runs", command::squeue::run),
    slurm("sinfo", "show partitions and nodes", command::sinfo::run),
    slurm("salloc", "get an allocation for a command on this host", command::salloc::run),
    slurm("srun", "run tasks in an allocation, or in one of its own", command::srun::run),
    slurm("sacct", "show what jobs were and what they used", command::sacct::run),
    slurm("scancel", "end jobs, or send them signals", command::scancel::run),
    slurm("scontrol", "show and change jobs, nodes and partitions", command::scontrol::run),
    slurm("sattach", "watch the tasks of a running step, and speak to them", command::sattach::run),
    slurm("sstat", "show running steps", command::sstat::run),
    slurm("seff", "show how well a job used what it had", command::seff::run),
    slurm("sbcast", "copy a file to all nodes of a job", command::sbcast::run),
    slurm("sacctmgr", "show accounts and users", command::sacctmgr::run),
    slurm("sshare", "show shares of accounts", command::sshare::run),
    slurm("sreport", "report CPU time by account and user", command::sreport::run),
    slurm("sprio", "show what priorities are made of", command::sprio::run),
    slurm("sdiag", "show the controller's counters", command::sdiag::run),
];

type Run = fn(&[OsString]) -> ExitCode;

const fn ours(name: &'static str, about: &'static str, run: Run) -> Command {
    Command { name, about, run, slurm: false, here: true }
}

const fn slurm(name: &'static str, about: &'static str, run: Run) -> Command {
    Command { name, about, run, slurm: true, here: true }
}

const fn lab(name: &'static str, about: &'static str, run: Run) -> Command {
    Command { name, about, run, slurm: false, here: cfg!(feature = "lab") }
}

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rest: Vec<OsString> = args.collect();
    if let Some(command) = find(&called) {
        return (command.run)(&rest);
    }
    let word = rest.first().map(|w| w.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(command) = find(&word) {
        return (command.run)(&rest[1..]);
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

/// Runs `squall help COMMAND`.
fn help_of(name: &str) -> ExitCode {
    find(name).map_or_else(|| unknown(name), |command| (command.run)(&["--help".into()]))
}

fn unknown(word: &str) -> ExitCode {
    let names: Vec<&str> = COMMANDS.iter().filter(|c| c.here).map(|c| c.name).collect();
    let meant = squall_model::config::similar(word, &names).map(|name| format!("; did you mean `{name}`?"));
    eprintln!("squall: error: there is no command `{word}`{}; `squall help` lists them", meant.unwrap_or_default());
    ExitCode::from(2)
}

/// Returns whether `--help` or `-h` is among the arguments.
pub(crate) fn asks_for_help(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg == "--help" || arg == "-h")
}

fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|c| c.name == name)
}

fn help() {
    let mut text =
        String::from("squall: an HPC resource manager with Slurm's commands\n\nusage: squall COMMAND [ARGUMENTS]\n");
    for (title, slurm) in [("The cluster", false), ("Slurm's commands", true)] {
        text.extend(["\n", title, ":\n"]);
        for c in COMMANDS.iter().filter(|c| c.here && c.slurm == slurm) {
            let _ = writeln!(text, "  {:<11} {}", c.name, c.about);
        }
    }
    text.push_str(
        "\nFirst steps: squall up; squall sbatch --wrap hostname; squall squeue; squall sacct; squall down\n",
    );
    print(&text);
}

/// Writes to standard output; a closed pipe is no error.
pub(crate) fn print(text: &str) {
    use std::io::Write;
    drop(std::io::stdout().write_all(plain(text).as_bytes()));
}

/// Writes to standard error without buffering; a closed pipe is no error.
pub(crate) fn complain(text: &str) {
    use std::io::Write;
    drop(std::io::stderr().write_all(plain(text).as_bytes()));
}
