//! A client that a generator makes from our OpenAPI document. Wants openapi-python-client and ruff (of PyPI).

use std::fs;
use std::process::{Command, Output};

use squall_text::shapes::Version;

use crate::rest::http::Cluster;

fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {said}");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_generated_client_submits_reads_changes_and_cancels() {
    // The generator's own Python has what its clients need.
    let Some(python) = python_of("openapi-python-client") else {
        eprintln!("skipped: there is no openapi-python-client");
        return;
    };
    let c = Cluster::start("generated");
    let document = c.dir.join("openapi.json");
    fs::write(&document, c.send("GET", "/openapi.json", &[], "").body).unwrap();
    let said = done(
        Command::new("openapi-python-client")
            .args(["generate", "--overwrite", "--path"])
            .arg(&document)
            .arg("--output-path")
            .arg(c.dir.join("client")),
    );
    // A part of the document that the generator does not understand is left out with a warning.
    assert!(!said.contains("Unable to") && !said.contains("was ignored"), "{said}");
    let user = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/rest/generated.py");
    let told = done(Command::new(python).args([user, &c.port.to_string(), &c.token(None)]).arg(&c.dir));
    let counts: Vec<u32> = told.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(counts[0] as usize == Version::ALL.len() && counts[1] > 120, "versions and functions that read: {told}");
}

/// Returns the interpreter that runs the program. None: there is no such program.
fn python_of(program: &str) -> Option<String> {
    let found = Command::new("sh").arg("-c").arg(format!("head -1 \"$(command -v {program})\"")).output().ok()?;
    Some(String::from_utf8(found.stdout).ok()?.strip_prefix("#!")?.trim().to_owned())
}
