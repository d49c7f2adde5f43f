//! Binary interface of libpmix, as far as a server needs it: versions 4.x, and 5.x, which has the same layouts.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// Size of the name of a namespace, NUL included, bytes.
pub(super) const NSPACE_BYTES: usize = 256;
/// Size of a key, NUL included, bytes.
const KEY_BYTES: usize = 512;

pub(super) type Status = c_int;
pub(super) const SUCCESS: Status = 0;
pub(super) const ERROR: Status = -1;
pub(super) const ERR_TIMEOUT: Status = -24;
pub(super) const ERR_UNREACH: Status = -25;
pub(super) const ERR_PARTIAL_SUCCESS: Status = -52;
pub(super) const ERR_DUPLICATE_KEY: Status = -53;
pub(super) const ERR_OUT_OF_RESOURCE: Status = -29;
pub(super) const ERR_NOT_FOUND: Status = -46;
pub(super) const ERR_NOT_SUPPORTED: Status = -47;
pub(super) const OPERATION_SUCCEEDED: Status = -157;

/// Ranges of an event that do not reach beyond the node.
pub(super) const RANGES_HERE: [u8; 3] = [RANGE_RM, RANGE_LOCAL, RANGE_PROC_LOCAL];
const RANGE_RM: u8 = 1;
const RANGE_LOCAL: u8 = 2;
const RANGE_PROC_LOCAL: u8 = 7;

pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
pub(super) const RANK_LOCAL_NODE: u32 = u32::MAX - 2;

const BOOL: u16 = 1;
const STRING: u16 = 3;
const SIZE: u16 = 4;
const UINT16: u16 = 13;
const UINT32: u16 = 14;
pub(super) const INFO: u16 = 24;
const BYTE_OBJECT: u16 = 27;
const DATA_ARRAY: u16 = 39;
const PROC_INFO: u16 = 38;
const PROC_RANK: u16 = 40;

/// State of a process that was started and has not ended.
const RUNNING: u8 = 5;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) nspace: [c_char; NSPACE_BYTES],
    pub(super) rank: u32,
}

impl Proc {
    pub(super) fn new(nspace: &CStr, rank: u32) -> Self {
        let mut proc = Self { nspace: [0; NSPACE_BYTES], rank };
        for (to, from) in proc.nspace[..NSPACE_BYTES - 1].iter_mut().zip(nspace.to_bytes()) {
            *to = *from as c_char;
        }
        proc
    }

    pub(super) fn is_of(&self, nspace: &CStr) -> bool {
        let name = self.nspace.iter().map(|&c| c as u8).take_while(|&c| c != 0);
        name.eq(nspace.to_bytes().iter().copied())
    }
}

/// A typed value; the largest member of its union has three words.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    kind: u16,
    data: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: Value,
}

impl Info {
    pub(super) fn is(&self, key: &CStr) -> bool {
        self.key.iter().map(|&c| c as u8).take_while(|&c| c != 0).eq(key.to_bytes().iter().copied())
    }

    /// Returns address and length of a byte object; None: the value is of another type. The value must be alive while
    /// they are used.
    pub(super) fn bytes(&self) -> Option<(*const u8, usize)> {
        let [at, length, _] = self.value.data;
        (self.value.kind == BYTE_OBJECT && at != 0).then_some((at as *const u8, length as usize))
    }

