//! Names of output and input files: expands Slurm's `%` patterns.

use squall_model::id::{JobId, StepNo};
use squall_model::job::ArrayTask;
use squall_model::step::StepLaunch;

/// Most digits to which a number is padded.
const WIDTH_MAX: usize = 10;

/// Value of `%a` and `%b` in a job that is no array task (Slurm's NO_VAL).
const NO_INDEX: u32 = u32::MAX - 1;

/// Values of the symbols in a file name pattern.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Job id (`%j`).
    pub job: JobId,
    /// Array job id and task index (`%A`, `%a`); None: the job is no array task.
    pub array: Option<ArrayTask>,
    /// Step number (`%s`).
    pub step: StepNo,
    /// Name of the node (`%N`).
    pub node: &'a str,
    /// Index of the node in the job (`%n`).
    pub node_index: u32,
    /// Rank of the task (`%t`).
    pub rank: u32,
    /// User name (`%u`).
    pub user: &'a str,
    /// Job name (`%x`).
    pub name: &'a str,
}

impl<'a> Names<'a> {
    /// Returns the values for one task of a step.
    pub fn of(launch: &'a StepLaunch, rank: u32) -> Self {
        Self {
            job: launch.key.job,
            array: launch.facts.array,
            step: launch.key.step,
            node: &launch.node,
            node_index: launch.node_index + launch.among().unwrap_or_default().nodes_before,
            rank: launch.rank_among(rank),
            user: &launch.facts.owner.user,
            name: &launch.facts.spec.name,
        }
    }

    fn symbol(&self, symbol: char, width: usize) -> Option<String> {
        let number = |n: u32| Some(format!("{n:0width$}"));
        let index = self.array.map_or(NO_INDEX, |a| a.index);
        match symbol {
            'A' => number(self.array.map_or(self.job, |a| a.array).0),
            'a' => number(index),
            'b' => number(index % 10),
            'j' => number(self.job.0),
            'J' if self.step == StepNo::BATCH => number(self.job.0),
            'J' => Some(format!("{:0width$}.{}", self.job.0, self.step)),
            'n' => number(self.node_index),
            's' if self.step == StepNo::BATCH => Some(self.step.to_string()),
            's' => number(self.step.0),
            't' => number(self.rank),
            'N' => Some(self.node.to_owned()),
            'u' => Some(self.user.to_owned()),
            'x' => Some(self.name.to_owned()),
            '%' => Some("%".to_owned()),
            _ => None,
        }
    }
}

/// Expands a pattern to a file name. With a backslash anywhere no symbol is expanded, and the backslashes are removed;
/// unknown symbols stay as they are.
pub fn expand(pattern: &str, names: &Names<'_>) -> String {
    if pattern.contains('\\') {
        return pattern.replace('\\', "");
    }
    let mut name = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        name.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let width =
            after[..digits].parse::<usize>().map_or(if digits > 0 { WIDTH_MAX } else { 0 }, |w| w.min(WIDTH_MAX));
        let symbol = after[digits..].chars().next();
        if let Some(text) = symbol.and_then(|s| names.symbol(s, width)) {
            name.push_str(&text);
            rest = &after[digits + 1..];
        } else {
            name.push('%');
            rest = after;
        }
    }
    name.push_str(rest);
    name
}

/// Returns the pattern of a batch job's output file if the job gives none.
pub(super) fn default_output(array: Option<ArrayTask>) -> &'static str {
    if array.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    use squall_model::id::{JobId, StepNo};
    use squall_model::job::ArrayTask;

    use super::{Names, WIDTH_MAX, expand};

    fn names() -> Names<'static> {
        Names {
            job: JobId(128),
            array: None,
            step: StepNo(0),
            node: "n7",
            node_index: 3,
            rank: 12,
            user: "ann",
            name: "my job",
        }
    }

    #[test]
    fn every_symbol() {
        let all = "%A %j %J %N %n %s %t %u %x %%";
        assert_eq!(expand(all, &names()), "128 128 128.0 n7 3 0 12 ann my job %");
        let task = Names { array: Some(ArrayTask { array: JobId(100), index: 28 }), ..names() };
        assert_eq!(expand("%A_%a_%b_%j", &task), "100_28_8_128");
        let batch = Names { step: StepNo::BATCH, ..names() };
        // faults.md D11: a script's output has no step number.
        assert_eq!(expand("%J %s", &batch), "128 batch");
        assert_eq!(expand("o-%a", &batch), "o-4294967294");
    }

    #[test]
    fn padding_backslash_and_unknown_symbols() {
        assert_eq!(expand("%5j-%3t-%2N", &names()), "00128-012-n7");
        assert_eq!(expand("%99999999999999999999j", &names()), "0000000128");
        assert_eq!(expand("a\\%j", &names()), "a%j");
        assert_eq!(expand("%q%", &names()), "%q%");
        assert_eq!(expand("%5", &names()), "%5");
        assert_eq!(expand("ä%ü%jö", &names()), "ä%ü128ö");
    }

    proptest! {
        #[test]
        fn text_without_symbols_stays(text in "[^%\\\\]*") {
            prop_assert_eq!(expand(&text, &names()), text);
        }
        #[test]
        fn never_panics_and_is_bounded(text in any::<String>()) {
            prop_assert!(expand(&text, &names()).len() <= text.len() * 10 + 10);
        }
        #[test]
        fn padded_numbers_have_their_width(width in 0_usize..15, job in 0_u32..) {
            let names = Names { job: JobId(job), ..names() };
            let text = expand(&format!("%{width}j"), &names);
            prop_assert_eq!(text.parse::<u32>(), Ok(job));
            prop_assert_eq!(text.len(), job.to_string().len().max(width.min(WIDTH_MAX)));
        }
    }
}
