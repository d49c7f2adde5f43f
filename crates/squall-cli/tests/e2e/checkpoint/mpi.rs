//! MPI programs on one node, which `mpirun` starts in a batch script, step aside and come back where they were.

use std::process::{Command, Stdio};

use super::{cluster, state};

/// Passes a number round, which each rank increases; the first rank prints it.
const RING: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    int main(int c, char **v) {\n\
    int rank, size, x = 0;\n\
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);\n\
    for (int i = 0; i < 100; i++) {\n\
    if (rank) MPI_Recv(&x, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
    x++;\n\
    MPI_Send(&x, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);\n\
    if (rank) continue;\n\
    MPI_Recv(&x, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
    printf(\"%d\\n\", x); fflush(stdout); usleep(50000);\n\
    }\n\
    MPI_Finalize(); return 0; }\n";

/// A ring of two ranks is checkpointed, leaves its node, comes back, and goes back to its last checkpoint: each line of its
/// output is there once, and all ranks end well.
/// `line`: of the script, which starts the ranks.
pub(super) fn ring(test: &str, compiler: &str, line: &str) {
    if Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return eprintln!("skipped: {compiler} is not installed");
    }
    let Some(c) = cluster(test) else { return };
    c.write("ring.c", RING);
    assert!(Command::new(compiler).args(["ring.c", "-o", "ring"]).current_dir(&c.dir).status().unwrap().success());
    c.script("ring.sh", &format!("{line} ./ring\necho ended $?"));
    c.ok(&["sbatch", "--checkpoint=signal", "-n", "2", "--overcommit", "-o", "out", "ring.sh"]);
    let counts = |least: usize| c.until("it counts", || c.read("out").lines().count() >= least);
    counts(5);
    assert_eq!(c.ok(&["scontrol", "checkpoint", "able", "1"]), "Yes");
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    counts(20);
    c.ok(&["scontrol", "checkpoint", "vacate", "1"]);
    counts(40);
    c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    c.until("it has ended", || state(&c).starts_with("COMPLETED"));
    let expected: Vec<String> = (1..=100).map(|n| (2 * n).to_string()).chain(["ended 0".to_owned()]).collect();
    assert_eq!(c.read("out").lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_ring_of_open_mpi_comes_back() {
    let root = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    ring("openmpi", "mpicc.openmpi", &format!("{root} mpirun.openmpi --oversubscribe -np 2"));
}

#[test]
fn a_ring_of_mpich_comes_back() {
    // UCX would use memory of System V, which CRIU dumps only in a name space of its own, and Hydra would use srun.
    ring("mpich", "mpicc.mpich", "UCX_TLS=^sysv mpirun.mpich -launcher fork -np 2");
}
