//! Prepares the tasks of a launch: finds programs, makes environments, opens files. Runs as the user.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use squall_engine::environment::closest_env;
use squall_model::job::ExitCode;
use squall_model::set::IndexSet;
use squall_model::step::{Program, RankSet, StepLaunch, Stream, TaskProgram};

use super::binding::{Binding, Verbose};
use super::container::Containers;
use super::environment::Environment;
use super::files::{Opening, null, open_input, open_output, reason, work_dir};
use super::folder::Folder;
use super::keeper::KEEP;
use super::login::login_environment;
use super::patterns::{Names, default_output, expand};
use super::scripts::{Epilog, Scripts};
use super::search::{NotFound, find_program};
use super::streams::{Streams, open_terminal, pipe};
use super::wireup::{self, Wireup};
use super::x11::Display;
use crate::sys::spawn::Session;

/// Exit code of a job with an output file that can't be opened, as in Slurm.
const NO_OUTPUT: ExitCode = ExitCode { code: 0, signal: 53 };

/// A task that can be started, or the reason why it can't.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The task's rank.
    pub(super) rank: u32,
    /// File to execute, or the reason why there is none.
    pub(super) program: Result<CString, NotFound>,
    /// The task's arguments, the program's name first.
    pub(super) argv: Vec<CString>,
    /// The task's environment.
    pub(super) env: Environment,
    /// Index of the environment's entry into which the task's process id is inserted; None: there is no such entry.
    pub(super) env_pid: Option<usize>,
    /// The task's standard input, output and error.
    pub(super) stdio: [File; 3],
    /// The task's process group, session and terminal.
    pub(super) session: Session,
    /// The CPUs to which the task is bound; empty: all CPUs of the step.
    pub(super) cpus: Vec<usize>,
    /// The line that the task prints about its binding; None without `--cpu-bind=verbose`.
    pub(super) verbose: Option<Verbose>,
    /// A further descriptor that the task inherits: the task's end of the socket for PMI. None: the task can't use PMI.
    pub(super) further: Option<OwnedFd>,
    /// The epilogs that run after the task; None: there are none.
    pub(super) epilog: Option<Epilog>,
}

/// All prepared tasks of this node.
#[derive(Debug)]
pub(super) struct Ready {
    /// The tasks, by rank.
    pub(super) tasks: Vec<Prepared>,
    /// The tasks' working directory.
    pub(super) dir: CString,
    /// Soft limits to set for the tasks: (resource, value).
    pub(super) rlimits: Vec<(u32, u64)>,
    /// The tasks' streams that are connected to `srun`.
    pub(super) streams: Streams,
    /// The batch job's standard error, for notices; None: notices go to `srun`.
    pub(super) stderr: Option<File>,
    /// The batch job's standard output, for the report at its end; None: none is asked for, or it is no plain file.
    pub(super) stdout: Option<File>,
    /// Messages to the user about things that were done otherwise than asked for.
    pub(super) notes: Vec<String>,
}

/// Why the step can't be started, by the job's own fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The exit with which the step ends.
    pub(super) exit: ExitCode,
    /// The reason, for the user.
    pub(super) note: String,
}

impl Refusal {
    fn stream(what: &str, path: &Path, error: &std::io::Error) -> Self {
        Self { exit: NO_OUTPUT, note: format!("Could not open {what} file {}: {}", path.display(), reason(error)) }
    }

    fn io(what: &str, error: &std::io::Error) -> Self {
        Self { exit: ExitCode { code: 1, signal: 0 }, note: format!("IO setup failed: {what}: {}", reason(error)) }
    }
}

/// Prepares the tasks of the step with this folder. `wireup`, `display`: None for a step without.
pub(super) fn prepare(
    folder: &Folder,
    wireup: Option<&mut Wireup>,
    display: Option<&Display>,
    opening: Opening,
) -> Result<Ready, Refusal> {
    match &folder.launch.program {
        Program::Tasks(program) => prepare_tasks(folder, program, (wireup, display)),
        Program::Batch if folder.launch.has_keeper() => prepare_keeper(folder),
        // An emulated step has nothing to prepare, so it does not come here.
        Program::Batch | Program::Timer { .. } => prepare_batch(folder, opening),
    }
}

