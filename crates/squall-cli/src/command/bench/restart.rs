//! `bench restart`: how long a controller takes from its start to serving, with a full queue.

use super::{Figure, Options};

pub(super) fn run(_options: &Options) -> Result<Figure, String> {
    Err("waits for the journal".into())
}
