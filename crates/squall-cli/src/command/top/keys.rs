//! Keys, from the bytes that a terminal sends for them. No I/O.

/// A key that a top knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyCode {
    Char(char),
    Enter,
    Esc,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
}

/// What the bytes so far have begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    /// `ESC`: the key Esc, or the first byte of a sequence.
    Escape,
    /// `ESC [` and a number, 0 before the first digit. The largest number: it is no key of a top.
    Sequence(u16),
    /// `ESC O`.
    Application,
    /// A text for a program, up to BEL or `ESC \`: an answer about colours, for example.
    Text,
    /// The next bytes belong to a sequence that is no key of a top.
    Skipped(u8),
    /// The first bytes of a character, and their number.
    Character([u8; 4], usize),
}

/// Makes keys of bytes: xterm's, those of Linux's console, and rxvt's. Skips every other sequence whole.
#[derive(Debug, Default)]
pub(super) struct Parser(Begun);

impl Parser {
    /// Returns whether a sequence has begun that the next bytes may continue.
    pub(super) fn waits(&self) -> bool {
        self.0 != Begun::Nothing
    }

    /// Ends what has begun, as nothing has followed: `ESC` alone is the key Esc.
    pub(super) fn end(&mut self, keys: &mut Vec<KeyCode>) {
        if std::mem::take(&mut self.0) == Begun::Escape {
            keys.push(KeyCode::Esc);
        }
    }

    /// Takes one byte.
    pub(super) fn push(&mut self, byte: u8, keys: &mut Vec<KeyCode>) {
        self.0 = match (self.0, byte) {
            (Begun::Escape, b'[') => Begun::Sequence(0),
            (Begun::Escape, b'O') => Begun::Application,
            (Begun::Escape, b']' | b'P' | b'X' | b'^' | b'_') => Begun::Text,
            // The end of a text.
            (Begun::Escape, b'\\') | (Begun::Text, 7) => Begun::Nothing,
            (Begun::Escape, _) => {
                keys.push(KeyCode::Esc);
                first(byte, keys)
            }
            // A function key of Linux's console; the mouse.
            (Begun::Sequence(0), b'[') => Begun::Skipped(1),
            (Begun::Sequence(0), b'M') => Begun::Skipped(3),
            (Begun::Sequence(number), b'0'..=b'9') => {
                Begun::Sequence(number.saturating_mul(10).saturating_add(u16::from(byte - b'0')))
            }
            // A second number says which other keys are held.
            (Begun::Sequence(_), b' '..=b'?') => Begun::Sequence(u16::MAX),
            (Begun::Sequence(number), b'@'..=b'~') => {
                keys.extend(sequence(number, byte));
                Begun::Nothing
            }
            (Begun::Application, b'@'..=b'~') => {
                keys.extend(sequence(0, byte));
                Begun::Nothing
            }
            (Begun::Skipped(count @ 2..), b' '..) => Begun::Skipped(count - 1),
            (Begun::Skipped(_), b' '..) => Begun::Nothing,
            (Begun::Text, byte) if ![INTERRUPT, ESCAPE].contains(&byte) => Begun::Text,
            (Begun::Character(mut bytes, count @ ..4), 0x80..=0xbf) => {
                bytes[count] = byte;
                character(bytes, count + 1, keys)
            }
            (_, byte) => first(byte, keys),
        };
    }
}

const INTERRUPT: u8 = 3;
const ESCAPE: u8 = 0x1b;

/// Takes a byte that continues nothing.
fn first(byte: u8, keys: &mut Vec<KeyCode>) -> Begun {
    let key = match byte {
        ESCAPE => return Begun::Escape,
        0x80.. => return character([byte, 0, 0, 0], 1, keys),
        INTERRUPT => KeyCode::Interrupt,
        b'\r' => KeyCode::Enter,
        8 | 0x7f => KeyCode::Backspace,
        b' '..=b'~' => KeyCode::Char(char::from(byte)),
        _ => return Begun::Nothing,
    };
    keys.push(key);
    Begun::Nothing
}

/// Takes a character if it is whole. Drops bytes that can't become one.
fn character(bytes: [u8; 4], count: usize, keys: &mut Vec<KeyCode>) -> Begun {
    match str::from_utf8(&bytes[..count]) {
        Ok(text) => keys.extend(text.chars().filter(|c| !c.is_control()).map(KeyCode::Char)),
        Err(error) if error.error_len().is_none() => return Begun::Character(bytes, count),
        Err(_) => {}
    }
    Begun::Nothing
}

