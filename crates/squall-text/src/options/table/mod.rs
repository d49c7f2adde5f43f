//! The option table, in the groups that `--help` shows, and setters that several options share.

pub mod general;
pub mod job;
pub mod placement;
pub mod plugins;
pub mod refused;
pub mod resources;
pub mod run;
pub mod site;

use crate::refusal;
use squall_model::limits::STRING_BYTES_MAX;
use squall_model::wire::client::Refusal;

use crate::options::submit::SubmitOptions;
use crate::options::values::number::count;
use crate::options::{GivenOption, Opt, Source, Stop, Tool};

/// Options that `--help` shows together.
#[derive(Debug)]
pub struct Group {
    /// Title of the group in `--help`.
    pub title: &'static str,
    /// Options of the group, in the order in which `--help` lists them.
    pub options: &'static [Opt],
}

/// All options of sbatch, srun and salloc.
pub static GROUPS: [Group; 7] = [
    Group { title: "Job", options: job::OPTIONS },
    Group { title: "Resources", options: resources::OPTIONS },
    Group { title: "Accelerators and placement", options: placement::OPTIONS },
    Group { title: "Tasks", options: run::OPTIONS },
    Group { title: "Containers", options: site::OPTIONS },
    Group { title: "General", options: general::OPTIONS },
    Group { title: "Refused", options: refused::OPTIONS },
];

/// Returns the options that a command accepts. Those of plugins come first, so that they take the place of others of
/// their name.
pub fn options_of(tool: Tool) -> impl Iterator<Item = &'static Opt> {
    let own = GROUPS.iter().flat_map(|group| group.options).filter(move |option| option.tools.has(tool));
    plugins::added().iter().chain(own)
}

/// Setter of an option of which nothing is stored.
#[expect(clippy::unnecessary_wraps, reason = "it is a setter as all the others")]
fn ignore(_: &mut SubmitOptions, _: &GivenOption<'_>) -> Result<(), Stop> {
    Ok(())
}

/// Setter of an option that has no effect but needs a positive number as value.
fn ignore_count(_: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    counted(given, true).map(drop)
}

/// Returns the value; fails if it is longer than `STRING_BYTES_MAX`.
fn limited(given: &GivenOption<'_>) -> Result<String, Stop> {
    if given.text().len() > STRING_BYTES_MAX {
        return Err(Stop::bad(format!(
            "--{}: the value has {} bytes; at most {STRING_BYTES_MAX} are allowed",
            given.option.long,
            given.text().len()
        )));
    }
    Ok(given.text().to_owned())
}

/// Returns the value for an optional text field; fails if it is too long.
fn some(given: &GivenOption<'_>) -> Result<Option<String>, Stop> {
    limited(given).map(Some)
}

/// Returns the value as a name. An empty one, as of a variable that is not set, takes back a name given elsewhere.
fn named(given: &GivenOption<'_>) -> Result<Option<String>, Stop> {
    Ok(some(given)?.filter(|name| !name.is_empty()))
}

/// Reads the value as a whole number; if `positive`, 0 is an error.
fn counted(given: &GivenOption<'_>, positive: bool) -> Result<u32, Stop> {
    count(given.option.long, given.text(), positive).map_err(|line| {
        let least = u8::from(positive);
        let remedy = given.remedy(&format!("use a whole number from {least} on, such as 4 or 1k"));
        Stop::Bad { lines: vec![line, remedy], exit: 1 }
    })
}

/// Fails if `check` refuses the value. The error of `check` is Slurm's message; exit code 255.
fn checked(given: &GivenOption<'_>, check: fn(&str) -> Result<(), String>, remedy: &str) -> Result<(), Stop> {
    check(given.text()).map_err(|line| Stop::Bad { lines: vec![line, given.remedy(remedy)], exit: 255 })
}

/// Reads the value with `read`. If it returns None, the error has the form of a refusal by the controller, with
/// `problem` as the reason.
fn read<T>(given: &GivenOption<'_>, read: fn(&str) -> Option<T>, problem: &str) -> Result<Option<T>, Stop> {
    let (option, value) = (given.option.long.to_owned(), limited(given)?);
    let found = read(&value);
    if found.is_none() {
        let refusal = Refusal::InvalidValue { option, value, problem: problem.to_owned() };
        let lines = refusal::lines(given.tool.failed(), &refusal);
        return Err(Stop::Bad { lines, exit: 1 });
    }
    Ok(found)
}

/// Returns whether two options have the same kind of origin (script, variables, command line).
fn same_place(a: &Source, b: &Source) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}
