//! Finds the GPUs of this machine, and measures what they do: by the kernel's folders of NVIDIA's and AMD's drivers, or by
//! NVIDIA's library.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use squall_model::config::{Detect, core_list};
use squall_model::found::FoundDevice;
use squall_model::job::GpuUse;
use squall_model::set::CoreSet;

use crate::sys::nvml::{self, Gpu};

/// Where GPUs are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    /// The folder with `proc` and `sys`: the root, but for tests.
    pub(crate) root: &'a Path,
    /// File name or path of NVIDIA's library.
    pub(crate) nvml: &'a CStr,
}

impl Default for Places<'_> {
    fn default() -> Self {
        Self { root: Path::new("/"), nvml: nvml::LIBRARY }
    }
}

impl Places<'_> {
    /// Returns the GPUs of this machine, in the order of their device files. `cpus`: the kernel's numbers of the node's
    /// cores. Err: they can't be found in this way.
    pub(crate) fn find(&self, way: Detect, cpus: &[usize]) -> io::Result<Vec<FoundDevice>> {
        match way {
            Detect::Off => Ok(Vec::new()),
            Detect::Nvidia => self.by_nvidia(cpus),
            Detect::Rsmi => self.by_amd(cpus),
            Detect::Nvml => Ok(self.described(nvml::gpus(self.nvml)?, cpus)),
        }
    }

    /// Finds NVIDIA's GPUs by the folder of their driver.
    fn by_nvidia(&self, cpus: &[usize]) -> io::Result<Vec<FoundDevice>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.root.join("proc/driver/nvidia/gpus"))?.flatten() {
            let text = fs::read_to_string(entry.path().join("information"))?;
            let field = |name: &str| {
                let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
                text.lines().find_map(of)
            };
            let Some(minor) = field("Device Minor").and_then(|minor| minor.parse::<u32>().ok()) else { continue };
            let device = FoundDevice {
                kind: kind(&field("Model").unwrap_or_default()),
                files: vec![format!("/dev/nvidia{minor}")],
                cores: self.near(&entry.file_name().to_string_lossy(), cpus),
                ..FoundDevice::gpu()
            };
            found.insert(minor, device);
        }
        Ok(found.into_values().collect())
    }

    /// Finds AMD's GPUs by their devices for rendering.
    fn by_amd(&self, cpus: &[usize]) -> io::Result<Vec<FoundDevice>> {
        /// AMD's number on the bus.
        const AMD: &str = "0x1002";
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.root.join("sys/class/drm"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(minor) = name.strip_prefix("renderD").and_then(|minor| minor.parse::<u32>().ok()) else {
                continue;
            };
            let read = |file: &str| fs::read_to_string(entry.path().join("device").join(file)).unwrap_or_default();
            if read("vendor").trim() != AMD {
                continue;
            }
            let device = FoundDevice {
                kind: kind(read("product_name").trim()),
                files: vec![format!("/dev/dri/{name}")],
                cores: cores(&read("local_cpulist"), cpus),
                ..FoundDevice::gpu()
            };
            found.insert(minor, device);
        }
        Ok(found.into_values().collect())
    }

    /// Returns the devices of GPUs that the library has found: each GPU, or its MIG instances if it is divided.
    fn described(&self, mut gpus: Vec<Gpu>, cpus: &[usize]) -> Vec<FoundDevice> {
        gpus.sort_by_key(|gpu| gpu.minor);
        let buses: Vec<String> = gpus.iter().map(|gpu| gpu.bus.clone()).collect();
        let mut found = Vec::new();
        for gpu in gpus {
            let whole = FoundDevice {
                kind: kind(&gpu.name),
                files: vec![format!("/dev/nvidia{}", gpu.minor)],
                cores: self.near(&gpu.bus, cpus),
                links: links(&buses, &gpu),
                ..FoundDevice::gpu()
            };
            for part in &gpu.parts {
                let folder =
                    self.root.join(format!("proc/driver/nvidia/capabilities/gpu{}/mig/gi{}", gpu.minor, part.gpu));
                let capabilities = [folder.join("access"), folder.join(format!("ci{}/access", part.compute))];
                let caps = capabilities.iter().filter_map(|file| capability(file));
                let files = whole.files.iter().cloned().chain(caps).collect();
                let id = part.uuid.clone();
                found.push(FoundDevice { kind: kind(&part.name), files, id, links: Vec::new(), ..whole.clone() });
            }
            if gpu.parts.is_empty() {
                found.push(whole);
            }
        }
        found
    }

    /// Returns what the GPUs with these device files do at this moment, without those of which it is not known.
    pub(crate) fn at_work(&self, files: &[String]) -> GpuUse {
        let number = |file: &String, prefix: &str| file.strip_prefix(prefix)?.parse::<u32>().ok();
        let nvidia: Vec<u32> = files.iter().filter_map(|file| number(file, "/dev/nvidia")).collect();
        let library = if nvidia.is_empty() { Vec::new() } else { nvml::loads(self.nvml).unwrap_or_default() };
        let of_nvidia = library.into_iter().filter(|load| nvidia.contains(&load.minor));
        let of_nvidia = of_nvidia.map(|load| GpuUse { percent: u64::from(load.percent), used_kb: load.used_kb });
        let of_amd = files.iter().filter_map(|file| {
            let folder = self.root.join("sys/class/drm").join(file.strip_prefix("/dev/dri/")?).join("device");
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
            let used_kb = read("mem_info_vram_used").unwrap_or(0) >> 10;
            Some(GpuUse { percent: read("gpu_busy_percent").unwrap_or(0), used_kb })
        });
        let sum = |sum: GpuUse, one: GpuUse| GpuUse {
            percent: sum.percent.saturating_add(one.percent),
            used_kb: sum.used_kb.saturating_add(one.used_kb),
        };
        of_nvidia.chain(of_amd).fold(GpuUse::default(), sum)
    }

    /// Returns the node's cores near the device with this address on the bus. Empty: all, or the kernel does not tell.
    fn near(&self, bus: &str, cpus: &[usize]) -> CoreSet {
        let file = self.root.join("sys/bus/pci/devices").join(bus.to_lowercase()).join("local_cpulist");
        cores(&fs::read_to_string(file).unwrap_or_default(), cpus)
    }
}

