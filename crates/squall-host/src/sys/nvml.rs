//! NVIDIA's management library (NVML), loaded at run time: the GPUs of this machine, their MIG instances and links, and
//! what they do.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::io;
use std::ptr;

/// File name of the library, which is installed with the driver.
pub(crate) const LIBRARY: &CStr = c"libnvidia-ml.so.1";

/// Length of texts, with NUL (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`, which is the largest).
const TEXT: usize = 96;
/// Most links of a GPU (`NVML_NVLINK_MAX_LINKS`).
const LINKS: c_uint = 18;
/// Value of `NVML_DEVICE_MIG_ENABLE`.
const MIG_ON: c_uint = 1;

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// Its name, as `NVIDIA A100-SXM4-40GB`.
    pub(crate) name: String,
    /// Number of its device file: 0 of `/dev/nvidia0`.
    pub(crate) minor: u32,
    /// Its address on the bus, as `0000:3b:00.0`.
    pub(crate) bus: String,
    /// Addresses of the other ends of its links, one for each.
    pub(crate) links: Vec<String>,
    /// Its MIG instances; empty: it is whole.
    pub(crate) parts: Vec<Part>,
}

/// A MIG instance of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name, as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    pub(crate) name: String,
    /// The name by which programs choose it, as `MIG-6a1f...`.
    pub(crate) uuid: String,
    /// Number of the GPU instance.
    pub(crate) gpu: u32,
    /// Number of the compute instance in it.
    pub(crate) compute: u32,
}

