//! Ends of jobs on several nodes.

use squall_model::id::StepNo;
use squall_model::report::{Report, StepEnd};
use squall_model::time::Span;
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::ToStepd;

use super::{BATCH, World, key, start_step};
use crate::node::disk::end;
use crate::node::{NodeAct, attempt_of};

#[test]
fn on_several_nodes_the_controller_ends_the_job() {
    let mut world = World::new();
    world.start(1, 2);
    world.run();
    let step = key(1, StepNo(0));
    world.send(vec![start_step(step, 2)]);
    world.run();
    let job = attempt_of(step);
    world.mute = true;
    world.finish(key(1, StepNo::BATCH), end(0));
    world.run();
    assert!(!world.acts.contains(&NodeAct::Sweep { job }) && world.is_live(step));
    world.mute = false;
    world.tick(Span::from_secs(6));
    let why = EndReason::Cancelled;
    assert!(world.acts.contains(&NodeAct::Tell { key: step, message: ToStepd::End { kill_wait_s: 30, why } }));
    world.tick(Span::from_secs(60));
    assert!(world.acts.contains(&NodeAct::KillStep { key: step }), "it does not answer");
    assert_eq!(world.gone.len(), 1);
    assert_eq!(world.reports_of(step), 1);
    assert!(world.disk.spool.is_empty() && world.disk.marks.is_empty());
}

#[test]
fn a_script_that_is_to_end_has_not_ended_by_itself_if_its_exit_code_says_the_signal() {
    for (told, code, own) in [(true, 143, false), (true, 137, false), (true, 3, true), (false, 143, true)] {
        let mut world = World::new();
        world.start(1, 1);
        world.run();
        if told {
            world.end(1, 30);
            world.run();
        }
        let note = Some("the step daemon died while its tasks ran on".to_owned());
        world.finish(key(1, BATCH), StepEnd { note, ..end(code) });
        world.run();
        let [Report::StepEnded { end, .. }] = &world.ended[&key(1, BATCH)][..] else { panic!("it ends once") };
        assert_eq!(end.is_own(), own, "{end:?}");
    }
}
