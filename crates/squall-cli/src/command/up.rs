//! `squall up`: starts a cluster on this machine.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use squall_files::place::{Place, SocketPath};
use squall_host::controld::{self, etcd};
use squall_host::life::{self, Daemon};
use squall_host::starts::{self, Turn};
use squall_host::trust::{Joined, Trust};
use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::limits::CELLS_MAX;
use squall_model::wire::client::{Answer, Request};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

use super::cells;
use super::configure::Plan;
use super::{mail, rest, supervise};
use squall_client::{Client, ClientError};

/// `squall up`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall up",
    about: "start a cluster on this machine, or resume it",
    synopsis: &["[OPTIONS]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Starts a cluster on this machine in the background, or whatever of it does not run, and returns when jobs can be submitted. \
Without --state (and SQUALL_STATE) the cluster is the machine's (root) or your own: the one to which commands talk. To one \
elsewhere they talk while SQUALL_STATE names it.
Where a machine has joined another one's cluster (`squall node --controller` or `squall login --controller`), its daemon is \
started.
A part that does not answer is named with the reason, as `dashboard: FAILED: port 6820 is in use by 4711 (bob)`; the others \
stay up, and the exit code is 1.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "keep the cluster's state there"),
    flag(
        "nodes",
        '\0',
        Arg::Needed("N"),
        "N nodes named n1 to nN, each with this machine's CPUs and its share of the memory (otherwise one node, named after this host)",
    ),
    flag(
        "rack",
        '\0',
        Arg::Needed("N"),
        "N emulated nodes (after those of --nodes) in one process: the real protocol, but tasks are timers that last as long as the job's --comment=timer_ms=MS says",
    ),
    flag(
        "cells",
        '\0',
        Arg::Needed("N"),
        "N controllers, each with its part of the nodes, behind one front: for more jobs a second than one controller can take",
    ),
    flag(
        "config",
        '\0',
        Arg::Needed("FILE"),
        "take the configuration from there, with a gres.conf, topology.conf or topology.yaml beside it (checked, then copied to DIR); where no daemon runs it replaces the one before, which is kept as squall.toml.old",
    ),
    flag(
        "slurm-conf",
        '\0',
        Arg::Needed("FILE"),
        "the same with Slurm's configuration, translated as `squall import` does; nodes of other machines wait until those join (`squall token`)",
    ),
    flag(
        "strict",
        '\0',
        Arg::None,
        "refuse a topology file with nodes that are unknown, named twice or left out (otherwise a warning)",
    ),
    flag(
        "listen",
        '\0',
        Arg::Needed("HOST:PORT"),
        "let other machines join (`squall token`), which reach this one by that name or address",
    ),
    flag(
        "controller",
        '\0',
        Arg::Needed("NAME"),
        "which of the [[controllers]] this machine is, kept for the next time (otherwise the one with this host's name)",
    ),
    flag(
        "web",
        '\0',
        Arg::Needed("PORT"),
        "switch on the dashboard and Slurm's REST interface, on this port of this machine (`squall web` logs you in)",
    ),
    flag(
        "keep",
        '\0',
        Arg::None,
        "start daemons again that die, until `squall down`: a supervisor stays in the background",
    ),
    flag(
        "accept-loss",
        '\0',
        Arg::None,
        "go on from a journal that lacks something: it is damaged, or an old copy. Once; pending jobs are held, as they may have run",
    ),
];

/// Timeout for the controller's start, in which it reads its journal.
pub(super) const CONTROLLER_TIME: Duration = Duration::from_mins(2);
/// How long to wait for the controller of a cluster that this machine has joined.
const REACH_TIME: Duration = Duration::from_secs(5);
/// Timeout for the registration of all nodes.
const NODE_TIME: Duration = Duration::from_mins(1);
/// Maximum number of real nodes that `--nodes` may name.
const NODES_MAX: u32 = 1024;
/// Maximum number of emulated nodes that `--rack` may name.
const RACK_MAX: u32 = 200_000;
/// Interval between checks whether a daemon has started or ended.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Options {
    pub(super) place: Place,
    pub(super) cells: Option<u32>,
    pub(super) nodes: Option<u32>,
    pub(super) rack: Option<u32>,
    pub(super) config: Option<PathBuf>,
    pub(super) slurm_conf: Option<PathBuf>,
    pub(super) listen: Option<(String, u16)>,
    pub(super) web: Option<u16>,
    pub(super) controller: Option<String>,
    pub(super) strict: bool,
    pub(super) keep: bool,
    pub(super) accept_loss: bool,
}

impl Options {
    /// Returns additional command-line arguments for the controller.
    pub(super) fn further(&self) -> &'static [&'static str] {
        if self.accept_loss { &["--accept-loss"] } else { &[] }
    }
}

