//! Wire-up: how the processes of a step find each other, as state machines.
//!
//! The step daemons of one step exchange gatherings and direct questions (`exchange`), keep the values that ranks
//! publish (`board`), and speak the PMI protocol of MPICH and its family (`pmi`). PMIx itself is handled by libpmix,
//! which uses the exchange.

mod board;
pub mod exchange;
pub mod pmi;
pub mod ring;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wide;
