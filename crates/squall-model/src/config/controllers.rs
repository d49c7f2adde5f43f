//! The controllers of a cluster that has several, and the log that they share.

use crate::gres;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Config, words};
use crate::hostlist;

/// Longest lease that can be set, seconds: for so long the cluster has no controller after one has failed.
const LEASE_S_MAX: u64 = 300;

/// One of several controllers. One of them leads; the others follow, and can take over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerConfig {
    /// Name of the controller. Empty: the host in `address`.
    pub name: String,
    /// Where other machines reach it, `HOST:PORT`. If the host is an address, it listens on that address only.
    pub address: String,
}

impl ControllerConfig {
    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        let host = || self.endpoint().map_or("", |(host, _)| host);
        if self.name.is_empty() { host() } else { &self.name }
    }

    /// Returns host and port of its address. None: it is not `HOST:PORT`.
    pub fn endpoint(&self) -> Option<(&str, u16)> {
        endpoint(&self.address)
    }

    /// Whether this is the controller on the host `host`: it has that name, with or without a domain.
    fn is_on(&self, host: &str) -> bool {
        let name = self.name();
        name == host || name.split('.').next() == Some(host) && name.parse::<std::net::IpAddr>().is_err()
    }
}

/// Where the log of several controllers is: in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SharedLog {
    /// The servers of etcd, each `HOST:PORT`. Empty: the log is in the state folder of the only controller.
    #[serde(deserialize_with = "words::names")]
    pub etcd: Vec<String>,
    /// Beginning of the keys in etcd. Empty: `/squall/` and the cluster's name.
    pub prefix: String,
    /// File with the certificate of the authority of etcd's servers (PEM). Empty: no TLS.
    pub ca: String,
    /// File with the certificate that the controllers show to etcd (PEM). Empty: none.
    pub certificate: String,
    /// File with the key of that certificate (PEM).
    pub certificate_key: String,
    /// Name of the controllers' user in etcd. Empty: none.
    pub user: String,
    /// File with the password of that user.
    pub password_file: String,
    /// Seconds after which a controller that does not answer no longer leads. Default 2.
    pub lease_s: u64,
    /// Most MiB of the log in etcd. Default 2048.
    pub quota_mb: u64,
}

impl Default for SharedLog {
    fn default() -> Self {
        let empty = String::new;
        Self {
            etcd: Vec::new(),
            prefix: empty(),
            ca: empty(),
            certificate: empty(),
            certificate_key: empty(),
            user: empty(),
            password_file: empty(),
            lease_s: 2,
            quota_mb: 2048,
        }
    }
}

impl SharedLog {
    /// Returns what is wrong with the settings, as `(key, problem)`.
    fn fault(&self) -> Option<(&'static str, String)> {
        if let Some(wrong) = self.etcd.iter().find(|server| endpoint(server).is_none()) {
            return Some(("etcd", format!("`{wrong}` is not HOST:PORT")));
        }
        if self.lease_s == 0 || self.lease_s > LEASE_S_MAX {
            return Some(("lease_s", format!("use 1 to {LEASE_S_MAX} seconds")));
        }
        if self.quota_mb == 0 {
            return Some(("quota_mb", "use 1 MiB or more".to_owned()));
        }
        let pairs = [
            (("certificate", &self.certificate), ("certificate_key", &self.certificate_key)),
            (("user", &self.user), ("password_file", &self.password_file)),
        ];
        let half = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
        let mut half = half.filter(|((_, set), (_, other))| !set.is_empty() && other.is_empty());
        half.next().map(|((key, _), (other, _))| (key, format!("it goes with {other}")))
    }
}

/// Returns host (without the brackets of an IPv6 address) and port of `HOST:PORT`. None: the text is no such thing.
pub fn endpoint(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty() && !host.contains(['/', ' ', '['])).then_some((host, port))
}

impl Config {
    /// Returns whether the cluster has several controllers, which share a log.
    pub fn has_standbys(&self) -> bool {
        !self.controllers.0.is_empty()
    }

