//! What a fuzz target does with its bytes, one function a target. It returns whatever the bytes are, and panics where
//! something that must hold does not. `fuzz/` gives these functions to cargo-fuzz; `mutants.rs` runs each on its
//! seeds and on mutants of them.

#![expect(clippy::unwrap_used, reason = "a target says what failed by panicking")]

mod command;
mod files;
mod machines;
mod messages;
#[cfg(test)]
mod mutants;
mod network;
mod seeds;
mod words;

pub use seeds::seeds;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// The fuzz targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("backup", files::backup),
    ("batch_supervisor", messages::batch_supervisor),
    ("client_answer", messages::client_answer),
    ("client_request", messages::client_request),
    ("constraint", words::constraint),
    ("controller", machines::controller),
    ("datagram", network::datagram),
    ("etcd", messages::etcd),
    ("event", messages::event),
    ("feed", messages::feed),
    ("formats", words::formats),
    ("greeting", messages::greeting),
    ("gres_conf", files::gres_conf),
    ("host_list", words::host_list),
    ("join", messages::join),
    ("journal", files::journal),
    ("node", machines::node),
    ("node_down", messages::node_down),
    ("node_up", messages::node_up),
    ("noise", network::noise),
    ("options", words::options),
    ("peer", messages::peer),
    ("pmi", machines::pmi),
    ("relay", machines::relay),
    ("reports", machines::reports),
    ("rest_body", words::rest_body),
    ("rest_path", words::rest_path),
    ("script", words::script),
    ("slurm_conf", command::slurm_conf),
    ("snapshot", files::snapshot),
    ("spool", files::spool),
    ("squall_toml", files::squall_toml),
    ("step_client", messages::step_client),
    ("step_daemon", messages::step_daemon),
    ("swf", files::swf),
    ("times", words::times),
    ("token", network::token),
    ("topology", files::topology),
];

/// Runs the fuzz target with this name, which has to exist.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    target(bytes);
}
