//! Requests of libpmix to its host. The functions are called on the library's thread, so they copy everything into a
//! queue at once.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use squall_model::set::IndexSet;

use super::abi::{
    Buffer, Data, ERR_DUPLICATE_KEY, ERR_NOT_FOUND, ERR_NOT_SUPPORTED, ERR_OUT_OF_RESOURCE, ERR_PARTIAL_SUCCESS,
    ERR_TIMEOUT, ERR_UNREACH, ERROR, INFO, Info, InfoDone, Infos, LookupDone, ModexDone, Module, OPERATION_SUCCEEDED,
    OpDone, Pack, Proc, RANGES_HERE, RANK_LOCAL_NODE, RANK_WILDCARD, Release, SUCCESS, Status, Unpack,
};
use super::service::{self, QueryReply};

/// A request of the library.
#[derive(Debug)]
pub(crate) enum Upcall {
    /// A task (rank) has connected.
    Connected(u32),
    /// A task (rank) has finished using PMIx.
    Finalized(u32),
    /// A task asks to end the step (`PMIx_Abort`).
    Abort {
        /// Rank of the requesting task.
        rank: u32,
        /// The exit code.
        code: i32,
        /// The message for the user.
        text: String,
        /// Callback by which the host answers this request.
        reply: DoneReply,
    },
    /// All participating tasks of this node have entered a fence.
    Fence {
        /// Ranks that take part in the fence.
        asked: Asked,
        /// Data that the participants on this node contribute to the fence.
        data: Vec<u8>,
        /// Callback by which the host answers this request.
        reply: ModexReply,
    },
    /// A task asks for the data that a rank on another node has published.
    Ask {
        /// Rank to which the requested data belongs.
        rank: u32,
        /// Callback by which the host answers this request.
        reply: ModexReply,
    },
    /// The answer to `publish_of`.
    Published {
        /// The ticket that was given to `publish_of`.
        ticket: u64,
        /// The published data; None: the library could not get it.
        data: Option<Vec<u8>>,
    },
    /// All participating tasks of this node have called `PMIx_Connect`, or (not `on`) `PMIx_Disconnect`.
    Connect {
        /// Whether to connect; false: to disconnect.
        on: bool,
        /// Ranks that connect or disconnect.
        asked: Asked,
        /// Callback by which the host answers this request.
        reply: DoneReply,
    },
    /// A task publishes values.
    Publish {
        /// Rank of the requesting task.
        rank: u32,
        /// Names, and values as packed by the library.
        values: Vec<(String, Vec<u8>)>,
        /// Callback by which the host answers this request.
        reply: DoneReply,
    },
    /// A task withdraws published values.
    Unpublish {
        /// Rank of the requesting task.
        rank: u32,
        /// Names to withdraw; empty: all that the task has published.
        keys: Vec<String>,
        /// Callback by which the host answers this request.
        reply: DoneReply,
    },
    /// A task looks up published values.
    Lookup {
        /// Names to look up.
        keys: Vec<String>,
        /// Whether to wait until all of the names are published.
        wait: bool,
        /// Callback by which the host answers this request.
        reply: LookupReply,
    },
    /// All participating tasks of this node construct a group, or (not `on`) destruct it.
    Group {
        /// Whether to construct; false: to destruct.
        on: bool,
        /// The group's name.
        name: String,
        /// Ranks that take part in the construction or destruction of the group.
        asked: Asked,
        /// Data that the participants on this node contribute for the others.
        data: Vec<u8>,
        /// Whether the library asks for a unique number for the group.
        numbered: bool,
        /// Callback by which the host answers this request.
        reply: GroupReply,
    },
    /// A task sends an event to others.
    Event(Event),
    /// A task queries its resource manager.
    Query {
        /// PMIx keys that the task queries.
        keys: Vec<String>,
        /// Callback by which the host answers this request.
        reply: QueryReply,
    },
    /// A task logs text for the user.
    Log {
        /// Rank of the requesting task.
        rank: u32,
        /// Text for standard output, and for standard error.
        texts: [String; 2],
        /// Callback by which the host answers this request.
        reply: DoneReply,
    },
    /// A task asks to end the whole step.
    End {
        /// Rank of the requesting task.
        rank: u32,
        /// Whether to kill the step; false: to terminate it orderly.
        kill: bool,
        /// Callback by which the host answers this request.
        reply: QueryReply,
    },
    /// A task (rank) asked for further processes, and was refused.
    Spawn(u32),
}

