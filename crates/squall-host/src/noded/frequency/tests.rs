//! Frequencies of CPUs on a folder that stands in for `/sys`.

use std::fs;
use std::path::PathBuf;

use squall_model::id::{Attempt, JobId, StepKey, StepNo};

use super::Frequencies;

/// A folder that stands in for `/sys/devices/system/cpu`: CPUs 0 and 1 share a policy, CPU 2 has its own, CPU 3 has none.
struct Machine {
    folder: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Machine {
    fn new(name: &str, governors: &str, listed: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("squall-frequency-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        for (policy, cpus) in [("policy0", &[0, 1][..]), ("policy2", &[2])] {
            let policy = folder.join("cpufreq").join(policy);
            fs::create_dir_all(&policy).unwrap();
            for (name, text) in [
                ("scaling_governor", "schedutil"),
                ("scaling_available_governors", governors),
                ("scaling_available_frequencies", listed),
                ("scaling_min_freq", "800000"),
                ("scaling_max_freq", "3000000"),
                ("scaling_setspeed", "<unsupported>"),
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "3050000"),
            ] {
                fs::write(policy.join(name), format!("{text}\n")).unwrap();
            }
            for cpu in cpus {
                let cpu = folder.join(format!("cpu{cpu}"));
                fs::create_dir(&cpu).unwrap();
                std::os::unix::fs::symlink(&policy, cpu.join("cpufreq")).unwrap();
            }
        }
        fs::create_dir(folder.join("cpu3")).unwrap();
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("frequencies")
    }

    fn daemon(&self) -> Frequencies {
        Frequencies::open(&self.folder, self.file())
    }

    /// Governor, lowest and highest frequency of a CPU.
    fn of(&self, cpu: u32) -> String {
        let policy = self.folder.join(format!("cpu{cpu}/cpufreq"));
        let read = |name: &str| fs::read_to_string(policy.join(name)).unwrap().trim().to_owned();
        ["scaling_governor", "scaling_min_freq", "scaling_max_freq"].map(read).join(" ")
    }

    fn speed(&self, cpu: u32) -> String {
        let file = self.folder.join(format!("cpu{cpu}/cpufreq/scaling_setspeed"));
        fs::read_to_string(file).unwrap().trim().to_owned()
    }
}

fn key(step: u32) -> StepKey {
    StepKey { job: JobId(7), attempt: Attempt(1), step: StepNo(step) }
}

const PLAIN: &str = "schedutil 800000 3000000";
const GOVERNORS: &str = "performance schedutil";

#[test]
fn a_step_has_its_frequency_until_it_ends() {
    let machine = Machine::new("one", "performance schedutil userspace", "800000 1600000 2400000 3000000");
    let mut frequencies = machine.daemon();
    for (asked, shown) in [
        ("low-highm1:Performance", "performance 800000 2400000"),
        ("medium-high", "schedutil 1600000 3000000"),
        ("1-1500000", "schedutil 800000 1600000"),
        ("performance", "performance 800000 3000000"),
        ("high", "userspace 800000 3000000"),
    ] {
        frequencies.set(key(0), &[2], asked).unwrap();
        assert_eq!(machine.of(2), shown, "{asked}");
        assert_eq!(machine.of(0), PLAIN, "another's");
        frequencies.release(key(0));
        assert_eq!(machine.of(2), PLAIN, "after {asked}");
    }
    frequencies.set(key(0), &[2], "2000000").unwrap();
    assert_eq!(machine.speed(2), "2400000", "the next one");
    frequencies.release(key(0));
    assert!(!machine.file().exists());
}

#[test]
fn what_a_killed_daemon_set_is_set_back_by_the_next_for_steps_that_ended() {
    let machine = Machine::new("killed", GOVERNORS, "800000 3000000");
    let mut killed = machine.daemon();
    killed.set(key(0), &[0], "low").unwrap();
    killed.set(key(1), &[2], "performance").unwrap();
    drop(killed);
    let mut next = machine.daemon();
    next.keep(|step| step == key(1));
    assert_eq!((machine.of(0).as_str(), machine.of(2).as_str()), (PLAIN, "performance 800000 3000000"));
    next.release(key(1));
    assert_eq!(machine.of(2), PLAIN);
    assert!(machine.daemon().policies.is_empty());
}

#[test]
fn of_several_steps_on_a_policy_the_last_that_runs_is_obeyed() {
    let machine = Machine::new("several", GOVERNORS, "800000 2000000 3000000");
    let mut frequencies = machine.daemon();
    frequencies.set(key(0), &[0], "low").unwrap();
    frequencies.set(key(1), &[1], "high").unwrap();
    assert_eq!(machine.of(0), "schedutil 3000000 3000000");
    let mut next = machine.daemon();
    next.release(key(1));
    assert_eq!(machine.of(1), "schedutil 800000 800000", "as the other asks");
    next.set(key(1), &[1], "medium").unwrap();
    next.release(key(0));
    assert_eq!(machine.of(1), "schedutil 2000000 2000000", "the last still runs");
    next.release(key(1));
    assert_eq!(machine.of(1), PLAIN);
}

#[test]
fn what_can_not_be_set_is_refused_and_changes_nothing() {
    let machine = Machine::new("refused", GOVERNORS, "");
    let mut frequencies = machine.daemon();
    for (cpus, asked, problem) in [
        (&[2, 3][..], "low", "CPU 3 has none that can be set (cpufreq)"),
        (&[2], "ondemand", "there is no governor ondemand, but performance schedutil"),
        (&[2], "high-900000", "3050000 kHz is not below 900000 kHz"),
    ] {
        assert_eq!(frequencies.set(key(0), cpus, asked), Err(problem.to_owned()));
        assert_eq!(machine.of(2), PLAIN);
    }
    frequencies.set(key(0), &[2], "highm1").unwrap();
    assert_eq!(machine.of(2), "schedutil 3000000 3000000", "in steps of 100 MHz where they are not listed");
    let gone = machine.folder.join("cpufreq/policy0");
    fs::remove_file(gone.join("scaling_min_freq")).unwrap();
    fs::create_dir(gone.join("scaling_min_freq")).unwrap();
    assert!(frequencies.set(key(1), &[0], "low").is_err());
    assert_eq!(frequencies.policies.len(), 1, "the one that was set");
}
