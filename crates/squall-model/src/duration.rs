//! Durations.
