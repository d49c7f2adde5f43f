//! Tori and meshes: fast search and good choice of prisms that keep a job's traffic inside.

mod board;
mod choose;
mod frame;
mod order;
mod reserve;
mod route;
mod search;
mod shapes;
mod sums;

pub use board::Board;
pub(crate) use choose::turned;
pub use choose::{Ask, Chooser, Placed, Step};
pub use frame::{AXES_MAX, Axis, Coords, Frame, FrameFault, Prism, hull};
pub use order::Order;
pub use reserve::{Reservation, earliest};
pub use route::{Link, Loads, across, route};
pub use search::{Fits, count_corners};
pub use shapes::{Shape, Shapes};
pub use sums::Sums;

#[cfg(test)]
mod tests;
