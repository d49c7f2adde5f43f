//! Devices that a node daemon has found on its machine.

use minicbor::{Decode, Encode};

use crate::set::CoreSet;

/// A device of a generic resource, as a node daemon has found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct FoundDevice {
    /// Name of the resource, such as `gpu`.
    #[n(0)]
    pub name: String,
    /// Type of the device, such as `nvidia_a100-sxm4-40gb`. Empty: unknown.
    #[n(1)]
    pub kind: String,
    /// Paths of its device files.
    #[n(2)]
    pub files: Vec<String>,
    /// Cores near the device. Empty: all cores are equally near, or it is not known.
    #[n(3)]
    pub cores: CoreSet,
    /// Number of links to each device of the machine, -1 for itself. Empty: there are none.
    #[n(4)]
    pub links: Vec<i32>,
    /// Name by which programs choose it, for a part of a device (MIG). Empty: by its number.
    #[n(5)]
    pub id: String,
}

impl FoundDevice {
    /// Returns a GPU of which nothing is known.
    pub fn gpu() -> Self {
        Self { name: "gpu".to_owned(), ..Self::default() }
    }
}
