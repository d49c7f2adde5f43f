//! `squall sim TRACE.swf`: replays a workload trace under one or several policies, with the policy code of the
//! controller.

pub mod machine;
mod page;
mod pictures;
mod show;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use flate2::bufread::MultiGzDecoder;
use squall_sched::Discipline;

use self::machine::Machine;
pub use self::page::{OF_TRACES, PAGE, WORLD};
use crate::progress::Progress;
use crate::{Failure, Metrics, Past, Replay, Schedule, Trace, again, property, replay};

/// Scheduling policies, by the names that literature on traces uses.
const POLICIES: [(&str, Discipline); 4] = [
    ("fcfs", Discipline::Fifo),
    ("easy", Discipline::Easy),
    ("easy-sjbf", Discipline::EasyShortest),
    ("conservative", Discipline::Conservative),
];

/// Options of `squall sim TRACE`.
struct TraceOptions {
    trace: PathBuf,
    policies: Vec<&'static str>,
    processors: Option<u32>,
    machine: Option<String>,
    config: Option<PathBuf>,
    json: bool,
    csv: Option<PathBuf>,
    pictures: Option<PathBuf>,
    threads: usize,
    strict: bool,
}

/// Result of a trace replayed under a policy.
#[derive(Debug)]
pub struct Run {
    /// Name of the scheduling policy.
    pub policy: &'static str,
    /// Number of nodes on which jobs were placed. None: jobs ran on a pool of processors without nodes.
    pub nodes: Option<usize>,
    /// Features that jobs requested although no node has them; the replay ignores these requests.
    pub passed_over: Vec<String>,
    /// Start time of each job, and counts of scheduling passes.
    pub schedule: Schedule,
    /// Waiting times, utilisation and other metrics of the replay.
    pub metrics: Metrics,
    /// Duration of the replay in seconds.
    pub took_s: f64,
}

impl Run {
    /// Returns the jobs replayed per second.
    pub fn jobs_per_s(&self) -> f64 {
        self.metrics.jobs as f64 / self.took_s.max(1e-9)
    }
}

/// Returns whether these arguments name a trace.
pub fn is_meant(args: &[OsString]) -> bool {
    args.iter().any(|arg| is_trace(Path::new(arg)))
}

/// Returns whether a file's name is that of a trace.
pub fn is_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('-') && [".swf", ".swf.gz", ".swf-ext", ".swf-ext.gz"].iter().any(|end| name.ends_with(end))
}

/// Replays a trace, as `squall sim TRACE` does. Returns the text to print.
pub fn run(args: &[OsString]) -> Result<String, Failure> {
    let ask =
        parse(args).map_err(|problem| Failure { code: 2, text: format!("{problem}; see `squall sim --help`") })?;
    let Some(ask) = ask else { return Ok(PAGE.help()) };
    answer(&ask).map_err(|text| Failure { code: 1, text })
}

fn parse(args: &[OsString]) -> Result<Option<TraceOptions>, String> {
    let given = PAGE.parse(args)?;
    if given.has("help") {
        return Ok(None);
    }
    if let Some(option) = ["nodes", "days"].into_iter().find(|name| given.has(name)) {
        return Err(format!(
            "--{option} is for the jobs that a cluster has run; on what a trace runs say --procs, --machine or --config"
        ));
    }
    if let Some(option) = WORLD.iter().find(|name| given.has(name)) {
        return Err(format!("--{option} is for random worlds, not for a trace"));
    }
    let processors: Option<u32> = given.parsed("procs")?;
    if processors == Some(0) {
        return Err("--procs: at least one processor is needed".into());
    }
    if ["procs", "machine", "config"].into_iter().filter(|name| given.has(name)).count() > 1 {
        return Err("--procs, --machine and --config each say what the machine is: give one of them".into());
    }
    let [trace] = given.operands.as_slice() else {
        let second = given.operands.get(1).ok_or("a trace is needed")?;
        return Err(format!("{second}: one trace at a time"));
    };
    let policies: Vec<_> = given.every("policy").map(named).collect::<Result<_, _>>()?;
    let path = |name| given.last(name).map(PathBuf::from);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Some(TraceOptions {
        trace: PathBuf::from(trace),
        policies: policies.concat(),
        processors,
        machine: given.last("machine").map(str::to_owned),
        config: path("config"),
        json: given.has("json"),
        csv: path("csv"),
        pictures: path("pictures"),
        threads: given.parsed("threads")?.unwrap_or(threads).max(1),
        strict: given.has("strict"),
    }))
}

