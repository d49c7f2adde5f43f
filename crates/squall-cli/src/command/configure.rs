//! The configuration with which `squall up` starts a cluster: checked before anything of it is written, and taken back if
//! the cluster does not start with it.

use squall_files::place::Place;
use squall_host::config_files::{Checked, ConfigFiles};
use squall_host::life::{self, Daemon};
use squall_model::config::Config;

use super::up::Options;

/// What a start does to the files of a state folder.
pub(super) struct Plan {
    /// The configuration that will be in force.
    pub(super) checked: Checked,
    /// Files to be written; None: those that are there stay.
    pub(super) files: Option<ConfigFiles>,
    /// Those that are there.
    before: Option<ConfigFiles>,
}

impl Plan {
    /// Compares what is asked for with what is there, and checks it. Nothing is written.
    pub(super) fn of(options: &Options) -> Result<Self, String> {
        let place = &options.place;
        let before = ConfigFiles::read(&place.config()).map_err(|e| e.to_string())?;
        let given = given(options)?;
        let Some(there) = before else {
            return fresh(options, given).and_then(|files| Self::new(options, files, None));
        };
        let Some(given) = given.filter(|given| !resumes(&there, given)) else {
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

    /// Says what is odd, or refuses it with `--strict`.
    fn accepted(self, options: &Options) -> Result<Self, String> {
        match self.checked.oddities.first() {
            Some(odd) if options.strict => Err(odd.clone()),
            _ => {
                self.checked.oddities.iter().for_each(|odd| eprintln!("squall up: warning: {odd}"));
                self.checked.notices.iter().for_each(|notice| eprintln!("squall up: {notice}"));
                Ok(self)
            }
        }
    }

    /// Writes the files.
    pub(super) fn carry_out(&self, place: &Place) -> Result<(), String> {
        let Some(files) = &self.files else { return Ok(()) };
        files.write(place)?;
        if self.before.is_some() {
            let path = place.config();
            eprintln!("squall up: the configuration was replaced; the one before is kept as {}.old", path.display());
        }
        Ok(())
    }

    /// Sets the files back to what they were: the controller does not start with the new ones.
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

/// The files that `--config` names.
pub(super) fn given(options: &Options) -> Result<Option<ConfigFiles>, String> {
    let (Some(file), Some(text)) = (&options.config, options.given()?) else { return Ok(None) };
    ConfigFiles::beside(file, text).map(Some).map_err(|e| e.to_string())
}

/// The files of a cluster that has none, with those that somebody has laid beside its place already.
fn fresh(options: &Options, given: Option<ConfigFiles>) -> Result<ConfigFiles, String> {
    let own = || ConfigFiles::beside(&options.place.config(), String::new()).map_err(|e| e.to_string());
    let files = match given {
        None => own()?,
        Some(given) => given.or_beside(own()?),
    };
    complete(options, files)
}

/// Adds to a text the nodes and the address that options say.
fn complete(options: &Options, files: ConfigFiles) -> Result<ConfigFiles, String> {
    let listen = options.listen.as_ref().map(|(host, port)| (host.as_str(), *port));
    let given = options.config.as_ref().map(|_| files.text());
    let text = life::config_text(given, options.nodes, options.rack, listen).map_err(|e| options.in_config(e))?;
    Ok(files.with_text(text))
}

/// Whether a cluster that has these files is started again with the given ones: they say the same, and what is there is
/// good.
fn resumes(there: &ConfigFiles, given: &ConfigFiles) -> bool {
    let has_nodes = Config::from_toml(given.text()).is_ok_and(|config| !config.nodes.is_empty());
    let same = [there.text(), life::without_listen(there.text())].into_iter().any(|text| {
        // What `squall up` has added are nodes, where the text names none.
        text == given.text()
            || (!has_nodes && text.strip_prefix(given.text()).is_some_and(|more| more.starts_with('\n')))
    });
    same && given.has_same_beside(there) && there.check().is_ok()
}
