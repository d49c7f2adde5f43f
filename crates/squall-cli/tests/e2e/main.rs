//! Clusters with real processes, seen by their users: one module a subject. No test needs root.
#![cfg(test)]

mod background;
mod bench;
mod billing;
mod cells;
mod checkpoint;
mod combinations;
mod configured;
#[path = "../harness/criu.rs"]
mod criu;
mod esp;
mod filter;
mod groups;
#[path = "../harness/mod.rs"]
mod harness;
mod hooks;
mod life;
mod mistakes;
mod mpi;
#[path = "../../../squall-store/src/accounts/tests/postgres.rs"]
#[expect(dead_code, reason = "TLS is tried where connections are made")]
mod postgres;
mod power;
mod records;
mod release_notes;
mod replace;
mod rest;
mod site_keys;
mod spank;
mod stores;
mod submit;
mod torus;
#[path = "../harness/traces.rs"]
mod traces;
mod usage;
