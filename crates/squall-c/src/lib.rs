//! libsquallclient: the functions of `squall.h`, which documents them.
//!
//! All unsafe code of the client library is here. Pointers of a C program have to be valid as `squall.h` demands;
//! that can't be checked.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use squall_client::{ClientError, Jobs, Submission};
use squall_model::id::JobId;
use squall_model::job::{EndState, JobState};
use squall_model::resource::Memory;
use squall_text::options::apply::apply;

/// A batch job: `squall_job` of `squall.h`.
#[repr(C)]
#[derive(Debug)]
pub struct Job {
    size: usize,
    script: *const c_char,
    name: *const c_char,
    work_dir: *const c_char,
    output: *const c_char,
    partition: *const c_char,
    account: *const c_char,
    env: *const *const c_char,
    args: *const *const c_char,
    nodes: u32,
    tasks: u32,
    cpus_per_task: u32,
    hold: u32,
    memory_mb: u64,
    time_limit_s: u64,
    dependency: *const c_char,
    array: *const c_char,
    gpus: *const c_char,
    qos: *const c_char,
    constraint: *const c_char,
    begin: *const c_char,
    options: *const *const c_char,
}

/// How a job ended: `squall_end` of `squall.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct End {
    state: u32,
    code: u32,
    signal: u32,
}

/// Size of `squall_job` in the first version that had a size field, bytes.
const OLDEST_BYTES: usize = 104;
/// Size that `squall_job` will never exceed in any version, bytes.
const JOB_BYTES_MAX: usize = 4096;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Stores the error text of this thread for `squall_error`.
fn failed(why: &str) {
    let text: Vec<u8> = why.bytes().filter(|byte| *byte != 0).collect();
    ERROR.with(|error| *error.borrow_mut() = CString::new(text).unwrap_or_default());
}

fn told(result: Result<(), String>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(why) => {
            failed(&why);
            -1
        }
    }
}

fn why(error: &ClientError) -> String {
    let detail = match error {
        ClientError::Refused(refused) => squall_text::refusal::detail(refused),
        other => other.detail().map(str::to_owned),
    };
    detail.map_or_else(|| error.to_string(), |detail| format!("{error}: {detail}"))
}

/// Connects to a cluster, as `squall.h` describes. Returns NULL on failure.
///
/// # Safety
/// `state` is NULL or points to a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_open(state: *const c_char) -> *mut Jobs {
    // SAFETY: as the caller promises.
    let state = unsafe { bytes(state) };
    match Jobs::connect(state.map(|dir| Path::new(OsStr::from_bytes(dir)))) {
        Ok(jobs) => Box::into_raw(Box::new(jobs)),
        Err(error) => {
            failed(&why(&error));
            std::ptr::null_mut()
        }
    }
}

/// Ends a connection.
///
/// # Safety
/// `squall` is NULL or from `squall_open`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_close(squall: *mut Jobs) {
    if !squall.is_null() {
        // SAFETY: the pointer came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(squall) });
    }
}

/// Submits jobs and stores their ids. Returns 0, or -1 on failure.
///
/// # Safety
/// `squall` is from `squall_open`; there are `count` jobs as `squall.h` has them, and room for as many ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_submit(squall: *mut Jobs, jobs: *const Job, count: usize, ids: *mut u32) -> c_int {
    // SAFETY: as the caller promises.
    let (squall, jobs, ids) = unsafe { (squall.as_mut(), copies(jobs, count), list_mut(ids, count)) };
    ids.fill(0);
    // SAFETY: as the caller promises.
    let submission = |job: &Job| unsafe { job.submission() };
    let wanted = jobs.and_then(|jobs| jobs.iter().map(submission).collect::<Result<Vec<_>, _>>());
    told(squall.ok_or_else(closed).and_then(|squall| {
        squall
            .submit(&wanted?, |at, id| ids.iter_mut().skip(at).take(1).for_each(|slot| *slot = id.0))
            .map_err(|error| why(&error))
    }))
}

/// Cancels jobs. Returns 0, or -1 on failure.
///
/// # Safety
/// `squall` is from `squall_open`; there are `count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_cancel(squall: *mut Jobs, ids: *const u32, count: usize) -> c_int {
    // SAFETY: as the caller promises.
    let (squall, ids) = unsafe { (squall.as_mut(), job_ids(ids, count)) };
    told(squall.ok_or_else(closed).and_then(|squall| squall.cancel(&ids).map_err(|error| why(&error))))
}

