//! How many nodes, tasks, CPUs and GPUs jobs and steps get (faults.md E): Squall's answers against Slurm's, which
//! `bench/peers/combinations` wrote down.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const JOBS: &str = include_str!("jobs.txt");
const STEPS: &str = include_str!("steps.txt");
const HET: &str = include_str!("het.txt");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/combinations");

/// A row of a table: options, and what Squall has to answer.
struct Row {
    options: String,
    answer: String,
}

/// Rows `OPTIONS => ANSWER`; a line `squall: ANSWER # REASON` below one is what differs from Slurm on purpose.
fn rows(table: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        if let Some(own) = line.strip_prefix("    squall: ") {
            let (answer, reason) = own.rsplit_once(" # ").unwrap();
            assert!(!reason.is_empty(), "{line}");
            answer.trim().clone_into(&mut rows.last_mut().unwrap().answer);
        } else if let Some((options, answer)) = line.split_once(" =>") {
            rows.push(Row { options: options.to_owned(), answer: answer.trim().to_owned() });
        }
    }
    rows
}

/// Without what tells which command or daemon found out.
fn plain(answer: &str) -> String {
    answer.replace("Batch job submission failed: ", "").replace("fatal: ", "")
}

/// Four nodes as those that Slurm had.
struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("squall-combinations-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("answers")).unwrap();
        fs::create_dir_all(folder.join("steps")).unwrap();
        fs::copy(Path::new(FOLDER).join("squall.toml"), folder.join("squall.toml")).unwrap();
        let cluster = Self { folder };
        Self::squall(&["links", &cluster.path("bin")]);
        Self::squall(&["up", "--state", &cluster.path("state"), "--config", &cluster.path("squall.toml")]);
        cluster
    }
    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }
    fn squall(args: &[&str]) {
        let done = Command::new(env!("CARGO_BIN_EXE_squall")).args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    }
    fn run(&self, command: &str, args: &[&str]) -> Output {
        let system = std::env::var("PATH").unwrap_or_default();
        let all = std::iter::once(command).chain(args.iter().copied());
        Command::new("timeout")
            .arg("60")
            .args(all)
            .env_clear()
            .env("PATH", format!("{}:{system}", self.path("bin")))
            .env("SQUALL_STATE", self.path("state"))
            .env("ANSWERS", self.path("answers"))
            .env("STEPS", self.path("steps"))
            .current_dir("/")
            .output()
            .unwrap()
    }
    /// What a file of answers holds.
    fn told(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join("answers").join(name)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(Command::new(env!("CARGO_BIN_EXE_squall")).args(["down", "--state", &self.path("state")]).output());
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Words as a shell takes them; no row needs quotes.
fn words(options: &str) -> Vec<&str> {
    options.split_whitespace().collect()
}

/// The lines behind a word such as `error: `.
fn said<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.split_once(word).map(|(_, rest)| rest)).collect()
}

fn answer_of_job(cluster: &Cluster, number: usize, row: &Row) -> String {
    let (name, script) = (format!("-Jrow{number}"), format!("{FOLDER}/job.sh"));
    let waits = row.answer.starts_with("waits: ");
    let how: &[&str] = if waits { &["-Q"] } else { &["-Q", "-W"] };
    let args = [how, &[name.as_str(), "-o/dev/null"], words(&row.options).as_slice(), &[script.as_str()]].concat();
    // Without -Q there would be warnings; they are judged by the test that is about them.
    let done = cluster.run("sbatch", &args);
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    let told = cluster.told(&format!("row{number}"));
    if waits {
        let queue = cluster.run("squeue", &["-h", "-o", "%r", "-n", &format!("row{number}")]);
        cluster.run("scancel", &["-n", &format!("row{number}")]);
        return format!("waits: {}", String::from_utf8_lossy(&queue.stdout).trim());
    }
    if !told.is_empty() {
        return told;
    }
    let status = done.status.code().unwrap_or(-1);
    let errors = said(&error, "error: ").into_iter().chain(said(&error, "fatal: ")).collect::<Vec<_>>();
    let first = error.lines().next().and_then(|line| line.split_once(": ")).map_or("", |(_, rest)| rest);
    let expected = |line: &&&str| plain(&row.answer) == format!("refused {status}: {}", plain(line));
    let line = errors.iter().find(expected).or(errors.last()).copied().unwrap_or(first);
    format!("refused {status}: {line}")
}

/// Compares all answers, so that a change shows all that it does.
fn judge(found: impl Iterator<Item = (Row, String)>) {
    let wrong = found.filter(|(row, answer)| plain(&row.answer) != plain(answer));
    let wrong: Vec<String> = wrong
        .map(|(row, answer)| format!("{}\n    expected: {}\n    answered: {answer}\n", row.options, row.answer))
        .collect();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.concat());
}

