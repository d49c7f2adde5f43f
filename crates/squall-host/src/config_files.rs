//! The files that configure a cluster: `squall.toml`, and beside it `gres.conf` and a topology file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use squall_files::durable;
use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::id::NodeId;
use squall_model::{gres, hostlist};
use squall_sched::topology::{Source, Topology};

use crate::controld::ControllerError;

/// Names of the topology file; the first that is there is read, as in Slurm.
const TOPOLOGIES: [&str; 2] = ["topology.yaml", "topology.conf"];
/// The name of the file of devices.
const DEVICES: &str = "gres.conf";
/// What a file that was replaced is called: its name, and this.
const REPLACED: &str = ".old";

/// The texts of a configuration, before anything is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFiles {
    path: PathBuf,
    text: String,
    devices: Option<String>,
    topology: Option<(&'static str, String)>,
}

/// A configuration that is good.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The configuration.
    pub config: Config,
    /// What the topology file says of nodes that is not so; it is passed over.
    pub oddities: Vec<String>,
    /// What is understood but changes nothing.
    pub notices: Vec<String>,
}

impl ConfigFiles {
    /// Reads the files at and beside `path`. None: there is no file at `path`.
    pub fn read(path: &Path) -> Result<Option<Self>, ControllerError> {
        text_of(path)?.map(|text| Self::beside(path, text)).transpose()
    }

    /// The given text as the file at `path`, with the files that are beside it.
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

    /// The same with another `squall.toml`.
    #[must_use]
    pub fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// The text of `squall.toml`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes over files beside `squall.toml` that this configuration has not.
    #[must_use]
    pub fn or_beside(mut self, other: Self) -> Self {
        self.devices = self.devices.or(other.devices);
        self.topology = self.topology.or(other.topology);
        self
    }

    /// Whether the files beside `squall.toml` that are there are the other's too.
    pub fn has_same_beside(&self, other: &Self) -> bool {
        (self.devices.is_none() || self.devices == other.devices)
            && (self.topology.is_none() || self.topology == other.topology)
    }

    /// Reads and checks all of them. The error names the file, and the line.
    pub fn check(&self) -> Result<Checked, ControllerError> {
        let wrong = |path: PathBuf| move |problem| ControllerError::Config { path, problem };
        let mut config = Config::from_toml(&self.text).map_err(wrong(self.path.clone()))?;
        let mut notices = words_without_effect(&config);
        if let Some(text) = &self.devices {
            let path = self.path.with_file_name(DEVICES);
            let (lines, detecting) = gres::parse_conf(text).map_err(wrong(path.clone()))?;
            config.gres.extend(lines);
            config.check().map_err(wrong(path.clone()))?;
            notices.extend(detecting.first().map(|line| {
                let path = path.display();
                format!("{path}: line {line}: AutoDetect: devices are not detected; name them by File or Count")
            }));
        }
        let mut path = self.path.clone();
        if let Some((name, text)) = &self.topology {
            (*name).clone_into(&mut config.topology.name);
            config.topology.text.clone_from(text);
            path = self.path.with_file_name(name);
        }
        let oddities = topology(&config).map_err(wrong(path.clone()))?;
        let oddities = oddities.iter().map(|fault| format!("{}: {fault}", path.display())).collect();
        Ok(Checked { config, oddities, notices })
    }

    /// Writes all of them into a state folder, durably, `squall.toml` last. What they replace is kept under the name
    /// with `.old`.
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

    /// Removes them from a state folder that had none.
    pub fn remove(place: &Place) {
        let beside = [DEVICES].into_iter().chain(TOPOLOGIES).map(|name| place.config().with_file_name(name));
        for path in beside.chain([place.config()]) {
            // What can't be removed is found, and named, by the next start.
            drop(durable::remove(&path));
        }
    }
}

/// Gives a file another content, or none.
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

/// A file's text. None: there is no file.
fn text_of(path: &Path) -> Result<Option<String>, ControllerError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ControllerError::io("read", path.to_owned())(e)),
    }
}

/// The words of a configuration that change nothing, each kind with the reason.
fn words_without_effect(config: &Config) -> Vec<String> {
    let (moot, missing) = config.scheduler_parameters.without_effect();
    let kinds = [
        (moot, "no effect here, jobs are scheduled whenever something has happened"),
        (missing, "not supported, and passed over"),
    ];
    let kinds = kinds.iter().filter(|(words, _)| !words.is_empty());
    kinds.map(|(words, why)| format!("SchedulerParameters: {}: {why}", words.join(","))).collect()
}

/// What of the topology is not so: every node should have one place.
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
