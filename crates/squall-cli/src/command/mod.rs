//! The commands, one file (or folder) each.

pub(crate) mod bench;
