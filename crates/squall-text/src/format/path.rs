//! Paths of a job's output files for display: patterns are replaced where their values are known.

use std::fmt::Write;

/// Values for the patterns in a path.
#[derive(Debug)]
pub struct PathValues<'a> {
    /// `%j`, `%J`: job id.
    pub job: u32,
    /// `%A`, `%a`: the array's job id and the task's index. None: not of an array, so `%A` gives the job id.
    pub array: Option<(u32, u32)>,
    /// `%u`: user name.
    pub user: &'a str,
    /// `%x`: job name.
    pub name: &'a str,
    /// `%N`: name of the first node; empty: not known.
    pub host: &'a str,
}

/// Returns the absolute path that a pattern names for a batch script.
pub fn expand(pattern: &str, work_dir: &str, known: &PathValues<'_>) -> String {
    let mut out = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\\' {
            return absolute(&pattern.replace('\\', ""), work_dir);
        }
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut digits = String::new();
        while let Some(d) = rest.next_if(char::is_ascii_digit) {
            digits.push(d);
        }
        let width = digits.parse::<usize>().unwrap_or(0).min(10);
        let Some(letter) = rest.next() else { break };
        let (array, index) = known.array.unwrap_or((known.job, u32::MAX - 1));
        let mut number = |n: u32| {
            let _ = write!(out, "{n:0width$}");
        };
        match letter {
            'j' | 'J' => number(known.job),
            'A' => number(array),
            'a' => number(index),
            'b' => number(index % 10),
            'n' | 't' => number(0),
            's' => out.push_str("batch"),
            'u' => out.push_str(known.user),
            'x' => out.push_str(known.name),
            'N' if !known.host.is_empty() => out.push_str(known.host),
            '%' => out.push('%'),
            other => {
                out.push('%');
                out.push_str(&digits);
                out.push(other);
            }
        }
    }
    absolute(&out, work_dir)
}

fn absolute(path: &str, work_dir: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", work_dir.trim_end_matches('/')) }
}

#[cfg(test)]
mod tests {
    use super::{PathValues, expand};

    #[test]
    fn patterns_are_filled_in() {
        let known = PathValues { job: 12, array: Some((10, 3)), user: "ann", name: "run", host: "n1" };
        let text = |pattern: &str| expand(pattern, "/home/ann", &known);
        assert_eq!(text("slurm-%A_%a.out"), "/home/ann/slurm-10_3.out");
        assert_eq!(text("/tmp/%x-%u-%5j.%N%%"), "/tmp/run-ann-00012.n1%");
        assert_eq!(text("%q%"), "/home/ann/%q");
        assert_eq!(text("a\\%j"), "/home/ann/a%j");
    }
}
