//! Parser for the part of YAML that topology files use: nested maps and lists, `[a, b]`, `{x: 1}`, comments. Every
//! value has its line number.

use super::Fault;

/// Most levels of maps and lists in each other. Slurm's files have six; more would use up the stack.
const DEPTH_MAX: usize = 64;

/// A value in a YAML text, with the number of its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) line: usize,
    pub(super) kind: Content,
}

/// Content and content of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Scalar(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    /// Returns the value of a key; upper and lower case are equal. None: the value is no map or lacks the key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Content::Map(entries) = &self.kind else { return None };
        entries.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }
    /// Returns the value as text. Error: it is a list or map.
    pub(super) fn text(&self) -> Result<&str, Fault> {
        match &self.kind {
            Content::Scalar(text) => Ok(text),
            Content::List(_) | Content::Map(_) => Err(Fault::new(self.line, "a single value is expected here")),
        }
    }
    /// Returns the value as a list. Error: it is no list.
    pub(super) fn list(&self) -> Result<&[Self], Fault> {
        match &self.kind {
            Content::List(items) => Ok(items),
            Content::Scalar(_) | Content::Map(_) => Err(Fault::new(self.line, "a list is expected here (`- …`)")),
        }
    }
    /// Checks that the value is a map with only these keys.
    pub(super) fn known(&self, keys: &[&str]) -> Result<(), Fault> {
        let Content::Map(entries) = &self.kind else {
            return Err(Fault::new(self.line, "`key: value` is expected here"));
        };
        match entries.iter().find(|(name, _)| !keys.iter().any(|key| key.eq_ignore_ascii_case(name))) {
            Some((name, value)) => {
                Err(Fault::new(value.line, format!("unknown key `{name}`; known here: {}", keys.join(", "))))
            }
            None => Ok(()),
        }
    }
    /// Returns the value as a number. Error: it is none.
    pub(super) fn number(&self) -> Result<u32, Fault> {
        let text = self.text()?;
        text.parse().map_err(|_| Fault::new(self.line, format!("`{text}` is not a number")))
    }
    /// Returns the value as a boolean (true, yes, on, 1 or their opposites). Error: it is none.
    pub(super) fn truth(&self) -> Result<bool, Fault> {
        let text = self.text()?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(Fault::new(self.line, format!("`{text}` is neither true nor false"))),
        }
    }
}

struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

/// Parses the text of a YAML file.
pub(super) fn parse(text: &str) -> Result<Value, Fault> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let body = without_comment(line);
        let trimmed = body.trim();
        if trimmed.is_empty() || trimmed == "---" || trimmed == "..." {
            continue;
        }
        if body.contains('\t') {
            return Err(Fault::new(number, "a tab: YAML is indented with blanks"));
        }
        if brackets(trimmed) > DEPTH_MAX {
            return Err(Fault::new(number, format!("more than {DEPTH_MAX} brackets in each other")));
        }
        lines.push(Line { number, indent: body.len() - body.trim_start().len(), text: trimmed });
    }
    let mut open: Vec<usize> = Vec::new();
    for line in &lines {
        open.retain(|indent| *indent < line.indent);
        open.push(line.indent);
        if open.len() > DEPTH_MAX {
            return Err(Fault::new(line.number, format!("more than {DEPTH_MAX} levels of indentation")));
        }
    }
    let Some(first) = lines.first() else { return Ok(Value { line: 1, kind: Content::List(Vec::new()) }) };
    let (value, used) = block(&lines, 0, first.indent)?;
    match lines.get(used) {
        Some(line) => Err(Fault::new(line.number, "indented differently than what stands before it")),
        None => Ok(value),
    }
}

/// Returns how many brackets are open at most in a line.
fn brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for c in text.chars() {
        match c {
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = c;
    }
    line
}

