//! `squall supervise`: starts daemons of a cluster that have died, until `squall down`. `squall up --keep` starts it.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_files::place::Place;
use squall_host::life::{self, Daemon};
use squall_host::supervise;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use super::daemons::{finish, hold, log};
use super::down::END_TIME;

/// `squall supervise`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall supervise",
    about: "start daemons again that die, in the foreground (`up --keep`)",
    synopsis: &["[--state=DIR]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Starts the daemons of a cluster on this machine that have died, until `squall down`; its log goes to standard error. \
`squall up --keep` runs it in the background.
A daemon that dies is started at once, then after 1 s, 2 s, 4 s and so on up to 1 minute, until it has run for a minute.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
    flag("detached", '\0', Arg::None, ""),
];

/// Runs `squall supervise`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    finish(&PAGE, args, |options| {
        let place = super::place(options.state.as_deref())?;
        log(options, &place, &Daemon::Supervisor)?;
        let _pid = hold(&place, &Daemon::Supervisor)?;
        supervise::run(&place)
    })
}

/// Starts the supervisor in the background, unless it runs.
pub(super) fn start(place: &Place) -> Result<(), String> {
    let (daemon, mut started) = (Daemon::Supervisor, None);
    let begun =
        life::wait_until(END_TIME, || daemon.ensure(place, &[], &mut started).is_err() || daemon.pid(place).is_some());
    daemon.ensure(place, &[], &mut started)?;
    if begun { Ok(()) } else { Err(format!("{daemon} does not start; see {}", daemon.log_file(place).display())) }
}

/// Ends the supervisor, if it runs.
pub(super) fn end(place: &Place) -> Result<(), String> {
    let daemon = Daemon::Supervisor;
    if let Some(process) = daemon.process(place).map_err(|e| format!("{daemon} can't be watched: {e}"))? {
        process.end(END_TIME).map_err(|e| format!("{daemon} does not end: {e}"))?;
    }
    // A supervisor that was ended by a signal leaves this file; if there is none, nothing is to be done.
    drop(std::fs::remove_file(daemon.pid_file(place)));
    Ok(())
}
