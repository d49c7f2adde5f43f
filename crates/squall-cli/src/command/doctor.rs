//! `squall doctor`: checks this machine and the cluster's daemons on it, and says what to do.

mod exposed;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use squall_engine::replica::MAKE_ROOM;
use squall_files::place::Place;
use squall_host::checkup::{self, Confinement};
use squall_host::controld::check_config;
use squall_host::controld::etcd::{CLOSE_ETCD, look_at_etcd};
use squall_host::life::{self, Daemon};
use squall_host::listening::Listening;
use squall_host::trust::{Joined, Trust};
use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::Diag;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use squall_client::Client;

/// `squall doctor`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall doctor",
    about: "check this machine and its daemons, and say what to do",
    synopsis: &["[--state=DIR] [--json]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Checks this machine and the cluster's daemons on it. A line for each check: ok, warn or FAIL, and what to do. Exit code 1: a \
check has failed. Changes nothing. Root sees all; other users see less.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise the cluster that commands talk to)"),
    flag("json", '\0', Arg::None, "print the same as JSON: an array of objects with check, result, finding and remedy"),
];

/// Timeout for connecting to a port.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Greatest difference between the clocks of this machine and the controller's, microseconds: tokens and `--begin` use
/// the controller's.
const CLOCKS_APART_US: u64 = 5_000_000;
/// Free space of the state folder's disk below which a warning is given, and below which the check fails, MiB.
const DISK_MB: (u64, u64) = (2048, 256);
/// Hard limit of open files below which a daemon may run short: a controller has a connection for each node and command.
const FILES_MIN: u64 = 65_536;
/// Hard limit of processes of a user below which jobs with many threads may fail.
const PROCESSES_MIN: u64 = 4096;

/// Runs `squall doctor`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let mut failed = false;
    let code = super::own(&PAGE, args, |given| {
        super::no_operand(&PAGE, given)?;
        let findings = examine(&super::found_place(given)?);
        failed = findings.iter().any(|finding| finding.result == Outcome::Fail);
        Ok(if given.has("json") { in_json(&findings) } else { in_lines(&findings) })
    });
    if failed { ExitCode::FAILURE } else { code }
}

/// Result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    Warn,
    Fail,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    check: &'static str,
    result: Outcome,
    text: String,
    /// What to do. Empty: nothing.
    remedy: String,
}

fn ok(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, result: Outcome::Ok, text: text.into(), remedy: String::new() }
}

fn warn(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, result: Outcome::Warn, text: text.into(), remedy: remedy.into() }
}

fn fail(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, result: Outcome::Fail, text: text.into(), remedy: remedy.into() }
}

fn in_lines(findings: &[Finding]) -> String {
    findings.iter().fold(String::new(), |mut text, finding| {
        let remedy = if finding.remedy.is_empty() { String::new() } else { format!(": {}", finding.remedy) };
        let _ = writeln!(text, "{:<4} {:<9} {}{remedy}", finding.result.word(), finding.check, finding.text);
        text
    })
}

fn in_json(findings: &[Finding]) -> String {
    let object = |finding: &Finding| {
        json!({
            "check": finding.check,
            "result": finding.result.word(),
            "finding": finding.text,
            "remedy": finding.remedy,
        })
    };
    let all: Vec<_> = findings.iter().map(object).collect();
    format!("{:#}\n", serde_json::Value::Array(all))
}

/// What is known of the cluster before the checks.
struct Site<'a> {
    place: &'a Place,
    /// The configuration; defaults if there is none, or a wrong one.
    config: Config,
    /// The controller that this machine has joined.
    joined: Option<Joined>,
    /// Daemons that run on this machine.
    daemons: Vec<(Daemon, i32)>,
}

impl Site<'_> {
    /// Whether machines other than this one can be part of the cluster.
    fn is_wide(&self) -> bool {
        self.joined.is_some() || self.config.slurmctld_port.0 != 0
    }

    /// Whether this user may see which daemons run.
    fn sees_daemons(&self) -> bool {
        super::owned(self.place).is_ok()
    }

    /// Names of the nodes of this machine.
    fn nodes(&self) -> Vec<String> {
        match &self.joined {
            Some(joined) => vec![joined.name.clone()],
            None => life::real_names(&self.config).unwrap_or_default(),
        }
    }
}

