//! Tables of sacct and similar commands: columns with default widths, in which longer texts end with `+`; or texts
//! separated by a delimiter.

use std::borrow::Cow;

use crate::format::harmless;

/// Maximum width of a column, in characters.
const WIDTH_MAX: usize = 65_536;

/// A column that can be chosen: name, title, width, and the function that returns a row's text.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Name by which users choose the column.
    pub name: &'static str,
    /// Title of the column.
    title: &'static str,
    /// Default width in characters; negative: left-aligned.
    pub width: i32,
    /// Function that returns the text for a row.
    pub get: fn(&R) -> String,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> Column<R> {
    /// Returns a column with its name as title.
    pub const fn new(name: &'static str, width: i32, get: fn(&R) -> String) -> Self {
        Self { name, title: name, width, get }
    }

    /// Returns a column with a title that differs from its name.
    pub const fn titled(name: &'static str, title: &'static str, width: i32, get: fn(&R) -> String) -> Self {
        Self { name, title, width, get }
    }
}

/// Format in which rows are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Style {
    /// As a table: texts are padded and cut to the column's width.
    Table,
    /// Texts separated by a delimiter, not padded or cut.
    Parsable {
        /// Text between two fields.
        delimiter: String,
        /// Whether the delimiter also follows the last field.
        ending: bool,
    },
}

/// The chosen columns, each with its width and whether it is left-aligned.
#[derive(Debug)]
pub struct Sheet<R: 'static> {
    chosen: Vec<(Column<R>, usize, bool)>,
    /// Title and width of further columns on the right; their texts are passed with each row.
    further: Vec<(String, usize)>,
}

impl<R> Sheet<R> {
    /// Parses a list of columns such as `jobid,state%20,jobname%-30`. Names may be abbreviated; `ALL` means every
    /// column. Error: the name or item that is not valid.
    pub fn parse(text: &str, columns: &[Column<R>]) -> Result<Self, String> {
        let mut chosen = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, width) = item.split_once('%').map_or((item, None), |(name, width)| (name, Some(width)));
            if name.eq_ignore_ascii_case("all") {
                chosen.extend(columns.iter().map(|c| (*c, c.width.unsigned_abs() as usize, c.width < 0)));
                continue;
            }
            let Some(column) = find(columns, name) else { return Err(name.to_owned()) };
            let width = match width {
                None => i64::from(column.width),
                Some(text) => text.parse().map_err(|_| item.to_owned())?,
            };
            let cells = usize::try_from(width.unsigned_abs()).unwrap_or(WIDTH_MAX).clamp(1, WIDTH_MAX);
            chosen.push((*column, cells, width < 0));
        }
        Ok(Self { chosen, further: Vec::new() })
    }

    /// Returns a sheet without columns.
    pub const fn empty() -> Self {
        Self { chosen: Vec::new(), further: Vec::new() }
    }

    /// Appends the columns of another sheet.
    pub fn append(&mut self, mut other: Self) {
        self.chosen.append(&mut other.chosen);
    }

    /// Returns whether the column `name` was chosen.
    pub fn has(&self, name: &str) -> bool {
        self.chosen.iter().any(|(column, ..)| column.name == name)
    }

    /// Adds further columns after the chosen ones, as (title, width).
    #[must_use]
    pub fn followed_by(mut self, further: Vec<(String, usize)>) -> Self {
        self.further = further;
        self
    }

    /// Makes the columns of this name at least `least` characters wide.
    pub fn widen(&mut self, name: &str, least: usize) {
        for (_, width, _) in self.chosen.iter_mut().filter(|(column, ..)| column.name == name) {
            *width = least.max(*width);
        }
    }

    /// Returns all lines: the titles if `header` is set, then one line for each row.
    pub fn lines(&self, header: bool, style: &Style, rows: &[R]) -> String {
        self.all_lines(header, style, rows, |_| &[])
    }

    /// Returns all lines: titles if `header` is set, then one line for each row. `further` returns a row's texts for
    /// the further columns.
    pub fn all_lines<'r>(
        &self,
        header: bool,
        style: &Style,
        rows: &'r [R],
        further: impl Fn(&'r R) -> &'r [String],
    ) -> String {
        let mut out = String::new();
        if header {
            let cut = |title: &str, width: usize| match style {
                Style::Table => title.chars().take(width).collect(),
                Style::Parsable { .. } => title.to_owned(),
            };
            let titles: Vec<String> = self.further.iter().map(|(title, width)| cut(title, *width)).collect();
            self.line(&mut out, style, |column, width| cut(column.title, width), &titles);
            if *style == Style::Table {
                let further = self.further.iter().map(|(_, width)| width);
                for width in self.chosen.iter().map(|(_, width, _)| width).chain(further) {
                    out.extend(std::iter::repeat_n('-', *width));
                    out.push(' ');
                }
                out.push('\n');
            }
        }
        for row in rows {
            self.line(&mut out, style, |column, _| (column.get)(row), further(row));
        }
        out
    }

    fn line(&self, out: &mut String, style: &Style, get: impl Fn(&Column<R>, usize) -> String, further: &[String]) {
        let chosen = self.chosen.iter().map(|(column, width, left)| (column.name, get(column, *width), *width, *left));
        let further = self.further.iter().zip(further).map(|((_, width), text)| ("", text.clone(), *width, false));
        let last = self.chosen.len() + self.further.len();
        for (at, (name, text, width, left)) in chosen.chain(further).enumerate() {
            // A submission's command line keeps its line breaks.
            let kept = |text: &str| text.split('\n').map(harmless).collect::<Vec<_>>().join("\n");
            let text = if name == "SubmitLine" { Cow::Owned(kept(&text)) } else { harmless(&text) };
            match style {
                Style::Table => {
                    cell(out, &text, width, left);
                    out.push(' ');
                }
                Style::Parsable { delimiter, ending } => {
                    out.push_str(&text);
                    if *ending || at + 1 < last {
                        out.push_str(delimiter);
                    }
                }
            }
        }
        out.push('\n');
    }
}

