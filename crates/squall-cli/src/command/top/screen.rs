//! A screen of cells, and what a terminal is sent to show it. No I/O.

use std::fmt::Write;

use squall_text::format::colour;
use unicode_width::UnicodeWidthChar;

/// How a text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// What begins the colour.
    pub(super) colour: Option<&'static str>,
    pub(super) bold: bool,
    pub(super) reversed: bool,
}

impl Style {
    pub(super) const PLAIN: Self = Self { colour: None, bold: false, reversed: false };
    pub(super) const BOLD: Self = Self { bold: true, ..Self::PLAIN };

    /// Returns the plain style in this colour of `squall_text::format::colour`.
    pub(super) const fn coloured(colour: &'static str) -> Self {
        Self { colour: Some(colour), ..Self::PLAIN }
    }
}

/// Stands in the cells that a wide character takes behind its first.
const BEHIND: char = '\0';

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    symbol: char,
    /// Characters without a width that belong to the symbol: accents, for example.
    marks: String,
    style: Style,
}

impl Cell {
    const BLANK: Self = Self::new(' ', Style::PLAIN);

    const fn new(symbol: char, style: Style) -> Self {
        Self { symbol, marks: String::new(), style }
    }
}

/// What a terminal shows, or is to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    width: usize,
    rows: Vec<Vec<Cell>>,
}

impl Screen {
    /// Makes a blank screen.
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, rows: vec![vec![Cell::BLANK; width]; height] }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Writes a text, cut at the right end. Returns the column behind it.
    pub(super) fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        let Some(row) = self.rows.get_mut(y).filter(|_| x < self.width) else { return x };
        if row[x].symbol == BEHIND {
            row[x - 1] = Cell::BLANK;
        }
        let (mut end, mut last) = (x, None);
        for c in text.chars() {
            let columns = columns(c);
            if end + columns > self.width {
                break;
            }
            if columns == 0 {
                if let Some(at) = last {
                    let cell: &mut Cell = &mut row[at];
                    cell.marks.push(c);
                }
                continue;
            }
            // Names and comments may come from other users: what they hold does not control the terminal.
            let symbol = match c {
                '\t' => ' ',
                c if c.is_control() => '?',
                c => c,
            };
            row[end] = Cell::new(symbol, style);
            row[end + 1..end + columns].fill(Cell::new(BEHIND, style));
            last = Some(end);
            end += columns;
        }
        if let Some(cell) = row.get_mut(end).filter(|cell| cell.symbol == BEHIND) {
            *cell = Cell::BLANK;
        }
        end
    }

    /// Returns a line as text, with the blanks at its end.
    pub(super) fn line(&self, y: usize) -> String {
        let mut line = String::with_capacity(self.width);
        for cell in self.rows[y].iter().filter(|cell| cell.symbol != BEHIND) {
            line.push(cell.symbol);
            line.push_str(&cell.marks);
        }
        line
    }

    /// Returns what to send to a terminal that shows `before`, so that it shows this screen. None: it shows anything.
    pub(super) fn changes(&self, before: Option<&Self>, coloured: bool) -> String {
        let before = before.filter(|before| (before.width, before.rows.len()) == (self.width, self.rows.len()));
        let mut sent = String::new();
        if before.is_none() {
            sent.push_str(colour::END);
            sent.push_str("\u{1b}[2J");
        }
        for (y, row) in self.rows.iter().enumerate() {
            if before.is_none_or(|before| before.rows[y] != *row) {
                let _ = write!(sent, "\u{1b}[{};1H", y + 1);
                send(row, coloured, &mut sent);
            }
        }
        sent
    }
}