/// Prepares the keeper of the job's steps, which stands in for the script here.
fn prepare_keeper(folder: &Folder) -> Result<Ready, Refusal> {
    let launch = &folder.launch;
    let null = || null().map_err(|e| Refusal::io("/dev/null", &e));
    let (env, env_pid) =
        Environment::parse(&folder.environment).for_step(launch, &folder.path.to_string_lossy()).for_task(launch, 0, 0);
    let job = launch.key.job.to_string();
    let words = ["squall", "step", KEEP, &job].into_iter().map(|word| text(word.as_bytes()));
    let task = Prepared {
        rank: 0,
        program: Ok(c"/proc/self/exe".to_owned()),
        argv: words.collect::<Result<_, _>>()?,
        env,
        env_pid,
        stdio: [null()?, null()?, null()?],
        session: Session::Group,
        cpus: Vec::new(),
        verbose: None,
        further: None,
        epilog: None,
    };
    Ok(Ready {
        tasks: vec![task],
        dir: c"/".to_owned(),
        rlimits: launch.facts.spec.rlimits.clone(),
        streams: Streams::default(),
        stderr: None,
        stdout: None,
        notes: Vec::new(),
    })
}

fn prepare_batch(folder: &Folder, opening: Opening) -> Result<Ready, Refusal> {
    let (launch, spec) = (&folder.launch, &folder.launch.facts.spec);
    let (dir, note) = work_dir(Path::new(&spec.work_dir));
    let names = Names::of(launch, 0);
    // What a job wrote before its checkpoint stays.
    let append = launch.facts.restore.is_some() || spec.append.unwrap_or(launch.facts.restarts > 0);
    let mut opened = Opened::new(opening);
    let stdout = spec.stdout.as_deref().unwrap_or(default_output(launch.facts.array));
    let stdout_path = dir.join(expand(stdout, &names));
    let stdout = opened.output("stdout", &stdout_path, append)?;
    let stderr = match &spec.stderr {
        None => clone(&stdout)?,
        Some(pattern) => opened.output("stderr", &dir.join(expand(pattern, &names)), append)?,
    };
    let stdin = match &spec.stdin {
        None => null().map_err(|e| Refusal::io("/dev/null", &e))?,
        Some(pattern) => opened.input(&dir.join(expand(pattern, &names)))?,
    };
    let mut env = Environment::parse(&folder.environment);
    let mut notes: Vec<String> = note.into_iter().collect();
    if spec.get_user_env {
        match login_environment(&launch.facts.owner) {
            Ok(login) => env.complete(&login),
            Err(e) => notes.push(format!("Unable to get the user's environment: {e}")),
        }
    }
    let (env, env_pid) = env.for_step(launch, &folder.path.to_string_lossy()).for_task(launch, 0, 0);
    let script = text(folder.script().as_os_str().as_bytes())?;
    let args = spec.args.iter().map(|a| text(a.as_bytes()));
    let argv = std::iter::once(Ok(script.clone())).chain(args).collect::<Result<Vec<_>, _>>()?;
    let notices = clone(&stderr)?;
    let is_plain = |file: &File| file.metadata().is_ok_and(|file| file.is_file());
    let report = (launch.report && is_plain(&stdout)).then(|| clone(&stdout)).transpose()?;
    let (scripts, dir) = (Scripts::of(launch), text(dir.as_os_str().as_bytes())?);
    let containers = Containers::of(launch, &folder.path);
    let command = contain(containers.as_ref(), 0, (argv, Ok(script)), Some(&folder.script()))?;
    let (argv, program) = around(scripts.as_ref(), command, true);
    let task = Prepared {
        rank: 0,
        program,
        argv,
        epilog: scripts.and_then(|scripts| scripts.after(&env, &dir)),
        env,
        env_pid,
        stdio: [stdin, stdout, stderr],
        session: Session::Group,
        cpus: Vec::new(),
        verbose: None,
        further: None,
    };
    Ok(Ready {
        tasks: vec![task],
        dir,
        rlimits: spec.rlimits.clone(),
        streams: Streams::default(),
        stderr: Some(notices),
        stdout: report,
        notes,
    })
}

