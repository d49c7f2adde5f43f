//! Stories of the controller as a machine alone: what it decides, sends and answers, and that replay gives it again.

mod driver;
mod life;