/// Returns the column that a name means: the one of that name, of its plural, or the first one that begins with it.
fn find<'a, R>(columns: &'a [Column<R>], name: &str) -> Option<&'a Column<R>> {
    let starts = |c: &&Column<R>| c.name.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
    let plural = |c: &&Column<R>| starts(c) && c.name.get(name.len()..) == Some("s");
    let named = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name));
    let abbreviated = || columns.iter().find(plural).or_else(|| columns.iter().find(starts));
    named.or_else(|| abbreviated().filter(|_| !name.is_empty()))
}

/// Appends a text padded to a width; a longer one is cut and ends with `+`.
fn cell(out: &mut String, text: &str, width: usize, left: bool) {
    let length = text.chars().count();
    if length > width {
        out.extend(text.chars().take(width - 1));
        out.push('+');
        return;
    }
    let blanks = std::iter::repeat_n(' ', width - length);
    if left {
        out.push_str(text);
        out.extend(blanks);
    } else {
        out.extend(blanks);
        out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::{Column, Sheet, Style};

    static COLUMNS: &[Column<u32>] =
        &[Column::new("JobID", -6, u32::to_string), Column::new("State", 10, |_| "CANCELLED by 1000".into())];

    fn seen(text: &str, style: &Style) -> String {
        Sheet::parse(text, COLUMNS).map_or_else(|bad| bad, |sheet| sheet.lines(true, style, &[42]))
    }

    #[test]
    fn tables_are_cut_and_parsable_ones_are_not() {
        assert_eq!(seen("jobid,state", &Style::Table), "JobID       State \n------ ---------- \n42     CANCELLED+ \n");
        assert_eq!(seen("sta%-4,job%3", &Style::Table), "Stat Job \n---- --- \nCAN+  42 \n");
        let style = |delimiter: &str, ending| Style::Parsable { delimiter: delimiter.into(), ending };
        assert_eq!(seen("jobid,state", &style("|", false)), "JobID|State\n42|CANCELLED by 1000\n");
        assert_eq!(
            seen("jobid,state", &style("\u{1f}", true)),
            "JobID\u{1f}State\u{1f}\n42\u{1f}CANCELLED by 1000\u{1f}\n"
        );
        assert_eq!(seen("nosuch", &Style::Table), "nosuch");
        assert_eq!(seen("all", &style("|", false)), seen("jobid,state", &style("|", false)));
    }

    proptest! {
        #[test]
        fn no_format_panics(text in any::<String>(), near in "(jobid|st|all|%-?[0-9]{0,9}|,| ){0,9}") {
            for text in [text, near] {
                if let Ok(sheet) = Sheet::parse(&text, COLUMNS) {
                    prop_assert!(sheet.lines(true, &Style::Table, &[1]).ends_with('\n'));
                }
            }
        }
    }
}
