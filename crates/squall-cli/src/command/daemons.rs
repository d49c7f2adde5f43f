//! `squall controller` and `squall node NAME`: one daemon in the foreground.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::{Long, Short, Value, ValueExt};
use squall_host::controld::{self, Settings};
use squall_host::life;
use squall_host::noded::{self, NodeArgs};
use squall_host::pidfile::PidFile;

const CONTROLLER_HELP: &str = "\
usage: squall controller [--state DIR] [--accept-loss]

Runs the controller of a cluster in the foreground; its log goes to standard error.

  --state DIR     the cluster's state (otherwise your own cluster, or SQUALL_STATE)
  --accept-loss   go on without damaged or missing parts of the journal: jobs in them are lost
";

const NODE_HELP: &str = "\
usage: squall node NAME [--state DIR]

Runs the node daemon of that name in the foreground; its log goes to standard error.

  --state DIR   the cluster's state (otherwise your own cluster, or SQUALL_STATE)
";

#[derive(Default)]
struct Options {
    state: Option<PathBuf>,
    name: Option<String>,
    accept_loss: bool,
    detached: bool,
    help: bool,
}

impl Options {
    fn parse(args: &[OsString]) -> Result<Self, String> {
        let mut parser = lexopt::Parser::from_args(args.to_vec());
        let mut options = Self::default();
        while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
            match arg {
                Long("state") => options.state = Some(parser.value().map_err(|e| e.to_string())?.into()),
                Long("accept-loss") => options.accept_loss = true,
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
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // Why it ends stands in its log, which is standard error.
        let done = controld::run(Settings { place, version, accept_loss: options.accept_loss });
        Ok(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Runs `squall node NAME`.
pub(crate) fn node(args: &[OsString]) -> ExitCode {
    finish("node", NODE_HELP, args, |options| {
        let name = options.name.clone().ok_or("which node? `squall node NAME`")?;
        let place = super::place(options.state.as_deref())?;
        life::make_folders(&place)?;
        let path = place.node_pid(&name);
        let _pid = PidFile::write(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::ResourceBusy => format!("node {name} is running already ({})", path.display()),
            _ => format!("cannot write {}: {e}", path.display()),
        })?;
        let args = NodeArgs::new(place, &name).map_err(|e| e.to_string())?;
        Ok(noded::run(&args))
    })
}

fn finish(
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
