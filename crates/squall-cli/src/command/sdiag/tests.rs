//! Tests of sdiag.

use squall_model::wire::client::Request;

use super::sdiag;
use crate::command::listing::fake::{check, fake, run, run_with, transcript};

#[test]
fn text_and_json() {
    check("sdiag_text", &run("sdiag", sdiag, &[]).out);
    check("sdiag_json", &run("sdiag", sdiag, &["--json"]).out);
}

#[test]
fn lines_that_exporters_read() {
    let out = run("sdiag", sdiag, &["--all"]).out;
    for line in [
        "Server thread count:",
        "Agent queue size:",
        "DBD Agent queue size:",
        "Last cycle:",
        "Mean cycle:",
        "Cycles per minute:",
        "Total backfilled jobs (since last slurm start):",
        "Total backfilled jobs (since last stats cycle start):",
        "Total backfilled heterogeneous job components:",
        "Remote Procedure Call statistics by message type",
    ] {
        assert!(out.contains(line), "{line}");
    }
    let value: serde_json::Value = serde_json::from_str(&run("sdiag", sdiag, &["--json"]).out).unwrap();
    assert!(value["meta"]["plugin"]["data_parser"].is_string());
    assert_eq!(value["statistics"]["rpcs_by_user"][0]["user"], "ann");
    assert_eq!(value["statistics"]["rpcs_by_message_type"][0]["average_time"]["number"], 200);
}

#[test]
fn reset_and_errors() {
    let mut fake = fake();
    assert_eq!(run_with(&mut fake, "sdiag", sdiag, &["-r"], &[]).out, "Reset scheduling statistics\n");
    assert_eq!(fake.asked, [Request::Diag { reset: true }]);
    fake.down = true;
    assert_eq!(run_with(&mut fake, "sdiag", sdiag, &[], &[]).code, 1);
    check("sdiag_what_fails_and_how", &transcript("sdiag", sdiag, &[&["--nosuch"], &["-V"], &["-M", "other"]]));
}
