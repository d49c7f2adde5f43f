//! Mail about jobs: what a user wants to be told (`--mail-type`), and what a mail needs beyond the event that it is about.

use minicbor::{Decode, Encode};

use super::ExitCode;
use crate::time::Time;

/// What mail about a job needs beyond the event that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MailWish {
    /// `--mail-type` as given.
    #[n(0)]
    pub types: String,
    /// `--mail-user` as given; by default the job's user.
    #[n(1)]
    pub user: String,
    /// When the job was submitted.
    #[n(2)]
    pub submit: Time,
    /// When the last attempt started. None: there was none.
    #[n(3)]
    pub start: Option<Time>,
    /// When the time limit ends the job. None: it does not run, or has no limit.
    #[n(4)]
    pub limit: Option<Time>,
    /// The array of which the job is a task. None: it is no task of an array.
    #[n(5)]
    pub array: Option<ArrayProgress>,
}

/// How far an array is, at an event of one of its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ArrayProgress {
    /// Whether no other task has started before.
    #[n(0)]
    pub begun: bool,
    /// Whether all tasks have ended.
    #[n(1)]
    pub ended: bool,
    /// Whether tasks have completed with exit code 0.
    #[n(2)]
    pub some_fine: bool,
    /// The highest exit code of tasks that ended in another way. None: there are none.
    #[n(3)]
    pub worst: Option<ExitCode>,
}

impl MailWish {
    /// Returns whether mail of this type is wanted: a word of `--mail-type`, such as `END`.
    pub fn wants(&self, kind: &str) -> bool {
        const ALL: [&str; 7] = ["BEGIN", "END", "FAIL", "INVALID_DEPEND", "NODE_FAIL", "REQUEUE", "STAGE_OUT"];
        let mut words = self.types.split(',').map(str::trim);
        words.any(|word| word.eq_ignore_ascii_case(kind) || word.eq_ignore_ascii_case("ALL") && ALL.contains(&kind))
    }
}

/// Returns whether `--mail-user` names users or addresses, separated by commas, that no mail program takes for an
/// option, a file or a command.
pub fn is_recipients(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-=@".contains(c);
    let one = |name: &str| {
        let begins = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == '_');
        begins && name.len() <= 254 && name.chars().all(plain) && name.matches('@').count() <= 1
    };
    text.split(',').all(one)
}

#[cfg(test)]
mod tests {
    use super::{MailWish, is_recipients};

    #[test]
    fn cve_2013_4495_recipients_are_neither_options_nor_files_nor_commands() {
        for good in ["ann", "a.b+c@example.org", "ann,bob@x"] {
            assert!(is_recipients(good), "{good}");
        }
        for bad in ["", "-fann", "/tmp/x", "|sh", "a b", "a@b@c", "ann,", "ann\nBcc: x", "a%b", "<a@b>"] {
            assert!(!is_recipients(bad), "{bad}");
        }
    }

    #[test]
    fn all_means_the_usual_types() {
        let wish = |types: &str| MailWish { types: types.into(), ..MailWish::default() };
        assert!(wish("end, all").wants("BEGIN") && !wish("ALL").wants("TIME_LIMIT") && !wish("NONE").wants("END"));
        assert!(wish("TIME_LIMIT_90").wants("TIME_LIMIT_90") && !wish("TIME_LIMIT_90").wants("TIME_LIMIT"));
    }
}
