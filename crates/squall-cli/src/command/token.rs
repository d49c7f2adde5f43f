//! `squall token`: prints a token with which machines join the cluster as nodes, or revokes a node's key.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use lexopt::prelude::{Long, Short, Value, ValueExt};
use squall_files::place::Place;
use squall_host::controld::read_config;
use squall_host::life;
use squall_host::trust::Trust;
use squall_model::hostlist;

const HELP: &str = "\
usage: squall token NODES [--minutes N] [--state DIR]
       squall token --revoke NODES [--state DIR]

Prints, for each of these nodes, the command by which another machine joins the cluster as that node. Each token is good
for one machine, once, and for an hour. Run it on the controller's machine, as the cluster's owner.

  --minutes N   the tokens are good for N minutes
  --revoke      end what these nodes may say: their connections are closed, and their machines can come back with a new
                token only
  --state DIR   the cluster's state (otherwise your own cluster, or SQUALL_STATE)
";

/// Runs `squall token`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::end("token", parse(args).and_then(|options| options.map_or_else(|| Ok(HELP.to_owned()), |o| token(&o))))
}

struct Options {
    place: Place,
    nodes: String,
    minutes: u64,
    revoke: bool,
}

fn parse(args: &[OsString]) -> Result<Option<Options>, String> {
    let mut parser = lexopt::Parser::from_args(args.to_vec());
    let (mut state, mut nodes, mut minutes, mut revoke) = (None, None, 60, false);
    let text = |e: lexopt::Error| e.to_string();
    while let Some(arg) = parser.next().map_err(text)? {
        match arg {
            Long("state") => state = Some(PathBuf::from(parser.value().map_err(text)?)),
            Long("minutes") => minutes = parser.value().and_then(|n| n.parse()).map_err(text)?,
            Long("revoke") => revoke = true,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if nodes.is_none() => nodes = Some(value.string().map_err(text)?),
            other => return Err(format!("{}; see `squall token --help`", other.unexpected())),
        }
    }
    let found = if state.is_none() { Place::find() } else { None };
    let place = found.map_or_else(|| super::place(state.as_deref()), Ok)?;
    let nodes = nodes.ok_or("for which node? `squall token NODE`")?;
    Ok(Some(Options { place, nodes, minutes, revoke }))
}

fn token(options: &Options) -> Result<String, String> {
    let (place, trust) = (&options.place, Trust::of(&options.place));
    super::owned(place)?;
    let names = hostlist::expand(&options.nodes).map_err(|e| format!("{}: {e}", options.nodes))?;
    if options.revoke {
        return names.iter().map(|name| revoke(&trust, name)).collect();
    }
    if let Ok(Some(joined)) = trust.joined() {
        return Err(format!(
            "this machine is node {}: run it where the controller is ({})",
            joined.name, joined.controller
        ));
    }
    let config = read_config(place).map_err(|e| e.to_string())?;
    if config.slurmctld_port.0 == 0 {
        return Err(format!(
            "the cluster is on this machine only: set SlurmctldPort in {} (and SlurmctldHost, the name by which others \
             reach this machine), then restart it with `squall down --keep-jobs` and `squall up`",
            place.config().display()
        ));
    }
    let controller = format!("{}:{}", life::reached_as(&config), config.slurmctld_port.0);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?.as_secs();
    names
        .iter()
        .map(|name| match trust.invite(name, now_s, options.minutes.saturating_mul(60)) {
            Ok(token) => Ok(format!("squall node --controller {controller} --name {name} --token {token}\n")),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(format!(
                "{name} is a machine already; `squall token --revoke {name}` lets another one take its place"
            )),
            Err(e) => Err(format!("{name}: {e}")),
        })
        .collect()
}

fn revoke(trust: &Trust, name: &str) -> Result<String, String> {
    match trust.revoke(name) {
        Ok(true) => Ok(format!("{name} has no key any more\n")),
        Ok(false) => Ok(format!("{name} had no key\n")),
        Err(e) => Err(format!("{name}: {e}")),
    }
}