/// Parses a list of policies; `all` means every policy.
pub fn named(text: &str) -> Result<Vec<&'static str>, String> {
    if text == "all" {
        return Ok(POLICIES.iter().map(|(name, _)| *name).collect());
    }
    let find = |word: &str| {
        let known = POLICIES.iter().find(|(name, _)| *name == word);
        known.map(|(name, _)| *name).ok_or_else(|| format!("--policy: there is no policy `{word}`"))
    };
    text.split(',').map(find).collect()
}

/// Reads a trace, compressed by gzip or not. `processors`: size of the machine; None: the size that the trace states.
pub fn load(path: &Path, processors: Option<u32>) -> Result<Trace, String> {
    let problem = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut bytes = Vec::new();
    let file = BufReader::new(File::open(path).map_err(problem)?);
    if path.extension().is_some_and(|end| end == "gz") {
        MultiGzDecoder::new(file).read_to_end(&mut bytes).map_err(problem)?;
    } else {
        BufReader::new(file).read_to_end(&mut bytes).map_err(problem)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let processors = match processors {
        None => Machine::beside(path)?.as_ref().map(Machine::processors),
        given => given,
    };
    let read = if name.contains(".swf-ext") { Trace::read_extended } else { Trace::read };
    let trace = read(&String::from_utf8_lossy(&bytes), processors);
    let trace = trace.map_err(|bad| format!("{}: {bad}", path.display()))?;
    if trace.jobs.is_empty() {
        return Err(format!("{}: no job in it could run on this machine", path.display()));
    }
    Ok(trace)
}

/// Replays a trace under a policy on a pool of processors, without nodes.
pub fn under(policy: &'static str, trace: &Trace, watch: impl FnMut(usize)) -> Run {
    let discipline = POLICIES.iter().find(|(name, _)| *name == policy).map(|(_, d)| *d).unwrap_or_default();
    let processors = trace.processors.unwrap_or(1);
    let begin = Instant::now();
    let schedule = replay(&trace.jobs, &Replay { processors, discipline, short: None }, watch);
    let took_s = begin.elapsed().as_secs_f64();
    let metrics = Metrics::of(&trace.jobs, &schedule.starts, processors);
    Run { policy, nodes: None, passed_over: Vec::new(), schedule, metrics, took_s }
}

/// Replays a trace under a policy; the controller places each job on nodes.
fn on(policy: &'static str, machine: &Machine, trace: &Trace, watch: impl FnMut(usize)) -> Result<Run, String> {
    let machine = machine.under(policy)?;
    let begin = Instant::now();
    let features = machine.features();
    let course = again(&machine.config, &machine.nodes, &Past::of_trace(trace, &features), watch);
    let took_s = begin.elapsed().as_secs_f64();
    let never: Vec<_> = trace.jobs.iter().zip(&course.starts).filter(|(_, start)| start.is_none()).collect();
    if let Some((job, _)) = never.first() {
        return Err(format!(
            "{} of {} jobs can never start on this machine, first of them job {} ({} processors for {} s): its default \
             partition does not let them",
            never.len(),
            trace.jobs.len(),
            job.id,
            job.processors,
            job.estimate
        ));
    }
    let starts: Vec<u64> = course.starts.iter().flatten().map(|start| start.secs()).collect();
    let metrics = Metrics::of(&trace.jobs, &starts, machine.processors());
    let (promises, ends) = Default::default();
    let schedule = Schedule { starts, queue_max: course.queue_max, passes: course.passes, promises, ends, asides: 0 };
    let mut passed_over: Vec<String> = trace.properties.concat();
    passed_over.retain(|name| property(name, &features).is_none());
    passed_over.sort();
    passed_over.dedup();
    Ok(Run { policy, nodes: Some(machine.nodes.len()), passed_over, schedule, metrics, took_s })
}

fn answer(ask: &TraceOptions) -> Result<String, String> {
    let machine = match (&ask.machine, &ask.config) {
        (Some(sizes), _) => Some(Machine::parse(sizes)?),
        (None, Some(file)) => Some(Machine::read(file)?),
        (None, None) if ask.processors.is_some() => None,
        (None, None) => Machine::beside(&ask.trace)?,
    };
    let trace = load(&ask.trace, machine.as_ref().map(Machine::processors).or(ask.processors))?;
    if let Some(line) = trace.unknown_submit.filter(|_| ask.strict) {
        let name = ask.trace.display();
        return Err(format!("{name}: line {line}: column 2, submit time: it is missing (-1), and --strict was given"));
    }
    let runs = all(ask, machine.as_ref(), &trace)?;
    if let Some(file) = &ask.csv {
        std::fs::write(file, show::csv(&trace, &runs)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    if let Some(folder) = &ask.pictures {
        pictures::draw(&trace, &runs, folder)?;
    }
    let name = ask.trace.file_name().unwrap_or_default().to_string_lossy();
    Ok(if ask.json { show::json(&name, &trace, &runs) } else { show::table(&name, &trace, &runs) })
}

/// Replays a trace under all policies, in parallel as far as there are CPUs.
fn all(ask: &TraceOptions, machine: Option<&Machine>, trace: &Trace) -> Result<Vec<Run>, String> {
    let usual = [machine.map_or("easy", Machine::policy)];
    let policies = if ask.policies.is_empty() { &usual[..] } else { &ask.policies };
    let progress = Progress::new(trace.jobs.len() * policies.len());
    let next = AtomicUsize::new(0);
    let runs = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..ask.threads.min(policies.len()) {
            scope.spawn(|| {
                while let Some(&policy) = policies.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut before = 0;
                    let watch = |started| {
                        progress.more(started - before);
                        before = started;
                    };
                    let run = match machine {
                        Some(machine) => on(policy, machine, trace, watch),
                        None => Ok(under(policy, trace, watch)),
                    };
                    runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
                }
            });
        }
    });
    progress.end();
    let runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut runs = runs.into_iter().collect::<Result<Vec<Run>, String>>()?;
    runs.sort_by_key(|run| policies.iter().position(|policy| *policy == run.policy));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{answer, is_meant, load, named, parse, show, under};

    const TRACE: &str = "; MaxProcs: 4\n\
        1 0 -1 100 3 -1 -1 3 100 -1 1 1 1 -1 1 -1 -1 -1\n\
        2 1 -1 100 4 -1 -1 4 100 -1 1 1 1 -1 1 -1 -1 -1\n\
        3 2 -1 50 1 -1 -1 1 50 -1 1 1 1 -1 1 -1 -1 -1\n\
        4 3 -1 500 1 -1 -1 1 500 -1 1 1 1 -1 1 -1 -1 -1\n";

    #[test]
    fn a_trace_packed_or_not_under_every_policy() {
        let folder = std::env::temp_dir().join(format!("squall-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (plain, packed) = (folder.join("a.swf"), folder.join("a.swf.gz"));
        std::fs::write(&plain, TRACE).unwrap();
        let mut gz =
            flate2::write::GzEncoder::new(std::fs::File::create(&packed).unwrap(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gz, TRACE.as_bytes()).unwrap();
        gz.finish().unwrap();
        let trace = load(&plain, None).unwrap();
        assert_eq!(load(&packed, None).unwrap(), trace);
        let bad = folder.join("bad.swf");
        std::fs::write(&bad, "1 0 -1 x\n").unwrap();
        assert!(load(&bad, None).unwrap_err().ends_with("bad.swf: line 1: column 4, run time: `x` is not a number"));
        std::fs::remove_dir_all(folder).unwrap();
        let starts = |policy| under(policy, &trace, |_| {}).schedule.starts;
        assert_eq!(starts("fcfs"), [0, 100, 200, 200]);
        assert_eq!(starts("easy"), [0, 100, 2, 200]);
        assert_eq!(starts("conservative"), [0, 100, 2, 200]);
        let runs: Vec<_> = named("fcfs,easy").unwrap().into_iter().map(|p| under(p, &trace, |_| {})).collect();
        assert_eq!(show::csv(&trace, &runs[1..]).lines().nth(3), Some("easy,3,2,2,52,0,1,50"));
        let text = show::table("a.swf", &trace, &runs);
        assert!(
            text.contains("4 jobs on 4 processors") && text.contains("\nfcfs ") && text.contains("\neasy "),
            "{text}"
        );
        let value: serde_json::Value = serde_json::from_str(&show::json("a.swf", &trace, &runs[..1])).unwrap();
        assert_eq!((value["sum_wait_s"].as_u64(), value["jobs"].as_u64()), (Some(494), Some(4)));
    }

    #[test]
    fn a_job_without_a_submit_time_is_left_out_or_with_strict_refused() {
        let folder = std::env::temp_dir().join(format!("squall-trace-strict-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.swf");
        let said = |text: &str, option: &str| {
            std::fs::write(&file, text).unwrap();
            let mut words = vec![file.as_os_str().to_owned(), "--json".into(), "--policy".into(), "fcfs".into()];
            words.extend((!option.is_empty()).then(|| OsString::from(option)));
            let said = answer(&parse(&words).ok().flatten().unwrap());
            said.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap()["jobs"].as_u64().unwrap())
        };
        // The third line is that of job 2.
        let lacks = TRACE.replace("2 1 -1 100", "2 -1 -1 100");
        assert_eq!(said(&lacks, ""), Ok(3));
        let refused = said(&lacks, "--strict").unwrap_err();
        let told = "a.swf: line 3: column 2, submit time: it is missing (-1), and --strict was given";
        assert!(refused.ends_with(told), "{refused}");
        assert_eq!(said(TRACE, "--strict"), Ok(4));
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Returns the command's JSON output for the trace `a.swf`. `config` is the text of a configuration file and, after
    /// a line `---`, of a topology file.
    fn on_nodes(name: &str, config: &str, options: &str) -> Result<serde_json::Value, String> {
        let folder = std::env::temp_dir().join(format!("squall-trace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.swf"), TRACE).unwrap();
        let (config, topology) = config.split_once("---\n").unwrap_or((config, ""));
        std::fs::write(folder.join("a.toml"), config).unwrap();
        if !topology.is_empty() {
            std::fs::write(folder.join("topology.conf"), topology).unwrap();
        }
        let line = format!("DIR/a.swf --json {options}").replace("DIR", &folder.display().to_string());
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let said = answer(&parse(&words).ok().flatten().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        let said = said.map_err(|problem| problem.replace(&folder.display().to_string(), "DIR"));
        said.map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_trace_is_placed_on_nodes_of_these_sizes() {
        let waited = |options: &str| {
            let value = on_nodes("machine", "", options).unwrap();
            let number = |name: &str| value[name].as_u64();
            (number("nodes"), number("procs"), number("jobs"), number("sum_wait_s"))
        };
        // The results are those of a pool of four processors.
        assert_eq!(waited("--machine 4x1 --policy fcfs"), (Some(4), Some(4), Some(4), Some(494)));
        assert_eq!(waited("--machine 1x2+2x1 --policy easy"), (Some(3), Some(4), Some(4), Some(296)));
        assert_eq!(waited("--machine 4x1 --policy conservative"), (Some(4), Some(4), Some(4), Some(296)));
        // Job 2 doesn't fit on this machine; of the others only the last one waits.
        assert_eq!(waited("--machine 1x3").2, Some(3));
        let refused = |options: &str| on_nodes("refused", "", options).unwrap_err();
        assert_eq!(refused("--machine 4"), "--machine: `4` should be NODESxCPUS+NODESxCPUS…");
        assert_eq!(refused("--machine 0x4"), "--machine: `0x4` needs from 1 to 100000 nodes");
        assert_eq!(refused("--machine 1x4+9x99999"), "--machine: `1x4+9x99999` needs from 1 to 4096 CPUs on each node");
        let none = refused("--machine 1x4 --policy easy,easy-sjbf");
        assert!(none.starts_with("--policy: no controller has `easy-sjbf`, it is for a trace on a pool"), "{none}");
    }

    #[test]
    fn an_extended_trace_is_placed_as_its_jobs_ask() {
        let folder = std::env::temp_dir().join(format!("squall-trace-extended-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let line = |id: u32, processors: u32, spec: &str| {
            format!("{id} 0 -1 100 {processors} -1 -1 {processors} 100 -1 1 1 1 -1 1 -1 -1 -1 {{1}} q {spec}\n")
        };
        let config = "[[nodes]]\nname = \"n[1-2]\"\ncpus = 4\nfeatures = [\"fast\"]\n\
                      [[nodes]]\nname = \"n[3-4]\"\ncpus = 4\n";
        std::fs::write(folder.join("a.toml"), config).unwrap();
        let waited = |text: String, options: &str| {
            std::fs::write(folder.join("a.swf-ext"), text).unwrap();
            let line =
                format!("DIR/a.swf-ext --json {options}").trim_end().replace("DIR", &folder.display().to_string());
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let said = answer(&parse(&words).ok().flatten().unwrap())?;
            let value: serde_json::Value = serde_json::from_str(&said).unwrap();
            Ok::<_, String>((value["sum_wait_s"].as_u64().unwrap(), value["properties_passed_over"].to_string()))
        };
        let config = "--config DIR/a.toml";
        // Eight processors are two nodes. One processor on each of four nodes leaves room for other jobs, unless the
        // job is exclusive.
        let two = |first: &str, second: &str| line(1, 4, first) + &line(2, 4, second);
        assert_eq!(waited(two("4:ppn=1", "1:ppn=4"), config).unwrap(), (100, "[]".into()), "no node has four left");
        assert_eq!(waited(two("4:ppn=1", "2:ppn=2"), config).unwrap().0, 0);
        assert_eq!(waited(two("4:ppn=1#excl", "2:ppn=2"), config).unwrap().0, 100);
        // Three jobs request the two fast nodes; no node has the feature `brno`.
        let fast = |of: &str| (1..=3).map(|id| line(id, 4, &format!("1:ppn=4:{of}"))).collect::<String>();
        assert_eq!(waited(fast("brno:fast"), config).unwrap(), (100, "[\"brno\"]".into()));
        assert_eq!(waited(fast("brno"), config).unwrap().0, 0);
        // The machine may be in the trace's folder.
        let beside = folder.join("a.machines");
        std::fs::write(&beside, "0 zewura 2 4 1 64\n1 zegox 2 4 1 64\n").unwrap();
        assert_eq!(waited(fast("cl_zegox"), "--policy fcfs").unwrap(), (100, "[]".into()));
        assert_eq!(waited(fast("cl_zegox"), "--procs 16").unwrap().0, 0);
        assert_eq!(waited(fast("^cl_zegox"), "").unwrap(), (100, "[]".into()), "not there");
        assert_eq!(waited(fast("zegox2.brno.cz"), "").unwrap(), (300, "[]".into()), "all on one node");
        assert_eq!(waited(fast("^zegox2:^elsewhere"), "").unwrap(), (0, "[\"^elsewhere\"]".into()));
        std::fs::write(&beside, "0 zewura 2\n").unwrap();
        let bad = waited(fast("cl_zegox"), "--policy fcfs").unwrap_err();
        assert!(bad.ends_with("a.machines: line 1: should be NUMBER NAME NODES CPUS"), "{bad}");
        std::fs::remove_file(&beside).unwrap();
        // On a pool of processors, features don't matter.
        assert_eq!(waited(fast("fast"), "--procs 16").unwrap(), (0, "[]".into()));
        let refused = waited(two("4:ppn=1", "4:ppn=2"), config).unwrap_err();
        assert!(
            refused.ends_with("a.swf-ext: line 2: column 21, node spec `4:ppn=2`: 8 processors, but the job has 4")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_trace_runs_under_a_configuration() {
        let with = |config: &str| on_nodes("config", config, "--config DIR/a.toml");
        let node = "[[nodes]]\nname = \"n[1-2]\"\ncpus = 2\n";
        let fifo = with(&format!("scheduler_type = \"sched/builtin\"\n{node}")).unwrap();
        assert_eq!((fifo["policy"].as_str(), fifo["sum_wait_s"].as_u64()), (Some("fcfs"), Some(494)));
        let twice = with(&format!("{node}{node}")).unwrap_err();
        assert_eq!(twice, "DIR/a.toml: line 5: node `n1` stands in line 2 already");
        let easy = with(node).unwrap();
        assert_eq!((easy["policy"].as_str(), easy["sum_wait_s"].as_u64()), (Some("easy"), Some(296)));
        let said = with(&format!("{node}[[partitions]]\nname = \"p\"\nmax_time_s = 60\n")).unwrap_err();
        assert!(said.starts_with("3 of 4 jobs can never start on this machine, first of them job 1 (3 pro"), "{said}");
        // The topology in the configuration's folder is used: all nodes must have positions in it.
        let torus = |dims: &str| with(&format!("{node}---\nTorusName=t Dims={dims} Nodes=n[1-2]\n"));
        assert_eq!(torus("2x1x1").unwrap()["jobs"].as_u64(), Some(4));
        assert!(torus("3x1x1").unwrap_err().contains("topology.conf: line 1: 2 nodes for 3x1x1"));
        assert!(with("").unwrap_err().starts_with("DIR/a.toml: a trace needs nodes to run on"));
        let unknown = with("[[nodes]]\nname = \"n1\"\n").unwrap_err();
        assert!(unknown.starts_with("DIR/a.toml: node n1: a trace needs cpus = N"), "{unknown}");
    }

    #[test]
    fn command_lines() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        assert!(is_meant(&words("--json x/KTH.swf.gz")) && !is_meant(&words("--seeds 1..5")));
        let ask = parse(&words("a.swf --policy all --procs 7 --json")).ok().flatten().unwrap();
        assert_eq!((ask.policies.len(), ask.processors, ask.json), (4, Some(7), true));
        let wrong = |text: &str| parse(&words(text)).err().unwrap();
        assert_eq!(wrong("a.swf --policy sjf"), "--policy: there is no policy `sjf`");
        assert_eq!(wrong("a.swf --procs 0"), "--procs: at least one processor is needed");
        assert_eq!(wrong("a.swf b.swf"), "b.swf: one trace at a time");
        assert!(wrong("a.swf --nodes 4").starts_with("--nodes is for the jobs that a cluster has run; "));
        let twice = "--procs, --machine and --config each say what the machine is: give one of them";
        assert_eq!(wrong("a.swf --procs 4 --machine 2x2"), twice);
    }
}
