//! `squall controller`, `squall front`, `squall node NAME` and `squall login`: one daemon in the foreground.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use lexopt::prelude::{Long, Short, Value, ValueExt};
use squall_files::place::Place;
use squall_host::controld::{self, Settings};
use squall_host::front;
use squall_host::life::{self, Daemon};
use squall_host::logging;
use squall_host::noded::{self, NodeArgs};
use squall_host::pidfile::PidFile;
use squall_host::rack::{self, RackArgs};
use squall_host::trust::{Joined, Token, Trust};

const CONTROLLER_HELP: &str = "\
usage: squall controller [--state DIR] [--accept-loss] [--without-durability]

Runs the controller of a cluster in the foreground; its log goes to standard error.

  --state DIR     the cluster's state (otherwise your own cluster, or SQUALL_STATE)
  --accept-loss   go on without damaged or missing parts of the journal: jobs in them are lost
  --without-durability
                  never flush the journal: what is acknowledged is lost when the machine stops. For measuring what
                  durability costs, in a new state directory that is thrown away afterwards; refused in any other
";

const FRONT_HELP: &str = "\
usage: squall front [--state DIR]

Runs the front of a cluster of several cells in the foreground; its log goes to standard error. Each folder DIR/cells/N is
the state of a controller whose configuration says `cell = N`; `squall up --cells` makes them.

  --state DIR   where the cells are (otherwise your own cluster, or SQUALL_STATE)
";

const NODE_HELP: &str = "\
usage: squall node [NAME] [--state DIR]
       squall node --controller HOST:PORT --name NAME --token TOKEN [--join-only] [--state DIR] [--port PORT]
       squall node --rack[=N] [--from=K] [--state DIR]

Runs the node daemon of that name, or a rack of emulated nodes, in the foreground; its log goes to standard error.
Without NAME it is the node as which this machine has joined a cluster, otherwise the one named after this host.

  --controller HOST:PORT, --name NAME, --token TOKEN
                join the cluster of another machine: `squall token NAME` there prints this command. The token is needed
                once (- reads it from standard input); afterwards `squall node NAME`, or `squall up`, is enough
  --join-only   join, and end: systemd's squall-node.service, or `squall up`, then starts the daemon
  --port PORT   listen there for the nodes of other machines (otherwise SlurmdPort, or any port)
  --rack[=N]    the nodes that the configuration calls emulated, or N of them; where it names none, N nodes r1 to
                rN that join by themselves
  --from=K      not the first N of them, but those after the first K
  --state DIR   the cluster's state (otherwise your own cluster, or SQUALL_STATE)

When a rack gets SIGUSR1, the daemon of a random node that has children dies as by kill -9; it comes back half a second
later.
";

const LOGIN_HELP: &str = "\
usage: squall login --controller HOST:PORT --name NAME --token TOKEN [--state DIR]
       squall login [--state DIR]

Runs the daemon of a login host in the foreground: commands of this host's users reach the cluster through it. Its log
goes to standard error.

  --controller HOST:PORT, --name NAME, --token TOKEN
                make this machine a login host of another machine's cluster: `squall token --login NAME` there prints
                this command. The token is needed once (- reads it from standard input); afterwards `squall login`, or
                `squall up`, is enough
  --state DIR   where key and sockets are kept (otherwise the default of your own cluster, or SQUALL_STATE)

The daemon tells the controller which user sends a command, as this host's kernel says. Users must have the same ids here
and on the controller's machine.
";

#[derive(Default)]
pub(super) struct Options {
    pub(super) state: Option<PathBuf>,
    name: Option<String>,
    controller: Option<String>,
    token: Option<String>,
    port: Option<u16>,
    rack: bool,
    count: Option<usize>,
    from: usize,
    join_only: bool,
    accept_loss: bool,
    without_durability: bool,
    detached: bool,
    help: bool,
}

