//! The configuration with which `squall up` starts a cluster. It is checked before any file is written, and restored to
//! the previous one if the cluster does not start.

use std::path::Path;

use squall_files::place::Place;
use squall_host::config_files::{CheckedConfig, ConfigFiles};
use squall_host::life::{self, Daemon};
use squall_model::config::Config;
use squall_text::format::harmless_lines;

use super::import;
use super::up::Options;

/// Changes that `squall up` will make to the configuration files of a state folder.
pub(super) struct Plan {
    /// The new configuration, which was checked for errors.
    pub(super) checked: CheckedConfig,
    /// Configuration files to write. None: the existing files stay as they are.
    pub(super) files: Option<ConfigFiles>,
    /// Configuration files that exist before the change. None: the cluster is new.
    before: Option<ConfigFiles>,
}

impl Plan {
    /// Compares the requested configuration with the existing one and checks it. Writes nothing.
    pub(super) fn of(options: &Options) -> Result<Self, String> {
        let place = &options.place;
        let before = ConfigFiles::read(&place.config()).map_err(|e| e.to_string())?;
        let given = given(options)?;
        let Some(there) = before else {
            return fresh(options, given).and_then(|files| Self::new(options, files, None));
        };
        let kept = given.as_ref().map(|given| given.lacks_beside(&there)).unwrap_or_default();
        let Some(given) = given.filter(|given| !resumes(&there, given)) else {
            for name in kept {
                let path = place.config().with_file_name(name);
                eprintln!("squall up: {} stays in force: delete it to go on without", path.display());
            }
            let checked = there.check().map_err(|e| e.to_string())?;
            return Self { checked, files: None, before: Some(there) }.accepted(options);
        };
        if !life::living_daemons(place).map_err(|e| e.to_string())?.is_empty() {
            return Err(format!(
                "this cluster runs with another configuration: edit {} and run `scontrol reconfigure`, or end it \
                 first (`squall down --keep-jobs` leaves jobs alone), or use another --state",
                place.config().display()
            ));
        }
        Self::new(options, complete(options, given)?, Some(there))
    }

    fn new(options: &Options, files: ConfigFiles, before: Option<ConfigFiles>) -> Result<Self, String> {
        let checked = files.check().map_err(|e| e.to_string())?;
        life::check_hardware(&checked.config).map_err(|e| options.in_config(e))?;
        Self { checked, files: Some(files), before }.accepted(options)
    }

    /// Prints warnings about the new configuration. With `--strict` the first one is an error.
    fn accepted(self, options: &Options) -> Result<Self, String> {
        match self.checked.oddities.first() {
            Some(odd) if options.strict => Err(odd.clone()),
            _ => {
                self.checked.oddities.iter().for_each(|odd| eprintln!("squall up: warning: {}", harmless_lines(odd)));
                self.checked.notices.iter().for_each(|notice| eprintln!("squall up: {}", harmless_lines(notice)));
                Ok(self)
            }
        }
    }

    /// Writes the configuration files, if they change.
    pub(super) fn carry_out(&self, place: &Place) -> Result<(), String> {
        let Some(files) = &self.files else { return Ok(()) };
        files.write(place)?;
        if self.before.is_some() {
            let path = place.config();
            eprintln!("squall up: the configuration was replaced; the one before is kept as {}.old", path.display());
        }
        Ok(())
    }

    /// Restores the previous configuration files after a failed start, unless the controller runs.
    pub(super) fn take_back(&self, place: &Place) {
        if self.files.is_none() || Daemon::Controller.pid(place).is_some() {
            return;
        }
        match &self.before {
            None => ConfigFiles::remove(place),
            Some(before) => {
                if let Err(problem) = before.write(place) {
                    eprintln!("squall up: the configuration before can't be set back: {problem}");
                }
            }
        }
    }
}

/// Reads the configuration files that `--config` or `--slurm-conf` names; None: neither option is given.
pub(super) fn given(options: &Options) -> Result<Option<ConfigFiles>, String> {
    match (&options.config, &options.slurm_conf) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("--config and --slurm-conf: leave one of them out".to_owned()),
        (None, Some(file)) => slurms(file).map(Some),
        (Some(file), None) => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
            let files = ConfigFiles::beside(file, text).map_err(|e| e.to_string())?;
            match files.slurms() {
                Some(remedy) => Err(format!("{}: {remedy}", file.display())),
                None => Ok(Some(files)),
            }
        }
    }
}

/// Translates a slurm.conf and the files beside it, and prints how much has no counterpart.
fn slurms(file: &Path) -> Result<ConfigFiles, String> {
    let imported = import::read(file)?;
    if let Some(lines) = imported.faults() {
        return Err(format!("{} has lines to mend:\n{}", file.display(), lines.trim_end()));
    }
    match imported.missing() {
        0 => {}
        1 => eprintln!("squall up: 1 setting has no counterpart: `squall import` names it"),
        missing => eprintln!("squall up: {missing} settings have no counterpart: `squall import` lists them"),
    }
    Ok(imported.files)
}

/// Returns the configuration files of a new cluster, with files such as a topology that already lie in its state
/// folder.
fn fresh(options: &Options, given: Option<ConfigFiles>) -> Result<ConfigFiles, String> {
    let own = || ConfigFiles::beside(&options.place.config(), String::new()).map_err(|e| e.to_string());
    let files = match given {
        None => own()?,
        Some(given) => given.or_beside(own()?),
    };
    complete(options, files)
}

/// Completes the text of `squall.toml` with the nodes and the address that options name.
fn complete(options: &Options, files: ConfigFiles) -> Result<ConfigFiles, String> {
    let listen = options.listen.as_ref().map(|(host, port)| (host.as_str(), *port));
    let given = options.file().map(|_| files.text());
    let text = life::config_text(given, options.nodes, options.rack, listen).map_err(|e| options.in_config(e))?;
    Ok(files.with_text(text))
}

/// Returns whether an existing cluster can be started again with the given files: both have the same content, and the
/// existing configuration is valid.
fn resumes(there: &ConfigFiles, given: &ConfigFiles) -> bool {
    let has_nodes = Config::from_toml(given.text()).is_ok_and(|config| !config.nodes.is_empty());
    let same = [there.text(), life::without_listen(there.text())].into_iter().any(|text| {
        // `squall up` has added nodes where the given text names none.
        text == given.text()
            || (!has_nodes && text.strip_prefix(given.text()).is_some_and(|more| more.starts_with('\n')))
    });
    same && given.has_same_beside(there) && there.check().is_ok()
}