// faults.md E, C's D2 and D3.
#[test]
fn e_jobs_get_the_nodes_tasks_cpus_and_gpus_that_slurm_gives() {
    let cluster = Cluster::start("jobs");
    let rows = rows(JOBS);
    assert!(rows.len() > 400, "{}", rows.len());
    let answers = rows.into_iter().enumerate().map(|(number, row)| {
        let answer = answer_of_job(&cluster, number, &row);
        (row, answer)
    });
    judge(answers);
}

// faults.md E, at step level.
#[test]
fn e_steps_get_the_tasks_and_gpus_that_slurm_gives() {
    let cluster = Cluster::start("steps");
    let rows = rows(STEPS);
    assert!(rows.len() > 100, "{}", rows.len());
    let mut answers = Vec::new();
    let mut rows = rows.into_iter().peekable();
    let mut number = 0;
    while let Some(first) = rows.next() {
        let job = first.options.split_once(" -- ").unwrap().0.to_owned();
        let mut of_job = vec![first];
        while let Some(next) = rows.next_if(|row| row.options.split_once(" -- ").unwrap().0 == job) {
            of_job.push(next);
        }
        let name = format!("steps{number}");
        number += 1;
        let steps = of_job.iter().map(|row| format!("{}\n", row.options.split_once(" -- ").unwrap().1));
        fs::write(cluster.folder.join("steps").join(&name), steps.collect::<String>()).unwrap();
        let (script, named) = (format!("{FOLDER}/steps.sh"), format!("-J{name}"));
        let args = [&["-W", "-Q", &named, "-o/dev/null"], words(&job).as_slice(), &[script.as_str()]].concat();
        let done = cluster.run("sbatch", &args);
        assert!(done.status.success(), "{job}: {done:?}");
        for (at, row) in (1..).zip(of_job) {
            answers.push((row, cluster.told(&format!("{name}.{at}"))));
        }
    }
    judge(answers.into_iter());
}

/// Where the tasks of a command run, one after the other; or how it was refused.
fn answer_of_command(cluster: &Cluster, row: &Row) -> String {
    // Nodes are chosen among those that are free.
    while cluster.run("sinfo", &["-h", "-o", "%T"]).stdout != b"idle\n" {
        std::thread::yield_now();
    }
    let words = words(&row.options);
    let done = cluster.run(words[0], &words[1..]);
    let (out, error) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if done.status.success() {
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        return lines.join(", ");
    }
    let errors = said(&error, "error: ").into_iter().chain(said(&error, "fatal: ")).collect::<Vec<_>>();
    let line = errors.last().copied().unwrap_or_default();
    let line = match line.split_once("for job ") {
        Some((before, after)) if after.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{before}for job JOB{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => line.to_owned(),
    };
    format!("refused {}: {line}", done.status.code().unwrap_or(-1))
}

// faults.md F1, F2, F3 and F16: components of jobs and steps have nodes of their own; `--nodelist` names some of a
// step's nodes.
#[test]
fn f1_tasks_of_components_run_where_slurm_runs_them() {
    let cluster = Cluster::start("het");
    let rows = rows(HET);
    assert!(rows.len() > 40, "{}", rows.len());
    let answers = rows.into_iter().map(|row| {
        let answer = answer_of_command(&cluster, &row);
        (row, answer)
    });
    judge(answers);
}

// faults.md E: `-N4 -n3` says what it does, with sbatch, salloc and srun alike.
#[test]
fn e_fewer_tasks_than_nodes_are_warned_of() {
    let cluster = Cluster::start("warns");
    let warning =
        |command: &str| format!("{command}: Warning: can't run 3 processes on 4 nodes, setting nnodes to 3\n");
    for (command, args) in [
        ("sbatch", &["-W", "-N4", "-n3", "-o/dev/null", "--wrap=test $SLURM_JOB_NUM_NODES = 3"][..]),
        ("srun", &["-N4", "-n3", "sh", "-c", "test $SLURM_JOB_NUM_NODES = 3"]),
        ("salloc", &["-N4", "-n3", "sh", "-c", "test $SLURM_JOB_NUM_NODES = 3"]),
    ] {
        let done = cluster.run(command, args);
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stderr).starts_with(&warning(command)), "{done:?}");
    }
    // faults.md D2: srun says so at once, too.
    let done = cluster.run("srun", &["-N1", "-n8", "hostname"]);
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(
        error.ends_with("srun: error: Unable to allocate resources: Requested node configuration is not available\n")
    );
}
