//! Choice of the cells that a request goes to, and of the way in which their answers are passed on.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::job::{JobKind, JobSpec};
use squall_model::wire::broadcast::BroadcastTo;
use squall_model::wire::client::{
    AccountingQuery, Answer, AnyRequest, CellsAsked, HostRequest, JobRef, JobSelection, Refusal, Request,
};

use super::Cells;

/// Way in which the cells' answers to a request are passed on to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Answers are passed on as they come.
    Through,
    /// Answers are passed on as they come. The file pieces that follow on this connection go to the same cell.
    Bringing,
    /// The one answer is passed on in the order of the requests. For submissions, of which many may be open.
    InTurn,
    /// Pages of a list are passed on cell by cell.
    Pages,
    /// The cells' answers are merged into one. Unreachable cells are left out, and the client is told so.
    List,
    /// The cells' answers are merged into one. An unreachable cell makes the request fail.
    Change,
    /// No cell is asked; this is the answer to the client.
    Told(Box<Answer>),
}

/// The cells that a request goes to, with the request for each, and the way of passing on the answers.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) how: How,
    pub(super) parts: Vec<(u32, AnyRequest)>,
}

impl Route {
    fn one(how: How, cell: u32, request: impl Into<AnyRequest>) -> Self {
        Self { how, parts: vec![(cell, request.into())] }
    }
}

/// Returns the cells that a request goes to. `bringing`: the cell to which the client is sending a file; None: no file.
pub(super) fn route(cells: &Cells, request: AnyRequest, bringing: Option<u32>) -> Result<Route, Refusal> {
    let how = match request.row().cells {
        CellsAsked::OfJob(job) => return Ok(Route::one(How::Through, cells.of(job), request)),
        CellsAsked::Own(what) => return Err(Refusal::NotSupported(what.to_owned())),
        CellsAsked::Parts => return part(cells, request, bringing),
        CellsAsked::Lists => How::List,
        CellsAsked::Changes => How::Change,
        CellsAsked::Pages => How::Pages,
    };
    Ok(Route { how, parts: cells.numbers().map(|cell| (cell, request.clone())).collect() })
}

/// Routes a request of which each cell gets a part, by a rule of its own.
fn part(cells: &Cells, request: AnyRequest, bringing: Option<u32>) -> Result<Route, Refusal> {
    let request = match request {
        AnyRequest::Host(HostRequest::Accounting(query)) => return Ok(accounting(cells, &query)),
        AnyRequest::Host(other) => return Err(not_here(&other.into())),
        AnyRequest::Machine(request) => *request,
    };
    match request {
        Request::Submit { .. } | Request::Allocate { .. } | Request::SubmitHet { .. } | Request::TestSubmit { .. } => {
            submission(cells, request)
        }
        Request::Jobs { jobs, ended, steps } => {
            Ok(jobs_of(cells, How::Pages, &jobs, |jobs| Request::Jobs { jobs, ended, steps }))
        }
        Request::Priorities { jobs } => Ok(jobs_of(cells, How::List, &jobs, |jobs| Request::Priorities { jobs })),
        Request::Chunk { .. } => {
            let cell = bringing.ok_or_else(|| Refusal::NotSupported("a piece of no file".to_owned()))?;
            Ok(Route::one(How::Through, cell, request))
        }
        other => change(cells, other),
    }
}

/// Routes a submission to the one cell that is chosen for it.
fn submission(cells: &Cells, request: Request) -> Result<Route, Refusal> {
    Ok(match request {
        Request::Submit { mut spec, script, env, key } => {
            let cell = cells.choose(std::slice::from_ref(&*spec), key)?;
            trim_shared(cells, cell, &mut spec);
            let how = if spec.kind == JobKind::Batch { How::InTurn } else { How::Through };
            Route::one(how, cell, Request::Submit { spec, script, env, key })
        }
        Request::Allocate { mut spec, env, key, immediate_s, step } => {
            let cell = cells.choose(std::slice::from_ref(&*spec), key)?;
            trim_shared(cells, cell, &mut spec);
            Route::one(How::Through, cell, Request::Allocate { spec, env, key, immediate_s, step })
        }
        Request::SubmitHet { mut specs, script, env, key, immediate_s } => {
            let cell = cells.choose(&specs, key)?;
            for spec in &mut specs {
                trim(cells, cell, spec);
            }
            Route::one(How::Through, cell, Request::SubmitHet { specs, script, env, key, immediate_s })
        }
        Request::TestSubmit { spec } => {
            let suited = cells.suited(std::slice::from_ref(&*spec))?;
            let parts = suited.into_iter().map(|(cell, _)| {
                let mut spec = Arc::clone(&spec);
                trim_shared(cells, cell, &mut spec);
                (cell, Request::TestSubmit { spec }.into())
            });
            Route { how: How::List, parts: parts.collect() }
        }
        other => return Err(not_here(&other.into())),
    })
}

