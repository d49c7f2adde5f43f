//! `bench pingpong` and `bench fence`: the links between step daemons, measured by the step daemons themselves, with
//! the variables and the measurements of the PMIx talk of 2017 (back-up slides).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{BenchOptions, Finding, median, round};
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

/// A transport between step daemons: its name, and the environment variables that select it.
type Transport = (&'static str, &'static [(&'static str, &'static str)]);

const TREE: Transport = ("tree of nodes", &[("SLURM_PMIX_DIRECT_CONN", "false")]);
const SRUN: Transport = ("by way of srun", &[("SLURM_PMIX_DIRECT_CONN", "srun")]);
const TCP: Transport = ("TCP", &[("SLURM_PMIX_DIRECT_CONN", "tcp")]);
const UNIX: Transport = ("Unix", &[]);
const UCX: Transport = ("UCX", &[("SLURM_PMIX_DIRECT_CONN_UCX", "true")]);

/// Size of a small message, for which the main figure of `bench pingpong` is measured, bytes.
const SMALL_BYTES: u64 = 8;
/// Size of a node's contribution to a fence, for which the main figure of `bench fence` is measured, bytes.
const FENCE_BYTES: u64 = 1024;

/// Default number of nodes in the fence.
const NODES: u32 = 32;
/// Number of fences that are timed for each size.
const FENCES: &str = "40";
/// Number of round trips over the bare stream.
const BARE_TURNS: u32 = 2000;
/// Number of times that step daemons over TCP and the bare stream are measured in turn. The results depend on the cores
/// where the kernel places both ends.
const PAIRS: usize = 5;

/// Measured durations for one transport: pairs (message bytes, microseconds).
struct TransportTimes {
    way: &'static str,
    points: Vec<(u64, f64)>,
}

impl TransportTimes {
    fn at(&self, bytes: u64) -> Option<f64> {
        self.points.iter().find(|(known, _)| *known == bytes).map(|(_, us)| *us)
    }
}

/// Measures half a round trip between two step daemons, for several sizes and every transport, and the same over a bare
/// TCP stream.
pub(super) fn pingpong(options: &BenchOptions) -> Result<Finding, String> {
    let cluster = Cluster::nodes(2)?;
    let want = [("SLURM_PMIX_WANT_PP", "1")];
    let (mut tcp, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        tcp.push(measure(&cluster, 2, TCP, &want)?);
        bare.push(bare_us().map_err(|e| format!("a TCP stream on this machine: {e}"))?);
    }
    let small = |line: &TransportTimes| line.at(SMALL_BYTES).unwrap_or(f64::INFINITY);
    tcp.sort_by(|a, b| small(a).total_cmp(&small(b)));
    let tcp = tcp.swap_remove(PAIRS / 2);
    let (figure, bare) = (tcp.at(SMALL_BYTES).ok_or("nothing was measured over TCP")?, median(&mut bare));
    let mut lines = vec![measure(&cluster, 2, TREE, &want)?, tcp];
    for way in [UNIX, UCX, SRUN] {
        lines.push(measure(&cluster, 2, way, &want)?);
    }
    finding(options, "pingpong", "us for half a round trip of 8 bytes over TCP", figure, (bare, "bare TCP"), &lines)
}

/// Measures a fence of step daemons that each contribute data, for several sizes: by tree and ring, directly, through
/// the node daemons (where Slurm has its RPCs), and through `srun`.
pub(super) fn fence(options: &BenchOptions) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES);
    let cluster = Cluster::nodes(nodes)?;
    let most = [("SLURM_PMIX_WANT_COLL_PERF", "1"), ("SLURM_PMIX_COLL_PERF_UP_PWR2", "16")];
    let turns = [("SLURM_PMIX_COLL_PERF_ITER_SMALL", FENCES), ("SLURM_PMIX_COLL_PERF_ITER_LARGE", "10")];
    let mut lines = Vec::new();
    for (name, way, shape) in [
        ("mixed", UNIX, "mixed"),
        ("tree", UNIX, "tree"),
        ("ring", UNIX, "ring"),
        ("tree over TCP", TCP, "tree"),
        ("tree over UCX", UCX, "tree"),
        ("tree of nodes", TREE, "tree"),
        ("tree by way of srun", SRUN, "tree"),
    ] {
        let shape = [("SLURM_PMIX_FENCE", shape)];
        let line = measure(&cluster, nodes, way, &[&most[..], &turns[..], &shape[..]].concat())?;
        lines.push(TransportTimes { way: name, ..line });
    }
    let figure = lines[0].at(FENCE_BYTES).ok_or("nothing was measured")?;
    let through_nodes = lines[5].at(FENCE_BYTES).ok_or("nothing was measured through the tree of nodes")?;
    finding(
        options,
        "fence",
        "us for a fence with 1024 bytes of each node",
        figure,
        (through_nodes, "the same through the tree of nodes"),
        &lines,
    )
}

