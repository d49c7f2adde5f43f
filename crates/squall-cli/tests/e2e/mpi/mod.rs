//! Programs of Debian's MPI libraries, unmodified, by `srun` without a word on how they start. Where a library is not
//! installed its test says so and passes.

mod misuse;
mod modes;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::traces;

use squall_host::spool::witness;

const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mpi/hello.c");
const ENDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mpi/ends.c");
/// Where our programs are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mpi");

/// Where Debian has the headers of libpmix, which come with Open MPI's.
const PMIX_HEADERS: &str = "/usr/lib/x86_64-linux-gnu/pmix2/include";

/// A cluster of eight nodes of four CPUs, and programs of one MPI library.
struct Site {
    folder: PathBuf,
    /// What was in shared memory before.
    before: BTreeSet<String>,
    /// One at a time: each has eight nodes.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// Folders of steps in shared memory. Their names do not say of which cluster they are.
fn folders_of_steps() -> BTreeSet<String> {
    let entries = Path::new("/dev/shm").read_dir().into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("squall-") && name.contains(',')).collect()
}

/// Asserts that no folder of a step is left in shared memory but those of `before`. Those of other tests' clusters go while it
/// waits.
fn no_folder_is_left(before: &BTreeSet<String>) {
    let mut left: BTreeSet<String> = folders_of_steps().difference(before).cloned().collect();
    let end = Instant::now() + Duration::from_mins(1);
    while !left.is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        left = left.intersection(&folders_of_steps()).cloned().collect();
    }
    assert!(left.is_empty(), "left over: {left:#?}");
}

