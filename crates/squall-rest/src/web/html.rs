//! HTML in the making: constants as they are, and values, which are always escaped.

use std::fmt::{self, Display, Write};

/// A piece of HTML. Only constants of the program get into it as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends a constant.
    pub(crate) fn raw(&mut self, constant: &'static str) -> &mut Self {
        self.0.push_str(constant);
        self
    }

    /// Appends a constant in which each `{}` stands for one of the values, which are escaped for text and attributes.
    pub(crate) fn put(&mut self, form: &'static str, values: &[&dyn Display]) -> &mut Self {
        debug_assert_eq!(form.matches("{}").count(), values.len(), "{form}");
        let mut constants = form.split("{}");
        self.0.push_str(constants.next().unwrap_or_default());
        for (constant, value) in constants.zip(values) {
            // Writing to a String can't fail.
            let _ = write!(Escaping(&mut self.0), "{value}");
            self.0.push_str(constant);
        }
        self
    }

    /// Appends another piece.
    pub(crate) fn add(&mut self, piece: &Self) -> &mut Self {
        self.0.push_str(&piece.0);
        self
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes what is written through it. Characters that would turn the direction of the text around them, and control
/// characters, become a replacement character.
struct Escaping<'a>(&'a mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    self.0.push('\u{fffd}');
                }
                c if c.is_control() => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// Begins a card with a title.
pub(crate) fn card(body: &mut Html, id: &'static str, title: &str) {
    body.put(
        "<section class=\"card\" id=\"{}\" aria-labelledby=\"{}-h\"><h2 id=\"{}-h\">{}</h2>",
        &[&id, &id, &id, &title],
    );
}

/// Appends a fact to a list of facts, unless it is empty.
pub(crate) fn fact(body: &mut Html, name: &str, value: &str) {
    if !value.is_empty() {
        body.put("<div><dt>{}</dt><dd>{}</dd></div>", &[&name, &value]);
    }
}

/// Appends links to other pages of a list.
pub(crate) fn pager(body: &mut Html, all: usize, rows: usize, page: usize, link: &dyn Fn(usize) -> String) {
    let pages = all.div_ceil(rows);
    if pages < 2 {
        return;
    }
    // The address may name any page.
    let page = page.min(pages);
    body.raw("<nav class=\"pager\" aria-label=\"Pages of the list\">");
    if page > 0 {
        body.put("<a href=\"{}\" rel=\"prev\">← Previous</a>", &[&link(page - 1)]);
    }
    body.put("<span>Page {} of {}</span>", &[&(page + 1), &pages]);
    if page + 1 < pages {
        body.put("<a href=\"{}\" rel=\"next\">Next →</a>", &[&link(page + 1)]);
    }
    body.raw("</nav>");
}

/// Returns a path with these parameters; those without a value are left out.
pub(crate) fn link(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    for (at, (name, value)) in parameters.iter().filter(|(_, value)| !value.is_empty()).enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        text.push_str(&encoded(value));
    }
    text
}

/// Returns a text as a part of a URL.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => {
                // Writing to a String can't fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Html, link};

    #[test]
    fn values_can_not_leave_their_place() {
        let mut html = Html::new();
        html.put("<a title=\"{}\">{}</a>", &[&"\" onclick='x'", &"<script>&\u{7}\u{202e}\n{}"]);
        let seen = "<a title=\"&quot; onclick=&#39;x&#39;\">&lt;script&gt;&amp;\u{fffd}\u{fffd}\n{}</a>";
        assert_eq!(html.as_str(), seen);
    }

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(
            link("/jobs", &[("user", "a&b=ü"), ("state", ""), ("page", "2")]),
            "/jobs?user=a%26b%3D%C3%BC&page=2"
        );
    }
}
