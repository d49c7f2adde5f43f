//! What a mail about a job says: a subject in Slurm's words. A text is added for what has failed (`account.rs`).

use squall_model::duration::format_elapsed;
use squall_model::job::mail::{ArrayProgress, MailWish};
use squall_model::job::{EndState, ExitCode, JobState};
use squall_model::time::Time;
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind};
use squall_text::format::words;

/// Most letters of a job's name in a subject.
const NAME_LETTERS: usize = 24;

/// A mail to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    /// Users or addresses, separated by commas.
    pub(super) to: String,
    /// The subject, in one line.
    pub(super) subject: String,
    /// Variables for the mail program.
    pub(super) env: Vec<(&'static str, String)>,
    /// The text; mostly empty.
    pub(super) text: String,
    /// Whether it tells that a job has failed, or that an array has.
    pub(super) failure: Option<Failed>,
}

/// What has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Job,
    Array,
}

/// Returns the mails that an event asks for, at most two.
pub(super) fn letters(event: &FeedEvent, cluster: &str) -> Vec<Letter> {
    let Some((job, wish)) = event.job.as_ref().and_then(|job| Some((job, job.mail.as_deref()?))) else {
        return Vec::new();
    };
    let about = About { job, wish, time: event.time, cluster };
    match event.kind {
        FeedKind::JobStarted => about.started().into_iter().collect(),
        FeedKind::JobEnded => about.ended(event.reason.as_deref()),
        FeedKind::JobNodeSilent if wish.wants("NODE_FAIL") => {
            vec![about.letter(
                &format!("Waits for {}, which does not answer", event.nodes),
                ", Run time",
                wish.start,
                "",
            )]
        }
        FeedKind::JobRequeued if wish.wants("REQUEUE") => vec![about.letter("Requeued", ", Run time", wish.start, "")],
        _ => Vec::new(),
    }
}

/// Returns the mail that tells that a job has used a part of its time limit, such as `Reached 90% of time limit`.
pub(super) fn reminder(job: &FeedJob, wish: &MailWish, part: u64, now: Time, cluster: &str) -> Letter {
    let what = format!("Reached {part}% of time limit");
    About { job, wish, time: now, cluster }.letter(&what, ", Run time", wish.start, "")
}

/// A job at an event.
struct About<'a> {
    job: &'a FeedJob,
    wish: &'a MailWish,
    time: Time,
    cluster: &'a str,
}