/// Runs all checks.
fn examine(place: &Place) -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = configuration(place, &mut findings);
    let joined = Trust::of(place).joined().ok().flatten();
    let living = life::living_daemons(place).unwrap_or_default();
    let daemons = living.into_iter().filter_map(|daemon| daemon.pid(place).map(|pid| (daemon, pid))).collect();
    let site = Site { place, config, joined, daemons };
    running(&site, &mut findings);
    clocks(&site, &mut findings);
    names(&site, &mut findings);
    findings.push(port(&site));
    findings.extend(dashboard(&site));
    findings.push(disk(place));
    keys(place, &mut findings);
    if site.config.has_standbys() {
        etcd(&site.config, &mut findings);
    }
    limits(&site, &mut findings);
    enforcement(&site, &mut findings);
    exposed::look(&site, &mut findings);
    findings
}

/// Checks the configuration, and returns it.
fn configuration(place: &Place, findings: &mut Vec<Finding>) -> Config {
    let path = place.config().display().to_string();
    if !place.config().exists() {
        if place.cells().is_ok_and(|cells| !cells.is_empty()) {
            findings.push(ok("config", "the cluster is divided into cells, which have a configuration each"));
        } else {
            findings.push(warn("config", format!("{path} is missing"), "write it, or let `squall up` do so"));
        }
        return Config::default();
    }
    match check_config(place) {
        Ok(checked) => {
            let odd: Vec<&str> = checked.oddities.iter().chain(&checked.notices).map(String::as_str).collect();
            findings.push(if odd.is_empty() {
                ok("config", path)
            } else {
                warn("config", odd.join("; "), format!("correct it in {path}"))
            });
            checked.config
        }
        Err(e) => {
            findings.push(fail("config", e.to_string(), "correct it, then `scontrol reconfigure`"));
            Config::default()
        }
    }
}

/// Checks that the daemons run, answer, and are of this binary's version.
fn running(site: &Site<'_>, findings: &mut Vec<Finding>) {
    let start = "start it: `systemctl start`, or `squall up`";
    if !site.sees_daemons() {
        findings.push(ok("daemons", "only the cluster's owner and root see which run"));
    } else if site.daemons.is_empty() {
        let remedy = "start them: `systemctl start squall-controller squall-node`, or `squall up`";
        findings.push(warn("daemons", "no daemon of the cluster runs on this machine", remedy));
    }
    for (daemon, pid) in &site.daemons {
        findings.push(match is_this_binary(*pid) {
            Some(true) => ok("daemons", format!("{daemon} runs as process {pid}, of this version")),
            Some(false) => warn(
                "daemons",
                format!("{daemon} (process {pid}) runs another binary than this one"),
                "restart it after an upgrade; running jobs go on",
            ),
            None => ok("daemons", format!("{daemon} runs as process {pid}")),
        });
    }
    let runs = |wanted: &Daemon| site.daemons.iter().any(|(daemon, _)| daemon == wanted);
    if site.config.has_standbys() && !site.daemons.is_empty() {
        for (daemon, meanwhile) in [
            (Daemon::Controller, "another one leads, and this one can't take over"),
            (Daemon::Login, "commands here fail while the controller of this head is away"),
        ] {
            if !runs(&daemon) {
                let remedy = "`squall up`, or `systemctl enable --now squall-controller squall-login`";
                findings.push(warn("daemons", format!("{daemon} does not run on this head: {meanwhile}"), remedy));
            }
        }
    }
    let controller = !site.sees_daemons() || runs(&Daemon::Controller) || runs(&Daemon::Front);
    let asked = Client::connect_to(site.place, "doctor").and_then(|mut client| client.ask(&Request::Ping));
    match asked {
        Ok(Answer::Pong { version, trouble, host, records, .. }) => {
            findings.push(match trouble {
                None => ok("answers", format!("the controller on {host}, version {version}")),
                Some(trouble) => fail("answers", format!("the controller refuses submissions: {trouble}"), "make room"),
            });
            let remedy = "nothing is lost: what it lacks is in the journal, and follows";
            findings.extend(records.map(|why| warn("records", why, remedy)));
            findings.extend(versions(site, &version));
        }
        Ok(_) => {}
        Err(e) if controller => {
            let why = e.lines("it refuses").first().cloned().unwrap_or_default();
            findings.push(fail("answers", format!("the controller does not answer: {why}"), "see its log"));
        }
        // A machine that has joined has no controller of its own.
        Err(_) if site.joined.is_some() => {}
        Err(_) => findings.push(warn("answers", "the controller does not run here", start)),
    }
}