/// Removes nodes of other cells from `--exclude` in a shared spec, which is copied only if it excludes nodes.
fn trim_shared(cells: &Cells, cell: u32, spec: &mut Arc<JobSpec>) {
    if spec.need.exclude.is_some() {
        trim(cells, cell, Arc::make_mut(spec));
    }
}

/// Removes nodes of other cells from `--exclude`: the cell does not know them and can't use them anyway.
fn trim(cells: &Cells, cell: u32, spec: &mut JobSpec) {
    if let Some(list) = &spec.need.exclude
        && cells.of_nodes(list).is_ok()
    {
        spec.need.exclude = cells.nodes_in(cell, list);
    }
}

/// Routes changes of jobs, nodes and partitions, and queries of nodes.
#[expect(clippy::too_many_lines, reason = "a table: a row for each request")]
fn change(cells: &Cells, request: Request) -> Result<Route, Refusal> {
    Ok(match request {
        Request::Cancel { jobs, signal, step, verbose } => {
            jobs_of(cells, How::Change, &jobs, |jobs| Request::Cancel { jobs, signal, step, verbose })
        }
        Request::Hold { jobs, user } => jobs_of(cells, How::Change, &jobs, |jobs| Request::Hold { jobs, user }),
        Request::Top { jobs } => jobs_of(cells, How::Change, &jobs, |jobs| Request::Top { jobs }),
        Request::Release { jobs } => jobs_of(cells, How::Change, &jobs, |jobs| Request::Release { jobs }),
        Request::Requeue { jobs, hold, from, special } => {
            jobs_of(cells, How::Change, &jobs, |jobs| Request::Requeue { jobs, hold, from, special })
        }
        Request::Suspend { jobs, suspend } => {
            jobs_of(cells, How::Change, &jobs, |jobs| Request::Suspend { jobs, suspend })
        }
        Request::UpdateJob { jobs, change } => {
            jobs_of(cells, How::Change, &jobs, |jobs| Request::UpdateJob { jobs, change: change.clone() })
        }
        Request::Reboot { nodes, asap, next, reason } => nodes_of(cells, How::Change, &nodes, "ALL", |nodes| {
            Request::Reboot { nodes, asap, next, reason: reason.clone() }
        })?,
        Request::Power { nodes, wish } => {
            nodes_of(cells, How::Change, &nodes, "ALL", |nodes| Request::Power { nodes, wish })?
        }
        Request::CancelReboot { nodes } => {
            nodes_of(cells, How::Change, &nodes, "ALL", |nodes| Request::CancelReboot { nodes })?
        }
        Request::UpdateNodes { nodes, admin, reason, change } => {
            nodes_of(cells, How::Change, &nodes, "ALL", |nodes| Request::UpdateNodes {
                nodes,
                admin,
                reason: reason.clone(),
                change: change.clone(),
            })?
        }
        Request::UpdatePartition { name, state } => {
            let parts = cells.with_partition(&name);
            let parts: Vec<_> =
                parts.map(|cell| (cell, Request::UpdatePartition { name: name.clone(), state }.into())).collect();
            if parts.is_empty() {
                return Err(Refusal::InvalidPartition(name));
            }
            Route { how: How::Change, parts }
        }
        Request::QueryNodes { nodes, test, wait, write, time_ms } => {
            let route = nodes_of(cells, How::List, &nodes, "", |nodes| {
                let (test, write) = (test.clone(), write.clone());
                Request::QueryNodes { nodes, test, wait, write, time_ms }
            })?;
            if write.is_some() && route.parts.len() > 1 {
                return Err(Refusal::NotSupported("all or none of nodes in several cells can't be written".to_owned()));
            }
            route
        }
        Request::Broadcast(wanted) => {
            let cell = match &wanted.to {
                BroadcastTo::Job { jobs, .. } => cells.of(*jobs.first().ok_or(Refusal::InvalidJobId)?),
                BroadcastTo::Nodes(nodes) => one_of(cells, nodes, "a file for nodes")?,
            };
            Route::one(How::Bringing, cell, Request::Broadcast(wanted))
        }
        Request::Reserve { change, create } => match (&change.nodes, create) {
            (Some(nodes), _) => {
                let cell = one_of(cells, nodes, "a reservation")?;
                Route::one(How::Change, cell, Request::Reserve { change, create })
            }
            (None, true) => return Err(Refusal::NotSupported("Nodes=: a reservation is of one cell".to_owned())),
            (None, false) => {
                let parts =
                    cells.numbers().map(|cell| (cell, Request::Reserve { change: change.clone(), create }.into()));
                Route { how: How::Change, parts: parts.collect() }
            }
        },
        other => return Err(not_here(&other.into())),
    })
}

