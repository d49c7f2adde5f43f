//! Slurm's words, for commands and servers: options and batch scripts, names of states and reasons, columns of listings,
//! JSON, refusals.

pub mod columns;
pub mod format;
pub mod hints;
pub mod limits;
pub mod metrics;
pub mod options;
pub mod page;
pub mod picture;
pub mod refusal;
pub mod report;
pub mod rest;
pub mod script;
pub mod shapes;
pub mod verbs;