/// An event that a task sends to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The library's number of the event.
    pub(crate) code: i32,
    /// The rank that sends the event.
    pub(crate) source: u32,
    /// The event's receivers, as the library's number of a range.
    pub(crate) range: u8,
    /// The event's attributes as packed by the library.
    pub(crate) details: Vec<Vec<u8>>,
}

/// A set of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All ranks of the step.
    All,
    /// Only the ranks with these numbers.
    Some(IndexSet),
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request has succeeded.
    Well,
    /// Not all participants have entered in time.
    Timeout,
    /// A participant's node has failed.
    Gone,
    /// The request's data is too large.
    TooLarge,
    /// The rank, name or group does not exist.
    NotFound,
    /// The name exists already.
    Taken,
    /// The request is not supported.
    Refused,
}

impl Verdict {
    pub(super) fn status(self) -> Status {
        match self {
            Self::Well => SUCCESS,
            Self::Timeout => ERR_TIMEOUT,
            Self::Gone => ERR_UNREACH,
            Self::TooLarge => ERR_OUT_OF_RESOURCE,
            Self::NotFound => ERR_NOT_FOUND,
            Self::Taken => ERR_DUPLICATE_KEY,
            Self::Refused => ERR_NOT_SUPPORTED,
        }
    }
}

/// Callback for an answer without data.
#[derive(Debug)]
pub(crate) struct DoneReply(pub(super) OpDone, pub(super) *mut c_void);

/// Callback for the collected data of a fence, or the data that a rank has published.
#[derive(Debug)]
pub(crate) struct ModexReply(ModexDone, *mut c_void);

/// Callback for the answer to a group request.
#[derive(Debug)]
pub(crate) struct GroupReply(InfoDone, *mut c_void);

/// Callback for looked-up values; with the number of names asked for.
#[derive(Debug)]
pub(crate) struct LookupReply(LookupDone, *mut c_void, usize);

// SAFETY: the library hands out a function and its argument to be called once, from any thread: it passes the call on to its
// own thread itself. The argument is only handed back, never looked at.
unsafe impl Send for DoneReply {}
// SAFETY: as above.
unsafe impl Send for ModexReply {}
// SAFETY: as above.
unsafe impl Send for GroupReply {}
// SAFETY: as above.
unsafe impl Send for LookupReply {}

impl DoneReply {
    pub(crate) fn answer(self, verdict: Verdict) {
        // SAFETY: called once, by value, as the library asks.
        unsafe { (self.0)(verdict.status(), self.1) };
    }
}

impl LookupReply {
    /// Answers with owner and packed value of each name that was found.
    pub(crate) fn answer(self, result: Result<Vec<(u32, Vec<u8>)>, Verdict>) {
        let Some(inbox) = inbox() else { return };
        let unpack = |(owner, value): (u32, Vec<u8>)| {
            // SAFETY: the value was packed by `pack`, maybe elsewhere; the library refuses what it does not understand.
            let info = unsafe { inbox.unpack(&value) }?;
            Some(Data::new(&Proc::new(&inbox.nspace, owner), &info))
        };
        let (status, mut found) = match result {
            Ok(found) => {
                let found: Vec<Data> = found.into_iter().filter_map(unpack).collect();
                let status = match found.len() {
                    0 => ERR_NOT_FOUND,
                    n if n < self.2 => ERR_PARTIAL_SUCCESS,
                    _ => SUCCESS,
                };
                (status, found)
            }
            Err(verdict) => (verdict.status(), Vec::new()),
        };
        // SAFETY: called once; the library has packed what it is given when it returns.
        unsafe { (self.0)(status, found.as_mut_ptr(), found.len(), self.1) };
    }
}

