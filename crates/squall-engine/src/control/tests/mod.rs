//! Stories of the controller as a machine alone: what it decides, sends and answers, and that replay gives it again.

mod allocations;
mod arrays;
mod backfill;
mod cover;
mod dependencies;
mod driver;
mod foreign;
mod fuzz;
mod gang;
mod gres;
mod het;
mod lease;
mod licenses;
mod life;
mod limits;
mod nodes;
mod partitions;
mod passes;
mod policy;
mod precedence;
mod reservations;
mod torus;
mod why;
