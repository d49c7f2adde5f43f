//! Scenarios: scripted simulations as text that operators can read, as tests and as documentation.

pub(crate) mod expect;
pub(crate) mod parse;
pub(crate) mod run;
