//! `scontrol show config` and `scontrol write config`.

use std::fmt::Write;
use std::path::PathBuf;

use squall_files::place::Place;
use squall_model::config::{Config, Local};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::ControllerInfo;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::all_partitions;
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, controllers};
use squall_client::unexpected;
use squall_text::columns::settings::{HOSTS, own_host, settings};
use squall_text::shapes::{self, AnswerKind, Version};

const WHAT: &str = "slurm_ctl_conf_ptr error";

/// Prints the configuration in Slurm's format, or as JSON.
pub(super) fn show(call: &mut Call<'_>, manner: Manner) -> Result<(), Fail> {
    if let Some(dialect) = manner.dialect.filter(|dialect| dialect.version < Version::V45) {
        let version = dialect.version.name();
        return call.fail(&format!("{version} has no configuration: use --json=v0.0.45"));
    }
    let config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let (host, trouble, started, next_job, version) = match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { host, trouble, started, next_job, cluster_version, .. }) => {
            (host, trouble, started, next_job, cluster_version)
        }
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let mut text = format!("Configuration data as of {}\n", call.clock(call.now).show(call.now));
    let mut all = match settings(&config) {
        Ok(all) => all,
        Err(problem) => return call.fail(&format!("the configuration can't be shown: {problem}")),
    };
    let several = controllers::several(call);
    let named =
        |one: &ControllerInfo| format!("{}({})", one.name, one.address.rsplit_once(':').map_or("", |(host, _)| host));
    let hosts = if several.is_empty() { vec![own_host(&config, &host)] } else { several.iter().map(named).collect() };
    if let Some(dialect) = manner.dialect {
        let conf = shapes::conf::slurm_conf(dialect.version, &all, &hosts);
        let meta = shapes::conf::slurm_conf_meta(call.now, started, next_job.0);
        let body = vec![("slurm_conf", conf), ("slurm_conf_meta", meta)];
        let command = ["scontrol", "show", "config"];
        let text = document(call, dialect, &config.cluster, &command, AnswerKind::SlurmConf, body);
        call.print(&text);
        return Ok(());
    }
    all.extend(HOSTS.into_iter().zip(hosts));
    all.push(("ClusterVersion", version.to_string()));
    all.extend([("BOOT_TIME", call.clock(call.now).show(started)), ("NEXT_JOB_ID", next_job.to_string())]);
    all.extend(home(call));
    all.sort_by_key(|(key, _)| key.to_lowercase());
    for (key, value) in all {
        let _ = writeln!(text, "{key:<23} = {value}");
    }
    text.push_str("\nMPI Plugins Configuration:\n");
    for (key, value) in PMIX {
        let _ = writeln!(text, "{key:<23} = {value}");
    }
    let _ = write!(text, "\n{}", controllers::status(&several, &host));
    call.print(&text);
    if let Some(trouble) = trouble {
        call.complain(&trouble);
    }
    Ok(())
}

/// Returns the settings that name the state folder's files and the user who runs the daemons.
fn home(call: &mut Call<'_>) -> Vec<(&'static str, String)> {
    let none = || "(null)".to_owned();
    let home = call.controller.home();
    let owner = home.as_ref().map_or_else(none, |(_, uid)| format!("{}({uid})", call.people.user(*uid)));
    let place = home.as_ref().and_then(|(file, _)| Place::at(file.parent()?).ok());
    let at = |path: fn(&Place) -> PathBuf| place.as_ref().map_or_else(none, |place| path(place).display().to_string());
    vec![
        ("SLURM_CONF", home.map_or_else(none, |(file, _)| file.display().to_string())),
        ("SlurmUser", owner.clone()),
        ("SlurmdUser", owner),
        ("StateSaveLocation", at(|place| place.dir().to_owned())),
        ("SlurmctldLogFile", at(Place::log)),
        ("SlurmctldPidFile", at(Place::controller_pid)),
        ("SlurmdLogFile", at(Place::log)),
        ("SlurmdPidFile", at(|place| place.node_pid("%n"))),
        ("SlurmdSpoolDir", at(|place| place.node("%n"))),
    ]
}

/// Runs `write config [FILE]`: writes the configuration, with partitions as they are now.
pub(super) fn write(call: &mut Call<'_>, file: Option<&str>) -> Result<(), Fail> {
    let mut config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => as_file(*config),
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    config.partitions = match all_partitions(call) {
        Ok(all) => all.into_iter().map(|one| one.config).collect(),
        Err(e) => return call.failed(WHAT, &e),
    };
    let path = match (file, call.controller.home()) {
        (Some(file), _) => PathBuf::from(file),
        (None, Some((known, _))) => PathBuf::from(format!("{}.{}", known.display(), call.now.secs())),
        (None, None) => {
            return call.fail("write config: name a file, for it is not known here where the configuration is");
        }
    };
    let text = match config.to_toml() {
        Ok(text) => text,
        Err(problem) => return call.fail(&format!("write config: {problem}")),
    };
    match std::fs::write(&path, text) {
        Ok(()) => {
            call.print(&format!("Slurm config saved to {}\n", path.display()));
            Ok(())
        }
        Err(e) => call.fail(&format!("write config: {}: {e}: name a file that can be written", path.display())),
    }
}

/// Returns a configuration in force as a file has it: of several controllers each has its address in a table.
pub(super) fn as_file(config: Config) -> Config {
    if config.has_standbys() {
        Config { slurmctld_host: Local::default(), slurmctld_port: Local::default(), ..config }
    } else {
        config
    }
}

/// Settings of Slurm's PMIx plugin, as they apply to Squall's step daemons.
const PMIX: &[(&str, &str)] = &[
    ("PMIxCliTmpDirBase", "(null)"),
    ("PMIxCollFence", "(null)"),
    ("PMIxDebug", "0"),
    ("PMIxDirectConn", "yes"),
    ("PMIxDirectConnEarly", "no"),
    ("PMIxDirectConnUCX", "no"),
    ("PMIxDirectSameArch", "no"),
    ("PMIxEnv", "(null)"),
    ("PMIxFenceBarrier", "no"),
    ("PMIxNetDevicesUCX", "(null)"),
    ("PMIxTimeout", "0"),
    ("PMIxTlsUCX", "(null)"),
];
