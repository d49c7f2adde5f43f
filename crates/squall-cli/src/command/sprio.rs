//! sprio: what a job's priority is made of. Here it is made of one thing, the order of submission, which Slurm's
//! own sprio has no columns for.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::command::listing::arguments::{Known, Value};
use crate::command::listing::call::{Call, Fail, live};

const OPTIONS: &[Known] = &[
    ("cluster", 'M', Value::Needed),
    ("clusters", 'M', Value::Needed),
    ("federation", '\0', Value::None),
    ("format", 'o', Value::Needed),
    ("jobs", 'j', Value::Maybe),
    ("local", '\0', Value::None),
    ("long", 'l', Value::None),
    ("noheader", 'h', Value::None),
    ("norm", 'n', Value::None),
    ("partition", 'p', Value::Needed),
    ("sibling", '\0', Value::None),
    ("sort", 'S', Value::Needed),
    ("users", 'u', Value::Needed),
    ("verbose", 'v', Value::None),
    ("weights", 'w', Value::None),
];

const HELP: &str = "\
Usage: sprio [OPTIONS]
  Priorities are those of 'squeue -o \"%i %Q\"': jobs start in the order in which they came.
  -V, --version                   display version information and exit
";

/// Runs sprio.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sprio", args, sprio)
}

fn sprio(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    if call.arguments(OPTIONS, args, HELP)?.is_none() {
        return Ok(());
    }
    call.say(
        "You are not running a supported priority plugin\n(priority/basic).\n\
         Only 'priority/multifactor' is supported.",
    );
    Err(Fail(1))
}

#[cfg(test)]
mod tests {
    use super::sprio;
    use crate::command::listing::fake::run;

    #[test]
    fn it_says_why_it_has_nothing_to_say() {
        let seen = run("sprio", sprio, &["-l", "-u", "ann"]);
        assert_eq!((seen.code, seen.out.as_str()), (1, ""));
        assert!(seen.err.contains("(priority/basic)"));
        assert_eq!(run("sprio", sprio, &["--help"]).code, 0);
    }
}
