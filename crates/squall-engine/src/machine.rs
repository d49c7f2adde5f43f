//! The interface of all state machines: a machine turns inputs into outputs and touches nothing else.

use squall_model::time::Time;

/// A state machine. Its host (daemon or simulator) owns clock, sockets, disk and processes.
pub trait Machine {
    /// Input of the machine.
    type Input;
    /// Output of the machine: filled by `step`, carried out and cleared by the host.
    type Out;

    /// Handles one input. Never blocks, never fails, never reads a clock; `now` never goes back.
    fn step(&mut self, now: Time, input: Self::Input, out: &mut Self::Out);

    /// Returns the time at which the host has to give the machine its tick input, unless another input comes before.
    /// None: the machine needs no tick.
    fn deadline(&self) -> Option<Time>;
}