/// Returns the key of a sequence with this number (0: without one) and last byte.
fn sequence(number: u16, last: u8) -> Option<KeyCode> {
    Some(match (number, last) {
        (0 | 1, b'A') => KeyCode::Up,
        (0 | 1, b'B') => KeyCode::Down,
        (0 | 1, b'H') | (1 | 7, b'~') => KeyCode::Home,
        (0 | 1, b'F') | (4 | 8, b'~') => KeyCode::End,
        (5, b'~') => KeyCode::PageUp,
        (6, b'~') => KeyCode::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::KeyCode::{Backspace, Char, Down, End, Enter, Esc, Home, Interrupt, PageDown, PageUp, Up};
    use super::{KeyCode, Parser};

    /// Returns the keys of bytes after which nothing follows.
    fn keys(bytes: &[u8]) -> Vec<KeyCode> {
        let (mut parser, mut keys) = (Parser::default(), Vec::new());
        for byte in bytes {
            parser.push(*byte, &mut keys);
        }
        parser.end(&mut keys);
        assert!(!parser.waits());
        keys
    }

    #[test]
    fn keys_of_usual_terminals() {
        let table: &[(&[u8], &[KeyCode])] = &[
            (b"q?", &[Char('q'), Char('?')]),
            (b"\r\x7f\x08\x03", &[Enter, Backspace, Backspace, Interrupt]),
            ("ü€🦀".as_bytes(), &[Char('ü'), Char('€'), Char('🦀')]),
            (b"\x1b", &[Esc]),
            (b"\x1b\x1b", &[Esc, Esc]),
            (b"\x1bq", &[Esc, Char('q')]),
            // xterm, without and with the application's keys.
            (b"\x1b[A\x1b[B\x1b[H\x1b[F", &[Up, Down, Home, End]),
            (b"\x1bOA\x1bOB\x1bOH\x1bOF", &[Up, Down, Home, End]),
            (b"\x1b[5~\x1b[6~", &[PageUp, PageDown]),
            // Linux's console; rxvt.
            (b"\x1b[1~\x1b[4~", &[Home, End]),
            (b"\x1b[7~\x1b[8~", &[Home, End]),
            // Keys that mean nothing: Tab, Ctrl-L, Left, F1, F5, Delete, Ctrl-Up, Shift-PgUp, F1 of Linux's console.
            (b"\t\x0cx", &[Char('x')]),
            (b"\x1b[Dx\x1bOPx\x1b[15~x\x1b[3~x", &[Char('x'); 4]),
            (b"\x1b[1;5Ax\x1b[5;2~x\x1b[[Ax", &[Char('x'); 3]),
            // The mouse, and what a terminal answers: colours, its name, the place of the cursor.
            (b"\x1b[M yyx\x1b[<0;3;4Mx", &[Char('x'); 2]),
            (b"\x1b]11;rgb:0000/1111/2222\x07x\x1bP>|yes\x1b\\x\x1b[?62;c\x1b[3;4Rx", &[Char('x'); 3]),
            // Bytes that are no character, and a control character behind ASCII's.
            (b"\xff\xc3x\xe2\x82x\xe0\x80x\xc2\x9bx", &[Char('x'); 4]),
            // Sequences that are cut.
            (b"\x1b[", &[]),
            (b"\x1b[5", &[]),
            (b"\x1b[5\x1b[6~", &[PageDown]),
            (b"\x1b[99999999999999999999~x", &[Char('x')]),
            (b"\x1b]never ends\x03", &[Interrupt]),
        ];
        for (bytes, wanted) in table {
            assert_eq!(keys(bytes), *wanted, "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_hold_the_parser(bytes in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(0x1b), Just(b'['), Just(b'O'), Just(b']'), Just(b';'), Just(b'5')
        ], 0..40)) {
            prop_assert!(keys(&bytes).len() <= bytes.len());
            // Whatever was before, these come through.
            let after = keys(&[&bytes, &b"\x03q"[..]].concat());
            prop_assert!(after.ends_with(&[Interrupt, Char('q')]), "{after:?}");
        }
    }
}
