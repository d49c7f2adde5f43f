//! Versions of Slurm's data parser, and what differs between them beyond the tables of fields.

use serde_json::{Value, json};

use super::AnswerKind;

/// A version of Slurm's data parser: which fields an answer has, and of which types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// v0.0.40, of Slurm 23.11 to 24.11.
    V40,
    /// v0.0.41, of Slurm 24.05 to 25.05.
    V41,
    /// v0.0.42, of Slurm 24.11 to 25.11.
    V42,
    /// v0.0.43, of Slurm 25.05 and later.
    V43,
}

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Self; 4] = [Self::V40, Self::V41, Self::V42, Self::V43];

    /// Returns the version's name, such as `v0.0.41`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V40 => "v0.0.40",
            Self::V41 => "v0.0.41",
            Self::V42 => "v0.0.42",
            Self::V43 => "v0.0.43",
        }
    }

    /// Returns the version of a name such as `v0.0.41`. None: unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Returns the name of Slurm's plugin for the version, such as `data_parser/v0.0.41`.
    pub fn parser(self) -> String {
        format!("data_parser/{}", self.name())
    }

    /// Gives fields of a record the form that they have in this version, where a table of fields can't express the
    /// difference.
    pub(super) fn recast(self, kind: AnswerKind, record: &mut Value) {
        if self != Self::V40 {
            return;
        }
        match kind {
            AnswerKind::Jobs => {
                if let Some(held) = record.get_mut("job_resources").filter(|held| held.is_object()) {
                    *held = flat(held);
                }
            }
            AnswerKind::Associations => record["id"] = short(record),
            _ => {}
        }
    }
}

/// Returns `job_resources` of a job with the fields of v0.0.40.
fn flat(held: &mut Value) -> Value {
    let nodes = held["nodes"].take();
    let each = nodes["allocation"].as_array().map_or(&[][..], Vec::as_slice);
    let cores: u64 = each.iter().filter_map(|node| node["cpus"]["count"].as_u64()).sum();
    json!({
        "nodes": nodes["list"],
        "allocated_cores": cores,
        "allocated_cpus": held["cpus"],
        "allocated_hosts": nodes["count"],
        "allocated_nodes": nodes["allocation"],
    })
}

/// Returns the short form of an association, which is its id in v0.0.40.
fn short(own: &Value) -> Value {
    let part = |key: &str| own.get(key).cloned().unwrap_or_default();
    json!({
        "account": part("account"), "cluster": part("cluster"), "partition": part("partition"), "user": part("user"),
        "id": part("id"),
    })
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn names_are_read_back() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.name()), Some(version));
        }
        assert_eq!(Version::parse("v0.0.39"), None);
    }
}