impl Site {
    /// None: there is no such compiler here.
    fn with(compiler: &str) -> Option<Self> {
        if Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            eprintln!("skipped: {compiler} is not installed");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("squall-mpi-{}-{compiler}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        for (source, program) in [(HELLO, "hello"), (ENDS, "ends")] {
            let made = Command::new(compiler).args([source, "-o"]).arg(folder.join(program)).status().unwrap();
            assert!(made.success(), "{compiler} {source}");
        }
        let config = "[[nodes]]\nname = \"n[1-8]\"\ncpus = 4\nmemory_mb = 1024\nforce = true\n";
        fs::write(folder.join("site.toml"), config).unwrap();
        let site = Self { folder, before: folders_of_steps(), _alone: alone };
        let up =
            site.run(&["up", "--nodes", "8", "--config", &site.path("site.toml"), "--state", &site.path("state")], &[]);
        assert_eq!(up.0, 0, "{}", up.2);
        Some(site)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Status, output, errors.
    fn run(&self, args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
        let out = Command::new(env!("CARGO_BIN_EXE_squall"))
            .args(args)
            .env("SQUALL_STATE", self.folder.join("state"))
            .envs(env.iter().copied())
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let status = out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(0));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status, text(&out.stdout), text(&out.stderr))
    }

    fn srun(&self, args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
        self.run(&[&["srun"], args].concat(), env)
    }

    /// Compiles a program that speaks PMIx itself. No: it can't be here.
    fn compile_pmix(&self, name: &str) -> bool {
        let mut cc = Command::new("cc");
        cc.args([&format!("-I{PMIX_HEADERS}"), &format!("{SOURCES}/{name}.c"), "-lpmix", "-o"]);
        let made = cc.arg(self.folder.join(name)).status().is_ok_and(|status| status.success());
        if !made {
            eprintln!("skipped: no headers of libpmix");
        }
        made
    }

    /// Direct modex, published names and groups, between nodes and within one.
    fn speaks_pmix(&self) {
        if !self.compile_pmix("pmix") {
            return;
        }
        let (status, out, err) = self.srun(&["-N2", "--ntasks-per-node=2", "./pmix"], &[("SQUALL_WIREUP_STATS", "1")]);
        assert_eq!(status, 0, "{out}\n{err}");
        let want = (0..4).map(|rank| format!("{rank}: card {} port here;there of 0", 100 + (rank + 1) % 4));
        assert_eq!(out.lines().map(str::to_owned).collect::<BTreeSet<_>>(), want.collect(), "{err}");
        for node in ["n1", "n2"] {
            let counted = err.lines().find(|line| line.contains(&format!("wireup on {node}"))).unwrap_or(&err);
            assert!(counted.contains("asked: 1, served: 1"), "each node asks the other once: {counted}");
        }
    }

    /// Questions of a program to its resource manager are answered or refused, in words.
    fn answers_programs(&self) {
        if !self.compile_pmix("asks") {
            return;
        }
        let (status, out, err) = self.srun(&["-N2", "--ntasks-per-node=2", "./asks"], &[]);
        let spawn = |rank| if rank == 0 { "NOT-SUPPORTED" } else { "SUCCESS" };
        let want = (0..4).map(|rank| format!("{rank} own 2 unknown NOT-FOUND spawn {}", spawn(rank)));
        assert_eq!((status, out.lines().map(str::to_owned).collect::<BTreeSet<_>>()), (0, want.collect()), "{err}");
        assert!(err.contains("task 0 asks for further processes (MPI_Comm_spawn)"), "{err}");
        assert!((0..4).all(|rank| err.contains(&format!("word of {rank}\n"))), "{err}");
        let (status, out, err) = self.srun(&["-N2", "--ntasks-per-node=2", "./asks", "end"], &[]);
        assert!(status == 137 && err.contains("task 3 had the step ended"), "status {status}: {out}\n{err}");
    }

    /// Every rank is who it is, where it is, with those of its node, and hears the others.
    fn greets(&self, nodes: u32, each: u32, more: &[&str]) {
        let size = nodes * each;
        let shape = [format!("-wn[1-{nodes}]"), format!("-N{nodes}"), format!("--ntasks-per-node={each}")];
        let args: Vec<&str> = shape.iter().map(String::as_str).chain(more.iter().copied()).chain(["./hello"]).collect();
        let (status, out, err) = self.srun(&args, &[]);
        assert_eq!(
            (status, err.as_str()),
            (0, ""),
            "{args:?}: {out}\n{}",
            traces::log_ends(&self.folder.join("state"))
        );
        let want: BTreeSet<String> = (0..size)
            .map(|rank| {
                let (node, sum, from) = (rank / each + 1, size * (size - 1) / 2, (rank + size - 1) % size);
                format!("{rank} of {size} on n{node} shared {each} sum {sum} from {from}")
            })
            .collect();
        assert_eq!(out.lines().map(str::to_owned).collect::<BTreeSet<_>>(), want, "{args:?}");
    }

    /// A rank that ends badly ends the step with that status and a word on why.
    fn ends(&self, way: &str, env: &[(&str, &str)], status: i32, why: &str) {
        let (found, out, err) = self.srun(&["-N2", "--ntasks-per-node=2", "./ends", way, "3"], env);
        assert!(found == status && err.contains(why), "{way}: status {found}\n{out}\n{err}");
    }

    /// A port is found by its name, and no longer when that was taken back; `connects`: the library can connect by it.
    fn finds_names(&self, compiler: &str, connects: bool) {
        let mut made = Command::new(compiler);
        made.arg(format!("{SOURCES}/names.c")).arg("-o").arg(self.folder.join("names"));
        assert!(made.status().unwrap().success(), "{compiler} names.c");
        let (status, out, err) = self.srun(&["-N2", "-n2", "./names"], &[]);
        assert_eq!((status, out.as_str()), (0, "found a;port=of$mine\ngone\n"), "{err}");
        if connects {
            let (status, out, err) = self.srun(&["-N2", "-n2", "./names", "connect"], &[]);
            let want = ["0 heard 101", "1 heard 100", "gone"].into();
            assert_eq!((status, out.lines().collect::<BTreeSet<_>>()), (0, want), "{err}");
        }
    }

    fn ends_well_and_badly(&self) {
        for (nodes, each) in [(1, 1), (1, 4), (2, 2), (8, 1)] {
            self.greets(nodes, each, &[]);
        }
        // The library and the step daemon both tidy up as it ends; neither may stumble over the other.
        for _ in 0..10 {
            self.greets(1, 4, &[]);
        }
        self.greets(2, 1, &["--mpi=pmix"]);
        self.greets(2, 1, &["--mpi=pmi2"]);
        let unknown = self.srun(&["-N1", "--mpi=mpich1_p4", "./hello"], &[]);
        assert!(unknown.0 == 1 && unknown.2.contains("invalid MPI type 'mpich1_p4', --mpi=list for"), "{}", unknown.2);
        self.ends("abort", &[], 7, "task 3 called MPI_Abort with code 7");
        self.ends("before", &[], 1, "task 3 ended before MPI_Init, while task");
        self.ends("leave", &[], 1, "task 3 ended with exit code 0 after MPI_Init and before MPI_Finalize");
        self.ends("crash", &[], 134, "task 3 ended by signal 6 after MPI_Init");
        self.ends("late", &[("SLURM_PMIX_TIMEOUT", "1")], 1, "not all tasks have come in time");
    }

    /// What comes with Open MPI: OpenSHMEM, and Python's mpi4py where it is.
    fn runs_openshmem_and_python(&self) {
        let mut oshcc = Command::new("oshcc");
        oshcc.arg(format!("{SOURCES}/shmem.c")).arg("-o").arg(self.folder.join("shmem"));
        if oshcc.status().is_ok_and(|status| status.success()) {
            let (status, out, err) = self.srun(&["-N2", "--ntasks-per-node=2", "./shmem"], &[]);
            assert_eq!((status, out.lines().filter(|line| *line == "4: 6").count()), (0, 4), "{out}\n{err}");
        }
        let program = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.size, w.allreduce(w.rank))";
        let there = Command::new("python3").args(["-c", "import mpi4py"]).stderr(Stdio::null()).status();
        if there.is_ok_and(|status| status.success()) {
            let (status, out, err) = self.srun(&["-N2", "--ntasks-per-node=2", "python3", "-c", program], &[]);
            assert_eq!((status, out.lines().filter(|line| *line == "4 6").count()), (0, 4), "{out}\n{err}");
        }
    }

    fn in_a_script(&self) {
        let script = "#!/bin/sh\nsrun -n2 ./hello & srun -n2 ./hello; wait\n";
        fs::write(self.folder.join("job.sh"), script).unwrap();
        let links = self.run(&["links", &self.path("bin")], &[]);
        assert_eq!(links.0, 0, "{}", links.2);
        let path = format!("{}:{}", self.path("bin"), std::env::var("PATH").unwrap_or_default());
        let (status, _, err) = self
            .run(&["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "-o", "job.out", "job.sh"], &[("PATH", &path)]);
        let out = fs::read_to_string(self.folder.join("job.out")).unwrap_or_default();
        assert_eq!(status, 0, "{err}\n{out}");
        assert_eq!(out.lines().filter(|line| line.contains("of 2 on")).count(), 4, "{out}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let state = self.folder.join("state");
        let witnesses: Vec<PathBuf> = (1..=8).filter_map(|n| witness::place(&state, &format!("n{n}"))).collect();
        let down = self.run(&["down", "--state", &self.path("state")], &[]);
        if !std::thread::panicking() {
            assert_eq!(down.0, 0, "{}", down.2);
            let left = traces::processes(&self.folder);
            assert!(left.is_empty(), "left over: {left:#?}");
            let left: Vec<PathBuf> = witnesses.into_iter().filter(|path| path.exists()).collect();
            assert!(left.is_empty(), "left over: {left:#?}");
            no_folder_is_left(&self.before);
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

#[test]
fn open_mpi() {
    let Some(site) = Site::with("mpicc.openmpi") else { return };
    site.ends_well_and_badly();
    site.in_a_script();
    site.speaks_pmix();
    site.answers_programs();
    site.finds_names("mpicc.openmpi", true);
    site.fences_hold();
    site.tells_all();
    site.refuses_other_users();
    site.is_not_held_up();
    site.outlives_a_node_daemon();
    site.lives_in_an_allocation(Some(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np 4",
    ));
    site.runs_openshmem_and_python();
    site.ends("twice", &[], 1, "MPI_Finalize");
    site.does_without_libpmix();
    let alone = [("OMPI_MCA_pmix", "isolated"), ("OMPI_MCA_ess", "singleton")];
    let (_, out, err) = site.srun(&["-N1", "-n2", "./hello"], &alone);
    assert!(err.contains("each has run alone"), "N singletons are no parallel program: {out}\n{err}");
    let (_, _, err) = site.srun(&["-N1", "-n2", "--mpi=none", "./hello"], &[]);
    assert!(err.contains("PMI"), "it is refused what the user refuses: {err}");
}

#[test]
fn mpich() {
    let Some(site) = Site::with("mpicc.mpich") else { return };
    site.ends_well_and_badly();
    site.in_a_script();
    site.finds_names("mpicc.mpich", false);
    site.lives_in_an_allocation(None);
    site.loses_a_step_daemon();
}
