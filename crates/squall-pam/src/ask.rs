//! Asks the node daemon whether a user has a job here, and to adopt this process.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::options::{Options, Several, Verdict};

/// Longest wait for the node daemon.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read, bytes.
const ANSWER_MAX: u64 = 512;

/// What the node daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This process is a part of this job now.
    Adopted(String),
    /// The user has no job on the node.
    None,
    /// The user has several jobs on the node, and none was to be chosen.
    Several,
    /// The process could not become a part of the job, for this reason.
    Failed(String),
}

/// Asks for a user. Err: the node daemon can't be asked, or does not answer.
pub(crate) fn ask(socket: &Path, uid: u32, several: Several) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let which = if several == Several::Newest { "newest" } else { "only" };
    stream.write_all(format!("adopt {uid} {which}\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    understand(answer.trim_end()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn understand(answer: &str) -> Option<Answer> {
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    match word {
        "adopted" => Some(Answer::Adopted(rest.to_owned())),
        "none" => Some(Answer::None),
        "several" => Some(Answer::Several),
        "failed" => Some(Answer::Failed(rest.to_owned())),
        _ => None,
    }
}

/// Returns what an answer means, a line for the log, and a line for the user who is refused.
pub(crate) fn judge(options: &Options, user: &str, answer: io::Result<Answer>) -> (Verdict, String, Option<String>) {
    let denied = |why: &str| Some(format!("Access denied by pam_squall: {why}"));
    let (verdict, log, why) = match answer {
        Ok(Answer::Adopted(job)) => (Verdict::Allow, format!("{user} is in job {job} now"), ""),
        Ok(Answer::None) => {
            (options.no_jobs, format!("{user} has no job on this node"), "you have no active jobs on this node")
        }
        Ok(Answer::Several) => {
            let verdict = match options.several {
                Several::None(verdict) => verdict,
                // Not asked for; the daemon is of another release.
                Several::Newest => options.generic_failure,
            };
            (verdict, format!("{user} has several jobs on this node"), "you have several jobs on this node")
        }
        Ok(Answer::Failed(why)) => {
            let log = format!("{user} can't be made a part of their job: {why}");
            (options.adopt_failure, log, "this login can't be made a part of your job")
        }
        Err(e) => {
            let log = format!("the node daemon can't be asked about {user}: {e}");
            (options.generic_failure, log, "the node's daemon does not answer")
        }
    };
    (verdict, log, denied(why).filter(|_| verdict == Verdict::Deny))
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::{Answer, ask, judge, understand};
    use crate::options::{Options, Several, Verdict};

    #[test]
    fn a_question_is_a_line_and_so_is_the_answer() {
        let socket = std::env::temp_dir().join(format!("squall-pam-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let questions = ["adopted 12\n", "", "failed no room\n"].map(|answer| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = String::new();
                BufReader::new(&stream).read_line(&mut question).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                question
            });
            questions.concat()
        });
        let answers =
            [Several::Newest, Several::None(Verdict::Deny), Several::Newest].map(|several| ask(&socket, 7, several));
        assert_eq!(daemon.join().unwrap(), "adopt 7 newest\nadopt 7 only\nadopt 7 newest\n");
        let [first, second, third] = answers.map(Result::ok);
        assert_eq!(first, Some(Answer::Adopted("12".into())));
        assert_eq!((second, third), (None, Some(Answer::Failed("no room".into()))));
        std::fs::remove_file(&socket).unwrap();
        assert!(ask(&socket, 7, Several::Newest).is_err());
    }

    #[test]
    fn answers_become_verdicts() {
        let options = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let (options, complaints) = Options::read(&words);
            assert!(complaints.is_empty());
            options
        };
        let usual = options(&[]);
        let strict = options(&["action_unknown=deny", "action_adopt_failure=deny", "action_generic_failure=deny"]);
        assert_eq!(strict.several, Several::None(Verdict::Deny));
        let of = |options: &Options, answer: &str| judge(options, "ann", Ok(understand(answer).unwrap())).0;
        for (answer, first, second) in [
            ("adopted 12", Verdict::Allow, Verdict::Allow),
            ("none", Verdict::Deny, Verdict::Deny),
            ("several", Verdict::Ignore, Verdict::Deny),
            ("failed no room", Verdict::Allow, Verdict::Deny),
        ] {
            assert_eq!((of(&usual, answer), of(&strict, answer)), (first, second), "{answer}");
        }
        let refused = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(
            (judge(&usual, "ann", refused()).0, judge(&strict, "ann", refused()).0),
            (Verdict::Ignore, Verdict::Deny)
        );
        let (_, log, user) = judge(&usual, "ann", Ok(Answer::None));
        assert_eq!(log, "ann has no job on this node");
        assert_eq!(user.as_deref(), Some("Access denied by pam_squall: you have no active jobs on this node"));
        assert_eq!(judge(&usual, "ann", Ok(Answer::Adopted("12".into()))).2, None);
        assert_eq!(understand("what"), None);
    }
}
