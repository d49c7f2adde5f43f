//! A cluster for one benchmark, in a temporary folder; it is shut down and removed afterwards.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_host::life::{self, Daemon};
use squall_model::id::ClientKey;
use squall_model::job::JobSpec;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::Diag;

use crate::client::Client;

/// Timeout for the start of all nodes.
const START_TIME: Duration = Duration::from_mins(1);
/// Interval at which the cluster is asked whether all nodes have started.
const START_POLL: Duration = Duration::from_millis(20);
/// Time without an end of a job after which jobs are not waited for any more.
const STALLED: Duration = Duration::from_mins(1);

/// Number and kind of a cluster's nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// One real node, configured with this number of CPUs.
    Slots(u32),
    /// Emulated nodes: this number of them.
    Rack(u32),
}

/// A running cluster of one benchmark, or one that runs anyway.
pub(crate) struct Cluster {
    /// The folder of the benchmark's own cluster, which ends with it. None: the cluster runs anyway.
    folder: Option<PathBuf>,
    place: Place,
}

impl Cluster {
    /// Starts a cluster with one real node, configured with `slots` CPUs.
    pub(crate) fn start(slots: u32) -> Result<Self, String> {
        Self::of(Scale::Slots(slots), "", true)
    }

    /// Returns the cluster that runs with the state folder `dir`.
    pub(crate) fn at(dir: &Path) -> Result<Self, String> {
        Ok(Self { folder: None, place: Place::at(dir).map_err(|e| e.to_string())? })
    }

    /// Starts a cluster of this scale with the additional configuration text `config`; without `durable` its journal is
    /// not flushed.
    pub(crate) fn of(scale: Scale, config: &str, durable: bool) -> Result<Self, String> {
        Self::prepared(scale, config, durable, |_| Ok(()))
    }

    /// Like [`Cluster::of`]; `prepare` is called with the state folder before the controller starts.
    pub(crate) fn prepared(
        scale: Scale,
        config: &str,
        durable: bool,
        prepare: impl FnOnce(&Place) -> Result<(), String>,
    ) -> Result<Self, String> {
        let (text, rack) = match scale {
            Scale::Slots(cpus) => {
                (format!("{config}\n[[nodes]]\nname = \"bench\"\ncpus = {cpus}\nforce = true\n"), None)
            }
            Scale::Rack(nodes) => (config.to_owned(), Some(nodes)),
        };
        let cluster = Self::somewhere()?;
        life::make_folders(&cluster.place)?;
        life::write_config(&cluster.place, &life::config_text(Some(&text), None, rack, None)?)?;
        prepare(&cluster.place)?;
        let further: &[&str] = if durable { &[] } else { &["--without-durability"] };
        cluster.start_controller(further)?;
        cluster.squall(&["up"])?;
        Ok(cluster)
    }

    /// Starts the controller with further arguments, which `squall up` would not pass on, and waits until it answers.
    fn start_controller(&self, further: &[&str]) -> Result<(), String> {
        let daemon = Daemon::Controller;
        let mut started = daemon.start(&self.place, further).map_err(|e| format!("cannot start {daemon}: {e}"))?;
        let begin = Instant::now();
        while Client::connect_to(&self.place, "bench").and_then(|mut client| client.ask(&Request::Ping)).is_err() {
            if let Some(said) = started.failure() {
                return Err(format!("{daemon} did not start:\n{said}"));
            }
            if begin.elapsed() > START_TIME {
                return Err(format!("{daemon} does not answer; see {}", daemon.log_file(&self.place).display()));
            }
            sleep(START_POLL);
        }
        Ok(())
    }

    /// Starts a cluster divided into cells behind a front, each with a part of the nodes. Such a cluster is always
    /// durable.
    pub(crate) fn of_cells(cells: u32, scale: Scale, config: &str, durable: bool) -> Result<Self, String> {
        let count = cells.to_string();
        match scale {
            _ if cells <= 1 => Self::of(scale, config, durable),
            Scale::Slots(slots) => {
                let slots = (slots / cells).max(1);
                let nodes = format!("{config}\n[[nodes]]\nname = \"bench[1-{cells}]\"\ncpus = {slots}\nforce = true\n");
                Self::with(&nodes, &["--cells", &count])
            }
            Scale::Rack(nodes) => Self::with(config, &["--rack", &nodes.to_string(), "--cells", &count]),
        }
    }

