//! What crates together promise about stored and sent values.
#![cfg(test)]

mod configuration;
mod golden;
mod sets;
mod wide;
