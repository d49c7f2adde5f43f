//! SPANK: loads plugins, calls their hooks, and offers them the functions of `slurm/spank.h`.
//!
//! The functions are exported by this program (`squall-cli/build.rs`), so that plugins find them when they are loaded.
//! They work on the one `Session` of a process. A plugin may call them from hooks only, so it has one caller at a time.

mod session;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use session::{Answer, OptionFn, code};
pub(crate) use session::{PluginOption, Session, Task, plain, set, unset, value};

use super::clock::since_boot_us;
use super::identity::Identity;
use crate::plugins::words::Context;

static SESSION: Mutex<Session> = Mutex::new(Session::new());

/// What plugins have as their handle: its address, which they pass on.
static HANDLE: u8 = 0;

/// A hook, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// After the plugin was loaded: it registers its options.
    Init,
    /// After the options were handed over.
    InitPostOpt,
    /// Beside `srun`, when the job is known.
    LocalUserInit,
    /// Beside a step, as the user.
    UserInit,
    /// In a task, as root.
    TaskInitPrivileged,
    /// In a task, as the user, before the program is executed.
    TaskInit,
    /// Beside a step, after a task was made.
    TaskPostFork,
    /// Beside a step, after a task has ended.
    TaskExit,
    /// At the end.
    Exit,
    /// Beside the node daemon, when it begins, for plugins of old releases of Slurm.
    SlurmdInit,
    /// On a node, before a job.
    JobProlog,
    /// On a node, after a job.
    JobEpilog,
    /// Beside the node daemon, when it has ended.
    SlurmdExit,
}

/// All hooks.
pub(crate) const HOOKS: [Hook; 13] = [
    Hook::Init,
    Hook::InitPostOpt,
    Hook::LocalUserInit,
    Hook::UserInit,
    Hook::TaskInitPrivileged,
    Hook::TaskInit,
    Hook::TaskPostFork,
    Hook::TaskExit,
    Hook::Exit,
    Hook::SlurmdInit,
    Hook::JobProlog,
    Hook::JobEpilog,
    Hook::SlurmdExit,
];

impl Hook {
    /// Returns the name of its function.
    pub(crate) fn symbol(self) -> &'static CStr {
        match self {
            Self::Init => c"slurm_spank_init",
            Self::InitPostOpt => c"slurm_spank_init_post_opt",
            Self::LocalUserInit => c"slurm_spank_local_user_init",
            Self::UserInit => c"slurm_spank_user_init",
            Self::TaskInitPrivileged => c"slurm_spank_task_init_privileged",
            Self::TaskInit => c"slurm_spank_task_init",
            Self::TaskPostFork => c"slurm_spank_task_post_fork",
            Self::TaskExit => c"slurm_spank_task_exit",
            Self::Exit => c"slurm_spank_exit",
            Self::SlurmdInit => c"slurm_spank_slurmd_init",
            Self::JobProlog => c"slurm_spank_job_prolog",
            Self::JobEpilog => c"slurm_spank_job_epilog",
            Self::SlurmdExit => c"slurm_spank_slurmd_exit",
        }
    }

    /// Returns its name as the documentation has it: `task_init`.
    pub(crate) fn name(self) -> &'static str {
        self.symbol().to_str().unwrap_or_default().trim_start_matches("slurm_spank_")
    }
}

/// An option as plugins describe it (`struct spank_option`).
#[repr(C)]
struct RawOption {
    name: *const c_char,
    value_name: *const c_char,
    usage: *const c_char,
    has_arg: c_int,
    val: c_int,
    call: Option<OptionFn>,
}

type HookFn = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char) -> c_int;

/// A plugin that is loaded. It is never unloaded.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
    args: Vec<CString>,
}

