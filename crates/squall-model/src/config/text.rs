//! Checks of a configuration that need its source text, to give line numbers in errors: duplicate names, unknown names
//! and wrong keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::keys;
use super::{Config, PartitionConfig};
use crate::hostlist;

/// Parts of a configuration file that error messages refer to by line number.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Lines {
    nodes: Vec<NodeLines>,
    partitions: Vec<PartitionLines>,
    controllers: Vec<ControllerLines>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ControllerLines {
    name: Option<Spanned<String>>,
    address: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeLines {
    #[serde(alias = "NodeName")]
    name: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartitionLines {
    #[serde(alias = "PartitionName")]
    name: Option<Spanned<String>>,
    #[serde(alias = "Nodes")]
    nodes: Option<Spanned<String>>,
    #[serde(alias = "Default")]
    default: Option<toml::Value>,
    #[serde(rename = "MaxTime")]
    max_time: Option<Spanned<toml::Value>>,
    #[serde(rename = "DefaultTime")]
    default_time: Option<Spanned<toml::Value>>,
}

/// Returns the beginning of an error message about `found`, as in `line 3: `. `text`: the whole configuration file.
fn line<T>(text: &str, found: &Spanned<T>) -> String {
    let before = text.get(..found.span().start).unwrap_or_default();
    format!("line {}: ", before.matches('\n').count() + 1)
}

impl Lines {
    /// Reads these parts from the text of a configuration file. Returns empty lists if the text can't be parsed.
    pub(super) fn of(text: &str) -> Self {
        toml::from_str(text).unwrap_or_default()
    }

    /// Returns whether there are partitions and all of them have `Default` set to false.
    pub(super) fn none_is_default(&self) -> bool {
        let no = |said: &toml::Value| said.as_bool() == Some(false) || said.as_str().is_some();
        !self.partitions.is_empty() && self.partitions.iter().all(|p| p.default.as_ref().is_some_and(no))
    }

    /// Returns the index of the first partition that does not set `Default`, which may become the default partition. 0:
    /// all partitions set it.
    pub(super) fn first_unsaid(&self) -> usize {
        self.partitions.iter().position(|p| p.default.is_none()).unwrap_or(0)
    }

    /// Checks the file for bad host lists, nodes, partitions and controllers that are defined twice, partitions of
    /// unknown nodes, and times in an unclear unit. The error is a text for users.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        // Lines are counted for errors only: counting takes as long as the file is.
        let mut nodes: BTreeMap<String, &Spanned<String>> = BTreeMap::new();
        for list in self.nodes.iter().filter_map(|node| node.name.as_ref()) {
            let wrong = |e| format!("{}nodes `{}`: {e}", line(text, list), list.get_ref());
            for name in hostlist::expand(list.get_ref()).map_err(wrong)? {
                if let Some(before) = nodes.insert(name.clone(), list) {
                    return Err(twice(text, "node", &name, Some(list), Some(before)));
                }
            }
        }
        let of = |what, value: fn(&ControllerLines) -> Option<&Spanned<String>>| {
            once(text, what, self.controllers.iter().filter_map(value))
        };
        of("controller", |one| one.name.as_ref().filter(|name| !name.get_ref().is_empty()))?;
        of("a controller at", |one| one.address.as_ref())?;
        let mut names = BTreeMap::new();
        for partition in &self.partitions {
            let name = partition.name.as_ref().map_or("debug", |name| name.get_ref());
            if let Some(before) = names.insert(name, partition.name.as_ref()) {
                return Err(twice(text, "partition", name, partition.name.as_ref(), before));
            }
            partition.check_times(text)?;
            let Some(list) = partition.nodes.as_ref().filter(|list| !is_word(list.get_ref())) else {
                continue;
            };
            let wrong = |e| format!("{}partition {name}: `{}`: {e}", line(text, list), list.get_ref());
            let members = hostlist::expand(list.get_ref()).map_err(wrong)?;
            let unknown = |member: &&String| !nodes.is_empty() && !nodes.contains_key(*member);
            if let Some(unknown) = members.iter().find(unknown) {
                let at = line(text, list);
                return Err(format!("{at}partition {name}: there is no node `{unknown}`; [[nodes]] names all nodes"));
            }
        }
        Ok(())
    }
}

/// Returns whether the nodes of a partition are `ALL` or `NONE`, and no host list.
fn is_word(nodes: &str) -> bool {
    ["ALL", PartitionConfig::NO_NODES].iter().any(|word| nodes.eq_ignore_ascii_case(word))
}

/// Refuses a value that stands twice in the file. `what`: what has these values, for the error.
fn once<'a>(text: &str, what: &str, all: impl Iterator<Item = &'a Spanned<String>>) -> Result<(), String> {
    let mut known = BTreeMap::new();
    for value in all {
        if let Some(before) = known.insert(value.get_ref(), value) {
            return Err(twice(text, what, value.get_ref(), Some(value), Some(before)));
        }
    }
    Ok(())
}

