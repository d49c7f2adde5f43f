//! `--multi-prog`: a file that says which ranks run which program.

use serde_bytes::ByteBuf;
use squall_model::set::IndexSet;
use squall_model::step::RankSet;

use crate::options::Stop;

/// Programs with their ranks, in the order of the file.
pub(crate) type Programs = Vec<(RankSet, Vec<ByteBuf>)>;

/// Reads the file. `arguments` come after those of each line; `ntasks` is how many ranks there will be, if known.
pub(crate) fn read(path: &str, arguments: &[ByteBuf], ntasks: Option<u32>) -> Result<Programs, Stop> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Stop::bad(format!("Unable to open configuration file {path}: {e}")))?;
    parse(&text, path, arguments, ntasks)
}

fn parse(text: &str, path: &str, arguments: &[ByteBuf], ntasks: Option<u32>) -> Result<Programs, Stop> {
    let mut programs = Programs::new();
    let mut taken = IndexSet::new();
    let mut whole = String::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(begun) = line.strip_suffix('\\') {
            whole.push_str(begun);
            whole.push(' ');
            continue;
        }
        whole.push_str(line);
        let line = std::mem::take(&mut whole);
        let invalid = |why: &str| Stop::bad(format!("Line {} of configuration file {path} invalid: {why}", at + 1));
        let words = words(&line).map_err(|why| invalid(&why))?;
        let Some((ranks, command)) = words.split_first() else { continue };
        if command.is_empty() {
            return Err(invalid("it names no program"));
        }
        add(&mut programs, &mut taken, ranks, command, arguments, ntasks).map_err(|why| invalid(&why))?;
    }
    if let Some(ntasks) = ntasks.filter(|_| !programs.iter().any(|(ranks, _)| *ranks == RankSet::All)) {
        let missing = IndexSet::range(0, ntasks.saturating_sub(1)).difference(&taken);
        if !missing.is_empty() {
            return Err(Stop::bad(format!("Configuration file {path} invalid, no record for task(s) {missing}")));
        }
    }
    Ok(programs)
}

fn add(
    programs: &mut Programs,
    taken: &mut IndexSet,
    ranks: &str,
    command: &[String],
    arguments: &[ByteBuf],
    ntasks: Option<u32>,
) -> Result<(), String> {
    let numbered = command.iter().skip(1).any(|word| word.contains("%t") || word.contains("%o"));
    let set = match (ranks, numbered, ntasks) {
        ("*", false, _) => {
            programs.push((RankSet::All, argv(command, arguments, 0, 0)));
            return Ok(());
        }
        ("*", true, Some(ntasks)) => IndexSet::range(0, ntasks.saturating_sub(1)).difference(taken),
        ("*", true, None) => return Err("`*` with %t or %o needs the number of tasks; give --ntasks".into()),
        _ => rank_set(ranks)?,
    };
    let twice = set.intersection(taken);
    if !twice.is_empty() {
        return Err(format!("Duplicate record for task {twice}"));
    }
    if ntasks.is_some_and(|n| set.last().is_some_and(|last| last >= n)) {
        return Err(format!("Invalid task id, {} >= ntasks", set.last().unwrap_or(0)));
    }
    taken.union_with(&set);
    if numbered {
        for (offset, rank) in set.iter().enumerate() {
            programs.push((RankSet::Some(IndexSet::range(rank, rank)), argv(command, arguments, rank, offset)));
        }
    } else {
        programs.push((RankSet::Some(set), argv(command, arguments, 0, 0)));
    }
    Ok(())
}

/// `%t` is the rank, `%o` its place within the line's ranks.
fn argv(command: &[String], arguments: &[ByteBuf], rank: u32, offset: usize) -> Vec<ByteBuf> {
    let (program, words) = command.split_first().map_or(("", command), |(p, w)| (p.as_str(), w));
    let words = words.iter().map(|word| word.replace("%t", &rank.to_string()).replace("%o", &offset.to_string()));
    let head = std::iter::once(program.to_owned()).chain(words);
    head.map(|word| ByteBuf::from(word.into_bytes())).chain(arguments.iter().cloned()).collect()
}

fn rank_set(text: &str) -> Result<IndexSet, String> {
    let invalid = || format!("Invalid task range specification ({text})");
    let mut set = IndexSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| invalid())?, last.parse().map_err(|_| invalid())?);
        if last < first || last > squall_model::limits::TASKS_MAX {
            return Err(invalid());
        }
        set.union_with(&IndexSet::range(first, last));
    }
    Ok(set)
}

/// Words of a line: quotes group, a backslash takes the next character, `#` begins a comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    crate::script::words(line)
}

#[cfg(test)]
mod tests {
    use squall_model::step::RankSet;

    use super::parse;

    fn shown(text: &str, ntasks: Option<u32>) -> String {
        match parse(text, "multi.conf", &[], ntasks) {
            Err(stop) => stop.complaint(crate::options::Tool::Srun),
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

    #[test]
    fn ranks_and_programs() {
        let text = "# comment\n\n0 ./master --x 'a b'\n1-2,4 echo task %t at %o\n3 \\\n  hostname # here\n* true\n";
        assert_eq!(
            shown(text, Some(6)),
            "0 ./master|--x|a b\n1 echo|task|1|at|0\n2 echo|task|2|at|1\n4 echo|task|4|at|2\n3 hostname\n* true\n"
        );
        assert_eq!(shown("0 a\n* b %t\n", Some(3)), "0 a\n1 b|1\n2 b|2\n");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, ntasks, what) in [
            ("0\n", None, "Line 1 of configuration file multi.conf invalid: it names no program"),
            ("0-1 a\n1 b\n", None, "Line 2 of configuration file multi.conf invalid: Duplicate record for task 1"),
            ("x a\n", None, "Line 1 of configuration file multi.conf invalid: Invalid task range specification (x)"),
            ("0-3 a\n", Some(2), "Line 1 of configuration file multi.conf invalid: Invalid task id, 3 >= ntasks"),
            ("0 a\n", Some(3), "Configuration file multi.conf invalid, no record for task(s) 1-2"),
        ] {
            assert_eq!(shown(text, ntasks), format!("srun: error: {what}\n"));
        }
    }
}