impl Options {
    /// Returns an error message about the configuration, with the file's name if an option names one.
    pub(super) fn in_config(&self, problem: String) -> String {
        match self.file() {
            Some(file) => format!("{}: {problem}", file.display()),
            None => problem,
        }
    }

    /// Returns the configuration file that `--config` or `--slurm-conf` names; None: neither option is given.
    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref().or(self.slurm_conf.as_deref())
    }
}

/// What was started beside the controller, and what of it does not answer.
#[derive(Default)]
struct Parts {
    text: String,
    failed: Vec<&'static str>,
}

impl Parts {
    /// Adds a part: lines about it, or why it does not answer.
    fn add(&mut self, part: &'static str, done: Result<String, String>) {
        match done {
            Ok(text) => self.text.push_str(&text),
            Err(why) => {
                self.text.extend([part, ": FAILED: ", &why, "\n"]);
                self.failed.push(part);
            }
        }
    }
}

/// Runs `squall up`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let mut parts = Parts::default();
    let code = super::own(&PAGE, args, |given| {
        let text = up(&parse(given)?, &mut parts)?;
        Ok(text + &parts.text)
    });
    if parts.failed.is_empty() {
        return code;
    }
    eprintln!("squall up: error: not all is up: {}", parts.failed.join(", "));
    ExitCode::FAILURE
}

fn parse(given: &Arguments) -> Result<Options, String> {
    super::no_operand(&PAGE, given)?;
    let counted = |name: &str, most| given.last(name).map(|text| count(&format!("--{name}"), text, most)).transpose();
    let path = |name| given.last(name).map(PathBuf::from);
    Ok(Options {
        place: super::place(path("state").as_deref())?,
        cells: counted("cells", CELLS_MAX)?,
        nodes: counted("nodes", NODES_MAX)?,
        rack: counted("rack", RACK_MAX)?,
        config: path("config"),
        slurm_conf: path("slurm-conf"),
        listen: given.last("listen").map(host_and_port).transpose()?,
        web: given.parsed("web")?,
        controller: given.last("controller").map(str::to_owned),
        strict: given.has("strict"),
        keep: given.has("keep"),
        accept_loss: given.has("accept-loss"),
    })
}

fn count(option: &str, text: &str, most: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("{option}: `{text}` is not a number from 1 to {most}"))
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let parsed =
        text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port > 0)?)));
    let plain = |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || ".:-_".contains(c));
    let host = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let parsed = parsed.map(|(name, port)| (host(name), port)).filter(|(host, _)| plain(host));
    parsed.ok_or_else(|| format!("--listen: `{text}` is not HOST:PORT"))
}

fn up(options: &Options, parts: &mut Parts) -> Result<String, String> {
    let place = &options.place;
    starts::begin(place);
    place.cells().unwrap_or_default().values().for_each(starts::begin);
    let new = !place.dir().exists();
    life::make_folders(place)?;
    // Where several are called at once, each waits for the one before, and finds what that one has started.
    let turn = Turn::take(place)?;
    let text = start(options, parts).inspect_err(|_| {
        if new {
            life::remove_folders(place);
        }
    })?;
    if options.keep {
        let kept = "daemons that die are started again, until `squall down`\n";
        parts.add("supervisor", supervise::start(place).map(|()| kept.to_owned()));
    }
    drop(turn);
    Ok(text)
}

/// Starts the HTTP server and the sender of mail where the configuration has them; `--web` adds the server.
fn beside(options: &Options, parts: &mut Parts) {
    let place = &options.place;
    let on = options.web.map_or(Ok(()), |port| rest::switch_on(place, port));
    parts.add("dashboard", on.and_then(|()| rest::start(place)));
    parts.add("mail", mail::start(place).map(|()| String::new()));
}

fn start(options: &Options, parts: &mut Parts) -> Result<String, String> {
    let place = &options.place;
    let alone = || match options.web {
        Some(_) => Err("--web is for a cluster of one controller, on the controller's machine".to_owned()),
        None => Ok(()),
    };
    if let Some(joined) = Trust::of(place).joined().map_err(|e| e.to_string())? {
        if options.controller.is_some() {
            return Err(format!("--controller: this machine is no controller, but {}", Daemon::of(&joined)));
        }
        alone()?;
        let text = resume_joined(place, &joined)?;
        parts.add("controller", reached(place, &joined));
        return Ok(text);
    }
    if let Some(cells) = cells::meant(options)? {
        if options.controller.is_some() {
            return Err("--controller is for a cluster without cells".to_owned());
        }
        alone()?;
        return cells::up(options, cells);
    }
    let text = start_cluster(options, parts)?;
    beside(options, parts);
    Ok(text)
}

