//! The house rules as a test: arrows between crates, file heads and lengths, where `unsafe` may stand.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, lines.
const FILE_LINES_MAX: usize = 800;

/// What each crate may know of the house. No arrow runs up; host and sim do not know each other.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("sched", &["model"]),
    ("engine", &["model", "sched"]),
    ("host", &["model", "sched", "engine"]),
    ("sim", &["model", "sched", "engine"]),
    ("client", &["model", "host"]),
    ("c", &["model", "client"]),
    ("cli", &["model", "sched", "engine", "host", "sim", "client"]),
];

/// The only libraries that the pure crates may use.
const PURE_LIBRARIES: &[&str] = &[
    "serde",
    "serde_bytes",
    "postcard",
    "smallvec",
    "crc32c",
    "blake3",
    "thiserror",
    "toml",
    "indexmap",
    "multiversion",
];

#[test]
fn no_arrow_runs_up() {
    let mut wrong = Vec::new();
    for (name, may) in ARROWS {
        let manifest = fs::read_to_string(root().join(format!("crates/squall-{name}/Cargo.toml"))).unwrap();
        for dependency in dependencies(&manifest) {
            match dependency.strip_prefix("squall-") {
                Some(other) if !may.contains(&other) => wrong.push(format!("{name} must not know {other}")),
                None if ["model", "sched", "engine", "sim"].contains(name)
                    && !PURE_LIBRARIES.contains(&dependency.as_str()) =>
                {
                    wrong.push(format!("{name} is pure and must not use {dependency}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_is_readable_in_one_sitting() {
    let mut wrong = Vec::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        if !text.starts_with("//! ") {
            wrong.push(format!("{name}: does not open with a sentence that says what it is (`//! …`)"));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{name}: {lines} lines, more than {FILE_LINES_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_stands_only_where_processes_and_ffi_live() {
    let mut wrong = Vec::new();
    for file in sources() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        // The second is what a C program calls: all that it does is to read and write where the program says.
        let may = ["crates/squall-host/src/sys", "crates/squall-c/src"];
        if may.iter().any(|folder| name.starts_with(folder)) || name.ends_with("tests/tidy.rs") {
            continue;
        }
        for (at, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("unsafe ") && !code.contains("unsafe_code") {
                wrong.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_are_by_name() {
    let mut wrong = Vec::new();
    for file in sources() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for (at, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.trim_start();
            let glob = code.starts_with("use ") && code.contains("::*") && !code.contains("proptest::prelude");
            let again = code.starts_with("pub use ") && !name.ends_with("/lib.rs") && !name.ends_with("/mod.rs");
            if glob || again {
                wrong.push(format!("{name}:{}: {code}", at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names under `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|l| l.trim() != "[dependencies]")
        .skip(1)
        .take_while(|l| !l.starts_with('['))
        .filter_map(|l| l.split(['.', ' ', '=']).next().filter(|n| !n.is_empty() && !n.starts_with('#')))
        .map(str::to_owned)
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every Rust file of the workspace.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name() != Some("target".as_ref()) {
                folders.push(path);
            } else if path.extension() == Some("rs".as_ref()) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