/// What a GPU does at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Number of its device file.
    pub(crate) minor: u32,
    /// Part of the time in which it works, percent.
    pub(crate) percent: u32,
    /// Its memory in use, KiB.
    pub(crate) used_kb: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Rates {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_t`, bytes.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct Pci {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    bus_id: [c_char; 32],
}

type Handle = *mut c_void;
type Nothing = unsafe extern "C" fn() -> c_int;
type Number = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type Text = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type NumberOf = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
type Two = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int;
type PartOf = unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int;
type PciOf = unsafe extern "C" fn(Handle, *mut Pci) -> c_int;
type RatesOf = unsafe extern "C" fn(Handle, *mut Rates) -> c_int;
type MemoryOf = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
type LinkState = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int;
type LinkPci = unsafe extern "C" fn(Handle, c_uint, *mut Pci) -> c_int;

/// The loaded library. It is never unloaded.
struct Library(*mut c_void);

impl Library {
    fn load(name: &CStr) -> io::Result<Self> {
        // SAFETY: the library's initialisers run; they are made to be run in any process.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
        let missing = || io::Error::other(format!("{} can't be loaded", name.to_string_lossy()));
        if library.is_null() { Err(missing()) } else { Ok(Self(library)) }
    }

    /// Returns the address of a function. None: the library has none of this name.
    fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is valid, the name ends with NUL.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// Returns a function of the library by its name and type. None: there is none.
macro_rules! function {
    ($library:expr, $name:expr, $type:ty) => {
        // SAFETY: in NVML's header, the function of this name has this type; a change of it would get another name.
        $library.find($name).map(|found| unsafe { std::mem::transmute::<*mut c_void, $type>(found) })
    };
}

/// Functions without which there is nothing to say about GPUs.
struct Calls {
    count: Number,
    by_index: ByIndex,
    name: Text,
    minor: NumberOf,
    pci: PciOf,
}

/// Functions that older libraries lack.
struct OptionalFunctions {
    mig: Option<Two>,
    parts_max: Option<NumberOf>,
    part: Option<PartOf>,
    uuid: Option<Text>,
    gpu_instance: Option<NumberOf>,
    compute_instance: Option<NumberOf>,
    link_state: Option<LinkState>,
    link_pci: Option<LinkPci>,
}

/// Loads the library and calls it. `name`: its file name or path.
fn call<T>(name: &CStr, deed: impl FnOnce(&Library) -> io::Result<T>) -> io::Result<T> {
    let library = Library::load(name)?;
    let (begin, end) = (function!(library, c"nvmlInit_v2", Nothing), function!(library, c"nvmlShutdown", Nothing));
    // SAFETY: takes nothing.
    checked("nvmlInit", unsafe { begin.ok_or_else(lacks)?() })?;
    let done = deed(&library);
    if let Some(end) = end {
        // SAFETY: takes nothing, and no handle is used afterwards.
        unsafe { end() };
    }
    done
}

fn lacks() -> io::Error {
    io::Error::other("the library lacks functions of NVML")
}

/// Returns what the GPUs do that this process may use, those of which it is known. `name`: file name or path of the
/// library.
pub(crate) fn loads(name: &CStr) -> io::Result<Vec<Load>> {
    call(name, |library| {
        let by_index = function!(library, c"nvmlDeviceGetHandleByIndex_v2", ByIndex).ok_or_else(lacks)?;
        let minor = function!(library, c"nvmlDeviceGetMinorNumber", NumberOf).ok_or_else(lacks)?;
        let rates = function!(library, c"nvmlDeviceGetUtilizationRates", RatesOf).ok_or_else(lacks)?;
        let memory = function!(library, c"nvmlDeviceGetMemoryInfo", MemoryOf).ok_or_else(lacks)?;
        let count = function!(library, c"nvmlDeviceGetCount_v2", Number).ok_or_else(lacks)?;
        // SAFETY: here and below, the library gets room of the size that it expects, and handles that it has given.
        let count = number(|to| unsafe { count(to) }).unwrap_or(0);
        let load = |index| {
            let (mut gpu, mut rate, mut used): (Handle, _, _) = (ptr::null_mut(), Rates::default(), Memory::default());
            // SAFETY: as above.
            (unsafe { by_index(index, &raw mut gpu) } == 0).then_some(())?;
            // SAFETY: as above. A GPU that is divided in MIG instances has no rates.
            let known = unsafe { (rates(gpu, &raw mut rate), memory(gpu, &raw mut used)) };
            (known == (0, 0)).then_some(())?;
            // SAFETY: as above.
            let minor = number(|to| unsafe { minor(gpu, to) })?;
            Some(Load { minor, percent: rate.gpu, used_kb: used.used >> 10 })
        };
        Ok((0..count).filter_map(load).collect())
    })
}

/// Returns the GPUs of this machine, in the library's order. `name`: file name or path of the library.
pub(crate) fn gpus(name: &CStr) -> io::Result<Vec<Gpu>> {
    call(name, described)
}

fn described(library: &Library) -> io::Result<Vec<Gpu>> {
    let calls = Calls {
        count: function!(library, c"nvmlDeviceGetCount_v2", Number).ok_or_else(lacks)?,
        by_index: function!(library, c"nvmlDeviceGetHandleByIndex_v2", ByIndex).ok_or_else(lacks)?,
        name: function!(library, c"nvmlDeviceGetName", Text).ok_or_else(lacks)?,
        minor: function!(library, c"nvmlDeviceGetMinorNumber", NumberOf).ok_or_else(lacks)?,
        pci: function!(library, c"nvmlDeviceGetPciInfo_v3", PciOf).ok_or_else(lacks)?,
    };
    let more = OptionalFunctions {
        mig: function!(library, c"nvmlDeviceGetMigMode", Two),
        parts_max: function!(library, c"nvmlDeviceGetMaxMigDeviceCount", NumberOf),
        part: function!(library, c"nvmlDeviceGetMigDeviceHandleByIndex", PartOf),
        uuid: function!(library, c"nvmlDeviceGetUUID", Text),
        gpu_instance: function!(library, c"nvmlDeviceGetGpuInstanceId", NumberOf),
        compute_instance: function!(library, c"nvmlDeviceGetComputeInstanceId", NumberOf),
        link_state: function!(library, c"nvmlDeviceGetNvLinkState", LinkState),
        link_pci: function!(library, c"nvmlDeviceGetNvLinkRemotePciInfo_v2", LinkPci),
    };
    calls.gpus(&more)
}

fn checked(what: &str, status: c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::other(format!("{what} failed with status {status}"))) }
}

/// Calls a function that writes a number.
fn number(call: impl FnOnce(*mut c_uint) -> c_int) -> Option<u32> {
    let mut value = 0;
    (call(&raw mut value) == 0).then_some(value)
}

/// Calls a function that writes a text.
fn text(call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Option<String> {
    let mut room = [0; TEXT];
    (call(room.as_mut_ptr(), TEXT as c_uint) == 0).then(|| shown(&room))
}

/// Returns the text in a buffer, up to NUL or its end.
fn shown(room: &[c_char]) -> String {
    let bytes: Vec<u8> = room.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Calls a function that writes an address on the bus; returns it as the kernel writes it: `00000000:3B:00.0` becomes
/// `0000:3b:00.0`.
fn address(call: impl FnOnce(*mut Pci) -> c_int) -> Option<String> {
    let mut pci = Pci::default();
    let long = (call(&raw mut pci) == 0).then(|| shown(&pci.bus_id).to_lowercase())?;
    let (domain, rest) = long.split_once(':')?;
    Some(format!("{:04x}:{rest}", u32::from_str_radix(domain, 16).ok()?))
}

impl Calls {
    fn gpus(&self, more: &OptionalFunctions) -> io::Result<Vec<Gpu>> {
        // SAFETY: here and below, the library gets room of the size that it expects, and handles that it has given.
        let count = number(|to| unsafe { (self.count)(to) }).ok_or_else(|| io::Error::other("no count of GPUs"))?;
        (0..count).map(|index| self.gpu(index, more)).collect()
    }

    fn gpu(&self, index: c_uint, more: &OptionalFunctions) -> io::Result<Gpu> {
        let mut gpu: Handle = ptr::null_mut();
        // SAFETY: as above.
        checked("nvmlDeviceGetHandleByIndex", unsafe { (self.by_index)(index, &raw mut gpu) })?;
        let lacks = |what: &str| io::Error::other(format!("GPU {index} has no {what}"));
        Ok(Gpu {
            // SAFETY: as above.
            name: text(|to, length| unsafe { (self.name)(gpu, to, length) }).ok_or_else(|| lacks("name"))?,
            // SAFETY: as above.
            minor: number(|to| unsafe { (self.minor)(gpu, to) }).ok_or_else(|| lacks("device file"))?,
            // SAFETY: as above.
            bus: address(|to| unsafe { (self.pci)(gpu, to) }).ok_or_else(|| lacks("address"))?,
            links: more.links(gpu),
            parts: more.parts(gpu, self.name).unwrap_or_default(),
        })
    }
}

impl OptionalFunctions {
    /// Returns the other ends of a GPU's links that are up.
    fn links(&self, gpu: Handle) -> Vec<String> {
        let (Some(state), Some(pci)) = (self.link_state, self.link_pci) else { return Vec::new() };
        // SAFETY: as in `Calls::gpus`.
        let is_up = |link: &c_uint| number(|to| unsafe { state(gpu, *link, to) }) == Some(1);
        // SAFETY: as in `Calls::gpus`.
        (0..LINKS).filter(is_up).filter_map(|link| address(|to| unsafe { pci(gpu, link, to) })).collect()
    }

    /// Returns the MIG instances of a GPU. None: it is whole.
    fn parts(&self, gpu: Handle, name: Text) -> Option<Vec<Part>> {
        let (mode, most, part) = (self.mig?, self.parts_max?, self.part?);
        let mut pending = 0;
        // SAFETY: as in `Calls::gpus`.
        let on = number(|to| unsafe { mode(gpu, to, &raw mut pending) })? == MIG_ON;
        // SAFETY: as in `Calls::gpus`.
        let most = number(|to| unsafe { most(gpu, to) }).filter(|_| on)?;
        let one = |index| {
            let mut found: Handle = ptr::null_mut();
            // SAFETY: as in `Calls::gpus`; numbers without an instance are refused.
            (unsafe { part(gpu, index, &raw mut found) } == 0).then_some(())?;
            let (uuid, gpu_instance, compute) = (self.uuid?, self.gpu_instance?, self.compute_instance?);
            // SAFETY: as in `Calls::gpus`.
            unsafe {
                Some(Part {
                    name: text(|to, length| name(found, to, length))?,
                    uuid: text(|to, length| uuid(found, to, length))?,
                    gpu: number(|to| gpu_instance(found, to))?,
                    compute: number(|to| compute(found, to))?,
                })
            }
        };
        Some((0..most).filter_map(one).collect())
    }
}
