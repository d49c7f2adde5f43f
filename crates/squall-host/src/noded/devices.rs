//! The device files of this node's generic resources: which of them a job or step must not open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use squall_model::config::Config;
use squall_model::found::FoundDevice;
use squall_model::gres::{GPU, NodeGres};
use squall_model::set::CoreSet;
use squall_model::step::SharedGpus;

use crate::cgroup::devices::Device;

/// The device files of this node's generic resources.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceFiles {
    /// By name of the resource: the files of each device.
    files: BTreeMap<String, Vec<Vec<PathBuf>>>,
    /// Names of the GPUs that are parts of one, by index.
    ids: BTreeMap<u32, String>,
    /// For each part of a GPU that jobs share, by resource name: the index of the GPU.
    parts: BTreeMap<String, Vec<usize>>,
    /// The node's cores near each GPU, by index; without those that are equally near to all.
    near: BTreeMap<u32, CoreSet>,
}

impl DeviceFiles {
    /// Returns the files of a node as configured, and of the devices that it has found. The second result is a line for
    /// the log for each file that is none of a device now.
    pub(super) fn of(config: &Config, node: &str, found: &[FoundDevice]) -> (Self, Vec<String>) {
        let mut all = Self::default();
        let has = NodeGres::of(config, node, None, found).unwrap_or_default();
        for kind in has.kinds {
            if kind.name == GPU && !kind.id.is_empty() {
                all.ids.extend(kind.indices.clone().map(|index| (index as u32, kind.id.clone())));
            }
            if kind.name == GPU && !kind.cores.is_empty() {
                all.near.extend(kind.indices.clone().map(|index| (index as u32, kind.cores.clone())));
            }
            let files = all.files.entry(kind.name.clone()).or_default();
            for (index, paths) in kind.files() {
                files.resize(files.len().max(index + 1), Vec::new());
                files[index].extend(paths.into_iter().map(PathBuf::from));
            }
        }
        // A part of a GPU has the GPU's files.
        for (name, gpus) in &has.parts {
            let of = |gpu: &usize| all.files.get(GPU).and_then(|files| files.get(*gpu)).cloned().unwrap_or_default();
            let files = gpus.iter().map(of).collect();
            all.files.insert(name.clone(), files);
        }
        all.parts = has.parts;
        let absent = all.paths().filter(|path| Device::of(path).is_err());
        let note =
            |path: &PathBuf| format!("{} is no device now: jobs are kept from it when it is one", path.display());
        let notices = absent.map(note).collect();
        (all, notices)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.values().flatten().flatten()
    }

    /// Returns whether no device of the node has a file.
    pub(super) fn are_none(&self) -> bool {
        self.paths().next().is_none()
    }

    /// Returns the names of GPUs that are parts of one, among those that are held.
    pub(super) fn ids_of(&self, held: &BTreeMap<String, CoreSet>) -> BTreeMap<u32, String> {
        let held = |index: u32| held.get(GPU).is_some_and(|held| held.contains(index as usize));
        self.ids.iter().filter(|(index, _)| held(**index)).map(|(index, id)| (*index, id.clone())).collect()
    }

    /// Returns the node's cores near each of the GPUs that are held.
    pub(super) fn near(&self, held: &BTreeMap<String, CoreSet>) -> impl Iterator<Item = (u32, &CoreSet)> {
        let held = held.get(GPU);
        let is_held = move |index: u32| held.is_some_and(|held| held.contains(index as usize));
        self.near.iter().filter(move |(index, _)| is_held(**index)).map(|(index, cores)| (*index, cores))
    }

    /// Returns the first device file of each of the GPUs that are held.
    pub(super) fn gpus(&self, held: &BTreeMap<String, CoreSet>) -> Vec<String> {
        let (held, files) = (held.get(GPU).into_iter().flat_map(CoreSet::iter), self.files.get(GPU));
        let first = |index: usize| files?.get(index)?.first();
        held.filter_map(first).map(|file| file.to_string_lossy().into_owned()).collect()
    }

    /// Returns the part of GPUs that is held. None: none is.
    pub(super) fn shared(&self, held: &BTreeMap<String, CoreSet>) -> Option<SharedGpus> {
        let (name, gpus) = self.parts.iter().find(|(name, _)| held.get(*name).is_some_and(|held| !held.is_empty()))?;
        let held = held.get(name)?;
        let own: CoreSet = held.iter().filter_map(|part| gpus.get(part).copied()).collect();
        let all = gpus.iter().filter(|gpu| own.contains(**gpu)).count().max(1);
        let (count, percent) = (held.len() as u32, (held.len() * 100 / all) as u32);
        Some(SharedGpus { name: name.clone(), gpus: own, count, percent })
    }

