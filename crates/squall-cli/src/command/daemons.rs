//! `squall controller`, `squall front`, `squall node NAME` and `squall login`: one daemon in the foreground.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use squall_files::place::Place;
use squall_host::controld::{self, Settings};
use squall_host::front;
use squall_host::life::{self, Daemon};
use squall_host::logging;
use squall_host::noded::{self, NodeArgs};
use squall_host::pidfile::PidFile;
use squall_host::privileges;
use squall_host::rack::{self, RackArgs};
use squall_host::starts;
use squall_host::trust::{Joined, Token, Trust};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

/// `squall controller`, for its help, manual page and completion.
pub(crate) static CONTROLLER: Page = Page {
    name: "squall controller",
    about: "run a cluster's controller in the foreground",
    synopsis: &["[OPTIONS]", "--join=HOST:PORT --name=NAME --token=TOKEN [--join-only] [--state=DIR]"],
    options: page::Options::Own(CONTROLLER_FLAGS),
    notes: "\
Its log goes to standard error. Where the configuration names several controllers, this one leads if no other does; otherwise \
it follows, and can take over.
",
};

const CONTROLLER_FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
    flag(
        "name",
        '\0',
        Arg::Needed("NAME"),
        "which of several controllers this machine is, kept for the next time (otherwise the one with this host's name)",
    ),
    flag(
        "join",
        '\0',
        Arg::Needed("HOST:PORT"),
        "get keys and configuration from the controller there first, with --name and --token",
    ),
    flag(
        "token",
        '\0',
        Arg::Needed("TOKEN"),
        "token that `squall token --controller NAME` printed; needed once (- reads it from standard input)",
    ),
    flag(
        "join-only",
        '\0',
        Arg::None,
        "join, and end: systemd's squall-controller.service, or `squall up`, then starts the controller",
    ),
    flag(
        "accept-loss",
        '\0',
        Arg::None,
        "go on without damaged or missing parts of the journal: jobs in them are lost, and pending ones are held",
    ),
    flag(
        "without-durability",
        '\0',
        Arg::None,
        "never flush the journal: what is acknowledged is lost when the machine stops. For measuring what durability costs, in a new state directory that is thrown away afterwards; refused in any other",
    ),
    flag("detached", '\0', Arg::None, ""),
];

/// `squall front`, for its help, manual page and completion.
pub(crate) static FRONT: Page = Page {
    name: "squall front",
    about: "run the front of several cells in the foreground",
    synopsis: &["[--state=DIR]"],
    options: page::Options::Own(FRONT_FLAGS),
    notes: "\
Its log goes to standard error. Each folder DIR/cells/N is the state of a controller whose configuration says `cell = N`; \
`squall up --cells` makes them.
",
};

const FRONT_FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "where the cells are (otherwise your own cluster, or SQUALL_STATE)"),
    flag("detached", '\0', Arg::None, ""),
];

const WHERE_TO_JOIN: Flag = flag(
    "controller",
    '\0',
    Arg::Needed("HOST:PORT"),
    "join the cluster of the controller there, with --name and --token",
);

const NAME_TO_JOIN: Flag =
    flag("name", '\0', Arg::Needed("NAME"), "name under which this machine joins (a node: otherwise this host's)");

/// `squall node`, for its help, manual page and completion.
pub(crate) static NODE: Page = Page {
    name: "squall node",
    about: "run a node daemon in the foreground",
    synopsis: &["[NAME] [--state=DIR]", "--controller=HOST:PORT --name=NAME --token=TOKEN [--join-only] [--port=PORT]", "--rack[=N] [--from=K]"],
    options: page::Options::Own(NODE_FLAGS),
    notes: "\
Runs the node daemon of that name, or a rack of emulated nodes; its log goes to standard error. Without NAME it is the node \
as which this machine has joined a cluster, otherwise the one named after this host. A machine that has joined once needs no \
more than `squall node`, or `squall up`.
When a rack gets SIGUSR1, the daemon of a random node that has children dies as by kill -9; it comes back half a second later.
",
};

const NODE_FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    WHERE_TO_JOIN,
    NAME_TO_JOIN,
    flag(
        "token",
        '\0',
        Arg::Needed("TOKEN"),
        "token that `squall token NAME` printed; needed once (- reads it from standard input)",
    ),
    flag(
        "join-only",
        '\0',
        Arg::None,
        "join, and end: systemd's squall-node.service, or `squall up`, then starts the daemon",
    ),
    flag(
        "port",
        '\0',
        Arg::Needed("PORT"),
        "listen there for the nodes of other machines (otherwise SlurmdPort, or any port)",
    ),
    flag(
        "rack",
        '\0',
        Arg::Maybe("N"),
        "the nodes that the configuration calls emulated, or N of them; where it names none, N nodes r1 to rN that join by themselves",
    ),
    flag("from", '\0', Arg::Needed("K"), "not the first N of them, but those after the first K"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
    flag("detached", '\0', Arg::None, ""),
];

