//! Clusters with real processes, seen by their users: one module a subject. No test needs root.
#![cfg(test)]

mod bench;
mod billing;
mod cells;
mod checkpoint;
mod combinations;
mod configured;
mod esp;
mod filter;
#[path = "../harness/mod.rs"]
mod harness;
mod hooks;
mod life;
mod mistakes;
mod mpi;
mod power;
mod records;
mod release_notes;
mod replace;
mod rest;
mod spank;
mod submit;
mod torus;
#[path = "../harness/traces.rs"]
mod traces;
mod usage;