    /// Returns the addresses of all controllers, `HOST:PORT`, in order of preference. Empty: there is one controller.
    pub fn controller_addresses(&self) -> impl Iterator<Item = &str> {
        self.controllers.0.iter().map(|one| one.address.as_str())
    }

    /// Returns the controller with this name or, if none has it, the one on the host of this name.
    pub fn controller(&self, name: &str) -> Option<&ControllerConfig> {
        let all = &self.controllers.0;
        all.iter().find(|one| one.name() == name).or_else(|| all.iter().find(|one| one.is_on(name)))
    }

    /// Returns which of several controllers uses this configuration, as [`Config::as_controller`] returns it. None: there
    /// is one controller, or it is that of another machine.
    pub fn own_controller(&self) -> Option<&ControllerConfig> {
        let own = Some((self.slurmctld_host.0.as_str(), self.slurmctld_port.0));
        self.controllers.0.iter().find(|one| one.endpoint() == own)
    }

    /// Returns the configuration as one of several controllers uses it: it listens at the address of its own entry.
    /// Err: there is none for `name`; the text is for users.
    pub fn as_controller(mut self, name: &str) -> Result<Self, String> {
        let Some((host, port)) = self.controller(name).and_then(ControllerConfig::endpoint) else {
            let known: Vec<&str> = self.controllers.0.iter().map(ControllerConfig::name).collect();
            return Err(format!(
                "[[controllers]] has no `{name}`: it names {}; `squall controller --name NAME` says which one this \
                 machine is",
                known.join(", ")
            ));
        };
        (self.slurmctld_host.0, self.slurmctld_port.0) = (host.to_owned(), port);
        Ok(self)
    }

    /// Checks the settings of several controllers, as a controller needs them. A node has no `[log]`. The error is a
    /// text for users.
    pub fn check_controllers(&self) -> Result<(), String> {
        let (all, log) = (&self.controllers.0, &self.log.0);
        match (all.is_empty(), log.etcd.is_empty()) {
            (true, true) if *log != SharedLog::default() => {
                return Err("[log] needs the servers of etcd: etcd = [\"HOST:PORT\", ...]".to_owned());
            }
            (true, true) => return Ok(()),
            (true, false) => {
                return Err(
                    "[log] etcd is the log of several controllers: name them in [[controllers]], or leave it out"
                        .to_owned(),
                );
            }
            (false, true) => {
                return Err("[[controllers]] need a log that they share: name the servers of etcd in [log], as \
                     etcd = [\"HOST:PORT\", ...]"
                    .to_owned());
            }
            (false, false) => {}
        }
        if let Some((key, problem)) = log.fault() {
            return Err(format!("[log] {key}: {problem}"));
        }
        if !self.slurmctld_host.0.is_empty() || self.slurmctld_port.0 != 0 {
            return Err(
                "[[controllers]] have addresses of their own: leave SlurmctldHost and SlurmctldPort out".to_owned()
            );
        }
        let mut names = BTreeSet::new();
        for one in all {
            if one.endpoint().is_none() {
                return Err(format!("controller {}: address = \"{}\" is not HOST:PORT", one.name(), one.address));
            }
            if !hostlist::is_name(one.name()) {
                return Err(format!("controller {}: `{}` can't be a name", one.address, one.name()));
            }
            if !names.insert(one.name()) {
                return Err(format!("two controllers have the name {}", one.name()));
            }
        }
        Ok(())
    }

