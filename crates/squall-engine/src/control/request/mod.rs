//! What clients ask: one file for each verb. A verb decides from state, commits events, and answers.
//!
//! Convention: `pub(crate) fn verb(c: &mut Controller, ask: &Ask<'_>, …the request's fields…, out: &mut Out)
//! -> Reply`. What is decided comes from a pure function of `&State` that returns events or a refusal; the verb
//! commits them with [`Controller::commit`] and returns `Ok(Some(answer))`, or `Ok(None)` if it has noted the
//! caller and will answer later with `out.answers.push((caller, answer))`. All rights are decided by [`can`].

pub(crate) mod rights;

use squall_model::time::Time;
use squall_model::wire::client::{Answer, Refusal, Request};

use super::{CallerId, Controller, Out, Who};

/// Who asks, when, on which connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// When.
    pub(crate) now: Time,
    /// On which connection.
    pub(crate) caller: CallerId,
    /// Who.
    pub(crate) who: &'a Who,
}

/// What a verb returns: an answer, or None if it comes later.
pub(crate) type Reply = Result<Option<Answer>, Refusal>;

/// Answers one request, now or later.
pub(crate) fn ask(c: &mut Controller, now: Time, caller: CallerId, who: &Who, request: Request, out: &mut Out) {
    let ask = Ask { now, caller, who };
    let answer = match dispatch(c, &ask, request, out) {
        Ok(answer) => answer,
        Err(refusal) => Some(Answer::Refused(refusal)),
    };
    out.answers.extend(answer.map(|answer| (caller, answer)));
}

fn dispatch(c: &mut Controller, ask: &Ask<'_>, request: Request, out: &mut Out) -> Reply {
    let _ = (c, ask, out);
    match request {
        Request::Submit { .. } => not_yet("Submit"),
        Request::TestSubmit { .. } => not_yet("TestSubmit"),
        Request::Allocate { .. } => not_yet("Allocate"),
        Request::Attach { .. } => not_yet("Attach"),
        Request::Finish { .. } => not_yet("Finish"),
        Request::AwaitJob { .. } => not_yet("AwaitJob"),
        Request::ShutDown { .. } => not_yet("ShutDown"),
        Request::Facts { .. } => not_yet("Facts"),
        Request::CreateStep { .. } => not_yet("CreateStep"),
        Request::Cancel { .. } => not_yet("Cancel"),
        Request::Hold { .. } => not_yet("Hold"),
        Request::Release { .. } => not_yet("Release"),
        Request::Requeue { .. } => not_yet("Requeue"),
        Request::Suspend { .. } => not_yet("Suspend"),
        Request::UpdateJob { .. } => not_yet("UpdateJob"),
        Request::UpdateNodes { .. } => not_yet("UpdateNodes"),
        Request::UpdatePartition { .. } => not_yet("UpdatePartition"),
        Request::Jobs { .. } => not_yet("Jobs"),
        Request::Nodes => not_yet("Nodes"),
        Request::Partitions => not_yet("Partitions"),
        Request::Config => not_yet("Config"),
        Request::Ping => not_yet("Ping"),
        Request::Diag { .. } => not_yet("Diag"),
        Request::Accounting(_) => not_yet("Accounting"),
        Request::Script { .. } => not_yet("Script"),
        Request::Reconfigure { .. } => not_yet("Reconfigure"),
    }
}

/// A verb that this controller does not serve.
fn not_yet(verb: &str) -> Reply {
    Err(Refusal::NotSupported(verb.to_owned()))
}