    /// Starts a cluster with real node daemons, each with this machine's CPUs.
    pub(crate) fn nodes(nodes: u32) -> Result<Self, String> {
        Self::with("", &["--nodes", &nodes.to_string()])
    }

    /// Starts a cluster with this number of emulated nodes and the additional configuration text `config`.
    pub(crate) fn rack(nodes: u32, config: &str) -> Result<Self, String> {
        Self::of(Scale::Rack(nodes), config, true)
    }

    /// Starts a cluster with a configuration and further arguments of `squall up`.
    pub(crate) fn with(text: &str, args: &[&str]) -> Result<Self, String> {
        let cluster = Self::somewhere()?;
        let config = cluster.place.dir().with_file_name("bench.toml");
        std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        let config = config.to_string_lossy();
        cluster.squall(&[&["up", "--config", &config][..], args].concat())?;
        Ok(cluster)
    }

    /// Creates the cluster's folder.
    fn somewhere() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("squall-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let place = Place::at(&folder.join("state")).map_err(|e| e.to_string())?;
        Ok(Self { folder: Some(folder), place })
    }

    /// Returns the cluster's state folder.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Opens a new connection to the controller.
    pub(crate) fn client(&self) -> Result<Client, String> {
        Client::connect_to(&self.place, "bench").map_err(|e| e.to_string())
    }

    /// Waits until this number of nodes is connected.
    pub(crate) fn wait_for(client: &mut Client, nodes: u32) -> Result<(), String> {
        let start = Instant::now();
        loop {
            match client.ask(&Request::Ping).map_err(|e| e.to_string())? {
                Answer::Pong { nodes_up, .. } if nodes_up >= nodes => return Ok(()),
                _ if start.elapsed() > START_TIME => return Err(format!("not all {nodes} nodes have come")),
                _ => sleep(START_POLL),
            }
        }
    }

