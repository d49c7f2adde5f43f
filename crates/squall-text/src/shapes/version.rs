//! Versions of Slurm's data parser, and what differs between them beyond the tables of fields. `scripts/slurm-rest-news`
//! prints what a release of Slurm has that the tables lack.

use serde_json::{Value, json};
use squall_model::config::Release;

use super::AnswerKind;

/// A version of Slurm's data parser: which fields an answer has, and of which types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the rows of the table say it")]
pub enum Version {
    V40,
    V41,
    V42,
    V43,
    V44,
    V45,
}

/// Facts about a version.
struct Row {
    name: &'static str,
    /// The releases of Slurm that have it.
    releases: &'static str,
    /// What its fields have other than those of the version before, as a table. v0.0.40 is an exception: it differs from
    /// v0.0.41, whose fields are given in full.
    differences: &'static str,
}

/// The versions, the oldest first.
#[rustfmt::skip]
static ROWS: [Row; Version::ALL.len()] = [
    Row { name: "v0.0.40", releases: "23.11 to 24.11", differences: include_str!("v0.0.40.txt") },
    Row { name: "v0.0.41", releases: "24.05 to 25.11", differences: "" },
    Row { name: "v0.0.42", releases: "24.11 to 26.05", differences: include_str!("v0.0.42.txt") },
    Row { name: "v0.0.43", releases: "25.05 and later", differences: include_str!("v0.0.43.txt") },
    Row { name: "v0.0.44", releases: "25.11 and later", differences: include_str!("v0.0.44.txt") },
    Row { name: "v0.0.45", releases: "26.05 and later", differences: include_str!("v0.0.45.txt") },
];

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Self; 6] = [Self::V40, Self::V41, Self::V42, Self::V43, Self::V44, Self::V45];
    /// The version whose fields are given in full, and that commands have which name none, unless the cluster shows a
    /// later release of Slurm.
    pub const DEFAULT: Self = Self::V41;
    /// The newest version.
    pub const NEWEST: Self = Self::V45;

    /// Returns the version of commands that name none, which is the newest of the release that the cluster shows.
    pub fn usual(release: Release) -> Self {
        match release {
            Release::V24 => Self::DEFAULT,
            Release::V25 => Self::V44,
            Release::V26 => Self::V45,
        }
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the version's name, such as `v0.0.41`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the releases of Slurm that have the version, such as `24.05 to 25.11`.
    pub fn releases(self) -> &'static str {
        self.row().releases
    }

    /// Returns the tables of differences that lead from the fields of v0.0.41 to those of this version, in order.
    pub(super) fn differences(self) -> impl Iterator<Item = &'static str> {
        let (from, to) = if self < Self::DEFAULT { (self, self) } else { (Self::V42, self) };
        Self::ALL.into_iter().filter(move |one| (from..=to).contains(one)).map(|one| one.row().differences)
    }

    /// Returns the names of all versions, separated by commas.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
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
        assert_eq!(Some(&Version::NEWEST), Version::ALL.last());
    }

    #[test]
    fn each_version_has_the_differences_up_to_it() {
        let tables = |version: Version| -> Vec<bool> {
            version.differences().map(|table| table.contains(&format!("What {}", version.name()))).collect()
        };
        assert_eq!(tables(Version::V40), [true]);
        assert!(tables(Version::V41).is_empty());
        assert_eq!(tables(Version::V44), [false, false, true]);
    }

    /// The page has a row for each version, and no other page lists them.
    #[test]
    fn the_page_about_rest_lists_the_versions() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rest.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        let rows: String =
            Version::ALL.map(|version| format!("| {} | {} |\n", version.name(), version.releases())).concat();
        assert!(page.contains(&rows), "docs/rest.md has to contain\n{rows}");
    }
}
