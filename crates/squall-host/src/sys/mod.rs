//! System calls that no safe crate offers; the only place with `unsafe`.

pub(crate) mod bpf;
pub mod clock;
pub mod command;
pub(crate) mod descriptors;
pub(crate) mod fsuser;
pub(crate) mod heap;
pub(crate) mod host;
pub(crate) mod hwloc;
pub(crate) mod identity;
pub(crate) mod interfaces;
pub(crate) mod limits;
pub(crate) mod nvml;
pub(crate) mod offspring;
pub mod peer;
pub(crate) mod pidfd;
pub(crate) mod pmix;
pub mod realtime;
pub mod signals;
pub(crate) mod spank;
pub(crate) mod spawn;
pub(crate) mod ucx;
pub mod wait;
pub(crate) mod watch;
