//! Events of the feed as sentences.

use std::fmt::Write;

use squall_model::job::JobState;
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind};

use crate::format::{harmless, words};

/// Returns an event as a sentence, such as `job 17 (train of ann) started on n[1-2]`. `by`: name of the operator who
/// caused it. None: none did.
pub fn sentence(event: &FeedEvent, by: Option<&str>) -> String {
    let mut text = match &event.job {
        Some(job) => of_job(event, job),
        None => of_cluster(event),
    };
    if let Some(reason) = event.reason.as_deref().filter(|reason| !reason.is_empty()) {
        let _ = write!(text, ": {reason}");
    }
    if let Some(by) = by {
        let _ = write!(text, " (by {by})");
    }
    // Names and reasons are texts of users.
    harmless(&text).into_owned()
}

fn of_job(event: &FeedEvent, job: &FeedJob) -> String {
    let label = job.label();
    let mut text = match event.step {
        Some(step) => format!("step {label}.{step} ({} of {})", job.name, job.user),
        None => format!("job {label} ({} of {})", job.name, job.user),
    };
    text.push_str(match event.kind {
        FeedKind::JobSubmitted => " submitted",
        FeedKind::JobStarted | FeedKind::StepStarted => " started",
        FeedKind::JobEnding => " is ending",
        FeedKind::JobEnded | FeedKind::StepEnded => " ended",
        FeedKind::JobRequeued => " is pending again",
        FeedKind::JobHeld => " held",
        FeedKind::JobReleased => " released",
        FeedKind::JobSuspended => " suspended",
        FeedKind::JobResumed => " resumed",
        FeedKind::JobPreempted => " preempted",
        FeedKind::JobNodeSilent => " waits for a node",
        FeedKind::JobNodeLost => " has lost a node",
        _ => " changed",
    });
    if event.kind == FeedKind::JobSubmitted {
        let _ = write!(text, " to {}", job.partition);
    } else if !event.nodes.is_empty() {
        let _ = write!(text, " on {}", event.nodes);
    }
    let state = match job.state {
        JobState::Completing(end) | JobState::Ended(end) if event.step.is_none() => Some(words::end(end).0),
        _ => None,
    };
    let exit = job.exit.map(|exit| format!("exit code {}", words::exit_code(exit)));
    let end: Vec<&str> = state.into_iter().chain(exit.as_deref()).collect();
    if !end.is_empty() {
        let _ = write!(text, ", {}", end.join(", "));
    }
    text
}

fn of_cluster(event: &FeedEvent) -> String {
    let FeedEvent { nodes, name, .. } = event;
    match event.kind {
        FeedKind::NodeRegistered => format!("node {nodes} registered"),
        FeedKind::NodeUp => format!("node {nodes} up"),
        FeedKind::NodeDown => format!("node {nodes} down"),
        FeedKind::NodeDrained => format!("node {nodes} drained"),
        FeedKind::NodeResumed => format!("node {nodes} resumed"),
        FeedKind::NodeChanged => format!("node {nodes} changed"),
        FeedKind::PartitionChanged => format!("partition {name} changed"),
        FeedKind::PartitionDeleted => format!("partition {name} deleted"),
        FeedKind::ReservationChanged => format!("reservation {name} changed"),
        FeedKind::ReservationEnded => format!("reservation {name} ended"),
        FeedKind::AccountsChanged => "accounts changed".to_owned(),
        FeedKind::Configured => "configuration changed".to_owned(),
        FeedKind::ControllerStarted => format!("controller started, version {name}"),
        other => other.name().replace('-', " "),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{FeedEvent, FeedJob, FeedKind, JobState, sentence};
    use squall_model::id::{JobId, StepNo};
    use squall_model::job::{EndState, ExitCode};
    use squall_model::time::Time;
    use squall_model::wire::feed::Position;

    pub(crate) fn event(kind: FeedKind, state: Option<JobState>) -> FeedEvent {
        let job = |state| FeedJob {
            id: JobId(17),
            task: None,
            tasks: None,
            uid: 1000,
            user: "ann".into(),
            name: "train".into(),
            partition: "main".into(),
            account: "physics".into(),
            qos: "normal".into(),
            state,
            exit: None,
            mail: None,
        };
        FeedEvent {
            at: Position { record: 118, index: 2 },
            time: Time::from_secs(1_795_248_000),
            kind,
            job: state.map(job),
            step: None,
            nodes: "n[1-2]".into(),
            name: "night".into(),
            reason: None,
            by: None,
        }
    }

    #[test]
    fn events_are_sentences() {
        let submitted = event(FeedKind::JobSubmitted, Some(JobState::Pending));
        assert_eq!(sentence(&submitted, None), "job 17 (train of ann) submitted to main");
        let mut ended = event(FeedKind::JobEnded, Some(JobState::Ended(EndState::Failed)));
        if let Some(job) = &mut ended.job {
            (job.exit, job.tasks) = (Some(ExitCode { code: 3, signal: 0 }), Some("0-9".into()));
        }
        assert_eq!(sentence(&ended, None), "job 17_[0-9] (train of ann) ended on n[1-2], FAILED, exit code 3:0");
        let mut step = event(FeedKind::StepStarted, Some(JobState::Running));
        step.step = Some(StepNo(0));
        assert_eq!(sentence(&step, None), "step 17.0 (train of ann) started on n[1-2]");
        let mut drained = event(FeedKind::NodeDrained, None);
        drained.reason = Some("bad fan".into());
        assert_eq!(sentence(&drained, Some("root")), "node n[1-2] drained: bad fan (by root)");
        assert_eq!(sentence(&event(FeedKind::ReservationEnded, None), None), "reservation night ended");
    }

    // Regression test of attack B1: a job's name made colours, titles and lines in an operator's terminal.
    #[test]
    fn b1_no_name_or_reason_controls_the_terminal() {
        let mut submitted = event(FeedKind::JobSubmitted, Some(JobState::Pending));
        submitted.job.as_mut().unwrap().name = "evil\u{1b}[31m\u{1b}]0;title\u{7}\n2nd".into();
        submitted.reason = Some("\u{9b}2J\rx".into());
        let expected = "job 17 (evil?[31m?]0;title??2nd of ann) submitted to main: ?2J?x (by r??t)";
        assert_eq!(sentence(&submitted, Some("r\n\tt".replace('\t', "\r").as_str())), expected);
        let mut changed = event(FeedKind::NodeChanged, None);
        (changed.nodes, changed.name) = ("n\u{1b}1".into(), String::new());
        assert_eq!(sentence(&changed, None), "node n?1 changed");
    }
}
