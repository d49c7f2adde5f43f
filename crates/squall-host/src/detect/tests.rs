//! Tests of finding GPUs, with folders in place of the kernel's and a library in place of NVIDIA's.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use squall_model::config::Detect;
use squall_model::found::FoundDevice;
use squall_model::job::GpuUse;
use squall_model::set::CoreSet;

use super::{Places, cores, kind};

/// Makes a folder with these files.
fn tree(test: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = std::env::temp_dir().join(format!("squall-gpus-{}-{test}", std::process::id()));
    drop(fs::remove_dir_all(&root));
    fs::create_dir_all(&root).unwrap();
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn find(root: &Path, way: Detect) -> Result<Vec<FoundDevice>, String> {
    // The node has the kernel's CPUs 2 to 5 as its cores 0 to 3.
    Places { root, ..Places::default() }.find(way, &[2, 3, 4, 5]).map_err(|e| e.to_string())
}

fn gpu(kind: &str, file: &str, cores: &[usize]) -> FoundDevice {
    let cores = cores.iter().copied().collect();
    FoundDevice { kind: kind.into(), files: vec![file.into()], cores, ..FoundDevice::gpu() }
}

#[test]
fn nvidias_driver_names_its_gpus() {
    let information = |minor| format!("Model: \t\t Tesla V100-PCIE-16GB\nIRQ:   \t\t 38\nDevice Minor: \t {minor}\n");
    let root = tree(
        "nvidia",
        &[
            ("proc/driver/nvidia/gpus/0000:3b:00.0/information", &information(1)),
            ("proc/driver/nvidia/gpus/0000:d8:00.0/information", &information(0)),
            ("proc/driver/nvidia/gpus/0000:d9:00.0/information", "Model: broken\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "0-3\n"),
            ("sys/bus/pci/devices/0000:d8:00.0/local_cpulist", "4-7\n"),
        ],
    );
    let (kind, found) = ("tesla_v100-pcie-16gb", find(&root, Detect::Nvidia).unwrap());
    assert_eq!(found, [gpu(kind, "/dev/nvidia0", &[2, 3]), gpu(kind, "/dev/nvidia1", &[0, 1])]);
    assert_eq!(find(&root, Detect::Off), Ok(Vec::new()));
    assert!(find(&root.join("sys"), Detect::Nvidia).is_err(), "no driver");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn amds_gpus_are_devices_for_rendering() {
    let root = tree(
        "amd",
        &[
            ("sys/class/drm/renderD129/device/vendor", "0x1002\n"),
            ("sys/class/drm/renderD129/device/product_name", "Instinct MI210\n"),
            ("sys/class/drm/renderD129/device/local_cpulist", "0-63\n"),
            ("sys/class/drm/renderD129/device/gpu_busy_percent", "37\n"),
            ("sys/class/drm/renderD129/device/mem_info_vram_used", "4194304\n"),
            ("sys/class/drm/renderD128/device/vendor", "0x8086\n"),
            ("sys/class/drm/renderD130/device/vendor", "0x1002\n"),
            ("sys/class/drm/card0/device/vendor", "0x1002\n"),
        ],
    );
    let found = find(&root, Detect::Rsmi).unwrap();
    assert_eq!(found, [gpu("instinct_mi210", "/dev/dri/renderD129", &[]), gpu("", "/dev/dri/renderD130", &[])]);
    let at_work = |files: &[&str]| {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        let used = Places { root: &root, ..Places::default() }.at_work(&files);
        (used.percent, used.used_kb)
    };
    assert_eq!(at_work(&["/dev/dri/renderD129", "/dev/dri/renderD130", "/dev/dri/renderD7", "/dev/other"]), (37, 4096));
    assert_eq!(at_work(&[]), (0, 0));
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn nvidias_library_knows_links_and_mig_instances() {
    let root = tree(
        "nvml",
        &[
            ("sys/bus/pci/devices/0000:3a:00.0/local_cpulist", "4-7\n"),
            ("sys/bus/pci/devices/0000:3c:00.0/local_cpulist", "0-3\n"),
            ("proc/driver/nvidia/capabilities/gpu2/mig/gi1/access", "DeviceFileMinor: 21\nDeviceFileMode: 292\n"),
            ("proc/driver/nvidia/capabilities/gpu2/mig/gi1/ci0/access", "DeviceFileMinor: 22\n"),
            ("proc/driver/nvidia/capabilities/gpu2/mig/gi2/access", "DeviceFileMinor: 30\n"),
            ("proc/driver/nvidia/capabilities/gpu2/mig/gi2/ci0/access", "DeviceFileMinor: 31\n"),
            ("nvml.c", include_str!("nvml.c")),
        ],
    );
    let library = root.join("libnvidia-ml.so.1");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &root.join("nvml.c")]).status();
    if !made.is_ok_and(|made| made.success()) {
        eprintln!("skipped: no C compiler");
        return;
    }
    let library = CString::new(library.as_os_str().as_bytes()).unwrap();
    let places = Places { root: &root, nvml: &library };
    let found = places.find(Detect::Nvml, &[2, 3, 4, 5]).unwrap();
    let whole = "nvidia_a100-sxm4-40gb";
    let part = |cap: u32, id: &str| FoundDevice {
        files: vec![
            "/dev/nvidia2".into(),
            format!("/dev/nvidia-caps/nvidia-cap{cap}"),
            format!("/dev/nvidia-caps/nvidia-cap{}", cap + 1),
        ],
        id: id.into(),
        ..gpu("nvidia_a100-sxm4-40gb_mig_3g.20gb", "", &[0, 1])
    };
    let expected = [
        FoundDevice { links: vec![-1, 2, 0], ..gpu(whole, "/dev/nvidia0", &[]) },
        FoundDevice { links: vec![2, -1, 0], ..gpu(whole, "/dev/nvidia1", &[2, 3]) },
        part(21, "MIG-0"),
        part(30, "MIG-1"),
    ];
    assert_eq!(found, expected);
    // The library's first and second GPU have each other's device file. The third does not tell its load.
    let load = |percent, used_kb| GpuUse { percent, used_kb };
    assert_eq!(places.at_work(&["/dev/nvidia0".into()]), load(20, 2048));
    assert_eq!(places.at_work(&["/dev/nvidia1".into(), "/dev/nvidia2".into()]), load(10, 1024));
    let absent = Places { nvml: c"libsquall-no-such.so.1", ..places }.find(Detect::Nvml, &[]);
    assert_eq!(absent.unwrap_err().to_string(), "libsquall-no-such.so.1 can't be loaded");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn names_and_lists_of_the_kernel() {
    assert_eq!(kind("NVIDIA H100 80GB HBM3"), "nvidia_h100_80gb_hbm3");
    assert_eq!(cores("0-1,5\n", &[0, 5, 9]).iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!((cores("0-9", &[0, 5, 9]), cores("", &[0]), cores("x", &[0])), Default::default());
    assert_eq!(cores("7", &[0, 5, 9]), CoreSet::new());
}
