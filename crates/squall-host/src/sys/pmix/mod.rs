//! libpmix as a server, loaded when needed. It runs a thread of its own. Its requests to the host go into a queue, of
//! which an event descriptor (bell) notifies the host, and may be answered from any thread.
//!
//! libpmix allows one server per process, started once.

mod abi;
mod service;
mod upcall;

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::ptr;

use abi::{Calls, Infos, Proc, Status};
pub(crate) use service::Known;
pub(crate) use upcall::{Asked, DoneReply, Event, GroupReply, LookupReply, ModexReply, Upcall, Verdict};
use upcall::{Inbox, answered, module};

use super::hwloc;

/// File name of libpmix.
const LIBRARY: &CStr = c"libpmix.so.2";

/// Environment variables under which the library runs in this process. Job data is sent to each task when it connects
/// (`hash`), so there are no files in shared memory to be removed. Text logged by tasks goes to their user, not to the
/// step daemon's standard error. And the server does not need the topology: to discover it would take most of
/// the server's start.
const OWN_ENVIRONMENT: [(&str, &str); 4] = [
    ("PMIX_MCA_gds", "hash"),
    ("PMIX_MCA_plog", "default"),
    // Tasks in containers have other user ids there than here. Only the step's own user reaches the server anyway.
    ("PMIX_MCA_psec", "native,none"),
    ("HWLOC_SYNTHETIC", "pu:1"),
];

/// Exit status of a step daemon that has ended normally and needed libpmix. The zygote then loads the library in
/// advance for the next step.
pub(crate) const WANTED: u8 = 3;

/// Loads the library, and detects the hardware, so that copies of this process need not. Starts no server. Must be
/// called while the process has no other thread.
pub(crate) fn warm() {
    // A missing library is reported when it is needed.
    drop(load());
    hwloc::machine();
}

/// Description of a step for the library.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Name of the PMIx namespace.
    pub(crate) nspace: String,
    /// Id of the step, in the form `JOB.STEP`.
    pub(crate) id: String,
    /// Names of the step's nodes.
    pub(crate) nodes: Vec<String>,
    /// Ranks of the tasks on each node. Same length as `nodes`.
    pub(crate) ranks: Vec<Vec<u32>>,
    /// Index of this node in `nodes`.
    pub(crate) here: u32,
    /// Number of slots (CPUs) of the whole allocation.
    pub(crate) universe: u32,
    /// Folder that the tasks of this node share.
    pub(crate) folder: String,
    /// User id of the tasks.
    pub(crate) uid: u32,
    /// Group id of the tasks.
    pub(crate) gid: u32,
}

/// The running PMIx server of this process.
#[derive(Debug)]
pub(crate) struct Server {
    calls: CallsBox,
    nspace: CString,
    inbox: &'static Inbox,
}

/// Wrapper of the function pointers, for `Debug`.
struct CallsBox(Calls);

impl std::fmt::Debug for CallsBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libpmix")
    }
}

impl Server {
    /// Loads the library and starts the server, which accepts connections from `door`. Err: what is missing. Must be
    /// called while the process has few descriptors (the library's `select` is limited to 1024) and no other thread.
    pub(crate) fn start(job: &Job, door: &UnixListener) -> Result<Self, String> {
        let calls = load()?;
        // Called before `HWLOC_SYNTHETIC` hides the hardware.
        hwloc::machine();
        for (name, value) in OWN_ENVIRONMENT {
            // SAFETY: the caller has no other thread that could read the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
        let nspace = CString::new(job.nspace.as_str()).map_err(|e| e.to_string())?;
        let bell =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK);
        let local = job.ranks.get(job.here as usize).cloned().unwrap_or_default();
        let inbox = Inbox::install(
            bell.map_err(|e| e.to_string())?,
            nspace.clone(),
            local.clone(),
            (calls.pack, calls.unpack),
        )?;
        let server = Self { calls: CallsBox(calls), nspace, inbox };
        let before = listeners();
        server.init(job)?;
        let theirs = listeners().into_iter().find(|fd| !before.contains(fd));
        theirs
            .ok_or_else(|| "it has no TCP socket".to_owned())
            .and_then(|fd| replace(fd, door).map_err(|e| e.to_string()))
            .map_err(|e| format!("{} does not listen: {e}", server.version()))?;
        server.register(job, &local)?;
        Ok(server)
    }

