//! What commands and REST bodies change: pure functions from words to changes of records. Both only parse into them.

pub mod accounts;
pub mod setting;