fn prepare_tasks(
    folder: &Folder,
    program: &TaskProgram,
    (mut wireup, display): (Option<&mut Wireup>, Option<&Display>),
) -> Result<Ready, Refusal> {
    let launch = &folder.launch;
    let (dir, note) = work_dir(Path::new(OsStr::from_bytes(&program.work_dir)));
    let mut shared = Environment::parse(&program.env).for_step(launch, &folder.path.to_string_lossy());
    if let Some(display) = display {
        display.equip(&mut shared);
    }
    let binding = Binding::of(launch, program);
    shared.lay(binding.as_ref().map(Binding::env).unwrap_or_default());
    let ranks = launch.ranks();
    let path = shared.get("PATH").unwrap_or_default();
    let containers = Containers::of(launch, &folder.path);
    let commands = ranks.iter().map(|&rank| what_to_run(folder, program, rank, (path, &dir), containers.as_ref()));
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    match &mut wireup {
        Some(wireup) => {
            let programs: BTreeSet<&CString> = commands.iter().filter_map(|(_, file)| file.as_ref().ok()).collect();
            wireup.equip(&mut shared, programs.iter().map(|file| dir.join(OsStr::from_bytes(file.as_bytes()))));
        }
        None => wireup::clear(&mut shared),
    }
    let mut streams = Streams::default();
    let mut opened = Opened::new(Opening::MayWait);
    let mut tasks = Vec::with_capacity(ranks.len());
    let (scripts, dir_text) = (Scripts::of(launch), text(dir.as_os_str().as_bytes())?);
    for ((local, &rank), command) in ranks.iter().enumerate().zip(commands) {
        let known = program.content.is_some() || containers.is_some();
        let (argv, program_file) = around(scripts.as_ref(), command, known);
        let mut own = shared.clone();
        own.lay(closest_env(launch, binding.as_ref().map_or(&launch.cores, |binding| binding.begins_on(local))));
        let (mut env, env_pid) = own.for_task(launch, local as u32, rank);
        let further = wireup.as_mut().map(|wireup| wireup.equip_task(&mut env, rank)).transpose();
        let further = further.map_err(|e| Refusal::io("PMI", &e))?;
        let terminal = program.pty.filter(|_| rank == 0);
        let (stdio, session) = if let Some(size) = terminal {
            (terminal_stdio(&mut streams, rank, size)?, Session::Terminal)
        } else {
            let at = At { launch, rank, dir: &dir };
            (stdio(program, &at, &mut streams, &mut opened)?, Session::Group)
        };
        let cpus = binding.as_ref().map(|b| b.cpus(local)).unwrap_or_default();
        let verbose = binding.as_ref().and_then(|b| b.verbose(launch, local, rank));
        let epilog = scripts.as_ref().and_then(|scripts| scripts.after(&env, &dir_text));
        tasks.push(Prepared {
            rank,
            epilog,
            program: program_file,
            argv,
            env,
            env_pid,
            stdio,
            session,
            cpus,
            verbose,
            further,
        });
    }
    Ok(Ready {
        tasks,
        dir: dir_text,
        rlimits: program.rlimits.clone(),
        streams,
        stderr: None,
        stdout: None,
        notes: note.into_iter().chain(binding.and_then(|b| b.complaint())).collect(),
    })
}

/// A command: arguments (the name first), and the file to execute.
type Command = (Vec<CString>, Result<CString, NotFound>);

/// Puts the prologs before a command. `known`: the prologs can't change which file is executed, so it is named now.
fn around(scripts: Option<&Scripts>, (argv, file): Command, known: bool) -> Command {
    let Some(scripts) = scripts else { return (argv, file) };
    let (argv, squall) = scripts.before(argv, file.clone().ok().filter(|_| known));
    (argv, squall.map_or(file, Ok))
}