/// Stores the states of jobs. Returns 0, or -1 on failure.
///
/// # Safety
/// `squall` is from `squall_open`; there are `count` ids, and room for as many states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_states(squall: *mut Jobs, ids: *const u32, count: usize, states: *mut u32) -> c_int {
    // SAFETY: as the caller promises.
    let (squall, ids, states) = unsafe { (squall.as_mut(), job_ids(ids, count), list_mut(states, count)) };
    told(squall.ok_or_else(closed).and_then(|squall| {
        let found = squall.states(&ids).map_err(|error| why(&error))?;
        states.iter_mut().zip(found).for_each(|(state, found)| *state = found.map_or(0, number));
        Ok(())
    }))
}

/// Waits until jobs have ended and stores how. Returns 0, or -1 on failure.
///
/// # Safety
/// `squall` is from `squall_open`; there are `count` ids, and room for as many ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_wait(squall: *mut Jobs, ids: *const u32, count: usize, ends: *mut End) -> c_int {
    // SAFETY: as the caller promises.
    let (squall, ids, ends) = unsafe { (squall.as_mut(), job_ids(ids, count), list_mut(ends, count)) };
    told(squall.ok_or_else(closed).and_then(|squall| {
        let found = squall.wait(&ids).map_err(|error| why(&error))?;
        for (end, (_, outcome)) in ends.iter_mut().zip(found) {
            let (code, signal) = (outcome.exit.code.into(), outcome.exit.signal.into());
            *end = End { state: number(JobState::Ended(outcome.state)), code, signal };
        }
        Ok(())
    }))
}

/// Returns the error text of this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn squall_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

fn closed() -> String {
    "there is no connection: squall_open gives one".to_owned()
}

/// Returns the value of a state in C's `enum squall_state`.
fn number(state: JobState) -> u32 {
    match state {
        JobState::Pending => 1,
        JobState::Running | JobState::Configuring => 2,
        JobState::Suspended => 3,
        JobState::Completing(_) => 4,
        JobState::Ended(end) => match end {
            EndState::Completed => 16,
            EndState::Failed => 17,
            EndState::Cancelled { .. } => 18,
            EndState::Timeout => 19,
            EndState::NodeFail => 20,
            EndState::OutOfMemory => 21,
            EndState::Preempted => 22,
            EndState::Deadline => 23,
            EndState::BootFail => 24,
            EndState::Requeued => 25,
        },
    }
}

impl Job {
    /// Converts the job to a submission. Err: the reason why the job is not valid.
    ///
    /// # Safety
    /// Each pointer is NULL or valid as `squall.h` demands.
    unsafe fn submission(&self) -> Result<Submission, String> {
        // SAFETY: as the caller promises.
        let text_of = |text| unsafe { text_at(text) };
        let script = text_of(self.script)?.ok_or("a job has no script")?;
        if !script.starts_with("#!") {
            return Err(
                "This does not look like a batch script. The first line must start with #! followed by the path \
                        to an interpreter. For instance: #!/bin/sh"
                    .to_owned(),
            );
        }
        let mut job = Submission::new(text_of(self.name)?.unwrap_or("job"), script);
        let spec = &mut job.spec;
        if let Some(dir) = text_of(self.work_dir)? {
            dir.clone_into(&mut spec.work_dir);
        }
        spec.stdout = text_of(self.output)?.map(str::to_owned);
        spec.partition = text_of(self.partition)?.map(str::to_owned);
        spec.account = text_of(self.account)?.map(str::to_owned);
        // SAFETY: as the caller promises.
        for &arg in unsafe { until_null(self.args) } {
            spec.args.push(text_of(arg)?.unwrap_or_default().to_owned());
        }
        let some = |number: u32| Some(number).filter(|number| *number > 0);
        let need = &mut spec.need;
        (need.nodes_min, need.ntasks, need.cpus_per_task) =
            (some(self.nodes), some(self.tasks), some(self.cpus_per_task));
        if self.memory_mb > 0 {
            need.memory = Memory::PerNodeMb(self.memory_mb);
        }
        spec.time_limit_s = Some(self.time_limit_s).filter(|limit| *limit > 0);
        spec.hold = self.hold != 0;
        let texts = [
            ("dependency", self.dependency),
            ("array", self.array),
            ("gpus", self.gpus),
            ("qos", self.qos),
            ("constraint", self.constraint),
            ("begin", self.begin),
        ];
        let mut options = Vec::new();
        for (name, text) in texts {
            options.extend(text_of(text)?.map(|value| format!("--{name}={value}")));
        }
        // SAFETY: as the caller promises.
        for &option in unsafe { until_null(self.options) } {
            options.push(text_of(option)?.unwrap_or_default().to_owned());
        }
        if !options.is_empty() {
            job.spec = apply(std::mem::take(spec), &options)?;
        }
        if !self.env.is_null() {
            job.env.clear();
            // SAFETY: as the caller promises.
            for entry in unsafe { until_null(self.env) }.iter().filter_map(|&entry| unsafe { bytes(entry) }) {
                job.env.extend_from_slice(entry);
                job.env.push(0);
            }
        }
        Ok(job)
    }
}

