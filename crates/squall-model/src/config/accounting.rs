//! Who reads the records of accounting without Squall.

use serde::{Deserialize, Serialize};

/// Accounting for other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    /// Group whose members may read a copy of the records, which SQLite opens. Empty: there is no copy.
    pub readers: String,
}

impl Accounting {
    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let wrong = self.readers.contains(|c: char| c.is_whitespace() || c.is_control() || ":,/".contains(c));
        wrong.then(|| ("readers", format!("`{}` is no name of a group", self.readers)))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn readers_are_a_group() {
        let read = |keys: &str| Config::from_toml(&format!("[accounting]\n{keys}\n"));
        let config = read("readers = \"analysts\"").expect("this is the key");
        assert_eq!(config.accounting.readers, "analysts");
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
        assert!(Config::default().to_toml().is_ok_and(|text| !text.contains("accounting]")));
        let refused = read("readers = \"a b\"").expect_err("it is wrong");
        assert!(refused.contains("[accounting] readers: `a b` is no name of a group"), "{refused}");
    }
}
