//! A program's connection to the controller: requests and answers, and thousands of jobs without a process for each.
//!
//! ```no_run
//! use squall_client::{Jobs, Submission};
//!
//! let mut jobs = Jobs::connect(None)?;
//! let wanted = (0..1000).map(|n| Submission::new(&format!("n{n}"), "#!/bin/sh\nexec ./work\n"));
//! let mut ids = Vec::new();
//! jobs.submit(&wanted.collect::<Vec<_>>(), |_, id| ids.push(id))?;
//! for (id, end) in jobs.wait(&ids)? {
//!     println!("{id}: {:?}", end.state);
//! }
//! # Ok::<(), squall_client::ClientError>(())
//! ```

pub mod broadcast;
mod connection;
mod follow;
mod jobs;

pub use connection::{Client, ClientError, SILENCE, configured, unexpected};
pub use follow::{FeedSelection, Follower};
pub use jobs::{Jobs, Submission, random};
