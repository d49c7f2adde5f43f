//! Two jobs of two ranks each on a node with two cores: together, or one after the other. It is a single node: several
//! emulated ones would each switch by themselves on the same kernel, and each core would bear the cost of all of them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use serde_json::{Value, json};
use squall_model::gang::GangSwitch;
use squall_model::time::Span;

use super::super::median;
use crate::bench::cluster::Cluster;
use crate::bench::round;

const SOURCE: &str = include_str!("work.c");
const COMPILER: &str = "mpicc.openmpi";

/// Timeout while waiting for ranks or jobs.
const PATIENCE: Duration = Duration::from_mins(2);
/// Interval between checks while waiting for ranks or jobs.
const LOOK: Duration = Duration::from_millis(10);

/// Number of iterations with which the machine's speed is measured.
const TRIAL: u64 = 200_000_000;

/// A mixed workload in the order of submission: the kind of each job, and the milliseconds that each of its ranks
/// computes.
const MIXED: [(RankBehaviour, u64); 6] = [
    (RankBehaviour::ComputesPlainly, 2000),
    (RankBehaviour::Sleeps { grain_us: 5000 }, 1000),
    (RankBehaviour::Meets { grain_us: 200 }, 500),
    (RankBehaviour::ComputesPlainly, 500),
    (RankBehaviour::Meets { grain_us: 200 }, 500),
    (RankBehaviour::ComputesPlainly, 250),
];

/// Number of short jobs for which the wait for a time slice is measured.
const SHORT_JOBS: usize = 5;

/// Behaviour of the ranks of a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum RankBehaviour {
    /// The ranks compute, and use MPI only to start and end.
    Computes,
    /// The ranks synchronise each time they have computed for `grain_us` microseconds.
    Meets { grain_us: u64 },
    /// The ranks compute, without MPI.
    ComputesPlainly,
    /// The ranks sleep for 5 ms each time they have computed for `grain_us` microseconds, without MPI.
    Sleeps { grain_us: u64 },
}

/// Result of two jobs that ran at the same time on the same cores.
pub(super) struct Together {
    /// Time from the first start to the last end of both jobs, seconds.
    pub(super) makespan: f64,
    /// Share of the CPU time, from 0 to 1, of the job that ended first, while both ran.
    share: f64,
    /// Mean number of cores used by the job that ended first: its CPU seconds per second of its run.
    cores: f64,
}

/// Start, end and CPU time of a job's ranks, seconds.
struct Times {
    start: f64,
    end: f64,
    cpu: f64,
}

/// A cluster on which two jobs at a time run, and the programs for them.
pub(super) struct Pairs {
    cluster: Cluster,
    folder: PathBuf,
    program: PathBuf,
    /// Path of the program compiled without MPI.
    plain: PathBuf,
    per_us: f64,
}

impl Pairs {
    pub(super) fn start() -> Result<Self, String> {
        let cluster = Cluster::with(&text("gang", "auto", 10_000), &["--nodes", "1"])?;
        let folder = cluster.place().dir().join("gang");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let (source, program, plain) = (folder.join("work.c"), folder.join("work"), folder.join("plain"));
        fs::write(&source, SOURCE).map_err(|e| format!("{}: {e}", source.display()))?;
        for (options, made) in [(&["-O1"][..], &program), (&["-O1", "-DPLAIN", "-Wl,--as-needed"], &plain)] {
            match Command::new(COMPILER).args(options).arg(&source).arg("-o").arg(made).status() {
                Ok(status) if status.success() => {}
                Ok(status) => return Err(format!("{COMPILER}: {status}")),
                Err(e) => return Err(format!("{COMPILER}: {e}; Debian has it in openmpi-bin libopenmpi-dev")),
            }
        }
        let mut pairs = Self { cluster, folder, program, plain, per_us: 1.0 };
        let times = pairs.alone(RankBehaviour::Computes, TRIAL)?;
        pairs.per_us = TRIAL as f64 / ((times.end - times.start) * 1e6);
        Ok(pairs)
    }

    /// Reconfigures the cluster: coscheduling policy, suspend mechanism, and time slice in microseconds.
    pub(super) fn configure(&self, policy: &str, switch: &str, slot_us: u64) -> Result<(), String> {
        let path = self.cluster.place().config();
        fs::write(&path, text(policy, switch, slot_us)).map_err(|e| format!("{}: {e}", path.display()))?;
        self.squall(&["scontrol", "reconfigure"]).map(drop)
    }

