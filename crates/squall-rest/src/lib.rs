//! Squall over HTTP: Slurm's REST interface, events, metrics and the dashboard, in a process without privileges or
//! state.
