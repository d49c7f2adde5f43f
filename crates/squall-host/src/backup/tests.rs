//! Backups of all kinds of files: good ones are restored as they were, bad ones change nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use squall_engine::commit::Append;
use squall_files::place::Place;
use squall_model::event::{Event, Record};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Blob, JobSpec, Owner};
use squall_model::time::Time;
use squall_store::Log;
use squall_store::file::{FileLog, Options, replay};
use tar::{Builder, EntryType, Header};

use super::{About, BackupError, Mark, Scope, finish, restore, write_at_rest};

/// A folder that is removed at the end, with a state folder and its neighbours.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("squall-backup-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn place(&self, name: &str) -> Place {
        Place::at(&self.0.join(name)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Makes a state folder with this number of jobs, each with a script.
fn state(place: &Place, jobs: u32) {
    fs::create_dir_all(place.journal()).unwrap();
    fs::create_dir_all(place.keys().join("nodes")).unwrap();
    fs::write(place.config(), "cluster = \"alpha\"\n").unwrap();
    fs::write(place.config().with_file_name("gres.conf"), "\n").unwrap();
    fs::write(place.keys().join("controller"), "secret").unwrap();
    fs::write(place.keys().join("nodes/n1"), "public").unwrap();
    fs::write(place.mark(), "squall state, format 2\nalpha\n").unwrap();
    let mut log =
        FileLog::open(&place.journal(), Options { segment_bytes: 64 << 10, ..Options::default() }).unwrap().log;
    for id in 1..=jobs {
        let script = Blob::new(format!("#!/bin/sh\necho {id}\n").into_bytes());
        let spec = JobSpec { script: Some(script.digest), env: script.digest, ..JobSpec::default() };
        let (key, owner) = (ClientKey(u128::from(id)), Arc::new(Owner::default()));
        let event = Event::JobSubmitted { id: JobId(id), key, owner, spec: Arc::new(spec) };
        let record = Record { seq: u64::from(id), time: Time(u64::from(id)), events: vec![event] };
        log.append(&Append { records: vec![record].into(), blobs: vec![script] }).unwrap();
        log.flush().unwrap();
    }
}

fn about(scope: Scope) -> About {
    About { cluster: "alpha".into(), release: "0.0.0".into(), scope }
}

fn backup(place: &Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_at_rest(place, about(Scope::All), false, &mut bytes).unwrap();
    bytes
}

/// Returns all files below a folder, with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    all
}

#[test]
fn a_backup_is_restored_as_it_was_and_marked_unless_it_is_the_newest_state() {
    let scratch = Scratch::new();
    let from = scratch.place("from");
    state(&from, 3);
    let bytes = backup(&from);
    for moved in [false, true] {
        let to = scratch.place(if moved { "moved" } else { "lost" });
        let restored = restore(&to, &bytes[..], moved).unwrap();
        assert_eq!((restored.backup.jobs, restored.backup.pending, restored.loses), (3, 3, !moved));
        let manifest = &restored.backup.manifest;
        assert_eq!((manifest.cluster.as_str(), manifest.record, manifest.stopped), ("alpha", 3, true));
        assert_eq!(replay(&to.journal()).unwrap().state, replay(&from.journal()).unwrap().state);
        for name in ["squall.toml", "gres.conf", "keys/controller", "keys/nodes/n1", "cluster"] {
            assert_eq!(fs::read(to.dir().join(name)).unwrap(), fs::read(from.dir().join(name)).unwrap(), "{name}");
        }
        assert_eq!(Mark::read(&to).unwrap().is_some(), !moved);
        assert!(!to.restoring().exists());
        // A folder that has a state is left alone.
        let before = files(to.dir());
        let again = restore(&to, &bytes[..], moved).unwrap_err();
        assert!(matches!(&again, BackupError::InUse(path) if path.starts_with(to.dir())), "{again}");
        assert_eq!(files(to.dir()), before);
    }
}

