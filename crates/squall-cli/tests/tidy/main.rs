//! The house rules as a test: arrows between crates and within the controller, circles, file heads and lengths, where
//! `unsafe` may stand; that nothing is swallowed (`silence.rs`); and what pages name (`pages.rs`, `security.rs`).

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

mod modules;
mod pages;
mod security;
mod silence;

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, lines.
const FILE_LINES_MAX: usize = 800;

/// What each crate may know of the house. No arrow runs up; host and sim do not know each other.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("files", &[]),
    ("sched", &["model"]),
    ("engine", &["model", "sched"]),
    ("store", &["model", "files", "engine"]),
    ("host", &["model", "files", "sched", "engine", "store", "text"]),
    ("sim", &["model", "sched", "engine", "store"]),
    ("text", &["model", "files"]),
    ("filter", &["model", "text"]),
    ("client", &["model", "files", "text"]),
    ("c", &["model", "text", "client"]),
    ("pam", &[]),
    ("rest", &["model", "files", "sched", "text", "client"]),
    ("replay", &["model", "sched", "engine", "host", "text"]),
    ("lab", &["model", "files", "sched", "engine", "store", "host", "sim", "text", "client", "replay"]),
    ("fuzz", &["model", "files", "sched", "engine", "host", "replay", "text"]),
    ("cli", &["model", "files", "sched", "engine", "host", "text", "filter", "client", "replay", "lab", "rest"]),
];

/// The only libraries that the pure crates may use.
const PURE_LIBRARIES: &[&str] =
    &["serde", "minicbor", "smallvec", "crc32c", "blake3", "thiserror", "toml", "indexmap", "multiversion"];

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

/// The folders of the controller, lowest first. Each may use those before it and itself only.
const CONTROLLER: &[&str] = &["state", "port", "index", "net", "controller", "info", "effects", "decide"];

#[test]
fn the_controllers_walls_stand() {
    let source = root().join("crates/squall-engine/src");
    let graph = modules::graph(&source, files_below(&source, "rs"));
    let mut wrong = Vec::new();
    for (module, used) in graph.iter().filter(|(module, _)| module.len() > 1 && module[0] == "control") {
        let floor =
            |of: &modules::Module| CONTROLLER.iter().position(|folder| of.get(1).is_some_and(|name| name == folder));
        let Some(own) = floor(module) else {
            wrong.push(format!("engine/{}: in none of the folders {CONTROLLER:?}", module.join("/")));
            continue;
        };
        for other in used.iter().filter(|other| other.first().is_some_and(|first| first == "control")) {
            if floor(other).is_none_or(|floor| floor > own) {
                wrong.push(format!("engine/{} must not know {}", module.join("/"), other.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let decides = &graph[&["control", "decide", "submit"].map(str::to_owned).to_vec()];
    assert!(decides.len() > 3, "the arrows of a file that has many were not found: {decides:?}");
}

/// The folders and files of the commands' crate, lowest first. Each may use those before it and itself only.
const COMMANDS: &[&str] = &["hall", "contact", "capture", "command", "table"];

#[test]
fn the_commands_stand_on_the_hall() {
    let source = root().join("crates/squall-cli/src");
    let graph = modules::graph(&source, files_below(&source, "rs"));
    let floor = |of: &modules::Module| COMMANDS.iter().position(|name| of.first().is_some_and(|first| first == name));
    for (module, used) in graph.iter().filter(|(module, _)| !module.is_empty()) {
        let own = floor(module).unwrap_or_else(|| panic!("{module:?} is none of {COMMANDS:?}"));
        let wrong: Vec<_> = used.iter().filter(|other| floor(other).is_none_or(|floor| floor > own)).collect();
        assert!(wrong.is_empty(), "{module:?} must not know {wrong:?}");
    }
    let up = &graph[&["command", "up"].map(str::to_owned).to_vec()];
    assert!(up.len() > 3, "the arrows of a file that has many were not found: {up:?}");
}

/// Most modules of a crate that may all use each other, directly or not. A file that uses its own folder's `mod.rs` does not
/// count: the two are one module.
const CIRCLE_MAX: usize = 5;

#[test]
fn circles_are_small() {
    let mut wrong = Vec::new();
    for (name, _) in ARROWS {
        let source = root().join(format!("crates/squall-{name}/src"));
        let mut graph = modules::graph(&source, files_below(&source, "rs"));
        for (module, used) in &mut graph {
            used.retain(|other| !module.starts_with(other));
        }
        for circle in modules::circles(&graph) {
            let circle: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            if circle.len() > CIRCLE_MAX {
                wrong.push(format!("{name}: {} modules all use each other: {}", circle.len(), circle.join(" ")));
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
        // The last two are what C programs call: all that they do is to read and write where the program says.
        let may = [
            "crates/squall-host/src/sys",
            "crates/squall-files/src/users.rs",
            "crates/squall-store/src/accounts/pages.rs",
            "crates/squall-c/src",
            "crates/squall-pam/src/pam.rs",
        ];
        if may.iter().any(|folder| name.starts_with(folder)) || name.ends_with("tests/tidy/main.rs") {
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
fn options_are_fields_and_channels_are_bounded() {
    // Options of jobs, steps and updates that are kept as texts by name would be parsed again wherever they are read.
    let bag = |code: &str| code.trim_start().starts_with("pub others: Vec<(String,");
    let unbounded = ["unbounded_channel", "mpsc::channel()", "unbounded()"];
    let mut wrong = Vec::new();
    for file in sources() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for (at, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let endless = !name.contains("tests/tidy/") && unbounded.iter().any(|word| code.contains(word));
            if bag(code) || endless {
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
    files_below(&root().join("crates"), "rs")
}

/// Every file with that extension in a folder and those below it.
fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name() != Some("target".as_ref()) {
                folders.push(path);
            } else if path.extension() == Some(extension.as_ref()) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