/// `squall login`, for its help, manual page and completion.
pub(crate) static LOGIN: Page = Page {
    name: "squall login",
    about: "run the daemon of a login host in the foreground",
    synopsis: &["--controller=HOST:PORT --name=NAME --token=TOKEN [--state=DIR]", "[--state=DIR]"],
    options: page::Options::Own(LOGIN_FLAGS),
    notes: "\
Commands of this host's users reach the cluster through it. Its log goes to standard error. A machine that has joined once \
needs no more than `squall login`, or `squall up`.
The daemon tells the controller which user sends a command, as this host's kernel says. Users must have the same ids here and \
on the controller's machine.
On one of several heads `squall up` starts it too: while the controller of that head is away, its commands reach the others.
",
};

const LOGIN_FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    WHERE_TO_JOIN,
    NAME_TO_JOIN,
    flag(
        "token",
        '\0',
        Arg::Needed("TOKEN"),
        "token that `squall token --login NAME` printed; needed once (- reads it from standard input)",
    ),
    flag(
        "join-only",
        '\0',
        Arg::None,
        "join, and end: systemd's squall-login.service, or `squall up`, then starts the daemon",
    ),
    flag(
        "state",
        '\0',
        Arg::Needed("DIR"),
        "where key and sockets are kept (otherwise the default of your own cluster, or SQUALL_STATE)",
    ),
    flag("detached", '\0', Arg::None, ""),
];

#[derive(Default)]
pub(super) struct Options {
    pub(super) state: Option<PathBuf>,
    name: Option<String>,
    operand: Option<String>,
    controller: Option<String>,
    join: Option<String>,
    token: Option<String>,
    port: Option<u16>,
    rack: bool,
    count: Option<usize>,
    from: usize,
    join_only: bool,
    accept_loss: bool,
    without_durability: bool,
    detached: bool,
}

impl Options {
    fn parse(page: &Page, given: &Arguments) -> Result<Self, String> {
        let rack = given.last("rack");
        let operand = super::one_operand(page, given)?;
        Ok(Self {
            state: given.last("state").map(PathBuf::from),
            name: given.last("name").map(str::to_owned).or_else(|| operand.clone()),
            operand,
            controller: given.last("controller").map(str::to_owned),
            join: given.last("join").map(str::to_owned),
            token: given.last("token").map(str::to_owned),
            port: given.parsed("port")?,
            rack: rack.is_some(),
            count: if rack.is_some_and(|count| !count.is_empty()) { given.parsed("rack")? } else { None },
            from: given.parsed("from")?.unwrap_or(0),
            join_only: given.has("join-only"),
            accept_loss: given.has("accept-loss"),
            without_durability: given.has("without-durability"),
            detached: given.has("detached"),
        })
    }
}

impl Options {
    /// Refuses `--join-only` without a controller to join.
    fn join_only_with_controller(&self) -> Result<(), String> {
        if self.join_only && self.controller.is_none() {
            return Err("--join-only goes with --controller HOST:PORT".to_owned());
        }
        Ok(())
    }

    /// Refuses an argument that is no option.
    fn no_operand(&self) -> Result<(), String> {
        self.operand.as_ref().map_or(Ok(()), |operand| Err(format!("unexpected argument `{operand}`")))
    }
}