    /// Returns the controller's counters.
    pub(crate) fn diag(client: &mut Client) -> Result<Diag, String> {
        match client.ask(&Request::Diag { reset: false }) {
            Ok(Answer::Diag(diag)) => Ok(*diag),
            Ok(_) => Err(crate::client::unexpected().to_string()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Waits until this many jobs have completed since the cluster's start.
    pub(crate) fn until_completed(client: &mut Client, jobs: u64) -> Result<(), String> {
        let (mut last, mut news) = (0, Instant::now());
        loop {
            let done = Self::diag(client)?.jobs_completed;
            if done >= jobs {
                return Ok(());
            }
            if done > last {
                (last, news) = (done, Instant::now());
            }
            if news.elapsed() > STALLED {
                return Err(format!("only {done} of {jobs} jobs have completed, none for {STALLED:?}"));
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Returns the CPU time of the controller (or all cells' controllers), and that of the node daemons with all
    /// processes they started.
    pub(crate) fn cpu(&self) -> (Duration, Duration) {
        let cells: Vec<Place> = self.place.cells().unwrap_or_default().into_values().collect();
        let places = if cells.is_empty() { vec![self.place.clone()] } else { cells };
        places.iter().map(cpu_in).fold((Duration::ZERO, Duration::ZERO), |sum, cpu| (sum.0 + cpu.0, sum.1 + cpu.1))
    }

    /// Returns the controller's resident memory in KiB; 0: it does not run.
    pub(crate) fn controller_kb(&self) -> f64 {
        pid_in(&self.place.controller_pid()).map_or(0.0, |pid| resident_kb(pid) as f64)
    }

    /// Returns the highest resident memory that the controller has had, in MiB; 0: it does not run.
    pub(crate) fn controller_peak_mb(&self) -> u64 {
        pid_in(&self.place.controller_pid()).map_or(0, |pid| status_kb(pid, "VmHWM:") / 1024)
    }

    /// Returns the CPU time of the cells' front.
    pub(crate) fn front_cpu(&self) -> Duration {
        used(&self.place.front_pid())
    }

    /// Runs one of this program's commands on the cluster and returns its duration in milliseconds.
    pub(crate) fn command_ms<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<f64, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let start = Instant::now();
        let output = Command::new(me)
            .args(args)
            .env("SQUALL_STATE", self.place.dir())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| e.to_string())?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if output.status.success() {
            return Ok(ms);
        }
        let words: Vec<_> = args.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim_end()))
    }

    fn squall(&self, args: &[&str]) -> Result<(), String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let output = Command::new(me)
            .args(args)
            .arg("--state")
            .arg(self.place.dir())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("squall {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}

/// Returns the CPU time of the daemon with this pid file.
fn used(pid_file: &Path) -> Duration {
    pid_in(pid_file).map_or(Duration::ZERO, squall_host::processes::cpu_time)
}

fn pid_in(pid_file: &Path) -> Option<u32> {
    std::fs::read_to_string(pid_file).ok()?.split_whitespace().next()?.parse().ok()
}

/// Returns the resident memory of a process in KiB.
pub(super) fn resident_kb(pid: u32) -> u64 {
    status_kb(pid, "VmRSS:")
}

/// Returns an amount of memory in a process's `status`, in KiB; 0: there is no such line, or process.
pub(super) fn status_kb(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or_default()
}

/// Returns the CPU time of a controller, and of its node daemons.
fn cpu_in(place: &Place) -> (Duration, Duration) {
    let files = std::fs::read_dir(place.run()).into_iter().flatten().flatten().map(|entry| entry.path());
    let nodes = files.filter(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        (name.starts_with("node-") || name.starts_with("rack-")) && path.extension().is_some_and(|kind| kind == "pid")
    });
    (used(&place.controller_pid()), nodes.map(|file| used(&file)).sum())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        if let Err(e) = self.squall(&["down"]) {
            eprintln!("{e}");
        }
        if let Err(e) = std::fs::remove_dir_all(folder) {
            eprintln!("{}: {e}", folder.display());
        }
    }
}

/// Returns a submission of the smallest possible batch job: its script is executed by `/bin/true`.
pub(crate) fn submission(number: u64, hold: bool) -> Request {
    submission_of(number, hold, TRUE)
}

/// Batch script that does nothing, executed without a shell.
pub(super) const TRUE: &str = "#!/bin/true\n";
/// Batch script that does nothing, executed by a shell.
pub(super) const SHELL: &str = "#!/bin/sh\ntrue\n";

/// Returns a submission of the batch script `script`. `number`: a different one for each job; `hold`: whether the job
/// is held.
pub(super) fn submission_of(number: u64, hold: bool, script: &str) -> Request {
    let spec = JobSpec {
        name: "bench".into(),
        work_dir: "/".into(),
        command: "bench".into(),
        stdout: Some("/dev/null".into()),
        submit_line: "squall bench".into(),
        hold,
        ..JobSpec::default()
    };
    Request::Submit {
        spec: Arc::new(spec),
        script: serde_bytes(script.as_bytes()),
        env: serde_bytes(b"PATH=/usr/bin:/bin\0"),
        key: ClientKey(u128::from(number) << 64 | u128::from(std::process::id())),
    }
}

fn serde_bytes(bytes: &[u8]) -> squall_model::encoding::ByteBuf {
    squall_model::encoding::ByteBuf::from(bytes)
}

/// Returns node counts to measure: powers of `1 << power` below `all`, then `all`.
pub(crate) fn counts(all: u32, power: u32) -> Vec<u32> {
    (0..32 / power).map(|step| 1_u32 << (power * step)).filter(|count| *count < all).chain([all]).collect()
}

/// Returns the first `nodes` nodes as a host list.
pub(crate) fn list(nodes: u32) -> String {
    if nodes == 1 { "n1".to_owned() } else { format!("n[1-{nodes}]") }
}
