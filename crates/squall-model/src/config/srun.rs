//! What the configuration says of `srun` and `sattach`. Commands of all users find it in a file of lines `key=value`.

use std::fmt::Write as _;

use super::{Config, Ports};

/// What holds for each `srun` that does not say itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SrunDefaults {
    /// Ports at which it listens for tasks on other machines. None: any.
    pub ports: Option<Ports>,
    /// Program that runs before its step. Empty: none.
    pub prolog: String,
    /// Program that runs after its step. Empty: none.
    pub epilog: String,
}

impl Config {
    /// Returns what the configuration says of `srun`.
    pub fn srun_defaults(&self) -> SrunDefaults {
        let (prolog, epilog) = (self.srun_prolog.clone(), self.srun_epilog.clone());
        SrunDefaults { ports: self.srun_port_range, prolog, epilog }
    }
}

impl SrunDefaults {
    /// Writes a line for each setting. Empty: there are none.
    pub fn to_text(&self) -> String {
        let ports = self.ports.map(String::from).unwrap_or_default();
        let mut text = String::new();
        for (key, value) in [("ports", &ports), ("prolog", &self.prolog), ("epilog", &self.epilog)] {
            // A path with a line break would be two settings.
            if !value.is_empty() && !value.contains('\n') {
                let _ = writeln!(text, "{key}={value}");
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Reads what [`Self::to_text`] has written. Lines of a later version are left out.
    pub fn parse(text: &str) -> Self {
        let mut defaults = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "ports" => defaults.ports = Ports::try_from(value.to_owned()).ok(),
                "prolog" => value.clone_into(&mut defaults.prolog),
                "epilog" => value.clone_into(&mut defaults.epilog),
                _ => {}
            }
        }
        defaults
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, SrunDefaults};

    #[test]
    fn what_is_written_is_read() {
        let text = "SrunPortRange = \"60001-60010\"\nSrunProlog = \"/etc/p=q\"\n";
        let config = Config::from_toml(text).expect("these are the keys");
        let defaults = config.srun_defaults();
        assert_eq!(defaults.to_text(), "ports=60001-60010\nprolog=/etc/p=q");
        assert_eq!(SrunDefaults::parse(&defaults.to_text()), defaults);
        assert_eq!(SrunDefaults::parse("later=1\nports=x"), SrunDefaults::default());
        assert_eq!(Config::default().srun_defaults().to_text(), "");
    }
}