/// Compares the versions of all nodes with the controller's. None: they can't be had.
fn versions(site: &Site<'_>, ours: &str) -> Option<Finding> {
    let answer = Client::connect_to(site.place, "doctor").and_then(|mut client| client.ask(&Request::Nodes)).ok()?;
    let Answer::Nodes(nodes) = answer else { return None };
    let away: Vec<String> = nodes.iter().filter(|node| !node.up).map(|node| node.name.clone()).collect();
    let other = nodes.iter().filter(|node| !node.version.is_empty() && node.version != ours);
    let other: Vec<String> = other.map(|node| node.name.clone()).collect();
    Some(if !other.is_empty() {
        let names = hostlist::compress(&other);
        warn(
            "versions",
            format!("{names}: not of the controller's version {ours}"),
            "upgrade and restart their daemons",
        )
    } else if !away.is_empty() {
        warn("nodes", format!("down: {}", hostlist::compress(&away)), "see `sinfo -R`, and their logs")
    } else {
        ok("versions", format!("all {} nodes have the controller's version", nodes.len()))
    })
}

/// Whether a process runs the same file as this one. None: it can't be told.
fn is_this_binary(pid: i32) -> Option<bool> {
    let identity = |path: String| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    Some(identity(format!("/proc/{pid}/exe"))? == identity("/proc/self/exe".to_owned())?)
}

fn clocks(site: &Site<'_>, findings: &mut Vec<Finding>) {
    let remedy = "run chrony or systemd-timesyncd";
    findings.push(match checkup::clock_is_synchronised() {
        Some(true) => ok("clock", "synchronised"),
        Some(false) if site.is_wide() => warn("clock", "not synchronised with other machines", remedy),
        Some(false) => ok("clock", "not synchronised; no other machine is in the cluster"),
        None => warn("clock", "the kernel does not say whether it is synchronised", remedy),
    });
    let asked = Client::connect_to(site.place, "doctor").and_then(|mut c| c.ask(&Request::Diag { reset: false }));
    if let (Ok(Answer::Diag(diag)), Ok(now)) = (asked, SystemTime::now().duration_since(UNIX_EPOCH)) {
        let apart = (now.as_micros() as u64).abs_diff(diag.now.0);
        if apart > CLOCKS_APART_US {
            let text = format!("{} s away from the controller's", apart / 1_000_000);
            findings.push(fail("clock", text, remedy));
        }
        findings.extend(restored(&diag));
    }
}

/// Says whether the state was restored from a backup, and by a release that could run jobs again.
fn restored(diag: &Diag) -> Option<Finding> {
    let (time, _) = diag.restored?;
    let when = Timestamp::from_second(time.secs().cast_signed()).unwrap_or_default();
    let when = when.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S");
    Some(match diag.restored_by_count() {
        None => ok("restored", format!("from a backup, or without its end, on {when}")),
        Some(_) => warn(
            "restored",
            format!("from a backup on {when}, by a release that ran ended jobs again when a backup was restored twice"),
            "compare `sacct --duplicates` of the jobs from that time with what they have written; \
             restore the next time with this release",
        ),
    })
}

/// Checks that this host's name, and the controller's, lead to addresses that others can use.
fn names(site: &Site<'_>, findings: &mut Vec<Finding>) {
    let own = life::host_name();
    findings.push(match addresses(&own) {
        Err(e) if site.is_wide() => {
            fail("names", format!("{own} (this host) has no address: {e}"), "add it to /etc/hosts or DNS")
        }
        Err(e) => warn("names", format!("{own} (this host) has no address: {e}"), "add it to /etc/hosts"),
        Ok(found) if site.is_wide() && found.iter().all(IpAddr::is_loopback) => warn(
            "names",
            format!("{own} (this host) is {}: other machines can't use that", list(&found)),
            "give it its address in /etc/hosts or DNS",
        ),
        Ok(found) => ok("names", format!("{own} (this host) is {}", list(&found))),
    });
    let host = |address: &String| address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let controllers: Vec<String> = match &site.joined {
        Some(joined) => joined.controllers.iter().filter_map(host).collect(),
        None if site.is_wide() => {
            let all = site.config.controller_addresses().filter_map(|address| host(&address.to_owned()));
            std::iter::once(life::reached_as(&site.config)).chain(all).collect()
        }
        None => Vec::new(),
    };
    let mut seen = vec![own];
    for host in controllers {
        if seen.contains(&host) {
            continue;
        }
        seen.push(host.clone());
        findings.push(match addresses(&host) {
            Ok(found) => ok("names", format!("{host} (the controller) is {}", list(&found))),
            Err(e) => fail(
                "names",
                format!("{host} (the controller) has no address: {e}"),
                "correct SlurmctldHost, or add it to /etc/hosts or DNS",
            ),
        });
    }
}

fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found: Vec<IpAddr> = (host, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Checks the controller's port for other machines.
fn port(site: &Site<'_>) -> Finding {
    if let Some(joined) = &site.joined {
        return reached(&joined.controllers);
    }
    let port = site.config.slurmctld_port.0;
    if !site.is_wide() {
        return ok("ports", "none: the cluster is on this machine only (SlurmctldPort is not set)");
    }
    if !site.sees_daemons() || site.daemons.iter().any(|(daemon, _)| *daemon == Daemon::Controller) {
        let address = format!("{}:{port}", life::reached_as(&site.config));
        let remedy = "check SlurmctldHost, SlurmctldPort and the firewall";
        return match connect(&address) {
            Ok(()) => ok("ports", format!("the controller listens on {address}")),
            Err(e) => fail("ports", format!("the controller's {address} can't be reached: {e}"), remedy),
        };
    }
    match TcpListener::bind(("0.0.0.0", port)) {
        Ok(_) => ok("ports", format!("{port} is free for the controller")),
        Err(e) => {
            fail("ports", format!("{port}, the controller's, can't be had: {e}"), "end what uses it (`ss -ltnp`)")
        }
    }
}

/// Checks that the HTTP server listens at its addresses, and nobody else. None: the cluster has none here.
fn dashboard(site: &Site<'_>) -> Option<Finding> {
    let rest = &site.config.rest.0;
    if !rest.is_on() || site.joined.is_some() {
        return None;
    }
    let log = Daemon::Rest.log_file(site.place);
    Some(match Listening::of(site.place, rest).fault() {
        None => ok("dashboard", format!("the HTTP server listens at {}", rest.listen)),
        Some(fault) => fail("dashboard", fault, format!("start it: `squall up`; its log is {}", log.display())),
    })
}

/// Checks that controllers on other machines can be reached.
fn reached(controllers: &[String]) -> Finding {
    let remedy = "start the controller, or open the port in its firewall";
    let missing: Vec<String> = controllers
        .iter()
        .filter_map(|address| Some(format!("the controller's {address} can't be reached: {}", connect(address).err()?)))
        .collect();
    match missing.len() {
        0 => ok("ports", format!("the controller's {} can be reached", controllers.join(", "))),
        several if several == controllers.len() => fail("ports", missing.join("; "), remedy),
        _ => warn("ports", missing.join("; "), remedy),
    }
}

fn connect(address: &str) -> io::Result<()> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for one in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&one, CONNECT_TIME) {
            Ok(_) => return Ok(()),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Checks the free space of the state folder's disk.
fn disk(place: &Place) -> Finding {
    let dir = place.dir().display();
    let existing = place.dir().ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let Ok(disk) = rustix::fs::statvfs(existing) else {
        return fail("disk", format!("{dir} can't be read"), "check its file system");
    };
    let free = (disk.f_bavail * disk.f_frsize) >> 20;
    let text = format!("{dir} has {free} MiB free");
    match free {
        _ if free < DISK_MB.1 => fail("disk", text, "make room: without it submissions are refused"),
        _ if free < DISK_MB.0 => warn("disk", text, "make room"),
        _ => ok("disk", text),
    }
}

/// Checks that the etcd of several controllers answers, has room, and takes nothing from strangers.
fn etcd(config: &Config, findings: &mut Vec<Finding>) {
    let seen = match look_at_etcd(config) {
        Ok(seen) => seen,
        Err(e) => return findings.push(warn("etcd", e, "correct [log], or run `squall doctor` as root")),
    };
    if !seen.roomless.is_empty() {
        let text = format!("has no room, so nothing can be decided: {}", seen.roomless.join("; "));
        findings.push(fail("etcd", text, format!("as etcd's administrator {MAKE_ROOM}")));
    }
    if !seen.silent.is_empty() {
        let result = if seen.fine.is_empty() { fail } else { warn };
        findings.push(result("etcd", seen.silent.join("; "), "see etcd's log, and [log] in the configuration"));
    }
    match seen.is_open() {
        Some(open) => findings.push(warn("etcd", open, CLOSE_ETCD)),
        None if !seen.fine.is_empty() => {
            findings.push(ok("etcd", format!("takes nothing from strangers: {}", seen.fine.join(", "))));
        }
        None => {}
    }
}

/// Checks that keys can be read by the cluster's owner only.
fn keys(place: &Place, findings: &mut Vec<Finding>) {
    let folder = place.keys();
    let owner = std::fs::metadata(place.dir()).map(|meta| meta.uid()).unwrap_or_default();
    let Ok(meta) = std::fs::metadata(&folder) else {
        findings.push(ok("keys", "none yet: no other machine has been invited"));
        return;
    };
    let mut wrong = Vec::new();
    let mut look = |path: &Path, meta: &std::fs::Metadata| {
        if meta.uid() != owner || meta.permissions().mode() & 0o077 != 0 {
            wrong.push(path.display().to_string());
        }
    };
    look(&folder, &meta);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) => {
            let text = format!("{} can't be read: {e}", folder.display());
            findings.push(warn("keys", text, "run `squall doctor` as the cluster's owner"));
            return;
        }
    };
    for entry in entries.flatten() {
        // Folders hold public keys and hashes of invitations; the outer folder keeps them closed.
        if let Some(meta) = entry.metadata().ok().filter(std::fs::Metadata::is_file) {
            look(&entry.path(), &meta);
        }
    }
    let safe = || ok("keys", format!("{} is closed to other users", folder.display()));
    findings.push(if wrong.is_empty() {
        safe()
    } else {
        fail(
            "keys",
            format!("other users can read, or own, {}", wrong.join(", ")),
            format!("chown -R {owner} {0}; chmod -R go= {0}", folder.display()),
        )
    });
}

