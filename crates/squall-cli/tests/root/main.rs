//! Clusters of several machines and users, which need root: machines made of namespaces, and what a site sets up.
#![cfg(test)]

#[path = "../harness/criu.rs"]
mod criu;
mod machines;
mod site;
#[path = "../harness/traces.rs"]
mod traces;
