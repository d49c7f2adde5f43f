//! Starts, finds and ends the daemons of a cluster on one machine; makes its folders, and lists the names of its nodes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use squall_files::durable;
use squall_files::place::{Place, STATE_VARIABLE};
use squall_files::safe_path::{self, Who};
use squall_files::users;
use squall_model::config::{Config, ControllerConfig, NodeConfig};
use squall_model::hostlist;

use crate::hardware::Machine;
use crate::logging;
use crate::pidfile::living;
use crate::processes;
use crate::starts;
use crate::stepd::LIBRARIES_VARIABLE;
use crate::sys::descriptors;
use crate::sys::host::is_name_of_host;
use crate::trust::Joined;

/// Least number of emulated nodes for each rack process: for fewer nodes a further process is not worth its cost.
const RACK_WORTH: usize = 1000;
/// Interval of checks while waiting for a process.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Bytes from the end of a log that are shown when a daemon fails.
const LOG_TAIL_BYTES: u64 = 4096;
/// Environment variables that daemons keep from the process that starts them.
const KEPT_VARIABLES: &[&str] = &[
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "RUST_BACKTRACE",
    LIBRARIES_VARIABLE,
    logging::VARIABLE,
    #[cfg(debug_assertions)]
    crate::sys::clock::TEST_VARIABLE,
    #[cfg(debug_assertions)]
    crate::hardware::TEST_VARIABLE,
];

/// One daemon of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// The controller.
    Controller,
    /// The front (gateway) of several cells.
    Front,
    /// The supervisor of `squall up --keep`, which starts the other daemons again.
    Supervisor,
    /// The node daemon of the node with this name.
    Node(String),
    /// A rack: emulates nodes in one process. Index of its first node among the emulated ones, and their number.
    Rack(usize, usize),
    /// The daemon of a login host, or that of one of several heads for commands while its controller is away.
    Login,
    /// The HTTP server.
    Rest,
    /// The process that sends mail about jobs.
    Mail,
}

impl std::fmt::Display for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Controller => f.write_str("the controller"),
            Self::Front => f.write_str("the front"),
            Self::Supervisor => f.write_str("the supervisor"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Rack(first, _) => write!(f, "rack {first}"),
            Self::Login => f.write_str("the login daemon"),
            Self::Rest => f.write_str("the HTTP server"),
            Self::Mail => f.write_str("the sender of mail"),
        }
    }
}

impl Daemon {
    /// Returns the daemon of a machine that has joined a cluster.
    pub fn of(joined: &Joined) -> Self {
        if joined.login { Self::Login } else { Self::Node(joined.name.clone()) }
    }
    /// Returns the path of the daemon's pid file.
    pub fn pid_file(&self, place: &Place) -> PathBuf {
        match self {
            Self::Controller => place.controller_pid(),
            Self::Front => place.front_pid(),
            Self::Supervisor => place.supervisor_pid(),
            Self::Node(name) => place.node_pid(name),
            Self::Rack(first, _) => place.rack_pid(first),
            Self::Login => place.login_pid(),
            Self::Rest => place.rest_pid(),
            Self::Mail => place.mail_pid(),
        }
    }
    /// Returns the path of the daemon's log.
    pub fn log_file(&self, place: &Place) -> PathBuf {
        match self {
            Self::Controller => place.log_of("controller"),
            Self::Front => place.log_of("front"),
            Self::Supervisor => place.log_of("supervisor"),
            Self::Node(name) => place.log_of(&format!("node-{name}")),
            Self::Rack(first, _) => place.log_of(&format!("rack-{first}")),
            Self::Login => place.log_of("login"),
            Self::Rest => place.log_of("rest"),
            Self::Mail => place.log_of("mail"),
        }
    }
    /// Returns the daemon's process id, if it runs.
    pub fn pid(&self, place: &Place) -> Option<i32> {
        living(&self.pid_file(place))
    }

