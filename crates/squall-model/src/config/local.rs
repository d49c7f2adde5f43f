//! Settings of the configuration file that concern daemons and sockets only.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A setting of daemons and sockets, which is in the configuration file but not in the cluster's state. All values
/// compare as equal, so a change of the setting is no change of the state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local<T>(pub T);

impl<T> PartialEq for Local<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Local<T> {}

impl<T: Serialize> Serialize for Local<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Local<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}
