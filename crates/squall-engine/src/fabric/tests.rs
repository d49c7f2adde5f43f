//! The fabric: one relay by itself, and whole trees of node machines with a controller at the root.

mod chaos;
mod files;
mod grove;
mod relay;
mod stories;
