//! From state to effects: sends, answers and the events that time and nodes bring about.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::Epoch;
use squall_model::time::Time;
use squall_model::wire::node::UpFrame;

use super::{CallerId, Controller, LinkId, Out};

/// A new life begins: the epoch rises, a changed configuration is journaled.
pub(crate) fn start(c: &mut Controller, now: Time, config: Config, version: String, host: String, out: &mut Out) {
    c.host = host;
    c.version.clone_from(&version);
    c.diag.since = now;
    let epoch = Epoch(c.state.epoch.0 + 1);
    c.commit(now, Event::ControllerStarted { epoch, version }, out);
    let mut config = config;
    config.complete();
    if *c.state.config != config || c.state.partitions.is_empty() {
        c.commit(now, Event::Configured { config: Arc::new(config) }, out);
    }
}

/// A client's connection has ended.
pub(crate) fn hangup(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    let _ = (c, now, caller, out);
}

/// A frame from a node.
pub(crate) fn frame(c: &mut Controller, now: Time, link: LinkId, frame: UpFrame, out: &mut Out) {
    let _ = (c, now, link, frame, out);
}

/// Makes it so: what state asks for and was not done yet. Called after every input.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    let _ = now;
    c.links.flush(out);
}

/// When [`settle`] must be called again.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    let _ = c;
    None
}
