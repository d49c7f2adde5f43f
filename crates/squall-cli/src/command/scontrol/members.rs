//! `scontrol create nodename=` and `delete nodename=`: nodes that the configuration does not name.

use squall_model::config::{NodeConfig, NodeStart};
use squall_model::hostlist;
use squall_model::wire::client::Request;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::{Change, bad_state, changes, unsupported};
use crate::command::scontrol::ask_done;
use squall_text::verbs::key::means;

/// Slurm's message about the states in which a node can be created.
const STATES: &str = "Valid states are: CLOUD FUTURE UNKNOWN\nA node that never joined has no other state";

/// Returns whether the arguments are about nodes: `node …` or `nodename=LIST …`.
pub(super) fn is_meant(words: &[String]) -> bool {
    let first = words.first().map_or("", |word| word.split_once('=').map_or(word.as_str(), |(key, _)| key));
    means(first, "NodeName", 3)
}

/// Runs `create NodeName=LIST KEY=VALUE …`.
pub(super) fn create(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let words = joined(words);
    let changes = changes(call, &words)?;
    let mut node = NodeConfig::default();
    for word in &changes {
        if word.sign.is_some() || !set(call, &mut node, word)? {
            return unsupported(call, word);
        }
    }
    let what = format!("create_node {}", words.join(" "));
    expandable(call, &node.name)?;
    ask_done(call, &Request::CreateNodes(Box::new(node)), &what)
}

/// Runs `delete NodeName=LIST`.
pub(super) fn delete(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let words = joined(words);
    let what = format!("delete_node {}", words.join(" "));
    let changes = changes(call, &words)?;
    let [Change { value: nodes, sign: None, .. }] = changes.as_slice() else {
        return call.fail(&format!("{what}: give NodeName=<NodeList> and nothing else"));
    };
    expandable(call, nodes)?;
    ask_done(call, &Request::DeleteNodes((*nodes).to_owned()), &what)
}

/// Rewrites `node LIST …` and `node NodeName=LIST …` as `NodeName=LIST …`.
fn joined(words: &[String]) -> Vec<String> {
    match words {
        [entity, name, rest @ ..] if !entity.contains('=') && !name.contains('=') => {
            std::iter::once(format!("NodeName={name}")).chain(rest.iter().cloned()).collect()
        }
        [entity, rest @ ..] if !entity.contains('=') => rest.to_vec(),
        _ => words.to_vec(),
    }
}

fn expandable(call: &mut Call<'_>, nodes: &str) -> Result<(), Fail> {
    match hostlist::expand(nodes) {
        Ok(names) if !names.is_empty() => Ok(()),
        Ok(_) => call.fail("NodeName must be specified: NodeName=<NodeList>"),
        Err(e) => call.fail(&format!("Invalid node name {nodes}: {e}")),
    }
}

/// Sets a key of a node's description. Returns false for any other key.
fn set(call: &mut Call<'_>, node: &mut NodeConfig, word: &Change<'_>) -> Result<bool, Fail> {
    let is = |name, least| means(word.key, name, least);
    let count = || word.value.parse::<u32>().ok().filter(|count| *count > 0).map(Some);
    let text = word.value.trim_matches(['"', '\'']);
    let done = if is("NodeName", 3) {
        word.value.clone_into(&mut node.name);
        Some(())
    } else if is("CPUs", 3) {
        count().map(|count| node.cpus = count)
    } else if is("Sockets", 3) {
        count().map(|count| node.sockets = count)
    } else if is("CoresPerSocket", 5) {
        count().map(|count| node.cores_per_socket = count)
    } else if is("ThreadsPerCore", 3) {
        count().map(|count| node.threads_per_core = count)
    } else if is("RealMemory", 4) {
        word.value.parse::<u64>().ok().filter(|mb| *mb > 0).map(|mb| node.memory_mb = Some(mb))
    } else if is("Features", 1) {
        node.features = text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(())
    } else if is("Weight", 1) {
        word.value.parse().ok().map(|weight| node.weight = Some(weight))
    } else if is("Gres", 1) {
        text.clone_into(&mut node.gres);
        Some(())
    } else if is("State", 2) {
        node.state = match word.value.to_ascii_uppercase().as_str() {
            "FUTURE" => NodeStart::Future,
            "CLOUD" => NodeStart::Cloud,
            "UNKNOWN" => NodeStart::Unknown,
            _ => return bad_state(call, word, STATES),
        };
        Some(())
    } else {
        return Ok(false);
    };
    match done {
        Some(()) => Ok(true),
        None => call.fail(&format!("Invalid value {}={}", word.key, word.value)),
    }
}
