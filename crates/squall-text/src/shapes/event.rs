//! JSON of an event of the feed: of `squall events --json`, one object a line, and of event streams.

use serde_json::{Value, json};
use squall_model::wire::feed::{FeedEvent, FeedJob};

use crate::format::words;
use crate::shapes::exit;

/// Returns the JSON of an event. Keys that do not apply are null.
pub fn event(event: &FeedEvent) -> Value {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    json!({
        "position": event.at.to_string(),
        "time": event.time.secs(),
        "kind": event.kind.name(),
        "job": event.job.as_ref().map(job),
        "step": event.step.map(|step| step.to_string()),
        "nodes": some(&event.nodes),
        "name": some(&event.name),
        "reason": event.reason,
        "by": event.by,
    })
}

fn job(job: &FeedJob) -> Value {
    json!({
        "job_id": job.id.0,
        "label": job.label(),
        "array_job_id": job.task.map(|task| task.array.0),
        "array_task_id": job.task.map(|task| task.index),
        "array_task_string": job.tasks,
        "user_id": job.uid,
        "user_name": &*job.user,
        "name": &*job.name,
        "partition": &*job.partition,
        "account": &*job.account,
        "qos": &*job.qos,
        "state": words::state_list(job.state),
        "exit_code": job.exit.map(exit),
    })
}

#[cfg(test)]
mod tests {
    use squall_model::job::JobState;
    use squall_model::wire::feed::FeedKind;

    use crate::format::event::tests::event;

    #[test]
    fn an_event_is_one_object() {
        let shown = super::event(&event(FeedKind::JobStarted, Some(JobState::Running)));
        assert_eq!((&shown["position"], &shown["kind"]), (&"118.2".into(), &"job-started".into()));
        assert_eq!((&shown["job"]["label"], &shown["job"]["state"][0]), (&"17".into(), &"RUNNING".into()));
        assert!(shown["reason"].is_null() && shown["job"]["exit_code"].is_null());
        assert!(!shown.to_string().contains('\n'));
    }
}
