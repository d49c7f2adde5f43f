//! Requests of a program to its resource manager, apart from exchanging data with its peers: queries about the step,
//! text for the user, ending the step, spawning processes. The functions are called on the library's thread, like all
//! in `upcall`.

use std::ffi::{CString, c_void};

use super::abi::{
    ERR_NOT_FOUND, ERR_NOT_SUPPORTED, ERR_PARTIAL_SUCCESS, ERROR, Info, InfoDone, Infos, OpDone, Proc, Query, SUCCESS,
    Status,
};
use super::upcall::{Asked, DoneReply, Upcall, Verdict, give, inbox, names};

/// Callback for the answer to a query.
#[derive(Debug)]
pub(crate) struct QueryReply(InfoDone, *mut c_void);

// SAFETY: the library hands out a function and its argument to be called once, from any thread; the argument is only
// handed back, never looked at.
unsafe impl Send for QueryReply {}

/// The value of a key that a program has queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The value is a text.
    Text(String),
    /// The value is a number, such as that of process sets.
    Count(u64),
    /// The value is a duration, in seconds.
    Seconds(u32),
    /// The value is a table of the tasks of this node.
    Tasks {
        /// Name of this node.
        node: String,
        /// The program that they run.
        program: String,
        /// Rank and process id of each task.
        tasks: Vec<(u32, u32)>,
    },
}

impl QueryReply {
    /// Answers with the known keys and their values; `all`: no queried key is missing.
    pub(crate) fn answer(self, known: Vec<(String, Known)>, all: bool) {
        let Some(inbox) = inbox() else { return };
        let status = match (known.is_empty(), all) {
            (true, _) => ERR_NOT_FOUND,
            (false, false) => ERR_PARTIAL_SUCCESS,
            (false, true) => SUCCESS,
        };
        let mut infos = Infos::default();
        for (key, known) in known {
            let key = CString::new(key).unwrap_or_default();
            match known {
                Known::Text(text) => infos.text(&key, &text),
                Known::Count(count) => infos.size(&key, count),
                Known::Seconds(seconds) => infos.number(&key, seconds),
                Known::Tasks { node, program, tasks } => infos.table(&key, &inbox.nspace, (&node, &program), &tasks),
            }
        }
        // SAFETY: called once, by value.
        unsafe { give(self.0, self.1, status, infos) };
    }

    /// Answers with a status only.
    pub(crate) fn close(self, verdict: Verdict) {
        // SAFETY: called once, by value.
        unsafe { give(self.0, self.1, verdict.status(), Infos::default()) };
    }
}

pub(super) unsafe extern "C" fn query(
    _proc: *mut Proc,
    queries: *mut Query,
    count: usize,
    done: Option<InfoDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    let mut keys = Vec::new();
    for at in 0..if queries.is_null() { 0 } else { count } {
        // SAFETY: the library gives that many queries, each with names as `names` wants them and so many qualifiers, valid
        // during this call.
        let (asked, qualifiers) = unsafe {
            let query = &*queries.add(at);
            let none = query.qualifiers.is_null();
            let qualifiers = if none { &[] } else { std::slice::from_raw_parts::<Info>(query.qualifiers, query.count) };
            (names(query.keys), qualifiers)
        };
        let other = |info: &Info| {
            info.is(c"pmix.nspace") && info.text().is_some_and(|name| name.as_bytes() != inbox.nspace.to_bytes())
        };
        // Nothing is known of other namespaces: an empty name, which no key has, stands for what is asked of them.
        let elsewhere = qualifiers.iter().any(other);
        keys.extend(asked.into_iter().map(|key| if elsewhere { String::new() } else { key }));
    }
    inbox.put(Upcall::Query { keys, reply: QueryReply(done, data) });
    SUCCESS
}

pub(super) unsafe extern "C" fn log(
    proc: *const Proc,
    infos: *const Info,
    count: usize,
    _directives: *const Info,
    _directive_count: usize,
    done: Option<OpDone>,
    data: *mut c_void,
) {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return };
    // SAFETY: the library gives a valid process and that many attributes, valid during this call.
    let (rank, infos) =
        unsafe { ((*proc).rank, if infos.is_null() { &[] } else { std::slice::from_raw_parts::<Info>(infos, count) }) };
    let texts = [c"pmix.log.stdout", c"pmix.log.stderr"]
        .map(|key| infos.iter().filter(|info| info.is(key)).filter_map(Info::text).collect::<String>());
    inbox.put(Upcall::Log { rank, texts, reply: DoneReply(done, data) });
}

pub(super) unsafe extern "C" fn job_control(
    proc: *const Proc,
    targets: *const Proc,
    target_count: usize,
    infos: *const Info,
    count: usize,
    done: Option<InfoDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives a valid process, and that many targets and attributes, valid during this call.
    let (rank, asked, infos) = unsafe {
        let infos = if infos.is_null() { &[] } else { std::slice::from_raw_parts::<Info>(infos, count) };
        let none = targets.is_null() || target_count == 0;
        ((*proc).rank, if none { Some(Asked::All) } else { inbox.asked(targets, target_count) }, infos)
    };
    let wants = |key| infos.iter().any(|info| info.is(key) && info.flag());
    let (kill, end) = (wants(c"pmix.jctrl.kill"), wants(c"pmix.jctrl.term"));
    if asked != Some(Asked::All) || !(kill || end) {
        return ERR_NOT_SUPPORTED;
    }
    inbox.put(Upcall::End { rank, kill, reply: QueryReply(done, data) });
    SUCCESS
}

pub(super) unsafe extern "C" fn spawn(
    proc: *const Proc,
    _infos: *const Info,
    _info_count: usize,
    _programs: *const c_void,
    _program_count: usize,
    _done: Option<unsafe extern "C" fn()>,
    _data: *mut c_void,
) -> Status {
    let Some(inbox) = inbox() else { return ERROR };
    // SAFETY: the library gives a valid process.
    inbox.put(Upcall::Spawn(unsafe { (*proc).rank }));
    ERR_NOT_SUPPORTED
}
