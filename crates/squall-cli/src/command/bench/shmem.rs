//! `bench shmem`: how long `shmem_init` takes against the number of processes of a node, with full and with direct modex,
//! as in the PMIx talk of 2017. Beside it the CPU time that the processes take in it together: where there are more of them
//! than cores, it cannot last less than that, shared among the cores.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{Finding, Options, round};

/// Prints how long `shmem_init` took at this process, and what CPU time, milliseconds.
const PROGRAM: &str = "#include <shmem.h>\n#include <stdio.h>\n#include <time.h>\nstatic double ms(int clock) {\n  \
                       struct timespec t;\n  clock_gettime(clock, &t);\n  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;\n}\n\
                       int main(void) {\n  double wall = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_PROCESS_CPUTIME_ID);\n  \
                       shmem_init();\n  wall = ms(CLOCK_MONOTONIC) - wall;\n  cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;\n  \
                       shmem_barrier_all();\n  printf(\"%f %f\\n\", wall, cpu);\n  shmem_finalize();\n  return 0;\n}\n";

const NODES: u32 = 2;
const EACH: [u32; 4] = [1, 2, 4, 8];
const RUNS: usize = 5;

/// Name, and Open MPI's switches.
const MODES: [(&str, &[(&str, &str)]); 2] =
    [("full", &[]), ("direct", &[("OMPI_MCA_pmix_base_async_modex", "1"), ("OMPI_MCA_pmix_base_collect_data", "0")])];

/// The figure is the slowest process of the largest shape, its limit that of the smallest.
pub(super) fn run(options: &Options) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES);
    let cluster = Cluster::nodes(nodes)?;
    let source = cluster.place().dir().join("shmem.c");
    let program = source.with_extension("x");
    fs::write(&source, PROGRAM).map_err(|e| format!("{}: {e}", source.display()))?;
    let made = Command::new("oshcc").arg(&source).arg("-o").arg(&program).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("oshcc: cannot compile; Debian has it in openmpi-bin libopenmpi-dev".to_owned());
    }
    let mut rows = Vec::new();
    for (mode, switches) in MODES {
        for each in EACH {
            let (mut slowest, mut together) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                let me = std::env::current_exe().map_err(|e| e.to_string())?;
                let mut srun = Command::new(me);
                let (n, size) = (nodes.to_string(), (nodes * each).to_string());
                srun.args(["srun", "--overcommit", "--nodes", &n, "--ntasks", &size]).arg(&program);
                srun.env("SQUALL_STATE", cluster.place().dir()).envs(switches.iter().copied()).stdin(Stdio::null());
                let output = srun.output().map_err(|e| e.to_string())?;
                let text = String::from_utf8_lossy(&output.stdout);
                let pair =
                    |line: &str| line.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                let times: Vec<(f64, f64)> = text.lines().filter_map(pair).collect();
                if times.len() as u32 != nodes * each {
                    return Err(format!("srun: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
                }
                slowest.push(times.iter().map(|(wall, _)| *wall).fold(0.0, f64::max));
                together.push(times.iter().map(|(_, cpu)| cpu).sum());
            }
            slowest.sort_by(f64::total_cmp);
            together.sort_by(f64::total_cmp);
            let (ms, cpu_ms) = (round(slowest[RUNS / 2]), round(together[RUNS / 2]));
            let shape = format!("{mode} {nodes} x {each}");
            rows.push(json!({ "shape": shape, "shmem_init_ms": ms, "cpu_ms_of_all": cpu_ms }));
        }
    }
    let ms = |at: usize| rows.get(at).and_then(|row| row["shmem_init_ms"].as_f64()).unwrap_or_default();
    let (figure, limit) = (ms(EACH.len() - 1), ms(0));
    let unit = "ms of shmem_init, 8 processes each";
    let fields = vec![("shapes", Value::Array(rows))];
    Ok(Finding { bench: "shmem", figure, unit, limit: Some((limit, "1 process each")), fields })
}
