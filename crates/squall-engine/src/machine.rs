//! The one concept to learn: a machine turns inputs into outputs and touches nothing else.

use squall_model::time::Time;

/// A state machine. Who runs it (host, simulator) owns clock, sockets, disk and processes.
pub trait Machine {
    /// What it is told.
    type Input;
    /// What it wants done; filled by `step`, carried out and cleared by who runs it.
    type Out;

    /// Takes one input. Never blocks, never fails, never reads a clock; `now` never goes back.
    fn step(&mut self, now: Time, input: Self::Input, out: &mut Self::Out);

    /// When to call again with its tick if nothing else happens; None: not needed.
    fn deadline(&self) -> Option<Time>;
}