/// Returns the error about a name that stands twice in the file. `at`, `before`: where; None: it is a default.
fn twice(text: &str, what: &str, name: &str, at: Option<&Spanned<String>>, before: Option<&Spanned<String>>) -> String {
    let [at, before] = [at, before].map(|place| place.map(|place| line(text, place)));
    let before = before.as_deref().map_or("a table without a name", |before| before.trim_end_matches(": "));
    format!("{}{what} `{name}` stands in {before} already", at.unwrap_or_default())
}

impl PartitionLines {
    /// Refuses `MaxTime` and `DefaultTime` as plain numbers. Slurm counts these times in minutes and Squall's own keys
    /// count seconds, so a plain number could be misread.
    fn check_times(&self, text: &str) -> Result<(), String> {
        let keys = [("MaxTime", "max_time_s", &self.max_time), ("DefaultTime", "default_time_s", &self.default_time)];
        for (slurms, ours, said) in keys {
            if let Some(said) = said
                && let Some(minutes) = said.get_ref().as_integer()
            {
                let at = line(text, said);
                let seconds = minutes.saturating_mul(60);
                return Err(format!(
                    "{at}{slurms} is a text: \"{minutes}\" (minutes, as in Slurm), or use {ours} = {seconds}"
                ));
            }
        }
        Ok(())
    }
}

/// Shortens the parser's error about an unknown key: it then has only that key, and its name here, the table in which it
/// belongs or the most similar known key.
pub(super) fn shortened(error: &str) -> String {
    let Some((before, rest)) = error.split_once("unknown field `") else { return error.to_owned() };
    let Some((key, known)) = rest.split_once('`') else { return error.to_owned() };
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let similar = || similar(key, &known).map(|name| format!("did you mean `{name}`?"));
    let remedy = keys::remedy(key).or_else(similar).map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{before}unknown key `{key}`{remedy}\n")
}

/// Returns the one of `names` that is most similar to `word`, to suggest it after a typing error. None: all differ too
/// much.
pub fn similar<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let plain =
        |text: &str| -> Vec<char> { text.to_ascii_lowercase().chars().filter(|c| *c != '_' && *c != '-').collect() };
    let word = plain(word);
    let nearest = names.iter().map(|name| (distance(&word, &plain(name)), *name)).min()?;
    (nearest.0 <= 1 + word.len() / 4).then_some(nearest.1)
}

/// Returns the edit distance of two words: the least number of letters to change, remove or insert.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[to.len()]
}