    /// Returns the library's version text.
    pub(crate) fn version(&self) -> String {
        // SAFETY: the call takes nothing and gives a static string.
        let version = unsafe { CStr::from_ptr((self.calls.0.version)()) };
        version.to_string_lossy().into_owned()
    }

    fn init(&self, job: &Job) -> Result<(), String> {
        let mut infos = Infos::default();
        let node = job.nodes.get(job.here as usize).map(String::as_str).unwrap_or_default();
        infos.text(c"pmix.srvr.tmpdir", &job.folder);
        infos.text(c"pmix.sys.tmpdir", &job.folder);
        infos.text(c"pmix.hname", node);
        infos.number(c"pmix.nodeid", job.here);
        infos.text(c"pmix.srv.nspace", &format!("{}.stepd", job.nspace));
        infos.rank(c"pmix.srv.rank", job.here);
        // The library copies the entries, but nothing to which they point.
        let module = Box::leak(Box::new(module()));
        let (array, count) = infos.raw();
        // SAFETY: module and attributes are valid for the call; the module's functions are those of `upcall`, which may be
        // called from any thread at any time from now on.
        check("PMIx_server_init", unsafe { (self.calls.0.server_init)(module, array, count) })
    }

    fn register(&self, job: &Job, local: &[u32]) -> Result<(), String> {
        let mut infos = self.describe(job, local)?;
        let (array, count) = infos.raw();
        let nspace = Proc::new(&self.nspace, 0).nspace;
        // SAFETY: all pointers are valid for the call, which without a callback has done all when it returns.
        let status = unsafe {
            (self.calls.0.register_nspace)(nspace.as_ptr(), local.len() as i32, array, count, None, ptr::null_mut())
        };
        check("PMIx_server_register_nspace", status)?;
        for &rank in local {
            let proc = Proc::new(&self.nspace, rank);
            // SAFETY: as above.
            let status = unsafe {
                (self.calls.0.register_client)(
                    &raw const proc,
                    job.uid,
                    job.gid,
                    ptr::null_mut(),
                    None,
                    ptr::null_mut(),
                )
            };
            check("PMIx_server_register_client", status)?;
        }
        Ok(())
    }

    /// Returns all attributes of the step that tasks get.
    fn describe(&self, job: &Job, local: &[u32]) -> Result<Infos, String> {
        let size: usize = job.ranks.iter().map(Vec::len).sum();
        let size = u32::try_from(size).map_err(|e| e.to_string())?;
        let joined = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let nodes = generate(self.calls.0.generate_regex, &job.nodes.join(","))?;
        let ranks: Vec<String> = job.ranks.iter().map(|ranks| joined(ranks)).collect();
        let ranks = generate(self.calls.0.generate_ppn, &ranks.join(";"))?;
        let mut infos = Infos::default();
        infos.text(c"pmix.nmap", &nodes);
        infos.text(c"pmix.pmap", &ranks);
        infos.text(c"pmix.jobid", &job.id);
        infos.number(c"pmix.univ.size", job.universe.max(size));
        for key in [c"pmix.job.size", c"pmix.max.size", c"pmix.app.size"] {
            infos.number(key, size);
        }
        infos.number(c"pmix.job.napps", 1);
        infos.number(c"pmix.num.nodes", job.nodes.len() as u32);
        for key in [c"pmix.local.size", c"pmix.node.size"] {
            infos.number(key, local.len() as u32);
        }
        infos.number(c"pmix.nodeid", job.here);
        infos.text(c"pmix.lpeers", &joined(local));
        infos.rank(c"pmix.lldr", local.first().copied().unwrap_or(0));
        infos.text(c"pmix.tmpdir", &job.folder);
        infos.text(c"pmix.nsdir", &job.folder);
        if let Some(machine) = hwloc::machine() {
            infos.text(c"pmix.hwlocxml2", machine);
        }
        infos.yes_or_no(c"pmix.tdir.rmclean", true);
        infos.yes_or_no(c"pmix.spawned", false);
        for (place, ranks) in job.ranks.iter().enumerate() {
            for (at, &rank) in ranks.iter().enumerate() {
                let mut proc = Infos::default();
                proc.rank(c"pmix.rank", rank);
                proc.number(c"pmix.appnum", 0);
                for key in [c"pmix.grank", c"pmix.apprank"] {
                    proc.rank(key, rank);
                }
                proc.rank(c"pmix.aldr", 0);
                proc.short(c"pmix.lrank", at as u16);
                proc.short(c"pmix.nrank", at as u16);
                proc.text(c"pmix.hname", &job.nodes[place]);
                proc.number(c"pmix.nodeid", place as u32);
                proc.number(c"pmix.reinc", 0);
                infos.array(c"pmix.pdata", proc);
            }
        }
        Ok(infos)
    }

