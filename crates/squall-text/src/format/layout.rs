//! Output formats: parses `-o "%.18i %9P"` and `-O "jobid:12,state:|"`, and prints rows as lines of columns.

use std::borrow::Borrow;

use crate::format::{Field, by_letter, by_name, colour, harmless, is_plain};

/// Bytes of output that are collected before they are passed on.
const PORTION_BYTES: usize = 64 << 10;

/// Width of a column of `-O` for which none is given, in characters.
const LONG_WIDTH: usize = 20;
/// Maximum width of a column, in characters.
const WIDTH_MAX: usize = 65_536;

/// A parsed output format: columns, and texts between them.
#[derive(Debug)]
pub struct Layout<R: 'static> {
    parts: Vec<Part<R>>,
    /// Names or letters of unknown fields, as given.
    pub unknown: Vec<String>,
    /// Whether states have colours.
    pub coloured: bool,
}

#[derive(Debug)]
enum Part<R: 'static> {
    Text(String),
    Column(Column<R>),
}

#[derive(Debug)]
struct Column<R: 'static> {
    field: &'static Field<R>,
    width: Width,
    right: bool,
    suffix: String,
}

#[derive(Clone, Copy, Debug)]
enum Width {
    /// No padding: each text has its own width.
    Natural,
    /// Texts are padded and cut to this many characters.
    Cells(usize),
    /// As wide as the widest text in the column.
    Widest,
}

