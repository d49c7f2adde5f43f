//! `--multi-prog`: reads the file that assigns programs to ranks.

use squall_model::encoding::ByteBuf;
use squall_model::limits::TASKS_MAX;
use squall_model::set::IndexSet;
use squall_model::step::RankSet;

use squall_text::options::Stop;

/// Programs with their ranks, in the order of the file.
pub(crate) type Programs = Vec<(RankSet, Vec<ByteBuf>)>;

/// Reads the file. `arguments` are appended to those of each line; `ntasks` is the number of ranks, if known.
pub(crate) fn read(path: &str, arguments: &[ByteBuf], ntasks: Option<u32>) -> Result<Programs, Stop> {
    let programs = parse(&text(path)?, path, arguments, ntasks)?;
    // `*` comes last and stands for all ranks that are left.
    let listed = |ranks| if ranks == RankSet::All { RankSet::Some(IndexSet::range(0, TASKS_MAX - 1)) } else { ranks };
    Ok(programs.into_iter().map(|(ranks, argv)| (listed(ranks), argv)).collect())
}

/// Returns the number of tasks that the file needs: its highest rank plus one. None: it names no ranks.
pub(crate) fn tasks(path: &str) -> Result<Option<u32>, Stop> {
    let programs = parse(&text(path)?, path, &[], None)?;
    let last = |ranks: &RankSet| if let RankSet::Some(set) = ranks { set.last() } else { None };
    Ok(programs.iter().filter_map(|(ranks, _)| last(ranks)).max().map(|last| last + 1))
}

fn text(path: &str) -> Result<String, Stop> {
    std::fs::read_to_string(path).map_err(|_| Stop::bad(format!("Could not open multi_prog config file {path}")))
}

fn parse(text: &str, path: &str, arguments: &[ByteBuf], ntasks: Option<u32>) -> Result<Programs, Stop> {
    let mut programs = Programs::new();
    let mut taken = IndexSet::new();
    let mut whole = String::new();
    for (at, line) in text.lines().enumerate() {
        whole.push_str(line);
        if line.ends_with('\\') {
            whole.push('\n');
            continue;
        }
        add_line(&mut programs, &mut taken, &std::mem::take(&mut whole), arguments, ntasks).map_err(|why| {
            let lines = why.into_iter().chain([format!("Line {} of configuration file {path} invalid", at + 1)]);
            Stop::Bad { lines: lines.collect(), exit: 1 }
        })?;
    }
    // The file ends in the middle of a line.
    add_line(&mut programs, &mut taken, &whole, arguments, ntasks).map_err(|why| {
        Stop::bad(why.unwrap_or_else(|| format!("The last line of configuration file {path} invalid")))
    })?;
    if let Some(ntasks) = ntasks.filter(|_| !programs.iter().any(|(ranks, _)| *ranks == RankSet::All)) {
        let missing = IndexSet::range(0, ntasks.saturating_sub(1)).difference(&taken);
        if let Some(first) = missing.first() {
            return Err(Stop::bad(format!("Configuration file {path} invalid, no record for task id {first}")));
        }
    }
    Ok(programs)
}

/// Adds a whole line (several lines of the file, if each but the last ends with a backslash) to the programs. The error
/// says why the line is invalid; None: Slurm has no text for the reason.
fn add_line(
    programs: &mut Programs,
    taken: &mut IndexSet,
    line: &str,
    arguments: &[ByteBuf],
    ntasks: Option<u32>,
) -> Result<(), Option<String>> {
    if line.starts_with('#') || line.trim().is_empty() {
        return Ok(());
    }
    if programs.iter().any(|(ranks, _)| *ranks == RankSet::All) {
        return Err(Some("Task range specification with asterisk must be last".into()));
    }
    let (ranks, rest) = line.trim_start().split_once([' ', '\t']).unwrap_or((line.trim(), ""));
    if rest.trim().is_empty() {
        return Err(None);
    }
    let others = ranks == "*";
    let set = if others { RankSet::All } else { RankSet::Some(rank_set(ranks, taken, ntasks).map_err(Some)?) };
    let mut argv = words(rest, others);
    argv.extend(arguments.iter().map(|word| ByteBuf::from(literal(word))));
    programs.push((set, argv));
    Ok(())
}

/// Parses the ranks of a line and adds them to `taken`, the ranks of earlier lines.
fn rank_set(text: &str, taken: &mut IndexSet, ntasks: Option<u32>) -> Result<IndexSet, String> {
    let invalid = || {
        let shown = if text.starts_with(|c: char| c.is_ascii_digit()) { String::new() } else { format!(" ({text})") };
        format!("Invalid task range specification{shown}")
    };
    let mut set = IndexSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| invalid())?, last.parse().map_err(|_| invalid())?);
        if last < first {
            return Err(format!("Invalid task range, {part}"));
        }
        if last >= ntasks.unwrap_or(TASKS_MAX) {
            return Err(format!("Invalid task id, {last} >= ntasks"));
        }
        let range = IndexSet::range(first, last);
        if let Some(twice) = range.intersection(taken).first() {
            return Err(format!("Duplicate record for task {twice}"));
        }
        taken.union_with(&range);
        set.union_with(&range);
    }
    Ok(set)
}

