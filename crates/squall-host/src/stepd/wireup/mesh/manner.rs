//! How the step daemons of a step exchange messages, as set by Slurm's `SLURM_PMIX_*` environment variables.

use squall_engine::wireup::ring::Shape;
use squall_model::time::Span;

use crate::stepd::environment::Environment;

/// Default of `SLURM_PMIX_TIMEOUT`: how long ranks wait for each other, seconds.
const TIMEOUT_S: u64 = 300;

/// Route of messages between step daemons (`SLURM_PMIX_DIRECT_CONN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stepd::wireup) enum Way {
    /// Direct messages: on one machine over Unix sockets, otherwise over TCP. The default.
    Direct,
    /// Value `tcp`: direct messages over TCP, also on one machine.
    Tcp,
    /// Value `false`: messages go through the node daemons, along the tree of nodes.
    Tree,
    /// Value `srun`: all messages are relayed by `srun`.
    Srun,
}

/// Exchange mode set by the user's environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stepd::wireup) struct Manner {
    /// `SLURM_PMIX_DIRECT_CONN`: route of messages.
    pub(in crate::stepd::wireup) way: Way,
    /// `SLURM_PMIX_DIRECT_CONN_UCX`: whether to use UCX where available. Default: no.
    pub(in crate::stepd::wireup) ucx: bool,
    /// `SLURM_PMIX_DIRECT_CONN_EARLY`: whether step daemons connect to each other before there is a message to send.
    /// Default: yes.
    pub(in crate::stepd::wireup) early: bool,
    /// `SLURM_PMIX_TIMEOUT`: how long ranks wait for each other.
    pub(in crate::stepd::wireup) patience: Span,
    /// `SLURM_PMIX_FENCE`: pattern in which a fence's messages are sent, `tree`, `ring` or `mixed`.
    pub(in crate::stepd::wireup) shape: Shape,
}

impl Manner {
    /// Reads the mode from the environment of the tasks.
    pub(in crate::stepd::wireup) fn of(env: &Environment) -> Self {
        let yes = |name: &str, otherwise: bool| said(env, name).map_or(otherwise, |value| is_yes(&value));
        let way = match said(env, "SLURM_PMIX_DIRECT_CONN").as_deref() {
            Some("tcp") => Way::Tcp,
            Some("srun") => Way::Srun,
            Some(value) if !is_yes(value) => Way::Tree,
            _ => Way::Direct,
        };
        let timeout_s = said(env, "SLURM_PMIX_TIMEOUT").and_then(|value| value.parse().ok()).filter(|&s| s > 0);
        Self {
            way,
            ucx: yes("SLURM_PMIX_DIRECT_CONN_UCX", false),
            early: yes("SLURM_PMIX_DIRECT_CONN_EARLY", true),
            patience: Span::from_secs(timeout_s.unwrap_or(TIMEOUT_S)),
            shape: match said(env, "SLURM_PMIX_FENCE").unwrap_or_default().to_ascii_lowercase().as_str() {
                "tree" => Shape::Tree,
                "ring" => Shape::Ring,
                _ => Shape::Mixed,
            },
        }
    }
}

/// Returns a variable's value. None: it is not set, or not UTF-8.
pub(in crate::stepd::wireup) fn said(env: &Environment, name: &str) -> Option<String> {
    env.get(name).and_then(|value| std::str::from_utf8(value).ok()).map(str::to_owned)
}

/// Whether a value means yes: Slurm takes `0`, `no`, `n` and `false` for no, and all others for yes.
pub(in crate::stepd::wireup) fn is_yes(value: &str) -> bool {
    !["0", "no", "n", "false"].contains(&value.to_ascii_lowercase().as_str())
}
