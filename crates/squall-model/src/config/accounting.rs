//! Where the records of accounting are, who reads them without Squall, how long they are kept, and who is told of ended
//! jobs.

use serde::{Deserialize, Serialize};

use super::Server;
use crate::time::Span;

/// Seconds of a month in which records are kept.
const MONTH_S: u64 = 30 * 86_400;

/// Accounting for other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    /// Address of the database in PostgreSQL that keeps the records; see [`Server::parse`]. Empty: SQLite keeps them, in the
    /// state folder.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub store: String,
    /// Group whose members may read a copy of the records, which SQLite opens. Empty: there is no copy.
    pub readers: String,
    /// Time after which the records of ended jobs are removed, as `12months`, `90days`, `24hours`, or a number of months.
    /// Empty: never. Written only if set, as are the keys that follow.
    #[serde(alias = "PurgeJobAfter", skip_serializing_if = "String::is_empty")]
    pub purge_job_after: String,
    /// Time after which the records of ended steps are removed, in the same form. Empty: with their jobs.
    #[serde(alias = "PurgeStepAfter", skip_serializing_if = "String::is_empty")]
    pub purge_step_after: String,
    /// How other programs are told of ended jobs: `jobcomp/filetxt` or `jobcomp/elasticsearch`. Empty: they are not.
    #[serde(alias = "JobCompType", skip_serializing_if = "String::is_empty")]
    pub job_comp_type: String,
    /// The file, or the address to which they are sent, as `http://HOST:9200/slurm/_doc`.
    #[serde(alias = "JobCompLoc", skip_serializing_if = "String::is_empty")]
    pub job_comp_loc: String,
}

/// How other programs are told of ended jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobCompletion<'a> {
    /// By a line in the file at this path.
    File(&'a str),
    /// By a document in Elasticsearch's form, sent to this address.
    Http(&'a str),
}

impl Accounting {
    /// Returns whether every setting has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the server that keeps the records, or what is wrong with its address. None: SQLite keeps them.
    pub fn server(&self) -> Option<Result<Server, String>> {
        Some(self.store.as_str()).filter(|url| !url.is_empty()).map(Server::parse)
    }

    /// Returns the time after which records of jobs are removed. None: never.
    pub fn keeps_jobs(&self) -> Option<Span> {
        retention(&self.purge_job_after)
    }

    /// Returns the time after which records of steps are removed. None: with their jobs.
    pub fn keeps_steps(&self) -> Option<Span> {
        retention(&self.purge_step_after)
    }

    /// Returns how other programs are told of ended jobs. None: they are not.
    pub fn completion(&self) -> Option<JobCompletion<'_>> {
        match self.job_comp_type.rsplit('/').next()? {
            "filetxt" => Some(JobCompletion::File(&self.job_comp_loc)),
            "elasticsearch" => Some(JobCompletion::Http(&self.job_comp_loc)),
            _ => None,
        }
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        match self.server() {
            Some(Err(problem)) => return Some(("store", problem)),
            Some(Ok(_)) if !self.readers.is_empty() => {
                let problem =
                    "it makes a file of SQLite, and goes without store: in PostgreSQL, GRANT a role the views instead";
                return Some(("readers", problem.to_owned()));
            }
            _ => {}
        }
        if self.readers.contains(|c: char| c.is_whitespace() || c.is_control() || ":,/".contains(c)) {
            return Some(("readers", format!("`{}` is no name of a group", self.readers)));
        }
        for (key, text) in [("purge_job_after", &self.purge_job_after), ("purge_step_after", &self.purge_step_after)] {
            if !text.is_empty() && retention(text).is_none() {
                return Some((key, format!("`{text}`: use a time such as 12months, 90days or 24hours")));
            }
        }
        let kind = self.job_comp_type.strip_prefix("jobcomp/").unwrap_or(&self.job_comp_type);
        let (loc, problem) = (&self.job_comp_loc, |text: String| Some(("job_comp_loc", text)));
        match (kind, self.completion()) {
            ("filetxt", Some(_)) if !loc.starts_with('/') || loc.ends_with('/') => {
                problem(format!("`{loc}`: use the path of a file such as /var/log/squall/jobs"))
            }
            ("elasticsearch", Some(_)) if !loc.starts_with("http://") || loc.contains('@') => {
                problem(format!("`{loc}`: use an address such as http://HOST:9200/slurm/_doc"))
            }
            ("" | "none", _) | ("filetxt" | "elasticsearch", Some(_)) => None,
            _ => {
                let text = format!("`{}`: use jobcomp/filetxt or jobcomp/elasticsearch", self.job_comp_type);
                Some(("job_comp_type", text))
            }
        }
    }
}

