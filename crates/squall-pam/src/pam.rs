//! The functions that PAM calls, and those of PAM that are called. The library of PAM is that of the program which has
//! loaded this module, so it is not linked.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null;

use crate::ask::{ask, judge};
use crate::options::{Options, Verdict};

// Values of `_pam_types.h`.
const PAM_SUCCESS: c_int = 0;
const PAM_PERM_DENIED: c_int = 6;
const PAM_USER_UNKNOWN: c_int = 10;
const PAM_IGNORE: c_int = 25;
const PAM_TEXT_INFO: c_int = 4;

unsafe extern "C" {
    fn pam_get_user(handle: *mut c_void, user: *mut *const c_char, prompt: *const c_char) -> c_int;
    fn pam_modutil_getpwnam(handle: *mut c_void, user: *const c_char) -> *const libc::passwd;
    fn pam_syslog(handle: *const c_void, priority: c_int, format: *const c_char, ...);
    fn pam_prompt(handle: *mut c_void, style: c_int, answer: *mut *mut c_char, format: *const c_char, ...) -> c_int;
}

/// Decides whether a user may log in, and makes the login a part of the user's job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pam_sm_acct_mgmt(
    handle: *mut c_void,
    _flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // A panic must not pass into the program that has loaded this module.
    // SAFETY: PAM gives its own handle, and as many texts as it says.
    std::panic::catch_unwind(|| unsafe { account(handle, argc, argv) }).unwrap_or(PAM_PERM_DENIED)
}

/// Does the same for a service that has the module among its sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pam_sm_open_session(
    handle: *mut c_void,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: as PAM has called this.
    unsafe { pam_sm_acct_mgmt(handle, flags, argc, argv) }
}

/// Does nothing: a login that is a part of a job ends with it at the latest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pam_sm_close_session(
    _handle: *mut c_void,
    _flags: c_int,
    _argc: c_int,
    _argv: *const *const c_char,
) -> c_int {
    PAM_SUCCESS
}

unsafe fn account(handle: *mut c_void, argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: PAM gives `argc` texts that end with NUL.
    let word = |at: usize| unsafe { CStr::from_ptr(*argv.add(at)) }.to_string_lossy().into_owned();
    let words: Vec<String> = (0..usize::try_from(argc).unwrap_or(0)).map(word).collect();
    let (options, complaints) = Options::read(&words);
    // SAFETY: as PAM has given the handle.
    complaints.iter().for_each(|complaint| unsafe { log(handle, libc::LOG_ERR, complaint) });
    let mut user = null();
    // SAFETY: PAM sets the pointer to a text that it keeps, or fails.
    if unsafe { pam_get_user(handle, &raw mut user, null()) } != PAM_SUCCESS || user.is_null() {
        return PAM_USER_UNKNOWN;
    }
    // SAFETY: the text is PAM's, and so is the record.
    let (name, found) =
        unsafe { (CStr::from_ptr(user).to_string_lossy().into_owned(), pam_modutil_getpwnam(handle, user).as_ref()) };
    let Some(uid) = found.map(|found| found.pw_uid) else { return PAM_USER_UNKNOWN };
    if uid == 0 || options.users.contains(&name) {
        return PAM_IGNORE;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let answer = ask(&options.socket(host.trim()), uid, options.several);
    let (verdict, line, told) = judge(&options, &name, answer);
    let priority = if verdict == Verdict::Allow { libc::LOG_INFO } else { libc::LOG_NOTICE };
    // SAFETY: as above.
    unsafe { log(handle, priority, &line) };
    if let Some(told) = told.and_then(|told| CString::new(told).ok()) {
        // SAFETY: format and text end with NUL; no answer is asked for.
        unsafe { pam_prompt(handle, PAM_TEXT_INFO, std::ptr::null_mut(), c"%s".as_ptr(), told.as_ptr()) };
    }
    match verdict {
        Verdict::Allow => PAM_SUCCESS,
        Verdict::Deny => PAM_PERM_DENIED,
        Verdict::Ignore => PAM_IGNORE,
    }
}

unsafe fn log(handle: *const c_void, priority: c_int, line: &str) {
    let Ok(line) = CString::new(line) else { return };
    // SAFETY: format and text end with NUL.
    unsafe { pam_syslog(handle, priority, c"%s".as_ptr(), line.as_ptr()) };
}
