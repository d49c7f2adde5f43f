//! `bench shmem`: duration of `shmem_init` for several numbers of processes on a node, with full and with direct modex,
//! as in the PMIx talk of 2017. The figure is for one node of this machine with a process on each CPU; more processes
//! and several nodes are measured, too. Also the CPU time of the processes: with more processes than CPUs, this time
//! divided by the CPUs is a lower bound.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{BenchOptions, Finding, round};

/// Source of the program: it prints how long `shmem_init` took in this process, and its CPU time, in milliseconds.
const PROGRAM: &str = "#include <shmem.h>\n#include <stdio.h>\n#include <time.h>\nstatic double ms(int clock) {\n  \
                       struct timespec t;\n  clock_gettime(clock, &t);\n  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;\n}\n\
                       int main(void) {\n  double wall = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_PROCESS_CPUTIME_ID);\n  \
                       shmem_init();\n  wall = ms(CLOCK_MONOTONIC) - wall;\n  cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;\n  \
                       shmem_barrier_all();\n  printf(\"%f %f\\n\", wall, cpu);\n  shmem_finalize();\n  return 0;\n}\n";

const NODES: u32 = 2;
/// Processes on a node go up to this number, or to its CPUs if these are more.
const EACH_MIN: u32 = 8;
const RUNS: usize = 5;

/// Modes of the PMIx data exchange (modex): name, and Open MPI's variables for it.
const MODES: [(&str, &[(&str, &str)]); 2] =
    [("full", &[]), ("direct", &[("OMPI_MCA_pmix_base_async_modex", "1"), ("OMPI_MCA_pmix_base_collect_data", "0")])];

/// A measured case, with its results: a number of nodes and of processes on each, in one mode.
struct Shape {
    mode: &'static str,
    nodes: u32,
    each: u32,
    /// Duration of `shmem_init` in the slowest process, milliseconds.
    ms: f64,
    /// CPU time of all processes together, milliseconds.
    cpu_ms: f64,
}

impl Shape {
    fn show(&self) -> Value {
        let shape = format!("{} {} x {}", self.mode, self.nodes, self.each);
        json!({ "shape": shape, "shmem_init_ms": round(self.ms), "cpu_ms_of_all": round(self.cpu_ms) })
    }
}

/// Returns the slowest process's time with one process on each CPU of a node, with that of one process alone as limit.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES);
    let cluster = Cluster::nodes(nodes)?;
    let source = cluster.place().dir().join("shmem.c");
    let program = source.with_extension("x");
    fs::write(&source, PROGRAM).map_err(|e| format!("{}: {e}", source.display()))?;
    let made = Command::new("oshcc").arg(&source).arg("-o").arg(&program).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("oshcc: cannot compile; Debian has it in openmpi-bin libopenmpi-dev".to_owned());
    }
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let mut counts: Vec<u32> = (0..=EACH_MIN.max(cpus).ilog2()).map(|power| 1 << power).collect();
    if !counts.contains(&cpus) {
        counts.push(cpus);
        counts.sort_unstable();
    }
    let mut shapes = Vec::new();
    for (mode, switches) in MODES {
        for nodes in [1, nodes].into_iter().take(nodes.min(2) as usize) {
            for &each in &counts {
                let (ms, cpu_ms) = measure(&cluster, &program, (nodes, each), switches)?;
                shapes.push(Shape { mode, nodes, each, ms, cpu_ms });
            }
        }
    }
    let ms = |each: u32| shapes.iter().find(|shape| shape.nodes == 1 && shape.each == each).map_or(0.0, |s| s.ms);
    let (figure, limit) = (round(ms(cpus)), round(ms(1)));
    let fields = vec![("cpus", cpus.into()), ("shapes", shapes.iter().map(Shape::show).collect())];
    let unit = "ms of shmem_init, a process on each CPU of a node";
    Ok(Finding { bench: "shmem", figure, unit, limit: Some((limit, "1 process")), fields })
}

/// Runs the program several times; returns the medians of the slowest process's time and of the CPU time of all, in
/// milliseconds.
fn measure(
    cluster: &Cluster,
    program: &Path,
    (nodes, each): (u32, u32),
    switches: &[(&str, &str)],
) -> Result<(f64, f64), String> {
    let (mut slowest, mut together) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut srun = Command::new(me);
        let (n, size) = (nodes.to_string(), (nodes * each).to_string());
        srun.args(["srun", "--overcommit", "--nodes", &n, "--ntasks", &size]).arg(program);
        srun.env("SQUALL_STATE", cluster.place().dir()).envs(switches.iter().copied()).stdin(Stdio::null());
        let output = srun.output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let pair = |line: &str| line.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let times: Vec<(f64, f64)> = text.lines().filter_map(pair).collect();
        if times.len() as u32 != nodes * each {
            return Err(format!("srun: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        slowest.push(times.iter().map(|(wall, _)| *wall).fold(0.0, f64::max));
        together.push(times.iter().map(|(_, cpu)| cpu).sum());
    }
    slowest.sort_by(f64::total_cmp);
    together.sort_by(f64::total_cmp);
    Ok((slowest[RUNS / 2], together[RUNS / 2]))
}
