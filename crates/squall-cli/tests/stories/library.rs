//! The stories of programs that submit jobs: in C by libsquallclient, in Python by the package `squall`.

use std::path::Path;
use std::process::Command;

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("a_c_program_submits_a_thousand_jobs", c_program),
    ("a_python_program_submits_watches_and_waits", python_program),
];

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

fn python_program(c: &Cluster) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("python");
    let (tests, package) = (package.join("tests").display().to_string(), package.display().to_string());
    let environment = [("PYTHONPATH", package.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")];
    let python = |arguments: &[&str]| c.run_with(&[&["/usr/bin/env", "python3"], arguments].concat(), &environment, "");
    if python(&["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).status != 0 {
        eprintln!("skipped: there is no python3 of 3.9 or later");
        return;
    }
    let done = python(&["-m", "unittest", "discover", "-s", &tests]);
    assert_eq!(done.status, 0, "{}", done.err);
}
