//! What a job waits for and what waits for it, as a small graph: one level after the other, a heterogeneous job with all
//! its components.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::JobId;
use squall_model::wire::info::{JobInfo, JobsPage};

use crate::web::html::{Html, card};
use crate::web::row;

/// Most levels before the job, and after it.
const LEVELS: usize = 3;
/// Most jobs of a level that are shown.
const SHOWN: usize = 8;

/// What a level shows: a job, a whole array, or a heterogeneous job, by the id under which others wait for it.
type Whole = JobId;

/// Which jobs wait for which.
#[derive(Default)]
struct Graph {
    /// What each waits for, with the word of the condition.
    before: BTreeMap<Whole, BTreeMap<Whole, &'static str>>,
    after: BTreeMap<Whole, BTreeSet<Whole>>,
}

fn whole(job: &JobInfo) -> Whole {
    job.het.map(|het| het.leader).or(job.task.map(|task| task.array)).unwrap_or(job.id)
}

impl Graph {
    fn of(jobs: &JobsPage, job: &JobInfo) -> Self {
        let mut graph = Self::default();
        for one in jobs.jobs.iter().chain([job]) {
            let spec = jobs.specs.get(one.spec as usize);
            for term in spec.and_then(|spec| spec.dependency.as_ref()).iter().flat_map(|given| &given.terms) {
                let Some(other) = term.job else { continue };
                graph.before.entry(whole(one)).or_default().insert(other.id, term.when.word());
                graph.after.entry(other.id).or_default().insert(whole(one));
            }
        }
        graph
    }

    /// Returns the levels from the first that is awaited to the last that waits, and which of them is that of `own`.
    fn levels(&self, own: Whole) -> (Vec<Vec<Whole>>, usize) {
        let mut seen = BTreeSet::from([own]);
        let mut walk = |next: &dyn Fn(&Whole) -> Vec<Whole>| {
            let (mut all, mut last) = (Vec::new(), vec![own]);
            while all.len() < LEVELS && !last.is_empty() {
                last = last.iter().flat_map(next).filter(|id| seen.insert(*id)).collect();
                all.extend(Some(last.clone()).filter(|last| !last.is_empty()));
            }
            all
        };
        let mut levels = walk(&|id| self.before.get(id).into_iter().flat_map(BTreeMap::keys).copied().collect());
        levels.reverse();
        let at = levels.len();
        levels.push(vec![own]);
        levels.extend(walk(&|id| self.after.get(id).into_iter().flatten().copied().collect()));
        (levels, at)
    }
}

/// Appends the graph of a job that waits for others, for which others wait, or that is a component of a heterogeneous one.
pub(crate) fn add(body: &mut Html, jobs: &JobsPage, job: &JobInfo) {
    let graph = Graph::of(jobs, job);
    let (levels, at) = graph.levels(whole(job));
    if levels.len() == 1 && job.het.is_none() {
        return;
    }
    let shown: BTreeSet<Whole> = levels.iter().flat_map(|level| level.iter().take(SHOWN)).copied().collect();
    let mut members: BTreeMap<Whole, Vec<&JobInfo>> = BTreeMap::new();
    for one in jobs.jobs.iter().filter(|one| shown.contains(&whole(one))) {
        members.entry(whole(one)).or_default().push(one);
    }
    // A job of which only accounting knows is in no list.
    members.entry(whole(job)).or_insert_with(|| vec![job]);
    card(body, "related", "Related jobs");
    body.raw("<div class=\"scroll\" tabindex=\"0\"><ol class=\"chain\">");
    for (nth, level) in levels.iter().enumerate() {
        let title = match nth.cmp(&at) {
            std::cmp::Ordering::Less => "Before it",
            std::cmp::Ordering::Equal => "This job",
            std::cmp::Ordering::Greater => "After it",
        };
        body.put("<li><h3>{}</h3><ul>", &[&title]);
        for id in level.iter().take(SHOWN) {
            entry(body, jobs, *id, members.get(id).map_or(&[], Vec::as_slice));
            let before = graph.before.get(id).filter(|_| nth > 0);
            for (other, word) in before.into_iter().flatten() {
                body.put("<li class=\"note\">{}:{}</li>", &[word, other]);
            }
        }
        if level.len() > SHOWN {
            body.put("<li class=\"dim\">and {} more</li>", &[&(level.len() - SHOWN)]);
        }
        body.raw("</ul></li>");
    }
    body.raw("</ol></div></section>");
}