impl Config {
    /// Adds a partition if there is none. Makes one partition the default, unless all have `Default` set to false.
    pub(super) fn complete_as(&mut self, lines: &Lines) {
        if lines.none_is_default() {
            return;
        }
        self.have_a_partition();
        if !self.partitions.iter().any(|p| p.default) {
            self.partitions[lines.first_unsaid()].default = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, PartitionState};

    fn wrong(text: &str) -> String {
        Config::from_toml(text).unwrap_err()
    }

    // faults.md D6, D13
    #[test]
    fn d6_names_that_stand_twice_or_nowhere_are_refused_with_their_line() {
        let nodes = "[[nodes]]\nname = \"n[1-2]\"\n";
        assert_eq!(wrong(&format!("{nodes}[[nodes]]\nname = \"n2\"\n")), "line 4: node `n2` stands in line 2 already");
        let twice = format!("{nodes}[[partitions]]\nname = \"a\"\n[[partitions]]\nname = \"a\"\n");
        assert_eq!(wrong(&twice), "line 6: partition `a` stands in line 4 already");
        let unknown = format!("{nodes}[[partitions]]\nname = \"a\"\nnodes = \"n[2-3]\"\n");
        assert_eq!(wrong(&unknown), "line 5: partition a: there is no node `n3`; [[nodes]] names all nodes");
        assert!(wrong("[[nodes]]\nname = \"n[1-2\"\n").starts_with("line 2: nodes `n[1-2`: "));
        let twice = |key: &str| wrong(&format!("[[controllers]]\n{key} = \"a:1\"\n").repeat(2));
        assert_eq!(twice("name"), "line 4: controller `a:1` stands in line 2 already");
        assert_eq!(twice("address"), "line 4: a controller at `a:1` stands in line 2 already");
    }

    #[test]
    fn d13_an_unknown_key_is_named_with_the_one_that_was_meant() {
        let said = wrong("kil_wait_s = 3\n");
        assert!(
            said.contains("line 1") && said.ends_with("unknown key `kil_wait_s`; did you mean `kill_wait_s`?\n"),
            "{said}"
        );
        assert!(wrong("[[partitions]]\nname = \"a\"\nmaxtime_s = 3\n").contains("did you mean `max_time_s`?"));
        let said = wrong("DefMemPerCPU = 3\n");
        assert!(said.ends_with("`DefMemPerCPU`; its name here is `def_mem_per_cpu_mb` (number, MiB)\n"), "{said}");
        let said = wrong("PARTITIONNAME = \"a\"\n");
        assert!(said.ends_with("unknown key `PARTITIONNAME`; it belongs in [[partitions]]\n"), "{said}");
        let said = wrong("[[nodes]]\nname = \"a\"\nKillWait = 3\n");
        assert!(
            said.contains("line 3") && said.ends_with("it belongs at the top of the file, before the first [table]\n")
        );
        let said = wrong("zzzzzzzz = 3\n");
        assert!(said.ends_with("unknown key `zzzzzzzz`\n"), "{said}");
    }

    #[test]
    fn d13_partitions_and_nodes_take_slurms_words() {
        let text = "ClusterName = \"c\"\n[[nodes]]\nNodeName = \"n[1-2]\"\nCPUs = 4\nRealMemory = 1000\nFeature = \"a,b\"\n\
                    [[partitions]]\nPartitionName = \"p\"\nNodes = \"n1\"\nDefault = \"YES\"\nMaxTime = \"1-00:00:00\"\n\
                    DefaultTime = \"30\"\nMaxNodes = \"UNLIMITED\"\nMinNodes = 1\nAllowGroups = \"a,b\"\nState = \"DRAIN\"\n\
                    AllowAccounts = \"x,y\"\n[[partitions]]\nPartitionName = \"q\"\nMaxTime = \"INFINITE\"\nAllowGroups = \"ALL\"\n";
        let config = Config::from_toml(text).unwrap();
        assert_eq!((config.cluster.as_str(), config.nodes[0].name.as_str()), ("c", "n[1-2]"));
        assert_eq!((config.nodes[0].cpus, config.nodes[0].memory_mb), (Some(4), Some(1000)));
        assert_eq!(config.nodes[0].features, ["a", "b"]);
        let [p, q] = &config.partitions[..] else { panic!("two") };
        assert_eq!((p.default, p.max_time_s, p.default_time_s, p.max_nodes), (true, Some(86_400), Some(1800), None));
        assert_eq!((p.state, &p.allow_groups[..]), (PartitionState::Drain, &["a".to_owned(), "b".to_owned()][..]));
        assert_eq!((p.allow_accounts.len(), q.max_time_s, q.allow_groups.len()), (2, None, 0));
        assert_eq!(Config::from_toml(&config.to_toml().unwrap()).unwrap(), config);
        let number = "[[partitions]]\nname = \"p\"\nMaxTime = 60\n";
        assert_eq!(wrong(number), "line 3: MaxTime is a text: \"60\" (minutes, as in Slurm), or use max_time_s = 3600");
    }

    // faults.md E: no default partition at all
    #[test]
    fn e_where_all_partitions_say_no_there_is_no_default_one() {
        let default = |text: &str| Config::from_toml(text).unwrap().default_partition().map(|p| p.name.clone());
        let of =
            |a: &str, b: &str| default(&format!("[[partitions]]\nname = \"a\"\n{a}[[partitions]]\nname = \"b\"\n{b}"));
        assert_eq!(of("", ""), Some("a".to_owned()));
        assert_eq!(of("default = false\n", ""), Some("b".to_owned()));
        assert_eq!(of("Default = \"NO\"\n", "default = false\n"), None);
        assert_eq!(of("Default = \"NO\"\n", "Default = \"YES\"\n"), Some("b".to_owned()));
    }
}
