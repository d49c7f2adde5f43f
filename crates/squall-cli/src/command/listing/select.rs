//! Parses lists of jobs, users and states on command lines.

use squall_model::id::{JobId, StepNo};
use squall_model::wire::client::{JobRef, StateFilter};

use crate::command::listing::call::{Call, Fail};
use squall_text::format::words;
use squall_text::options::values::jobs::{job_ref, number};

/// A job, tasks of an array, or a step, as a command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The job or the array tasks that are named.
    pub(crate) job: JobRef,
    /// The step that is named. None: the job itself is meant.
    pub(crate) step: Option<StepNo>,
    /// The words of the command line that name the target.
    pub(crate) text: String,
}

/// Splits a list at white space and at commas outside brackets; empty parts are left out.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            c if depth == 0 && (c == ',' || c.is_whitespace()) => {
                out.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out.retain(|part| !part.is_empty());
    out
}

/// Parses `123`, `123_4`, `123_[1-4,9]` or `123_*`, each with or without a step: `.0`, `.batch`.
pub(crate) fn target(text: &str) -> Option<Target> {
    let (job, step) = match text.split_once('.') {
        Some((job, "batch")) => (job, Some(StepNo::BATCH)),
        Some((job, step)) => (job, Some(StepNo(number(step)?))),
        None => (text, None),
    };
    Some(Target { job: job_ref(job)?, step, text: text.to_owned() })
}

/// Returns the job id in a reference: that of the job, of the array, or of the first component.
pub(crate) fn id_of(job: &JobRef) -> JobId {
    match job {
        JobRef::Job(id) | JobRef::Tasks(id, _) => *id,
        JobRef::Component(leader, offset) => JobId(leader.0.saturating_add(*offset)),
    }
}

impl Call<'_> {
    /// Parses a list of jobs. A word that names no job is an error.
    pub(crate) fn targets(&mut self, text: &str) -> Result<Vec<Target>, Fail> {
        let mut all = Vec::new();
        for part in parts(text) {
            match target(part) {
                Some(target) => all.push(target),
                None => return self.fail(&format!("Invalid job id: {part}")),
            }
        }
        Ok(all)
    }

    /// Returns the ids of the users in a list of names or numbers.
    pub(crate) fn user_ids(&mut self, text: &str) -> Result<Vec<u32>, Fail> {
        let mut all = Vec::new();
        for part in parts(text) {
            match part.parse().ok().or_else(|| self.people.uid(part)) {
                Some(uid) => all.push(uid),
                None => return self.fail(&format!("Invalid user: {part}")),
            }
        }
        Ok(all)
    }

    /// Parses a list of states, by name or code. None: the list has `all`.
    pub(crate) fn states(&mut self, text: &str) -> Result<Option<Vec<StateFilter>>, Fail> {
        let mut all = Vec::new();
        for part in parts(text) {
            if part.eq_ignore_ascii_case("all") {
                return Ok(None);
            }
            let Some(filter) = words::state_filter(part) else {
                let known: Vec<&str> = words::STATES.iter().map(|(long, _, _)| *long).collect();
                self.complain(&format!("Invalid job state specified: {part}"));
                return self.fail(&format!("Valid job states include: {}", known.join(",")));
            };
            all.push(filter);
        }
        all.sort_unstable();
        all.dedup();
        Ok(Some(all))
    }
}

/// Joins names, one on each line.
pub(crate) fn lines<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let mut out = String::new();
    for name in names {
        out.push_str(name.as_ref());
        out.push('\n');
    }
    out
}

/// Splits a list of names at commas.
pub(crate) fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use squall_model::id::{JobId, StepNo};
    use squall_model::set::IndexSet;
    use squall_model::wire::client::JobRef;

    use super::{parts, target};

    #[test]
    fn jobs_and_steps() {
        let seen = |text: &str| target(text).map(|t| (t.job, t.step));
        assert_eq!(seen("12"), Some((JobRef::Job(JobId(12)), None)));
        assert_eq!(seen("12.batch"), Some((JobRef::Job(JobId(12)), Some(StepNo::BATCH))));
        assert_eq!(seen("12_3.0"), Some((JobRef::Tasks(JobId(12), IndexSet::range(3, 3)), Some(StepNo(0)))));
        let set: IndexSet = [1, 2, 9].into_iter().collect();
        assert_eq!(seen("12_[1-2,9%3]"), Some((JobRef::Tasks(JobId(12), set), None)));
        assert_eq!(seen("12_*"), Some((JobRef::Job(JobId(12)), None)));
        assert_eq!(seen("12+1.0"), Some((JobRef::Component(JobId(12), 1), Some(StepNo(0)))));
        for bad in [
            "",
            "x",
            "12_",
            "12_x",
            "12_[1",
            "12+",
            "+1",
            "12.x",
            "-1",
            "0",
            "12_[3-1]",
            "99999999999",
            "12_[0-4294967295]",
        ] {
            assert_eq!(seen(bad), None, "{bad}");
        }
        assert_eq!(parts("1,2_[3,4] 5,,"), ["1", "2_[3,4]", "5"]);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>(), near in "[0-9_\\[\\],.:*%-]{0,20}") {
            let _ = (target(&text), target(&near), parts(&text));
        }
    }
}
