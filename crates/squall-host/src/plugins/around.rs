//! Hooks of plugins around jobs and beside the node daemon: `squall step --plugins-around prolog|epilog|node FILE SECONDS`.
//!
//! It is started as the site's prologs are, with their environment. A reason for which it fails is the last line that it
//! writes. Two processes again: one watches the other, which has loaded the plugins.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::time::Duration;

use squall_model::config::Release;
use squall_model::job::ExitCode;
use squall_text::format::words::show_release;

use super::conf::Line;
use super::stack::{Stack, crash, lines};
use super::voice::tell;
use super::words::{Context, Items};
use crate::sys::offspring::{Born, bear, leave};
use crate::sys::spank::{self, Hook, Progress, die_with_parent, session};
use crate::sys::wait::{Waited, reap_pid};

/// What the process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    /// The hook before a job, or after it.
    Job(Hook),
    /// The hooks beside the node daemon, which has the other end of standard input.
    Node,
}

/// Carries out the order; returns the exit status.
pub fn serve_around(args: &[OsString]) -> i32 {
    // Plugins call them.
    std::hint::black_box(spank::functions());
    let words: Option<Vec<&str>> = args.iter().map(|arg| arg.to_str()).collect();
    let Some([errand, file, limit, release]) = words.as_deref() else { return 2 };
    let errand = match *errand {
        "prolog" => Errand::Job(Hook::JobProlog),
        "epilog" => Errand::Job(Hook::JobEpilog),
        "node" => Errand::Node,
        _ => return 2,
    };
    show_release(Release::parse(release).unwrap_or_default());
    let limit = Duration::from_secs(limit.parse().unwrap_or(1).max(1));
    let done = lines(file).and_then(|lines| watch(errand, &lines, limit));
    match done {
        Ok(()) => 0,
        Err(why) => {
            // The node daemon may have ended.
            drop(writeln!(io::stderr(), "{why}"));
            1
        }
    }
}

/// Makes the process with the plugins, and another one after an optional plugin has ended it. Err: why it failed.
fn watch(errand: Errand, lines: &[Line], limit: Duration) -> Result<(), String> {
    let failed = |e: io::Error| format!("spank: no process for plugins: {e}");
    let progress = Progress::new().map_err(failed)?;
    let mut skipped: Vec<usize> = Vec::new();
    loop {
        progress.note(None);
        let (born, pid) = bear(None).map_err(failed)?;
        if born == Born::Copy {
            die_with_parent(true);
            leave(errand.run(lines, &skipped, (progress, limit)));
        }
        let ended = match reap_pid(pid) {
            Ok(Waited::Reaped(reaped)) => reaped.exit,
            _ => return Err("spank: the process of the plugins is gone".to_owned()),
        };
        let Some(at) = progress.read() else { return concluded(ended) };
        let (required, text) = crash(lines, at, ended.signal);
        if required || skipped.contains(&at.0) || at.1 == Hook::SlurmdExit {
            return Err(text);
        }
        tell(&format!("error: {text}"));
        // Hooks around a job that have run are not run again.
        let done = if matches!(at.1, Hook::JobProlog | Hook::JobEpilog) { 0 } else { at.0 };
        skipped.extend(done..=at.0);
    }
}

/// Returns what the end of a process says in which no plugin ran.
fn concluded(ended: ExitCode) -> Result<(), String> {
    match ended {
        ExitCode { code: 0, signal: 0 } => Ok(()),
        // It has told the reason.
        ExitCode { signal: 0, .. } => leave(1),
        ExitCode { signal, .. } => Err(format!("spank: the process of the plugins was ended by signal {signal}")),
    }
}

impl Errand {
    /// Loads the plugins and calls their hooks; returns the exit status.
    fn run(self, lines: &[Line], skipped: &[usize], watched: (Progress, Duration)) -> i32 {
        {
            let mut session = session();
            let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
            session.context = if self == Self::Node { Context::Slurmd } else { Context::JobScript };
            session.items = Some(Items {
                uid: number("SLURM_JOB_UID"),
                gid: number("SLURM_JOB_GID"),
                job: number("SLURM_JOB_ID"),
                ..Items::default()
            });
        }
        let done = Stack::load(lines, skipped, watched).and_then(|stack| match self {
            Self::Job(hook) => {
                stack.find_options();
                stack.run(hook)
            }
            Self::Node => {
                // The end of the node daemon, in whatever way, is the end of its input.
                drop(io::stdin().read_to_end(&mut Vec::new()));
                stack.run(Hook::SlurmdExit)
            }
        });
        let Err(why) = done else { return 0 };
        // As above.
        drop(writeln!(io::stderr(), "{why}"));
        1
    }
}