/// Splits a program and its arguments as Slurm does. Single quotes group words. A backslash takes the next character
/// literally. At the end of a line a backslash continues the current word, or begins an empty one. `%t` and `%o` are
/// left for the step daemon, every other `%` is doubled. `others`: the line is for all remaining ranks, for which `%o`
/// is the rank.
fn words(text: &str, others: bool) -> Vec<ByteBuf> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let next = bytes.get(at).copied();
        match byte {
            b'\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            b'\\' if !quoted => {
                let taken = next.filter(|next| *next != b'\n');
                word.get_or_insert_default().extend(taken.into_iter().flat_map(|byte| literal(&[byte])));
                at += 1;
            }
            b' ' | b'\t' if !quoted => words.extend(word.take()),
            b'%' if !quoted && words.len() + usize::from(word.is_some()) > 0 && matches!(next, Some(b't' | b'o')) => {
                let number: &[u8] = if others || next == Some(b't') { b"%t" } else { b"%o" };
                word.get_or_insert_default().extend(number);
                at += 1;
            }
            byte => word.get_or_insert_default().extend(literal(&[byte])),
        }
    }
    words.extend(word);
    words.into_iter().map(ByteBuf::from).collect()
}

/// Doubles each `%` in a text, so that the step daemon prints it as it is.
fn literal(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|&byte| std::iter::repeat_n(byte, if byte == b'%' { 2 } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use squall_model::step::RankSet;

    use super::parse;

    fn shown(text: &str, ntasks: Option<u32>) -> String {
        match parse(text, "multi.conf", &[], ntasks) {
            Err(stop) => stop.complaint(squall_text::options::Tool::Srun),
            Ok(programs) => {
                let lines = programs.iter().map(|(ranks, argv)| {
                    let ranks = match ranks {
                        RankSet::All => "*".to_owned(),
                        RankSet::Some(set) => set.to_string(),
                    };
                    let words: Vec<String> = argv.iter().map(|w| String::from_utf8_lossy(w).into_owned()).collect();
                    format!("{ranks} {}\n", words.join("|"))
                });
                lines.collect::<Vec<_>>().concat()
            }
        }
    }

    /// Checks fault D11: ranks, programs and continuation lines, as observed with Slurm 22.05.8.
    #[test]
    fn d11_ranks_programs_and_continuation_lines() {
        let text = "# comment\n\n0 ./master --x 'a b'\n1-2,4 echo task %t at %o\n3 \\\n  hostname # here\n* true %o\n";
        let expected = "0 ./master|--x|a b\n1-2,4 echo|task|%t|at|%o\n3 |hostname|#|here\n* true|%t\n";
        assert_eq!(shown(text, Some(6)), expected);
        let text = "0-1 ./p a \\\n  b\\\nc %t \"d e\" f\\ g h\\\"i %o%t 'q %t'r' s'\t tab\n";
        let expected = "0-1 ./p|a||bc|%t|\"d|e\"|f g|h\"i|%o%t|q %%tr s|tab\n";
        assert_eq!(shown(text, Some(2)), expected);
        assert_eq!(shown("0 a \\\n\\\n y\n1 ./p \\%o +%H", Some(2)), "0 a||y\n1 ./p|%%o|+%%H\n");
        assert_eq!(shown("0 a \\\n", Some(1)), "0 a|\n");
        assert_eq!(super::tasks("/nonexistent").unwrap_err().complaint(squall_text::options::Tool::Srun), {
            "srun: error: Could not open multi_prog config file /nonexistent\n"
        });
    }

    #[test]
    fn what_is_wrong_is_named() {
        let line = |n| format!("srun: error: Line {n} of configuration file multi.conf invalid\n");
        for (text, ntasks, what, at) in [
            ("0\n", None, "", 1),
            ("0-1 a\n1 b\n", None, "Duplicate record for task 1", 2),
            ("x a\n", None, "Invalid task range specification (x)", 1),
            ("1-* a\n", None, "Invalid task range specification", 1),
            ("1-0 a\n", None, "Invalid task range, 1-0", 1),
            ("0-3 a\n", Some(2), "Invalid task id, 3 >= ntasks", 1),
            ("* a\n0 b\n", Some(2), "Task range specification with asterisk must be last", 2),
        ] {
            let what = if what.is_empty() { String::new() } else { format!("srun: error: {what}\n") };
            assert_eq!(shown(text, ntasks), what + &line(at));
        }
        let missing = "srun: error: Configuration file multi.conf invalid, no record for task id 1\n";
        assert_eq!(shown("0 a\n", Some(3)), missing);
        assert_eq!(shown("# \\\n0-1 a\n1 b\n", Some(2)), missing.replace("id 1", "id 0"));
    }
}
