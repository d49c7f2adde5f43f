//! Devices of generic resources, as the lines of a `gres.conf`.

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
    /// Checks the entry's lists and its number of devices. The error is a text for users.
    pub fn check(&self) -> Result<(), String> {
        if hostlist::expand(&self.node_name).is_err() {
            return Err(format!("`{}` is no list of nodes", self.node_name));
        }
        if core_list(&self.cores).is_none() {
            return Err(format!("Cores={}: use a list such as 0-3,8", self.cores));
        }
        if self.devices() as usize > limits::GRES_PER_NODE_MAX {
            return Err(format!("{}: a node has at most {} of a name", self.name, limits::GRES_PER_NODE_MAX));
        }
        Ok(())
    }
}

/// Reads a list of cores, as `0-3,8`. None: the text is no such list.
fn core_list(text: &str) -> Option<CoreSet> {
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