#[test]
fn only_the_log_without_keys_and_configuration() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.place("from"), scratch.place("to"));
    state(&from, 2);
    let mut bytes = Vec::new();
    write_at_rest(&from, about(Scope::Log), false, &mut bytes).unwrap();
    fs::create_dir_all(to.dir()).unwrap();
    let manifest = super::receive(&bytes[..], to.dir()).unwrap();
    assert!(manifest.files.keys().all(|name| super::is_long(name)), "{:?}", manifest.files);
    assert_eq!(super::check(to.dir(), manifest).unwrap().jobs, 2);
    // A controller that lacks records gets the log of another one, and keeps the rest.
    let behind = scratch.place("behind");
    state(&behind, 1);
    fs::write(behind.config(), "its own").unwrap();
    assert!(super::replace_log(&behind, &backup(&from)[..]).is_err());
    assert_eq!(super::replace_log(&behind, &bytes[..]).unwrap().manifest.record, 2);
    assert_eq!(replay(&behind.journal()).unwrap().state, replay(&from.journal()).unwrap().state);
    assert_eq!(fs::read(behind.config()).unwrap(), b"its own");
}

#[test]
fn a_restore_that_was_cut_off_while_it_put_files_into_their_places_is_ended_by_the_next_start() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.place("from"), scratch.place("to"));
    state(&from, 1);
    restore(&to, &backup(&from)[..], true).unwrap();
    let whole: Vec<PathBuf> = files(to.dir()).into_keys().collect();
    fs::create_dir(to.restoring()).unwrap();
    for name in ["journal", "keys", "squall.toml"] {
        fs::rename(to.dir().join(name), to.restoring().join(name)).unwrap();
    }
    finish(&to).unwrap();
    assert_eq!(files(to.dir()).into_keys().collect::<Vec<_>>(), whole);
    finish(&to).unwrap();
}

#[test]
fn the_configuration_goes_where_a_link_leads() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.place("from"), scratch.place("to"));
    state(&from, 1);
    let etc = scratch.0.join("etc");
    fs::create_dir_all(&etc).unwrap();
    fs::create_dir_all(to.dir()).unwrap();
    std::os::unix::fs::symlink(etc.join("squall.toml"), to.config()).unwrap();
    restore(&to, &backup(&from)[..], false).unwrap();
    assert_eq!(fs::read(etc.join("squall.toml")).unwrap(), fs::read(from.config()).unwrap());
    assert!(to.config().is_symlink());
}

#[test]
fn a_backup_of_a_running_cluster_is_not_the_newest_state() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.place("from"), scratch.place("to"));
    state(&from, 1);
    let mut log = FileLog::open(&from.journal(), Options::default()).unwrap().log;
    let accounted = log.accounted();
    let accounts = squall_store::accounts::Accounts::start(
        &from,
        log.cluster(),
        1,
        accounted,
        squall_store::accounts::Store::File { readers: None },
    )
    .unwrap();
    let (copier, copying) = (log.copier(), accounts.copying().unwrap());
    let mut bytes = Vec::new();
    super::write(&from, &copier, super::Accounting::Running(copying), about(Scope::All), &mut bytes).unwrap();
    log.take_snapshot();
    assert!(matches!(restore(&to, &bytes[..], true).unwrap_err(), BackupError::NotNewest));
    assert!(!to.dir().exists());
    let restored = restore(&to, &bytes[..], false).unwrap();
    assert!(restored.backup.manifest.files.contains_key("accounts.db"));
    assert_eq!(squall_store::accounts::seen(&to.accounts()).unwrap().seq, 1);
}