/// Returns the path of the device file of a MIG capability. `file`: what the driver says of it.
fn capability(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let minor = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?.trim().parse::<u32>().ok()?;
    Some(format!("/dev/nvidia-caps/nvidia-cap{minor}"))
}

/// Returns the number of links to each of the GPUs with these addresses, -1 for the GPU itself. Empty: it has none.
fn links(buses: &[String], gpu: &Gpu) -> Vec<i32> {
    let to = |bus: &String| gpu.links.iter().filter(|end| *end == bus).count() as i32;
    let counts: Vec<i32> = buses.iter().map(|bus| if *bus == gpu.bus { -1 } else { to(bus) }).collect();
    if counts.iter().any(|count| *count > 0) { counts } else { Vec::new() }
}

/// Returns a GPU's name as a type: `NVIDIA A100-SXM4-40GB` becomes `nvidia_a100-sxm4-40gb`, as in Slurm.
fn kind(name: &str) -> String {
    name.trim().to_lowercase().chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// Returns which of the node's cores are in a list of the kernel's, as `0-7,16-23`. Empty: all of them are, or none.
fn cores(list: &str, cpus: &[usize]) -> CoreSet {
    let near = core_list(list).unwrap_or_default();
    let own: CoreSet = cpus.iter().enumerate().filter(|(_, cpu)| near.contains(**cpu)).map(|(core, _)| core).collect();
    if own.len() == cpus.len() { CoreSet::new() } else { own }
}

#[cfg(test)]
mod tests;
