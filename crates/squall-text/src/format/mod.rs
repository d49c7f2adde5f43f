//! Listings: rows of a struct are printed as columns, by one table of fields for each command.

pub mod accounting;
pub mod clock;
pub mod colour;
pub mod counters;
pub mod event;
pub mod job;
pub mod layout;
pub mod node;
pub mod path;
pub mod sheet;
pub mod when;
pub mod why;
pub mod words;

use std::borrow::Cow;

/// A field of a row that can be printed: its names, its title, and the function that returns its text.
#[derive(Debug)]
pub struct Field<R: 'static> {
    /// Long names, as in `-O`; the first is shown in lists of fields.
    pub names: &'static [&'static str],
    /// Letter of the field in `-o`; `\0`: none.
    pub letter: char,
    /// The column's title.
    pub title: &'static str,
    get: Get<R>,
    /// Whether texts are never cut to the column's width.
    pub uncut: bool,
    /// Whether texts are states, which have colours on a terminal.
    pub state: bool,
}

/// Function that returns the text of a field for a row.
#[derive(Debug)]
enum Get<R> {
    Make(fn(&R) -> String),
    /// Function that appends the text to an existing one, which is faster for fields of very long lists.
    Add(fn(&R, &mut String)),
}

impl<R> Field<R> {
    /// Describes a field with texts that are cut to the column's width.
    pub const fn new(names: &'static [&'static str], letter: char, title: &'static str, get: fn(&R) -> String) -> Self {
        Self { names, letter, title, get: Get::Make(get), uncut: false, state: false }
    }
    /// Describes a column that is printed fast, for listings of many rows: `add` appends the text of a row to the output.
    pub const fn quick(
        names: &'static [&'static str],
        letter: char,
        title: &'static str,
        add: fn(&R, &mut String),
    ) -> Self {
        Self { names, letter, title, get: Get::Add(add), uncut: false, state: false }
    }
    /// Makes the field's texts, such as node lists, never cut to the column's width.
    #[must_use]
    pub const fn whole(self) -> Self {
        Self { uncut: true, ..self }
    }
    /// Makes the field's texts states, which have colours on a terminal.
    #[must_use]
    pub const fn state(self) -> Self {
        Self { state: true, ..self }
    }
    /// Appends the text of a row.
    pub fn add(&self, row: &R, text: &mut String) {
        match self.get {
            Get::Make(make) => text.push_str(&make(row)),
            Get::Add(add) => add(row, text),
        }
    }
    /// Returns the text of a row.
    pub fn text(&self, row: &R) -> String {
        let mut text = String::new();
        self.add(row, &mut text);
        text
    }
}

/// Finds the field with this long name, ignoring case.
pub fn by_name<R>(fields: &'static [Field<R>], name: &str) -> Option<&'static Field<R>> {
    fields.iter().find(|f| f.names.iter().any(|n| n.eq_ignore_ascii_case(name)))
}

/// Finds the field with this letter.
pub fn by_letter<R>(fields: &'static [Field<R>], letter: char) -> Option<&'static Field<R>> {
    fields.iter().find(|f| f.letter == letter && letter != '\0')
}

/// Returns whether a text consists of printable ASCII characters only, so that each byte takes one column.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Replaces control characters by `?`: names and comments may come from other users, and control characters in them
/// could break the line or control the terminal.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let harmful = |c: char| c.is_control() && c != '\t';
    if text.contains(harmful) { Cow::Owned(text.replace(harmful, "?")) } else { Cow::Borrowed(text) }
}

/// Does the same with a message of several lines, which may quote a file or what another process has said.
pub fn harmless_lines(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\t' && c != '\n';
    if text.contains(harmful) { Cow::Owned(text.replace(harmful, "?")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::{harmless, harmless_lines};

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(harmless("a name\twith ü"), "a name\twith ü");
        assert_eq!(harmless("x\n99 root R\u{1b}[2J\u{9b}2J"), "x?99 root R?[2J?2J");
        assert_eq!(harmless_lines("one\n\ttwo ü\u{1b}[2J\r\0"), "one\n\ttwo ü?[2J??");
    }
}
