//! Shared by commands that list and control: access to the controller and the environment, command lines, lists of
//! names.

pub(crate) mod call;
pub(crate) mod lists;
pub(crate) mod past;
pub(crate) mod select;
pub(crate) mod structured;

#[cfg(test)]
pub(crate) mod fake;