impl Options {
    fn parse(args: &[OsString]) -> Result<Self, String> {
        let mut parser = lexopt::Parser::from_args(args.to_vec());
        let mut options = Self::default();
        let text = |e: lexopt::Error| e.to_string();
        while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
            match arg {
                Long("state") => options.state = Some(parser.value().map_err(|e| e.to_string())?.into()),
                Long("accept-loss") => options.accept_loss = true,
                Long("without-durability") => options.without_durability = true,
                Long("rack") => {
                    options.rack = true;
                    options.count = parser.optional_value().map(|n| n.parse()).transpose().map_err(text)?;
                }
                Long("from") => options.from = parser.value().and_then(|n| n.parse()).map_err(text)?,
                Long("controller") => {
                    options.controller = Some(parser.value().and_then(ValueExt::string).map_err(text)?);
                }
                Long("name") => options.name = Some(parser.value().and_then(ValueExt::string).map_err(text)?),
                Long("token") => options.token = Some(parser.value().and_then(ValueExt::string).map_err(text)?),
                Long("port") => options.port = Some(parser.value().and_then(|n| n.parse()).map_err(text)?),
                Long("join-only") => options.join_only = true,
                Long("detached") => options.detached = true,
                Long("help") | Short('h') => options.help = true,
                Value(name) if options.name.is_none() => {
                    options.name = Some(name.string().map_err(|e| e.to_string())?);
                }
                other => return Err(other.unexpected().to_string()),
            }
        }
        Ok(options)
    }
}