/// Runs `squall controller`.
pub(crate) fn controller(args: &[OsString]) -> ExitCode {
    finish(&CONTROLLER, args, |options| {
        options.no_operand()?;
        if options.token.as_deref().is_some_and(|token| token != "-") {
            return Err(format!("cannot begin anew without the token: {}", conceal(options)));
        }
        let place = super::place(options.state.as_deref())?;
        match (&options.join, &options.name) {
            (Some(address), name) => join_as_controller(&place, address, name.as_deref(), options.token.as_deref())?,
            (None, _) if options.join_only => return Err("--join-only goes with --join HOST:PORT".to_owned()),
            (None, Some(name)) => controld::name_controller(&place, name)?,
            (None, None) => {}
        }
        if options.join_only {
            return Ok(ExitCode::SUCCESS);
        }
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
    finish(&FRONT, args, |options| {
        options.no_operand()?;
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
    finish(&NODE, args, |options| {
        if options.token.as_deref().is_some_and(|token| token != "-") {
            return Err(format!("cannot begin anew without the token: {}", conceal(options)));
        }
        options.join_only_with_controller()?;
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
/// otherwise this host's. A machine that joins has the given one, otherwise this host's.
fn name_of_node(place: &Place, options: &Options) -> Result<String, String> {
    match (&options.name, &options.controller) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(_)) => Ok(life::host_name()),
        (None, None) => {
            let joined = Trust::of(place).joined().map_err(|e| format!("{}: {e}", place.joined().display()))?;
            Ok(joined.map_or_else(life::host_name, |joined| joined.name))
        }
    }
}

/// Runs `squall login`.
pub(crate) fn login(args: &[OsString]) -> ExitCode {
    finish(&LOGIN, args, |options| {
        if options.token.as_deref().is_some_and(|token| token != "-") {
            return Err(format!("cannot begin anew without the token: {}", conceal(options)));
        }
        options.join_only_with_controller()?;
        let place = super::place(options.state.as_deref())?;
        life::make_folders(&place)?;
        log(options, &place, &Daemon::Login)?;
        let _pid = hold(&place, &Daemon::Login)?;
        if let Some(controller) = &options.controller {
            let name = options.name.as_deref().ok_or("under which name? `squall token --login NAME` prints it")?;
            join(&place, (controller, name, true), options.token.as_deref())?;
        }
        if options.join_only {
            return Ok(ExitCode::SUCCESS);
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
    let token = token_for(token, &format!("{option} {name}"))?;
    let controllers = Joined::addresses_of(controller);
    let joined = Joined { name: name.to_owned(), controllers, key: token.controller, login };
    noded::errands::join(place, &joined, &token).map_err(|e| format!("cannot join as {whom} {name}: {e}"))
}

/// Reads a token as the command line has it. `which`: options and name with which `squall token` prints it.
fn token_for(token: Option<&str>, which: &str) -> Result<Token, String> {
    let needed = || format!("which token? `squall token{which}` on the controller's machine prints one");
    let token = match token.ok_or_else(needed)? {
        "-" => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(|e| e.to_string())?;
            line
        }
        token => token.to_owned(),
    };
    Token::parse(&token).ok_or_else(|| "this is no token of `squall token`".to_owned())
}

/// Gets keys and configuration of a further controller from the one at `address`.
fn join_as_controller(place: &Place, address: &str, name: Option<&str>, token: Option<&str>) -> Result<(), String> {
    let name = name.ok_or("under which name? `squall token --controller NAME` prints it")?;
    // The same command starts the controller again.
    if controld::has_joined(place, name) {
        return Ok(());
    }
    let token = token_for(token, &format!(" --controller {name}"))?;
    life::make_folders(place)?;
    controld::join(place, name, Joined::addresses_of(address), &token)
        .map_err(|e| format!("cannot join as controller {name}: {e}"))
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

/// Begins a daemon: no core files, and a log: in its file if it was started detached, otherwise on standard error.
pub(super) fn log(options: &Options, place: &Place, daemon: &Daemon) -> Result<(), String> {
    privileges::leave_no_core();
    logging::start(options.detached.then(|| daemon.log_file(place)))
}

/// Writes the daemon's pid file, which is removed when the returned value is dropped. Fails if the daemon runs already,
/// or was called off.
pub(super) fn hold(place: &Place, daemon: &Daemon) -> Result<PidFile, String> {
    life::check_place(place)?;
    let path = daemon.pid_file(place);
    let file = PidFile::write(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::ResourceBusy => format!("{daemon} is running already ({})", path.display()),
        _ => format!("cannot write {}: {e}", path.display()),
    })?;
    starts::go_on(place).map(|()| file)
}

/// Refuses what runs on the controller's machine only, where this machine has joined its cluster.
pub(super) fn not_joined(place: &Place, daemon: &Daemon) -> Result<(), String> {
    match Trust::of(place).joined().map_err(|e| e.to_string())? {
        Some(joined) => Err(format!(
            "this machine has joined the cluster at {}: {daemon} runs on the controller's machine",
            joined.addresses()
        )),
        None => Ok(()),
    }
}

pub(super) fn finish(
    page: &Page,
    args: &[OsString],
    work: impl FnOnce(&Options) -> Result<ExitCode, String>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let done = super::own(page, args, |given| {
        let options = Options::parse(page, given)?;
        if options.detached {
            life::detach();
        }
        code = work(&options)?;
        Ok(String::new())
    });
    if code == ExitCode::SUCCESS { done } else { code }
}
