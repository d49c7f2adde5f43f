//! The story of a C program that submits jobs by libsquallclient.

use std::path::Path;
use std::process::Command;

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[("a_c_program_submits_a_thousand_jobs", c_program)];

fn c_program(c: &Cluster) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap();
    // Cargo puts the library of a crate that tests depend on beside the tests.
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-o", &c.path("bin/library")])
        .arg(crates.join("squall-cli/tests/stories/library.c"))
        .arg("-I")
        .arg(crates.join("squall-c"))
        .arg(library.join("libsquallclient.so"))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    c.ok(&["library"]);
    assert_eq!(c.read("told"), "spoken\n");
}
