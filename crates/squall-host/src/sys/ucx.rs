//! UCX, loaded when needed: tagged messages between workers that have each other's addresses, driven by a descriptor
//! that can be polled. Used by one thread.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

/// File name of UCX's library.
const LIBRARY: &CStr = c"libucp.so.0";

/// Version of the library's interface that this module uses.
const MAJOR: c_uint = 1;
const MINOR: c_uint = 10;

/// Environment variables that keep the library from catching signals, hooking memory and writing to this process's
/// standard error.
const OWN_ENVIRONMENT: [(&str, &str); 4] =
    [("UCX_HANDLE_ERRORS", "none"), ("UCX_ERROR_SIGNALS", ""), ("UCX_MEM_EVENTS", "no"), ("UCX_LOG_LEVEL", "fatal")];

const FIELD_FEATURES: u64 = 1;
const FEATURE_TAG: u64 = 1;
const FEATURE_WAKEUP: u64 = 16;
const FIELD_THREAD_MODE: u64 = 1;
const FIELD_REMOTE_ADDRESS: u64 = 1;
const OK: c_int = 0;
const IN_PROGRESS: c_int = 1;
const BUSY: c_int = -15;

/// Time of polling after something was received: less than falling asleep and being woken takes.
const SPIN: Duration = Duration::from_micros(15);

type Handle = *mut c_void;

/// Parameters of a library call, as 64-bit words. The first word tells by its bits which others are set. There are more
/// words than any version of the library reads.
type Params = [u64; 64];

/// Tag and length of a received message.
#[repr(C)]
#[derive(Default)]
struct Info {
    tag: u64,
    length: usize,
}

type Init = unsafe extern "C" fn(c_uint, c_uint, *const Params, Handle, *mut Handle) -> c_int;
type WorkerCreate = unsafe extern "C" fn(Handle, *const Params, *mut Handle) -> c_int;
type GetAddress = unsafe extern "C" fn(Handle, *mut *mut u8, *mut usize) -> c_int;
type GetEfd = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Arm = unsafe extern "C" fn(Handle) -> c_int;
type Progress = unsafe extern "C" fn(Handle) -> c_uint;
type EpCreate = unsafe extern "C" fn(Handle, *const Params, *mut Handle) -> c_int;
type SendTagged = unsafe extern "C" fn(Handle, *const u8, usize, u64, *const Params) -> Handle;
type Probe = unsafe extern "C" fn(Handle, u64, u64, c_int, *mut Info) -> Handle;
type Receive = unsafe extern "C" fn(Handle, *mut u8, usize, Handle, *const Params) -> Handle;
type Check = unsafe extern "C" fn(Handle) -> c_int;
type Free = unsafe extern "C" fn(Handle);

struct Calls {
    init: Init,
    worker_create: WorkerCreate,
    get_address: GetAddress,
    get_efd: GetEfd,
    arm: Arm,
    progress: Progress,
    ep_create: EpCreate,
    send: SendTagged,
    probe: Probe,
    receive: Receive,
    check: Check,
    free: Free,
}

/// This process's UCX worker. It stays open until the process ends, without notice to the library.
pub(crate) struct Worker {
    calls: Calls,
    handle: Handle,
    fd: RawFd,
    address: Vec<u8>,
    /// Messages being sent: their bytes are still read by the library.
    sending: Vec<(Handle, Vec<u8>)>,
    /// Messages being received: request, tag, and the buffer to which the library still writes.
    receiving: Vec<(Handle, u64, Vec<u8>)>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// A connection to another worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(Handle);

/// Converts a returned request handle. None: the request is complete already. Err: the library's error number.
fn request(handle: Handle) -> Result<Option<Handle>, i32> {
    match handle as isize {
        0 => Ok(None),
        error @ -99..0 => Err(error as i32),
        _ => Ok(Some(handle)),
    }
}

impl Worker {
    /// Loads the library and starts a worker; `settings` are the user's `UCX_…` variables. Err: what is missing. Must
    /// be called while the process has no other thread.
    pub(crate) fn start(settings: &[(String, String)]) -> Result<Self, String> {
        let calls = load()?;
        let settings = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in settings.chain(OWN_ENVIRONMENT) {
            // SAFETY: the caller has no other thread that could read the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
        let mut params: Params = [0; 64];
        (params[0], params[1]) = (FIELD_FEATURES, FEATURE_TAG | FEATURE_WAKEUP);
        let (mut context, mut worker) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: parameters and room for handles are valid for the calls. No configuration: the library reads its own.
        unsafe {
            check("ucp_init", (calls.init)(MAJOR, MINOR, &raw const params, ptr::null_mut(), &raw mut context))?;
            params = [0; 64];
            params[0] = FIELD_THREAD_MODE;
            check("ucp_worker_create", (calls.worker_create)(context, &raw const params, &raw mut worker))?;
        }
        let (mut at, mut length, mut fd) = (ptr::null_mut(), 0, -1);
        // SAFETY: the worker is valid; the library gives that many bytes, which stay until they are given back: never.
        let address = unsafe {
            check("ucp_worker_get_address", (calls.get_address)(worker, &raw mut at, &raw mut length))?;
            check("ucp_worker_get_efd", (calls.get_efd)(worker, &raw mut fd))?;
            std::slice::from_raw_parts(at, length).to_vec()
        };
        Ok(Self { calls, handle: worker, fd, address, sending: Vec::new(), receiving: Vec::new() })
    }

    /// Returns the worker's address, with which others can `connect`.
    pub(crate) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Returns a descriptor that is readable when `take` has something, provided that its last call returned nothing.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the worker's own descriptor, open as long as it is: for good.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    /// Connects to another worker, given the address that it has returned.
    pub(crate) fn connect(&self, address: &[u8]) -> Result<Peer, String> {
        let mut params: Params = [0; 64];
        (params[0], params[1]) = (FIELD_REMOTE_ADDRESS, address.as_ptr() as u64);
        let mut peer = ptr::null_mut();
        // SAFETY: parameters and address are valid for the call, which copies what it needs.
        check("ucp_ep_create", unsafe { (self.calls.ep_create)(self.handle, &raw const params, &raw mut peer) })?;
        Ok(Peer(peer))
    }

    /// Starts sending a message; calls of `take` continue it.
    pub(crate) fn send(&mut self, peer: Peer, tag: u64, bytes: Vec<u8>) -> Result<(), String> {
        let params: Params = [0; 64];
        // SAFETY: the bytes stay where they are until the library is done with them: they are kept with the request.
        let sent = unsafe { (self.calls.send)(peer.0, bytes.as_ptr(), bytes.len(), tag, &raw const params) };
        let pending = request(sent).map_err(|status| format!("ucp_tag_send_nbx failed with {status}"))?;
        self.sending.extend(pending.map(|request| (request, bytes)));
        Ok(())
    }

    /// Whether all messages were sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.sending.is_empty()
    }

