//! What of the viewer's runs, waits and has failed lately: the strip on top of the overview.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_model::duration::format_short;
use squall_model::job::JobState;
use squall_model::time::Span;
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::info::{ExpectedStart, JobInfo, JobsPage};
use squall_text::format::job::JobRow;
use squall_text::format::words;
use squall_text::report::many::{self, EndedGroup};
use squall_text::report::record::Record;

use crate::caller::Identity;
use crate::routes::Server;
use crate::web::chart;
use crate::web::frame::View;
use crate::web::html::{Html, card, encoded, link};
use crate::web::past::FAILED;
use crate::web::record;
use crate::web::row::{self, Rows, count};

/// Lines of each kind.
const LINES: usize = 3;
/// Most failed jobs that are counted.
const FAILED_MAX: usize = 1000;
/// For how long what accounting has told of a user is good.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// Most users of whom it is remembered; then all are forgotten.
const USERS_MAX: usize = 4096;

/// What of a user has failed lately, and when accounting told it.
type Told = (Instant, Arc<Vec<EndedGroup>>);

/// What of users has failed lately, as accounting told, by uid.
#[derive(Debug, Default)]
pub(crate) struct FailedLately(Mutex<HashMap<u32, Told>>);

impl FailedLately {
    /// Returns what of the viewer has failed since the beginning of yesterday, the last one first.
    pub(crate) async fn of(&self, server: &Server, who: &Identity, view: &View) -> Arc<Vec<EndedGroup>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, groups)) = known().get(&view.uid)
            && at.elapsed() < GOOD_FOR
        {
            return Arc::clone(groups);
        }
        let today = view.clock.midnight().unwrap_or(view.clock.now);
        let query = AccountingQuery {
            users: vec![view.uid],
            states: FAILED.to_vec(),
            start: Some(today - Span::from_secs(86_400)),
            end: Some(view.clock.now),
            allocations_only: true,
            ..AccountingQuery::default()
        };
        // The page is of use also without it.
        let found = server.cluster.accounting_up_to(who, query, FAILED_MAX, Some).await;
        let records = record::all(view, found.map(|(rows, _)| rows).unwrap_or_default());
        let groups = Arc::new(many::ended(&records.iter().map(Record::report).collect::<Vec<_>>()));
        let mut known = known();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(view.uid, (Instant::now(), Arc::clone(&groups)));
        groups
    }
}

/// Appends the strip.
pub(crate) fn strip(body: &mut Html, view: &View, jobs: &JobsPage, starts: &[ExpectedStart], failed: &[EndedGroup]) {
    let own = |job: &&JobInfo| jobs.owners.get(job.owner as usize).is_some_and(|owner| owner.uid == view.uid);
    let of = |state: &dyn Fn(JobState) -> bool| -> Vec<&JobInfo> {
        jobs.jobs.iter().filter(|job| state(job.state)).filter(own).collect()
    };
    let mut running = of(&|state| !matches!(state, JobState::Pending | JobState::Ended(_)));
    let mut waiting = of(&|state| state == JobState::Pending);
    card(body, "yours", "Yours");
    if running.is_empty() && waiting.is_empty() && failed.is_empty() {
        body.raw(
            "<p>No job of yours runs or waits, and none has failed since yesterday. \
             <code>sbatch script.sh</code> submits one. <a href=\"/past\">Your past jobs</a></p></section>",
        );
        return;
    }
    let starts: HashMap<_, _> = starts.iter().map(|start| (start.id, start.time)).collect();
    let expected = |job: &JobInfo| starts.get(&job.id).copied().or(job.start);
    running.sort_by_key(|job| std::cmp::Reverse(job.start));
    waiting.sort_by_key(|job| (expected(job).is_none(), expected(job), std::cmp::Reverse(job.priority)));
    let rows = Rows::new(view, jobs);
    let list = |state| link("/jobs", &[("state", state), ("user", &view.user)]);
    body.raw("<div class=\"yours\">");
    begin(body, &list("running"), (running.iter().map(|job| count(job)).sum(), "running"));
    for job in running.iter().take(LINES).filter_map(|job| rows.of(job)) {
        name(body, &job);
        let used = format!("{} of {}", format_short(job.time_used()), job.time_limit());
        body.put(" <span class=\"dim\">{}</span>", &[&used]);
        if let Some(limit) = job.info.time_limit_s {
            chart::meter(body, &used, limit, &[("used", job.time_used())]);
        }
        body.raw("</li>");
    }
    body.raw("</ul></div>");
    begin(body, &list("pending"), (waiting.iter().map(|job| count(job)).sum(), "waiting"));
    for job in waiting.iter().take(LINES).filter_map(|job| rows.of(job)) {
        name(body, &job);
        body.raw(" <span class=\"dim\">");
        match expected(&job.info) {
            Some(at) => {
                body.raw("starts ");
                view.time(body, Some(at.max(view.clock.now)), "");
            }
            None => {
                body.put("{}", &[&words::pending_reason(&job.info.reason)]);
            }
        }
        body.raw("</span></li>");
    }
    body.raw("</ul></div>");
    let all = failed.iter().map(|group| group.count as u64).sum();
    begin(body, &link("/past", &[("state", "bad")]), (all, "failed since yesterday"));
    for group in failed.iter().take(LINES) {
        body.put(
            "<li><a href=\"/job/{}\">{}</a> <bdi>{}</bdi> <span class=\"dim\">{}</span></li>",
            &[&encoded(&group.page), &group.id, &group.name, &group.cause],
        );
    }
    body.raw("</ul></div></div></section>");
}

fn begin(body: &mut Html, path: &str, (number, what): (u64, &'static str)) {
    body.put("<div><h3><a href=\"{}\">{} {}</a></h3><ul>", &[&path, &number, &what]);
}

fn name(body: &mut Html, job: &JobRow) {
    body.put("<li><a href=\"{}\">{}</a> <bdi>{}</bdi>", &[&row::path(job), &job.array_id(), &job.spec.name]);
}
