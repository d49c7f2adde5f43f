//! `squall backup FILE`: copies everything that the controller knows into one file, while it runs.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use squall_files::durable;
use squall_files::place::Place;
use squall_files::safe_path;
use squall_host::backup::{self, About, BackupError, CheckedBackup, Scope};
use squall_host::controld::read_config;
use squall_host::life::Daemon;
use squall_host::trust::Trust;
use squall_model::wire::client::{Answer, HostRequest};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

use squall_client::{Client, ClientError};

/// `squall backup`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall backup",
    about: "copy everything the cluster knows into one file",
    synopsis: &["FILE [--state=DIR]"],
    options: page::Options::Own(FLAGS),
    notes: "\
The cluster may run meanwhile: everything that was answered before is in the backup. It has the configuration, all keys, the \
queue, and accounting. FILE is read again and checked before the command ends; `-` is standard output, which `squall restore` \
checks. Run it on the controller's machine, as the cluster's owner, and keep FILE as safe as the cluster's keys.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
];

/// How long the controller may send nothing, as it copies a large accounting database first.
const SILENCE: Duration = Duration::from_mins(10);

/// Runs `squall backup`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, back_up)
}

fn back_up(given: &Arguments) -> Result<String, String> {
    let file = super::one_operand(&PAGE, given)?;
    let file = file.ok_or("into which file? `squall backup FILE`, or `squall backup -` for standard output")?;
    let place = super::found_place(given)?;
    super::owned(&place)?;
    refuse_others(&place)?;
    if file == "-" {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            return Err("a backup is not for a terminal: send it to a file or to `squall restore -`".to_owned());
        }
        return write(&place, &mut out).map(|()| String::new());
    }
    let (begin, path) = (Instant::now(), PathBuf::from(&file));
    let name = path.file_name().ok_or_else(|| format!("{file} is no name of a file"))?.to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let done = written(&place, &draft).and_then(|(checked, bytes)| {
        fs::rename(&draft, &path).and_then(|()| durable::sync_folder(&path)).map_err(|e| format!("{file}: {e}"))?;
        Ok((checked, bytes))
    });
    if done.is_err() {
        drop(fs::remove_file(&draft));
    }
    let (CheckedBackup { manifest, jobs, .. }, bytes) = done?;
    Ok(format!(
        "cluster {} is in {file}: records up to {}, {jobs} jobs, {bytes} bytes, {:.1} s; read again and checked\n",
        manifest.cluster,
        manifest.record,
        begin.elapsed().as_secs_f64()
    ))
}

/// Refuses machines on which there is no controller, and clusters that have several.
fn refuse_others(place: &Place) -> Result<(), String> {
    if let Some(joined) = Trust::of(place).joined().map_err(|e| e.to_string())? {
        return Err(format!("the controller is on another machine ({}): run it there", joined.addresses()));
    }
    if place.cells().map_err(|e| e.to_string())?.is_empty() {
        return Ok(());
    }
    let folder = place.cells_folder();
    Err(format!("each cell has a backup of its own: `squall backup FILE --state {}/N`", folder.display()))
}

/// Writes a backup to a new file, reads it again and checks it. Returns its length in bytes, too.
fn written(place: &Place, path: &Path) -> Result<(CheckedBackup, u64), String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    write(place, &mut file)?;
    file.sync_all().map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    file.rewind().map_err(failed)?;
    let mut scratch = path.with_extension("check");
    if safe_path::exposure(&scratch).is_some() {
        // Keys are unpacked there: others could put a folder of theirs in its place.
        scratch = place.dir().join(format!(".backup-{}.check", std::process::id()));
    }
    fs::DirBuilder::new().mode(0o700).create(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let text = |e: BackupError| format!("the backup was made and is not good: {e}");
    let checked = backup::receive(file, &scratch).and_then(|manifest| backup::check(&scratch, manifest)).map_err(text);
    fs::remove_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    Ok((checked?, bytes))
}

/// Writes a backup: from the running controller, or from the folder of a stopped one.
fn write(place: &Place, out: &mut impl Write) -> Result<(), String> {
    if Daemon::Controller.pid(place).is_some() {
        return receive(place, out);
    }
    let config = read_config(place).map_err(|e| e.to_string())?;
    let served = config.accounting.server().is_some();
    let about = About { cluster: config.cluster, release: env!("CARGO_PKG_VERSION").to_owned(), scope: Scope::All };
    if !place.journal().is_dir() {
        return Err(format!("there is no cluster in {}", place.dir().display()));
    }
    backup::write_at_rest(place, about, served, out).map(drop).map_err(|e| e.to_string())
}

/// Receives a backup from the running controller.
fn receive(place: &Place, out: &mut impl Write) -> Result<(), String> {
    let text = |e: ClientError| e.lines("backup").join("; ");
    let mut client = Client::connect_to(place, "backup").map_err(text)?;
    client.wait_up_to(Some(SILENCE)).map_err(|e| e.to_string())?;
    client.send(&HostRequest::Backup).map_err(text)?;
    loop {
        match client.receive().map_err(text)? {
            Answer::Backup(piece) => out.write_all(&piece).map_err(|e| format!("the backup can't be written: {e}"))?,
            Answer::Done => return out.flush().map_err(|e| format!("the backup can't be written: {e}")),
            _ => return Err("the controller's answer does not fit".to_owned()),
        }
    }
}
