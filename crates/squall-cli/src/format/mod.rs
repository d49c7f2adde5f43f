//! Listings: rows of a struct become columns, by one table of fields for each command.

pub(crate) mod clock;
pub(crate) mod job;
pub(crate) mod layout;
pub(crate) mod node;
pub(crate) mod path;
pub(crate) mod sheet;
pub(crate) mod when;
pub(crate) mod words;

use std::borrow::Cow;

/// Something that can be printed of a row: its names, its title, how to get it.
pub(crate) struct Field<R: 'static> {
    /// Long names, as in `-O`; the first is the one shown in lists.
    pub(crate) names: &'static [&'static str],
    /// The letter, as in `-o`; `\0`: it has none.
    pub(crate) letter: char,
    /// What stands over the column.
    pub(crate) title: &'static str,
    get: Get<R>,
    /// Never cut to the column's width.
    pub(crate) uncut: bool,
}

/// How to get the text of a row.
enum Get<R> {
    Make(fn(&R) -> String),
    /// Adds it to another one: for what is printed by the hundred thousand.
    Add(fn(&R, &mut String)),
}

impl<R> Field<R> {
    /// A field that is cut to its column's width.
    pub(crate) const fn new(
        names: &'static [&'static str],
        letter: char,
        title: &'static str,
        get: fn(&R) -> String,
    ) -> Self {
        Self { names, letter, title, get: Get::Make(get), uncut: false }
    }
    /// A field of long lists: `add` adds the text of a row.
    pub(crate) const fn quick(
        names: &'static [&'static str],
        letter: char,
        title: &'static str,
        add: fn(&R, &mut String),
    ) -> Self {
        Self { names, letter, title, get: Get::Add(add), uncut: false }
    }
    /// The same, printed whole whatever the width: node lists.
    pub(crate) const fn whole(self) -> Self {
        Self { uncut: true, ..self }
    }
    /// Adds the text of a row.
    pub(crate) fn add(&self, row: &R, text: &mut String) {
        match self.get {
            Get::Make(make) => text.push_str(&make(row)),
            Get::Add(add) => add(row, text),
        }
    }
    /// The text of a row.
    pub(crate) fn text(&self, row: &R) -> String {
        let mut text = String::new();
        self.add(row, &mut text);
        text
    }
}

/// The field of that long name, letter case aside.
pub(crate) fn by_name<R>(fields: &'static [Field<R>], name: &str) -> Option<&'static Field<R>> {
    fields.iter().find(|f| f.names.iter().any(|n| n.eq_ignore_ascii_case(name)))
}

/// The field of that letter.
pub(crate) fn by_letter<R>(fields: &'static [Field<R>], letter: char) -> Option<&'static Field<R>> {
    fields.iter().find(|f| f.letter == letter && letter != '\0')
}

/// Whether a text is made of ASCII letters, figures, signs and blanks, as nearly all are: one column for each byte.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// A text that stays on its line and leaves the terminal alone: names and comments are other people's words.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let harmful = |c: char| c.is_control() && c != '\t';
    if text.contains(harmful) { Cow::Owned(text.replace(harmful, "?")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(harmless("a name\twith ü"), "a name\twith ü");
        assert_eq!(harmless("x\n99 root R\u{1b}[2J\u{9b}2J"), "x?99 root R?[2J?2J");
    }
}