/// Adds what shows a line to what is sent. The cursor is at its begin.
fn send(row: &[Cell], coloured: bool, sent: &mut String) {
    let used = row.iter().rposition(|cell| *cell != Cell::BLANK).map_or(0, |last| last + 1);
    let mut style = Style::PLAIN;
    for (x, cell) in row[..used].iter().enumerate().filter(|(_, cell)| cell.symbol != BEHIND) {
        let wanted = Style { colour: cell.style.colour.filter(|_| coloured), ..cell.style };
        if wanted != style {
            style = wanted;
            sent.push_str(colour::END);
            sent.push_str(if style.bold { "\u{1b}[1m" } else { "" });
            sent.push_str(if style.reversed { "\u{1b}[7m" } else { "" });
            sent.push_str(style.colour.unwrap_or_default());
        }
        sent.push(cell.symbol);
        sent.push_str(&cell.marks);
        if !cell.symbol.is_ascii() || !cell.marks.is_empty() {
            // The terminal may give it another width.
            let _ = write!(sent, "\u{1b}[{}G", x + columns(cell.symbol) + 1);
        }
    }
    if style != Style::PLAIN {
        sent.push_str(colour::END);
    }
    // Behind the last column it would erase that.
    if used < row.len() {
        sent.push_str("\u{1b}[K");
    }
}

/// Returns how many columns of a screen a character takes.
fn columns(c: char) -> usize {
    match c {
        // Voiced sound marks of half width: no accents on a terminal.
        '\u{ff9e}' | '\u{ff9f}' => 1,
        c => c.width().unwrap_or(1),
    }
}

/// Returns how many columns of a screen a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Cuts a text to a number of columns of the screen.
pub(super) fn cut(text: &str, width: usize) -> &str {
    let mut used = 0;
    let cut = text.char_indices().find(|(_, c)| {
        used += columns(*c);
        used > width
    });
    cut.map_or(text, |(at, _)| &text[..at])
}

