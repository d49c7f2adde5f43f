//! Splits the configuration of one cluster into configurations for several cells. Each cell gets a share of the nodes
//! and licenses, and all other settings. Writes configurations and values of keys.

use std::collections::BTreeMap;

use super::{Config, NodeConfig, PartitionConfig};
use crate::limits::CELLS_MAX;
use crate::{hostlist, license};

impl Config {
    /// Splits the configuration into `cells` configurations, one for each cell. A cell gets an equal share of
    /// consecutive nodes, the partitions that have nodes among them, and an equal share of the licenses, because cells
    /// can't lend each other licenses. Fails, with a text for users, if a setting can't be split or there are too few
    /// nodes.
    pub fn deal(&self, cells: u32) -> Result<Vec<Self>, String> {
        let whole = [
            (self.topology.text.is_empty() && self.switches.is_empty(), "a topology"),
            (self.slurmctld_port.0 == 0, "SlurmctldPort (nodes on other machines)"),
            (!self.has_standbys(), "several controllers ([[controllers]])"),
            (self.multicast.0.is_empty(), "multicast"),
            (self.cell.is_none(), "cell"),
        ];
        if let Some((_, what)) = whole.iter().find(|(none, _)| !none) {
            return Err(format!("{what} can't be dealt to cells: configure each cell by itself"));
        }
        let mut nodes: Vec<(usize, String)> = Vec::new();
        for (entry, config) in self.nodes.iter().enumerate() {
            let names = hostlist::expand(&config.name).map_err(|e| format!("nodes `{}`: {e}", config.name))?;
            nodes.extend(names.into_iter().map(|name| (entry, name)));
        }
        if !(1..=CELLS_MAX).contains(&cells) || nodes.len() < cells as usize {
            return Err(format!(
                "{cells} cells for {} node(s): use 1 to {CELLS_MAX} cells, each with a node at least",
                nodes.len()
            ));
        }
        (0..cells).map(|cell| self.part(cell, cells, &nodes)).collect()
    }

    fn part(&self, cell: u32, cells: u32, nodes: &[(usize, String)]) -> Result<Self, String> {
        let bound = |cell: u32, all: usize| all * cell as usize / cells as usize;
        let own = &nodes[bound(cell, nodes.len())..bound(cell + 1, nodes.len())];
        let entries = self.nodes.iter().enumerate().filter_map(|(entry, config)| {
            let names = own.iter().filter(|(of, _)| *of == entry).map(|(_, name)| name.as_str());
            let name = hostlist::compress(names);
            (!name.is_empty()).then(|| NodeConfig { name, ..config.clone() })
        });
        let mut partitions = Vec::new();
        for partition in &self.partitions {
            if partition.named_nodes().is_empty() {
                partitions.push(partition.clone());
                continue;
            }
            let names = hostlist::expand(&partition.nodes).map_err(|e| format!("partition {}: {e}", partition.name))?;
            let names: Vec<String> = names.into_iter().filter(|name| own.iter().any(|(_, own)| own == name)).collect();
            if !names.is_empty() {
                partitions.push(PartitionConfig { nodes: hostlist::compress(names), ..partition.clone() });
            }
        }
        if partitions.is_empty() {
            return Err(format!("no partition has nodes of cell {cell}"));
        }
        let share = |count: u32| bound(cell + 1, count as usize) - bound(cell, count as usize);
        let licenses = license::parse(&self.licenses).unwrap_or_default().into_iter();
        let licenses = licenses.map(|(name, count)| (name, share(count))).filter(|(_, count)| *count > 0);
        let licenses: Vec<String> = licenses.map(|(name, count)| format!("{name}:{count}")).collect();
        let mut part = Self { cell: Some(cell), nodes: entries.collect(), partitions, ..self.clone() };
        part.licenses = licenses.join(",");
        Ok(part)
    }