/// Refuses a request that has no rule here, against its row.
fn not_here(request: &AnyRequest) -> Refusal {
    Refusal::NotSupported(request.row().kind.to_owned())
}

/// Returns the cell that has all of the nodes; refuses nodes of several cells.
fn one_of(cells: &Cells, nodes: &str, what: &str) -> Result<u32, Refusal> {
    let all = nodes.is_empty() || nodes.eq_ignore_ascii_case("ALL");
    let mut found =
        if all { cells.numbers().collect() } else { cells.of_nodes(nodes)?.into_keys().collect::<Vec<_>>() };
    match (found.pop(), found.is_empty()) {
        (Some(cell), true) => Ok(cell),
        _ => Err(Refusal::NotSupported(format!("{what}: name nodes of one cell"))),
    }
}

/// Routes a request about a list of nodes: to the cells that have them, or to all if the list equals `all`.
fn nodes_of(
    cells: &Cells,
    how: How,
    nodes: &str,
    all: &str,
    request: impl Fn(String) -> Request,
) -> Result<Route, Refusal> {
    let parts = if nodes.eq_ignore_ascii_case(all) {
        cells.numbers().map(|cell| (cell, request(nodes.to_owned()).into())).collect()
    } else {
        let by_cell = cells.of_nodes(nodes)?.into_iter();
        by_cell.map(|(cell, names)| (cell, request(squall_model::hostlist::compress(names)).into())).collect::<Vec<_>>()
    };
    if parts.is_empty() { Err(Refusal::InvalidNode(String::new())) } else { Ok(Route { how, parts }) }
}

/// Routes a request about jobs: to the cells of the jobs that it names, or to all.
fn jobs_of(cells: &Cells, how: How, jobs: &JobSelection, request: impl Fn(JobSelection) -> Request) -> Route {
    let nodes = &jobs.nodes;
    let by_cell = named(cells, &jobs.ids);
    let parts = by_cell.into_iter().map(|(cell, ids)| {
        // A cell with none of the nodes refuses them as unknown, which does not count if others have some.
        let nodes = nodes.as_deref().map(|list| cells.nodes_in(cell, list).unwrap_or_else(|| list.to_owned()));
        (cell, request(JobSelection { ids, nodes, ..jobs.clone() }).into())
    });
    Route { how, parts: parts.collect() }
}

fn accounting(cells: &Cells, query: &AccountingQuery) -> Route {
    let by_cell = named(cells, &query.ids);
    let part = |ids| HostRequest::Accounting(Box::new(AccountingQuery { ids, ..query.clone() })).into();
    Route { how: How::Pages, parts: by_cell.into_iter().map(|(cell, ids)| (cell, part(ids))).collect() }
}

/// Returns the named jobs by cell. Without names, every cell with an empty list.
fn named(cells: &Cells, ids: &[JobRef]) -> BTreeMap<u32, Vec<JobRef>> {
    let mut by_cell: BTreeMap<u32, Vec<JobRef>> = BTreeMap::new();
    if ids.is_empty() {
        by_cell.extend(cells.numbers().map(|cell| (cell, Vec::new())));
    }
    for named in ids {
        let (JobRef::Job(id) | JobRef::Tasks(id, _) | JobRef::Component(id, _)) = named;
        by_cell.entry(cells.of(*id)).or_default().push(named.clone());
    }
    by_cell
}