impl Library {
    /// Loads a plugin with its arguments. Err: why that failed.
    pub(crate) fn load(path: &CStr, args: Vec<CString>) -> Result<Self, String> {
        // SAFETY: the initialisers of the plugin run, which the site wants.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: a text of the C library, valid until the next call of this kind, or null.
            let why = unsafe { text(libc::dlerror()) };
            return Err(why.map_or_else(|| "it can't be loaded".to_owned(), |why| why.to_string_lossy().into_owned()));
        }
        let library = Self { handle, args };
        let kind = library.symbol_text(c"plugin_type");
        match kind {
            Some(kind) if kind.as_c_str() == c"spank" => Ok(library),
            Some(kind) => Err(format!("it is a plugin of type {}, not spank", kind.to_string_lossy())),
            None => Err("it is no plugin of SPANK: it lacks plugin_type".to_owned()),
        }
    }

    fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is valid, the name ends with NUL.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    fn symbol_text(&self, name: &CStr) -> Option<CString> {
        // SAFETY: in plugins, a symbol of these names is an array of characters that ends with NUL.
        self.find(name).and_then(|at| unsafe { text(at.cast()) }).map(CStr::to_owned)
    }

    /// Returns the plugin's name. None: it has none.
    pub(crate) fn name(&self) -> Option<String> {
        self.symbol_text(c"plugin_name").map(|name| name.to_string_lossy().into_owned())
    }

    /// Registers the options of the plugin's table, if it has one.
    pub(crate) fn register_table(&self) {
        let Some(table) = self.find(c"spank_options") else { return };
        for at in 0.. {
            // SAFETY: the table ends with an entry without a name, which ends the loop.
            let option = unsafe { table.cast::<RawOption>().add(at) };
            // SAFETY: as above; the entries are those of the header.
            if unsafe { (*option).name.is_null() } {
                return;
            }
            // SAFETY: a valid entry.
            unsafe { spank_option_register(handle(), option.cast()) };
        }
    }

    /// Calls a hook. None: the plugin lacks it.
    pub(crate) fn call(&self, hook: Hook) -> Option<c_int> {
        let found = self.find(hook.symbol())?;
        // SAFETY: a function of this name has this type, as the header says.
        let function = unsafe { std::mem::transmute::<*mut c_void, HookFn>(found) };
        let words = self.args.iter().map(|arg| arg.as_ptr().cast_mut());
        let mut words: Vec<*mut c_char> = words.chain([ptr::null_mut()]).collect();
        // SAFETY: the arguments are texts that live as long as this; the plugin may run whatever it likes.
        Some(unsafe { function(handle(), self.args.len() as c_int, words.as_mut_ptr()) })
    }
}

/// Hands the value that the user gave to an option over to its plugin. Returns whether the plugin takes it.
pub(crate) fn hand_over(option: &PluginOption, remote: bool) -> bool {
    let Some(call) = option.call else { return true };
    let value = option.given.as_ref().filter(|value| option.has_arg != 0 && !value.is_empty());
    let value = value.map_or(ptr::null(), |value| value.as_ptr());
    // SAFETY: a function of the plugin of this type; the text lives during the call.
    unsafe { call(option.val, value, c_int::from(remote)) == 0 }
}

/// Returns the state of this process's plugins. It must not be held while a plugin runs.
pub(crate) fn session() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how many functions plugins find here. Whoever calls it has these functions in the program.
pub(crate) fn functions() -> usize {
    let all: [*const (); 22] = [
        spank_get_item as *const (),
        spank_strerror as *const (),
        spank_symbol_supported as *const (),
        spank_remote as *const (),
        spank_context as *const (),
        spank_option_register as *const (),
        spank_option_getopt as *const (),
        spank_getenv as *const (),
        spank_setenv as *const (),
        spank_unsetenv as *const (),
        spank_job_control_getenv as *const (),
        spank_job_control_setenv as *const (),
        spank_job_control_unsetenv as *const (),
        spank_prepend_task_argv as *const (),
        slurm_error as *const (),
        slurm_spank_log as *const (),
        slurm_info as *const (),
        slurm_verbose as *const (),
        slurm_debug as *const (),
        slurm_debug2 as *const (),
        slurm_debug3 as *const (),
        squall_spank_item as *const (),
    ];
    std::hint::black_box(all).len()
}

// C functions of `variadic.c`, which are only exported from here, and not called.
unsafe extern "C" {
    fn spank_get_item(spank: *mut c_void, item: c_int, ...) -> c_int;
    fn slurm_error(format: *const c_char, ...);
    fn slurm_spank_log(format: *const c_char, ...);
    fn slurm_info(format: *const c_char, ...);
    fn slurm_verbose(format: *const c_char, ...);
    fn slurm_debug(format: *const c_char, ...);
    fn slurm_debug2(format: *const c_char, ...);
    fn slurm_debug3(format: *const c_char, ...);
}

fn handle() -> *mut c_void {
    (&raw const HANDLE).cast_mut().cast()
}

fn is_handle(spank: *const c_void) -> bool {
    ptr::eq(spank, handle())
}

/// Returns a text of a plugin. None: the pointer is null.
///
/// # Safety
/// The pointer is null, or points to a text that ends with NUL and lives as long as it is used.
unsafe fn text<'a>(at: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as promised.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}

fn answered(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(code::SUCCESS)
}

