//! The controller dies at every position of its journal, and again in the recovery from that.

use squall_sim::tell;

/// Something of everything; about forty records.
const STORY: &str = "
{cluster}
config kill_wait=5
{crash}
restart controller after 2s
submit a nodes=2 time=20s
submit b array=0-5%2 time=10s exit=3@4
submit c time=10s after=afterany:b
srun d nodes=2 time=10s
salloc e time=5s steps=2
submit f time=600s ignores-term
submit g time=10s hold
run 40s
cancel f
release g
run 10m
expect a completed once on 2 nodes
expect b once
expect b completed 5 tasks
expect c completed once
expect d completed
expect e completed
expect f cancelled
expect g completed once
expect b before c
expect b at most 2 at once
";

fn hold(crashes: &str) {
    hold_on("cluster n[1-3] cores=2", crashes);
}

fn hold_on(cluster: &str, crashes: &str) {
    let story = STORY.replace("{cluster}", cluster).replace("{crash}", crashes);
    if let Err(failure) = tell(&story) {
        panic!("{cluster}, {crashes}: {failure}\n{}", failure.trace.join("\n"));
    }
}

#[test]
fn the_story_holds_without_a_crash() {
    hold("");
}

#[test]
fn a_crash_at_every_position() {
    for point in ["decide", "append", "journal", "release"] {
        for n in 1..=60 {
            hold(&format!("crash controller at {point}+{n}"));
        }
    }
}

#[test]
fn a_crash_at_every_third_position_above_a_tree() {
    for point in ["decide", "append", "journal", "release"] {
        for n in (1..=60).step_by(3) {
            hold_on("cluster n[1-3] cores=2 width=2", &format!("crash controller at {point}+{n}"));
        }
    }
}

#[test]
fn a_crash_at_every_position_and_three_in_its_recovery() {
    for point in ["decide", "append", "journal", "release"] {
        for n in (1..=60).step_by(3) {
            let again = "crash controller at recovery+1\n".repeat(3);
            hold(&format!("crash controller at {point}+{n}\n{again}crash controller at append+1\n"));
        }
    }
}
