//! What running jobs in a list use lately. Only jobs on a page that somebody looks at are asked about, and each seldom.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_model::id::{JobId, StepNo};
use squall_model::job::JobState;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::JobInfo;
use squall_text::report::lately::{EVERY_S, Lately, STEPS_MAX};

use crate::caller::Identity;
use crate::routes::ServerHandle;

/// Most jobs of which it is remembered; then all are forgotten.
const JOBS_MAX: usize = 4096;
/// Tasks that ask at the same time.
const ASKING: usize = 4;
/// How long a page waits for answers. Later ones are for the next page.
const PATIENCE: Duration = Duration::from_millis(700);

/// What jobs use lately, by id.
pub(crate) type ByJob = HashMap<JobId, Lately>;

/// What a job uses, and when the question was asked. None: nothing is known.
type Told = (Instant, Option<Lately>);

/// What nodes have told of jobs in lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedLately(Arc<Mutex<HashMap<JobId, Told>>>);

/// Returns the running steps of a job that is to be asked about.
fn steps(job: &JobInfo) -> Option<Vec<StepNo>> {
    let steps: Vec<StepNo> =
        job.run().steps.iter().filter(|step| step.end.is_none()).map(|step| step.step).take(STEPS_MAX + 1).collect();
    (job.state == JobState::Running && (1..=STEPS_MAX).contains(&steps.len())).then_some(steps)
}

impl UsedLately {
    /// Returns what these jobs use, of which the viewer must be owner or an operator.
    pub(crate) async fn of(
        &self,
        server: &ServerHandle,
        who: &Identity,
        jobs: impl Iterator<Item = &JobInfo>,
    ) -> ByJob {
        let ids: Vec<&JobInfo> = jobs.collect();
        let mut parts: [Vec<(JobId, Vec<StepNo>)>; ASKING] = <_>::default();
        for (at, due) in self.due(&ids, Instant::now()).into_iter().enumerate() {
            parts[at % ASKING].push(due);
        }
        let asking: Vec<_> = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| tokio::spawn(ask(self.clone(), Arc::clone(server), who.clone(), part)))
            .collect();
        let all = async {
            for part in asking {
                let _ = part.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, all).await;
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().filter_map(|job| Some((job.id, known.get(&job.id)?.1?))).collect()
    }

    /// Returns the jobs that were not asked about for a while, which is noted as done.
    fn due(&self, jobs: &[&JobInfo], now: Instant) -> Vec<(JobId, Vec<StepNo>)> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= JOBS_MAX {
            known.clear();
        }
        let mut due = Vec::new();
        for job in jobs {
            let Some(steps) = steps(job) else { continue };
            let told = known.get(&job.id);
            if told.is_some_and(|(at, _)| now.duration_since(*at) < Duration::from_secs(EVERY_S)) {
                continue;
            }
            let before = told.and_then(|(_, lately)| *lately);
            known.insert(job.id, (now, before));
            due.push((job.id, steps));
        }
        due
    }
}

/// Asks the nodes of some jobs, one after the other.
async fn ask(known: UsedLately, server: ServerHandle, who: Identity, jobs: Vec<(JobId, Vec<StepNo>)>) {
    for (id, steps) in jobs {
        let mut all = Vec::new();
        for step in steps {
            let asked = server.cluster.ask(&who, Request::Measure { job: id, step, lately: true }).await;
            if let Ok(Answer::Measured(_, _, series)) = asked {
                all.push(series);
            }
        }
        let lately = Lately::of(all.iter().map(Option::as_deref));
        if let Some(told) = known.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&id) {
            told.1 = lately;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use squall_model::job::{EndState, JobState};
    use squall_model::wire::info::JobInfo;

    use super::UsedLately;
    use crate::web::row;
    use crate::web::tests::fixture::cluster;

    #[test]
    fn a_job_is_asked_about_once_a_minute_and_only_while_it_runs() {
        let seen = cluster(9, 3, false);
        let running = row::find(&seen.jobs, "3").expect("it is there").clone();
        let ended = JobInfo { state: JobState::Ended(EndState::Completed), ..running.clone() };
        let (known, now) = (UsedLately::default(), Instant::now());
        assert!(known.due(&[&ended], now).is_empty());
        assert_eq!(known.due(&[&running, &running], now).len(), 1);
        assert!(known.due(&[&running], now + Duration::from_secs(59)).is_empty());
        assert_eq!(known.due(&[&running], now + Duration::from_secs(61)).len(), 1);
    }
}
