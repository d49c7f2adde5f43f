//! `squall mail`: sends mail about jobs, and tells other programs of ended ones, in the foreground. It follows the
//! controller's events, remembers how far it has come, and may end and start at any time.

mod account;
mod completions;
mod letter;
mod post;
mod reminders;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_client::{FeedSelection, Follower};
use squall_files::place::Place;
use squall_host::controld::read_config;
use squall_host::gone;
use squall_host::life::{self, Daemon};
use squall_host::sys::clock;
use squall_host::{logging, service};
use squall_model::config::Config;
use squall_model::wire::feed::{FeedKind, Position};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use self::letter::{Failed, letters};
use self::post::Post;
use self::reminders::Reminders;
use super::daemons::{hold, not_joined};

/// `squall mail`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall mail",
    about: "send mail about jobs, in the foreground",
    synopsis: &["[--state=DIR]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Sends what `--mail-type` asks for, by `mail_prog` or `mail_relay` of squall.toml, and tells other programs of ended jobs as \
`job_comp_type` says; its log goes to standard error. `squall up` starts it in the background. Started by root it runs `mail_prog` as the user `nobody`. It remembers which events it has dealt with, so it \
may be ended and started at any time.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
    flag("detached", '\0', Arg::None, ""),
];

/// Events of which mail may be wanted.
const KINDS: [FeedKind; 3] = [FeedKind::JobStarted, FeedKind::JobEnded, FeedKind::JobRequeued];

/// Pause before the controller is called again.
const PAUSE: Duration = Duration::from_secs(1);

/// Timeout for the process to end after each signal, and to begin.
const END_TIME: Duration = Duration::from_secs(3);
const START_TIME: Duration = Duration::from_secs(30);

/// Runs `squall mail`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, |given| {
        super::no_operand(&PAGE, given)?;
        if given.has("detached") {
            life::detach();
        }
        let place = super::place(given.last("state").map(std::path::Path::new))?;
        not_joined(&place, &Daemon::Mail)?;
        let config = read_config(&place).map_err(|e| e.to_string())?;
        if !config.tells_of_jobs() {
            return Err(format!(
                "{}: it has neither mail_prog, mail_relay nor job_comp_type",
                place.config().display()
            ));
        }
        logging::start(given.has("detached").then(|| Daemon::Mail.log_file(&place)))?;
        let memory = Memory::open(&place, "mail.position")?;
        let completed = Memory::open(&place, "jobcomp.position")?;
        let _pid = hold(&place, &Daemon::Mail)?;
        gone::end_with(&place, "the sender of mail", || {});
        service::ready();
        std::thread::scope(|scope| {
            if config.accounting.completion().is_some() {
                let tell = || completions::follow(&place, &config, completed);
                std::thread::Builder::new()
                    .name("jobcomp".into())
                    .spawn_scoped(scope, tell)
                    .map_err(|e| e.to_string())?;
            }
            if config.sends_mail() { follow(&place, &config, memory) } else { Ok(String::new()) }
        })
    })
}

/// How far the events are dealt with, in a file.
struct Memory {
    file: File,
    at: Option<Position>,
}

impl Memory {
    fn open(place: &Place, name: &str) -> Result<Self, String> {
        let path = place.run().join(name);
        let problem = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut options = File::options();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(problem)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(problem)?;
        Ok(Self { file, at: text.trim().parse().ok() })
    }

    /// Remembers that all events up to `at` are dealt with. A line of fixed length replaces the last one at once.
    fn keep(&mut self, at: Position) {
        if self.at == Some(at) {
            return;
        }
        self.at = Some(at);
        let written =
            self.file.rewind().and_then(|()| self.file.write_all(format!("{:<32}\n", at.to_string()).as_bytes()));
        if let Err(e) = written {
            tracing::error!(error = %e, "the position of the last mail can't be kept");
        }
    }
}

/// Sends mail about events until the process is ended.
fn follow(place: &Place, config: &Config, mut memory: Memory) -> Result<String, String> {
    let post = Post::of(config);
    let mut reminders = Reminders::default();
    let begin = |from| {
        Follower::new(place.clone(), "mail", FeedSelection { from, kinds: KINDS.to_vec(), ..FeedSelection::default() })
    };
    let mut follower = begin(memory.at);
    loop {
        for letter in reminders.take_due(clock::now(), &config.cluster) {
            post.send(&letter);
        }
        let due = reminders.due_in(clock::now());
        if let (Some(stream), Some(due)) = (follower.stream(), due) {
            let timeout = Timespec { tv_sec: due.as_secs() as i64, tv_nsec: i64::from(due.subsec_nanos()) };
            let mut fds = [PollFd::new(stream, PollFlags::IN)];
            if poll(&mut fds, Some(&timeout)) == Ok(0) {
                continue;
            }
        }
        let page = match follower.next_page() {
            Ok(page) => page,
            Err(e) => {
                tracing::warn!(error = %e, "the controller's events can't be followed");
                std::thread::sleep(PAUSE);
                follower = begin(memory.at);
                continue;
            }
        };
        if page.missed {
            tracing::warn!("events were missed here, and mail about them is not sent");
        }
        for event in &page.events {
            reminders.note(event);
            for mut letter in letters(event, &config.cluster) {
                if let (Some(failure), Some(job)) = (letter.failure, &event.job) {
                    letter.text = account::of(place, job, failure == Failed::Array);
                }
                post.send(&letter);
            }
            memory.keep(event.at);
        }
        memory.keep(page.next);
    }
}

/// Starts the process in the background if the configuration has a way to send mail, or to tell of ended jobs.
pub(super) fn start(place: &Place) -> Result<(), String> {
    if !read_config(place).map_err(|e| e.to_string())?.tells_of_jobs() {
        return Ok(());
    }
    let (daemon, mut started) = (Daemon::Mail, None);
    let begun = life::wait_until(START_TIME, || {
        daemon.ensure(place, &[], &mut started).is_err() || daemon.pid(place).is_some()
    });
    daemon.ensure(place, &[], &mut started)?;
    if begun { Ok(()) } else { Err(format!("{daemon} does not start; see {}", daemon.log_file(place).display())) }
}

/// Ends the process, if it runs.
pub(super) fn end(place: &Place) -> Result<(), String> {
    let daemon = Daemon::Mail;
    if let Some(process) = daemon.process(place).map_err(|e| format!("{daemon} can't be watched: {e}"))? {
        process.end(END_TIME).map_err(|e| format!("{daemon} does not end: {e}"))?;
    }
    // A process that was ended by a signal leaves this file; if there is none, nothing is to be done.
    drop(std::fs::remove_file(daemon.pid_file(place)));
    Ok(())
}