    pub(super) fn key(&self) -> String {
        let bytes: Vec<u8> = self.key.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns a string; None: the value is of another type. The value must be alive.
    pub(super) fn text(&self) -> Option<String> {
        let [at, ..] = self.value.data;
        if self.value.kind != STRING || at == 0 {
            return None;
        }
        // SAFETY: a string's value is a pointer to bytes that end with NUL, alive as the caller says.
        Some(unsafe { CStr::from_ptr(at as *const c_char) }.to_string_lossy().into_owned())
    }

    pub(super) fn flag(&self) -> bool {
        // A bool is in the first byte; an absent value means true.
        self.value.kind != BOOL || self.value.data[0].to_ne_bytes()[0] != 0
    }
}

/// A query of a program to its resource manager.
#[repr(C)]
pub(super) struct Query {
    /// The keys asked for; the list ends with null.
    pub(super) keys: *const *const c_char,
    /// Attributes that limit to what the query refers, such as a namespace.
    pub(super) qualifiers: *const Info,
    pub(super) count: usize,
}

/// An entry of PMIx's table of processes.
#[repr(C)]
struct ProcInfo {
    proc: Proc,
    host: *const c_char,
    program: *const c_char,
    pid: i32,
    exit_code: c_int,
    state: u8,
}

/// A published value with its owner.
#[repr(C)]
pub(super) struct Data {
    proc: Proc,
    key: [c_char; KEY_BYTES],
    value: Value,
}

impl Data {
    pub(super) fn new(proc: &Proc, info: &Info) -> Self {
        Self { proc: *proc, key: info.key, value: info.value }
    }
}

/// Buffer into which the library packs; empty if all bytes are zero.
#[repr(C)]
pub(super) struct Buffer {
    pub(super) base: *mut c_char,
    pub(super) pack: *mut c_char,
    pub(super) unpack: *mut c_char,
    pub(super) allocated: usize,
    pub(super) used: usize,
}

#[repr(C)]
struct DataArray {
    kind: u16,
    size: usize,
    array: *mut c_void,
}

/// A list of attributes for the library, with all memory to which they point.
#[derive(Default)]
pub(super) struct Infos {
    entries: Vec<Info>,
    texts: Vec<CString>,
    /// Indexes of byte objects. Their bytes are from malloc: the library may take them, and then leaves NULL.
    objects: Vec<usize>,
    #[expect(clippy::vec_box, reason = "entries point to them: they must stay where they are")]
    arrays: Vec<Box<DataArray>>,
    below: Vec<Infos>,
    tables: Vec<Vec<ProcInfo>>,
}

impl Infos {
    fn add(&mut self, key: &CStr, kind: u16, data: [u64; 3]) {
        let mut info = Info { key: [0; KEY_BYTES], flags: 0, value: Value { kind, data } };
        for (to, from) in info.key[..KEY_BYTES - 1].iter_mut().zip(key.to_bytes()) {
            *to = *from as c_char;
        }
        self.entries.push(info);
    }

    /// Adds a string; it is cut at its first NUL.
    pub(super) fn text(&mut self, key: &CStr, text: &str) {
        let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
        self.add(key, STRING, [text.as_ptr() as u64, 0, 0]);
        self.texts.push(text);
    }

    pub(super) fn number(&mut self, key: &CStr, number: u32) {
        self.add(key, UINT32, first_bytes(&number.to_ne_bytes()));
    }

    pub(super) fn short(&mut self, key: &CStr, number: u16) {
        self.add(key, UINT16, first_bytes(&number.to_ne_bytes()));
    }

    pub(super) fn size(&mut self, key: &CStr, number: u64) {
        self.add(key, SIZE, [number, 0, 0]);
    }

    pub(super) fn rank(&mut self, key: &CStr, rank: u32) {
        self.add(key, PROC_RANK, first_bytes(&rank.to_ne_bytes()));
    }

    pub(super) fn yes_or_no(&mut self, key: &CStr, yes: bool) {
        self.add(key, BOOL, first_bytes(&[u8::from(yes)]));
    }