/// Starts the controller and the nodes of this machine.
fn start_cluster(options: &Options, parts: &mut Parts) -> Result<String, String> {
    let place = &options.place;
    let plan = Plan::of(options)?;
    let (config, fresh) = (&own(options, &plan.checked.config)?, plan.files.is_some());
    check_listen(options, config)?;
    let names = here(config)?;
    let asked = options.nodes.or(options.rack).map(|_| options.nodes.unwrap_or(0) + options.rack.unwrap_or(0));
    if !fresh && asked.is_some_and(|n| n as usize != names.len()) {
        return Err(format!(
            "this cluster has {} node(s) ({}): to change that, edit {} and start again, or use another --state",
            names.len(),
            hostlist::compress(&names),
            place.config().display()
        ));
    }
    if config.has_standbys() && options.nodes.is_some() {
        return Err(
            "--nodes: where there are several controllers, a machine has one node, of its own name: leave --nodes out, or \
             name it in [[nodes]]"
                .to_owned(),
        );
    }
    plan.carry_out(place)?;
    if let Some(name) = &options.controller {
        controld::name_controller(place, name).inspect_err(|_| plan.take_back(place))?;
    }
    let was_alive = Daemon::Controller.pid(place).is_some();
    if was_alive && options.accept_loss {
        return Err(
            "the controller runs already: --accept-loss is for its start; run `squall down --keep-jobs` first".into()
        );
    }
    start_controller(place, options.further()).inspect_err(|_| plan.take_back(place))?;
    let started = start_nodes(place, config);
    if let Err(why) = &started {
        if !is_answering(place) {
            return Err(why.clone());
        }
        parts.add("nodes", Err(why.clone()));
    }
    if config.has_standbys() {
        parts.add("login daemon", start_login(place).map(|()| String::new()));
        if let Some(open) = etcd::look_at_etcd(config).ok().and_then(|seen| seen.is_open()) {
            eprintln!("squall up: {open}: {}", etcd::CLOSE_ETCD);
        }
    }
    let state = if was_alive && started == Ok(0) { "runs already" } else { "is up" };
    let nodes = match names.len() {
        _ if started.is_err() => "not all of its nodes are".to_owned(),
        0 => "no nodes on this machine (`squall token NODE` lets others join)".to_owned(),
        1 => format!("1 node ({})", names[0]),
        several => format!("{several} nodes ({})", hostlist::compress(&names)),
    };
    Ok(format!(
        "cluster {} {state}: {nodes}, state in {}\n{}",
        config.cluster,
        place.dir().display(),
        super::how_to_reach(place)
    ))
}

/// Returns the configuration as the controller of this machine uses it.
fn own(options: &Options, config: &Config) -> Result<Config, String> {
    if !config.has_standbys() {
        return Ok(config.clone());
    }
    let name = options.controller.clone().unwrap_or_else(|| controld::controller_name(&options.place));
    config.clone().as_controller(&name).map_err(|problem| options.in_config(problem))
}

/// Refuses `--listen` with an address other than the cluster's.
fn check_listen(options: &Options, config: &Config) -> Result<(), String> {
    match &options.listen {
        Some((host, port)) if config.slurmctld_port.0 != *port || config.slurmctld_host.0 != *host => Err(format!(
            "this cluster does not listen there: set SlurmctldHost and SlurmctldPort in {} and start again",
            options.place.config().display()
        )),
        _ => Ok(()),
    }
}

/// Returns the names of the nodes with a daemon on this machine.
pub(super) fn here(config: &Config) -> Result<Vec<String>, String> {
    let (mut names, emulated) = (life::real_names(config)?, life::emulated_here(config)?);
    names.extend(emulated);
    Ok(names)
}