impl ModexReply {
    pub(crate) fn answer(self, result: Result<Vec<u8>, Verdict>) {
        let (status, data) = match result {
            Ok(data) => (SUCCESS, data),
            Err(verdict) => (verdict.status(), Vec::new()),
        };
        let data = Box::new(data);
        let (at, length) = (data.as_ptr().cast::<c_char>(), data.len());
        let kept = Box::into_raw(data).cast::<c_void>();
        // SAFETY: called once, by value. The bytes live until the library calls `drop_bytes`, once.
        unsafe { (self.0)(status, at, length, self.1, Some(drop_bytes as Release), kept) };
    }
}

impl GroupReply {
    /// Answers with the group's number (None: none was asked for) and the data that the participants contributed.
    pub(crate) fn answer(self, result: Result<(Option<u64>, Vec<u8>), Verdict>) {
        let mut infos = Infos::default();
        let status = match result {
            Ok((number, data)) => {
                if let Some(number) = number {
                    infos.size(c"pmix.grp.ctxid", number);
                }
                if !data.is_empty() {
                    infos.object(c"pmix.grp.endpt", &data);
                }
                SUCCESS
            }
            Err(verdict) => verdict.status(),
        };
        // SAFETY: called once, by value.
        unsafe { give(self.0, self.1, status, infos) };
    }
}

/// Answers with attributes.
///
/// # Safety
/// `done` must be the library's, and not have been called with `data` before.
pub(super) unsafe fn give(done: InfoDone, data: *mut c_void, status: Status, infos: Infos) {
    let mut infos = Box::new(infos);
    let (array, count) = infos.raw();
    let array = if count == 0 { ptr::null_mut() } else { array };
    let kept = Box::into_raw(infos).cast::<c_void>();
    // SAFETY: as the caller says. The attributes live until the library calls `drop_infos`, once.
    unsafe { done(status, array, count, data, Some(drop_infos as Release), kept) };
}

unsafe extern "C" fn drop_bytes(kept: *mut c_void) {
    // SAFETY: made by `Box::into_raw` of this type, and given back once.
    drop(unsafe { Box::from_raw(kept.cast::<Vec<u8>>()) });
}

unsafe extern "C" fn drop_infos(kept: *mut c_void) {
    // SAFETY: made by `Box::into_raw` of this type, and given back once.
    drop(unsafe { Box::from_raw(kept.cast::<Infos>()) });
}

/// Attribute that marks an event which a task of this node gave to the library; on other nodes it has to be unmarked.
const HEARD_HERE: &CStr = c"pmix.srvr.internal.notify";

/// Queue between the library's thread and the host.
pub(super) struct Inbox {
    pub(super) bell: OwnedFd,
    pub(super) nspace: CString,
    local: Vec<u32>,
    packing: (Pack, Unpack),
    queue: Mutex<Vec<Upcall>>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("nspace", &self.nspace).finish_non_exhaustive()
    }
}

static INBOX: OnceLock<Inbox> = OnceLock::new();

/// Returns the queue of this process, if it has one.
pub(super) fn inbox() -> Option<&'static Inbox> {
    INBOX.get()
}

