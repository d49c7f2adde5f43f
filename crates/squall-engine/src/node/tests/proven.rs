//! Tests of what a node does with messages that are not proven.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use squall_model::id::{Epoch, StepNo};
use squall_model::time::Span;
use squall_model::wire::proof::SIGNATURE_BYTES;

use super::{World, key, start_job};
use crate::fabric::proof::{Pinned, Signers};

/// While this is set, the node knows a key with which the controller does not sign.
#[derive(Debug, Default)]
struct OtherKey(AtomicBool);

impl Signers for OtherKey {
    fn are_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    fn have_signed(&self, _: &[u8], _: &[u8; SIGNATURE_BYTES]) -> bool {
        false
    }
    fn open(&self, _: (Epoch, u64), _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn after_a_refused_message_of_the_controller_itself_no_later_one_is_taken_before_a_new_session() {
    let (mut world, other) = (World::new(), Arc::new(OtherKey::default()));
    world.disk.pinned = Pinned(Some(Arc::clone(&other) as Arc<dyn Signers>));
    world.boot();
    let before = world.registrations;
    other.0.store(true, Ordering::Relaxed);
    world.send(vec![start_job(key(8, StepNo::BATCH), 1)]);
    world.run();
    other.0.store(false, Ordering::Relaxed);
    world.send(vec![start_job(key(9, StepNo::BATCH), 1)]);
    world.run();
    assert!(world.disk.started.is_empty(), "job 9 stands behind job 8, which was refused");
    world.tick(Span::from_secs(60));
    assert_eq!(world.registrations, before + 1, "what was refused is sent again in the next session");
}