/// Breaks a line of text between words into lines of at most this many columns. Breaks longer words.
pub(super) fn wrap(line: &str, width: usize) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), line);
    while lines.is_empty() || !rest.is_empty() {
        let fits = cut(rest, width);
        let next = rest[fits.len()..].chars().next();
        if fits.is_empty()
            && let Some(wide) = next
        {
            rest = &rest[wide.len_utf8()..];
            continue;
        }
        let blank = fits.rfind(' ').filter(|at| next.is_some_and(|c| c != ' ') && !fits[..*at].trim_start().is_empty());
        let end = blank.unwrap_or(fits.len());
        lines.push(if next.is_none() { fits } else { fits[..end].trim_end_matches(' ') });
        rest = if next.is_none() { "" } else { rest[end..].trim_start_matches(' ') };
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use squall_text::format::colour::{END, RED};

    use super::{Screen, Style, cut, width, wrap};

    const REVERSED: Style = Style { reversed: true, ..Style::PLAIN };

    #[test]
    fn texts_are_cut_at_the_right_end() {
        let mut screen = Screen::new(6, 1);
        let mut put = |x, text| (screen.put(x, 0, text, Style::PLAIN), screen.line(0));
        assert_eq!(put(0, "abc"), (3, "abc   ".into()));
        assert_eq!(put(4, "defg"), (6, "abc de".into()));
        assert_eq!(put(7, "x"), (7, "abc de".into()));
        // A wide character takes two columns or none.
        assert_eq!(put(0, "日本"), (4, "日本de".into()));
        assert_eq!(put(3, "語語"), (5, "日 語e".into()));
        assert_eq!(put(5, "語"), (5, "日 語e".into()));
        assert_eq!(put(0, "x"), (1, "x  語e".into()));
        // Accents take none; without a letter they are left out.
        assert_eq!(put(0, "\u{301}e\u{301}a"), (2, "e\u{301}a 語e".into()));
        assert_eq!(put(0, "a\tb\u{1b}[2"), (6, "a b?[2".into()));
        assert_eq!(screen.put(0, 1, "below", Style::PLAIN), 0);
        assert_eq!(
            (width("日e\u{301}ﾊﾞ"), cut("日本", 3), cut("abc", 3), cut("e\u{301}a", 1)),
            (5, "日", "abc", "e\u{301}")
        );
    }

    #[test]
    fn lines_are_wrapped_by_words() {
        let wrapped = |line, width| wrap(line, width).join("|");
        assert_eq!(wrapped("", 5), "");
        assert_eq!(wrapped("hello", 5), "hello");
        assert_eq!(wrapped("hello world", 5), "hello|world");
        assert_eq!(wrapped("hello   world ", 7), "hello|world ");
        assert_eq!(wrapped("a long-word b", 4), "a|long|-wor|d b");
        assert_eq!(wrapped("   in front", 5), "   in|front");
        assert_eq!(wrapped("      ", 4), "");
        assert_eq!(wrapped("日本語", 5), "日本|語");
        assert_eq!(wrapped("a日b", 1), "a|b");
        assert_eq!(wrapped("ab", 0), "");
    }

    #[test]
    fn only_changed_lines_are_sent() {
        let mut first = Screen::new(5, 3);
        first.put(0, 0, "one", Style::BOLD);
        first.put(0, 1, "日x", Style::coloured(RED));
        first.put(0, 2, "full ", REVERSED);
        assert_eq!(
            first.changes(None, true),
            format!(
                "{END}\u{1b}[2J\u{1b}[1;1H{END}\u{1b}[1mone{END}\u{1b}[K\u{1b}[2;1H{END}{RED}日\u{1b}[3Gx{END}\u{1b}[K\
                 \u{1b}[3;1H{END}\u{1b}[7mfull {END}"
            )
        );
        assert!(!first.changes(None, false).contains(RED));
        let mut next = first.clone();
        assert_eq!(next.changes(Some(&first), true), "");
        next.put(4, 0, "!", Style::PLAIN);
        assert_eq!(next.changes(Some(&first), true), format!("\u{1b}[1;1H{END}\u{1b}[1mone{END} !"));
        assert!(Screen::new(5, 2).changes(Some(&first), true).contains("\u{1b}[2J"));
    }

    /// Shows on a screen what is sent to a terminal, and returns its lines.
    fn shown(mut screen: Screen, sent: &str) -> Screen {
        let (mut x, mut y, mut style) = (0, 0, Style::PLAIN);
        let mut rest = sent;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c != '\u{1b}' {
                x = if super::columns(c) > 0 { screen.put(x, y, &c.to_string(), style) } else { x };
                continue;
            }
            let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            let (number, what) = (&rest[1..end], &rest[end..=end]);
            rest = &rest[end + 1..];
            match (number, what) {
                ("0", "m") => style = Style::PLAIN,
                ("1", "m") => style.bold = true,
                ("7", "m") => style.reversed = true,
                (_, "m") => style.colour = Some(RED),
                ("2", "J") => screen = Screen::new(screen.width, screen.rows.len()),
                ("", "K") => screen.rows[y][x..].fill(super::Cell::BLANK),
                (number, "G") => x = number.parse::<usize>().unwrap() - 1,
                (number, "H") => (x, y) = (0, number.trim_end_matches(";1").parse::<usize>().unwrap() - 1),
                other => panic!("{other:?}"),
            }
        }
        screen
    }

    proptest! {
        #[test]
        fn a_terminal_shows_what_is_sent(puts in prop::collection::vec(
            (0_usize..9, 0_usize..3, "[ ab日本é]{0,9}", any::<[bool; 3]>(), any::<bool>()), 0..12
        )) {
            let (mut screen, mut terminal, mut before) = (Screen::new(8, 3), Screen::new(8, 3), None);
            for (x, y, text, [bold, reversed, red], show) in puts {
                screen.put(x, y, &text, Style { bold, reversed, colour: red.then_some(RED) });
                if show {
                    terminal = shown(terminal, &screen.changes(before.as_ref(), true));
                    prop_assert_eq!(&terminal, &screen);
                    before = Some(screen.clone());
                }
            }
        }

        #[test]
        fn wrapped_lines_fit_and_keep_each_word(line in "[ ab日\u{301}]{0,30}", room in 2_usize..9) {
            let lines = wrap(&line, room);
            prop_assert!(lines.iter().all(|line| width(line) <= room), "{lines:?}");
            prop_assert_eq!(lines.concat().replace(' ', ""), line.replace(' ', ""));
        }
    }
}