impl<R> Layout<R> {
    /// Parses the format of `-o`: `%[[.]size]letter`, with any text in between. The size `#` means the width of the
    /// widest text. `%all` means every field that has a letter.
    pub fn short(text: &str, fields: &'static [Field<R>]) -> Self {
        let mut layout = Self { parts: Vec::new(), unknown: Vec::new(), coloured: false };
        if text == "%all" {
            for field in fields.iter().filter(|f| f.letter != '\0') {
                layout.parts.push(Part::Column(Column {
                    field,
                    width: Width::Natural,
                    right: false,
                    suffix: "|".to_owned(),
                }));
            }
            if let Some(Part::Column(last)) = layout.parts.last_mut() {
                last.suffix.clear();
            }
            return layout;
        }
        let mut rest = text.chars().peekable();
        let mut literal = String::new();
        while let Some(c) = rest.next() {
            if c != '%' {
                literal.push(c);
                continue;
            }
            let mut spec = String::new();
            let right = rest.next_if_eq(&'.').is_some();
            let fit = rest.next_if_eq(&'#').is_some();
            let right = right || rest.next_if_eq(&'.').is_some();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                spec.push(digit);
            }
            let Some(letter) = rest.next() else { break };
            match by_letter(fields, letter) {
                Some(field) => {
                    layout.text(&mut literal);
                    let width = if fit { Width::Widest } else { cells(&spec) };
                    layout.parts.push(Part::Column(Column { field, width, right, suffix: String::new() }));
                }
                None if letter == '%' => literal.push('%'),
                None => {
                    layout.unknown.push(letter.to_string());
                    literal.push('%');
                    literal.push(letter);
                }
            }
        }
        layout.text(&mut literal);
        layout
    }

    /// Parses the format of `-O`: `name[:[.][size][suffix]]`, separated by commas. With a colon but no size, texts have
    /// their own width.
    pub fn long(text: &str, fields: &'static [Field<R>]) -> Self {
        let mut layout = Self { parts: Vec::new(), unknown: Vec::new(), coloured: false };
        for item in text.split(',').filter(|item| !item.trim_matches(' ').is_empty()) {
            let (name, spec) = item.split_once(':').map_or((item, None), |(name, spec)| (name, Some(spec)));
            let name = name.trim();
            let Some(field) = by_name(fields, name) else {
                layout.unknown.push(name.to_owned());
                continue;
            };
            let (width, right, suffix) = match spec {
                None => (Width::Cells(LONG_WIDTH), false, ""),
                Some(spec) => {
                    let (right, spec) = spec.strip_prefix('.').map_or((false, spec), |spec| (true, spec));
                    let digits = spec.bytes().take_while(u8::is_ascii_digit).count();
                    (cells(&spec[..digits]), right, &spec[digits..])
                }
            };
            layout.parts.push(Part::Column(Column { field, width, right, suffix: suffix.to_owned() }));
        }
        layout
    }

    fn text(&mut self, literal: &mut String) {
        if !literal.is_empty() {
            self.parts.push(Part::Text(std::mem::take(literal)));
        }
    }

    /// Returns the fields of all columns.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field<R>> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Column(column) => Some(column.field),
            Part::Text(_) => None,
        })
    }

    /// Returns all lines: the titles if `header` is set, then one line for each row.
    pub fn lines(&self, header: bool, rows: &[R]) -> String {
        let mut out = String::new();
        self.write(header, rows, rows, &mut |text| out.push_str(text));
        out
    }

    /// Writes the lines of [`Self::lines`] to `sink` in portions. Columns as wide as their widest text get the width
    /// for the rows `fit`.
    pub fn write(
        &self,
        header: bool,
        fit: &[R],
        rows: impl IntoIterator<Item = impl Borrow<R>>,
        sink: &mut dyn FnMut(&str),
    ) {
        let widths = self.widths(fit);
        let (mut out, mut text) = (String::with_capacity(2 * PORTION_BYTES), String::new());
        if header {
            self.line(&mut out, &mut text, &widths, |field, text| text.push_str(field.title));
        }
        for row in rows {
            self.line(&mut out, &mut text, &widths, |field, text| field.add(row.borrow(), text));
            if out.len() >= PORTION_BYTES {
                sink(&out);
                out.clear();
            }
        }
        sink(&out);
    }

    fn widths(&self, rows: &[R]) -> Vec<Option<usize>> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Text(_) | Part::Column(Column { width: Width::Natural, .. }) => None,
                Part::Column(Column { width: Width::Cells(n), .. }) => Some(*n),
                Part::Column(Column { width: Width::Widest, field, .. }) => {
                    let widest = rows.iter().map(|row| field.text(row).chars().count()).max().unwrap_or(0);
                    Some(widest.max(field.title.chars().count()))
                }
            })
            .collect()
    }

    /// Appends a line to `out`; `text` is a buffer for one column at a time.
    fn line(
        &self,
        out: &mut String,
        text: &mut String,
        widths: &[Option<usize>],
        add: impl Fn(&Field<R>, &mut String),
    ) {
        for (part, width) in self.parts.iter().zip(widths) {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Column(column) => {
                    text.clear();
                    add(column.field, text);
                    let (right, uncut) = (column.right, column.field.uncut);
                    let colour = if self.coloured && column.field.state { colour::of_state(text) } else { None };
                    out.push_str(colour.unwrap_or_default());
                    if is_plain(text) {
                        let end = width.filter(|width| !uncut && *width < text.len()).unwrap_or(text.len());
                        padded(out, &text[..end], width.map_or(0, |width| width.saturating_sub(text.len())), right);
                    } else {
                        cell(out, &harmless(text), *width, right, uncut);
                    }
                    out.push_str(colour.map_or("", |_| colour::END));
                    out.push_str(&column.suffix);
                }
            }
        }
        out.push('\n');
    }
}

fn cells(digits: &str) -> Width {
    match digits.parse::<usize>() {
        Ok(n) if n > 0 => Width::Cells(n.min(WIDTH_MAX)),
        Ok(_) => Width::Natural,
        Err(_) if digits.is_empty() => Width::Natural,
        Err(_) => Width::Cells(WIDTH_MAX),
    }
}

/// Appends a text padded to a width, and cut to it unless `uncut` is set.
fn cell(out: &mut String, text: &str, width: Option<usize>, right: bool, uncut: bool) {
    let Some(width) = width else {
        out.push_str(text);
        return;
    };
    let blanks = width.saturating_sub(text.chars().count());
    let cut = text.char_indices().nth(width).filter(|_| !uncut);
    padded(out, cut.map_or(text, |(end, _)| &text[..end]), blanks, right);
}

