//! What commands and REST bodies change: pure functions from words to changes of records. Both only parse into them.

pub mod accounts;
pub mod job;
pub mod key;
pub mod member;
pub mod node;
pub mod partition;
pub mod reservation;
pub mod setting;
#[cfg(test)]
mod tests;
