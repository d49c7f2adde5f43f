//! Files: of the site, of Slurm, of a state folder that may be damaged, and backups from anywhere.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use squall_engine::control::state::State;
use squall_engine::control::state::snapshot::Part;
use squall_host::backup::receive;
use squall_host::spool::{RESULT_BYTES, Spool, file};
use squall_model::config::Config;
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::journal::{Link, SEGMENT_HEADER_BYTES, Scan, SegmentHeader, items, scan};
use squall_model::{encoding, gres, hostlist};
use squall_replay::Trace;
use squall_sched::topology::{Source, Topology};
use tar::{Builder, Header};

use crate::network::folder;

/// Segments of the journal: header, frames, and items as they stand in a frame.
pub(crate) fn journal(bytes: &[u8]) {
    drop(items(bytes, 0..bytes.len()));
    let Ok(header) = SegmentHeader::decode(bytes) else { return };
    let (mut at, mut expect) = (SEGMENT_HEADER_BYTES, header.link);
    while let Scan::Frame { items: range, next, link } = scan(bytes, at, expect) {
        drop(items(bytes, range));
        (at, expect) = (next, link);
    }
    scan(bytes, at, Link::first(1));
}

/// Parts of a snapshot, each behind two bytes of length. A state that they make is written and read again.
pub(crate) fn snapshot(bytes: &[u8]) {
    let (mut rest, mut parts) = (bytes, Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (piece, behind) = behind.split_at(length);
        rest = behind;
        let Ok(part) = encoding::from_slice::<Part>(piece) else { return };
        let Some(part) = part.restore() else { return };
        parts.push(part);
    }
    let Some(state) = State::assemble(parts) else { return };
    let again = state.parts().map(|part| {
        let bytes = encoding::to_vec(&part);
        encoding::from_slice::<Part>(&bytes).expect("it was just written").restore().expect("it fits")
    });
    assert_eq!(State::assemble(again).as_ref(), Some(&state));
}

/// The files of a step in a spool; the first byte chooses the file.
pub(crate) fn spool(bytes: &[u8]) {
    static SPOOL: OnceLock<PathBuf> = OnceLock::new();
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let path = SPOOL.get_or_init(|| folder("spool"));
    let spool = Spool::open(path).unwrap();
    let step = path.join("steps/1.0.batch");
    fs::create_dir_all(&step).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(step.join(name), bytes).unwrap();
    match kind % 4 {
        0 => write(file::LAUNCH, bytes),
        1 => write(file::RESULT, bytes),
        2 => write(file::PIDS, bytes),
        _ => fs::write(path.join("jobs/1.0"), bytes).unwrap(),
    }
    let key = StepKey { job: JobId(1), attempt: Attempt(0), step: StepNo::BATCH };
    drop((spool.jobs(), spool.steps(), spool.result(key), spool.tasks(key), spool.exits(key)));
    assert!(spool.has_begun(key) || bytes.len() > RESULT_BYTES);
}

pub(crate) fn squall_toml(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let Ok(mut config) = Config::from_toml(text) else { return };
    drop(config.check());
    config.complete();
    let written = toml::to_string(&config).expect("a configuration can be written");
    let mut again = Config::from_toml(&written).unwrap_or_else(|e| panic!("{e}:\n{written}"));
    again.complete();
    assert_eq!(again, config, "{written}");
}

pub(crate) fn gres_conf(bytes: &[u8]) {
    drop(gres::parse_conf(&String::from_utf8_lossy(bytes)));
}

/// topology.conf, or topology.yaml if the first byte is odd.
pub(crate) fn topology(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let text = &*String::from_utf8_lossy(bytes);
    let names = hostlist::expand("n[1-16]").unwrap();
    let node = |name: &str| names.iter().position(|known| known == name).map(|at| NodeId(at as u32));
    let name = if kind % 2 == 1 { "topology.yaml" } else { "topology.conf" };
    let Ok(topology) = Topology::read(&Source { name, text, ..Source::default() }, &node, &names) else { return };
    topology.domains();
    for at in 0..16 {
        topology.address(NodeId(at), "n1");
        topology.distance(NodeId(0), NodeId(at));
    }
}

pub(crate) fn swf(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    drop((Trace::read(text, None), Trace::read(text, Some(64)), Trace::read_extended(text, None)));
}

/// Archives: the bytes themselves, compressed; or files with names and contents from the bytes if the first is odd.
pub(crate) fn backup(bytes: &[u8]) {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let path = FOLDER.get_or_init(|| folder("backup"));
    let archive = if kind % 2 == 0 { bytes.to_vec() } else { packed(bytes) };
    let mut packed = GzEncoder::new(Vec::new(), Compression::none());
    packed.write_all(&archive).unwrap();
    let into = path.join("into");
    fs::create_dir(&into).unwrap();
    drop(receive(&packed.finish().unwrap()[..], &into));
    fs::remove_dir_all(&into).unwrap();
    assert_eq!(fs::read_dir(path).unwrap().count(), 0, "a file outside");
}

/// An archive of files: lines of names, each followed by a line of content.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let mut lines = bytes.split(|byte| *byte == b'\n');
    while let (Some(name), Some(content)) = (lines.next(), lines.next()) {
        let mut header = Header::new_gnu();
        let room = &mut header.as_old_mut().name;
        let length = name.len().min(room.len());
        room[..length].copy_from_slice(&name[..length]);
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}
