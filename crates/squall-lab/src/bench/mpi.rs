//! `bench mpi`: duration of a whole step of an MPI program that does nothing, compared with the same program under the
//! library's own launcher, alternately, on this machine. Also the tasks' CPU time: on few cores, this time divided by
//! the cores is a lower bound for both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{BenchOptions, Finding, median, round};

/// Source of the program: it initialises MPI, passes a barrier, ends, and prints its CPU time in milliseconds.
const HELLO: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <sys/resource.h>\nint main(int c, char **v) {\n  \
                     struct rusage r;\n  MPI_Init(&c, &v);\n  MPI_Barrier(MPI_COMM_WORLD);\n  MPI_Finalize();\n  \
                     getrusage(RUSAGE_SELF, &r);\n  printf(\"%f\\n\", (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e3 + \
                     (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e3);\n  return 0;\n}\n";

/// Numbers of nodes that are measured, up to `--nodes`.
const NODES: [u32; 4] = [1, 2, 4, 8];
/// Numbers of tasks on each node that are measured.
const EACH: [u32; 3] = [1, 2, 4];

/// Number of runs of each kind; the median duration counts.
const RUNS: usize = 5;

/// An MPI library, with the names of its programs in Debian.
struct Library {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static [&'static str],
}

const LIBRARIES: [Library; 2] = [
    Library { name: "Open MPI", compiler: "mpicc.openmpi", launcher: &["mpirun.openmpi", "--oversubscribe"] },
    Library { name: "MPICH", compiler: "mpicc.mpich", launcher: &["mpiexec.hydra"] },
];

/// Returns the time of a step with one Open MPI task, with `mpirun` of the same as limit; the table has all sizes.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let most = options.nodes.unwrap_or(8);
    let cluster = Cluster::nodes(most)?;
    let folder = cluster.place().dir().join("mpi");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut rows = Vec::new();
    for library in &LIBRARIES {
        let program = library.compile(&folder)?;
        for (nodes, each) in NODES.iter().flat_map(|&nodes| EACH.map(|each| (nodes, each))) {
            if nodes <= most {
                rows.push(compare(&cluster, library, &program, (nodes, each))?);
            }
        }
    }
    let first = |key: &str| rows.first().and_then(|row| row[key].as_f64()).unwrap_or_default();
    Ok(Finding {
        bench: "mpi",
        figure: first("srun_ms"),
        unit: "ms for one Open MPI task",
        limit: Some((first("launcher_ms"), "mpirun")),
        fields: vec![("shapes", Value::Array(rows))],
    })
}

impl Library {
    fn compile(&self, folder: &Path) -> Result<PathBuf, String> {
        let source = folder.join("hello.c");
        fs::write(&source, HELLO).map_err(|e| format!("{}: {e}", source.display()))?;
        let program = folder.join(format!("hello.{}", self.compiler));
        let made = Command::new(self.compiler).arg(&source).arg("-o").arg(&program).status();
        match made {
            Ok(status) if status.success() => Ok(program),
            Ok(status) => Err(format!("{}: {status}", self.compiler)),
            Err(e) => {
                Err(format!("{}: {e}; Debian has it in openmpi-bin libopenmpi-dev mpich libmpich-dev", self.compiler))
            }
        }
    }
}

fn compare(cluster: &Cluster, library: &Library, program: &Path, shape: (u32, u32)) -> Result<Value, String> {
    let (nodes, each) = shape;
    let size = (nodes * each).to_string();
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for _ in 0..RUNS {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut srun = Command::new(me);
        srun.args(["srun", "--overcommit", "--nodes", &nodes.to_string(), "--ntasks", &size]).arg(program);
        ours.add(srun.env("SQUALL_STATE", cluster.place().dir()))?;
        let mut launcher = Command::new(library.launcher[0]);
        launcher.args(&library.launcher[1..]).args(["-np", &size]).arg(program);
        let allowed = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
        theirs.add(launcher.envs(allowed.map(|name| (name, "1"))))?;
    }
    let (ours_ms, theirs_ms) = (median(&mut ours.wall_ms), median(&mut theirs.wall_ms));
    let (ours_cpu_ms, theirs_cpu_ms) = (median(&mut ours.cpu_ms), median(&mut theirs.cpu_ms));
    Ok(json!({
        "shape": format!("{} {nodes} x {each}", library.name),
        "srun_ms": round(ours_ms),
        "launcher_ms": round(theirs_ms),
        "ratio": round(ours_ms / theirs_ms),
        "srun_tasks_cpu_ms": round(ours_cpu_ms),
        "launcher_tasks_cpu_ms": round(theirs_cpu_ms),
    }))
}

/// Duration of each run, and CPU time of all its tasks together, milliseconds.
#[derive(Default)]
struct Times {
    wall_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
}

impl Times {
    fn add(&mut self, command: &mut Command) -> Result<(), String> {
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output();
        let name = command.get_program().to_string_lossy().into_owned();
        let output = output.map_err(|e| format!("{name}: {e}"))?;
        if !output.status.success() {
            return Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()));
        }
        self.wall_ms.push(start.elapsed().as_secs_f64() * 1000.0);
        let said = String::from_utf8_lossy(&output.stdout);
        self.cpu_ms.push(said.lines().filter_map(|line| line.parse::<f64>().ok()).sum());
        Ok(())
    }
}
