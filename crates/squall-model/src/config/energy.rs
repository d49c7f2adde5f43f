//! How nodes measure the energy that jobs use.

use serde::{Deserialize, Serialize};

use crate::energy::EnergySource;

/// The file in which Cray's nodes count joules.
const PM_COUNTERS: &str = "/sys/cray/pm_counters/energy";
/// Longest time between two readings, seconds: in more, a counter of a processor may come back to the same value.
const EVERY_MAX_S: u32 = 600;

/// How nodes measure the energy that jobs use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Energy {
    /// `rapl`, `pm_counters` or `none`, also with `acct_gather_energy/` before it. Empty: none.
    #[serde(alias = "AcctGatherEnergyType", skip_serializing_if = "String::is_empty")]
    pub acct_gather_energy_type: String,
    /// Time between two readings of the counters, seconds.
    #[serde(alias = "AcctGatherNodeFreq")]
    pub acct_gather_node_freq_s: u32,
    /// The file of `pm_counters`.
    pub file: String,
}

impl Default for Energy {
    fn default() -> Self {
        Self { acct_gather_energy_type: String::new(), acct_gather_node_freq_s: 30, file: PM_COUNTERS.to_owned() }
    }
}

impl Energy {
    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    fn kind(&self) -> &str {
        self.acct_gather_energy_type.strip_prefix("acct_gather_energy/").unwrap_or(&self.acct_gather_energy_type)
    }

    /// Returns by what nodes measure energy. None: they don't.
    pub fn source(&self) -> Option<EnergySource> {
        let file = match self.kind() {
            "rapl" => String::new(),
            "pm_counters" => self.file.clone(),
            _ => return None,
        };
        Some(EnergySource { file, every_s: self.acct_gather_node_freq_s })
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if !["", "none", "rapl", "pm_counters"].contains(&self.kind()) {
            let problem = format!("`{}`: use rapl, pm_counters or none", self.acct_gather_energy_type);
            return Some(("acct_gather_energy_type", problem));
        }
        if !(1..=EVERY_MAX_S).contains(&self.acct_gather_node_freq_s) {
            return Some(("acct_gather_node_freq_s", format!("use a number from 1 to {EVERY_MAX_S}")));
        }
        (!self.file.starts_with('/')).then(|| ("file", format!("`{}`: use the path of a file", self.file)))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::energy::EnergySource;

    fn read(keys: &str) -> Result<Option<EnergySource>, String> {
        Config::from_toml(&format!("[energy]\n{keys}\n")).map(|config| config.energy.source())
    }

    #[test]
    fn energy_is_measured_only_if_the_site_says_how() {
        assert_eq!(Config::default().energy.source(), None);
        assert_eq!(read("AcctGatherEnergyType = \"acct_gather_energy/none\""), Ok(None));
        let rapl = Some(EnergySource { file: String::new(), every_s: 10 });
        assert_eq!(read("AcctGatherEnergyType = \"acct_gather_energy/rapl\"\nAcctGatherNodeFreq = 10"), Ok(rapl));
        let cray = Some(EnergySource { file: "/sys/cray/pm_counters/energy".into(), every_s: 30 });
        assert_eq!(read("acct_gather_energy_type = \"pm_counters\""), Ok(cray));
        assert!(Config::default().to_toml().is_ok_and(|text| !text.contains("energy")));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (keys, said) in [
            ("acct_gather_energy_type = \"ipmi\"", "`ipmi`: use rapl, pm_counters or none"),
            ("acct_gather_node_freq_s = 0", "use a number from 1 to 600"),
            ("file = \"energy\"", "`energy`: use the path of a file"),
        ] {
            let refused = read(keys).expect_err("it is wrong");
            assert!(refused.starts_with("[energy] ") && refused.ends_with(said), "{refused}");
        }
    }
}
