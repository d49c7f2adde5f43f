//! `scontrol update nodename=` and the bodies about nodes.

use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::power::PowerWish;
use squall_model::wire::client::Request;

use super::key::Set::{Names, Number, Own, Text};
use super::key::{Bad, Key, key, unquoted};
use crate::options::values::node_state;

/// What is changed about nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOrder {
    /// Names of the nodes, as a host list. Empty: none is named.
    pub nodes: String,
    /// New state of the nodes. None: unchanged.
    pub admin: Option<NodeAdmin>,
    /// What their power is to be. None: unchanged.
    pub power: Option<PowerWish>,
    /// The reason for the new state.
    pub reason: Option<String>,
    /// Other changes.
    pub change: NodeChange,
}

impl NodeOrder {
    /// Returns the requests that change the nodes, in order. None: nothing is to be changed.
    pub fn requests(self) -> Vec<Request> {
        let Self { nodes, admin, power, reason, change } = self;
        let change = (change != NodeChange::default()).then(|| Box::new(change));
        let others = admin.is_some() || reason.is_some() || change.is_some();
        let power = power.map(|wish| Request::Power { nodes: nodes.clone(), wish });
        power.into_iter().chain(others.then(|| Request::UpdateNodes { nodes, admin, reason, change })).collect()
    }
}

/// The keys. An abbreviation means the first key that it fits.
pub static KEYS: &[Key<NodeOrder>] = &[
    key(&[("NodeName", 3)], "name", Text(|node, names| node.nodes = names)),
    key(&[("State", 1)], "state", Own(state)),
    key(&[("Reason", 1)], "reason", Text(|node, text| node.reason = Some(unquoted(&text)))),
    key(&[("ActiveFeatures", 3)], "features_act", Names(|node, _, names| node.change.active_features = Some(names))),
    key(&[("AvailableFeatures", 3)], "features", Names(|node, _, names| node.change.features = Some(names))),
    key(
        &[("Features", 1)],
        "",
        Names(|node, _, names| {
            (node.change.features, node.change.active_features) = (Some(names.clone()), Some(names));
        }),
    ),
    key(&[("Comment", 1)], "comment", Text(|node, text| node.change.comment = Some(unquoted(&text)))),
    key(&[("Extra", 1)], "extra", Text(|node, text| node.change.extra = Some(unquoted(&text)))),
    key(&[("Gres", 1)], "gres", Text(|node, gres| node.change.gres = Some(gres))),
    key(&[("InstanceId", 9)], "", Text(|node, id| node.change.instance_id = Some(unquoted(&id)))),
    key(&[("InstanceType", 9)], "", Text(|node, kind| node.change.instance_type = Some(unquoted(&kind)))),
    key(&[("ResumeAfter", 3)], "resume_after", Own(resume_after)),
    key(&[("Weight", 1)], "weight", Number(|node, weight| node.change.weight = Some(weight))),
];

fn state(node: &mut NodeOrder, _: Option<char>, word: &str) -> Result<(), Bad> {
    if let Some(wish) = node_state::power(word) {
        node.power = Some(wish);
        return Ok(());
    }
    node.admin = match node_state::admin(word) {
        Some(Some(state)) => Some(state),
        Some(None) => return Err(Bad::NotDone(format!("{word}: nodes are not given this state"))),
        None => return Err(Bad::Because(format!("{word}: use DRAIN, FAIL, DOWN or RESUME"))),
    };
    Ok(())
}

/// Reads the seconds after which nodes are resumed; `INFINITE` or -1: they are not.
fn resume_after(node: &mut NodeOrder, _: Option<char>, text: &str) -> Result<(), Bad> {
    let never = ["INFINITE", "UNLIMITED", "-1"].iter().any(|word| text.eq_ignore_ascii_case(word));
    let seconds = if never { 0 } else { text.parse::<u32>().map_err(|_| Bad::Value)? };
    node.change.resume_after_s = Some(u64::from(seconds));
    Ok(())
}