/// Returns the command of a rank. `path` and `dir`: where its program is searched, unless a container has it.
fn what_to_run(
    folder: &Folder,
    program: &TaskProgram,
    rank: u32,
    (path, dir): (&[u8], &Path),
    containers: Option<&Containers<'_>>,
) -> Result<Command, Refusal> {
    let argv = command_of(program, rank, folder.launch.rank_among(rank));
    let argv = argv.iter().map(|a| text(a)).collect::<Result<Vec<_>, _>>()?;
    let brought = program.content.map(|content| folder.content(content));
    let file = match (&brought, argv.first()) {
        (_, None) => Err(NotFound::no_program()),
        (Some(brought), _) => Ok(text(brought.as_os_str().as_bytes())?),
        (None, Some(name)) if containers.is_some() => Ok(name.clone()),
        (None, Some(name)) => find_program(name, path, dir),
    };
    contain(containers, rank, (argv, file), brought.as_deref())
}

/// Returns the command that runs this one in a container, if its step has any. `brought`: the file of the command, if
/// the step brought it.
fn contain(
    containers: Option<&Containers<'_>>,
    rank: u32,
    (argv, file): Command,
    brought: Option<&Path>,
) -> Result<Command, Refusal> {
    let (Some(containers), Ok(_)) = (containers, &file) else { return Ok((argv, file)) };
    let (argv, squall) = containers.around(rank, argv, brought).map_err(|e| Refusal::io("container", &e))?;
    Ok((argv, Ok(squall)))
}

/// Returns the command of a rank, with the `%t` and `%o` of `--multi-prog` replaced. Empty: there is none for it.
fn command_of(program: &TaskProgram, rank: u32, shown: u32) -> Vec<Vec<u8>> {
    let all = IndexSet::new();
    let matching = program.commands.iter().find_map(|(ranks, argv)| match ranks {
        RankSet::All => Some((argv, &all, false)),
        RankSet::Some(set) => set.contains(rank).then_some((argv, set, true)),
    });
    let Some((argv, set, multi)) = matching else { return Vec::new() };
    let numbers = [(b't', shown), (b'o', if multi { set.rank(rank) } else { rank })];
    argv.iter().map(|arg| if multi { number(arg, &numbers) } else { arg.to_vec() }).collect()
}