/// Runs a step until its step daemons have printed their measurements.
fn measure(cluster: &Cluster, nodes: u32, way: Transport, more: &[(&str, &str)]) -> Result<TransportTimes, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let nodes = nodes.to_string();
    let mut srun = Command::new(me);
    srun.args(["srun", "--overcommit", "--nodes", &nodes, "--ntasks", &nodes, "cat"]);
    srun.env("SQUALL_STATE", cluster.place().dir()).envs(way.1.iter().copied()).envs(more.iter().copied());
    srun.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut srun = srun.spawn().map_err(|e| e.to_string())?;
    let (mut points, mut others) = (Vec::new(), String::new());
    for line in BufReader::new(srun.stderr.take().ok_or("srun has no standard error")?).lines() {
        let line = line.map_err(|e| e.to_string())?;
        let words: Vec<&str> = line.split(' ').collect();
        match &words[..] {
            ["slurmstepd:", "pingpong" | "fence", bytes, "bytes", _, "times", us, ..] => {
                points.extend(bytes.parse().ok().zip(us.parse().ok()));
            }
            ["slurmstepd:", "all", "was", "measured"] => drop(srun.stdin.take()),
            _ => others.extend([line.as_str(), "\n"]),
        }
    }
    let status = srun.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(TransportTimes { way: way.0, points }) } else { Err(format!("srun: {status}\n{others}")) }
}

fn finding(
    options: &BenchOptions,
    bench: &'static str,
    unit: &'static str,
    figure: f64,
    limit: (f64, &'static str),
    lines: &[TransportTimes],
) -> Result<Finding, String> {
    if let Some(folder) = &options.pictures {
        write_picture(&chart(bench, lines).svg(), folder, bench)?;
    }
    let row = |(bytes, _): &(u64, f64)| {
        let cells = lines.iter().map(|line| (line.way.to_owned(), json!(line.at(*bytes).map(round))));
        Value::Object(std::iter::once(("bytes".to_owned(), json!(bytes))).chain(cells).collect())
    };
    let rows = lines[0].points.iter().map(row).collect();
    Ok(Finding { bench, figure, unit, limit: Some(limit), fields: vec![("us", Value::Array(rows))] })
}

fn chart(bench: &str, lines: &[TransportTimes]) -> Chart {
    let axis = |label: &str| Axis { label: label.to_owned(), log: true };
    let series = lines.iter().enumerate().map(|(color, line)| Series {
        name: line.way.to_owned(),
        stroke: Stroke::Line,
        color,
        points: line.points.iter().map(|(bytes, us)| (*bytes as f64, *us)).collect(),
    });
    Chart {
        title: format!("{bench} between step daemons"),
        x: axis("bytes"),
        y: axis("microseconds"),
        series: series.collect(),
    }
}

/// Measures half a round trip of 8 bytes over a bare TCP stream with both ends waiting in `poll`; returns microseconds.
fn bare_us() -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        while let Some(bytes) = hear(&mut stream)? {
            stream.write_all(&bytes)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let start = Instant::now();
    for _ in 0..BARE_TURNS {
        stream.write_all(&[7; SMALL_BYTES as usize])?;
        hear(&mut stream)?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(BARE_TURNS) / 2.0;
    drop(stream);
    echo.join().map_err(|_| std::io::Error::other("the echo has ended"))??;
    Ok(us)
}

/// Reads the next message from the bare stream. None: the stream has ended.
fn hear(stream: &mut TcpStream) -> std::io::Result<Option<[u8; SMALL_BYTES as usize]>> {
    let (mut bytes, mut heard) = ([0; SMALL_BYTES as usize], 0);
    while heard < bytes.len() {
        poll(&mut [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)], None)?;
        match stream.read(&mut bytes[heard..])? {
            0 => return Ok(None),
            length => heard += length,
        }
    }
    Ok(Some(bytes))
}