    pub(super) fn object(&mut self, key: &CStr, bytes: &[u8]) {
        // SAFETY: `malloc` gives NULL or room for so many bytes, which nothing else has.
        let at = unsafe {
            let at = libc::malloc(bytes.len().max(1)).cast::<u8>();
            if at.is_null() {
                return;
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at
        };
        self.objects.push(self.entries.len());
        self.add(key, BYTE_OBJECT, [at as u64, bytes.len() as u64, 0]);
    }

    pub(super) fn array(&mut self, key: &CStr, mut infos: Self) {
        let (array, size) = infos.raw();
        let array = Box::new(DataArray { kind: INFO, size, array: array.cast() });
        self.add(key, DATA_ARRAY, [ptr::from_ref(&*array) as u64, 0, 0]);
        self.arrays.push(array);
        self.below.push(infos);
    }

    /// Adds a table of running processes: rank and process id of each.
    pub(super) fn table(&mut self, key: &CStr, nspace: &CStr, (host, program): (&str, &str), tasks: &[(u32, u32)]) {
        let [host, program] = [host, program].map(|text| CString::new(text).unwrap_or_default());
        let row = |&(rank, pid): &(u32, u32)| ProcInfo {
            proc: Proc::new(nspace, rank),
            host: host.as_ptr(),
            program: program.as_ptr(),
            pid: pid as i32,
            exit_code: 0,
            state: RUNNING,
        };
        let mut rows: Vec<ProcInfo> = tasks.iter().map(row).collect();
        let array = Box::new(DataArray { kind: PROC_INFO, size: rows.len(), array: rows.as_mut_ptr().cast() });
        self.add(key, DATA_ARRAY, [ptr::from_ref(&*array) as u64, 0, 0]);
        self.arrays.push(array);
        self.tables.push(rows);
        self.texts.extend([host, program]);
    }

    /// Returns the list as the library takes it; valid as long as it is neither changed nor dropped.
    pub(super) fn raw(&mut self) -> (*mut Info, usize) {
        (self.entries.as_mut_ptr(), self.entries.len())
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        for &at in &self.objects {
            // SAFETY: made by `malloc` in `object`, and not taken: then the library has put NULL there.
            unsafe { libc::free(self.entries[at].value.data[0] as *mut c_void) };
        }
    }
}

/// Returns a union that begins with `bytes`, 8 at most; its other bytes are 0.
fn first_bytes(bytes: &[u8]) -> [u64; 3] {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    [u64::from_ne_bytes(word), 0, 0]
}

pub(super) type OpDone = unsafe extern "C" fn(Status, *mut c_void);
pub(super) type Release = unsafe extern "C" fn(*mut c_void);
pub(super) type ModexDone =
    unsafe extern "C" fn(Status, *const c_char, usize, *mut c_void, Option<Release>, *mut c_void);
pub(super) type InfoDone = unsafe extern "C" fn(Status, *mut Info, usize, *mut c_void, Option<Release>, *mut c_void);
pub(super) type LookupDone = unsafe extern "C" fn(Status, *mut Data, usize, *mut c_void);
pub(super) type Pack = unsafe extern "C" fn(*const Proc, *mut Buffer, *const c_void, i32, u16) -> Status;
pub(super) type Unpack = unsafe extern "C" fn(*const Proc, *mut Buffer, *mut c_void, *mut i32, u16) -> Status;
pub(super) type ModexAnswer = unsafe extern "C" fn(Status, *mut c_char, usize, *mut c_void);

/// Functions that the server calls in the library.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub(super) version: unsafe extern "C" fn() -> *const c_char,
    pub(super) server_init: unsafe extern "C" fn(*mut Module, *mut Info, usize) -> Status,
    pub(super) register_nspace:
        unsafe extern "C" fn(*const c_char, c_int, *mut Info, usize, Option<OpDone>, *mut c_void) -> Status,
    pub(super) register_client:
        unsafe extern "C" fn(*const Proc, u32, u32, *mut c_void, Option<OpDone>, *mut c_void) -> Status,
    pub(super) dmodex_request: unsafe extern "C" fn(*const Proc, ModexAnswer, *mut c_void) -> Status,
    pub(super) notify:
        unsafe extern "C" fn(Status, *const Proc, u8, *const Info, usize, Option<OpDone>, *mut c_void) -> Status,
    pub(super) pack: Pack,
    pub(super) unpack: Unpack,
    pub(super) generate_regex: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    pub(super) generate_ppn: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
}

/// Callbacks that the library calls in the server; None: the server does not offer the function.
#[repr(C)]
pub(super) struct Module {
    pub(super) client_connected: Option<unsafe extern "C" fn()>,
    pub(super) client_finalized:
        Option<unsafe extern "C" fn(*const Proc, *mut c_void, Option<OpDone>, *mut c_void) -> Status>,
    pub(super) abort: Option<
        unsafe extern "C" fn(
            *const Proc,
            *mut c_void,
            c_int,
            *const c_char,
            *mut Proc,
            usize,
            Option<OpDone>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) fence: Option<
        unsafe extern "C" fn(
            *const Proc,
            usize,
            *const Info,
            usize,
            *mut c_char,
            usize,
            Option<ModexDone>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) direct_modex:
        Option<unsafe extern "C" fn(*const Proc, *const Info, usize, Option<ModexDone>, *mut c_void) -> Status>,
    pub(super) publish:
        Option<unsafe extern "C" fn(*const Proc, *const Info, usize, Option<OpDone>, *mut c_void) -> Status>,
    pub(super) lookup: Option<
        unsafe extern "C" fn(
            *const Proc,
            *const *const c_char,
            *const Info,
            usize,
            Option<LookupDone>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) unpublish: Option<
        unsafe extern "C" fn(
            *const Proc,
            *const *const c_char,
            *const Info,
            usize,
            Option<OpDone>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) spawn: Option<
        unsafe extern "C" fn(
            *const Proc,
            *const Info,
            usize,
            *const c_void,
            usize,
            Option<unsafe extern "C" fn()>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) connect: Option<Connect>,
    pub(super) disconnect: Option<Connect>,
    pub(super) register_events:
        Option<unsafe extern "C" fn(*mut Status, usize, *const Info, usize, Option<OpDone>, *mut c_void) -> Status>,
    pub(super) deregister_events:
        Option<unsafe extern "C" fn(*mut Status, usize, Option<OpDone>, *mut c_void) -> Status>,
    pub(super) listener: Option<unsafe extern "C" fn()>,
    pub(super) notify_event:
        Option<unsafe extern "C" fn(Status, *const Proc, u8, *mut Info, usize, Option<OpDone>, *mut c_void) -> Status>,
    pub(super) query:
        Option<unsafe extern "C" fn(*mut Proc, *mut Query, usize, Option<InfoDone>, *mut c_void) -> Status>,
    pub(super) tool_connected: Option<unsafe extern "C" fn()>,
    pub(super) log:
        Option<unsafe extern "C" fn(*const Proc, *const Info, usize, *const Info, usize, Option<OpDone>, *mut c_void)>,
    pub(super) allocate: Option<unsafe extern "C" fn()>,
    pub(super) job_control: Option<
        unsafe extern "C" fn(
            *const Proc,
            *const Proc,
            usize,
            *const Info,
            usize,
            Option<InfoDone>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) monitor: Option<unsafe extern "C" fn()>,
    pub(super) get_credential: Option<unsafe extern "C" fn()>,
    pub(super) validate_credential: Option<unsafe extern "C" fn()>,
    pub(super) iof_pull: Option<unsafe extern "C" fn()>,
    pub(super) push_stdin: Option<unsafe extern "C" fn()>,
    pub(super) group: Option<
        unsafe extern "C" fn(
            c_int,
            *const c_char,
            *const Proc,
            usize,
            *const Info,
            usize,
            Option<InfoDone>,
            *mut c_void,
        ) -> Status,
    >,
    pub(super) fabric: Option<unsafe extern "C" fn()>,
    pub(super) client_connected2:
        Option<unsafe extern "C" fn(*const Proc, *mut c_void, *mut Info, usize, Option<OpDone>, *mut c_void) -> Status>,
    /// Callbacks of later versions of the library; all zero, so that they are not called.
    pub(super) later: [usize; 8],
}

pub(super) type Connect =
    unsafe extern "C" fn(*const Proc, usize, *const Info, usize, Option<OpDone>, *mut c_void) -> Status;
