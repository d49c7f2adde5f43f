//! `scontrol create nodename=` and `delete nodename=`: nodes that the configuration does not name.

use squall_model::config::NodeConfig;
use squall_model::hostlist;
use squall_model::wire::client::Request;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::{Change, bad_state, changes, unsupported};
use crate::command::scontrol::ask_done;
use squall_text::verbs::key::{Key, means};
use squall_text::verbs::member::{KEYS, STATES};

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

/// Sets a key of a node's description. Returns false for an unknown key.
fn set(call: &mut Call<'_>, node: &mut NodeConfig, word: &Change<'_>) -> Result<bool, Fail> {
    let now = call.clock(call.now).local(call.now);
    let Some(key) = Key::find(KEYS, word.key) else { return Ok(false) };
    match key.read(node, None, word.value, &now) {
        Ok(()) => Ok(true),
        Err(_) if key.name() == "State" => bad_state(call, word, STATES),
        Err(_) => call.fail(&format!("Invalid value {}={}", word.key, word.value)),
    }
}
