//! How a node keeps jobs to the resources that they hold.

use minicbor::{Decode, Encode};

/// How a node keeps jobs to what they hold, for each kind of resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Confinement {
    /// Cores.
    #[n(0)]
    pub cores: Enforcement,
    /// Memory, for jobs that ask for some.
    #[n(1)]
    pub memory: Enforcement,
    /// Swap space: jobs with limited memory have none.
    #[n(2)]
    pub swap: Enforcement,
    /// Device files of generic resources.
    #[n(3)]
    pub devices: Enforcement,
    /// The number of processes.
    #[n(4)]
    pub processes: Enforcement,
}

/// How jobs are kept to a kind of resource, or why they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Enforcement {
    /// Not: the node's kernel, or the rights of its daemon, do not allow it.
    #[default]
    #[n(0)]
    Unable,
    /// Not: the configuration says so.
    #[n(1)]
    Off,
    /// Not: several nodes share the machine.
    #[n(2)]
    Shared,
    /// There is nothing to keep jobs from.
    #[n(3)]
    Idle,
    /// Not, but tasks begin with their own (CPU affinity).
    #[n(4)]
    Bound,
    /// Not by the kernel, but a job that has more is killed.
    #[n(5)]
    Watched,
    /// By a cgroup.
    #[n(6)]
    Group,
    /// By a program in a cgroup.
    #[n(7)]
    Program,
    /// Steps that would have to be kept from something are not started, as the node can't see to it.
    #[n(8)]
    Refused,
}

impl Enforcement {
    /// Returns the word for users.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unable => "unsupported",
            Self::Off => "off",
            Self::Shared => "shared-machine",
            Self::Idle => "none",
            Self::Bound => "affinity",
            Self::Watched => "watched",
            Self::Group => "cgroup",
            Self::Program => "bpf",
            Self::Refused => "refused",
        }
    }
}

impl Confinement {
    /// Returns all kinds of resources as text: `cores:cgroup,memory:cgroup,swap:unsupported`.
    pub fn text(&self) -> String {
        let all = [
            ("cores", self.cores),
            ("memory", self.memory),
            ("swap", self.swap),
            ("devices", self.devices),
            ("processes", self.processes),
        ];
        all.map(|(what, kept)| format!("{what}:{}", kept.word())).join(",")
    }
}