    /// Starts the daemon detached from this process: in a session of its own, with its log as standard error.
    /// `further`: arguments beyond those that it always gets.
    pub fn start(&self, place: &Place, further: &[&str]) -> io::Result<StartedDaemon> {
        let path = self.log_file(place);
        let log = logging::open(&path)?;
        let log_start = log.metadata()?.len();
        descriptors::close_others_on_exec();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0("squall");
        match self {
            Self::Controller => command.arg("controller"),
            Self::Front => command.arg("front"),
            Self::Supervisor => command.arg("supervise"),
            Self::Login => command.arg("login"),
            Self::Rest => command.arg("rest"),
            Self::Mail => command.arg("mail"),
            Self::Node(name) => command.arg("node").arg(name),
            Self::Rack(first, count) => {
                command.args(["node".to_owned(), format!("--rack={count}"), format!("--from={first}")])
            }
        };
        command.args([OsStr::new("--detached"), OsStr::new("--state"), place.dir().as_os_str()]).args(further);
        command.env_clear().envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs([starts::variable(place)]);
        command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(StartedDaemon { child: command.spawn()?, log: path, log_start })
    }

    /// Starts the daemon if it doesn't run. Callers repeat this while they wait, since a daemon that was just killed may
    /// seem to run for a moment; `started` makes sure that it is started once.
    pub fn ensure(&self, place: &Place, further: &[&str], started: &mut Option<StartedDaemon>) -> Result<(), String> {
        match started {
            Some(process) => match process.failure() {
                Some(said) => Err(format!("{self} did not start:\n{said}")),
                None => Ok(()),
            },
            None if self.pid(place).is_some() => Ok(()),
            None => {
                *started = Some(self.start(place, further).map_err(|e| format!("cannot start {self}: {e}"))?);
                Ok(())
            }
        }
    }

    /// Returns a handle on the daemon's process, if it runs; never on another process that has got its id.
    pub fn process(&self, place: &Place) -> io::Result<Option<Process>> {
        let Some(pid) = self.pid(place) else { return Ok(None) };
        let Some(id) = Pid::from_raw(pid) else { return Ok(None) };
        let handle = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(fd) => Process(fd),
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // It is still the daemon's id after the handle was made, so the handle is the daemon's.
        Ok((self.pid(place) == Some(pid)).then_some(handle))
    }

    /// Waits until the daemon's pid file shows that it has ended. False: it still runs after `time`. Its process may
    /// need a moment longer; to wait for its end too, take a [`Process`] before.
    pub fn wait_gone(&self, place: &Place, time: Duration) -> bool {
        wait_until(time, || self.pid(place).is_none())
    }
}

