//! Every story in `scenarios/` holds.

use std::fs;
use std::path::Path;

use squall_sim::tell;

#[test]
fn every_story_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "txt"));
    files.sort();
    assert!(files.len() >= 25);
    let mut failures = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap();
        match tell(&text) {
            Ok(()) => eprintln!("story {name}: holds"),
            Err(failure) => {
                eprintln!("story {name}: FAILS: {failure}");
                failures.push(format!("{name}: {failure}\n  {}", failure.trace.join("\n  ")));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_line_that_is_not_a_statement_is_named() {
    let failure = tell("cluster n1\nsubmitt a\n").unwrap_err();
    assert_eq!((failure.line, failure.problem.as_str()), (2, "`submitt a` is not a statement"));
}

#[test]
fn a_false_expectation_is_named() {
    let failure = tell("cluster n1\nsubmit a time=1s\nrun 10s\nexpect a twice\n").unwrap_err();
    assert_eq!((failure.line, failure.problem.as_str()), (4, "a ran 1 times, not 2"));
}