/// Runs `squall controller`.
pub(crate) fn controller(args: &[OsString]) -> ExitCode {
    finish("controller", CONTROLLER_HELP, args, |options| {
        if let Some(name) = &options.name {
            return Err(format!("unexpected argument `{name}`"));
        }
        let place = super::place(options.state.as_deref())?;
        log(options, &place, &Daemon::Controller)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // The log, which is standard error, says why the daemon ended.
        let durable = !options.without_durability;
        let done = controld::run(Settings { place, version, accept_loss: options.accept_loss, durable });
        Ok(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Runs `squall front`.
pub(crate) fn front(args: &[OsString]) -> ExitCode {
    finish("front", FRONT_HELP, args, |options| {
        if let Some(name) = &options.name {
            return Err(format!("unexpected argument `{name}`"));
        }
        let place = super::place(options.state.as_deref())?;
        life::make_folders(&place)?;
        log(options, &place, &Daemon::Front)?;
        let _pid = hold(&place, &Daemon::Front)?;
        // The log, which is standard error, says why the daemon ended.
        Ok(if front::run(&place).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Runs `squall node NAME`.
pub(crate) fn node(args: &[OsString]) -> ExitCode {
    finish("node", NODE_HELP, args, |options| {
        if options.token.as_deref().is_some_and(|token| token != "-") {
            return Err(format!("cannot begin anew without the token: {}", conceal(options)));
        }
        if options.join_only && options.controller.is_none() {
            return Err("--join-only goes with --controller HOST:PORT".to_owned());
        }
        let place = super::place(options.state.as_deref())?;
        life::make_folders(&place)?;
        if options.rack {
            return rack(&place, options);
        }
        let name = name_of_node(&place, options)?;
        log(options, &place, &Daemon::Node(name.clone()))?;
        let _pid = hold(&place, &Daemon::Node(name.clone()))?;
        if let Some(controller) = &options.controller {
            join(&place, (controller, &name, false), options.token.as_deref())?;
        }
        if options.join_only {
            return Ok(ExitCode::SUCCESS);
        }
        let args = NodeArgs { port: options.port, ..NodeArgs::new(place, &name).map_err(|e| e.to_string())? };
        Ok(noded::run(&args))
    })
}

/// Returns the name of the node to run: the given one, otherwise the one as which this machine has joined a cluster,
/// otherwise this host's.
fn name_of_node(place: &Place, options: &Options) -> Result<String, String> {
    match (&options.name, &options.controller) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(_)) => Err("--controller goes with --name NAME".to_owned()),
        (None, None) => {
            let joined = Trust::of(place).joined().map_err(|e| format!("{}: {e}", place.joined().display()))?;
            Ok(joined.map_or_else(life::host_name, |joined| joined.name))
        }
    }
}

/// Runs `squall login`.
pub(crate) fn login(args: &[OsString]) -> ExitCode {
    finish("login", LOGIN_HELP, args, |options| {
        if options.token.as_deref().is_some_and(|token| token != "-") {
            return Err(format!("cannot begin anew without the token: {}", conceal(options)));
        }
        let place = super::place(options.state.as_deref())?;
        life::make_folders(&place)?;
        log(options, &place, &Daemon::Login)?;
        let _pid = hold(&place, &Daemon::Login)?;
        if let Some(controller) = &options.controller {
            let name = options.name.as_deref().ok_or("under which name? `squall token --login NAME` prints it")?;
            join(&place, (controller, name, true), options.token.as_deref())?;
        }
        Ok(noded::login::run(&place))
    })
}

/// Executes this program again and passes the token on standard input: every user may read the arguments of a process.
/// Returns only on an error.
fn conceal(options: &Options) -> std::io::Error {
    let begin_anew = || {
        let (reader, mut writer) = std::io::pipe()?;
        writer.write_all(options.token.as_deref().unwrap_or_default().as_bytes())?;
        drop(writer);
        let mut args = Vec::new();
        let mut given = std::env::args_os();
        let own = given.next().unwrap_or_else(|| "squall".into());
        while let Some(arg) = given.next() {
            if arg == "--token" {
                given.next();
                args.extend(["--token".into(), "-".into()]);
            } else if arg.as_encoded_bytes().starts_with(b"--token=") {
                args.push("--token=-".into());
            } else {
                args.push(arg);
            }
        }
        Ok(Command::new(std::env::current_exe()?).arg0(own).args(args).stdin(reader).exec())
    };
    begin_anew().unwrap_or_else(|e| e)
}

/// Registers this machine with the controller of another one: at which address, under which name, and whether as a login
/// host.
fn join(place: &Place, (controller, name, login): (&str, &str, bool), token: Option<&str>) -> Result<(), String> {
    let (option, whom) = if login { (" --login", "login host") } else { ("", "node") };
    let needed = || format!("which token? `squall token{option} {name}` on the controller's machine prints one");
    let token = match token.ok_or_else(needed)? {
        "-" => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(|e| e.to_string())?;
            line
        }
        token => token.to_owned(),
    };
    let token = Token::parse(&token).ok_or("this is no token of `squall token`")?;
    let joined = Joined { name: name.to_owned(), controller: controller.to_owned(), key: token.controller, login };
    noded::errands::join(place, &joined, &token).map_err(|e| format!("cannot join as {whom} {name}: {e}"))
}

fn rack(place: &Place, options: &Options) -> Result<ExitCode, String> {
    let config = controld::read_config(place).map_err(|e| e.to_string())?;
    let mut names = life::emulated_names(&config)?;
    if names.is_empty() {
        names = (1..=options.from + options.count.unwrap_or(0)).map(|n| format!("r{n}")).collect();
    }
    let names: Vec<String> = names.into_iter().skip(options.from).take(options.count.unwrap_or(usize::MAX)).collect();
    log(options, place, &Daemon::Rack(options.from, names.len()))?;
    let _pid = hold(place, &Daemon::Rack(options.from, names.len()))?;
    if names.is_empty() {
        return Err("the configuration names no emulated node: `--rack=N` says how many".into());
    }
    Ok(rack::run(&RackArgs { place: place.clone(), config, names }))
}

/// Sets up the daemon's log: in its file if it was started detached, otherwise on standard error.
pub(super) fn log(options: &Options, place: &Place, daemon: &Daemon) -> Result<(), String> {
    logging::start(options.detached.then(|| daemon.log_file(place)))
}

/// Writes the daemon's pid file, which is removed when the returned value is dropped. Fails if the daemon runs already.
pub(super) fn hold(place: &Place, daemon: &Daemon) -> Result<PidFile, String> {
    let path = daemon.pid_file(place);
    PidFile::write(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::ResourceBusy => format!("{daemon} is running already ({})", path.display()),
        _ => format!("cannot write {}: {e}", path.display()),
    })
}

pub(super) fn finish(
    command: &str,
    help: &str,
    args: &[OsString],
    work: impl FnOnce(&Options) -> Result<ExitCode, String>,
) -> ExitCode {
    let done = Options::parse(args).and_then(|options| {
        if options.help {
            crate::print(help);
            return Ok(ExitCode::SUCCESS);
        }
        if options.detached {
            life::detach();
        }
        work(&options)
    });
    done.unwrap_or_else(|problem| {
        eprintln!("squall {command}: error: {problem}");
        ExitCode::FAILURE
    })
}