/// Packs entries as an archive.
fn packed(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        // The crate refuses to write some of these names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

#[test]
fn a_hostile_backup_changes_nothing() {
    let scratch = Scratch::new();
    let plain = EntryType::Regular;
    let manifest = b"squall backup, format 1\ncluster a\nrelease 0\ntime 1\nrecord 0\nstopped true\n";
    let mut huge = Vec::new();
    {
        let mut gz = GzEncoder::new(&mut huge, Compression::fast());
        let mut header = Header::new_ustar();
        header.set_path("journal/00000001.seg").unwrap();
        header.set_entry_type(plain);
        header.set_size(1 << 60);
        header.set_cksum();
        gz.write_all(header.as_bytes()).unwrap();
        gz.finish().unwrap();
    }
    let mut long = Vec::new();
    {
        let mut gz = GzEncoder::new(&mut long, Compression::fast());
        let mut header = Header::new_ustar();
        header.set_path("manifest").unwrap();
        header.set_entry_type(plain);
        header.set_size(1 << 40);
        header.set_cksum();
        gz.write_all(header.as_bytes()).unwrap();
        gz.finish().unwrap();
    }
    let bad: Vec<(&str, Vec<u8>)> = vec![
        ("no gzip", b"hello".to_vec()),
        ("empty", Vec::new()),
        ("no manifest", packed(&[("squall.toml", plain, b"x")])),
        ("a way out", packed(&[("../evil", plain, b"x")])),
        ("a deep way out", packed(&[("keys/../../evil", plain, b"x")])),
        ("a way out of the journal", packed(&[("journal/../evil", plain, b"x")])),
        ("an absolute path", packed(&[("/tmp/evil", plain, b"x")])),
        ("a link", packed(&[("keys/controller", EntryType::Symlink, b"")])),
        ("a hard link", packed(&[("keys/controller", EntryType::Link, b"")])),
        ("a device", packed(&[("keys/controller", EntryType::Char, b"")])),
        ("a folder", packed(&[("keys", EntryType::Directory, b"")])),
        ("a long name", packed(&[("././@LongLink", EntryType::GNULongName, b"../evil"), ("x", plain, b"")])),
        ("an extension", packed(&[("pax", EntryType::XHeader, b"16 path=../evil\n"), ("cluster", plain, b"")])),
        ("a hidden file", packed(&[("keys/.x", plain, b"x")])),
        ("twice", packed(&[("cluster", plain, b"x"), ("cluster", plain, b"y")])),
        ("behind the manifest", packed(&[("manifest", plain, manifest), ("cluster", plain, b"y")])),
        ("not in the manifest", packed(&[("cluster", plain, b"y"), ("manifest", plain, manifest)])),
        ("a huge file", huge),
        ("a huge manifest", long),
    ];
    for (what, bytes) in bad {
        let to = scratch.place("to");
        let error = restore(&to, &bytes[..], false).map(drop).unwrap_err();
        assert!(!error.to_string().is_empty(), "{what}");
        assert!(!to.dir().exists(), "{what}: {:?}", files(&scratch.0));
        assert!(files(&scratch.0).is_empty() && !Path::new("/tmp/evil").exists(), "{what}: {:?}", files(&scratch.0));
    }
}

#[test]
fn a_damaged_backup_changes_nothing_in_a_folder_that_is_there() {
    let scratch = Scratch::new();
    let from = scratch.place("from");
    state(&from, 3);
    let good = backup(&from);
    let whole = scratch.place("whole");
    restore(&whole, &good[..], true).unwrap();
    let content = |place: &Place| -> BTreeMap<PathBuf, Vec<u8>> {
        let kept = |path: &Path| !path.starts_with("node") && path != Path::new("lock");
        let inside = |path: PathBuf| path.strip_prefix(place.dir()).unwrap().to_owned();
        let all = files(place.dir()).into_iter().map(|(path, bytes)| (inside(path), bytes));
        all.filter(|(path, _)| kept(path)).collect()
    };
    let step = (good.len() / 60).max(1);
    for at in (0..good.len()).step_by(step) {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        for (what, bytes) in [("cut", &good[..at]), ("flipped", &flipped)] {
            let to = scratch.place("to");
            fs::create_dir_all(to.dir().join("node/n1")).unwrap();
            fs::write(to.dir().join("node/n1/session"), "kept").unwrap();
            match restore(&to, bytes, true) {
                Err(_) => assert_eq!(content(&to), BTreeMap::new(), "{what} at {at}"),
                // Some bits of compressed data mean nothing.
                Ok(_) => assert_eq!((what, content(&to)), ("flipped", content(&whole)), "at {at}"),
            }
            assert_eq!(fs::read(to.dir().join("node/n1/session")).unwrap(), b"kept");
            fs::remove_dir_all(to.dir()).unwrap();
        }
    }
}