impl Inbox {
    pub(super) fn install(
        bell: OwnedFd,
        nspace: CString,
        local: Vec<u32>,
        packing: (Pack, Unpack),
    ) -> Result<&'static Self, String> {
        let inbox = Self { bell, nspace, local, packing, queue: Mutex::default() };
        INBOX.set(inbox).map_err(|_| "libpmix can be started once in a process".to_owned())?;
        INBOX.get().ok_or_else(|| "libpmix has no queue".to_owned())
    }

    pub(super) fn put(&self, upcall: Upcall) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(upcall);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> Vec<Upcall> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Encodes an attribute as bytes that any server of this version can decode. None: the library can't encode it.
    ///
    /// # Safety
    /// The attribute must be valid.
    unsafe fn pack(&self, info: &Info) -> Option<Vec<u8>> {
        let mut buffer = empty();
        // SAFETY: all pointers are valid for the call; the buffer is the library's, in memory of malloc, and then ours.
        unsafe {
            let status = (self.packing.0)(ptr::null(), &raw mut buffer, ptr::from_ref(info).cast(), 1, INFO);
            let bytes = (status == SUCCESS && !buffer.base.is_null())
                .then(|| std::slice::from_raw_parts(buffer.base.cast::<u8>(), buffer.used).to_vec());
            libc::free(buffer.base.cast());
            bytes
        }
    }

    /// Decodes what `pack` has encoded; None: the bytes are invalid. The memory to which the attribute points is never
    /// freed.
    ///
    /// # Safety
    /// The bytes must have been made by `pack`.
    pub(super) unsafe fn unpack(&self, bytes: &[u8]) -> Option<Info> {
        let base: *mut c_char = bytes.as_ptr().cast_mut().cast();
        let used = bytes.len();
        let mut buffer = Buffer { base, pack: base.wrapping_add(used), unpack: base, allocated: used, used };
        let mut info = MaybeUninit::<Info>::zeroed();
        let mut count = 1;
        // SAFETY: all pointers are valid for the call, which only reads the buffer and fills the attribute.
        unsafe {
            let to = info.as_mut_ptr().cast();
            let status = (self.packing.1)(ptr::null(), &raw mut buffer, to, &raw mut count, INFO);
            (status == SUCCESS && count == 1).then(|| info.assume_init())
        }
    }

    /// Returns the participants. None: one is of another namespace.
    ///
    /// # Safety
    /// `procs` must point to `count` entries.
    pub(super) unsafe fn asked(&self, procs: *const Proc, count: usize) -> Option<Asked> {
        let mut ranks = IndexSet::new();
        for at in 0..count {
            // SAFETY: `at` is below the count.
            let proc = unsafe { &*procs.add(at) };
            match proc.rank {
                _ if !proc.is_of(&self.nspace) => return None,
                RANK_WILDCARD => return Some(Asked::All),
                RANK_LOCAL_NODE => {
                    for &rank in &self.local {
                        ranks.insert(rank);
                    }
                }
                rank => {
                    ranks.insert(rank);
                }
            }
        }
        Some(Asked::Some(ranks))
    }
}

fn empty() -> Buffer {
    Buffer { base: ptr::null_mut(), pack: ptr::null_mut(), unpack: ptr::null_mut(), allocated: 0, used: 0 }
}

/// Returns the callbacks that this host offers.
pub(super) fn module() -> Module {
    Module {
        client_connected: None,
        client_finalized: Some(client_finalized),
        abort: Some(abort),
        fence: Some(fence),
        direct_modex: Some(direct_modex),
        publish: Some(publish),
        lookup: Some(lookup),
        unpublish: Some(unpublish),
        spawn: Some(service::spawn),
        connect: Some(connect),
        disconnect: Some(disconnect),
        register_events: Some(register_events),
        deregister_events: Some(deregister_events),
        listener: None,
        notify_event: Some(notify_event),
        query: Some(service::query),
        tool_connected: None,
        log: Some(service::log),
        allocate: None,
        job_control: Some(service::job_control),
        monitor: None,
        get_credential: None,
        validate_credential: None,
        iof_pull: None,
        push_stdin: None,
        group: Some(group),
        fabric: None,
        client_connected2: Some(client_connected),
        later: [0; 8],
    }
}

unsafe extern "C" fn client_connected(
    proc: *const Proc,
    _object: *mut c_void,
    _infos: *mut Info,
    _count: usize,
    _done: Option<OpDone>,
    _data: *mut c_void,
) -> Status {
    let Some(inbox) = inbox() else { return ERROR };
    // SAFETY: the library gives a valid process.
    inbox.put(Upcall::Connected(unsafe { (*proc).rank }));
    OPERATION_SUCCEEDED
}

unsafe extern "C" fn client_finalized(
    proc: *const Proc,
    _object: *mut c_void,
    _done: Option<OpDone>,
    _data: *mut c_void,
) -> Status {
    let Some(inbox) = inbox() else { return ERROR };
    // SAFETY: the library gives a valid process.
    inbox.put(Upcall::Finalized(unsafe { (*proc).rank }));
    OPERATION_SUCCEEDED
}

