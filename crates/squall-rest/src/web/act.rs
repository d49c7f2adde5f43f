//! What people may do from pages: each deed is a request to the controller as the person who sent the form.

use axum::extract::{Path, State};
use axum::response::Response;
use squall_client::unexpected;
use squall_model::event::NodeAdmin;
use squall_model::job::JobState;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_text::format::job::JobRow;
use squall_text::options::values::jobs::job_ref;
use squall_text::refusal;

use crate::answer;
use crate::routes::ServerHandle;
use crate::web::frame::{Problem, View};
use crate::web::html::{Html, encoded};
use crate::web::people::{Form, to};
use crate::web::row;
use squall_client::ClientError;
use squall_model::id::JobId;

/// Deeds on jobs: name in the address, what the button says, what is said afterwards.
const DEEDS: [(&str, &str, &str); 4] = [
    ("cancel", "Cancel", "The job is cancelled."),
    ("hold", "Hold", "The job is held."),
    ("release", "Release", "The job is released."),
    ("requeue", "Requeue", "The job is requeued."),
];

/// Deeds on nodes.
const NODE_DEEDS: [(&str, &str); 2] = [("drain", "The node is drained."), ("resume", "Jobs may start on the node.")];

/// Returns what is said after a deed; empty: there is no such deed.
pub(crate) fn done(deed: &str) -> &'static str {
    let jobs = DEEDS.iter().map(|(name, _, said)| (*name, *said));
    jobs.chain(NODE_DEEDS).find(|(name, _)| *name == deed).map_or("", |(_, said)| said)
}

/// Appends buttons for what the person may do with a job in its state.
pub(crate) fn offer(body: &mut Html, view: &View, job: &JobRow) {
    if !view.may(job.owner.uid) || matches!(job.info.state, JobState::Ended(_) | JobState::Completing(_)) {
        return;
    }
    let held = job.info.priority == 0;
    body.raw("<div class=\"deeds\" role=\"group\" aria-label=\"Actions\">");
    for (deed, name, _) in DEEDS {
        let fits = match (deed, job.info.state) {
            ("cancel", _) => true,
            ("hold", JobState::Pending) => !held,
            ("release", JobState::Pending) => held,
            ("requeue", JobState::Running | JobState::Configuring | JobState::Suspended) => {
                squall_text::columns::jobs::requeue(job)
            }
            _ => false,
        };
        if fits {
            button(body, view, &row::path(job), (deed, name));
        }
    }
    body.raw("</div>");
}

/// Appends the button for a deed on the job or array with this path.
fn button(body: &mut Html, view: &View, path: &str, (deed, name): (&str, &str)) {
    view.form(body, &format!("{path}/{deed}"));
    let class = if deed == "cancel" { "danger" } else { "" };
    body.put("<button class=\"{}\">{}</button></form>", &[&class, &name]);
}

/// Appends buttons for what the person may do with an array. `waits`: some of its tasks wait.
pub(crate) fn offer_array(body: &mut Html, view: &View, (owner, id): (u32, JobId), waits: bool) {
    if !view.may(owner) {
        return;
    }
    body.raw("<div class=\"deeds\" role=\"group\" aria-label=\"Actions\">");
    for (deed, name, _) in DEEDS {
        if deed == "cancel" || waits && ["hold", "release"].contains(&deed) {
            button(body, view, &row::path_of(id, None), (deed, name));
        }
    }
    body.raw("</div>");
}

/// Appends the form to drain a node or resume it.
pub(crate) fn offer_node(body: &mut Html, view: &View, name: &str, admin: NodeAdmin) {
    if !view.operator {
        return;
    }
    let deed = if admin == NodeAdmin::Resume { "drain" } else { "resume" };
    body.raw("<div class=\"deeds\" role=\"group\" aria-label=\"Actions\">");
    view.form(body, &format!("/node/{}/{deed}", encoded(name)));
    if deed == "drain" {
        body.raw("<label for=\"reason\">Reason</label><input id=\"reason\" name=\"reason\" required maxlength=\"200\"><button class=\"danger\">Drain</button>");
    } else {
        body.raw("<button>Resume</button>");
    }
    body.raw("</form></div>");
}

/// `POST /job/ID/DEED`.
pub(crate) async fn on_job(
    State(server): State<ServerHandle>,
    Path((id, deed)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Problem> {
    let job = job_ref(&id).ok_or_else(|| Problem::missing("There is no such job."))?;
    let jobs = JobSelection { ids: vec![job], ..JobSelection::default() };
    let request = match deed.as_str() {
        "cancel" => Request::Cancel { jobs, signal: None, step: None, verbose: true },
        // Operators hold as such, so that the user can't release it.
        "hold" => Request::Hold { jobs, user: !form.viewer.caller.operator },
        "release" => Request::Release { jobs },
        "requeue" => Request::Requeue { jobs, hold: false, from: None, special: None },
        _ => return Err(Problem::missing("There is no such action.")),
    };
    let Answer::Affected { jobs, refused } = server.cluster.ask(&form.viewer.caller.identity, request).await? else {
        return Err(unexpected().into());
    };
    if let Some((_, refusal)) = refused.into_iter().next().filter(|_| jobs.is_empty()) {
        let text = refusal::lines(&format!("Job {id}"), &refusal).join(". ");
        return Err(Problem { status: answer::status(&ClientError::Refused(refusal)), text });
    }
    Ok(to(&format!(
        "/job/{}?done={}",
        encoded(&id),
        DEEDS.iter().find(|(name, ..)| *name == deed).map_or("", |(name, ..)| name)
    )))
}

/// `POST /node/NAME/DEED`.
pub(crate) async fn on_node(
    State(server): State<ServerHandle>,
    Path((name, deed)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Problem> {
    let reason = form.fields.get("reason").map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    let (admin, done) = match deed.as_str() {
        "drain" => (NodeAdmin::Drain, "drain"),
        "resume" => (NodeAdmin::Resume, "resume"),
        _ => return Err(Problem::missing("There is no such action.")),
    };
    let request = Request::UpdateNodes { nodes: name.clone(), admin: Some(admin), reason, change: None };
    match server.cluster.ask(&form.viewer.caller.identity, request).await? {
        Answer::Done => Ok(to(&format!("/node/{}?done={done}", encoded(&name)))),
        _ => Err(unexpected().into()),
    }
}