    /// Writes the configuration as the text of a file. Keys that have their default are left out.
    pub fn to_toml(&self) -> Result<String, String> {
        let table = |config: &Self| toml::Table::try_from(config).map_err(|e| e.to_string());
        let usual = table(&Self::default())?;
        let mut own = table(self)?;
        own.retain(|key, value| usual.get(key) != Some(value));
        toml::to_string(&own).map_err(|e| e.to_string())
    }

    /// Returns the values of keys by their names at the top of the file, as `hooks.prolog`, lists with commas. Tables
    /// that may be repeated, and keys without a value, are not among them.
    pub fn values(&self) -> Result<BTreeMap<String, String>, String> {
        // Tables that are written only if they are set stand beside the whole.
        let tables = [
            ("", toml::Table::try_from(self)),
            ("log.", toml::Table::try_from(&self.log)),
            ("rest.", toml::Table::try_from(&self.rest)),
            ("hooks.", toml::Table::try_from(&self.hooks)),
            ("health.", toml::Table::try_from(&self.health)),
            ("submit.", toml::Table::try_from(&self.submit)),
            ("slurm.", toml::Table::try_from(&self.slurm)),
            ("power.", toml::Table::try_from(&self.power)),
            ("accounting.", toml::Table::try_from(&self.accounting)),
            ("energy.", toml::Table::try_from(&self.energy)),
        ];
        let mut values = BTreeMap::new();
        for (table, keys) in tables {
            let keys = keys.map_err(|e| e.to_string())?;
            values.extend(keys.into_iter().map(|(name, value)| (format!("{table}{name}"), plain(value))));
        }
        Ok(values)
    }
}

/// Returns a value as text: a text without its quotes, a list with commas.
fn plain(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        toml::Value::Array(all) => all.into_iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn every_node_and_license_is_dealt_once() {
        let text = "licenses = \"a:5,b:1\"\n[[nodes]]\nname = \"n[1-5]\"\ncpus = 4\nforce = true\n\
                    [[nodes]]\nname = \"g[1-2]\"\ngres = \"gpu:2\"\n[[partitions]]\nname = \"all\"\n\
                    [[partitions]]\nname = \"gpu\"\nnodes = \"g[1-2]\"\n";
        let parts = Config::from_toml(text).unwrap().deal(3).unwrap();
        let nodes: Vec<String> = parts
            .iter()
            .map(|part| part.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(","))
            .collect();
        assert_eq!(nodes, ["n[1-2]", "n[3-4]", "n5,g[1-2]"]);
        let licenses: Vec<&str> = parts.iter().map(|part| part.licenses.as_str()).collect();
        assert_eq!(licenses, ["a:1", "a:2", "a:2,b:1"]);
        assert_eq!(parts[0].partitions.len(), 1);
        assert_eq!(parts[2].partitions[1].nodes, "g[1-2]");
        for part in parts {
            assert_eq!(Config::from_toml(&part.to_toml().unwrap()), Ok(part));
        }
    }

    #[test]
    fn what_can_not_be_dealt_is_said() {
        let config = |text: &str| Config::from_toml(text).unwrap();
        assert!(config("[[nodes]]\nname = \"n1\"\n").deal(2).unwrap_err().contains("2 cells for 1 node(s)"));
        let ported = config("SlurmctldPort = 6817\n[[nodes]]\nname = \"n[1-2]\"\n");
        assert!(ported.deal(2).unwrap_err().contains("SlurmctldPort"));
    }

    #[test]
    fn ids_of_cells_do_not_overlap() {
        let ids = |cell| Config { cell, ..Config::default() }.job_ids();
        assert_eq!(ids(None), 1..=67_043_328);
        assert_eq!(ids(Some(0)), 1..=67_108_863);
        assert_eq!(ids(Some(1)), 67_108_864..=134_217_727);
        assert_eq!(ids(Some(63)), 4_227_858_432..=4_294_967_293);
    }
}
