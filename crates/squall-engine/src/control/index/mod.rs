//! Soft state of the controller, derived from [`State`](super::state::State): the queue, timers, limits, views. A crash
//! of the controller loses it and a start rebuilds it.

pub(crate) mod bars;
pub(crate) mod depend;
pub(crate) mod desk;
pub(crate) mod facts;
pub(crate) mod fair;
pub(crate) mod feed;
pub(crate) mod foreign;
pub(crate) mod gang;
pub(crate) mod lanes;
pub(crate) mod layout;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod lists;
pub(crate) mod losing;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod next;
pub(crate) mod ordered;
pub(crate) mod page;
pub(crate) mod pending;
pub(crate) mod power;
pub(crate) mod privacy;
pub(crate) mod programs;
pub(crate) mod queue;
pub(crate) mod reckon;
pub(crate) mod reserved;
pub(crate) mod signals;
pub(crate) mod size;
pub(crate) mod starved;
pub(crate) mod timers;
pub(crate) mod todo;
pub(crate) mod users;
pub(crate) mod victims;
pub(crate) mod view;
pub(crate) mod waits;
