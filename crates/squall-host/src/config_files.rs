//! The files that configure a cluster: `squall.toml` and, in the same folder, `gres.conf` and a topology file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use squall_files::durable;
use squall_files::place::{CONFIG_FILES, Place};
use squall_model::config::Config;
use squall_model::id::NodeId;
use squall_model::{gres, hostlist};
use squall_sched::topology::{Source, Topology};

use crate::controld::error::ControllerError;

/// Names of the topology file; the first one that exists is read, as in Slurm.
const TOPOLOGIES: [&str; 2] = [CONFIG_FILES[2], CONFIG_FILES[3]];
/// Name of the file that lists generic resources (devices).
const DEVICES: &str = CONFIG_FILES[1];
/// Suffix added to the name of a replaced file, e.g. `squall.toml.old`.
const REPLACED: &str = ".old";

/// The texts of the configuration files, before they are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFiles {
    path: PathBuf,
    text: String,
    devices: Option<String>,
    topology: Option<(&'static str, String)>,
}

/// A configuration that has passed all checks.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The parsed configuration.
    pub config: Config,
    /// Entries of the topology file that do not match the configured nodes; they are ignored.
    pub oddities: Vec<String>,
    /// Warnings about settings that are understood but have no effect.
    pub notices: Vec<String>,
}

impl ConfigFiles {
    /// Names of the topology file; the first one that exists is read.
    pub const TOPOLOGIES: [&str; 2] = TOPOLOGIES;

    /// Reads `squall.toml` at `path` and the other files in its folder. None: there is no file at `path`.
    pub fn read(path: &Path) -> Result<Option<Self>, ControllerError> {
        text_of(path)?.map(|text| Self::beside(path, text)).transpose()
    }

    /// Returns the configuration files with `text` as the content of `squall.toml`, and with the other files read from
    /// the folder of `path`.
    pub fn beside(path: &Path, text: String) -> Result<Self, ControllerError> {
        let mut topology = None;
        for name in TOPOLOGIES {
            topology = text_of(&path.with_file_name(name))?.map(|text| (name, text));
            if topology.is_some() {
                break;
            }
        }
        let devices = text_of(&path.with_file_name(DEVICES))?;
        Ok(Self { path: path.to_owned(), text, devices, topology })
    }

    /// Returns these files with `text` in place of `squall.toml`.
    #[must_use]
    pub fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// Returns these files with `devices` as the content of `gres.conf`; None: without that file.
    #[must_use]
    pub fn with_devices(self, devices: Option<String>) -> Self {
        Self { devices, ..self }
    }

    /// Returns these files without the topology file.
    #[must_use]
    pub fn without_topology(self) -> Self {
        Self { topology: None, ..self }
    }

    /// Returns the text of `squall.toml`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes `gres.conf` and the topology file from `other`, each only where this configuration has none.
    #[must_use]
    pub fn or_beside(mut self, other: Self) -> Self {
        self.devices = self.devices.or(other.devices);
        self.topology = self.topology.or(other.topology);
        self
    }

    /// Whether `gres.conf` and the topology file, where this configuration has them, are the same in `other`.
    pub fn has_same_beside(&self, other: &Self) -> bool {
        (self.devices.is_none() || self.devices == other.devices)
            && (self.topology.is_none() || self.topology == other.topology)
    }

