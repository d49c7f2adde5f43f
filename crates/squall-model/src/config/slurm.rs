//! What a cluster takes over from an installation of Slurm as it is: plugins of SPANK, and the release that it shows.

use serde::{Deserialize, Serialize};

/// Seconds that a plugin's hook may take unless the configuration says: an image may be fetched in it.
const PLUGIN_TIMEOUT_S: u64 = 600;

/// Release of Slurm whose number and forms commands show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Release {
    /// Slurm 24.05.
    #[default]
    #[serde(rename = "24.05")]
    V24,
    /// Slurm 25.11.
    #[serde(rename = "25.11")]
    V25,
    /// Slurm 26.05.
    #[serde(rename = "26.05")]
    V26,
}

impl Release {
    /// All releases.
    pub const ALL: [Self; 3] = [Self::V24, Self::V25, Self::V26];

    /// Returns its name: `24.05`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V24 => "24.05",
            Self::V25 => "25.11",
            Self::V26 => "26.05",
        }
    }

    /// Reads its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|release| release.name() == name)
    }
}

/// What is taken over from Slurm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FromSlurm {
    /// File that lists the SPANK plugins, on each machine; a relative path begins at the state folder. Empty: none.
    #[serde(alias = "PlugStackConfig")]
    pub plugstack: String,
    /// Seconds that a hook of a plugin may take. Default 600.
    pub plugin_timeout_s: u64,
    /// Release that commands show: `--version`, versions of JSON, variables.
    pub compatible: Release,
}

impl Default for FromSlurm {
    fn default() -> Self {
        Self { plugstack: String::new(), plugin_timeout_s: PLUGIN_TIMEOUT_S, compatible: Release::default() }
    }
}

impl FromSlurm {
    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if self.plugstack.contains(['\0', '\n']) || self.plugstack.ends_with('/') {
            return Some(("plugstack", format!("`{}` is no path of a file", self.plugstack)));
        }
        (self.plugin_timeout_s == 0).then(|| ("plugin_timeout_s", "use 1 or more seconds".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Release;
    use crate::config::Config;

    #[test]
    fn plugins_are_listed_in_a_file() {
        let read = |keys: &str| Config::from_toml(&format!("[slurm]\n{keys}\n"));
        let config = read("plugstack = \"plugstack.conf\"").expect("this is the key");
        assert_eq!((config.slurm.plugstack.as_str(), config.slurm.plugin_timeout_s), ("plugstack.conf", 600));
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
        assert!(Config::default().to_toml().is_ok_and(|text| !text.contains("slurm]")));
        let refused = |keys: &str| read(keys).expect_err("it is wrong");
        assert!(refused("plugstack = \"/etc/\"").contains("[slurm] plugstack: `/etc/` is no path of a file"));
        assert_eq!(read("compatible = \"25.11\"").expect("a release").slurm.compatible, Release::V25);
        assert!(refused("compatible = \"23.02\"").contains("24.05"));
        assert!(refused("plugin_timeout_s = 0").contains("[slurm] plugin_timeout_s: use 1 or more seconds"));
    }
}
