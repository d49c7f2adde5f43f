//! Options of the module, as a line of a PAM service gives them: those of `pam_slurm_adopt` that have a meaning here.

use std::path::{Path, PathBuf};

/// What the module answers to PAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The user may log in.
    Allow,
    /// The user may not.
    Deny,
    /// The other modules of the service decide.
    Ignore,
}

/// What happens if a user has several jobs on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    /// The login becomes a part of the newest one.
    Newest,
    /// It does not become a part of any; this is the answer.
    None(Verdict),
}

/// The options of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// `action_no_jobs`: what happens without a job.
    pub(crate) no_jobs: Verdict,
    /// `action_unknown`: what happens with several jobs.
    pub(crate) several: Several,
    /// `action_adopt_failure`: what happens if the login can't become a part of the job.
    pub(crate) adopt_failure: Verdict,
    /// `action_generic_failure`: what happens if the node daemon can't be asked.
    pub(crate) generic_failure: Verdict,
    /// `nodename`: the node's name. None: this host's, up to the first dot.
    pub(crate) node: Option<String>,
    /// `users`: names of users who pass, as root does.
    pub(crate) users: Vec<String>,
    /// `state`: the cluster's state folder.
    pub(crate) state: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            no_jobs: Verdict::Deny,
            several: Several::Newest,
            adopt_failure: Verdict::Allow,
            generic_failure: Verdict::Ignore,
            node: None,
            users: Vec::new(),
            state: "/var/lib/squall".into(),
        }
    }
}

impl Options {
    /// Reads the words after the module's name. The second result has a complaint about each that is not understood.
    pub(crate) fn read(words: &[String]) -> (Self, Vec<String>) {
        let mut options = Self::default();
        let mut complaints = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let understood = match key {
                "action_no_jobs" => set(&mut options.no_jobs, verdict(value, &["ignore", "deny"])),
                "action_unknown" if value == "newest" => set(&mut options.several, Some(Several::Newest)),
                "action_unknown" => set(&mut options.several, verdict(value, &["allow", "deny"]).map(Several::None)),
                "action_adopt_failure" => set(&mut options.adopt_failure, verdict(value, &["allow", "deny"])),
                "action_generic_failure" => {
                    set(&mut options.generic_failure, verdict(value, &["ignore", "allow", "deny"]))
                }
                "nodename" => set(&mut options.node, Some(value.to_owned()).filter(|name| is_name(name)).map(Some)),
                "users" => {
                    options.users.extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
                    !value.is_empty()
                }
                "state" => set(&mut options.state, Some(PathBuf::from(value)).filter(|path| path.is_absolute())),
                _ => false,
            };
            if !understood {
                complaints.push(format!("`{word}` is no option of pam_squall, or has no value that it takes"));
            }
        }
        (options, complaints)
    }

    /// Returns the path of the socket on which the node daemon answers. `host`: this host's name.
    pub(crate) fn socket(&self, host: &str) -> PathBuf {
        let short = host.split('.').next().unwrap_or_default();
        let node = self.node.as_deref().unwrap_or(short);
        Path::new(&self.state).join("run").join(format!("login-{node}.sock"))
    }
}

/// Sets an option, if there is a value for it; returns whether there is.
fn set<T>(option: &mut T, value: Option<T>) -> bool {
    let understood = value.is_some();
    if let Some(value) = value {
        *option = value;
    }
    understood
}

/// Reads one of the words that an option takes.
fn verdict(value: &str, may: &[&str]) -> Option<Verdict> {
    match value {
        _ if !may.contains(&value) => None,
        "allow" => Some(Verdict::Allow),
        "deny" => Some(Verdict::Deny),
        _ => Some(Verdict::Ignore),
    }
}

/// Whether a text can be the name of a node, and so a part of a file's name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::{Options, Several, Verdict};

    fn read(line: &str) -> (Options, usize) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (options, complaints) = Options::read(&words);
        (options, complaints.len())
    }

    #[test]
    fn options_are_those_of_slurms_module() {
        assert_eq!(read(""), (Options::default(), 0));
        let (all, complaints) = read(
            "action_no_jobs=ignore action_unknown=deny action_adopt_failure=deny action_generic_failure=allow \
             nodename=n1 users=admin,monitor state=/srv/squall",
        );
        assert_eq!(complaints, 0);
        let expected = Options {
            no_jobs: Verdict::Ignore,
            several: Several::None(Verdict::Deny),
            adopt_failure: Verdict::Deny,
            generic_failure: Verdict::Allow,
            node: Some("n1".into()),
            users: vec!["admin".into(), "monitor".into()],
            state: "/srv/squall".into(),
        };
        assert_eq!(all, expected);
        assert_eq!(all.socket("host.example.org").to_str(), Some("/srv/squall/run/login-n1.sock"));
        let usual = Options::default().socket("host.example.org");
        assert_eq!(usual.to_str(), Some("/var/lib/squall/run/login-host.sock"));
    }

    #[test]
    fn what_is_not_understood_changes_nothing_and_is_said() {
        for wrong in ["action_no_jobs=allow", "action_unknown=", "disable_x11=1", "nodename=../x", "state=x", "users="]
        {
            let (options, complaints) = read(wrong);
            assert_eq!((options.no_jobs, options.state.is_absolute(), complaints), (Verdict::Deny, true, 1), "{wrong}");
        }
    }
}
