//! Tests of what a run of the daemon finds of earlier runs.

use squall_model::id::StepNo;
use squall_model::time::Span;

use super::{World, key, start_job};
use crate::fabric::NetInput;
use crate::node::disk::end;
use crate::node::{NodeAct, NodeInput, attempt_of};

/// faults.md A0: an attempt can't be sent again while its remainder is being swept, since the node is not registered.
#[test]
fn a0_a_node_registers_when_its_leftovers_are_swept() {
    let mut world = World::new();
    let (job, registered) = (key(7, StepNo::BATCH), world.registrations);
    world.disk.slow_sweep = true;
    world.disk.leftovers.insert(attempt_of(job));
    world.boot();
    assert!(world.acts.contains(&NodeAct::Sweep { job: attempt_of(job) }));
    assert_eq!((world.registrations, world.machine.session()), (registered, None));
    // The path breaks and comes back meanwhile.
    world.inputs.push_back(NodeInput::Net(NetInput::ParentClosed));
    world.run();
    world.tick(Span::from_secs(30));
    assert_eq!(world.registrations, registered);
    world.inputs.push_back(NodeInput::Swept { job: attempt_of(job) });
    world.run();
    assert_eq!(world.registrations, registered + 1);
    assert!(world.machine.session().is_some() && world.gone.is_empty(), "nothing is said of it");
}

/// faults.md A1: a step with a launch that can't be read is identified by its folder's name. It is not started again,
/// and its end is reported.
#[test]
fn a1_what_cant_be_read_is_known_by_its_name() {
    let mut world = World::new();
    let (lives, ended) = (key(1, StepNo::BATCH), key(2, StepNo::BATCH));
    for key in [lives, ended] {
        world.start(key.job.0, 1);
        world.disk.unreadable.insert(key);
    }
    world.run();
    world.disk.finish(ended, end(3));
    world.boot();
    let told = |world: &World, key| world.ended.get(&key).map(Vec::len);
    assert!(world.is_live(lives) && told(&world, lives).is_none());
    assert_eq!(told(&world, ended), Some(1));
    world.send(vec![start_job(lives, 1)]);
    assert_eq!(world.disk.started[&lives], 1);
    world.finish(lives, end(5));
    world.run();
    assert_eq!(told(&world, lives), Some(1));
    assert!(world.gone.contains(&attempt_of(lives)));
}
