//! Worlds of the simulator: one module a subject.
#![cfg(test)]

mod boot;
mod everywhere;
mod keys;
mod members;
mod seeds;
mod stories;
