//! Squall's data types, shared by all crates above: plain data without behaviour other than parsing, printing and
//! comparing.
#![forbid(unsafe_code)]

pub mod billing;
pub mod checkpoint;
pub mod codec;
pub mod config;
pub mod confinement;
pub mod cost;
pub mod duration;
pub mod encoding;
pub mod energy;
pub mod event;
pub mod fault;
pub mod foreign;
pub mod found;
pub mod gang;
pub mod gres;
pub mod hostlist;
pub mod id;
pub mod inside;
pub mod interface;
pub mod job;
pub mod journal;
pub mod license;
pub mod limits;
mod linked;
pub mod places;
pub mod plain;
pub mod policy;
pub mod power;
pub mod replica;
pub mod report;
pub mod reservation;
pub mod resource;
pub mod rotation;
pub mod runs;
pub mod series;
pub mod set;
pub mod step;
pub mod time;
pub mod version;
pub mod wire;
