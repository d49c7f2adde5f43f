//! `squall restore FILE`: makes a state folder from a backup.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use squall_host::backup::{self, CheckedBackup, Manifest, RestoredBackup};
use squall_host::life;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

/// `squall restore`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall restore",
    about: "make a cluster's state from a backup",
    synopsis: &["FILE [--moved] [--state=DIR]"],
    options: page::Options::Own(FLAGS),
    notes: "\
FILE is what `squall backup` wrote; `-` is standard input. It is checked before anything is changed. The state folder must be \
new, or have no state; folders of nodes there stay. `squall up` then starts the cluster.
What came after the backup is lost. So the first start takes care that nothing happens twice: job ids that may have been given \
are passed over, jobs that nodes run go on to their end, and pending jobs are held, as they may have run: `scontrol release` \
lets them run.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag(
        "moved",
        '\0',
        Arg::None,
        "nothing is lost: the backup was made after `squall down`, and the cluster has not run since. Ids go on, and nothing is held",
    ),
    flag(
        "state",
        '\0',
        Arg::Needed("DIR"),
        "the folder that becomes the cluster's state (otherwise the default of your own cluster)",
    ),
];

/// Runs `squall restore`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, restore)
}

fn restore(given: &Arguments) -> Result<String, String> {
    let file = super::one_operand(&PAGE, given)?;
    let file = file.ok_or("from which file? `squall restore FILE`, or `squall restore -` for standard input")?;
    let place = super::place(given.last("state").map(Path::new))?;
    life::check_place(&place)?;
    let from: Box<dyn Read> = match file.as_str() {
        "-" => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(&file).map_err(|e| format!("{file}: {e}"))?),
    };
    let restored = backup::restore(&place, from, given.has("moved")).map_err(|e| format!("{file}: {e}"))?;
    Ok(told(&restored, &place.dir().display().to_string()))
}

/// Formats what was restored, and what is lost.
fn told(restored: &RestoredBackup, folder: &str) -> String {
    let RestoredBackup { backup: CheckedBackup { manifest, jobs, pending }, loses } = restored;
    let Manifest { cluster, time_s, record, .. } = manifest;
    let time = time(*time_s);
    let mut text = format!("cluster {cluster} is in {folder} as of {time}: records up to {record}, {jobs} jobs\n");
    if *loses {
        let _ = writeln!(
            text,
            "what came after {time} is lost, except jobs that nodes run: they go on to their end\n\
             {pending} pending job(s) will be held, as they may have run since: `scontrol release` lets them run\n\
             job ids that may have been given since are passed over"
        );
    }
    text.push_str("`squall up` starts it\n");
    text
}

/// Formats a time, seconds since 1970.
fn time(seconds: u64) -> String {
    let time = Timestamp::from_second(seconds.cast_signed()).unwrap_or_default();
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}