/// Appends a text with blanks on its left (`right` aligned) or on its right.
fn padded(out: &mut String, text: &str, blanks: usize, right: bool) {
    if right {
        fill(out, blanks);
    }
    out.push_str(text);
    if !right {
        fill(out, blanks);
    }
}

/// Appends blanks, up to 32 at a time, because long listings consist largely of blanks.
fn fill(out: &mut String, mut blanks: usize) {
    const SOME: &str = "                                ";
    while blanks > 0 {
        let some = blanks.min(SOME.len());
        out.push_str(&SOME[..some]);
        blanks -= some;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::Layout;
    use crate::format::Field;

    static FIELDS: &[Field<(u32, &'static str)>] = &[
        Field::new(&["JobId"], 'i', "JOBID", |r| r.0.to_string()),
        Field::new(&["Name"], 'j', "NAME", |r| r.1.to_owned()),
        Field::new(&["NodeList"], 'N', "NODELIST", |r: &(u32, &str)| r.1.to_owned()).whole(),
    ];

    fn short(text: &str) -> String {
        Layout::short(text, FIELDS).lines(true, &[(7, "a long name")])
    }

    fn long(text: &str) -> String {
        Layout::long(text, FIELDS).lines(true, &[(7, "a long name")])
    }

    #[test]
    fn letters() {
        assert_eq!(short("%.6i %4j|"), " JOBID NAME|\n     7 a lo|\n");
        assert_eq!(short("%i,%j"), "JOBID,NAME\n7,a long name\n");
        assert_eq!(short("%2N%%"), "NODELIST%\na long name%\n");
        assert_eq!(short("\u{1e}%i\u{1f}%j"), "\u{1e}JOBID\u{1f}NAME\n\u{1e}7\u{1f}a long name\n");
        assert_eq!(short("%#j|"), "NAME       |\na long name|\n");
        let bad = Layout::short("%?%i", FIELDS);
        assert_eq!(bad.unknown, ["?"]);
    }

    #[test]
    fn names() {
        assert_eq!(
            long("jobid,NAME"),
            "JOBID               NAME                \n7                   a long name         \n"
        );
        assert_eq!(long("jobid:.6,name:4"), " JOBIDNAME\n     7a lo\n");
        assert_eq!(long("jobid:|,name:\u{1f}"), "JOBID|NAME\u{1f}\n7|a long name\u{1f}\n");
        assert_eq!(long("jobid:3|x"), "JOB|x\n7  |x\n");
        assert_eq!(Layout::long("nosuch,jobid", FIELDS).unknown, ["nosuch"]);
    }

    #[test]
    fn states_are_coloured_in_full_width_where_that_is_wanted() {
        static STATES: &[Field<&str>] = &[
            Field::new(&["State"], 't', "ST", |row: &&str| (*row).to_owned()).state(),
            Field::new(&["Name"], 'j', "NAME", |row: &&str| (*row).to_owned()),
        ];
        let mut layout = Layout::short("%.4t %j", STATES);
        let plain = "  ST NAME\n   R R\nfail fail\n   ? ?\n";
        assert_eq!(layout.lines(true, &["R", "fail", "?"]), plain);
        layout.coloured = true;
        let coloured = "  ST NAME\n\u{1b}[32m   R\u{1b}[0m R\n\u{1b}[31mfail\u{1b}[0m fail\n   ? ?\n";
        assert_eq!(layout.lines(true, &["R", "fail", "?"]), coloured);
    }

    proptest! {
        #[test]
        fn no_format_panics(text in any::<String>(), near in "(%[.#0-9]{0,8}[a-zA-Z]?|[ ,:|]|jobid|name){0,12}") {
            for text in [text, near] {
                prop_assert!(Layout::short(&text, FIELDS).lines(true, &[(1, "é")]).ends_with('\n'));
                prop_assert!(Layout::long(&text, FIELDS).lines(true, &[(1, "é")]).ends_with('\n'));
            }
        }
    }
}