    /// Returns whether all GPUs have files, so that they can be denied.
    pub(super) fn have_gpus(&self) -> bool {
        let is_there = |paths: &Vec<PathBuf>| paths.iter().any(|path| Device::of(path).is_ok());
        self.files.get(GPU).is_some_and(|files| files.iter().all(is_there))
    }

    /// Returns the devices that must not be opened by a holder of these (indices by name of the resource). A device that
    /// two resources have may be opened by a holder of either.
    pub(super) fn denied(&self, held: &BTreeMap<String, CoreSet>) -> Vec<Device> {
        let (mut denied, mut allowed) = (BTreeSet::new(), BTreeSet::new());
        for (name, files) in &self.files {
            let own = held.get(name);
            for (index, paths) in files.iter().enumerate() {
                let into = if own.is_some_and(|own| own.contains(index)) { &mut allowed } else { &mut denied };
                // A file that is no device can't be opened as one.
                into.extend(paths.iter().map(|path| Device::of(path)).filter_map(io::Result::ok));
            }
        }
        denied.difference(&allowed).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use squall_model::config::Config;
    use squall_model::found::FoundDevice;
    use squall_model::set::CoreSet;

    use super::{Device, DeviceFiles};

    #[test]
    fn who_does_not_hold_a_device_must_not_open_it() {
        let text = "[[nodes]]\nname = \"n[1-2]\"\ngres = \"gpu:b:1,gpu:a:2,shard:2\"\n\
                    [[gres]]\nname = \"gpu\"\ntype = \"a\"\nfile = \"/dev/nvidia[4-6]\"\n\
                    [[gres]]\nnode_name = \"n1\"\nname = \"gpu\"\ntype = \"b\"\nfile = \"/dev/null\"\n\
                    [[gres]]\nname = \"shard\"\nfile = \"/dev/nvidia4\"\ncount = 2\n";
        let config = Config::from_toml(text).unwrap();
        let (files, notices) = DeviceFiles::of(&config, "n1", &[]);
        assert!(notices.is_empty() && !files.are_none(), "{notices:?}");
        let held = |held: &[(&str, usize)]| -> BTreeMap<String, CoreSet> {
            held.iter().map(|(name, index)| ((*name).to_owned(), [*index].into_iter().collect())).collect()
        };
        let denied = |of: &[(&str, usize)]| {
            files.denied(&held(of)).iter().map(|Device { major, minor, .. }| (*major, *minor)).collect::<Vec<_>>()
        };
        let (null, first, second) = ((1, 3), (195, 4), (195, 5));
        assert_eq!(denied(&[]), [null, first, second], "the third is not the node's");
        assert_eq!(denied(&[("gpu", 0)]), [first, second]);
        assert_eq!(denied(&[("gpu", 2)]), [null, first]);
        assert_eq!(denied(&[("shard", 0)]), [null, second], "a part of the first");
        let shared = files.shared(&held(&[("shard", 1)])).unwrap();
        let own: CoreSet = [1].into_iter().collect();
        assert_eq!((shared.name.as_str(), &shared.gpus, shared.count, shared.percent), ("shard", &own, 1, 50));
        assert_eq!(files.shared(&held(&[("gpu", 1)])), None);
        assert_eq!(DeviceFiles::of(&config, "n2", &[]).0.denied(&held(&[])).len(), 2, "its first has no file");
        assert_eq!(files.gpus(&held(&[("gpu", 2)])), ["/dev/nvidia5"]);
        assert!(files.gpus(&held(&[("shard", 0), ("gpu", 9)])).is_empty());
        assert!(files.have_gpus() && !DeviceFiles::of(&config, "n2", &[]).0.have_gpus());
        let part = |id: &str, cap: &str| FoundDevice {
            files: vec!["/dev/nvidia2".to_owned(), cap.to_owned()],
            id: id.to_owned(),
            ..FoundDevice::gpu()
        };
        let found = [part("MIG-a", "/dev/nvidia21"), part("MIG-b", "/dev/nvidia22"), FoundDevice::gpu()];
        let (files, _) = DeviceFiles::of(&Config::default(), "n1", &found);
        assert!(files.ids_of(&held(&[])).is_empty() && files.ids_of(&held(&[("gpu", 2)])).is_empty());
        assert_eq!(files.ids_of(&held(&[("gpu", 1)])), BTreeMap::from([(1, "MIG-b".to_owned())]));
        let minors: Vec<u32> = files.denied(&held(&[("gpu", 1)])).iter().map(|device| device.minor).collect();
        assert_eq!(minors, [21], "both are parts of the same GPU");
        assert!(DeviceFiles::of(&Config::default(), "n1", &[]).0.are_none());
    }
}
