//! Tests of the fabric: one relay alone, and whole trees of node machines with a controller at the root.

mod chaos;
mod files;
mod grove;
mod proof;
mod relay;
mod stories;