/// Appends what stands for a job, an array, or each component of a heterogeneous job. `known`: entries of the queue.
fn entry(body: &mut Html, jobs: &JobsPage, id: Whole, known: &[&JobInfo]) {
    let name = |job: &JobInfo| jobs.specs.get(job.spec as usize).map_or("", |spec| spec.name.as_str());
    let Some(first) = known.first() else {
        // Its end is known to accounting alone.
        body.put("<li><a href=\"/job/{}\">{}</a></li>", &[&id, &id]);
        return;
    };
    if let Some(het) = first.het {
        for component in het.ids() {
            let label = format!("{}+{}", het.leader, het.offset(component));
            body.put("<li><a href=\"/job/{}\">{}</a>", &[&component, &label]);
            if let Some(job) = known.iter().find(|job| job.id == component) {
                body.put(" <bdi>{}</bdi> ", &[&name(job)]);
                row::state(body, job.state);
            }
            body.raw("</li>");
        }
        return;
    }
    body.put("<li><a href=\"/job/{}\">{}</a> <bdi>{}</bdi> ", &[&id, &id, &name(first)]);
    let tasks: u64 = known.iter().map(|job| row::count(job)).sum();
    if known.iter().all(|job| job.state == first.state) {
        row::state(body, first.state);
    }
    if tasks > 1 {
        body.put(" · {} tasks", &[&tasks]);
    }
    body.raw("</li>");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::id::JobId;
    use squall_model::job::{
        Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, Het, JobSpec, JobState,
    };
    use squall_model::wire::info::{JobInfo, JobsPage};

    use super::{Graph, add};
    use crate::web::html::Html;
    use crate::web::record::nothing;

    fn spec(name: &str, after: Option<(DependencyKind, u32)>) -> Arc<JobSpec> {
        let term = |(when, id)| {
            let job = DependencyJob { id: JobId(id), index: None, delay_min: 0 };
            Dependency { terms: vec![DependencyTerm { when, job: Some(job) }], any: false }
        };
        Arc::new(JobSpec { name: name.to_owned(), dependency: after.map(term), ..JobSpec::default() })
    }

    /// A heterogeneous job of two components, a chain of three after it, and one apart.
    fn jobs() -> JobsPage {
        let het = Some(Het { leader: JobId(5), size: 2 });
        let ended = JobState::Ended(EndState::Failed);
        JobsPage {
            specs: vec![
                spec("pair", None),
                spec("second", Some((DependencyKind::AfterAny, 5))),
                spec("third", Some((DependencyKind::AfterOk, 7))),
                spec("last", Some((DependencyKind::AfterOk, 8))),
            ],
            jobs: vec![
                JobInfo { id: JobId(5), het, state: ended, ..nothing() },
                JobInfo { id: JobId(6), het, state: ended, ..nothing() },
                JobInfo { id: JobId(7), spec: 1, ..nothing() },
                JobInfo { id: JobId(8), spec: 2, ..nothing() },
                JobInfo { id: JobId(9), spec: 3, ..nothing() },
                JobInfo { id: JobId(10), ..nothing() },
            ],
            ..JobsPage::default()
        }
    }

    #[test]
    fn levels_run_from_what_is_awaited_to_what_waits() {
        let jobs = jobs();
        let levels = |own| Graph::of(&jobs, &jobs.jobs[0]).levels(JobId(own));
        let chain = |ids: &[u32]| -> Vec<Vec<JobId>> { ids.iter().map(|id| vec![JobId(*id)]).collect() };
        assert_eq!(levels(5), (chain(&[5, 7, 8, 9]), 0));
        assert_eq!(levels(8), (chain(&[5, 7, 8, 9]), 2));
        assert_eq!(levels(10), (chain(&[10]), 0));
    }

    #[test]
    fn a_graph_names_components_and_conditions() {
        let jobs = jobs();
        let shown = |nth: usize| {
            let mut html = Html::new();
            add(&mut html, &jobs, &jobs.jobs[nth]);
            html.into_string()
        };
        let seen = shown(2);
        for part in ["href=\"/job/6\">5+1</a>", "FAILED", "afterany:5", "afterok:7", "<bdi>last</bdi>"] {
            assert!(seen.contains(part), "{part}: {seen}");
        }
        assert!(shown(1).contains("5+0"), "each component shows the others");
        assert_eq!(shown(5), "", "a job without relations has no graph");
        // What has been forgotten is a link.
        let mut html = Html::new();
        let alone = JobsPage { jobs: Vec::new(), ..jobs };
        add(&mut html, &alone, &JobInfo { id: JobId(7), spec: 1, ..nothing() });
        assert!(html.as_str().contains("<li><a href=\"/job/5\">5</a></li>"), "{}", html.as_str());
    }
}
