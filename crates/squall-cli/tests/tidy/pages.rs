//! What pages name and link to exists, and the book has them all.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{ARROWS, files_below, root};

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
    let wrong: Vec<String> = pages().iter().flat_map(|(page, text)| dead_links(page, text)).collect();
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = root().join("docs/decisions/README.md");
    let text =
        "[a](001-journal.md) [b](../failures.md#nothing-here) [c](none.md) [d](#e) [f](https://example.org)\n# E\n";
    let found: Vec<String> =
        dead_links(&page, text).iter().filter_map(|link| Some(link.rsplit_once(' ')?.1.to_owned())).collect();
    assert_eq!(found, ["../failures.md#nothing-here", "none.md", "#e"]);
}

#[test]
fn the_books_summary_names_every_page() {
    let summary = root().join("docs/SUMMARY.md");
    let text = fs::read_to_string(&summary).unwrap();
    let named: Vec<PathBuf> = links(&text).iter().map(|link| summary.with_file_name(link)).collect();
    let pages = files_below(&root().join("docs"), "md");
    let missing: Vec<&PathBuf> = pages.iter().filter(|page| **page != summary && !named.contains(page)).collect();
    assert!(missing.is_empty(), "pages that docs/SUMMARY.md does not name: {missing:#?}");
}

#[test]
fn the_page_of_the_simulator_counts_its_planted_bugs() {
    let page = fs::read_to_string(root().join("docs/simulation.md")).unwrap();
    let sentence = format!("all {} are found", squall_sim::Mutation::ALL.len());
    assert!(page.contains(&sentence), "docs/simulation.md must say \"{sentence}\"");
}

/// Returns the links of a page to files or headings that do not exist, as `PAGE: LINK`.
fn dead_links(page: &Path, text: &str) -> Vec<String> {
    let is_dead = |link: &&str| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
        let heads = || anchors(&fs::read_to_string(&target).unwrap());
        !target.exists() || !(anchor.is_empty() || heads().contains(&anchor.to_owned()))
    };
    let dead = links(text).into_iter().filter(|link| !link.contains("://")).filter(is_dead);
    dead.map(|link| format!("{}: {link}", page.display())).collect()
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

/// Slurm's words that look like paths.
const WORDS: [&str; 2] = ["sched/backfill", "sched/builtin"];

/// Whether a piece in code font names a file or folder of the repository: it begins with a crate's short name or a
/// top folder, or it is a source file or page.
fn is_path(span: &str) -> bool {
    let first = span.split_once('/').map_or("", |(first, _)| first);
    let known = ARROWS.iter().any(|(name, _)| *name == first)
        || ["bench", "crates", "docs", "python", "scripts"].contains(&first);
    let extension = Path::new(span).extension().unwrap_or_default();
    !WORDS.contains(&span) && !span.contains([' ', '*', '=']) && (known || extension == "rs" || extension == "md")
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
