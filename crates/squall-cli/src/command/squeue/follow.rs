//! `squeue --follow`: the queue, then the line of each job whenever the job changes.

use std::collections::BTreeSet;

use squall_client::FeedSelection;
use squall_model::id::JobId;
use squall_model::set::IndexSet;
use squall_model::wire::client::{JobRef, JobSelection};
use squall_model::wire::feed::{FeedJob, FeedKind};

use super::{Plan, list};
use crate::command::listing::call::{Call, Fail};
use squall_text::options::flag::Arguments;

/// Options that `--follow` excludes.
const EXCLUDED: [&str; 6] = ["iterate", "json", "only-job-state", "start", "steps", "yaml"];

/// Prints the queue, then changed jobs, until the output is closed or the controller is away for long.
pub(super) fn follow(call: &mut Call<'_>, given: &Arguments, mut plan: Plan) -> Result<(), Fail> {
    if let Some(other) = EXCLUDED.iter().find(|other| given.has(other)) {
        return call.fail(&format!("--follow is incompatible with --{other}"));
    }
    // A job that leaves the wanted states is printed no more, so states are looked at when it is listed.
    let jobs = JobSelection { states: Vec::new(), ..plan.selection.clone() };
    let kinds = FeedKind::ALL.iter().copied().filter(|kind| kind.name().starts_with("job-")).collect();
    if let Err(error) = call.controller.follow(FeedSelection { from: None, jobs, kinds }) {
        return call.failed(super::WHAT, &error);
    }
    let (whole, ended, header) = (plan.selection.clone(), plan.ended, plan.header);
    let mut is_first = true;
    while !call.closed {
        let page = match call.controller.next_events() {
            Ok(page) => page,
            Err(error) => return call.failed(super::WHAT, &error),
        };
        if page.missed {
            call.say("squeue: some changes were missed; the whole queue again:");
        }
        if page.missed || std::mem::take(&mut is_first) {
            plan = Plan { selection: whole.clone(), ended, header, changes: false, ..plan };
            list(call, given, &plan, None, false)?;
        }
        let changed: BTreeSet<_> = page.events.iter().filter_map(|event| event.job.as_ref().map(key)).collect();
        if !changed.is_empty() {
            let selection = JobSelection { ids: changed.into_iter().map(named).collect(), ..whole.clone() };
            plan = Plan { selection, ended: true, header: false, changes: true, ..plan };
            list(call, given, &plan, None, false)?;
        }
    }
    Ok(())
}

/// Returns the id of a job, or the id of an array and the index of a task.
fn key(job: &FeedJob) -> (JobId, Option<u32>) {
    job.task.map_or((job.id, None), |task| (task.array, Some(task.index)))
}

fn named((id, index): (JobId, Option<u32>)) -> JobRef {
    index.map_or(JobRef::Job(id), |index| JobRef::Tasks(id, IndexSet::range(index, index)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::id::JobId;
    use squall_model::job::{ArrayTask, JobState};
    use squall_model::set::IndexSet;
    use squall_model::time::Time;
    use squall_model::wire::client::{JobRef, Request};
    use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind, FeedPage, Position};

    use crate::command::listing::fake::{fake, run, run_with};
    use crate::command::squeue::squeue;

    fn changed(id: u32, task: Option<u32>) -> Arc<FeedEvent> {
        let job = FeedJob {
            id: JobId(id),
            task: task.map(|index| ArrayTask { array: JobId(id), index }),
            tasks: None,
            uid: 1000,
            user: "ann".into(),
            name: "job".into(),
            partition: "debug".into(),
            account: "".into(),
            qos: "".into(),
            state: JobState::Running,
            exit: None,
            mail: None,
        };
        Arc::new(FeedEvent {
            at: Position::default(),
            time: Time(0),
            kind: FeedKind::JobStarted,
            job: Some(job),
            step: None,
            nodes: String::new(),
            name: String::new(),
            reason: None,
            by: None,
        })
    }

    #[test]
    fn the_queue_is_printed_then_each_change() {
        let mut fake = fake();
        let first = fake.page.jobs[0].id.0;
        let page = |events, missed| FeedPage { events, missed, ..FeedPage::default() };
        fake.feed = vec![
            page(Vec::new(), false),
            page(vec![changed(first, None), changed(4711, Some(3))], false),
            page(Vec::new(), true),
        ];
        let seen = run_with(&mut fake, "squeue", squeue, &["--follow", "-o", "%i", "-p", "debug"], &[]);
        // The fake controller is gone after the last page.
        assert_eq!(seen.code, 1);
        assert!(seen.err.starts_with("squeue: some changes were missed; the whole queue again:\n"), "{}", seen.err);
        let whole: Vec<&str> = seen.out.lines().collect();
        let rows = whole.iter().skip(1).position(|line| *line == "JOBID").expect("the queue is printed again");
        assert_eq!(whole[0], "JOBID");
        assert_eq!(whole[rows], first.to_string());
        assert_eq!(whole[..rows], whole[rows + 1..]);
        let Some(Request::Jobs { jobs, ended: true, .. }) = fake.asked.get(1) else { panic!("{:?}", fake.asked) };
        let task = JobRef::Tasks(JobId(4711), IndexSet::range(3, 3));
        assert_eq!(jobs.ids, [JobRef::Job(JobId(first)), task]);
        assert_eq!((jobs.partitions.as_slice(), fake.follows[0].jobs.partitions.len()), (&["debug".to_owned()][..], 1));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for other in ["--json", "--iterate=2", "--start", "--steps"] {
            let seen = run("squeue", squeue, &["--follow", other]);
            let option = other.split('=').next().unwrap_or_default();
            assert_eq!((seen.err, seen.code), (format!("squeue: error: --follow is incompatible with {option}\n"), 1));
        }
    }
}
