//! Measures what the tasks use, and detects when they exceed their memory limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use squall_engine::step::StepInput;
use squall_model::job::{GpuUse, Usage};
use squall_model::limits::SERIES_POINT_S;
use squall_model::series::Sample;
use squall_model::step::StepLaunch;

use crate::cgroup::StepGroups;
use crate::descendants::descendants;
use crate::detect::Places;
use crate::energy::EnergyMeter;
use crate::sys::host::{page_bytes, tick_us};
use crate::sys::wait::own_peak_kb;

/// Size of the buffer for `/proc/PID/io`: it has seven lines with a number of at most 20 digits each.
const IO_TEXT_BYTES: usize = 512;

/// Time between two measurements for the usage over time.
const POINT: Duration = Duration::from_secs(SERIES_POINT_S as u64);

/// Greatest memory use so far, and bytes read and written, of one task with its descendants.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    rss_kb: u64,
    vm_kb: u64,
    read_bytes: u64,
    write_bytes: u64,
}

/// Measures the memory use of a step.
#[derive(Debug)]
pub(super) struct Meter {
    limit_mb: u64,
    groups: StepGroups,
    /// Device files of the step's GPUs.
    gpus: Vec<String>,
    peaks: BTreeMap<u32, Peak>,
    total_peak_kb: u64,
    kills: u64,
    /// When the next measurement for the usage over time is due.
    next_point: Instant,
    /// Counts the energy of the node. None: it is not measured.
    energy: Option<EnergyMeter>,
}

impl Meter {
    /// Measures a step.
    pub(super) fn new(launch: &StepLaunch, groups: StepGroups) -> Self {
        // Whether it can be measured the node daemon has found out, and said.
        let energy = launch.energy.as_ref().and_then(|source| EnergyMeter::open(Path::new("/"), source).ok());
        Self { energy, ..Self::of(launch.memory_mb, launch.gpu_files.clone(), groups) }
    }

    /// Measures a step that may use up to `limit_mb` MiB of memory (0: no limit), and the GPUs with these files.
    fn of(limit_mb: u64, gpus: Vec<String>, groups: StepGroups) -> Self {
        // The counters of a reused group do not start at 0.
        let kills = groups.oom_kills();
        let next_point = Instant::now() + POINT;
        Self { limit_mb, groups, gpus, peaks: BTreeMap::new(), total_peak_kb: 0, kills, next_point, energy: None }
    }

    /// Measures all processes of the tasks (rank, pid). Returns inputs for the state machine: what is used now and then, and
    /// whether the step exceeds its limit and no cgroup enforces it, or the kernel has killed a process.
    pub(super) fn sample(&mut self, tasks: &[(u32, u32)]) -> Vec<StepInput> {
        // Processes that have lost their parent count against the limit too.
        let orphans = if self.limit_mb > 0 { descendants(std::process::id()) } else { Vec::new() };
        self.look_at(&families(tasks), &orphans)
    }

    /// Like `sample`, for a step with a single task: its processes are given (by its group), without reading all
    /// processes of the machine.
    pub(super) fn sample_group(&mut self, processes: Vec<u32>) -> Vec<StepInput> {
        self.look_at(&[(0, processes)], &[])
    }

    /// Measures the processes of tasks (rank, process ids) and other processes of the step. Returns inputs for the state
    /// machine.
    fn look_at(&mut self, families: &[(u32, Vec<u32>)], orphans: &[u32]) -> Vec<StepInput> {
        if let Some(energy) = &mut self.energy {
            energy.keep_up();
        }
        let (total_kb, seen) = self.look_for_peaks(families, orphans);
        let mut inputs = Vec::from_iter(self.over_limit(total_kb, &seen));
        let now = Instant::now();
        if self.next_point <= now && !seen.is_empty() {
            // A measurement that comes late makes the next ones no later.
            self.next_point = (self.next_point + POINT).max(now);
            let sum = |value: fn(&Peak) -> u64| self.peaks.values().map(value).fold(0, u64::saturating_add);
            let cpu_us = seen.iter().map(|&pid| cpu_time(pid)).map(|(user, system)| user + system).sum();
            let sample = Sample {
                cpu_us,
                rss_kb: total_kb,
                read_bytes: sum(|peak| peak.read_bytes),
                write_bytes: sum(|peak| peak.write_bytes),
                gpu_percent: self.gpus_at_work().map_or(0, |gpus| gpus.percent),
            };
            inputs.push(StepInput::Sampled { sample });
        }
        inputs
    }

    /// Returns what the step's GPUs do. None: it has none.
    fn gpus_at_work(&self) -> Option<GpuUse> {
        (!self.gpus.is_empty()).then(|| Places::default().at_work(&self.gpus))
    }

