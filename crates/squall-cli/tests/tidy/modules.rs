//! Which module of a crate uses which, read off its source: `use` statements and paths that begin with `crate`, `super`,
//! `self` or the name of a child module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module: the names from the crate's root down, `["control", "index", "queue"]`.
pub(crate) type Module = Vec<String>;

/// The modules of a crate, each with those that it uses. Modules of tests are left out.
pub(crate) fn graph(source: &Path, files: Vec<PathBuf>) -> BTreeMap<Module, BTreeSet<Module>> {
    let known: BTreeMap<Module, PathBuf> =
        files.into_iter().filter_map(|file| Some((module_of(file.strip_prefix(source).ok()?)?, file))).collect();
    let names: BTreeSet<Module> = known.keys().cloned().collect();
    known
        .iter()
        .map(|(module, file)| (module.clone(), used(module, &fs::read_to_string(file).unwrap(), &names)))
        .collect()
}

fn module_of(file: &Path) -> Option<Module> {
    let mut parts: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.iter().any(|part| part == "tests") {
        return None;
    }
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    Some(parts)
}

fn used(module: &Module, text: &str, names: &BTreeSet<Module>) -> BTreeSet<Module> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let tokens = tokens(code);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            // `pub(in path)` says who may use it, and uses nobody.
            "pub" if tokens.get(at + 1) == Some(&"(") => at += tokens[at..].iter().position(|t| *t == ")").unwrap_or(1),
            "use" => at = tree(&tokens, at + 1, &mut Vec::new(), &mut paths),
            word if is_word(word) && (at == 0 || tokens[at - 1] != "::") && tokens.get(at + 1) == Some(&"::") => {
                let mut path = vec![word.to_owned()];
                while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|next| is_word(next)) {
                    path.push(tokens[at + 2].to_owned());
                    at += 2;
                }
                paths.push(path);
            }
            _ => {}
        }
        at += 1;
    }
    paths.iter().filter_map(|path| resolve(module, path, names)).filter(|other| other != module).collect()
}

/// The paths of a `use` statement from one token on; gives where it ends.
fn tree(tokens: &[&str], mut at: usize, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    let mut open = true;
    while at < tokens.len() {
        match tokens[at] {
            ";" | "}" | "," => {
                if open && prefix.len() > depth {
                    paths.push(prefix.clone());
                }
                prefix.truncate(depth);
                open = true;
                if tokens[at] != "," {
                    return at;
                }
            }
            "{" => {
                at = tree(tokens, at + 1, prefix, paths);
                open = false;
            }
            "::" => {}
            // `path as name`
            "as" => at += 1,
            word => prefix.push(word.to_owned()),
        }
        at += 1;
    }
    at
}

fn resolve(module: &Module, path: &[String], names: &BTreeSet<Module>) -> Option<Module> {
    let mut base: Module = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            module[..module.len().checked_sub(ups)?].to_vec()
        }
        _ => {
            let child = [module.as_slice(), &path[..1]].concat();
            names.contains(&child).then_some(child)?
        }
    };
    for part in path.iter().skip(1).filter(|part| *part != "super" && *part != "self") {
        let further = [base.as_slice(), std::slice::from_ref(part)].concat();
        if !names.contains(&further) {
            break;
        }
        base = further;
    }
    names.contains(&base).then_some(base)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = match first {
            ':' if rest.starts_with("::") => 2,
            _ if word > 0 => word,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            found.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    found
}

/// Sets of modules that all use each other, directly or not, of more than one module.
pub(crate) fn circles(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let mut found: Vec<BTreeSet<Module>> = Vec::new();
    for module in graph.keys() {
        let circle: BTreeSet<Module> = reach[module]
            .iter()
            .filter(|other| reach[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn reached<'a>(graph: &'a BTreeMap<Module, BTreeSet<Module>>, from: &'a Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        open.extend(graph.get(next).into_iter().flatten().filter(|other| found.insert(*other)));
    }
    found
}