    /// Measures the slowdown at a time slice of `slot_us` microseconds, over several paired runs.
    pub(super) fn compare(&self, slot_us: u64, pairs: u64, work: Duration) -> Result<Value, String> {
        self.configure("gang", "auto", slot_us)?;
        let [mut slowdowns, mut shares, mut cores, mut cores_alone] = [const { Vec::new() }; 4];
        // With longer slices jobs are frozen: a finished job that stays would keep the other one frozen in its slices.
        let all_stay = Span(slot_us) <= GangSwitch::SHORT;
        let iterations = self.iterations(work);
        for _ in 0..pairs.max(1) {
            let mut alone = || {
                let times = self.alone(RankBehaviour::Computes, iterations)?;
                let took = times.end - times.start;
                cores_alone.push(times.cpu / took * 100.0);
                Ok::<f64, String>(took)
            };
            // One run alone before and one after: a drift of the machine's speed cancels out.
            let before = alone()?;
            let together = self.together(RankBehaviour::Computes, work, all_stay)?;
            let after = before + alone()?;
            slowdowns.push((together.makespan / after - 1.0) * 100.0);
            shares.push(together.share * 100.0);
            cores.push(together.cores * 100.0);
        }
        let (middle, share, cores) = (median(&mut slowdowns), median(&mut shares), median(&mut cores));
        Ok(json!({
            "quantum_ms": slot_us as f64 / 1000.0,
            "slowdown_percent": round(middle),
            "least": round(slowdowns[0]),
            "most": round(slowdowns[slowdowns.len() - 1]),
            "share_percent": round(share),
            "of_the_cores_percent": round(cores),
            "of_the_cores_alone_percent": round(median(&mut cores_alone)),
            "pairs": pairs,
        }))
    }

    /// Runs two equal jobs at once. With `all_stay` a finished job stays until the other one has finished, so that the
    /// work at its end is not measured.
    pub(super) fn together(&self, kind: RankBehaviour, work: Duration, all_stay: bool) -> Result<Together, String> {
        let iterations = self.iterations(work);
        self.submit("a", kind, iterations)?;
        self.submit("b", kind, iterations)?;
        let times = self.go(&["a", "b"], all_stay)?;
        let (start, end) = (times[0].start.min(times[1].start), times[0].end.max(times[1].end));
        let (first, last) = if times[0].end < times[1].end { (&times[0], &times[1]) } else { (&times[1], &times[0]) };
        let beside = last.cpu - (last.end - first.end);
        let (share, cores) = (first.cpu / (first.cpu + beside), first.cpu / (first.end - first.start));
        Ok(Together { makespan: end - start, share, cores })
    }

    fn alone(&self, kind: RankBehaviour, iterations: u64) -> Result<Times, String> {
        self.submit("a", kind, iterations)?;
        self.go(&["a"], true)?.pop().ok_or_else(|| "it has no ranks".to_owned())
    }

    fn iterations(&self, work: Duration) -> u64 {
        (work.as_micros() as f64 * self.per_us) as u64
    }

    fn submit(&self, name: &str, kind: RankBehaviour, iterations: u64) -> Result<(), String> {
        let (program, grain_us) = match kind {
            RankBehaviour::Computes => (&self.program, 0),
            RankBehaviour::Meets { grain_us } => (&self.program, grain_us),
            RankBehaviour::ComputesPlainly => (&self.plain, 0),
            RankBehaviour::Sleeps { grain_us } => (&self.plain, grain_us),
        };
        let grain = (grain_us as f64 * self.per_us) as u64;
        let (program, folder) = (program.display(), self.folder.display());
        let step = format!("exec squall srun {program} {iterations} {grain} {folder} {name}");
        let output = format!("{folder}/{name}.out");
        self.squall(&["sbatch", "-N1", "-n2", "--time=10", "-o", &output, "--wrap", &step]).map(drop)
    }

    /// Starts the jobs when all their ranks are ready, and waits until they have finished. With `all_stay` a finished
    /// job stays until all are, so that the work at its end (in MPI, step daemon and controller) is not measured.
    fn go(&self, names: &[&str], all_stay: bool) -> Result<Vec<Times>, String> {
        let rank_files = |word: &str| {
            let names = names.iter().flat_map(|name| [0, 1].map(|rank| (*name, rank)));
            names.map(|(name, rank)| self.folder.join(format!("{name}{word}.{rank}"))).collect::<Vec<PathBuf>>()
        };
        self.wait_for(&rank_files(".ready"))?;
        let (go, stay) = (self.folder.join("go"), self.folder.join("stay"));
        if all_stay {
            fs::write(&stay, "").map_err(|e| format!("{}: {e}", stay.display()))?;
        }
        fs::write(&go, "").map_err(|e| format!("{}: {e}", go.display()))?;
        self.wait_for(&rank_files(""))?;
        let times = names.iter().map(|name| self.times(name)).collect::<Result<Vec<_>, _>>()?;
        fs::remove_file(&go).map_err(|e| format!("{}: {e}", go.display()))?;
        fs::remove_file(&stay).or_else(missing).map_err(|e| format!("{}: {e}", stay.display()))?;
        let idle = || self.squall(&["squeue", "-h"]).is_ok_and(|said| said.trim().is_empty());
        until("the jobs are gone", idle)?;
        for file in rank_files(".ready").into_iter().chain(rank_files("")) {
            fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(times)
    }

    fn wait_for(&self, files: &[PathBuf]) -> Result<(), String> {
        until("the ranks", || files.iter().all(|file| file.exists())).map_err(|e| {
            let said = fs::read_to_string(self.folder.join("a.out")).unwrap_or_default();
            format!("{e}\n{said}")
        })
    }

    fn times(&self, name: &str) -> Result<Times, String> {
        let mut all = Times { start: f64::INFINITY, end: 0.0, cpu: f64::INFINITY };
        for rank in 0..2 {
            let path = self.folder.join(format!("{name}.{rank}"));
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let numbers: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse::<f64>().ok()).collect();
            let [start, end, cpu] = numbers[..] else { return Err(format!("{}: `{text}`", path.display())) };
            (all.start, all.end) = (all.start.min(start / 1e9), all.end.max(end / 1e9));
            all.cpu = all.cpu.min(cpu / 1e9);
        }
        Ok(all)
    }

