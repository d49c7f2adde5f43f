//! Devices of generic resources, as the lines of a `gres.conf`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::set::CoreSet;
use crate::{hostlist, limits};

/// A line of `gres.conf`: devices of one generic resource on some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GresConfig {
    /// Names of the nodes, as a host list. Empty: every node.
    #[serde(alias = "NodeName")]
    pub node_name: String,
    /// Name of the generic resource, as `gpu`.
    #[serde(alias = "Name")]
    pub name: String,
    /// Type of the devices, as `a100`. Empty: no type.
    #[serde(alias = "Type", rename = "type")]
    pub kind: String,
    /// Device files, as a host list: `/dev/nvidia[0-3]`.
    #[serde(alias = "File")]
    pub file: String,
    /// Number of devices. 0: as many as there are device files, or one if there are none.
    #[serde(alias = "Count")]
    pub count: u32,
    /// Cores near the devices, as `0-7,16-23`. Empty: all cores.
    #[serde(alias = "Cores")]
    pub cores: String,
    /// Device files of one device, as a host list, if it has several. Written only if set, as are the next.
    #[serde(alias = "MultipleFiles", skip_serializing_if = "String::is_empty")]
    pub multiple_files: String,
    /// Number of links from the device to each device of the node, as `-1,4,1,1`; -1 stands for the device itself.
    #[serde(alias = "Links", skip_serializing_if = "String::is_empty")]
    pub links: String,
    /// How devices are found on these nodes. None: as on the others.
    #[serde(alias = "AutoDetect", skip_serializing_if = "Option::is_none")]
    pub auto_detect: Option<Detect>,
}

/// How GPUs of a machine are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Detect {
    /// They are not.
    #[default]
    Off,
    /// By NVIDIA's library, with links and MIG instances.
    Nvml,
    /// By the folder of NVIDIA's driver.
    Nvidia,
    /// AMD's, by the kernel's folder of devices for rendering.
    Rsmi,
}

impl Detect {
    /// Returns whether devices are not looked for.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

impl FromStr for Detect {
    type Err = String;

    /// Reads Slurm's word, in any case.
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [("off", Self::Off), ("nvml", Self::Nvml), ("nvidia", Self::Nvidia), ("rsmi", Self::Rsmi)];
        let found = all.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        found.map(|(_, way)| way).ok_or_else(|| format!("AutoDetect={text}: use nvml, nvidia, rsmi or off"))
    }
}

impl TryFrom<String> for Detect {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl GresConfig {
    /// Returns the type of the devices. None: no type.
    pub fn model(&self) -> Option<String> {
        Some(self.kind.clone()).filter(|kind| !kind.is_empty())
    }
    /// Returns the number of devices of the entry on each node.
    pub fn devices(&self) -> u32 {
        let files = hostlist::expand(&self.file).map_or(0, |files| files.len() as u32);
        if self.count > 0 { self.count } else { files.max(1) }
    }
    /// Returns the set of cores near the devices. Empty: all cores.
    pub fn near(&self) -> CoreSet {
        core_list(&self.cores).unwrap_or_default()
    }
    /// Returns the number of links to each device of the node, -1 in its own place. Empty: it has none.
    pub fn link_counts(&self) -> Vec<i32> {
        link_list(&self.links).unwrap_or_default()
    }
    /// Checks the entry's lists and its number of devices. The error is a text for users.
    pub fn check(&self) -> Result<(), String> {
        if hostlist::expand(&self.node_name).is_err() {
            return Err(format!("`{}` is no list of nodes", self.node_name));
        }
        if core_list(&self.cores).is_none() {
            return Err(format!("Cores={}: use a list such as 0-3,8", self.cores));
        }
        if link_list(&self.links).is_none() {
            return Err(format!("Links={}: use a list such as -1,4,1,1, with -1 for the device itself", self.links));
        }
        if !self.links.is_empty() && self.devices() > 1 {
            return Err(format!("Links={}: only a line of one device has links", self.links));
        }
        if self.devices() as usize > limits::GRES_PER_NODE_MAX {
            return Err(format!("{}: a node has at most {} of a name", self.name, limits::GRES_PER_NODE_MAX));
        }
        Ok(())
    }
}

/// Reads a device's numbers of links, of which one is -1, for the device itself. None: the text is no such list.
fn link_list(text: &str) -> Option<Vec<i32>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let links = text.split(',').map(|word| word.trim().parse().ok()).collect::<Option<Vec<i32>>>()?;
    let own = links.iter().filter(|links| **links == -1).count();
    (own == 1 && links.iter().all(|links| *links >= -1)).then_some(links)
}

/// Reads a list of cores, as `0-3,8`. None: the text is no such list.
pub fn core_list(text: &str) -> Option<CoreSet> {
    let mut cores = CoreSet::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= 1 << 16 {
            return None;
        }
        cores.union_with(&(first..=last).collect());
    }
    Some(cores)
}
