//! The SPANK plugins of a step.

use minicbor::{Decode, Encode};

/// The file that lists a site's SPANK plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct PluginFile {
    /// Its absolute path.
    #[n(0)]
    pub path: String,
    /// Time that a hook of a plugin may take, seconds.
    #[n(1)]
    pub timeout_s: u64,
    /// Release of Slurm that plugins are told. Empty: the default.
    #[n(2)]
    #[cbor(default)]
    pub release: String,
}