/// Copies the jobs of a program that may have been compiled with an older or a newer `squall.h`: the first field of
/// each job is its size. Fields that the program does not have are zero. Err: the size is not valid, or a field is set
/// that this library does not have.
///
/// # Safety
/// There are `count` jobs of that size from `first` on.
unsafe fn copies(first: *const Job, count: usize) -> Result<Vec<Job>, String> {
    if first.is_null() || count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: there is at least one job, and it begins with its size.
    let (said, own) = (unsafe { first.cast::<usize>().read() }, size_of::<Job>());
    let size = if said == 0 { OLDEST_BYTES } else { said };
    // Where each job begins is not known without the size.
    let blind = said == 0 && count > 1;
    if blind || !(OLDEST_BYTES..=JOB_BYTES_MAX).contains(&size) || !size.is_multiple_of(align_of::<Job>()) {
        return Err(format!("squall_job.size is {size}: begin each job with SQUALL_JOB"));
    }
    let mut jobs = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: as the caller promises, there are `count` times `size` bytes.
        let (it, beyond) =
            unsafe { slice::from_raw_parts(first.cast::<u8>().add(at * size), size) }.split_at(size.min(own));
        if beyond.iter().any(|byte| *byte != 0) {
            return Err(
                "a squall_job sets fields that this libsquallclient does not know: it is older than the program"
                    .to_owned(),
            );
        }
        let mut job = std::mem::MaybeUninit::<Job>::zeroed();
        // SAFETY: there is room for `own` bytes, of which these are the first; zero is a value of every field.
        let job = unsafe {
            std::ptr::copy_nonoverlapping(it.as_ptr(), job.as_mut_ptr().cast::<u8>(), it.len());
            job.assume_init()
        };
        if job.size != said {
            return Err(format!("squall_job.size is {} in one job and {said} in another", job.size));
        }
        jobs.push(job);
    }
    Ok(jobs)
}

/// Returns the bytes of a C string; None: `text` is NULL.
///
/// # Safety
/// `text` is NULL or points to a NUL-terminated string.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as the caller promises.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns a C string as text; None: `text` is NULL. Err: it is not UTF-8.
///
/// # Safety
/// `text` is NULL or points to a NUL-terminated string.
unsafe fn text_at<'a>(text: *const c_char) -> Result<Option<&'a str>, String> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { bytes(text) };
    bytes.map(std::str::from_utf8).transpose().map_err(|_| "a text is not UTF-8".to_owned())
}

/// Returns the pointers of an array that ends with NULL.
///
/// # Safety
/// `first` is NULL, or points to an array of pointers that ends with NULL.
unsafe fn until_null<'a>(first: *const *const c_char) -> &'a [*const c_char] {
    if first.is_null() {
        return &[];
    }
    let mut count = 0;
    // SAFETY: as the caller promises.
    while !unsafe { *first.add(count) }.is_null() {
        count += 1;
    }
    // SAFETY: `count` pointers were just read.
    unsafe { slice::from_raw_parts(first, count) }
}

/// Returns `count` values from `first` on; none if it is NULL.
///
/// # Safety
/// `first` is NULL or points to `count` values, which stay valid for `'a`.
unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    // SAFETY: as the caller promises.
    if first.is_null() { &[] } else { unsafe { slice::from_raw_parts(first, count) } }
}

/// Returns `count` values from `first` on, to be written; none if it is NULL.
///
/// # Safety
/// `first` is NULL or points to `count` values, which stay valid for `'a` and are used through the result only.
unsafe fn list_mut<'a, T>(first: *mut T, count: usize) -> &'a mut [T] {
    // SAFETY: as the caller promises.
    if first.is_null() { &mut [] } else { unsafe { slice::from_raw_parts_mut(first, count) } }
}

/// Returns `count` job ids from `first` on.
///
/// # Safety
/// `first` is NULL or points to `count` ids.
unsafe fn job_ids(first: *const u32, count: usize) -> Vec<JobId> {
    // SAFETY: as the caller promises.
    unsafe { list(first, count) }.iter().map(|id| JobId(*id)).collect()
}
