//! `bench put`: time to send a file to all of n nodes: with private copies, with shared ones, and a second time.

mod figures;

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use squall_model::wire::broadcast::BroadcastTo;

use super::cluster::{Cluster, counts, list};
use super::load::Load;
use super::{BenchOptions, Finding};
use crate::client::Client;
use squall_client::broadcast::{SETTLED, broadcast, problem, wanted};

const NODES: u32 = 64;
/// Sizes of the files in STORM's figures, bytes.
pub(super) const SIZES: [u64; 3] = [4 << 20, 8 << 20, 12 << 20];
/// Number of sends of each kind; the median duration counts.
const PUTS: usize = 5;

/// Kind of send, by what the nodes store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// Each node stores the whole file.
    Private,
    /// One of the nodes that share a disk stores the file for all of them.
    Shared,
    /// All nodes have stored the file already, and its user has sent it before.
    Repeat,
}

impl Copies {
    const ALL: [Self; 3] = [Self::Private, Self::Shared, Self::Repeat];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Repeat => "repeat",
        }
    }
}

/// Measured durations of one kind of send.
struct Row {
    /// Whether the nodes are real daemons; false: they are emulated.
    real: bool,
    load: Load,
    copies: Copies,
    nodes: u32,
    size: u64,
    /// Durations in milliseconds, in ascending order.
    times: Vec<f64>,
}

impl Row {
    fn median(&self) -> f64 {
        self.times[self.times.len() / 2]
    }

    const fn kind(&self) -> &'static str {
        if self.real { "real" } else { "emulated" }
    }
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let emulated = options.nodes.or_else(|| options.real.is_none().then_some(NODES));
    let loads = if options.loads.is_empty() { &[Load::None][..] } else { &options.loads[..] };
    let sizes: Vec<u64> = options.size.map_or(SIZES.to_vec(), |size| vec![size]);
    let mut rows = Vec::new();
    for load in loads {
        // Each load has its own cluster: files that nodes have cached disappear with it.
        if let Some(nodes) = emulated {
            rows.extend(measure(&Cluster::rack(nodes, "")?, (false, nodes), *load, &sizes)?);
        }
        if let Some(nodes) = options.real {
            rows.extend(measure(&Cluster::nodes(nodes)?, (true, nodes), *load, &sizes)?);
        }
    }
    figures::finding(&rows, loads[0], &sizes, options.pictures.as_deref())
}

fn measure(cluster: &Cluster, (real, all): (bool, u32), load: Load, sizes: &[u64]) -> Result<Vec<Row>, String> {
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, all)?;
    let kept = keep(cluster, &mut client, sizes)?;
    let mut fresh = Source::new(cluster, "fresh");
    let _burden = load.start().map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for nodes in counts(all, 2) {
        for (&size, kept) in sizes.iter().zip(&kept) {
            let mut times = Copies::ALL.map(|copies| (copies, Vec::new()));
            for _ in 0..PUTS {
                for (copies, times) in &mut times {
                    let source = if *copies == Copies::Repeat { kept } else { fresh.renew(size)? };
                    times.push(put(&mut client, source, &list(nodes), *copies)?);
                }
            }
            rows.extend(times.map(|(copies, mut times)| {
                times.sort_by(f64::total_cmp);
                Row { real, load, copies, nodes, size, times }
            }));
        }
    }
    Ok(rows)
}

/// Sends a file of each size to all nodes, once it is old enough to be recognised by its inode.
pub(super) fn keep(cluster: &Cluster, client: &mut Client, sizes: &[u64]) -> Result<Vec<Source>, String> {
    let mut kept = Vec::new();
    for &size in sizes {
        let mut source = Source::new(cluster, &format!("kept{size}"));
        source.renew(size)?;
        kept.push(source);
    }
    std::thread::sleep(SETTLED + Duration::from_millis(100));
    for source in &kept {
        put(client, source, "", Copies::Shared)?;
    }
    Ok(kept)
}

/// Sends a file to nodes (an empty list: all). Returns the milliseconds until it is there, including the computation of
/// its digest.
pub(super) fn put(client: &mut Client, source: &Source, nodes: &str, copies: Copies) -> Result<f64, String> {
    let file = File::open(&source.path).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let wanted = wanted(BroadcastTo::Nodes(nodes.to_owned()), copies != Copies::Private, None, None);
    let sent = broadcast(client, &file, wanted).map_err(|e| e.to_string())?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    match sent.failed {
        Some(failed) => Err(format!("{}: {}", source.path.display(), problem(&failed))),
        None if copies == Copies::Repeat && sent.lacking > 0 => Err("it was sent again".into()),
        None => Ok(ms),
    }
}

/// A file with new content each time: a program that does nothing, followed by arbitrary bytes.
pub(super) struct Source {
    pub(super) path: PathBuf,
    seed: u64,
}

impl Source {
    pub(super) fn new(cluster: &Cluster, name: &str) -> Self {
        let seed = name.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self { path: cluster.place().dir().join(format!("bench.{name}")), seed }
    }

    /// Writes the next content, with this size in bytes.
    pub(super) fn renew(&mut self, size: u64) -> Result<&Self, String> {
        let mut bytes = std::fs::read(PROGRAM).map_err(|e| format!("{PROGRAM}: {e}"))?;
        while (bytes.len() as u64) < size {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend(self.seed.to_le_bytes());
        }
        bytes.truncate(size as usize);
        let failed = |e: io::Error| format!("{}: {e}", self.path.display());
        std::fs::write(&self.path, bytes).map_err(failed)?;
        std::fs::set_permissions(&self.path, Permissions::from_mode(0o755)).map_err(failed)?;
        Ok(self)
    }
}

/// Program that the files begin with. An executable may be followed by any bytes.
const PROGRAM: &str = "/bin/true";