    /// Returns the mean time in seconds from submission to end of the jobs of the mixed workload.
    pub(super) fn mixed(&self, policy: &str) -> Result<f64, String> {
        self.configure(policy, "auto", 10_000)?;
        let go = self.folder.join("go");
        fs::write(&go, "").map_err(|e| format!("{}: {e}", go.display()))?;
        let mut waiting = Vec::new();
        for (at, (kind, work_ms)) in MIXED.into_iter().enumerate() {
            let name = format!("mixed{at}");
            let files = ["", ".ready"].map(|word| [0, 1].map(|rank| self.folder.join(format!("{name}{word}.{rank}"))));
            self.submit(&name, kind, self.iterations(Duration::from_millis(work_ms)))?;
            waiting.push((Instant::now(), files, None));
        }
        until("the mixed jobs", || {
            for (submitted, [ends, _], took) in &mut waiting {
                if took.is_none() && ends.iter().all(|end| end.exists()) {
                    *took = Some(submitted.elapsed().as_secs_f64());
                }
            }
            waiting.iter().all(|(.., took)| took.is_some())
        })?;
        until("the jobs are gone", || self.squall(&["squeue", "-h"]).is_ok_and(|said| said.trim().is_empty()))?;
        for file in waiting.iter().flat_map(|(_, files, _)| files.as_flattened()).chain([&go]) {
            fs::remove_file(file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(waiting.iter().filter_map(|(.., took)| *took).sum::<f64>() / MIXED.len() as f64)
    }

    /// Measures how long a short job waits for its first time slice while a long job has the whole machine.
    pub(super) fn short_job(&self, slot: Duration) -> Result<Value, String> {
        self.configure("gang", "auto", slot.as_micros() as u64)?;
        let spin = "exec squall srun sh -c 'while :; do :; done'";
        let long = self.squall(&["sbatch", "--parsable", "-N1", "-n2", "-o", "/dev/null", "--wrap", spin])?;
        let mut waits = Vec::new();
        for _ in 0..SHORT_JOBS {
            let stamp = self.folder.join("short");
            let script = format!("date +%s%N > {0}.new; mv {0}.new {0}; sleep 1", stamp.display());
            let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let asked = now();
            self.squall(&["sbatch", "-N1", "-n2", "-o", "/dev/null", "--wrap", &script])?;
            until("the short job", || stamp.exists())?;
            let text = fs::read_to_string(&stamp).map_err(|e| format!("{}: {e}", stamp.display()))?;
            let started = text.trim().parse::<f64>().map_err(|e| format!("`{text}`: {e}"))? / 1e9;
            waits.push((started - asked) / slot.as_secs_f64());
            let alone = || self.squall(&["squeue", "-h"]).is_ok_and(|said| said.lines().count() == 1);
            until("the short job's end", alone)?;
            fs::remove_file(&stamp).map_err(|e| format!("{}: {e}", stamp.display()))?;
        }
        self.squall(&["scancel", long.trim()])?;
        until("the long job's end", || self.squall(&["squeue", "-h"]).is_ok_and(|said| said.trim().is_empty()))?;
        let middle = median(&mut waits);
        let most = waits.last().copied().unwrap_or(f64::NAN);
        Ok(json!({"quantum_ms": slot.as_millis() as u64, "quanta_waited": round(middle), "most": round(most)}))
    }

    fn squall(&self, args: &[&str]) -> Result<String, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let path = me.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
        let path = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(&me);
        command.args(args).env("SQUALL_STATE", self.cluster.place().dir()).env("PATH", path).stdin(Stdio::null());
        let output = command.output().map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}

/// Returns the configuration: a node with two cores, which jobs may share.
fn text(policy: &str, switch: &str, slot_us: u64) -> String {
    format!(
        "gang_switch = \"{switch}\"\ncoscheduling = \"{policy}\"\nSchedulerTimeSlice = \"{slot_us}us\"\n\
         [[nodes]]\nname = \"n1\"\ncpus = 2\n[[partitions]]\nname = \"gang\"\nOverSubscribe = \"FORCE:6\"\n"
    )
}

/// Ignores the error that a file to be removed does not exist.
fn missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > PATIENCE {
            return Err(format!("in vain: {what}"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
