//! `squall rest`: the HTTP server in the foreground; `squall web`: a link to its dashboard.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use squall_files::place::Place;
use squall_host::controld::read_config;
use squall_host::gone;
use squall_host::life::{self, Daemon};
use squall_host::listening::Listening;
use squall_host::trust::Trust;
use squall_host::{logging, privileges, server, service};
use squall_model::config::{Config, Rest};
use squall_model::wire::client::{Answer, HostRequest};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use super::daemons::{hold, not_joined};
use squall_client::{Client, unexpected};

/// `squall rest`, for its help, manual page and completion.
pub(crate) static REST: Page = Page {
    name: "squall rest",
    about: "run the HTTP server in the foreground: REST, metrics, dashboard",
    synopsis: &["[--state=DIR]"],
    options: page::Options::Own(REST_FLAGS),
    notes: "\
Listens where `listen` in [rest] of squall.toml says; its log goes to standard error. `squall up` starts it in the background. \
Started by root it becomes the user that [rest] names (otherwise `nobody`). It acts only as the user of a request, by the token \
or connection that comes with it, and holds no state: it may be ended and started at any time.
",
};

const REST_FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
    flag("detached", '\0', Arg::None, ""),
];

/// `squall web`, for its help, manual page and completion.
pub(crate) static WEB: Page = Page {
    name: "squall web",
    about: "print a link that logs you in to the dashboard",
    synopsis: &["[--state=DIR]"],
    options: page::Options::Own(WEB_FLAGS),
    notes: "\
The link is good for two minutes and for one browser. The browser that opens it is logged in as you for twelve hours, or until \
`scontrol token revoke`. `squall up --web PORT` switches the dashboard on.
",
};

const WEB_FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise the one that commands talk to)"),
];

/// Time within which the server must listen.
const START_TIME: Duration = Duration::from_secs(30);

/// Timeout for the server to end after each signal.
const END_TIME: Duration = Duration::from_secs(3);

/// Runs `squall rest`.
pub(crate) fn rest(args: &[OsString]) -> ExitCode {
    super::own(&REST, args, |given| {
        super::no_operand(&REST, given)?;
        if given.has("detached") {
            life::detach();
        }
        let place = super::place(given.last("state").map(std::path::Path::new))?;
        not_joined(&place, &Daemon::Rest)?;
        let config = read_config(&place).map_err(|e| e.to_string())?;
        let rest = &config.rest.0;
        if !rest.is_on() {
            let path = place.config();
            return Err(format!("{}: [rest] has no `listen`: `squall up --web PORT` adds one", path.display()));
        }
        // Before it listens: what listens is taken for a server that answers.
        privileges::check_reach(rest.user(), &place)?;
        let listeners = squall_rest::bind(rest)?;
        let host =
            Some(config.slurmctld_host.0.clone()).filter(|host| !host.is_empty()).unwrap_or_else(life::host_name);
        logging::start(given.has("detached").then(|| Daemon::Rest.log_file(&place)))?;
        for warning in squall_rest::exposed_sockets(rest) {
            tracing::warn!("{warning}");
        }
        let _pid = hold(&place, &Daemon::Rest)?;
        let secret = server::introduce(&place, listeners.sockets())
            .map_err(|e| format!("{}: {e}", place.rest_key().display()))?;
        privileges::leave_no_core();
        let place = privileges::give_up(rest.user(), &place)?;
        privileges::confine(&place, false);
        gone::end_with(&place, "the HTTP server", || {});
        squall_rest::run(place, (host, &secret), listeners, service::ready)
            .map_err(|e| format!("the HTTP server ends: {e}"))?;
        Ok(String::new())
    })
}

