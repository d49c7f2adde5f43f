//! The house rules as a test: arrows between crates and within the controller, circles, file heads and lengths, where `unsafe` may stand.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

mod modules;

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
    ("host", &["model", "files", "sched", "engine", "store"]),
    ("sim", &["model", "sched", "engine", "store"]),
    ("text", &["model", "files"]),
    ("client", &["model", "files", "text"]),
    ("c", &["model", "text", "client"]),
    ("lab", &["model", "files", "sched", "engine", "store", "host", "sim", "text", "client"]),
    ("cli", &["model", "files", "sched", "engine", "host", "sim", "text", "client", "lab"]),
];

/// The only libraries that the pure crates may use.
const PURE_LIBRARIES: &[&str] =
    &["serde", "minicbor", "postcard", "smallvec", "crc32c", "blake3", "thiserror", "toml", "indexmap", "multiversion"];

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

/// Most modules of a crate that may all use each other, directly or not. A file that uses its own folder's `mod.rs` does not
/// count: the two are one module.
const CIRCLE_MAX: usize = 5;

/// Circles that are larger: crate, a module of it, of how many modules. They may only shrink.
const CIRCLES: &[(&str, &str, usize)] = &[
    ("model", "config", 18),
    ("sched", "view", 7),
    ("host", "stepd", 14),
    ("store", "accounts/book", 7),
    ("host", "controld", 6),
    ("sim", "world", 17),
    ("cli", "command/scontrol/show", 13),
    ("cli", "options/table", 8),
    ("cli", "command/sacctmgr/change", 7),
    ("lab", "bench", 6),
];

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
            let known = CIRCLES.iter().find(|(of, one, _)| of == name && circle.iter().any(|module| module == one));
            if circle.len() > known.map_or(CIRCLE_MAX, |(.., most)| *most) {
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
        // The last is what a C program calls: all that it does is to read and write where the program says.
        let may = [
            "crates/squall-host/src/sys",
            "crates/squall-files/src/users.rs",
            "crates/squall-store/src/accounts/pages.rs",
            "crates/squall-c/src",
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

/// Most bytes of the map of the code: a page that is read in one go.
const MAP_BYTES_MAX: usize = 10_240;

#[test]
fn the_map_is_short() {
    let bytes = fs::read(root().join("ARCHITECTURE.md")).unwrap().len();
    assert!(
        bytes <= MAP_BYTES_MAX,
        "ARCHITECTURE.md has {bytes} bytes, more than {MAP_BYTES_MAX}: move details to docs/"
    );
}

#[test]
fn pages_name_files_that_exist() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for span in spans(&text).into_iter().filter(|span| is_path(span)) {
            let missing = braces(span).into_iter().filter(|path| !exists(&page, path));
            wrong.extend(missing.map(|path| format!("{}: `{path}`", page.display())));
        }
    }
    assert!(
        wrong.is_empty(),
        "no such files (`engine/control/decide/lists.rs` is crates/squall-engine/src/control/decide/lists.rs): {wrong:#?}"
    );
}

#[test]
fn links_between_pages_resolve() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let heads = || anchors(&fs::read_to_string(&target).unwrap());
            if !target.exists() || !(anchor.is_empty() || heads().contains(&anchor.to_owned())) {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

/// The pages for people who read or change the code, without the contents of their fenced blocks.
fn pages() -> Vec<(PathBuf, String)> {
    let names = ["ARCHITECTURE.md", "README.md", "STYLE.md"];
    let mut files: Vec<PathBuf> = names.iter().map(|name| root().join(name)).collect();
    files.extend(files_below(&root().join("docs"), "md"));
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        (file, text.split("```").step_by(2).collect())
    };
    files.into_iter().map(read).collect()
}

/// What stands in code font in a page.
fn spans(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a piece in code font names a file or folder of the repository: it begins with a crate's short name or a
/// top folder, or it is a source file or page.
fn is_path(span: &str) -> bool {
    let first = span.split_once('/').map_or("", |(first, _)| first);
    let known = ARROWS.iter().any(|(name, _)| *name == first) || ["crates", "docs", "scripts"].contains(&first);
    let extension = Path::new(span).extension().unwrap_or_default();
    !span.contains([' ', '*', '=']) && (known || extension == "rs" || extension == "md")
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn braces(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    match parts {
        Some((head, (middle, tail))) => middle.split(',').map(|one| format!("{head}{one}{tail}")).collect(),
        None => vec![path.to_owned()],
    }
}

/// Whether there is such a file: from the repository's root, beside the page, or in the crate of that short name.
fn exists(page: &Path, path: &str) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let own = root().join(format!("crates/squall-{first}"));
    let places = [root().join(path), page.with_file_name(path), own.join("src").join(rest), own.join(rest)];
    places.iter().any(|place| place.exists())
}

/// Targets of `[text](target)`.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The names under which a page's headings can be linked to, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let heads = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heads.map(|head| head.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
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