    /// Returns the names of `gres.conf` and the topology file, where `other` has them and this configuration does not.
    pub fn lacks_beside(&self, other: &Self) -> Vec<&'static str> {
        let devices = other.devices.as_ref().filter(|_| self.devices.is_none()).map(|_| DEVICES);
        let topology = other.topology.as_ref().filter(|_| self.topology.is_none()).map(|(name, _)| *name);
        devices.into_iter().chain(topology).collect()
    }

    /// Parses and checks all files. The error names the file and the line.
    pub fn check(&self) -> Result<CheckedConfig, ControllerError> {
        let mut checked = self.check_of_node()?;
        checked.notices.extend(checked.config.rest.0.warnings());
        let wrong = |problem| ControllerError::Config { path: self.path.clone(), problem };
        checked.config.check_controllers().map_err(wrong)?;
        Ok(checked)
    }

    /// Like [`Self::check`], for a node or login host, which does not get all settings of controllers.
    pub fn check_of_node(&self) -> Result<CheckedConfig, ControllerError> {
        let wrong = |path: PathBuf| move |problem| ControllerError::Config { path, problem };
        let mut config = Config::from_toml(&self.text)
            .map_err(|problem| self.slurms().unwrap_or(problem))
            .map_err(wrong(self.path.clone()))?;
        let notices = words_without_effect(&config);
        if let Some(text) = &self.devices {
            let path = self.path.with_file_name(DEVICES);
            config.gres.extend(gres::parse_conf(text).map_err(wrong(path.clone()))?);
            config.check().map_err(wrong(path))?;
        }
        let mut path = self.path.clone();
        if let Some((name, text)) = &self.topology {
            (*name).clone_into(&mut config.topology.name);
            config.topology.text.clone_from(text);
            path = self.path.with_file_name(name);
        }
        let oddities = topology(&config).map_err(wrong(path.clone()))?;
        let oddities = oddities.iter().map(|fault| format!("{}: {fault}", path.display())).collect();
        Ok(CheckedConfig { config, oddities, notices })
    }

    /// Returns what to do with `squall.toml` if it is a configuration of Slurm. None: it is none.
    pub fn slurms(&self) -> Option<String> {
        let path = self.path.display();
        let remedy = || {
            format!(
                "it is a slurm.conf: `squall import {path}` translates it, and `squall up --slurm-conf {path}` starts a \
                 cluster with it"
            )
        };
        (is_slurms(&self.text) && Config::from_toml(&self.text).is_err()).then(remedy)
    }

    /// Writes all files durably into a state folder, `squall.toml` last. A file that is replaced is kept under its name
    /// with `.old` added.
    pub fn write(&self, place: &Place) -> Result<(), String> {
        let path = place.config();
        let mut files: Vec<(PathBuf, Option<&str>)> = vec![(path.with_file_name(DEVICES), self.devices.as_deref())];
        for name in TOPOLOGIES {
            let text = self.topology.as_ref().filter(|(own, _)| *own == name).map(|(_, text)| text.as_str());
            files.push((path.with_file_name(name), text));
        }
        files.push((path, Some(&self.text)));
        for (path, text) in files {
            replace(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
        Ok(())
    }

    /// Removes all configuration files from a state folder, to undo `write` in one that had none.
    pub fn remove(place: &Place) {
        let beside = [DEVICES].into_iter().chain(TOPOLOGIES).map(|name| place.config().with_file_name(name));
        for path in beside.chain([place.config()]) {
            // A file that can't be removed is found, and named, at the next start.
            drop(durable::remove(&path));
        }
    }
}

/// Whether a text that is no configuration of Squall is one of Slurm, by its keys.
fn is_slurms(text: &str) -> bool {
    const KEYS: [&str; 5] = ["clustername", "slurmctldhost", "controlmachine", "nodename", "partitionname"];
    let keys = text.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim().to_ascii_lowercase());
    keys.filter(|key| KEYS.contains(&key.as_str())).count() >= 2
}

/// Replaces a file's content, keeping the old one under `.old`; None removes the file.
fn replace(path: &Path, text: Option<&str>) -> io::Result<()> {
    let before = match std::fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        read => Some(read?),
    };
    if before.as_deref() == text.map(str::as_bytes) {
        return Ok(());
    }
    if let Some(before) = before {
        let mut old = path.as_os_str().to_owned();
        old.push(REPLACED);
        durable::write(Path::new(&old), &before, 0o644)?;
    }
    match text {
        Some(text) => durable::write(path, text.as_bytes(), 0o644),
        None => durable::remove(path),
    }
}

/// Reads a text file. None: there is no such file.
fn text_of(path: &Path) -> Result<Option<String>, ControllerError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ControllerError::io("read", path.to_owned())(e)),
    }
}

/// Returns a warning for each kind of `SchedulerParameters` words that have no effect, with the reason.
fn words_without_effect(config: &Config) -> Vec<String> {
    let (moot, missing) = config.scheduler_parameters.without_effect();
    let kinds = [
        (moot, "no effect here, jobs are scheduled whenever something has happened"),
        (missing, "not supported, and passed over"),
    ];
    let kinds = kinds.iter().filter(|(words, _)| !words.is_empty());
    kinds.map(|(words, why)| format!("SchedulerParameters: {}: {why}", words.join(","))).collect()
}

/// Checks the topology against the configured nodes; returns the mismatches. Every node should have exactly one
/// position.
fn topology(config: &Config) -> Result<Vec<squall_sched::topology::Fault>, String> {
    let (name, text) = (&config.topology.name, &config.topology.text);
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let mut names: Vec<String> = Vec::new();
    for node in &config.nodes {
        names.extend(hostlist::expand(&node.name).map_err(|e| format!("`{}`: {e}", node.name))?);
    }
    let ids: BTreeMap<&str, NodeId> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), NodeId(at as u32))).collect();
    let source = Source { name, text, plugin: &config.topology_plugin, param: &config.topology_param };
    let found = Topology::read(&source, &|name| ids.get(name).copied(), &names).map_err(|fault| fault.to_string())?;
    Ok(found.oddities().to_vec())
}