unsafe extern "C" fn abort(
    proc: *const Proc,
    _object: *mut c_void,
    code: c_int,
    text: *const c_char,
    _procs: *mut Proc,
    _count: usize,
    done: Option<OpDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives a valid process, and no text or one ended by NUL.
    let (rank, text) = unsafe {
        let text = if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() };
        ((*proc).rank, text)
    };
    inbox.put(Upcall::Abort { rank, code, text, reply: DoneReply(done, data) });
    SUCCESS
}

unsafe extern "C" fn fence(
    procs: *const Proc,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    bytes: *mut c_char,
    length: usize,
    done: Option<ModexDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: `procs` has `count` entries; the bytes are ours from now on, made by malloc.
    let (asked, brought) = unsafe {
        let brought = if bytes.is_null() || length == 0 {
            Vec::new()
        } else {
            std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec()
        };
        libc::free(bytes.cast());
        (inbox.asked(procs, count), brought)
    };
    let Some(asked) = asked else { return ERR_NOT_SUPPORTED };
    inbox.put(Upcall::Fence { asked, data: brought, reply: ModexReply(done, data) });
    SUCCESS
}

unsafe extern "C" fn direct_modex(
    proc: *const Proc,
    _infos: *const Info,
    _count: usize,
    done: Option<ModexDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives a valid process.
    let proc = unsafe { &*proc };
    if !proc.is_of(&inbox.nspace) {
        return ERR_NOT_FOUND;
    }
    inbox.put(Upcall::Ask { rank: proc.rank, reply: ModexReply(done, data) });
    SUCCESS
}

/// Receives the answer to a `dmodex_request`; the bytes remain the library's.
pub(super) unsafe extern "C" fn answered(status: Status, bytes: *mut c_char, length: usize, ticket: *mut c_void) {
    let Some(inbox) = inbox() else { return };
    let data = (status == SUCCESS).then(|| {
        if bytes.is_null() || length == 0 {
            return Vec::new();
        }
        // SAFETY: the library gives that many bytes, valid during this call.
        unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec() }
    });
    inbox.put(Upcall::Published { ticket: ticket as u64, data });
}

/// Queues a call of `PMIx_Connect`, or (not `on`) of `PMIx_Disconnect`.
///
/// # Safety
/// `procs` must point to `count` entries.
unsafe fn connects(on: bool, procs: *const Proc, count: usize, done: Option<OpDone>, data: *mut c_void) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: as the caller says.
    let Some(asked) = (unsafe { inbox.asked(procs, count) }) else { return ERR_NOT_SUPPORTED };
    inbox.put(Upcall::Connect { on, asked, reply: DoneReply(done, data) });
    SUCCESS
}

unsafe extern "C" fn connect(
    procs: *const Proc,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    done: Option<OpDone>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives that many entries.
    unsafe { connects(true, procs, count, done, data) }
}

unsafe extern "C" fn disconnect(
    procs: *const Proc,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    done: Option<OpDone>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives that many entries.
    unsafe { connects(false, procs, count, done, data) }
}

unsafe extern "C" fn group(
    operation: c_int,
    name: *const c_char,
    procs: *const Proc,
    count: usize,
    infos: *const Info,
    info_count: usize,
    done: Option<InfoDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives a name ended by NUL and that many processes and attributes, valid during this call.
    let (name, asked, infos) = unsafe {
        let infos = if infos.is_null() { &[] } else { std::slice::from_raw_parts(infos, info_count) };
        (CStr::from_ptr(name).to_string_lossy().into_owned(), inbox.asked(procs, count), infos)
    };
    let Some(asked) = asked else { return ERR_NOT_SUPPORTED };
    let numbered = infos.iter().any(|info| info.is(c"pmix.grp.actxid") && info.flag());
    let brought = infos.iter().find(|info| info.is(c"pmix.grp.endpt")).and_then(Info::bytes);
    // SAFETY: a byte object of an attribute that is valid during this call.
    let brought = brought.map(|(at, length)| unsafe { std::slice::from_raw_parts(at, length) }.to_vec());
    let (data_brought, reply) = (brought.unwrap_or_default(), GroupReply(done, data));
    inbox.put(Upcall::Group { on: operation == 0, name, asked, data: data_brought, numbered, reply });
    SUCCESS
}