/// Reads how long records are kept. A number without a unit is months, as in Slurm. None: it is no such time.
pub fn retention(text: &str) -> Option<Span> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (text[..digits].parse::<u64>().ok()?, text[digits..].to_ascii_lowercase());
    let each = match unit.as_str() {
        "" => MONTH_S,
        _ if "months".starts_with(&unit) => MONTH_S,
        _ if "days".starts_with(&unit) => 86_400,
        _ if "hours".starts_with(&unit) => 3600,
        _ => return None,
    };
    number.checked_mul(each).filter(|seconds| (1..=100 * 366 * 86_400).contains(seconds)).map(Span::from_secs)
}

#[cfg(test)]
mod tests {
    use super::{JobCompletion, retention};
    use crate::config::{Accounting, Config};

    fn read(keys: &str) -> Result<Accounting, String> {
        Config::from_toml(&format!("[accounting]\n{keys}\n")).map(|config| config.accounting)
    }

    #[test]
    fn readers_are_a_group() {
        let config = Config::from_toml("[accounting]\nreaders = \"analysts\"\n").expect("this is the key");
        assert_eq!(config.accounting.readers, "analysts");
        assert_eq!(Config::from_toml(&config.to_toml().expect("it is text")), Ok(config));
        assert!(Config::default().to_toml().is_ok_and(|text| !text.contains("accounting]")));
        let refused = read("readers = \"a b\"").expect_err("it is wrong");
        assert!(refused.contains("[accounting] readers: `a b` is no name of a group"), "{refused}");
    }

    #[test]
    fn records_are_kept_as_long_as_slurms_keys_say() {
        let seconds = |text: &str| retention(text).map(crate::time::Span::secs);
        assert_eq!([seconds("12"), seconds("12months")], [Some(12 * 30 * 86_400); 2]);
        assert_eq!([seconds("90days"), seconds("24Hours"), seconds("1d")], [90, 1, 1].map(|days| Some(days * 86_400)));
        for wrong in ["", "0", "days", "-1", "3 weeks", "99999999999999999999", "9999999months"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        let read = read("PurgeJobAfter = \"1months\"\nPurgeStepAfter = \"24hours\"").expect("these are the keys");
        assert!(read.keeps_jobs() > read.keeps_steps());
        assert!(Accounting::default().keeps_jobs().is_none());
        assert!(super::tests::read("purge_job_after = \"soon\"").is_err_and(|said| said.contains("12months, 90days")));
    }

    #[test]
    fn ended_jobs_go_to_a_file_or_to_an_address() {
        let accounting =
            read("JobCompType = \"jobcomp/filetxt\"\nJobCompLoc = \"/var/log/jobs\"").expect("so in Slurm");
        assert_eq!(accounting.completion(), Some(JobCompletion::File("/var/log/jobs")));
        let http = "JobCompType = \"jobcomp/elasticsearch\"\nJobCompLoc = \"http://h:9200/slurm/_doc\"";
        let accounting = read(http).expect("so in Slurm");
        assert_eq!(accounting.completion(), Some(JobCompletion::Http("http://h:9200/slurm/_doc")));
        for (keys, why) in [
            ("job_comp_type = \"jobcomp/mysql\"", "use jobcomp/filetxt or jobcomp/elasticsearch"),
            ("job_comp_type = \"jobcomp/filetxt\"", "use the path of a file"),
            (
                "job_comp_type = \"jobcomp/elasticsearch\"\njob_comp_loc = \"https://h/\"",
                "use an address such as http://",
            ),
        ] {
            assert!(read(keys).is_err_and(|said| said.contains(why)), "{keys}");
        }
    }
}