    /// Takes the received messages with their tags. Messages with a tag other than `tag` under `mask` are dropped.
    /// If nothing is returned, the descriptor reports the next ones.
    pub(crate) fn take(&mut self, tag: u64, mask: u64) -> Vec<(u64, Vec<u8>)> {
        let mut taken = Vec::new();
        let until = Instant::now() + SPIN;
        loop {
            // SAFETY: the worker is valid, and this is the only thread that uses it.
            while unsafe { (self.calls.progress)(self.handle) } > 0 {}
            self.collect(tag, mask, &mut taken);
            if !taken.is_empty() {
                return taken;
            }
            // SAFETY: as above.
            if Instant::now() >= until && unsafe { (self.calls.arm)(self.handle) } != BUSY {
                return taken;
            }
        }
    }

    fn collect(&mut self, tag: u64, mask: u64, taken: &mut Vec<(u64, Vec<u8>)>) {
        let params: Params = [0; 64];
        loop {
            let mut info = Info::default();
            // SAFETY: the worker is valid, the room for what is known of the message too.
            let message = unsafe { (self.calls.probe)(self.handle, 0, 0, 1, &raw mut info) };
            if message.is_null() {
                break;
            }
            let mut bytes = vec![0_u8; info.length];
            // SAFETY: the message was taken out for this call; the bytes stay where they are until it is done.
            let received = unsafe {
                (self.calls.receive)(self.handle, bytes.as_mut_ptr(), bytes.len(), message, &raw const params)
            };
            match request(received) {
                Ok(None) => taken.push((info.tag, bytes)),
                Ok(Some(request)) => self.receiving.push((request, info.tag, bytes)),
                Err(_) => {}
            }
        }
        let calls = &self.calls;
        // SAFETY: requests that were not freed are valid; each is freed once, when the library is done with it.
        let over = |request: Handle| unsafe {
            let status = (calls.check)(request);
            (status != IN_PROGRESS).then(|| (calls.free)(request)).map(|()| status)
        };
        self.sending.retain(|(request, _)| over(*request).is_none());
        self.receiving.retain_mut(|(request, tag, bytes)| match over(*request) {
            None => true,
            Some(status) => {
                if status == OK {
                    taken.push((*tag, std::mem::take(bytes)));
                }
                false
            }
        });
        taken.retain(|(known, _)| known & mask == tag & mask);
    }
}

fn check(call: &str, status: c_int) -> Result<(), String> {
    if status == OK { Ok(()) } else { Err(format!("{call} failed with {status}")) }
}

fn load() -> Result<Calls, String> {
    // SAFETY: the library's initialisers run; they are made to be run in any process. It is never unloaded.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
    if library.is_null() {
        return Err("libucp.so.0 is not installed".to_owned());
    }
    let find = |name: &CStr| {
        // SAFETY: the handle is valid, the name ends with NUL.
        let found = unsafe { libc::dlsym(library, name.as_ptr().cast::<c_char>()) };
        if found.is_null() { Err(format!("libucp has no {}", name.to_string_lossy())) } else { Ok(found) }
    };
    macro_rules! call {
        ($name:literal, $kind:ty) => {
            // SAFETY: each name has had the signature of its field since version 1.10 of the library.
            unsafe { std::mem::transmute::<Handle, $kind>(find($name)?) }
        };
    }
    Ok(Calls {
        init: call!(c"ucp_init_version", Init),
        worker_create: call!(c"ucp_worker_create", WorkerCreate),
        get_address: call!(c"ucp_worker_get_address", GetAddress),
        get_efd: call!(c"ucp_worker_get_efd", GetEfd),
        arm: call!(c"ucp_worker_arm", Arm),
        progress: call!(c"ucp_worker_progress", Progress),
        ep_create: call!(c"ucp_ep_create", EpCreate),
        send: call!(c"ucp_tag_send_nbx", SendTagged),
        probe: call!(c"ucp_tag_probe_nb", Probe),
        receive: call!(c"ucp_tag_msg_recv_nbx", Receive),
        check: call!(c"ucp_request_check_status", Check),
        free: call!(c"ucp_request_free", Free),
    })
}