    /// Returns a descriptor that is readable when `take` has something.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.inbox.bell.as_fd()
    }

    /// Takes the library's pending requests.
    pub(crate) fn take(&self) -> Vec<Upcall> {
        self.inbox.take()
    }

    /// Passes an event of a rank on another node to the tasks of this node.
    pub(crate) fn notify(&self, event: &Event) {
        let source = Proc::new(&self.nspace, event.source);
        // SAFETY: packed by the library of a step daemon of the same step; it refuses what it does not understand.
        let infos = event.details.iter().filter_map(|packed| unsafe { self.inbox.unpack(packed) });
        let infos: Vec<abi::Info> = infos.collect();
        // SAFETY: all pointers are valid for the call, which copies what they point to; nothing waits for its end.
        unsafe {
            let (code, range) = (event.code, event.range);
            (self.calls.0.notify)(code, &raw const source, range, infos.as_ptr(), infos.len(), None, ptr::null_mut());
        }
    }

    /// Asks the library for the data that a rank here has published; it arrives as `Upcall::Published`, once it is
    /// published.
    pub(crate) fn publish_of(&self, rank: u32, ticket: u64) {
        let proc = Proc::new(&self.nspace, rank);
        // SAFETY: the process is valid for the call; the callback takes the ticket, which is no pointer.
        let status = unsafe { (self.calls.0.dmodex_request)(&raw const proc, answered, ticket as *mut c_void) };
        if status != abi::SUCCESS {
            self.inbox.put(Upcall::Published { ticket, data: None });
        }
    }
}

/// Encodes a list of nodes or ranks in the library's own form.
fn generate(
    call: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    list: &str,
) -> Result<String, String> {
    let list = CString::new(list).map_err(|e| e.to_string())?;
    let mut made: *mut c_char = ptr::null_mut();
    // SAFETY: both pointers are valid for the call.
    check("PMIx_generate_regex", unsafe { call(list.as_ptr(), &raw mut made) })?;
    if made.is_null() {
        return Err("PMIx_generate_regex made nothing".to_owned());
    }
    // SAFETY: the library has given us a string of its own making, ended by NUL, from malloc.
    unsafe {
        let text = CStr::from_ptr(made).to_string_lossy().into_owned();
        libc::free(made.cast());
        Ok(text)
    }
}

