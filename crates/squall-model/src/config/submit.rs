//! Settings of the submit filter: the site's own rules, which see each submission before the controller decides.

use serde::{Deserialize, Serialize};

use super::hooks::is_path;

/// User as which the filter runs if root starts it and the configuration names none.
const USER: &str = "nobody";

/// What filters submissions, and what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Submit {
    /// Lua script with `slurm_job_submit` and `slurm_job_modify`; a relative path begins at the folder of the
    /// configuration file. Empty: none.
    pub lua: String,
    /// Program that gets each job as JSON and returns what it changes. Empty: none.
    pub program: String,
    /// User as which they run if root starts them. Empty: `nobody`.
    pub user: String,
    /// Whether the script may start programs (`io.popen`, `os.execute`). Default false.
    pub allow_programs: bool,
}

impl Submit {
    /// Returns whether submissions are filtered.
    pub fn is_on(&self) -> bool {
        !self.lua.is_empty() || !self.program.is_empty()
    }

    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the name of the user as which the filter runs if root starts it.
    pub fn user(&self) -> &str {
        if self.user.is_empty() { USER } else { &self.user }
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if !self.lua.is_empty() && !self.program.is_empty() {
            return Some(("program", "`lua` is set, too: a cluster has one submit filter".to_owned()));
        }
        if self.lua.contains('\0') || self.lua.ends_with('/') {
            return Some(("lua", format!("`{}` is no path of a script", self.lua)));
        }
        let relative = !self.program.is_empty() && !is_path(&self.program);
        relative.then(|| ("program", super::hooks::path_fault(&self.program)))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_filter_is_a_script_or_a_program() {
        let read = |keys: &str| Config::from_toml(&format!("[submit]\n{keys}\n"));
        let config = read("lua = \"job_submit.lua\"").expect("these are the keys");
        assert!(config.submit.is_on() && config.submit.user() == "nobody");
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
        assert!(Config::default().to_toml().is_ok_and(|text| !text.contains("submit")));
        let refused = |keys: &str| read(keys).expect_err("it is wrong");
        assert!(refused("lua = \"a.lua\"\nprogram = \"/b\"").contains("[submit] program: `lua` is set, too"));
        assert!(refused("program = \"b\"").contains("[submit] program: `b` is not an absolute path"));
        assert!(refused("lua = \"/etc/\"").contains("[submit] lua: `/etc/` is no path of a script"));
    }
}