/// Replaces `%` and a letter by that letter's number, and `%%` by `%`.
fn number(arg: &[u8], numbers: &[(u8, u32)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(arg.len());
    let mut rest = arg;
    while let [first, tail @ ..] = rest {
        let letter = tail.first().filter(|_| *first == b'%');
        let found = letter.and_then(|letter| numbers.iter().find(|(name, _)| name == letter));
        if letter == Some(&b'%') {
            out.push(b'%');
            rest = &tail[1..];
        } else if let Some((_, value)) = found {
            out.extend(value.to_string().bytes());
            rest = &tail[1..];
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

/// The task of which the streams are being opened, and its working directory.
struct At<'a> {
    launch: &'a StepLaunch,
    rank: u32,
    dir: &'a Path,
}

impl At<'_> {
    fn path(&self, pattern: &str) -> PathBuf {
        self.dir.join(expand(pattern, &Names::of(self.launch, self.rank)))
    }

    /// Returns the label (`--label`) that begins each line of the task's output, of equal width for all ranks.
    fn label(&self) -> String {
        let ntasks = self.launch.among().map_or(self.launch.layout.ntasks(), |among| among.tasks);
        let width = ntasks.saturating_sub(1).max(1).ilog10() as usize + 1;
        format!("{:>width$}: ", self.launch.rank_among(self.rank))
    }
}

fn terminal_stdio(streams: &mut Streams, rank: u32, size: (u16, u16)) -> Result<[File; 3], Refusal> {
    let made = open_terminal(size).and_then(|(master, task)| {
        streams.add_terminal(rank, master)?;
        Ok([task.try_clone()?, task.try_clone()?, task])
    });
    made.map_err(|e| Refusal::io("pseudo-terminal", &e))
}

fn stdio(program: &TaskProgram, at: &At<'_>, streams: &mut Streams, opened: &mut Opened) -> Result<[File; 3], Refusal> {
    let nothing = || null().map_err(|e| Refusal::io("/dev/null", &e));
    let through_client = |stream: &Stream| match stream {
        Stream::Client => program.pty.is_none(),
        Stream::ClientRank(rank) => *rank == at.rank,
        _ => false,
    };
    let stdin = match &program.stdin {
        Stream::File(pattern) => opened.input(&at.path(pattern))?,
        stream if through_client(stream) => {
            let (read, write) = pipe().map_err(|e| Refusal::io("pipe", &e))?;
            streams.add_input(at.rank, write).map_err(|e| Refusal::io("pipe", &e))?;
            read
        }
        _ => nothing()?,
    };
    let mut output = |stream: &Stream, stderr: bool| match stream {
        Stream::File(pattern) => {
            let file = opened.output(if stderr { "stderr" } else { "stdout" }, &at.path(pattern), program.append)?;
            if !program.label {
                return Ok(file);
            }
            let (read, write) = pipe().map_err(|e| Refusal::io("pipe", &e))?;
            let labelled = streams.add_labelled(at.rank, read, file, at.label());
            labelled.map(|()| write).map_err(|e| Refusal::io("pipe", &e))
        }
        Stream::Client | Stream::ClientRank(_) if through_client(stream) || program.pty.is_some() => {
            let (read, write) = pipe().map_err(|e| Refusal::io("pipe", &e))?;
            streams.add_output(at.rank, stderr, read).map_err(|e| Refusal::io("pipe", &e))?;
            Ok(write)
        }
        _ => nothing(),
    };
    let stdout = output(&program.stdout, false)?;
    let stderr = match &program.stderr {
        Stream::Joined => clone(&stdout)?,
        stream => output(stream, true)?,
    };
    Ok([stdin, stdout, stderr])
}

/// Output files opened so far. Tasks with the same file share it, so that it is truncated only once.
#[derive(Debug)]
struct Opened {
    opening: Opening,
    outputs: BTreeMap<PathBuf, File>,
}

impl Opened {
    fn new(opening: Opening) -> Self {
        Self { opening, outputs: BTreeMap::new() }
    }

    fn input(&self, path: &Path) -> Result<File, Refusal> {
        open_input(path, self.opening).map_err(|e| Refusal::stream("stdin", path, &e))
    }

    fn output(&mut self, what: &str, path: &Path, append: bool) -> Result<File, Refusal> {
        if let Some(file) = self.outputs.get(path) {
            return clone(file);
        }
        let file = open_output(path, append, self.opening).map_err(|e| Refusal::stream(what, path, &e))?;
        self.outputs.insert(path.to_owned(), clone(&file)?);
        Ok(file)
    }
}

fn clone(file: &File) -> Result<File, Refusal> {
    file.try_clone().map_err(|e| Refusal::io("dup", &e))
}

fn text(bytes: &[u8]) -> Result<CString, Refusal> {
    CString::new(bytes)
        .map_err(|_| Refusal { exit: ExitCode { code: 1, signal: 0 }, note: "an argument holds a NUL byte".to_owned() })
}

#[cfg(test)]
mod tests {
    use squall_model::encoding::ByteBuf;

    use squall_model::step::{RankSet, TaskProgram};

    use super::command_of;

    #[test]
    fn commands_of_ranks_and_their_numbers() {
        let argv = |words: &[&str]| words.iter().map(|w| ByteBuf::from(w.as_bytes().to_vec())).collect::<Vec<_>>();
        let set = |ranks: &[u32]| RankSet::Some(ranks.iter().copied().collect());
        let program = TaskProgram {
            commands: vec![(set(&[4, 6]), argv(&["a", "%t:%o", "%%t", "100%"])), (set(&[1, 2, 3]), argv(&["b", "%o"]))],
            ..TaskProgram::default()
        };
        let text = |rank| {
            let words = command_of(&program, rank, rank).into_iter().map(|w| String::from_utf8(w).unwrap());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(6), "a 6:1 %t 100%");
        assert_eq!(text(3), "b 2");
        assert_eq!(text(0), "");
        let one = TaskProgram { commands: vec![(RankSet::All, argv(&["date", "+%t"]))], ..TaskProgram::default() };
        assert_eq!(command_of(&one, 5, 5), [b"date".to_vec(), b"+%t".to_vec()]);
    }
}
