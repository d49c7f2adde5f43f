//! The site's submit filter: Slurm's `job_submit.lua` or a program that reads JSON, in a process of its own.
//!
//! The controller's daemon starts such processes ([`serve`]) and sends each one job at a time. A process holds no state of
//! the cluster; what it decides is in its answer.

mod constants;
mod desc;
mod fields;
mod folder;
mod partitions;
mod program;
mod rehearse;
mod script;
mod serve;
#[cfg(test)]
mod tests;
mod update;
mod values;

pub use rehearse::rehearse;
pub use serve::{Filter, serve};
