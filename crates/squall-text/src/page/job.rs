//! Pages of sbatch, srun and salloc.

use super::{Options, Page};
use crate::options::Tool;

/// `sbatch`.
pub static SBATCH: Page = Page {
    name: "sbatch",
    about: "queue a batch script",
    synopsis: &["[OPTIONS...] [SCRIPT [ARGUMENTS...]]"],
    options: Options::Job(Tool::Sbatch),
    notes: "Options are also read from #SBATCH lines at the top of the script and from the variables in brackets; the command \
            line overrides variables, and variables override the script.\n",
};

/// `srun`.
pub static SRUN: Page = Page {
    name: "srun",
    about: "run tasks in an allocation, or in one of its own",
    synopsis: &["[OPTIONS...] PROGRAM [ARGUMENTS...]"],
    options: Options::Job(Tool::Srun),
    notes: "",
};

/// `salloc`.
pub static SALLOC: Page = Page {
    name: "salloc",
    about: "get an allocation for a command on this host",
    synopsis: &["[OPTIONS...] [COMMAND [ARGUMENTS...]]"],
    options: Options::Job(Tool::Salloc),
    notes: "",
};

/// Returns the page of one of the three.
pub fn of(tool: Tool) -> &'static Page {
    match tool {
        Tool::Sbatch => &SBATCH,
        Tool::Srun => &SRUN,
        Tool::Salloc => &SALLOC,
    }
}

#[cfg(test)]
mod tests {
    use super::{SALLOC, of};
    use crate::options::Tool;

    #[test]
    fn help_lists_the_options() {
        for tool in [Tool::Sbatch, Tool::Srun, Tool::Salloc] {
            insta::assert_snapshot!(format!("{}-help", tool.name()), of(tool).help());
        }
        insta::assert_snapshot!("salloc-usage", SALLOC.usage());
    }
}