unsafe extern "C" fn publish(
    proc: *const Proc,
    infos: *const Info,
    count: usize,
    done: Option<OpDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives a valid process and that many attributes. Those of its own tell how to publish.
    let (rank, values) = unsafe {
        let infos = if infos.is_null() { &[] } else { std::slice::from_raw_parts(infos, count) };
        let own = infos.iter().filter(|info| !info.key().starts_with("pmix."));
        ((*proc).rank, own.map(|info| Some((info.key(), inbox.pack(info)?))).collect::<Option<Vec<_>>>())
    };
    let Some(values) = values else { return ERR_NOT_SUPPORTED };
    inbox.put(Upcall::Publish { rank, values, reply: DoneReply(done, data) });
    SUCCESS
}

/// Returns the strings of an array that ends with null.
///
/// # Safety
/// `keys` must be null or an array of strings that ends with null.
pub(super) unsafe fn names(keys: *const *const c_char) -> Vec<String> {
    let mut names = Vec::new();
    if keys.is_null() {
        return names;
    }
    for at in 0.. {
        // SAFETY: no entry before this one was the last.
        let name = unsafe {
            let name = *keys.add(at);
            if name.is_null() {
                break;
            }
            CStr::from_ptr(name)
        };
        names.push(name.to_string_lossy().into_owned());
    }
    names
}

unsafe extern "C" fn lookup(
    _proc: *const Proc,
    keys: *const *const c_char,
    infos: *const Info,
    count: usize,
    done: Option<LookupDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives names as `names` wants them, and that many attributes.
    let (keys, wait) = unsafe {
        let infos = if infos.is_null() { &[] } else { std::slice::from_raw_parts(infos, count) };
        (names(keys), infos.iter().any(|info| info.is(c"pmix.wait")))
    };
    let reply = LookupReply(done, data, keys.len());
    inbox.put(Upcall::Lookup { keys, wait, reply });
    SUCCESS
}

unsafe extern "C" fn unpublish(
    proc: *const Proc,
    keys: *const *const c_char,
    _infos: *const Info,
    _count: usize,
    done: Option<OpDone>,
    data: *mut c_void,
) -> Status {
    let (Some(inbox), Some(done)) = (inbox(), done) else { return ERROR };
    // SAFETY: the library gives a valid process, and names as `names` wants them.
    let (rank, keys) = unsafe { ((*proc).rank, names(keys)) };
    inbox.put(Upcall::Unpublish { rank, keys, reply: DoneReply(done, data) });
    SUCCESS
}

unsafe extern "C" fn register_events(
    _codes: *mut Status,
    _count: usize,
    _infos: *const Info,
    _info_count: usize,
    _done: Option<OpDone>,
    _data: *mut c_void,
) -> Status {
    OPERATION_SUCCEEDED
}

unsafe extern "C" fn deregister_events(
    _codes: *mut Status,
    _count: usize,
    _done: Option<OpDone>,
    _data: *mut c_void,
) -> Status {
    OPERATION_SUCCEEDED
}

/// Receives an event of a task. The library itself has notified the receivers on this node.
unsafe extern "C" fn notify_event(
    code: Status,
    source: *const Proc,
    range: u8,
    infos: *mut Info,
    count: usize,
    _done: Option<OpDone>,
    _data: *mut c_void,
) -> Status {
    let Some(inbox) = inbox() else { return ERROR };
    // SAFETY: the library gives no process or a valid one, and that many attributes, valid during this call.
    let (source, infos) = unsafe {
        let infos = if infos.is_null() { &[] } else { std::slice::from_raw_parts(infos.cast_const(), count) };
        (source.as_ref().filter(|source| source.is_of(&inbox.nspace)), infos)
    };
    if let Some(source) = source.filter(|_| !RANGES_HERE.contains(&range)) {
        let passed = infos.iter().filter(|info| !info.is(HEARD_HERE));
        // SAFETY: as above.
        let details = passed.filter_map(|info| unsafe { inbox.pack(info) }).collect();
        inbox.put(Upcall::Event(Event { code, source: source.rank, range, details }));
    }
    OPERATION_SUCCEEDED
}
