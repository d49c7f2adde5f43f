//! Clusters of several machines and users, which need root: machines made of namespaces, and what a site sets up.
#![cfg(test)]

mod machines;
mod site;
#[path = "../harness/traces.rs"]
mod traces;
