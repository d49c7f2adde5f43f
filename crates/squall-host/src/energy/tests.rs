//! Tests of reading energy, with folders in place of the kernel's.

use std::fs;
use std::path::{Path, PathBuf};

use squall_model::energy::EnergySource;

use super::{EnergyMeter, microjoules};

/// Makes a folder with these files.
pub(crate) fn tree(test: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = std::env::temp_dir().join(format!("squall-energy-{}-{test}", std::process::id()));
    drop(fs::remove_dir_all(&root));
    fs::create_dir_all(&root).unwrap();
    for (path, text) in files {
        put(&root, path, text);
    }
    root
}

pub(crate) fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn rapl() -> EnergySource {
    EnergySource { file: String::new(), every_s: 30 }
}

pub(crate) fn file() -> EnergySource {
    EnergySource { file: "/sys/cray/pm_counters/energy".into(), every_s: 30 }
}

#[test]
fn processors_and_memory_count_once_also_past_the_end_of_a_counter() {
    const ZONES: &str = "sys/class/powercap";
    let root = tree("rapl", &[]);
    for (zone, name, range, at) in [
        ("intel-rapl:0", "package-0", 262_000_000, 261_000_000),
        ("intel-rapl:0:0", "core", 262_000_000, 1),
        ("intel-rapl:0:1", "dram", 65_000_000, 2_000_000),
        ("intel-rapl:1", "psys", 262_000_000, 5),
        ("intel-rapl-mmio:0", "package-0", 262_000_000, 7),
    ] {
        put(&root, &format!("{ZONES}/{zone}/name"), &format!("{name}\n"));
        put(&root, &format!("{ZONES}/{zone}/max_energy_range_uj"), &format!("{range}\n"));
        put(&root, &format!("{ZONES}/{zone}/energy_uj"), &format!("{at}\n"));
    }
    put(&root, &format!("{ZONES}/intel-rapl/enabled"), "1\n");
    let mut meter = EnergyMeter::open(&root, &rapl()).unwrap();
    assert_eq!(meter.take_j(), 0);
    // A million to the end of the counter, and four and a half from its beginning on; half of the memory's stays.
    put(&root, &format!("{ZONES}/intel-rapl:0/energy_uj"), "4500000\n");
    put(&root, &format!("{ZONES}/intel-rapl:0:1/energy_uj"), "2400000\n");
    put(&root, &format!("{ZONES}/intel-rapl:1/energy_uj"), "9000000\n");
    assert_eq!((meter.used_j(), meter.take_j(), meter.take_j()), (5, 5, 0));
    put(&root, &format!("{ZONES}/intel-rapl:0/energy_uj"), "4600000\n");
    assert_eq!(meter.take_j(), 1, "what was left counts");
    put(&root, &format!("{ZONES}/intel-rapl:0/energy_uj"), "broken\n");
    assert_eq!(meter.take_j(), 0);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_file_counts_joules_and_may_be_set_back() {
    let root = tree("file", &[("sys/cray/pm_counters/energy", "12345 J 1700000 us\n")]);
    let mut meter = EnergyMeter::open(&root, &file()).unwrap();
    put(&root, "sys/cray/pm_counters/energy", "12400 J 1800000 us\n");
    assert_eq!(meter.take_j(), 55);
    put(&root, "sys/cray/pm_counters/energy", "7 J 5 us\n");
    assert_eq!(meter.take_j(), 7);
    fs::remove_file(root.join("sys/cray/pm_counters/energy")).unwrap();
    assert_eq!(meter.take_j(), 0);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn without_a_counter_it_says_so() {
    let root = tree("none", &[("sys/class/powercap/intel-rapl/enabled", "1\n")]);
    let refused = EnergyMeter::open(&root, &rapl()).unwrap_err().to_string();
    assert_eq!(refused, "the kernel has no counters of processors");
    let refused = EnergyMeter::open(&root, &file()).unwrap_err().to_string();
    assert!(refused.ends_with("pm_counters/energy: No such file or directory (os error 2)"), "{refused}");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn units_are_read() {
    let read = |text: &str| microjoules(text);
    assert_eq!(
        [read("3"), read("3 J"), read("1.5 kJ"), read("2 mJ"), read("7 uJ"), read("1 Wh")],
        [Some(3_000_000), Some(3_000_000), Some(1_500_000_000), Some(2000), Some(7), Some(3_600_000_000)]
    );
    assert_eq!([read(""), read("x"), read("-1 J"), read("NaN"), read("5 W")], [None; 5]);
}