/// Writes a text of a user of the interface into their room.
///
/// # Safety
/// `room` points to `length` bytes.
unsafe fn copy_out(found: Option<&[u8]>, room: *mut c_char, length: c_int) -> c_int {
    let Some(found) = found else { return code::ENV_NOEXIST };
    let fits = found.len().min(length as usize - 1);
    // SAFETY: at most `length` bytes with NUL, as promised.
    unsafe {
        ptr::copy_nonoverlapping(found.as_ptr().cast(), room, fits);
        *room.add(fits) = 0;
    }
    if fits < found.len() { code::NOSPACE } else { code::SUCCESS }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn squall_spank_item(
    spank: *const c_void,
    item: c_int,
    number: u32,
    first: *mut c_void,
    second: *mut c_void,
) -> c_int {
    if !is_handle(spank) || first.is_null() {
        return code::BAD_ARG;
    }
    let answer = match session().item(item, number) {
        Ok(answer) => answer,
        Err(error) => return error,
    };
    let address = |at: usize| ptr::with_exposed_provenance_mut::<c_void>(at);
    // SAFETY: the pointers are for values of these types, as the header says of each item.
    unsafe {
        match answer {
            Answer::Number(value) => *first.cast::<u32>() = value,
            Answer::Signed(value) => *first.cast::<i32>() = value,
            Answer::Short(value) => *first.cast::<u16>() = value,
            Answer::Long(value) => *first.cast::<u64>() = value,
            Answer::Text(at) => *first.cast::<*mut c_void>() = address(at),
            Answer::Texts(_, at) if second.is_null() => *first.cast::<*mut c_void>() = address(at),
            Answer::Texts(count, at) => {
                *first.cast::<c_int>() = count as c_int;
                *second.cast::<*mut c_void>() = address(at);
            }
            Answer::Groups(_, _) if second.is_null() => return code::BAD_ARG,
            Answer::Groups(count, at) => {
                *first.cast::<*mut c_void>() = address(at);
                *second.cast::<c_int>() = count as c_int;
            }
        }
    }
    code::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn squall_spank_say(level: c_int, message: *const c_char) {
    // SAFETY: a text of `variadic.c`.
    let Some(message) = (unsafe { text(message) }) else { return };
    crate::plugins::voice::say(level, &message.to_string_lossy());
}

#[unsafe(no_mangle)]
extern "C" fn spank_strerror(error: c_int) -> *const c_char {
    let text = match error {
        code::SUCCESS => c"no error",
        code::ERROR => c"error of SPANK",
        code::BAD_ARG => c"an argument is invalid",
        code::NOT_TASK => c"there is no task here",
        code::ENV_EXISTS => c"the variable exists",
        code::ENV_NOEXIST => c"there is no such variable",
        code::NOSPACE => c"the buffer is too small",
        code::NOT_REMOTE => c"only beside a step",
        code::NOEXIST => c"there is no such task or process",
        code::NOT_EXECD => c"no task runs yet",
        code::NOT_AVAIL => c"not available in this hook",
        code::NOT_LOCAL => c"only beside srun, sbatch and salloc",
        _ => c"unknown error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_symbol_supported(symbol: *const c_char) -> c_int {
    // SAFETY: a text of the plugin, or null.
    let Some(symbol) = (unsafe { text(symbol) }) else { return -1 };
    c_int::from(HOOKS.iter().any(|hook| hook.symbol() == symbol))
}

#[unsafe(no_mangle)]
extern "C" fn spank_remote(spank: *const c_void) -> c_int {
    if is_handle(spank) { c_int::from(session().context == Context::Remote) } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn spank_context() -> c_int {
    match session().context {
        Context::Local => 1,
        Context::Remote => 2,
        Context::Allocator => 3,
        Context::Slurmd => 4,
        Context::JobScript => 5,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_option_register(spank: *const c_void, option: *const c_void) -> c_int {
    if !is_handle(spank) || option.is_null() {
        return code::BAD_ARG;
    }
    // SAFETY: a `struct spank_option` of the plugin, with texts or null.
    let option = unsafe {
        let raw = &*option.cast::<RawOption>();
        let owned = |at| text(at).map(CStr::to_owned).unwrap_or_default();
        PluginOption {
            plugin: 0,
            name: owned(raw.name),
            value_name: owned(raw.value_name),
            usage: owned(raw.usage),
            has_arg: raw.has_arg,
            val: raw.val,
            call: raw.call,
            given: None,
        }
    };
    let mut session = session();
    let plugin = session.plugin;
    answered(session.register(PluginOption { plugin, ..option }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_option_getopt(
    spank: *const c_void,
    option: *const c_void,
    value: *mut *mut c_char,
) -> c_int {
    if !is_handle(spank) || option.is_null() {
        return code::BAD_ARG;
    }
    // SAFETY: a `struct spank_option` of the plugin.
    let (name, has_arg) = unsafe {
        let raw = &*option.cast::<RawOption>();
        (text(raw.name), raw.has_arg)
    };
    let Some(name) = name else { return code::BAD_ARG };
    if has_arg != 0 && value.is_null() {
        return code::BAD_ARG;
    }
    let session = session();
    match session.given(name) {
        Ok(given) if has_arg != 0 => {
            // SAFETY: a pointer of the plugin for an address; the text lives as long as the session.
            unsafe { *value = given.as_ptr().cast_mut() };
            code::SUCCESS
        }
        Ok(_) => code::SUCCESS,
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_getenv(
    spank: *const c_void,
    name: *const c_char,
    room: *mut c_char,
    length: c_int,
) -> c_int {
    // SAFETY: texts and room of the plugin.
    unsafe { get(spank, name, (room, length), Session::job_env) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_job_control_getenv(
    spank: *const c_void,
    name: *const c_char,
    room: *mut c_char,
    length: c_int,
) -> c_int {
    // SAFETY: texts and room of the plugin.
    unsafe { get(spank, name, (room, length), Session::control_env) }
}

type EnvironmentOf = fn(&mut Session) -> Result<&mut Vec<CString>, c_int>;

/// Reads a variable.
///
/// # Safety
/// Texts and room are the caller's, as the header says.
unsafe fn get(
    spank: *const c_void,
    name: *const c_char,
    (room, length): (*mut c_char, c_int),
    of: EnvironmentOf,
) -> c_int {
    // SAFETY: as promised.
    match (is_handle(spank), unsafe { text(name) }) {
        (true, Some(name)) if !room.is_null() && length > 0 => match of(&mut session()) {
            // SAFETY: as promised.
            Ok(env) => unsafe { copy_out(value(env, name.to_bytes()), room, length) },
            Err(error) => error,
        },
        _ => code::BAD_ARG,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_setenv(
    spank: *const c_void,
    name: *const c_char,
    value: *const c_char,
    overwrite: c_int,
) -> c_int {
    // SAFETY: texts of the plugin.
    unsafe { put(spank, name, (value, overwrite), Session::job_env) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_job_control_setenv(
    spank: *const c_void,
    name: *const c_char,
    value: *const c_char,
    overwrite: c_int,
) -> c_int {
    // SAFETY: texts of the plugin, or null.
    let (named, valued) = unsafe { (text(name), text(value)) };
    // It becomes a variable of programs, with `SPANK_` before its name.
    let is_name = |name: &CStr| name.to_bytes().iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if !named.is_none_or(is_name) || valued.is_some_and(|value| value.to_str().is_err()) {
        return code::BAD_ARG;
    }
    // SAFETY: texts of the plugin.
    unsafe { put(spank, name, (value, overwrite), Session::control_env) }
}

/// Sets a variable.
///
/// # Safety
/// The texts are the caller's, as the header says.
unsafe fn put(
    spank: *const c_void,
    name: *const c_char,
    (value, overwrite): (*const c_char, c_int),
    of: EnvironmentOf,
) -> c_int {
    // SAFETY: as promised.
    match (is_handle(spank), unsafe { (text(name), text(value)) }) {
        (true, (Some(name), Some(value))) => {
            let mut session = session();
            let env = of(&mut session);
            answered(env.and_then(|env| set(env, name.to_bytes(), value.to_bytes(), overwrite != 0)))
        }
        _ => code::BAD_ARG,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_unsetenv(spank: *const c_void, name: *const c_char) -> c_int {
    // SAFETY: a text of the plugin.
    unsafe { remove(spank, name, Session::job_env) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_job_control_unsetenv(spank: *const c_void, name: *const c_char) -> c_int {
    // SAFETY: a text of the plugin.
    unsafe { remove(spank, name, Session::control_env) }
}

/// Removes a variable.
///
/// # Safety
/// The text is the caller's, as the header says.
unsafe fn remove(spank: *const c_void, name: *const c_char, of: EnvironmentOf) -> c_int {
    // SAFETY: as promised.
    match (is_handle(spank), unsafe { text(name) }) {
        (true, Some(name)) => answered(of(&mut session()).map(|env| unset(env, name.to_bytes()))),
        _ => code::BAD_ARG,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn spank_prepend_task_argv(spank: *const c_void, count: c_int, words: *const *const c_char) -> c_int {
    if !is_handle(spank) || count < 0 || words.is_null() {
        return code::BAD_ARG;
    }
    // SAFETY: the plugin gives as many texts as it says.
    let words = (0..count as usize).map(|at| unsafe { text(*words.add(at)) }.map(CStr::to_owned));
    let Some(words) = words.collect::<Option<Vec<_>>>() else { return code::BAD_ARG };
    let mut session = session();
    if session.context != Context::Remote {
        return code::NOT_REMOTE;
    }
    if session.task.is_none() {
        return code::NOT_TASK;
    }
    session.before.splice(0..0, words);
    code::SUCCESS
}

/// What a process does for plugins at the moment, in memory that it shares with the one that watches it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress(&'static AtomicU64);

impl Progress {
    /// Makes the memory.
    pub(crate) fn new() -> io::Result<Self> {
        let (read, share) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: new memory at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), size_of::<AtomicU64>(), read, share, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: zeroed memory of the kernel, aligned to a page, which is never unmapped.
        Ok(Self(unsafe { &*at.cast::<AtomicU64>() }))
    }

    /// Notes that a plugin runs a hook from now on, or (None) that none does.
    pub(crate) fn note(self, now: Option<(usize, Hook)>) {
        let number = |(plugin, hook): (usize, Hook)| (seconds() << 32) | ((plugin as u64 + 1) << 8) | hook as u64;
        self.0.store(now.map_or(0, number), Ordering::SeqCst);
    }

    /// Returns whether a plugin runs a hook for longer than a time, by a second.
    pub(crate) fn is_late(self, limit: Duration) -> bool {
        let begun = self.0.load(Ordering::SeqCst) >> 32;
        self.read().is_some() && seconds().saturating_sub(begun) > limit.as_secs()
    }

    /// Returns which plugin runs which hook. None: none does.
    pub(crate) fn read(self) -> Option<(usize, Hook)> {
        let number = self.0.load(Ordering::SeqCst);
        let plugin = ((number >> 8) & 0xff_ffff).checked_sub(1)?;
        Some((plugin as usize, *HOOKS.get((number & 0xff) as usize)?))
    }
}

/// Returns the time since the machine was booted, in seconds, as far as it goes into 32 bits.
fn seconds() -> u64 {
    (since_boot_us() / 1_000_000) & u64::from(u32::MAX)
}

/// Kills this process after a time, unless it is dropped before.
#[derive(Debug)]
pub(crate) struct Limit(libc::timer_t);

impl Limit {
    /// Begins the time.
    pub(crate) fn begin(time: Duration) -> io::Result<Self> {
        let mut timer = ptr::null_mut();
        // SAFETY: plain values, of which all zero is valid; the calls read and write these locals only.
        unsafe {
            let mut event = MaybeUninit::<libc::sigevent>::zeroed().assume_init();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGKILL;
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut when = MaybeUninit::<libc::itimerspec>::zeroed().assume_init();
            when.it_value.tv_sec = time.as_secs() as libc::time_t;
            when.it_value.tv_nsec = libc::c_long::from(time.subsec_nanos() as i32);
            libc::timer_settime(timer, 0, &raw const when, ptr::null_mut());
        }
        Ok(Self(timer))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // SAFETY: a timer of this process, which is not used any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Runs `work` as the user, from whom this process returns afterwards. Without root it is the user already.
pub(crate) fn as_user<T>(identity: &Identity, work: impl FnOnce() -> T) -> io::Result<T> {
    if !rustix::process::geteuid().is_root() {
        return Ok(work());
    }
    let own: Vec<libc::gid_t> = rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
    let gid = rustix::process::getegid().as_raw();
    let done = |result: c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: pointers and lengths are of one slice each; the other calls take integers.
    unsafe {
        done(libc::setgroups(identity.groups.len(), identity.groups.as_ptr()))?;
        done(libc::setegid(identity.gid))?;
        done(libc::seteuid(identity.uid))?;
    }
    let result = work();
    // SAFETY: as above. A process that is not root again must not go on.
    let back = unsafe {
        done(libc::seteuid(0))
            .and_then(|()| done(libc::setegid(gid)))
            .and_then(|()| done(libc::setgroups(own.len(), own.as_ptr())))
    };
    if back.is_err() {
        std::process::abort();
    }
    Ok(result)
}

/// Has the kernel kill this process when its parent ends, or (false) not any more.
pub(crate) fn die_with_parent(dies: bool) {
    let signal = if dies { libc::SIGKILL } else { 0 };
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) };
}
