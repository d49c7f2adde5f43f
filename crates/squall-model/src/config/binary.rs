//! Configuration in journal records and messages: encoded as the text of a configuration file, so that keys may be
//! added and old journals stay readable. Older journals hold the fields one after the other instead.

use std::fmt;
use std::marker::PhantomData;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use super::{Aggregation, Config, Here, NodeConfig, PartitionConfig, PartitionState, RoutePolicy, SwitchConfig};

/// First bytes of a configuration stored as text. They tell it from the older form, which begins with the name of a
/// cluster or partition. In a configuration file they are an empty comment line.
const MARK: &str = "#\n";

/// A type of configuration that older journals hold as its name, followed by its other fields.
trait Fields: Sized {
    /// Type of the fields after the name.
    type Rest: DeserializeOwned;
    /// Returns the value with this name and these other fields.
    fn of(name: String, rest: Self::Rest) -> Self;
}

fn write<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(value).map_err(ser::Error::custom)?)
}

fn text<T: Serialize>(value: &T) -> Result<String, toml::ser::Error> {
    toml::to_string(value).map(|text| format!("{MARK}{text}"))
}

fn read<'de, T: Fields + DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Parts<T>(PhantomData<T>);
    impl<'de, T: Fields + DeserializeOwned> Visitor<'de> for Parts<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a configuration")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<T, A::Error> {
            let text: String = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
            if let Some(text) = text.strip_prefix(MARK) {
                return toml::from_str(text).map_err(A::Error::custom);
            }
            let rest = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
            Ok(T::of(text, rest))
        }
    }
    deserializer.deserialize_tuple(2, Parts(PhantomData))
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return Self::serialize(self, serializer);
        }
        write(&self.of_cluster(), serializer)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() { Self::deserialize(deserializer) } else { read(deserializer) }
    }
}

impl Serialize for PartitionConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { Self::serialize(self, serializer) } else { write(self, serializer) }
    }
}

impl<'de> Deserialize<'de> for PartitionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() { Self::deserialize(deserializer) } else { read(deserializer) }
    }
}

impl Config {
    /// Returns a copy without options that concern one machine only: addresses and ports of daemons, the controllers and
    /// their log, and which nodes are on other machines.
    fn of_cluster(&self) -> Self {
        let mut shared = self.clone();
        (shared.slurmctld_host, shared.slurmctld_port) = (Here::default(), Here::default());
        (shared.controllers, shared.log) = (Here::default(), Here::default());
        shared.slurmd_port = Here::default();
        shared.nodes.iter_mut().for_each(|node| node.remote = Here::default());
        shared
    }
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

/// The fields of `Config` after its name, in the form of older journals. Never change their number, order or types.
#[derive(Deserialize)]
struct ConfigRest {
    nodes: Vec<NodeFields>,
    partitions: Vec<PartitionConfig>,
    open: bool,
    kill_wait_s: u64,
    min_job_age_s: u64,
    max_array_size: u32,
    max_job_count: u32,
    job_requeue: bool,
    kill_invalid_depend: bool,
    node_timeout_s: u64,
    node_lost_s: u64,
    default_account: String,
    default_qos: String,
    tree_width: u32,
    msg_aggregation_params: Aggregation,
    route_plugin: RoutePolicy,
    switches: Vec<SwitchConfig>,
    def_mem_per_cpu_mb: u64,
}

/// The fields of a node's configuration, in the form of older journals. Never change their number, order or types.
#[derive(Deserialize)]
struct NodeFields {
    name: String,
    cpus: Option<u32>,
    sockets: Option<u32>,
    cores_per_socket: Option<u32>,
    threads_per_core: Option<u32>,
    memory_mb: Option<u64>,
    features: Vec<String>,
    force: bool,
    emulated: bool,
}

/// The fields of a partition's configuration after its name, in the form of older journals. Never change their number,
/// order or types.
#[derive(Deserialize)]
struct PartitionRest {
    nodes: String,
    default: bool,
    max_time_s: Option<u64>,
    default_time_s: Option<u64>,
    max_nodes: Option<u32>,
    min_nodes: u32,
    allow_users: Vec<String>,
    allow_groups: Vec<String>,
    priority_tier: u32,
    state: PartitionState,
}

impl Fields for Config {
    type Rest = ConfigRest;
    fn of(cluster: String, rest: ConfigRest) -> Self {
        let ConfigRest { open, kill_wait_s, min_job_age_s, max_array_size, max_job_count, .. } = rest;
        let ConfigRest { job_requeue, kill_invalid_depend, node_timeout_s, node_lost_s, .. } = rest;
        let ConfigRest { tree_width, msg_aggregation_params, route_plugin, def_mem_per_cpu_mb, .. } = rest;
        Self {
            cluster,
            nodes: rest.nodes.into_iter().map(NodeConfig::from).collect(),
            partitions: rest.partitions,
            open,
            kill_wait_s,
            min_job_age_s,
            max_array_size,
            max_job_count,
            job_requeue,
            kill_invalid_depend,
            node_timeout_s,
            node_lost_s,
            default_account: rest.default_account,
            default_qos: rest.default_qos,
            tree_width,
            msg_aggregation_params,
            route_plugin,
            switches: rest.switches,
            def_mem_per_cpu_mb,
            ..Self::default()
        }
    }
}

impl From<NodeFields> for NodeConfig {
    fn from(fields: NodeFields) -> Self {
        let NodeFields { name, cpus, sockets, cores_per_socket, threads_per_core, .. } = fields;
        let NodeFields { memory_mb, features, force, emulated, .. } = fields;
        let sizes = Self { cpus, sockets, cores_per_socket, threads_per_core, memory_mb, ..Self::default() };
        Self { name, features, force, emulated, ..sizes }
    }
}

impl Fields for PartitionConfig {
    type Rest = PartitionRest;
    fn of(name: String, rest: PartitionRest) -> Self {
        let PartitionRest { nodes, default, max_time_s, default_time_s, max_nodes, min_nodes, .. } = rest;
        let PartitionRest { allow_users, allow_groups, priority_tier, state, .. } = rest;
        let limits = Self { max_time_s, default_time_s, max_nodes, min_nodes, ..Self::default() };
        Self { name, nodes, default, allow_users, allow_groups, priority_tier, state, ..limits }
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
