//! Operating system errors as texts for users.

/// Removes the error numbers that Rust adds: `No such file or directory (os error 2)` becomes `No such file or
/// directory`.
pub fn plain(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut parts = text.split(BEGIN);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => plain.push_str(rest),
            _ => plain.extend([BEGIN, part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::plain;

    // faults.md C, D10
    #[test]
    fn d10_errors_of_the_system_have_no_numbers() {
        let error = std::io::Error::from_raw_os_error(21);
        assert_eq!(plain(&format!("Unable to read x: {error}\nnext: {error}; so")), {
            "Unable to read x: Is a directory\nnext: Is a directory; so"
        });
        assert_eq!(plain("a (os error x) b (os error 2"), "a (os error x) b (os error 2");
    }
}
