//! `pam_squall.so`: refuses logins on a node to users without a job there, and makes a login a part of its user's job.
//!
//! The node daemon adopts the process that asks: it moves it into the cgroups of the job, so that the login has the
//! job's cores, memory and devices, and ends with it. The module asks through a socket that only root can use.

#![cfg_attr(not(test), expect(clippy::missing_safety_doc, reason = "PAM calls these functions as its manual says"))]

mod ask;
mod options;
#[cfg(not(test))]
mod pam;

#[cfg(not(test))]
pub use pam::{pam_sm_acct_mgmt, pam_sm_close_session, pam_sm_open_session};
