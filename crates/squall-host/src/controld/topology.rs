//! The topology file beside the configuration: read, and refused with its line if something is wrong in it.

use std::collections::BTreeMap;
use std::path::Path;

use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_sched::topology::{Source, Topology};

use super::ControllerError;

/// Names under which the file may lie there; the first that does is read, as Slurm does.
pub const NAMES: [&str; 2] = ["topology.yaml", "topology.conf"];

/// Puts the topology that lies beside the configuration file into the configuration. The error names the file, and the
/// line where one can't be understood.
pub fn read(beside: &Path, config: &mut Config) -> Result<(), ControllerError> {
    for name in NAMES {
        let path = beside.with_file_name(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                name.clone_into(&mut config.topology.name);
                config.topology.text = text;
                return check(config).map_err(|problem| ControllerError::Config { path, problem });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(ControllerError::io("read", path)(e)),
        }
    }
    if config.topology.name.is_empty() {
        return Ok(());
    }
    check(config).map_err(|problem| ControllerError::Config { path: beside.to_owned(), problem })
}

/// Whether every node has its place.
fn check(config: &Config) -> Result<(), String> {
    let mut names: Vec<String> = Vec::new();
    for node in &config.nodes {
        names.extend(hostlist::expand(&node.name).map_err(|e| format!("`{}`: {e}", node.name))?);
    }
    let ids: BTreeMap<&str, NodeId> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), NodeId(at as u32))).collect();
    let (name, text) = (&config.topology.name, &config.topology.text);
    let source = Source { name, text, plugin: &config.topology_plugin, param: &config.topology_param };
    Topology::read(&source, &|name| ids.get(name).copied(), &names).map(|_| ()).map_err(|fault| fault.to_string())
}
