//! Describes this machine's CPUs, caches and memory by libhwloc, as the XML that other programs read.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

/// File name of libhwloc, which is installed with libpmix.
const LIBRARY: &CStr = c"libhwloc.so.15";

/// Value of `HWLOC_TYPE_FILTER_KEEP_NONE`, which leaves out device objects.
const KEEP_NONE: c_int = 1;

/// Environment variable that turns off the library's plug-ins. They look for displays and graphics processors, which
/// takes longer than all the rest.
pub(crate) const PLUGINS: (&str, &str) = ("HWLOC_PLUGINS_PATH", "/nonexistent");

type Topology = *mut c_void;
type Init = unsafe extern "C" fn(*mut Topology) -> c_int;
type Filter = unsafe extern "C" fn(Topology, c_int) -> c_int;
type Load = unsafe extern "C" fn(Topology) -> c_int;
type Export = unsafe extern "C" fn(Topology, *mut *mut c_char, *mut c_int, u64) -> c_int;
type Free = unsafe extern "C" fn(Topology, *mut c_char);
type Destroy = unsafe extern "C" fn(Topology);

struct Calls {
    init: Init,
    filter: Filter,
    load: Load,
    export: Export,
    free: Free,
    destroy: Destroy,
}

/// The description of this machine, made once and inherited by copies of the process; None inside: it could not be
/// made.
static MACHINE: OnceLock<Option<String>> = OnceLock::new();

/// Returns libhwloc's description of this machine, as XML. None: the library is missing, or failed. Must be called
/// first while the process has no other thread.
pub(crate) fn machine() -> Option<&'static str> {
    MACHINE.get_or_init(describe).as_deref()
}

fn describe() -> Option<String> {
    // SAFETY: the caller has no other thread that could read the environment meanwhile.
    unsafe { std::env::set_var(PLUGINS.0, PLUGINS.1) };
    let calls = load()?;
    let mut topology: Topology = ptr::null_mut();
    // SAFETY: the library is given room for its handle, which is used and destroyed by its own functions only.
    unsafe {
        if (calls.init)(&raw mut topology) != 0 {
            return None;
        }
        let (mut text, mut length) = (ptr::null_mut(), 0);
        let made = (calls.filter)(topology, KEEP_NONE) == 0
            && (calls.load)(topology) == 0
            && (calls.export)(topology, &raw mut text, &raw mut length, 0) == 0
            && !text.is_null();
        let described = made.then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        if made {
            (calls.free)(topology, text);
        }
        (calls.destroy)(topology);
        described
    }
}

fn load() -> Option<Calls> {
    // SAFETY: the library's initialisers run; they are made to be run in any process. It is never unloaded.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
    if library.is_null() {
        return None;
    }
    let find = |name: &CStr| {
        // SAFETY: the handle is valid, the name ends with NUL.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    // SAFETY: each name has had this signature since version 2.0 of the library, which the number in its name stands for.
    unsafe {
        Some(Calls {
            init: std::mem::transmute::<*mut c_void, Init>(find(c"hwloc_topology_init")?),
            filter: std::mem::transmute::<*mut c_void, Filter>(find(c"hwloc_topology_set_io_types_filter")?),
            load: std::mem::transmute::<*mut c_void, Load>(find(c"hwloc_topology_load")?),
            export: std::mem::transmute::<*mut c_void, Export>(find(c"hwloc_topology_export_xmlbuffer")?),
            free: std::mem::transmute::<*mut c_void, Free>(find(c"hwloc_free_xmlbuffer")?),
            destroy: std::mem::transmute::<*mut c_void, Destroy>(find(c"hwloc_topology_destroy")?),
        })
    }
}
