//! The step: what a step daemon decides.