/// Parses the value that begins at line `at` with this indent. Returns it and the index of the line after it.
fn block(lines: &[Line<'_>], at: usize, indent: usize) -> Result<(Value, usize), Fault> {
    let first = &lines[at];
    if first.text == "-" || first.text.starts_with("- ") {
        return list(lines, at, indent);
    }
    if split_key(first.text).is_none() {
        return Ok((flow(first.text, first.number)?, at + 1));
    }
    let mut entries: Vec<(String, Value)> = Vec::new();
    let mut at = at;
    while let Some(line) = lines.get(at).filter(|line| line.indent == indent && !line.text.starts_with("- ")) {
        let (key, rest) =
            split_key(line.text).ok_or_else(|| Fault::new(line.number, "`key: value` is expected here"))?;
        if entries.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
            return Err(Fault::new(line.number, format!("`{key}` stands here twice")));
        }
        let (value, next) = after_key(lines, at, indent, rest)?;
        entries.push((key.to_owned(), value));
        at = next;
    }
    Ok((Value { line: first.number, kind: Content::Map(entries) }, at))
}

/// Parses the value after `key:` or `-`, on the same line or below.
fn after_key(lines: &[Line<'_>], at: usize, indent: usize, rest: &str) -> Result<(Value, usize), Fault> {
    let number = lines[at].number;
    if !rest.is_empty() {
        return Ok((flow(rest, number)?, at + 1));
    }
    match lines.get(at + 1) {
        // A list may have the same indent as its key.
        Some(next) if next.indent > indent || (next.indent == indent && next.text.starts_with("- ")) => {
            block(lines, at + 1, next.indent)
        }
        _ => Ok((Value { line: number, kind: Content::Scalar(String::new()) }, at + 1)),
    }
}

fn list(lines: &[Line<'_>], at: usize, indent: usize) -> Result<(Value, usize), Fault> {
    let number = lines[at].number;
    let (mut items, mut at) = (Vec::new(), at);
    while let Some(line) = lines.get(at).filter(|line| line.indent == indent && line.text.starts_with('-')) {
        let rest = line.text[1..].trim_start();
        if split_key(rest).is_none() {
            let (value, next) = after_key(lines, at, indent, rest)?;
            items.push(value);
            at = next;
            continue;
        }
        // The first key follows the dash on the same line, as if the dash were blanks.
        let inner = indent + line.text.len() - rest.len();
        let mut own = vec![Line { number: line.number, indent: inner, text: rest }];
        let mut end = at + 1;
        while let Some(next) = lines.get(end).filter(|next| next.indent > indent) {
            own.push(Line { number: next.number, indent: next.indent, text: next.text });
            end += 1;
        }
        let (value, used) = block(&own, 0, inner)?;
        if let Some(line) = own.get(used) {
            return Err(Fault::new(line.number, "indented differently than what stands before it"));
        }
        items.push(value);
        at = end;
    }
    Ok((Value { line: number, kind: Content::List(items) }, at))
}

/// Splits `key: rest`. None: the text has no key.
fn split_key(text: &str) -> Option<(&str, &str)> {
    if text.starts_with(['[', '{', '"', '\'']) {
        return None;
    }
    let (key, rest) = text.split_once(':')?;
    (rest.is_empty() || rest.starts_with(' ')).then(|| (key.trim(), rest.trim()))
}

/// Parses a scalar, `[…]` or `{…}`. A host list like `n[1-4]` begins with a letter and is a scalar.
fn flow(text: &str, line: usize) -> Result<Value, Fault> {
    let text = text.trim();
    let open = || Fault::new(line, format!("`{text}` is not closed"));
    let kind = if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(open)?;
        Content::List(parts(inner).into_iter().map(|part| flow(part, line)).collect::<Result<_, _>>()?)
    } else if let Some(inner) = text.strip_prefix('{') {
        let inner = inner.strip_suffix('}').ok_or_else(open)?;
        let entry = |part: &str| {
            let (key, value) = part.split_once(':').ok_or_else(|| Fault::new(line, format!("`{part}` has no `:`")))?;
            Ok((key.trim().to_owned(), flow(value, line)?))
        };
        Content::Map(parts(inner).into_iter().map(entry).collect::<Result<_, Fault>>()?)
    } else {
        let quoted = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
        Content::Scalar(quoted.unwrap_or(text).to_owned())
    };
    Ok(Value { line, kind })
}

/// Splits text at commas outside brackets.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}
