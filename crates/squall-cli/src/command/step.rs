//! `squall step --spool FOLDER`: the daemon of one step on one node, started by the node daemon.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use squall_host::privileges;
use squall_model::wire::filter::FilterScript;
use squall_text::page::{Options, Page};

/// `squall step`, for its manual page. Node daemons start it, and pass it no options of users.
pub(crate) static PAGE: Page = Page {
    name: "squall step",
    about: "serve one step on a node (started by the node daemon)",
    synopsis: &["--spool FOLDER"],
    options: Options::Own(&[]),
    notes: "",
};

/// Runs the daemon of the step with the given folder, or one of the step daemon's helper processes.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    if let Err(problem) = squall_host::logging::start(None) {
        eprintln!("squall step: error: {problem}");
        return ExitCode::FAILURE;
    }
    match args {
        [option, folder] if option == "--spool" => {
            ExitCode::from(u8::try_from(squall_host::stepd::run(Path::new(folder))).unwrap_or(1))
        }
        [option, _room] if option == "--zygote" => {
            ExitCode::from(u8::try_from(squall_host::stepd::serve_zygote()).unwrap_or(1))
        }
        [option, task @ ..] if option == "--task" => ExitCode::from(squall_host::stepd::run_task(task)),
        [option, task @ ..] if option == "--container" => ExitCode::from(squall_host::stepd::run_contained(task)),
        [option] if option == "--inside" => ExitCode::from(u8::try_from(squall_host::stepd::run_inside()).unwrap_or(1)),
        [option, job] if option == "--keep" => match job.to_str().and_then(|job| job.parse().ok()) {
            Some(job) => ExitCode::from(squall_host::stepd::run_keeper(job)),
            None => ExitCode::FAILURE,
        },
        [option, rest @ ..] if option == "--checkpoint" => ExitCode::from(squall_host::stepd::run_checkpoint(rest)),
        [option, rest @ ..] if option == "--restore" => ExitCode::from(squall_host::stepd::run_restore(rest)),
        [option, rest @ ..] if option == "--criu" => ExitCode::from(squall_host::stepd::run_criu(rest)),
        [option, scripts @ ..] if option == "--epilog" => ExitCode::from(squall_host::stepd::run_epilogs(scripts)),
        // A process beside a step or command, with the site's SPANK plugins.
        [option] if option == "--plugins" => ExitCode::from(u8::try_from(squall_host::plugins::serve()).unwrap_or(1)),
        // The same around a job, or beside the node daemon.
        [option, rest @ ..] if option == "--plugins-around" => {
            ExitCode::from(u8::try_from(squall_host::plugins::serve_around(rest)).unwrap_or(1))
        }
        [option, path] if option == "--tail" => match squall_host::tail::serve(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        // A process of the controller's daemon: the site's submit filter.
        [option] if option == "--filter" => {
            let confine = |script: &FilterScript| privileges::confine_filter(&script.user, script.allow_programs);
            squall_filter::serve(confine).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        [option] if option == "--help" => {
            crate::hall::print(&PAGE.help());
            ExitCode::SUCCESS
        }
        [option, guard @ ..] if option == "--guard" => {
            ExitCode::from(u8::try_from(squall_host::fence::serve(guard)).unwrap_or(1))
        }
        [option] if option == "--switcher" => ExitCode::from(u8::try_from(squall_host::gang::serve()).unwrap_or(1)),
        _ => {
            eprintln!("usage: squall step --spool FOLDER");
            ExitCode::from(2)
        }
    }
}