impl About<'_> {
    /// Returns how far the job's array is, if mail is about the array as a whole.
    fn array(&self) -> Option<&ArrayProgress> {
        self.wish.array.as_ref().filter(|_| !self.wish.wants("ARRAY_TASKS"))
    }

    fn started(&self) -> Option<Letter> {
        let first = self.array().is_none_or(|array| array.begun);
        (self.wish.wants("BEGIN") && first).then(|| self.letter("Began", ", Queued time", Some(self.wish.submit), ""))
    }

    fn ended(&self, reason: Option<&str>) -> Vec<Letter> {
        let mut all = Vec::new();
        let JobState::Ended(state) = self.job.state else { return all };
        if state == EndState::Timeout && self.wish.wants("TIME_LIMIT") {
            all.push(self.letter("Reached time limit", ", Run time", self.wish.start, ""));
        }
        if reason == Some("DependencyNeverSatisfied") && self.wish.wants("INVALID_DEPEND") {
            all.push(self.letter("Invalid dependency", ", Queued time", Some(self.wish.submit), ""));
            return all;
        }
        if self.array().is_some_and(|array| !array.ended) {
            return all;
        }
        let failed = match self.array() {
            Some(array) => array.worst.is_some(),
            None => !matches!(state, EndState::Completed | EndState::Cancelled { .. }),
        };
        let fails = self.wish.wants("FAIL") || state == EndState::NodeFail && self.wish.wants("NODE_FAIL");
        let what = if failed && fails { Some("Failed") } else { Some("Ended").filter(|_| self.wish.wants("END")) };
        let result = match self.array() {
            Some(array) => of_array(array),
            None => format!(", {}, {}", words::end(state).0, exit(self.job.exit.unwrap_or_default())),
        };
        let since = self.wish.start.filter(|_| self.array().is_none());
        all.extend(what.map(|what| self.letter(what, ", Run time", since, &result)));
        all
    }

    /// Returns a mail: what happened, the time since `since` (None: left out), and how it ended.
    fn letter(&self, what: &str, label: &str, since: Option<Time>, result: &str) -> Letter {
        let job = self.job;
        let id = match (job.task, self.array()) {
            (Some(task), Some(_)) => format!("Array Summary Job_id={}_* ({})", task.array, task.array),
            (None, Some(_)) => format!("Array Summary Job_id={}_* ({})", job.id, job.id),
            (Some(task), None) => format!("Array Task Job_id={}_{} ({})", task.array, task.index, job.id),
            (None, None) => format!("Job_id={}", job.id),
        };
        let name: String = job.name.chars().take(NAME_LETTERS).map(|c| if c.is_control() { '?' } else { c }).collect();
        let passed = |since: Time| format!("{label} {}", format_elapsed(self.time.since(since).0 / 1_000_000));
        let subject = format!("Slurm {id} Name={name} {what}{}{result}", since.map(passed).unwrap_or_default());
        let env = vec![
            ("SLURM_CLUSTER_NAME", self.cluster.to_owned()),
            ("SLURM_JOB_ID", job.id.to_string()),
            ("SLURM_JOB_NAME", name),
            ("SLURM_JOB_USER", job.user.to_string()),
            ("SLURM_JOB_MAIL_TYPE", what.to_owned()),
        ];
        let failed = matches!(what, "Failed" | "Reached time limit");
        let failure = failed.then(|| if self.array().is_some() { Failed::Array } else { Failed::Job });
        Letter { to: self.wish.user.clone(), subject, env, text: String::new(), failure }
    }
}

/// Returns how a job ended: `ExitCode 1`, or `Signal 9`.
fn exit(exit: ExitCode) -> String {
    if exit.signal > 0 { format!("Signal {}", exit.signal) } else { format!("ExitCode {}", exit.code) }
}

/// Returns how the tasks of an array ended: `, Mixed, ExitCode [0-1]`.
fn of_array(array: &ArrayProgress) -> String {
    let code = |exit: ExitCode| exit.code;
    match array.worst {
        None => ", COMPLETED, ExitCode [0-0]".to_owned(),
        Some(worst) if array.some_fine => format!(", Mixed, ExitCode [0-{}]", code(worst)),
        Some(worst) => format!(", FAILED, ExitCode [{0}-{0}]", code(worst)),
    }
}

