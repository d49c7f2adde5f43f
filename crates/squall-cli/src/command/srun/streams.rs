//! `--input`, `--output`, `--error`: whether a stream goes through srun, is opened on the nodes, or is a file that srun
//! opens.

use squall_model::step::Stream;

/// Source or destination of one standard stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Source or destination to which the step daemons connect the tasks' stream.
    pub(crate) stream: Stream,
    /// Pattern of the name of the file that srun itself reads or writes. None: srun's own stream is used.
    pub(crate) file: Option<String>,
}

impl Route {
    fn node(stream: Stream) -> Self {
        Self { stream, file: None }
    }

    /// Parses an option's value: `all`, `none`, a rank or a file.
    pub(crate) fn of(text: Option<&str>) -> Self {
        let text = text.unwrap_or("all");
        if text == "-" || text.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("all")) {
            return Self::node(Stream::Client);
        }
        if text.eq_ignore_ascii_case("none") || text == "/dev/null" {
            return Self::node(Stream::Null);
        }
        if let Ok(rank) = text.parse() {
            return Self::node(Stream::ClientRank(rank));
        }
        if of_tasks(text) {
            return Self::node(Stream::File(text.to_owned()));
        }
        Self { stream: Stream::Client, file: Some(text.to_owned()) }
    }

    /// Returns the destination of standard error. Without a value (`text` None) it is that of standard output, unless
    /// that is srun's own stream.
    pub(crate) fn of_error(text: Option<&str>, output: &Self) -> Self {
        match text {
            Some(text) => {
                let own = Self::of(Some(text));
                if own == *output && (own.file.is_some() || matches!(own.stream, Stream::File(_))) {
                    return Self::joined(output);
                }
                own
            }
            None if output.file.is_some() || output.stream != Stream::Client => Self::joined(output),
            None => Self::node(Stream::Client),
        }
    }

    fn joined(output: &Self) -> Self {
        match &output.stream {
            Stream::File(_) => Self::node(Stream::Joined),
            _ => output.clone(),
        }
    }
}

/// Returns whether a pattern names a separate file for each task or node.
fn of_tasks(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            let code = chars.by_ref().find(|c| !c.is_ascii_digit());
            if matches!(code, Some('t' | 'n' | 'N')) {
                return true;
            }
        }
    }
    false
}

/// Values that replace `%` and a letter in a pattern of a file name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// `%j`: job id.
    pub(crate) job: u32,
    /// `%s`: step number.
    pub(crate) step: u32,
    /// `%A`: the array's job id, or the job id outside arrays.
    pub(crate) array: u32,
    /// `%a`: index of the array task; 4294967294 outside arrays.
    pub(crate) index: u32,
    /// `%u`: user name.
    pub(crate) user: String,
    /// `%x`: job name.
    pub(crate) name: String,
}

/// Returns the path that a pattern stands for. In a pattern with backslashes nothing is replaced, and the backslashes
/// are removed.
pub(crate) fn expand(pattern: &str, names: &Names) -> String {
    if pattern.contains('\\') {
        return pattern.replace('\\', "");
    }
    let mut path = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            path.push(c);
            continue;
        }
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let width = digits.parse().unwrap_or(0).min(10);
        let number = |value: u32| format!("{value:0width$}");
        let text = match chars.next() {
            Some('j') => number(names.job),
            Some('J') => format!("{}.{}", number(names.job), names.step),
            Some('s') => number(names.step),
            Some('A') => number(names.array),
            Some('a') => number(names.index),
            Some('u') => names.user.clone(),
            Some('x') => names.name.clone(),
            Some('%') | None => "%".to_owned(),
            Some(other) => format!("%{other}"),
        };
        path.push_str(&text);
    }
    path
}

#[cfg(test)]
mod tests {
    use squall_model::step::Stream;

    use super::{Names, Route, expand};

    #[test]
    fn where_streams_go() {
        let route = |text| (Route::of(Some(text)).stream, Route::of(Some(text)).file);
        assert_eq!(Route::of(None), Route { stream: Stream::Client, file: None });
        assert_eq!(route("all"), (Stream::Client, None));
        assert_eq!(route("none"), (Stream::Null, None));
        assert_eq!(route("3"), (Stream::ClientRank(3), None));
        assert_eq!(route("out.%j"), (Stream::Client, Some("out.%j".into())));
        assert_eq!(route("F-%t"), (Stream::File("F-%t".into()), None));
        assert_eq!(route("F-%03N"), (Stream::File("F-%03N".into()), None));
        assert_eq!(route("F-%%t"), (Stream::Client, Some("F-%%t".into())));
    }

    #[test]
    fn standard_error_follows_standard_output() {
        let error = |output, error| Route::of_error(error, &Route::of(output));
        assert_eq!(error(None, None), Route { stream: Stream::Client, file: None });
        assert_eq!(error(Some("f-%t"), None).stream, Stream::Joined);
        assert_eq!(error(Some("f"), None), Route { stream: Stream::Client, file: Some("f".into()) });
        assert_eq!(error(Some("none"), None).stream, Stream::Null);
        assert_eq!(error(Some("f-%t"), Some("f-%t")).stream, Stream::Joined);
        assert_eq!(error(Some("f-%t"), Some("e-%t")).stream, Stream::File("e-%t".into()));
        assert_eq!(error(Some("f"), Some("all")), Route { stream: Stream::Client, file: None });
    }

    #[test]
    fn names_of_files() {
        let names = Names { job: 7, step: 2, array: 5, index: 3, user: "ann".into(), name: "run".into() };
        for (pattern, path) in [
            ("o.%j", "o.7"),
            ("%5j.%s", "00007.2"),
            ("%J", "7.2"),
            ("%A_%a", "5_3"),
            ("%u/%x%%", "ann/run%"),
            ("a\\%j", "a%j"),
            ("%q%", "%q%"),
        ] {
            assert_eq!(expand(pattern, &names), path, "{pattern}");
        }
    }
}
