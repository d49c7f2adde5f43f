//! `scontrol rotate keys`: new keys for the controllers.

use squall_model::event::Event;
use squall_model::rotation::ControllerKeys;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::port::Out;

/// Takes the keys that the host has made. Nodes in session are told by a message that the keys before sign: it leaves
/// with this batch, and the host changes keys after it. A node that is away learns them when it calls the controller, which
/// answers to the key before for a while.
pub(crate) fn rotate(c: &mut Controller, ask: &Ask<'_>, keys: Option<Box<ControllerKeys>>, out: &mut Out) -> Reply {
    let Some(keys) = keys else {
        return Err(Refusal::NotSupported("keys are made by the controller's host".to_owned()));
    };
    if c.state.cluster_version < ClusterVersion::KEYS_ROTATE {
        return Err(Refusal::NotSupported(format!(
            "nodes of the cluster's version, {}, don't take new keys: `scontrol upgrade` raises it, when all daemons have \
             this release",
            c.state.cluster_version
        )));
    }
    c.commit(ask.now, Event::KeysRotated { keys: keys.clone(), by: ask.who.owner.uid }, out);
    let all = c.links.connected().clone();
    c.links.put(&all, Down::Keys(keys));
    Ok(Some(Answer::Done))
}
