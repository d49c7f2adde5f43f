//! Host lists.
