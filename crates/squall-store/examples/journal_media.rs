//! Measures what a commit costs on this disk: SQLite (WAL, synchronous=FULL, one row per batch) against an
//! append-only file (preallocated, one write and one fdatasync per batch). `docs/decisions/001-journal.md` quotes it.
//!
//! `cargo run --release -p squall-store --example journal_media [DIR]`
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::error::Error;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

const EVENT_BYTES: usize = 300;
const SEGMENT_BYTES: u64 = 16 << 20;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let dir = base.join(format!("squall-journal-media-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    println!("{:<34} {:>6} {:>11} {:>10} {:>10}", "medium", "events", "commits/s", "p50 us", "p99 us");
    for events in [1, 16, 256] {
        let batch = vec![0xA5_u8; events * EVENT_BYTES];
        for round in 0..ROUNDS {
            let folder = dir.join(format!("{events}-{round}"));
            std::fs::create_dir_all(&folder)?;
            report("sqlite wal full", events, &sqlite(&folder, &batch)?);
            report("file fallocate + fdatasync", events, &file(&folder, &batch, false)?);
            report("file zeroed + fdatasync", events, &file(&folder, &batch, true)?);
            std::fs::remove_dir_all(&folder)?;
        }
    }
    flips(&dir)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// What SQLite says of a WAL with 20 committed rows in which one bit was flipped, for every 61st byte.
fn flips(dir: &Path) -> Result<(), Box<dyn Error>> {
    let (live, copy) = (dir.join("live"), dir.join("copy"));
    std::fs::create_dir_all(&live)?;
    let db = rusqlite::Connection::open(live.join("journal.db"))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute("CREATE TABLE batch (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)", [])?;
    for seq in 1..=20 {
        db.execute("INSERT INTO batch VALUES (?1, ?2)", rusqlite::params![seq, vec![0xA5_u8; EVENT_BYTES]])?;
    }
    let (main, wal) = (std::fs::read(live.join("journal.db"))?, std::fs::read(live.join("journal.db-wal"))?);
    let (mut lost, mut said, mut whole) = (0, 0, 0);
    for at in (0..wal.len()).step_by(61) {
        std::fs::create_dir_all(&copy)?;
        let mut bad = wal.clone();
        bad[at] ^= 4;
        std::fs::write(copy.join("journal.db"), &main)?;
        std::fs::write(copy.join("journal.db-wal"), &bad)?;
        let after = rusqlite::Connection::open(copy.join("journal.db"))?;
        match after.query_row("SELECT count(*) FROM batch", [], |r| r.get::<_, i64>(0)) {
            Ok(20) => whole += 1,
            Ok(_) => lost += 1,
            // The table itself was made in the WAL: without its first frames there is none.
            Err(e) if e.to_string().contains("no such table") => lost += 1,
            Err(_) => said += 1,
        }
        drop(after);
        std::fs::remove_dir_all(&copy)?;
    }
    println!("sqlite, one bit of the WAL flipped: rows silently lost {lost}, error {said}, nothing lost {whole}");
    Ok(())
}

fn report(medium: &str, events: usize, times: &[Duration]) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let total: Duration = sorted.iter().sum();
    let rate = sorted.len() as f64 / total.as_secs_f64();
    let at = |share: usize| sorted[(sorted.len() - 1) * share / 100].as_micros();
    println!("{medium:<34} {events:>6} {rate:>11.0} {:>10} {:>10}", at(50), at(99));
}

fn sqlite(dir: &Path, batch: &[u8]) -> Result<Vec<Duration>, Box<dyn Error>> {
    let db = rusqlite::Connection::open(dir.join("journal.db"))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute("CREATE TABLE batch (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)", [])?;
    let mut insert = db.prepare("INSERT INTO batch (seq, crc, body) VALUES (?1, ?2, ?3)")?;
    let mut times = Vec::new();
    let start = Instant::now();
    let mut seq = 0_i64;
    while start.elapsed() < TIME {
        seq += 1;
        let before = Instant::now();
        insert.execute(rusqlite::params![seq, crc32c::crc32c(batch), batch])?;
        times.push(before.elapsed());
    }
    Ok(times)
}

fn file(dir: &Path, batch: &[u8], zeroed: bool) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut times = Vec::new();
    let start = Instant::now();
    let mut number = 0;
    let mut segment = segment(dir, number, zeroed)?;
    let mut at = 0_u64;
    let mut chain = [0_u8; 8];
    let mut frame = Vec::new();
    while start.elapsed() < TIME {
        let before = Instant::now();
        frame.clear();
        frame.extend_from_slice(&(batch.len() as u64).to_le_bytes());
        frame.extend_from_slice(&chain);
        frame.extend_from_slice(&u64::from(crc32c::crc32c(batch)).to_le_bytes());
        frame.extend_from_slice(batch);
        chain.copy_from_slice(&blake3::hash(&frame).as_bytes()[..8]);
        if at + frame.len() as u64 > SEGMENT_BYTES {
            number += 1;
            segment = self::segment(dir, number, zeroed)?;
            at = 0;
        }
        segment.write_all_at(&frame, at)?;
        rustix::fs::fdatasync(&segment)?;
        at += frame.len() as u64;
        times.push(before.elapsed());
    }
    Ok(times)
}

/// A new segment; its preparation is part of the commit that needs it, as in the worst case.
fn segment(dir: &Path, number: u32, zeroed: bool) -> Result<std::fs::File, Box<dyn Error>> {
    let path = dir.join(format!("{zeroed}-{number}.seg"));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SEGMENT_BYTES)?;
    if zeroed {
        let zeros = vec![0_u8; 1 << 20];
        for i in 0..SEGMENT_BYTES >> 20 {
            file.write_all_at(&zeros, i << 20)?;
        }
    }
    file.sync_all()?;
    Ok(file)
}
