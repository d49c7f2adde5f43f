//! Parsers of option values: numbers, times, dependencies, arrays, signals.

pub mod array;
pub mod checked;
pub mod dependency;
pub mod jobs;
pub mod node_state;
pub mod number;
pub mod signal;
pub mod when;
