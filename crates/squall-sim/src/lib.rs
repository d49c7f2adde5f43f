//! Simulation of Squall with one heap of timed events, one random seed and injected faults. It runs the production
//! state machines.
//!
//! [`run`] simulates one seed with random users and faults; [`tell`] runs a scripted scenario; [`Mutation`]s are
//! planted bugs by which the simulator itself is tested. The judge compares the answers to clients, the simulated
//! processes and the records on the simulated disk. It never relies on the state of the machines under test.
#![forbid(unsafe_code)]

mod agenda;
mod cells;
mod coverage;
mod judge;
mod mutation;
mod network;
mod order;
mod peers;
mod query;
mod removals;
mod run;
mod scenario;
mod seed;
mod setup;
mod signers;
mod trace;
mod wish;
mod world;

pub use coverage::{Coverage, Fault, Phase};
pub use judge::Violation;
pub use mutation::Mutation;
pub use run::{Report, Settings, run};
pub use scenario::parse::ParseError;
pub use scenario::run::{StoryFailure, tell};
pub use seed::Seed;