    /// Measures processes, and keeps the peaks of each task. Returns the resident memory of all, and their ids.
    fn look_for_peaks(&mut self, families: &[(u32, Vec<u32>)], orphans: &[u32]) -> (u64, BTreeSet<u32>) {
        let mut total_kb = 0;
        let mut seen = BTreeSet::new();
        for (rank, processes) in families {
            let mut now = Peak::default();
            for &process in processes {
                let (vm, rss) = memory_kb(process);
                now.rss_kb += rss;
                now.vm_kb += vm;
                let (read, written) = io_bytes(process);
                now.read_bytes += read;
                now.write_bytes += written;
                seen.insert(process);
            }
            total_kb += now.rss_kb;
            let peak = self.peaks.entry(*rank).or_default();
            peak.rss_kb = peak.rss_kb.max(now.rss_kb);
            peak.vm_kb = peak.vm_kb.max(now.vm_kb);
            peak.read_bytes = peak.read_bytes.max(now.read_bytes);
            peak.write_bytes = peak.write_bytes.max(now.write_bytes);
        }
        for &orphan in orphans {
            if seen.insert(orphan) {
                total_kb += memory_kb(orphan).1;
            }
        }
        self.total_peak_kb = self.total_peak_kb.max(total_kb);
        (total_kb, seen)
    }

    /// Returns an input for the state machine if the processes, which have `total_kb` of memory, exceed the step's limit.
    fn over_limit(&mut self, total_kb: u64, seen: &BTreeSet<u32>) -> Option<StepInput> {
        if self.groups.memory_dir().is_some() {
            return self.kernel_kills();
        }
        let limit_kb = self.limit_mb * 1024;
        // In the sum, shared pages count once for each process: they are divided before killing.
        let over = limit_kb > 0 && total_kb > limit_kb && seen.iter().map(|&p| share_kb(p)).sum::<u64>() > limit_kb;
        over.then(|| self.oom(1, true))
    }

    /// Returns an input if the kernel has killed processes of the step for its memory since the last call.
    pub(super) fn kernel_kills(&mut self) -> Option<StepInput> {
        let kills = self.groups.oom_kills();
        let more = kills.saturating_sub(self.kills);
        self.kills = kills;
        (more > 0).then(|| self.oom(more, false))
    }

    fn oom(&self, kills: u64, kill: bool) -> StepInput {
        StepInput::Oom { kills, peak_kb: self.peak_kb(), limit_mb: self.limit_mb, kill }
    }

    fn peak_kb(&self) -> u64 {
        self.groups.peak_kb().unwrap_or(self.total_peak_kb)
    }

    /// Adds measured peaks, and the energy that the node used since an earlier task ended, to the kernel's figures of a
    /// reaped task. `io`: bytes read and written at its end.
    pub(super) fn complete(&mut self, rank: u32, usage: &mut Usage, io: (u64, u64)) {
        self.add_peaks(rank, usage, io);
        usage.energy_j = self.energy.as_mut().map(EnergyMeter::take_j);
    }

    fn add_peaks(&self, rank: u32, usage: &mut Usage, io: (u64, u64)) {
        let peak = self.peaks.get(&rank).copied().unwrap_or_default();
        // A peak not above this process's own may be inherited from it: then the measured peak is more accurate.
        let is_known = usage.max_rss_kb > own_peak_kb();
        usage.max_rss_kb = if is_known || peak.rss_kb == 0 { usage.max_rss_kb.max(peak.rss_kb) } else { peak.rss_kb };
        usage.max_vm_kb = usage.max_vm_kb.max(peak.vm_kb);
        usage.read_bytes = io.0.max(peak.read_bytes);
        usage.write_bytes = io.1.max(peak.write_bytes);
    }

    /// Returns the usage so far of running tasks.
    pub(super) fn so_far(&mut self, tasks: &[(u32, u32)]) -> Usage {
        self.look_for_peaks(&families(tasks), &[]);
        let energy_j = self.energy.as_mut().map(EnergyMeter::used_j);
        let mut sum = Usage { gpus: self.gpus_at_work(), energy_j, ..Usage::default() };
        for &(rank, pid) in tasks {
            let mut usage = Usage::default();
            for process in descendants(pid).into_iter().chain([pid]) {
                let (user, system) = cpu_time(process);
                usage.user.0 += user;
                usage.system.0 += system;
            }
            self.add_peaks(rank, &mut usage, (0, 0));
            sum.absorb(&Usage { max_rss_task: rank, total_rss_kb: usage.max_rss_kb, ..usage });
        }
        sum
    }
}

/// Returns the processes of each task.
fn families(tasks: &[(u32, u32)]) -> Vec<(u32, Vec<u32>)> {
    tasks.iter().map(|&(rank, pid)| (rank, descendants(pid).into_iter().chain([pid]).collect())).collect()
}

