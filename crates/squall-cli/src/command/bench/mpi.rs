//! `bench mpi`: how long a whole step of an MPI program that does nothing lasts, beside the same program by the library's
//! own launcher, in turn, on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{Finding, Options};

/// Initialises, meets all others, and ends.
const HELLO: &str = "#include <mpi.h>\nint main(int c, char **v) {\n  MPI_Init(&c, &v);\n  MPI_Barrier(MPI_COMM_WORLD);\n  \
                     MPI_Finalize();\n  return 0;\n}\n";

/// Nodes, unless `--nodes` allows fewer, and tasks on each.
const NODES: [u32; 4] = [1, 2, 4, 8];
const EACH: [u32; 3] = [1, 2, 4];

/// Runs of each kind; the median counts.
const RUNS: usize = 5;

/// An MPI library as Debian has it.
struct Library {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static [&'static str],
}

const LIBRARIES: [Library; 2] = [
    Library { name: "Open MPI", compiler: "mpicc.openmpi", launcher: &["mpirun.openmpi", "--oversubscribe"] },
    Library { name: "MPICH", compiler: "mpicc.mpich", launcher: &["mpiexec.hydra"] },
];

/// The figure is the step of one Open MPI task, its limit `mpirun` of the same; the table has all shapes.
pub(super) fn run(options: &Options) -> Result<Finding, String> {
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
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut srun = Command::new(me);
        srun.args(["srun", "--overcommit", "--nodes", &nodes.to_string(), "--ntasks", &size]).arg(program);
        ours.push(milliseconds(srun.env("SQUALL_STATE", cluster.place().dir()))?);
        let mut launcher = Command::new(library.launcher[0]);
        launcher.args(&library.launcher[1..]).args(["-np", &size]).arg(program);
        let allowed = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
        theirs.push(milliseconds(launcher.envs(allowed.map(|name| (name, "1"))))?);
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    Ok(json!({
        "shape": format!("{} {nodes} x {each}", library.name),
        "srun_ms": rounded(ours),
        "launcher_ms": rounded(theirs),
        "ratio": rounded(ours / theirs),
    }))
}

fn milliseconds(command: &mut Command) -> Result<f64, String> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output();
    let name = command.get_program().to_string_lossy().into_owned();
    let output = output.map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
