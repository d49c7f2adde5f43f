//! How the processes of a step find each other, as machines: gatherings and direct questions between the step daemons of
//! one step (`exchange`), what ranks publish (`board`), and the PMI protocol of MPICH and its family (`pmi`). PMIx itself is libpmix's; what it asks its
//! host for is the exchange.

mod board;
pub mod exchange;
pub mod pmi;
pub mod ring;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wide;