/// Starts the daemon of this machine, which has joined the cluster of another one as a node or a login host.
fn resume_joined(place: &Place, joined: &Joined) -> Result<String, String> {
    let daemon = Daemon::of(joined);
    let (what, socket) = if joined.login {
        (format!("login host {}", joined.name), place.controller_socket())
    } else {
        (daemon.to_string(), place.node_socket(&joined.name))
    };
    let what = format!("{what} of the cluster at {}", joined.addresses());
    if daemon.pid(place).is_some() {
        return Ok(format!("{what} runs already\n"));
    }
    let mut started = None;
    daemon.ensure(place, &[], &mut started)?;
    let begin = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        daemon.ensure(place, &[], &mut started)?;
        if begin.elapsed() > NODE_TIME {
            return Err(format!("{what} does not come up; see {}", daemon.log_file(place).display()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(format!("{what} is up\n"))
}

/// Waits until the controller of a cluster that this machine has joined answers commands here; returns no text.
fn reached(place: &Place, joined: &Joined) -> Result<String, String> {
    let mut why = String::new();
    let answers = life::wait_until(REACH_TIME, || {
        let asked = Client::connect_to(place, "up").and_then(|mut client| client.ask(&Request::Ping));
        match asked {
            // One that refuses this user answers, too.
            Ok(_) | Err(ClientError::Refused(_)) => true,
            Err(e) => {
                why = e.detail().map_or_else(|| e.to_string(), str::to_owned);
                false
            }
        }
    });
    let problem = || format!("the one at {} does not answer: {why}", joined.addresses());
    if answers { Ok(String::new()) } else { Err(problem()) }
}

/// Starts the controller with the given arguments, unless it runs, and waits until it answers.
pub(super) fn start_controller(place: &Place, further: &[&str]) -> Result<(), String> {
    let daemon = Daemon::Controller;
    let mut started = None;
    let begin = Instant::now();
    loop {
        if is_answering(place) {
            return Ok(());
        }
        daemon.ensure(place, further, &mut started)?;
        if begin.elapsed() > CONTROLLER_TIME {
            return Err(format!("the controller does not answer; see {}", daemon.log_file(place).display()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns whether the controller of this cluster answers. A standby passes that on to the one that leads, and must have a
/// state itself, by which it could take over.
pub(super) fn is_answering(place: &Place) -> bool {
    let answers = Client::connect_own(place, "up").and_then(|mut client| client.ask(&Request::Ping)).is_ok();
    let here = || {
        let mut client = Client::connect_here_to(place, "up")?;
        client.greet()?;
        Ok::<_, ClientError>(client.standby().is_none_or(|standby| standby.age_ms.is_some()))
    };
    answers && here().unwrap_or(true)
}

/// Starts the node daemons that don't run, and waits until all nodes have registered. Returns the number of daemons
/// started.
pub(super) fn start_nodes(place: &Place, config: &Config) -> Result<usize, String> {
    let names = &here(config)?;
    let mut daemons: Vec<_> = life::daemons(config)?.into_iter().map(|daemon| (daemon, None)).collect();
    let begin = Instant::now();
    loop {
        for (daemon, started) in &mut daemons {
            daemon.ensure(place, &[], started)?;
        }
        let late = begin.elapsed() > NODE_TIME;
        let missing = missing_nodes(place, names, late)?;
        if missing.is_empty() {
            return Ok(daemons.iter().filter(|(_, started)| started.is_some()).count());
        }
        if late {
            let log = Daemon::Node(missing[0].clone()).log_file(place);
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let why = text.lines().last().map_or("its log is empty", str::trim);
            let missing = hostlist::compress(&missing);
            return Err(format!("did not register: {missing}; the last line of {}: {why}", log.display()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Starts the login daemon of one of several heads, by which commands here reach the other controllers while its own is
/// away, unless it runs.
fn start_login(place: &Place) -> Result<(), String> {
    let (daemon, socket, mut started) = (Daemon::Login, place.head_socket(), None);
    let listens = || SocketPath::new(&socket).and_then(|path| UnixStream::connect(path.as_path())).is_ok();
    let begun = life::wait_until(NODE_TIME, || daemon.ensure(place, &[], &mut started).is_err() || listens());
    daemon.ensure(place, &[], &mut started)?;
    if begun { Ok(()) } else { Err(format!("{daemon} does not come up; see {}", daemon.log_file(place).display())) }
}

/// Returns the message that the controller has ended, with the reason from its log.
fn ended(place: &Place) -> String {
    let log = Daemon::Controller.log_file(place);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    match text.lines().last().and_then(|line| line.split_once("controller ends: ")) {
        Some((_, why)) => format!("the controller has ended: {why}"),
        None => format!("the controller has ended; see {}", log.display()),
    }
}

/// Returns the names of nodes that have not registered with the controller. Unless `all` is set, all of `names` are
/// returned as long as any node is missing, because nodes are then only counted.
fn missing_nodes(place: &Place, names: &[String], all: bool) -> Result<Vec<String>, String> {
    let answer =
        Client::connect_own(place, "up").and_then(|mut client| match client.ask(&Request::Diag { reset: false })? {
            // Asking for every node's name in each round would be expensive.
            Answer::Diag(diag) if !all && diag.nodes < names.len() as u64 => Ok(Answer::Nodes(Vec::new())),
            _ => client.ask(&Request::Nodes),
        });
    match answer {
        Ok(Answer::Nodes(nodes)) => {
            // After a restart the state still has nodes as up; only a connected one has a version.
            let up = nodes.iter().filter(|n| n.up && !n.version.is_empty()).map(|n| n.name.as_str());
            let up: HashSet<&str> = up.collect();
            Ok(names.iter().filter(|name| !up.contains(name.as_str())).cloned().collect())
        }
        Ok(_) => Err("the controller gave an answer that does not fit the request".into()),
        Err(e) if e.is_transient() => match Daemon::Controller.pid(place) {
            Some(_) => Ok(names.to_vec()),
            None => Err(ended(place)),
        },
        Err(e) => Err(e.to_string()),
    }
}
