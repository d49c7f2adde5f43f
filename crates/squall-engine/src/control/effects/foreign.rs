//! Dependencies across cells: questions of this cell to others, and questions of others to this cell.
//!
//! All of this is soft state. A front (gateway between cells) that connects is sent all open questions, and repeats
//! those of its own cells. So messages that are lost between cells need no record. Answers that matter are in
//! `State::foreign`, in the journal.

use crate::control::index::foreign::About;
use std::collections::BTreeMap;

use squall_model::event::Event;
use squall_model::foreign::{Question, Reply};
use squall_model::id::JobId;
use squall_model::limits::QUESTIONS_MAX;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;

use crate::control::controller::Controller;
use crate::control::index::depend;
use crate::control::port::{CallerId, Out};
use crate::control::state::State;
use crate::control::state::reading::exists;

/// Adds the connection of a front, which carries questions between cells, and sends it all open questions of this cell.
pub(crate) fn carry(c: &mut Controller, front: CallerId, out: &mut Out) {
    c.foreign.fronts.insert(front);
    let state = &c.state;
    c.foreign.open.retain(|question| is_wanted(state, question));
    tell(front, &c.foreign.open.iter().cloned().collect::<Vec<_>>(), out);
}

fn tell(front: CallerId, questions: &[Question], out: &mut Out) {
    let parts = questions.chunks(QUESTIONS_MAX);
    out.answers.extend(parts.map(|part| (front, Answer::Unresolved(part.to_vec()))));
}

/// Returns whether a job that has not ended needs the answer to a question to other cells.
fn is_wanted(state: &State, question: &Question) -> bool {
    let asks = match question {
        Question::Started(named) | Question::Ended(named) => state.index.wanted.contains_key(&named.id),
        Question::Alone { job, .. } => match state.arrays.get(job) {
            Some(array) => !array.is_ended(),
            None => state.jobs.get(job).is_some_and(|job| !job.is_ended()),
        },
    };
    asks && !state.foreign.contains_key(question)
}

/// Handles questions of another cell. Answers those that can be answered now and keeps the others until they can be.
pub(crate) fn ask(c: &mut Controller, now: Time, caller: CallerId, questions: Vec<Question>) {
    for question in questions {
        if let Some(reply) = reply(c, now, &question) {
            c.foreign.ready.entry(caller).or_default().push((question, reply));
        } else {
            c.foreign.askers.insert(caller);
            let questions = c.foreign.asked.entry(about(&c.state, &question)).or_default();
            questions.entry(question).or_default().insert(caller);
        }
    }
}

fn about(state: &State, question: &Question) -> About {
    match question {
        Question::Started(named) | Question::Ended(named) => About::Job(whole(state, named.id)),
        Question::Alone { uid, name, .. } => About::Name(*uid, name.clone()),
    }
}

fn whole(state: &State, id: JobId) -> JobId {
    state.array_of(id).map_or(id, |(array, _)| array)
}

/// Returns this cell's answer to another cell's question. None: it can't be given yet.
fn reply(c: &mut Controller, now: Time, question: &Question) -> Option<Reply> {
    match question {
        Question::Started(named) | Question::Ended(named) if !exists(&c.state, (*named).into()) => {
            Some(if c.state.was_given(named.id) { Reply::Forgotten } else { Reply::Unknown })
        }
        Question::Started(named) => depend::reply(&c.state, *named, true),
        Question::Ended(named) => depend::reply(&c.state, *named, false),
        // Until that moment has passed, a job with an earlier submission time may still appear.
        Question::Alone { submit, .. } if now <= *submit => {
            let later = *submit + Span(1);
            c.foreign.again = Some(c.foreign.again.map_or(later, |again| again.min(later)));
            None
        }
        Question::Alone { job, uid, name, submit } => {
            c.queue.names.keep(&c.state);
            c.queue.names.is_alone(&c.state, *uid, name, (*submit, *job)).then_some(Reply::Alone)
        }
    }
}

/// Records answers of other cells. Answers that no job needs any more are not journaled.
pub(crate) fn resolved(c: &mut Controller, now: Time, replies: Vec<(Question, Reply)>, out: &mut Out) {
    let mut news = Vec::new();
    for (question, reply) in replies {
        c.foreign.open.remove(&question);
        if reply != Reply::Forgotten && is_wanted(&c.state, &question) {
            news.push((question, reply));
        }
    }
    if !news.is_empty() {
        c.commit(now, Event::ForeignResolved { replies: news }, out);
    }
}

/// Answers other cells' questions about a job that has changed.
pub(crate) fn touched(c: &mut Controller, now: Time, id: JobId) {
    if c.foreign.asked.is_empty() {
        return;
    }
    look(c, now, &About::Job(whole(&c.state, id)));
    let array = c.state.arrays.get(&id).map(|array| (array.owner.uid, array.spec.name.clone()));
    let job = c.state.jobs.get(&id).map(|job| (job.owner.uid, job.spec.name.clone()));
    if let Some((uid, name)) = array.or(job) {
        look(c, now, &About::Name(uid, name));
    }
}

fn look(c: &mut Controller, now: Time, about: &About) {
    // because no other cell has asked about most jobs
    let Some(questions) = c.foreign.asked.remove(about) else { return };
    let mut open = BTreeMap::new();
    for (question, callers) in questions {
        let Some(reply) = reply(c, now, &question) else {
            open.insert(question, callers);
            continue;
        };
        for caller in callers {
            c.foreign.ready.entry(caller).or_default().push((question.clone(), reply));
        }
    }
    if !open.is_empty() {
        c.foreign.asked.insert(about.clone(), open);
    }
}

/// Sends new questions to other cells, and answers to their questions, at the end of a turn.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    if c.foreign.again.is_none() && c.queue.questions.is_empty() && c.foreign.ready.is_empty() {
        return;
    }
    if c.foreign.again.is_some_and(|again| again <= now) {
        c.foreign.again = None;
        let names = c.foreign.asked.keys().filter(|about| matches!(about, About::Name(..)));
        for about in names.cloned().collect::<Vec<_>>() {
            look(c, now, &about);
        }
    }
    let noted = std::mem::take(&mut c.queue.questions);
    let fresh: Vec<Question> = noted.into_iter().filter(|question| c.foreign.open.insert(question.clone())).collect();
    for front in &c.foreign.fronts {
        tell(*front, &fresh, out);
    }
    for (caller, replies) in std::mem::take(&mut c.foreign.ready) {
        let parts = replies.chunks(QUESTIONS_MAX);
        out.answers.extend(parts.map(|part| (caller, Answer::Resolved(part.to_vec()))));
    }
}

/// Returns when [`settle`] must be called again; None: no question waits for a time.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.foreign.again
}