/// Runs `squall web`.
pub(crate) fn web(args: &[OsString]) -> ExitCode {
    super::own(&WEB, args, |given| {
        super::no_operand(&WEB, given)?;
        let place = super::found_place(given)?;
        // Only root may read the keys of root's cluster.
        let hidden = |e: std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        if !Trust::of(&place).joined().is_err_and(hidden) {
            not_joined(&place, &Daemon::Rest)?;
        }
        let config = read_config(&place).map_err(|e| e.to_string())?;
        let Some(address) = address(&config.rest.0) else {
            return Err(format!(
                "the HTTP server listens on no port: `squall up --web PORT`, or `listen` in [rest] of {}",
                place.config().display()
            ));
        };
        // Whoever else listens there would get the log-in of whoever opens the link.
        if let Some(fault) = Listening::of(&place, &config.rest.0).fault() {
            return Err(format!("{fault}; a link is for this cluster's HTTP server: start it with `squall up`"));
        }
        let request = HostRequest::Token { user: None, lifespan_s: None, link: true };
        let answer = Client::connect_to(&place, "web").and_then(|mut client| client.ask(&request));
        match answer.map_err(|e| e.lines("web").join("\n"))? {
            Answer::Token(token) => Ok(format!("{address}/login?link={token}\n")),
            _ => Err(unexpected().to_string()),
        }
    })
}

/// Returns the address of the dashboard, as `http://127.0.0.1:6820`. None: the server listens on no port.
fn address(rest: &Rest) -> Option<String> {
    let scheme = if rest.certificate.is_empty() { "http" } else { "https" };
    let address = rest.addresses().find(|address| !address.starts_with("unix:"))?;
    let own = |any: &str| address.strip_prefix(any).map(|port| format!("{}:{port}", life::host_name()));
    let reached = own("0.0.0.0:").or_else(|| own("[::]:")).unwrap_or_else(|| address.to_owned());
    Some(format!("{scheme}://{reached}"))
}

/// Adds the HTTP server on a port of this machine to the configuration, unless it listens there already.
pub(super) fn switch_on(place: &Place, port: u16) -> Result<(), String> {
    let path = place.config();
    let config = read_config(place).map_err(|e| e.to_string())?;
    let rest = &config.rest.0;
    if rest.is_on() {
        let end = format!(":{port}");
        if rest.addresses().any(|address| address.ends_with(&end)) {
            return Ok(());
        }
        return Err(format!("--web: the HTTP server listens at {}: see [rest] in {}", rest.listen, path.display()));
    }
    let new = Rest { listen: format!("127.0.0.1:{port}"), ..Rest::default() };
    if let Some(taken) = Listening::of(place, &new).foreign() {
        return Err(taken);
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let added = format!("{}\n\n[rest]\nlisten = \"127.0.0.1:{port}\"\n", text.trim_end());
    // A table that is there already is changed by its author.
    Config::from_toml(&added)
        .map_err(|_| format!("--web: set `listen = \"127.0.0.1:{port}\"` in [rest] of {}", path.display()))?;
    life::write_config(place, &added)
}

/// Starts the HTTP server in the background if the configuration has one; returns the lines to print.
pub(super) fn start(place: &Place) -> Result<String, String> {
    let config = read_config(place).map_err(|e| e.to_string())?;
    let rest = &config.rest.0;
    if !rest.is_on() {
        return Ok(String::new());
    }
    let (daemon, listening) = (Daemon::Rest, Listening::of(place, rest));
    let (mut started, mut ended, mut fault) = (None, None, None);
    life::wait_until(START_TIME, || {
        ended = daemon.ensure(place, &[], &mut started).err();
        fault = if ended.is_none() { listening.fault() } else { None };
        ended.is_some() || fault.is_none()
    });
    let log = daemon.log_file(place);
    if let Some(said) = ended {
        let last = said.lines().last().unwrap_or_default().trim_start_matches("squall rest: error: ");
        return Err(listening.foreign().unwrap_or_else(|| format!("{last}; see {}", log.display())));
    }
    if let Some(fault) = fault {
        return Err(format!("{fault}; see {}", log.display()));
    }
    for warning in squall_rest::exposed_sockets(rest) {
        eprintln!("squall up: warning: {warning}");
    }
    Ok(match address(rest) {
        Some(address) => format!("dashboard and REST at {address} (`squall web` logs you in)\n"),
        None => format!("REST at {}\n", rest.listen),
    })
}

/// Ends the HTTP server, if it runs.
pub(super) fn end(place: &Place) -> Result<(), String> {
    let daemon = Daemon::Rest;
    if let Some(process) = daemon.process(place).map_err(|e| format!("{daemon} can't be watched: {e}"))? {
        process.end(END_TIME).map_err(|e| format!("{daemon} does not end: {e}"))?;
    }
    // The server can't remove this file itself where it has become another user.
    drop(std::fs::remove_file(daemon.pid_file(place)));
    Ok(())
}
