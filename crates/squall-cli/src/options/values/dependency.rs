//! `--dependency`: `KIND:ID[:ID...]`, joined by commas (all of them) or question marks (any of them).

use squall_model::id::JobId;
use squall_model::job::{Dependency, DependencyJob, DependencyKind, DependencyTerm};
use squall_model::limits::DEPENDENCY_TERMS_MAX;

const KINDS: [(&str, DependencyKind); 6] = [
    ("after", DependencyKind::After),
    ("afterany", DependencyKind::AfterAny),
    ("afterok", DependencyKind::AfterOk),
    ("afternotok", DependencyKind::AfterNotOk),
    ("aftercorr", DependencyKind::AfterCorr),
    ("afterburstbuffer", DependencyKind::AfterBurstBuffer),
];

/// Reads a dependency; the error says what is wrong. None: no dependency (`0` or nothing takes one away).
pub(crate) fn dependency(text: &str) -> Result<Option<Dependency>, String> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let any = text.contains('?');
    if any && text.contains(',') {
        return Err("`,` (all) and `?` (any) can't be mixed".into());
    }
    let mut terms = Vec::new();
    for part in text.split([',', '?']) {
        term(part, &mut terms)?;
        if terms.len() > DEPENDENCY_TERMS_MAX {
            return Err(format!("more than {DEPENDENCY_TERMS_MAX} jobs"));
        }
    }
    Ok(Some(Dependency { terms, any }))
}

fn term(part: &str, terms: &mut Vec<DependencyTerm>) -> Result<(), String> {
    if part.eq_ignore_ascii_case("singleton") {
        terms.push(DependencyTerm { when: DependencyKind::Singleton, job: None });
        return Ok(());
    }
    // A bare list of ids is the oldest form: after any end.
    let bare = part.starts_with(|c: char| c.is_ascii_digit());
    let (word, ids) = if bare { ("afterany", part) } else { part.split_once(':').unwrap_or((part, "")) };
    let Some((_, when)) = KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) else {
        return Err(format!(
            "`{part}` is none of after, afterany, afterok, afternotok, aftercorr, afterburstbuffer (with :JOBID) and singleton"
        ));
    };
    if ids.is_empty() {
        return Err(format!("`{part}` names no job; write {word}:JOBID"));
    }
    for id in ids.split(':') {
        terms.push(DependencyTerm { when: *when, job: Some(job(id, *when)?) });
    }
    Ok(())
}

fn job(text: &str, when: DependencyKind) -> Result<DependencyJob, String> {
    let (name, delay) = match text.split_once('+') {
        Some((name, delay)) if when == DependencyKind::After => (name, number(delay, text)?),
        Some(_) => return Err(format!("`{text}`: only `after` takes +MINUTES")),
        None => (text, 0),
    };
    let (id, index) = match name.split_once('_') {
        Some((id, "*")) => (id, None),
        Some((id, index)) => (id, Some(number(index, text)?)),
        None => (name, None),
    };
    match number(id, text)? {
        0 => Err(format!("`{text}`: 0 is no job id")),
        id => Ok(DependencyJob { id: JobId(id), index, delay_min: delay }),
    }
}

fn number(digits: &str, whole: &str) -> Result<u32, String> {
    if !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(number) = digits.parse()
    {
        return Ok(number);
    }
    Err(format!("`{whole}` is not a job id; write ID or ID_INDEX"))
}

#[cfg(test)]
mod tests {
    use squall_model::id::JobId;
    use squall_model::job::{DependencyJob, DependencyKind, DependencyTerm};

    use super::dependency;

    fn term(when: DependencyKind, id: u32, index: Option<u32>, delay_min: u32) -> DependencyTerm {
        DependencyTerm { when, job: Some(DependencyJob { id: JobId(id), index, delay_min }) }
    }

    #[test]
    fn the_whole_grammar() {
        let read = |text| dependency(text).ok().flatten();
        let all = read("afterok:1:2,singleton,after:3+5,afterany:4_7");
        assert_eq!(
            all.as_ref().map(|d| (d.any, d.terms.clone())),
            Some((
                false,
                vec![
                    term(DependencyKind::AfterOk, 1, None, 0),
                    term(DependencyKind::AfterOk, 2, None, 0),
                    DependencyTerm { when: DependencyKind::Singleton, job: None },
                    term(DependencyKind::After, 3, None, 5),
                    term(DependencyKind::AfterAny, 4, Some(7), 0),
                ]
            ))
        );
        assert!(read("afterok:1?afternotok:2").is_some_and(|d| d.any && d.terms.len() == 2));
        assert_eq!(read("12").map(|d| d.terms), Some(vec![term(DependencyKind::AfterAny, 12, None, 0)]));
        assert_eq!(read("aftercorr:5_*").map(|d| d.terms), Some(vec![term(DependencyKind::AfterCorr, 5, None, 0)]));
        assert_eq!(dependency("0"), Ok(None));
    }

    #[test]
    fn what_is_no_dependency() {
        for text in [
            "x",
            "afterok",
            "afterok:",
            "afterok:x",
            "afterok:1,",
            "afterok:1?after:2,3",
            "afterok:1+5",
            "before:1",
            "after:1+x",
            "afterok:0",
            "afterok:1_[2-3]",
        ] {
            assert!(dependency(text).is_err(), "{text}");
        }
    }
}
