//! Values of `--dependency`: `KIND:ID[:ID...]`, joined by commas (all must hold) or question marks (any must hold).

use squall_model::id::JobId;
use squall_model::job::{Dependency, DependencyJob, DependencyKind, DependencyTerm};
use squall_model::limits::DEPENDENCY_TERMS_MAX;

use super::array::array;

/// Reads a value of `--dependency`. None: no dependency; `0` or an empty value removes one. The error describes the
/// problem.
pub fn dependency(text: &str) -> Result<Option<Dependency>, String> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let any = text.contains('?');
    if any && text.contains(',') {
        return Err("`,` (all) and `?` (any) can't be mixed".into());
    }
    let mut terms = Vec::new();
    let mut within = false;
    let ends = |sign: char| {
        within = (within || sign == '[') && sign != ']';
        !within && matches!(sign, ',' | '?')
    };
    for part in text.split(ends) {
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
    // A list of ids without a kind is Slurm's oldest form and means `afterany`.
    let bare = part.starts_with(|c: char| c.is_ascii_digit());
    let (word, ids) = if bare { ("afterany", part) } else { part.split_once(':').unwrap_or((part, "")) };
    let named = DependencyKind::of_word(word).filter(|kind| *kind != DependencyKind::Singleton);
    let Some(when) = named else {
        return Err(format!(
            "`{part}` is none of after, afterany, afterok, afternotok, aftercorr, afterburstbuffer (with :JOBID) and singleton"
        ));
    };
    if ids.is_empty() {
        return Err(format!("`{part}` names no job; write {word}:JOBID"));
    }
    for id in ids.split(':') {
        terms.extend(jobs(id, when)?.into_iter().map(|job| DependencyTerm { when, job: Some(job) }));
    }
    Ok(())
}

/// Reads `ID`, `ID_INDEX`, or `ID_[1-3,5]`, which names several tasks of an array.
fn jobs(text: &str, when: DependencyKind) -> Result<Vec<DependencyJob>, String> {
    let Some((id, list)) = text.split_once("_[") else { return Ok(vec![job(text, when)?]) };
    let (list, delay) = list.split_once(']').ok_or_else(|| format!("`{text}`: the bracket is not closed"))?;
    let tasks = array(list)?.indices;
    if tasks.len() > DEPENDENCY_TERMS_MAX {
        return Err(format!("more than {DEPENDENCY_TERMS_MAX} jobs"));
    }
    let one = job(&format!("{id}{delay}"), when)?;
    Ok(tasks.iter().map(|index| DependencyJob { index: Some(index), ..one }).collect())
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
        // faults.md E: indices of an array's tasks in brackets.
        let tasks = [1, 2, 5].map(|index| term(DependencyKind::AfterOk, 7, Some(index), 0));
        assert_eq!(read("afterok:7_[1-2,5]").map(|d| d.terms), Some(tasks.into()));
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
            "afterok:1_[2-3",
            "afterok:1_[3-2]",
            "afterok:1_[0-999999]",
        ] {
            assert!(dependency(text).is_err(), "{text}");
        }
    }
}