#[cfg(test)]
mod tests {
    use squall_model::id::JobId;
    use squall_model::job::ArrayTask;
    use squall_model::job::mail::{ArrayProgress, MailWish};
    use squall_model::job::{EndState, ExitCode, JobState};
    use squall_model::time::Time;
    use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind, Position};

    use super::letters;

    fn event(kind: FeedKind, state: JobState, wish: MailWish) -> FeedEvent {
        let exit = ExitCode { code: u8::from(state == JobState::Ended(EndState::Failed)), signal: 0 };
        let job = FeedJob {
            id: JobId(12),
            task: wish.array.as_ref().map(|_| ArrayTask { array: JobId(10), index: 2 }),
            tasks: None,
            uid: 1000,
            user: "ann".into(),
            name: "a\nBcc: x".into(),
            partition: "main".into(),
            account: "physics".into(),
            qos: "normal".into(),
            state,
            exit: Some(exit),
            mail: Some(Box::new(wish)),
        };
        let (at, time) = (Position::default(), Time::from_secs(1_000));
        FeedEvent {
            at,
            time,
            kind,
            job: Some(job),
            step: None,
            nodes: String::new(),
            name: String::new(),
            reason: None,
            by: None,
        }
    }

    fn subjects(kind: FeedKind, state: JobState, types: &str, array: Option<ArrayProgress>) -> Vec<String> {
        let (submit, start) = (Time::from_secs(900), Some(Time::from_secs(939)));
        let wish = MailWish { types: types.into(), user: "ann".into(), submit, start, limit: None, array };
        letters(&event(kind, state, wish), "c").into_iter().map(|letter| letter.subject).collect()
    }

    #[test]
    fn subjects_are_slurms_and_one_line() {
        let done = JobState::Ended(EndState::Completed);
        let failed = JobState::Ended(EndState::Failed);
        assert_eq!(
            subjects(FeedKind::JobEnded, done, "END", None),
            ["Slurm Job_id=12 Name=a?Bcc: x Ended, Run time 00:01:01, COMPLETED, ExitCode 0"]
        );
        assert_eq!(
            subjects(FeedKind::JobStarted, JobState::Running, "ALL", None),
            ["Slurm Job_id=12 Name=a?Bcc: x Began, Queued time 00:01:40"]
        );
        assert_eq!(
            subjects(FeedKind::JobEnded, failed, "ALL", None),
            ["Slurm Job_id=12 Name=a?Bcc: x Failed, Run time 00:01:01, FAILED, ExitCode 1"]
        );
        assert!(subjects(FeedKind::JobEnded, done, "FAIL,BEGIN", None).is_empty());
        let out_of_time = subjects(FeedKind::JobEnded, JobState::Ended(EndState::Timeout), "TIME_LIMIT", None);
        assert_eq!(out_of_time, ["Slurm Job_id=12 Name=a?Bcc: x Reached time limit, Run time 00:01:01"]);
    }

    #[test]
    fn a_node_that_is_silent_or_lost_is_told_of() {
        let silent = subjects(FeedKind::JobNodeSilent, JobState::Running, "NODE_FAIL", None);
        assert_eq!(silent, ["Slurm Job_id=12 Name=a?Bcc: x Waits for , which does not answer, Run time 00:01:01"]);
        assert_eq!(subjects(FeedKind::JobNodeSilent, JobState::Running, "ALL", None), silent);
        assert!(subjects(FeedKind::JobNodeSilent, JobState::Running, "END,FAIL", None).is_empty());
        let lost = subjects(FeedKind::JobEnded, JobState::Ended(EndState::NodeFail), "NODE_FAIL", None);
        assert_eq!(lost, ["Slurm Job_id=12 Name=a?Bcc: x Failed, Run time 00:01:01, NODE_FAIL, ExitCode 0"]);
        assert!(subjects(FeedKind::JobEnded, JobState::Ended(EndState::Failed), "NODE_FAIL", None).is_empty());
    }

    #[test]
    fn an_array_has_one_mail_unless_its_tasks_are_wanted() {
        let failed = JobState::Ended(EndState::Failed);
        let array = |ended, some_fine| ArrayProgress {
            begun: false,
            ended,
            some_fine,
            worst: Some(ExitCode { code: 3, signal: 0 }),
        };
        assert!(subjects(FeedKind::JobStarted, JobState::Running, "ALL", Some(array(false, true))).is_empty());
        assert!(subjects(FeedKind::JobEnded, failed, "ALL", Some(array(false, true))).is_empty());
        assert_eq!(
            subjects(FeedKind::JobEnded, failed, "END", Some(array(true, true))),
            ["Slurm Array Summary Job_id=10_* (10) Name=a?Bcc: x Ended, Mixed, ExitCode [0-3]"]
        );
        assert_eq!(
            subjects(FeedKind::JobEnded, failed, "END,ARRAY_TASKS", Some(array(false, true))),
            ["Slurm Array Task Job_id=10_2 (12) Name=a?Bcc: x Ended, Run time 00:01:01, FAILED, ExitCode 1"]
        );
    }
}