    /// Returns the text of a configuration file as nodes and login hosts get it: without `[log]`, which is for
    /// controllers only, and with the lines of `gres.conf`, which they do not get. `devices`: the text of that file.
    pub fn text_for_nodes(text: &str, devices: &str) -> String {
        let changed = || {
            let mut table = text.parse::<toml::Table>().ok()?;
            let lines = gres::parse_conf(devices).unwrap_or_default();
            if table.remove("log").is_none() && lines.is_empty() {
                return None;
            }
            if !lines.is_empty() {
                let all = table.entry("gres").or_insert_with(|| toml::Value::Array(Vec::new())).as_array_mut()?;
                for line in lines {
                    all.push(toml::Value::try_from(line).ok()?);
                }
            }
            toml::to_string(&table).ok()
        };
        changed().unwrap_or_else(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const TWO: &str = "[[controllers]]\nname = \"head1\"\naddress = \"10.0.0.1:6817\"\n\
                       [[controllers]]\naddress = \"head2.example.org:6817\"\n";
    const LOG: &str = "[log]\netcd = [\"10.0.0.1:2379\", \"etcd2:2379\"]\n";

    fn read(text: &str) -> Config {
        Config::from_toml(text).unwrap()
    }

    fn problem(text: &str) -> String {
        read(text).check_controllers().unwrap_err()
    }

    #[test]
    fn several_controllers_have_names_addresses_and_a_log() {
        let config = read(&format!("{TWO}{LOG}"));
        config.check_controllers().unwrap();
        assert!(config.has_standbys() && !Config::default().has_standbys());
        let names: Vec<&str> = config.controllers.0.iter().map(super::ControllerConfig::name).collect();
        assert_eq!(names, ["head1", "head2.example.org"]);
        let own = config.clone().as_controller("head2").unwrap();
        assert_eq!((own.slurmctld_host.0.as_str(), own.slurmctld_port.0), ("head2.example.org", 6817));
        assert_eq!(own.own_controller(), Some(&config.controllers.0[1]));
        assert_eq!(config.own_controller(), None);
        let unknown = config.as_controller("n1").unwrap_err();
        assert!(unknown.starts_with("[[controllers]] has no `n1`: it names head1, head2.example.org;"), "{unknown}");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        assert!(problem(TWO).starts_with("[[controllers]] need a log that they share"));
        assert!(problem(LOG).starts_with("[log] etcd is the log of several controllers"));
        assert!(problem("[log]\nlease_s = 5\n").starts_with("[log] needs the servers of etcd"));
        assert!(
            problem(&format!("SlurmctldPort = 6817\n{TWO}{LOG}")).contains("leave SlurmctldHost and SlurmctldPort out")
        );
        assert_eq!(problem(&format!("{TWO}{LOG}lease_s = 0\n")), "[log] lease_s: use 1 to 300 seconds");
        assert_eq!(problem(&format!("{TWO}{LOG}user = \"squall\"\n")), "[log] user: it goes with password_file");
        assert_eq!(problem(&format!("{TWO}[log]\netcd = \"etcd\"\n")), "[log] etcd: `etcd` is not HOST:PORT");
        let wrong = format!("[[controllers]]\nname = \"a\"\naddress = \"head\"\n{LOG}");
        assert_eq!(problem(&wrong), "controller a: address = \"head\" is not HOST:PORT");
    }

    #[test]
    fn nodes_get_the_controllers_without_their_log() {
        let text = Config::text_for_nodes(&format!("cluster = \"lab\"\n{TWO}{LOG}user = \"squall\"\n"), "");
        assert!(!text.contains("etcd") && !text.contains("squall\""), "{text}");
        assert_eq!(read(&text).controllers.0, read(TWO).controllers.0);
        let plain = "# A comment.\ncluster = \"lab\"\n";
        assert_eq!(Config::text_for_nodes(plain, ""), plain);
        let devices = "Name=gpu File=/dev/a[0-1]\nNodeName=n1 Name=gpu Type=b File=/dev/c";
        let with = read(&Config::text_for_nodes("[[gres]]\nname = \"fpga\"\n", devices));
        let files = with.gres.iter().map(|line| (&*line.node_name, &*line.name, &*line.kind, &*line.file));
        let expected = [("", "fpga", "", ""), ("", "gpu", "", "/dev/a[0-1]"), ("n1", "gpu", "b", "/dev/c")];
        assert_eq!(files.collect::<Vec<_>>(), expected);
    }
}
