//! Looks at etcd for administrators: whether it answers, has room, and takes nothing from strangers.

use std::time::Duration;

use squall_model::config::Config;
use squall_store::etcd::{Probe, Servers, probe};
use tracing::warn;

/// Pause before etcd is asked again, while it does not answer.
const AGAIN: Duration = Duration::from_secs(5);

/// What was seen of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdLook {
    /// Members that write for this controller.
    pub fine: Vec<String>,
    /// Members that have no room, with what they say.
    pub roomless: Vec<String>,
    /// Members that refuse or don't answer, with the reason.
    pub silent: Vec<String>,
    /// Members that write for anybody.
    pub open: Vec<String>,
}

impl EtcdLook {
    /// Returns the warning that strangers may write to etcd. None: they may not, as far as is known.
    pub fn is_open(&self) -> Option<String> {
        (!self.open.is_empty()).then(|| {
            format!(
                "etcd ({}) lets anybody who reaches it write, and whoever does is the controller",
                self.open.join(", ")
            )
        })
    }
}

/// What to do if etcd writes for anybody.
pub const CLOSE_ETCD: &str =
    "give etcd certificates, and name yours in [log] (docs/admin/several-controllers.md, \"Protect etcd\")";

/// Looks at the etcd of a cluster with several controllers. Blocks for some seconds at most. Err: a file that the
/// configuration names can't be read.
pub fn look_at_etcd(config: &Config) -> Result<EtcdLook, String> {
    let servers = servers(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(look(&servers, &prefix(config)))
}

async fn look(servers: &Servers, prefix: &str) -> Result<EtcdLook, String> {
    let mut seen = EtcdLook::default();
    for (member, answer) in probe(servers, prefix, false).await? {
        match answer {
            Probe::Writes => seen.fine.push(member),
            Probe::NoRoom(why) => seen.roomless.push(why),
            Probe::Not(why) => seen.silent.push(why),
        }
    }
    let open = probe(servers, prefix, true).await?.into_iter().filter(|(_, answer)| *answer == Probe::Writes);
    seen.open = open.map(|(member, _)| member).collect();
    Ok(seen)
}

/// Warns once in the log if etcd writes for anybody. Ends when it has answered.
pub(super) async fn warn_if_open(config: Config) {
    let Ok(servers) = servers(&config) else { return };
    loop {
        match look(&servers, &prefix(&config)).await {
            Ok(seen) if seen.fine.is_empty() && seen.open.is_empty() => tokio::time::sleep(AGAIN).await,
            Ok(seen) => return seen.is_open().iter().for_each(|open| warn!("{open}: {CLOSE_ETCD}")),
            Err(_) => return,
        }
    }
}

/// Reads how etcd is reached. Err: a file that the configuration names can't be read.
pub(super) fn servers(config: &Config) -> Result<Servers, String> {
    let log = &config.log.0;
    let read = |path: &str| std::fs::read(path).map_err(|e| format!("[log] {path}: {e}"));
    let some = |path: &String| (!path.is_empty()).then(|| read(path)).transpose();
    let (ca, certificate, key) = (some(&log.ca)?, some(&log.certificate)?, some(&log.certificate_key)?);
    let password = some(&log.password_file)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let user = (!log.user.is_empty()).then(|| log.user.clone());
    Ok(Servers { members: log.etcd.clone(), ca, identity: certificate.zip(key), user: user.zip(password) })
}

/// Returns the prefix of the cluster's keys.
pub(super) fn prefix(config: &Config) -> String {
    let given = &config.log.0.prefix;
    let prefix = if given.is_empty() { format!("/squall/{}", config.cluster) } else { given.clone() };
    prefix.trim_end_matches('/').to_owned()
}
