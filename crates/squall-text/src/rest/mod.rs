//! What the REST interface takes: its paths, the document that describes these, and bodies of requests.

pub mod body;
pub mod change;
#[cfg(test)]
mod hostile;
pub mod job;
pub mod openapi;
pub mod partition;
pub mod paths;
pub mod policy;
pub mod query;
pub mod record;

pub use body::Parsed;
pub use paths::{Method, Operation, PATHS, Path};
