//! What users do, end to end with real processes: one cluster of four nodes, one story after another.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test says what failed by failing")]

mod batch;
mod cluster;
mod control;
mod ends;
mod events;
mod gang;
mod het;
mod kept;
mod library;
mod scripts;
mod steps;
#[path = "../harness/traces.rs"]
mod traces;
mod users;
mod watch;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use cluster::Cluster;

/// A story: its name and what it does.
type Story = (&'static str, fn(&Cluster));

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let stories: Vec<Story> = [
        batch::STORIES,
        steps::STORIES,
        ends::STORIES,
        control::STORIES,
        kept::STORIES,
        users::STORIES,
        watch::STORIES,
        events::STORIES,
        library::STORIES,
        scripts::STORIES,
        het::STORIES,
        // Its last one leaves jobs for the end.
        gang::STORIES,
    ]
    .concat();
    let chosen = stories.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name.contains(w)));
    let cluster = Cluster::start(4);
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, story) in chosen {
        let ok = std::panic::catch_unwind(AssertUnwindSafe(|| story(&cluster))).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok {
            passed += 1;
        } else {
            failed.push(*name);
        }
    }
    let clean = std::panic::catch_unwind(AssertUnwindSafe(|| cluster.stop())).is_ok();
    println!("test nothing_is_left_after_down ... {}", if clean { "ok" } else { "FAILED" });
    if clean {
        passed += 1;
    } else {
        failed.push("nothing_is_left_after_down");
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out {failed:?}",
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