/// Checks the resource limits of the daemons, which jobs inherit; of this process where no daemon runs.
fn limits(site: &Site<'_>, findings: &mut Vec<Finding>) {
    let own = [("this shell".to_owned(), "self".to_owned(), true)];
    let daemons = site.daemons.iter().filter(|(daemon, _)| !matches!(daemon, Daemon::Supervisor | Daemon::Rack(..)));
    // Tasks inherit a node daemon's limits.
    let daemons = daemons.map(|(daemon, pid)| (daemon.to_string(), pid.to_string(), matches!(daemon, Daemon::Node(_))));
    let all: Vec<(String, String, bool)> = if site.daemons.is_empty() { own.into() } else { daemons.collect() };
    for (who, pid, has_jobs) in all {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/limits")) else {
            let remedy = "run `squall doctor` as root";
            findings.push(warn("limits", format!("those of {who} can't be read"), remedy));
            continue;
        };
        let low = low_limits(&text, has_jobs);
        findings.push(if low.is_empty() {
            ok("limits", format!("those of {who} are high enough"))
        } else {
            warn(
                "limits",
                format!("{who}: {}", low.join(", ")),
                "raise them in the unit (LimitNOFILE=, LimitNPROC=, LimitMEMLOCK=) or in limits.conf, then restart",
            )
        });
    }
}

/// Returns the hard limits in a text of `/proc/PID/limits` that are lower than they should be; those of processes and
/// locked memory only of a daemon that has jobs.
fn low_limits(text: &str, has_jobs: bool) -> Vec<String> {
    let wanted = [
        ("Max open files", FILES_MIN, "open files"),
        ("Max processes", PROCESSES_MIN, "processes"),
        ("Max locked memory", u64::MAX, "bytes of locked memory, of which RDMA needs more"),
    ];
    let mut low = Vec::new();
    for (name, least, what) in &wanted[..if has_jobs { 3 } else { 1 }] {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let Some(hard) = line.and_then(|line| line.split_whitespace().nth(1)) else { continue };
        if hard.parse::<u64>().is_ok_and(|hard| hard < *least) {
            low.push(format!("at most {hard} {what}"));
        }
    }
    low
}