/// Handle on the process of a daemon.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Waits until the process has ended. False: the process still runs after `time`.
    pub fn wait(&self, time: Duration) -> io::Result<bool> {
        let start = Instant::now();
        loop {
            let left = Timespec::try_from(time.saturating_sub(start.elapsed())).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Err(rustix::io::Errno::INTR) => {}
                ended => return Ok(ended? > 0),
            }
        }
    }

    /// Sends the process a signal, if it still runs.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Ends the process: with SIGTERM, and with SIGKILL if it still runs after `patience`.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal)?;
            if self.wait(patience)? {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// A daemon that was just started.
#[derive(Debug)]
pub struct StartedDaemon {
    child: Child,
    log: PathBuf,
    log_start: u64,
}

impl StartedDaemon {
    /// Returns the last bytes of the daemon's log if the daemon has ended already; None: it still runs.
    pub fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let said = self.said().unwrap_or_default();
        let last = said.trim();
        Some(if last.is_empty() { format!("it ended with {status}") } else { last.to_owned() })
    }

    fn said(&self) -> io::Result<String> {
        let mut file = fs::File::open(&self.log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(self.log_start.max(end.saturating_sub(LOG_TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Detaches this process, which [`Daemon::start`] has started, from its parent's session. Must be called before
/// anything else.
pub fn detach() {
    // Fails only for the leader of a process group, which is detached enough.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
}

/// Checks repeatedly until `holds` returns true. False: it did not within `time`.
pub fn wait_until(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() >= time {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether steps of a node run, with or without their node daemon.
pub fn has_steps(place: &Place, node: &str) -> bool {
    let steps = place.steps(node);
    !processes::step_daemons(&steps).is_empty() || !processes::marked(&steps).is_empty()
}

/// Kills the remaining step daemons and tasks of a node after its daemon has ended; returns the number of killed
/// processes.
pub fn kill_steps(place: &Place, node: &str) -> usize {
    let steps = place.steps(node);
    let mut killed = 0;
    for (pid, _) in processes::step_daemons(&steps) {
        let folder = steps.clone();
        processes::kill_if(pid, move |pid| processes::step_daemons(&folder).iter().any(|(p, _)| *p == pid));
        killed += 1;
    }
    for (pid, _) in processes::marked(&steps) {
        let folder = steps.clone();
        processes::kill_if(pid, move |pid| processes::mark(pid).is_some_and(|m| m.starts_with(&folder)));
        killed += 1;
    }
    killed
}

/// Returns the default state folder of a cluster: `SQUALL_STATE`, or else the machine's or the user's own.
pub fn default_place() -> io::Result<Place> {
    if let Some(dir) = std::env::var_os(STATE_VARIABLE).filter(|d| !d.is_empty()) {
        return Place::at(Path::new(&dir));
    }
    let uid = rustix::process::getuid().as_raw();
    Place::default_of(uid)
        .ok_or_else(|| io::Error::other(format!("/tmp/squall-{uid} belongs to somebody else: use --state")))
}

/// Refuses a state folder of root's that users can replace by one of theirs: root's daemons would use it.
pub fn check_place(place: &Place) -> Result<(), String> {
    let exposed = safe_path::exposure(place.dir()).filter(|_| users::is_root());
    match exposed {
        Some(exposed) if !matches!(exposed.to, Who::Group(_)) => Err(format!(
            "{exposed}, and with it the state folder {}, which root's daemons use: put it where only root can, as in \
             /var/lib",
            place.dir().display()
        )),
        _ => Ok(()),
    }
}

/// Makes the folders of a cluster. Err: they can't be made, or belong to another user.
pub fn make_folders(place: &Place) -> Result<(), String> {
    let uid = rustix::process::geteuid().as_raw();
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| format!("cannot create {path}: {e}")
    };
    if !place.dir().exists() {
        check_place(place)?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(place.dir()).map_err(failed(place.dir()))?;
    let owner = fs::metadata(place.dir()).map_err(failed(place.dir()))?.uid();
    if owner != uid {
        return Err(format!(
            "{} belongs to user {owner}, not to you (user {uid}): use --state for a folder of your own",
            place.dir().display()
        ));
    }
    check_place(place)?;
    for path in [place.run(), place.log()] {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&path).map_err(failed(&path))?;
    }
    Ok(())
}

/// Removes the folders of a cluster that was not started after all, if there is nothing in them.
pub fn remove_folders(place: &Place) {
    drop(fs::remove_file(place.up_lock()));
    for path in [place.run(), place.log(), place.dir().to_owned()] {
        // One with anything in it stays.
        drop(fs::remove_dir(path));
    }
}

/// Returns the host name or address by which other machines reach the controller's machine.
pub fn reached_as(config: &Config) -> String {
    let told = &config.slurmctld_host.0;
    match told.parse::<std::net::IpAddr>() {
        Ok(address) if address.is_unspecified() => host_name(),
        _ if told.is_empty() => host_name(),
        Ok(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        _ => told.clone(),
    }
}

/// Returns this machine's host name, without the domain.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.split('.').next().filter(|n| !n.is_empty()).unwrap_or("localhost").to_owned()
}

/// Returns the names of all configured nodes; without any, this machine's host name.
pub fn node_names(config: &Config) -> Result<Vec<String>, String> {
    let names = names_where(config, |_| true)?;
    Ok(if names.is_empty() { vec![host_name()] } else { names })
}

/// Returns the names of this machine's nodes that have a node daemon each.
pub fn real_names(config: &Config) -> Result<Vec<String>, String> {
    if config.nodes.is_empty() {
        return Ok(vec![host_name()]);
    }
    let mut names = names_where(config, NodeConfig::starts_here)?;
    names.retain(|name| is_here(config, name));
    Ok(names)
}

/// Whether a node that is not remote is on this machine. Where there are several controllers, it is if it has the name of
/// the controller here, or of this host.
fn is_here(config: &Config, node: &str) -> bool {
    let is_own = |own: &ControllerConfig| own.name() == node;
    !config.has_standbys() || config.own_controller().is_some_and(is_own) || is_name_of_host(node)
}

/// Returns the names of the nodes that racks of this machine emulate. Where there are several controllers, they are on the
/// machine of the first.
pub fn emulated_here(config: &Config) -> Result<Vec<String>, String> {
    let here = !config.has_standbys() || config.own_controller() == config.controllers.0.first();
    if here { emulated_names(config) } else { Ok(Vec::new()) }
}

/// Returns the racks that emulate `nodes` nodes: at most one for each CPU, each with at least `RACK_WORTH` nodes. Fewer
/// nodes have a single rack.
pub fn racks(nodes: usize) -> Vec<Daemon> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = cpus.min(nodes / RACK_WORTH).max(1);
    let each = nodes.div_ceil(parts).max(1);
    (0..nodes).step_by(each).map(|first| Daemon::Rack(first, each.min(nodes - first))).collect()
}

/// Returns the daemons of all nodes on this machine.
pub fn daemons(config: &Config) -> Result<Vec<Daemon>, String> {
    let racks = racks(emulated_here(config)?.len());
    Ok(real_names(config)?.into_iter().map(Daemon::Node).chain(racks).collect())
}

/// Returns the names of the nodes that racks emulate.
pub fn emulated_names(config: &Config) -> Result<Vec<String>, String> {
    names_where(config, |entry| entry.emulated)
}

fn names_where(config: &Config, wanted: impl Fn(&NodeConfig) -> bool) -> Result<Vec<String>, String> {
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    for entry in config.nodes.iter().filter(|entry| wanted(entry)) {
        let found = hostlist::expand(&entry.name).map_err(|e| format!("nodes `{}`: {e}", entry.name))?;
        names.extend(found.into_iter().filter(|name| seen.insert(name.clone())));
    }
    Ok(names)
}

/// Writes the configuration of a new cluster.
pub fn write_config(place: &Place, text: &str) -> Result<(), String> {
    let path = place.config();
    durable::write(&path, text.as_bytes(), 0o644).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Returns the running daemons of a cluster, whether or not its configuration has them.
pub fn living_daemons(place: &Place) -> io::Result<Vec<Daemon>> {
    let entries = match fs::read_dir(place.run()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry?.file_name();
        let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".pid")) else { continue };
        let daemon = match (name, name.split_once('-')) {
            ("controller", _) => Daemon::Controller,
            ("front", _) => Daemon::Front,
            ("supervisor", _) => Daemon::Supervisor,
            ("rest", _) => Daemon::Rest,
            ("mail", _) => Daemon::Mail,
            ("login", _) => Daemon::Login,
            (_, Some(("node", name))) => Daemon::Node(name.to_owned()),
            (_, Some(("rack", first))) => Daemon::Rack(first.parse().unwrap_or(0), 0),
            _ => continue,
        };
        found.extend(daemon.pid(place).is_some().then_some(daemon));
    }
    Ok(found)
}

/// Returns the name of systemd's unit that runs a process of Squall, e.g. `squall-node.service`. None: none does.
pub fn unit_of(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let units = groups.lines().filter_map(|line| line.rsplit('/').next());
    let mut own = units.filter(|unit| unit.starts_with("squall-") && unit.ends_with(".service"));
    own.next().map(str::to_owned)
}

/// Returns the names of nodes that have had a daemon on this machine.
pub fn node_folders(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.node("")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Refuses nodes of this machine that are configured with more hardware than it has.
pub fn check_hardware(config: &Config) -> Result<(), String> {
    let machine = Machine::detect();
    let is_own = |entry: &&NodeConfig| {
        let names = hostlist::expand(&entry.name).unwrap_or_default();
        entry.starts_here() && names.iter().any(|name| is_here(config, name))
    };
    let mut own = config.nodes.iter().filter(is_own);
    match own.find_map(|entry| Some((entry, entry.lack(&machine.hardware)?))) {
        Some((entry, lack)) => Err(format!(
            "nodes `{}`: {} = {}, but this machine has {} ({}): lower it, or set `force = true` to try out what a larger \
             machine would do",
            entry.name, lack.key, lack.configured, lack.found, lack.reason
        )),
        None => Ok(()),
    }
}

/// Returns the configuration of a new cluster: the given text (None: a comment only), with `count` nodes added if it
/// names none. `emulated`: number of further nodes, emulated by racks. `listen`: host name or address, and port, for
/// other machines.
pub fn config_text(
    given: Option<&str>,
    count: Option<u32>,
    emulated: Option<u32>,
    listen: Option<(&str, u16)>,
) -> Result<String, String> {
    let mut text = given.map_or_else(
        || "# Written by `squall up`. Change it as you like; `scontrol reconfigure` reads it again.\n".to_owned(),
        str::to_owned,
    );
    let config = Config::from_toml(&text)?;
    if let Some((host, port)) = listen {
        let told = (config.slurmctld_host.0.as_str(), config.slurmctld_port.0);
        if told == ("", 0) {
            // These keys must precede all sections.
            text = format!("SlurmctldHost = \"{host}\"\nSlurmctldPort = {port}\n\n{text}");
        } else if told != (host, port) {
            return Err(
                "--listen is not the SlurmctldHost and SlurmctldPort that the configuration says: leave one of \
                        them out"
                    .into(),
            );
        }
    }
    if config.nodes.is_empty() {
        if count.is_some() || emulated.is_none() {
            text.push_str(&node_section(count));
        }
        if let Some(emulated) = emulated {
            text.push_str(&rack_section(count.unwrap_or(0) + 1, emulated));
        }
    } else if emulated.is_some() {
        return Err("--rack: the configuration names the nodes; mark those that are emulated there".into());
    } else if count.is_some_and(|n| node_names(&config).is_ok_and(|names| names.len() != n as usize)) {
        return Err("--nodes is not the number of nodes that the configuration names: leave one of them out".into());
    }
    Ok(text)
}

/// Returns a configuration without the lines that [`config_text`] has put before it for `listen`.
pub fn without_listen(text: &str) -> &str {
    let mut rest = text;
    for begin in ["SlurmctldHost = ", "SlurmctldPort = ", ""] {
        match rest.split_once('\n') {
            Some((line, after)) if line.starts_with(begin) && line.is_empty() == begin.is_empty() => rest = after,
            _ => return text,
        }
    }
    rest
}

fn rack_section(first: u32, count: u32) -> String {
    let last = first + count - 1;
    let name = if count == 1 { format!("n{first}") } else { format!("n[{first}-{last}]") };
    format!(
        "\n# Emulated nodes: tasks are timers.\n[[nodes]]\nname = \"{name}\"\nemulated = true\ncpus = 16\nmemory_mb = 65536\n"
    )
}

fn node_section(count: Option<u32>) -> String {
    match count {
        None => format!("\n[[nodes]]\nname = \"{}\"\n", host_name()),
        Some(count) => {
            let share = Machine::detect().hardware.memory_mb / u64::from(count.max(1));
            let name = if count == 1 { "n1".to_owned() } else { format!("n[1-{count}]") };
            format!(
                "\n# Each node has this machine's CPUs and its share of the memory.\n[[nodes]]\nname = \"{name}\"\nmemory_mb = {}\n",
                share.max(1)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Daemon, KEPT_VARIABLES, daemons, real_names};
    use squall_model::config::Config;

    // Jobs' variables never reach a daemon: they are a file of the step, read by what is the user already.
    #[test]
    fn cve_2017_15566_2021_31215_daemons_get_no_variable_of_whoever_starts_them() {
        let kept = ["PATH", "LANG", "LC_ALL", "TZ", "RUST_BACKTRACE"];
        let others = KEPT_VARIABLES.iter().filter(|name| !kept.contains(name));
        for name in others {
            assert!(name.starts_with("SQUALL_") || *name == "LD_LIBRARY_PATH", "{name}");
        }
        assert!(!KEPT_VARIABLES.iter().any(|name| ["LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "IFS"].contains(name)));
    }

    #[test]
    fn each_of_several_heads_has_the_node_of_its_name_and_the_first_the_racks() {
        let text = "[[controllers]]\nname = \"head1\"\naddress = \"10.0.0.1:6817\"\n[[controllers]]\nname = \"head2\"\n\
                    address = \"10.0.0.2:6817\"\n[[nodes]]\nname = \"head[1-2]\"\n[[nodes]]\nname = \"n[1-9]\"\n\
                    remote = true\n[[nodes]]\nname = \"r[1-4]\"\nemulated = true\n";
        let config = Config::from_toml(text).unwrap();
        let of = |name: &str| config.clone().as_controller(name).unwrap();
        assert_eq!(real_names(&of("head2")), Ok(vec!["head2".to_owned()]));
        assert_eq!(daemons(&of("head1")), Ok(vec![Daemon::Node("head1".to_owned()), Daemon::Rack(0, 4)]));
        assert_eq!(daemons(&of("head2")), Ok(vec![Daemon::Node("head2".to_owned())]));
    }
}