/// Returns virtual and resident memory of a process, KiB.
fn memory_kb(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = text.split_ascii_whitespace().map(|f| f.parse::<u64>().unwrap_or(0));
    let page_kb = page_bytes() / 1024;
    (pages.next().unwrap_or(0) * page_kb, pages.next().unwrap_or(0) * page_kb)
}

/// Returns a process's share of resident memory, KiB: each shared page is divided by the number of processes that share
/// it.
fn share_kb(pid: u32) -> u64 {
    let exact = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .ok()
        .and_then(|text| value_of(&text, "Pss:").filter(|&kb| kb > 0));
    exact.unwrap_or_else(|| memory_kb(pid).1)
}

/// Returns the bytes that a process (and the children that it waited for) has read and written by system calls (`rchar`
/// and `wchar` of proc_pid_io(5)).
pub(super) fn io_bytes(pid: u32) -> (u64, u64) {
    // One read is enough for all of it: this is done at the end of each task.
    let mut room = [0; IO_TEXT_BYTES];
    let read = File::open(format!("/proc/{pid}/io")).and_then(|mut file| file.read(&mut room));
    let text = std::str::from_utf8(&room[..read.unwrap_or(0)]).unwrap_or_default();
    (value_of(text, "rchar:").unwrap_or(0), value_of(text, "wchar:").unwrap_or(0))
}

/// Returns user and system time of a process and its awaited children, microseconds.
fn cpu_time(pid: u32) -> (u64, u64) {
    let field = |n| crate::descendants::stat_field(pid, n).unwrap_or(0);
    let tick_us = tick_us();
    ((field(14) + field(16)) * tick_us, (field(15) + field(17)) * tick_us)
}

fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(key)?.split_ascii_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use squall_engine::step::StepInput;

    use squall_model::job::Usage;

    use super::Meter;
    use crate::cgroup::StepGroups;
    use crate::energy::EnergyMeter;
    use crate::energy::tests::{file, put, tree};

    #[test]
    fn this_process_uses_something() {
        let own = std::process::id();
        let mut meter = Meter::of(0, Vec::new(), StepGroups::default());
        assert_eq!(meter.sample(&[(4, own)]), []);
        let usage = meter.so_far(&[(4, own)]);
        assert!(usage.max_rss_kb > 100 && usage.max_vm_kb >= usage.max_rss_kb && usage.max_rss_task == 4, "{usage:?}");
    }

    #[test]
    fn the_usage_over_time_is_measured_now_and_then() {
        let own = std::process::id();
        let mut meter = Meter::of(0, Vec::new(), StepGroups::default());
        assert_eq!(meter.sample_group(vec![own]), []);
        meter.next_point = Instant::now();
        let said = meter.sample_group(vec![own]);
        let [StepInput::Sampled { sample }] = &said[..] else { panic!("{said:?}") };
        assert!(sample.rss_kb > 100 && sample.read_bytes > 0, "{sample:?}");
        assert_eq!(meter.sample_group(vec![own]), [], "the next one is due later");
    }

    #[test]
    fn the_energy_of_a_node_goes_to_the_tasks_that_end_and_is_counted_once() {
        let root = tree("meter", &[("sys/cray/pm_counters/energy", "100 J")]);
        let energy = EnergyMeter::open(&root, &file()).ok();
        let mut meter = Meter { energy, ..Meter::of(0, Vec::new(), StepGroups::default()) };
        put(&root, "sys/cray/pm_counters/energy", "130 J");
        assert_eq!(meter.so_far(&[(0, std::process::id())]).energy_j, Some(30));
        let mut end = |rank| {
            let mut usage = Usage::default();
            meter.complete(rank, &mut usage, (0, 0));
            usage.energy_j
        };
        assert_eq!(end(0), Some(30));
        put(&root, "sys/cray/pm_counters/energy", "142 J");
        assert_eq!((end(1), end(2)), (Some(12), Some(0)));
        std::fs::remove_dir_all(&root).unwrap();
        let mut usage = Usage::default();
        Meter::of(0, Vec::new(), StepGroups::default()).complete(0, &mut usage, (0, 0));
        assert_eq!(usage.energy_j, None, "it costs nothing where it is off");
    }

    #[test]
    fn over_the_limit_without_a_cgroup_is_said() {
        let mut meter = Meter::of(1, Vec::new(), StepGroups::default());
        let said = meter.sample(&[(0, std::process::id())]);
        assert!(
            matches!(said[..], [StepInput::Oom { kills: 1, limit_mb: 1, kill: true, peak_kb }] if peak_kb > 1024),
            "{said:?}"
        );
    }
}
