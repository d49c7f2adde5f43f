//! Nothing is swallowed: where the engine passes over a case, it says why the case is real, or that it can't be.

use crate::{files_below, root};

/// The rule: in the engine, outside tests, each `else` and each arm of a `match` that only leaves (`else { return }`,
/// `else { continue }`, `=> return,`, `=> continue,`, on one line or on three) has a comment that begins with
/// `// because` and names the course of events that leads there. It stands on the same line, directly above, or above
/// lines directly above that leave, too. What no course of events can reach is an `invariant!` instead. An `else` that
/// returns a value is an answer, and no silence.
#[test]
fn nothing_is_swallowed() {
    let source = root().join("crates/squall-engine/src");
    let mut wrong = Vec::new();
    for file in files_below(&source, "rs") {
        let name = file.strip_prefix(&source).unwrap().display().to_string();
        if name.split('/').any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        wrong.extend(unexplained(&text).iter().map(|line| format!("engine/{name}:{line}: say `// because ...`")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn silence_without_a_reason_is_found() {
    for silent in [
        "let Some(a) = b else { return };",
        "let Some(a) = b else { continue };",
        "let Some(a) = b else { return }; // It is so.",
        "// It is so.\nlet Some(a) = b else { return };",
        "// because it is so\n\nlet Some(a) = b else { return };",
        "// because it is so\nlet c = d;\nlet Some(a) = b else { return };",
        "let Some(a) = b else {\n    // It is so.\n    return;\n};",
        "_ => return,",
        "None => continue,",
    ] {
        assert_eq!(unexplained(silent).len(), 1, "{silent}");
    }
    for fine in [
        "let Some(a) = b else { return None };",
        "let Some(a) = b else { return invariant!(\"a is known\") };",
        "let Some(a) = b else {\n    invariant!(\"a is known\");\n    continue;\n};",
        "let Some(a) = b else { return }; // because it is so",
        "// because it is so,\n// and was\nlet Some(a) = b else { return };\nlet Some(c) = d else { continue };",
        "let Some(a) = b else {\n    // because it is so\n    return;\n};",
        "// because it is so\n_ => return,",
        "if a {\n    return;\n}",
        "#[cfg(test)]\nmod tests {\n    let Some(a) = b else { return };\n}",
    ] {
        assert_eq!(unexplained(fine), [0; 0], "{fine}");
    }
}

/// Returns the numbers of the lines that leave without a reason.
fn unexplained(text: &str) -> Vec<usize> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    (0..lines.len()).filter(|at| leaves(&lines, *at) && !has_reason(&lines, *at)).map(|at| at + 1).collect()
}

fn leaves(lines: &[&str], at: usize) -> bool {
    let code = |line: &str| line.split("//").next().unwrap_or_default().trim_end().to_owned();
    let own = code(lines[at]);
    let begins = |line: &&str| !line.starts_with("//") && line.ends_with("else {");
    let block = || lines[..at].iter().rev().find(|line| !line.starts_with("//")).is_some_and(begins);
    let whole = ["else { return", "else { continue"];
    let arms = ["=> return,", "=> continue,"];
    whole.iter().any(|start| own.contains(&format!("{start} }}")) || own.contains(&format!("{start}; }}")))
        || arms.iter().any(|arm| own.ends_with(arm))
        || (["return;", "continue;"].contains(&own.as_str()) && block())
}

fn has_reason(lines: &[&str], at: usize) -> bool {
    if lines[at].contains("// because ") {
        return true;
    }
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("//"));
    let count = above.clone().count();
    above.into_iter().any(|line| line.starts_with("// because "))
        || (count == 0 && at > 0 && leaves(lines, at - 1) && has_reason(lines, at - 1))
}