/// Has the library accept connections from `door` instead of its own TCP socket, which every user of the machine can
/// reach.
fn replace(theirs: i32, door: &UnixListener) -> io::Result<()> {
    // SAFETY: the descriptor is open: it was found among this process's own, and the library keeps it for good.
    let theirs = unsafe { BorrowedFd::borrow_raw(theirs) };
    let before = TcpListener::from(rustix::io::fcntl_dupfd_cloexec(theirs, 3)?);
    // SAFETY: takes integers. The library's number now means our socket; `before` keeps the old one alive.
    if unsafe { libc::dup3(door.as_raw_fd(), theirs.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // The library's thread may still wait for the old socket: this connection wakes it.
    let address = before.local_addr()?;
    drop(TcpStream::connect(address));
    hang_up(address);
    Ok(())
}

/// Ends the connections that the library has already accepted on its own socket: it would wait for what they say.
fn hang_up(address: SocketAddr) {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    for fd in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        // SAFETY: a descriptor that was closed since, or means something else now, gives an error or is left out.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let local = rustix::net::getsockname(fd).ok().and_then(|local| SocketAddr::try_from(local).ok());
        if local == Some(address) {
            // The listening socket itself is closed by the caller.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
        }
    }
}

fn check(call: &str, status: Status) -> Result<(), String> {
    match status {
        abi::SUCCESS | abi::OPERATION_SUCCEEDED => Ok(()),
        status => Err(format!("{call} failed with {status}")),
    }
}

/// Returns the TCP sockets on which this process listens.
fn listeners() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let listens = |fd: &i32| {
        // SAFETY: a descriptor that was closed since gives an error; none is touched.
        let borrowed = unsafe { BorrowedFd::borrow_raw(*fd) };
        rustix::net::sockopt::socket_acceptconn(borrowed) == Ok(true)
            && rustix::net::sockopt::socket_domain(borrowed) == Ok(rustix::net::AddressFamily::INET)
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(listens).collect()
}

/// Number of a socket option: longest delay of acknowledgements, microseconds (Linux 6.15; see tcp.h).
const TCP_DELACK_MAX_US: i32 = 46;

/// Shortens the delay of acknowledgements on connections of this listener, if the kernel can.
pub(crate) fn acknowledge_soon(socket: &TcpListener) {
    let most: i32 = 8000;
    // SAFETY: the option's value is an integer, valid for the call. An error changes nothing.
    unsafe {
        let length = size_of::<i32>() as u32;
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_DELACK_MAX_US, (&raw const most).cast(), length);
    }
}

fn load() -> Result<Calls, String> {
    // SAFETY: the library's initialisers run; they are made to be run in any process. It is never unloaded.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
    if library.is_null() {
        return Err(loader_error());
    }
    // SAFETY: each name has had this signature since version 4.0 of the library (2.0 most of them).
    unsafe {
        Ok(Calls {
            version: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(symbol(
                library,
                c"PMIx_Get_version",
            )?),
            server_init: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut abi::Module, *mut abi::Info, usize) -> Status,
            >(symbol(library, c"PMIx_server_init")?),
            register_nspace: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(
                    *const c_char,
                    i32,
                    *mut abi::Info,
                    usize,
                    Option<abi::OpDone>,
                    *mut c_void,
                ) -> Status,
            >(symbol(library, c"PMIx_server_register_nspace")?),
            register_client: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const Proc, u32, u32, *mut c_void, Option<abi::OpDone>, *mut c_void) -> Status,
            >(symbol(library, c"PMIx_server_register_client")?),
            dmodex_request: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const Proc, abi::ModexAnswer, *mut c_void) -> Status,
            >(symbol(library, c"PMIx_server_dmodex_request")?),
            notify: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(
                    Status,
                    *const Proc,
                    u8,
                    *const abi::Info,
                    usize,
                    Option<abi::OpDone>,
                    *mut c_void,
                ) -> Status,
            >(symbol(library, c"PMIx_Notify_event")?),
            pack: std::mem::transmute::<*mut c_void, abi::Pack>(symbol(library, c"PMIx_Data_pack")?),
            unpack: std::mem::transmute::<*mut c_void, abi::Unpack>(symbol(library, c"PMIx_Data_unpack")?),
            generate_regex: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
            >(symbol(library, c"PMIx_generate_regex")?),
            generate_ppn: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
            >(symbol(library, c"PMIx_generate_ppn")?),
        })
    }
}

/// Returns the address of a symbol of the library. Err: the loader's message.
///
/// # Safety
/// `library` must be a handle of `dlopen`.
unsafe fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is valid, the name ends with NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(loader_error()) } else { Ok(found) }
}

fn loader_error() -> String {
    // SAFETY: gives NULL or a string that stays until the next call of this thread.
    unsafe {
        let error = libc::dlerror();
        if error.is_null() { "unknown".to_owned() } else { CStr::from_ptr(error).to_string_lossy().into_owned() }
    }
}
