//! The table, in the groups in which `--help` shows it, and the setters that several options share.

pub(crate) mod general;
pub(crate) mod job;
pub(crate) mod refused;
pub(crate) mod resources;
pub(crate) mod run;

use squall_model::limits::STRING_BYTES_MAX;

use crate::options::asked::Asked;
use crate::options::values::number::count;
use crate::options::{Given, Opt, Source, Stop, Tool};

/// A group of options with its title.
pub(crate) struct Group {
    /// Its title in `--help`.
    pub(crate) title: &'static str,
    /// The options, by long name.
    pub(crate) options: &'static [Opt],
}

/// Every option of sbatch, srun and salloc.
pub(crate) static GROUPS: [Group; 6] = [
    Group { title: "Job", options: job::OPTIONS },
    Group { title: "Resources", options: resources::OPTIONS },
    Group { title: "Accelerators and placement", options: resources::PLACEMENT },
    Group { title: "Tasks", options: run::OPTIONS },
    Group { title: "General", options: general::OPTIONS },
    Group { title: "Refused", options: refused::OPTIONS },
];

/// The options that a command knows.
pub(crate) fn options_of(tool: Tool) -> impl Iterator<Item = &'static Opt> {
    GROUPS.iter().flat_map(|group| group.options).filter(move |option| option.tools.has(tool))
}

/// Keeps the value by the option's name, for those that act on it or show it.
fn keep(asked: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    asked.others.insert(given.option.long, limited(given)?);
    Ok(())
}

/// An option that neither needs to be remembered.
#[expect(clippy::unnecessary_wraps, reason = "it is a setter as all the others")]
fn ignore(_: &mut Asked, _: &Given<'_>) -> Result<(), Stop> {
    Ok(())
}

/// The value, unless it is longer than any may be.
fn limited(given: &Given<'_>) -> Result<String, Stop> {
    if given.text().len() > STRING_BYTES_MAX {
        return Err(Stop::bad(format!(
            "--{}: the value has {} bytes; at most {STRING_BYTES_MAX} are allowed",
            given.option.long,
            given.text().len()
        )));
    }
    Ok(given.text().to_owned())
}

/// The value as a text field.
fn some(given: &Given<'_>) -> Result<Option<String>, Stop> {
    limited(given).map(Some)
}

/// The value as a count; 0 is one unless `positive`.
fn counted(given: &Given<'_>, positive: bool) -> Result<u32, Stop> {
    count(given.option.long, given.text(), positive).map_err(|line| {
        let least = u8::from(positive);
        let remedy = given.remedy(&format!("use a whole number from {least} on, such as 4 or 1k"));
        Stop::Bad { lines: vec![line, remedy], exit: 1 }
    })
}

/// Keeps a value that `check` takes; its error is Slurm's line, with exit code 255.
fn keep_checked(
    asked: &mut Asked,
    given: &Given<'_>,
    check: fn(&str) -> Result<(), String>,
    remedy: &str,
) -> Result<(), Stop> {
    check(given.text()).map_err(|line| Stop::Bad { lines: vec![line, given.remedy(remedy)], exit: 255 })?;
    keep(asked, given)
}

/// A count that is only kept.
fn keep_count(asked: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    counted(given, true)?;
    keep(asked, given)
}

/// Whether two options were given at the same place, where they must not contradict each other.
fn same_place(a: &Source, b: &Source) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}
