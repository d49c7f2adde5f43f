//! Configuration in journal records and messages: encoded as the text of a configuration file, so that keys may be
//! added and old journals stay readable.

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use serde::Serialize;

use super::{Config, Local, NodeConfig, PartitionConfig};

/// First bytes of a configuration. In a configuration file they are an empty comment line.
const MARK: &str = "#\n";

fn text<T: Serialize>(value: &T) -> Result<String, toml::ser::Error> {
    toml::to_string(value).map(|text| format!("{MARK}{text}"))
}

impl Config {
    /// Returns a copy with the options of `other` that concern one machine only: addresses and ports of daemons, the
    /// controllers and their log. Which nodes are on other machines is left out.
    #[must_use]
    pub fn with_here_of(&self, other: &Self) -> Self {
        let mut shared = self.clone();
        (shared.slurmctld_host, shared.slurmctld_port) = (other.slurmctld_host.clone(), other.slurmctld_port);
        (shared.controllers, shared.log) = (other.controllers.clone(), other.log.clone());
        shared.slurmd_port = other.slurmd_port;
        shared.nodes.iter_mut().for_each(|node| node.remote = Local::default());
        shared
    }

    /// Returns a copy without options that concern one machine only.
    fn of_cluster(&self) -> Self {
        self.with_here_of(&Self::default())
    }
}

/// Encodes a configuration with the options that concern one machine only, for those who ask what is in force.
#[expect(clippy::borrowed_box, reason = "the field of the answer is a box")]
pub(crate) fn encode_whole<C, W: Write>(
    config: &Box<Config>,
    e: &mut Encoder<W>,
    _: &mut C,
) -> Result<(), encode::Error<W::Error>> {
    e.str(&text(config.as_ref()).map_err(encode::Error::message)?)?.ok()
}

impl<C> Encode<C> for Config {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(&text(&self.of_cluster()).map_err(encode::Error::message)?)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Config {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        toml::from_str(d.str()?).map_err(decode::Error::message)
    }
}

impl<C> Encode<C> for PartitionConfig {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(&text(self).map_err(encode::Error::message)?)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for PartitionConfig {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        toml::from_str(d.str()?).map_err(decode::Error::message)
    }
}

impl<C> Encode<C> for NodeConfig {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(&text(self).map_err(encode::Error::message)?)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for NodeConfig {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        toml::from_str(d.str()?).map_err(decode::Error::message)
    }
}

#[cfg(test)]
mod tests {
    use super::Config;
    use crate::encoding::{from_slice, to_vec};

    #[test]
    fn what_concerns_sockets_stands_in_the_file_and_not_in_the_journal() {
        let text = "SlurmctldHost = \"head\"\nSlurmctldPort = 6817\n[[nodes]]\nname = \"n1\"\nremote = true\n";
        let config = Config::from_toml(text).expect("these are the words");
        assert_eq!((config.slurmctld_host.0.as_str(), config.slurmctld_port.0), ("head", 6817));
        assert!(config.nodes[0].remote.0);
        let bytes = to_vec(&config);
        let without = Config::from_toml("[[nodes]]\nname = \"n1\"\n").expect("it is one");
        assert_eq!(bytes, to_vec(&without));
        let read: Config = from_slice(&bytes).expect("it can be read");
        assert_eq!(read.slurmctld_port.0, 0);
    }

    #[test]
    fn the_highest_number_is_written_and_read() {
        let config = Config { kill_wait_s: u64::MAX, ..Config::default() };
        assert_eq!(from_slice(&to_vec(&config)), Ok(config));
    }
}