/// Says what of a job's resources is enforced on this machine.
fn enforcement(site: &Site<'_>, findings: &mut Vec<Finding>) {
    let nodes = site.nodes();
    if nodes.is_empty() {
        return;
    }
    let found = match Confinement::detect() {
        Ok(found) => found,
        Err(e) => {
            findings.push(warn("cgroups", format!("can't be read: {e}"), "mount /proc and /sys/fs/cgroup"));
            return;
        }
    };
    let v2 = "boot with systemd.unified_cgroup_hierarchy=1, and run the node daemon as root or with Delegate=yes";
    findings.push(match &found.unified {
        Some(dir) => ok("cgroups", format!("v2 in {}: a job's processes can't leave it", dir.display())),
        None => warn("cgroups", "no v2 group that may be used: processes are followed by parent and environment", v2),
    });
    findings.push(match &found.memory {
        Some(dir) => ok("memory", format!("enforced by the kernel ({})", dir.display())),
        None => warn("memory", "not enforced by the kernel: it is watched, and a job over its limit is killed", v2),
    });
    let bound = nodes.len() == 1 || nodes.iter().all(|node| checkup::binds_tasks(node));
    findings.push(match (bound, found.cpuset) {
        (true, true) => ok("cores", "enforced by the kernel (cpuset)"),
        (true, false) => warn("cores", "tasks are bound to theirs, but can undo it (`taskset`): no cpuset", v2),
        (false, _) => warn(
            "cores",
            format!("not bound: {} is not named after this host", hostlist::compress(&nodes)),
            "name the node after the host; several nodes on one machine are for trying out",
        ),
    });
    if !site.config.gres.is_empty() {
        let said = "`scontrol show node` says how";
        let open = "not enforced: a job is told which are its own, but may open device files of others";
        findings.push(match (site.config.constrain_devices, found.devices) {
            (Some(false), _) => warn("devices", open, "leave out constrain_devices = false"),
            (_, true) => ok("devices", format!("jobs can't open device files that they do not hold ({said})")),
            (_, false) => warn("devices", open, "run the node daemon as root"),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use squall_files::place::Place;

    use squall_model::id::Epoch;
    use squall_model::time::Time;
    use squall_model::wire::info::Diag;

    use super::{Outcome, connect, fail, in_json, in_lines, keys, low_limits, ok, restored, warn};

    #[test]
    fn a_line_for_each_check() {
        let findings =
            [ok("clock", "synchronised"), warn("disk", "90 MiB free", "make room"), fail("keys", "open", "close them")];
        assert_eq!(
            in_lines(&findings),
            "ok   clock     synchronised\nwarn disk      90 MiB free: make room\nFAIL keys      open: close them\n"
        );
        let json: serde_json::Value = serde_json::from_str(&in_json(&findings)).unwrap();
        assert_eq!(json[2]["result"], "FAIL");
        assert_eq!(json[1]["remedy"], "make room");
        assert_eq!(json.as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn r1_a_restoration_by_a_release_that_counted_epochs_is_warned_of() {
        let at = |epoch| Diag { restored: Some((Time::from_secs(1_790_000_000), Epoch(epoch))), ..Diag::default() };
        assert_eq!(restored(&Diag::default()), None);
        assert_eq!(restored(&at(1_000_001)).map(|finding| finding.result), Some(Outcome::Warn));
        assert_eq!(restored(&at(1_790_000_000_000_000)).map(|finding| finding.result), Some(Outcome::Ok));
    }

    #[test]
    fn low_hard_limits_are_named() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             1000                 1000                 processes \n\
                    Max open files            1024                 4096                 files     \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(low_limits(text, false), ["at most 4096 open files"]);
        assert_eq!(low_limits(text, true), ["at most 4096 open files", "at most 1000 processes"]);
        assert!(low_limits("", true).is_empty());
    }

    #[test]
    fn keys_that_others_can_read_fail() {
        let dir = std::env::temp_dir().join(format!("squall-doctor-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        std::fs::create_dir_all(place.keys()).unwrap();
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let key = place.keys().join("controller");
        std::fs::write(&key, "secret").unwrap();
        let outcome = |folder, file| {
            set(&key, file);
            set(&place.keys(), folder);
            let mut findings = Vec::new();
            keys(&place, &mut findings);
            (findings[0].result, findings[0].text.clone())
        };
        assert_eq!(outcome(0o700, 0o600).0, Outcome::Ok);
        let (result, text) = outcome(0o700, 0o644);
        assert_eq!(result, Outcome::Fail);
        assert!(text.contains("keys/controller"), "{text}");
        assert_eq!(outcome(0o755, 0o600).0, Outcome::Fail);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_closed_port_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        connect(&address).unwrap();
        drop(listener);
        connect(&address).unwrap_err();
    }
}
