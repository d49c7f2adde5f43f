//! Parsers of option values: numbers, times, dependencies, arrays, signals.

pub(crate) mod array;
pub(crate) mod checked;
pub(crate) mod dependency;
pub(crate) mod number;
pub(crate) mod signal;
pub(crate) mod when;
