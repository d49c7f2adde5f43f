//! `PrivateData`: what users see of others.

use serde::{Deserialize, Serialize};

/// `PrivateData`: which information is hidden from other users. Operators always see everything. Coordinators of an
/// account see its users and their jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrivateData {
    /// Whether accounts are shown to their coordinators only.
    pub accounts: bool,
    /// Whether past events of nodes, reservations and accounts are shown to operators only.
    pub events: bool,
    /// Whether users see only their own jobs.
    pub jobs: bool,
    /// Whether nodes are shown to operators only.
    pub nodes: bool,
    /// Whether partitions are shown to operators only.
    pub partitions: bool,
    /// Whether users see only reservations that they may use.
    pub reservations: bool,
    /// Whether users see only their own usage: shares, and rows of accounting.
    pub usage: bool,
    /// Whether users see only their own user and associations.
    pub users: bool,
}

impl PrivateData {
    /// Each kind of information with its name.
    fn words(&mut self) -> [(&'static str, &mut bool); 8] {
        [
            ("accounts", &mut self.accounts),
            ("events", &mut self.events),
            ("jobs", &mut self.jobs),
            ("nodes", &mut self.nodes),
            ("partitions", &mut self.partitions),
            ("reservations", &mut self.reservations),
            ("usage", &mut self.usage),
            ("users", &mut self.users),
        ]
    }
}

impl TryFrom<String> for PrivateData {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut private = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let lower = word.to_ascii_lowercase();
            let words = private.words();
            match words.iter().position(|(name, _)| *name == lower) {
                Some(at) => *words[at].1 = true,
                None if lower == "all" => words.into_iter().for_each(|(_, hidden)| *hidden = true),
                // Slurm's word for showing nodes that are switched off, as is always done here.
                None if ["none", "cloud"].contains(&lower.as_str()) => {}
                None => {
                    let names = words.map(|(name, _)| name).join(", ");
                    return Err(format!("`{word}`: {names}, all or none is meant"));
                }
            }
        }
        Ok(private)
    }
}

impl From<PrivateData> for String {
    fn from(mut private: PrivateData) -> Self {
        let words = private.words().into_iter().filter_map(|(name, hidden)| hidden.then_some(name));
        words.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::PrivateData;

    #[test]
    fn words_are_slurms() {
        let read = |text: &str| PrivateData::try_from(text.to_owned());
        let private = read("Jobs, usage,cloud").map(String::from);
        assert_eq!(private.as_deref(), Ok("jobs,usage"));
        assert_eq!(read("none"), Ok(PrivateData::default()));
        assert_eq!(read("all").map(|all| String::from(all).split(',').count()), Ok(8));
        assert!(read("jobs,job").is_err_and(|e| e.contains("`job`") && e.contains("reservations")));
    }
}
