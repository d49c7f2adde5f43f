//! Commands of the laboratory, present in builds with the feature `lab`.

use crate::Run;

#[cfg(feature = "lab")]
mod has {
    use super::Run;

    pub(crate) const BENCH: Run = squall_lab::bench::run;
    pub(crate) const ESP: Run = squall_lab::esp::run;
    pub(crate) const LAYOUT: Run = squall_lab::layout::run;
    pub(crate) const SIM: Run = squall_lab::sim::run;
    pub(crate) const WHAT_IF: Run = crate::command::what_if::run;
}

#[cfg(not(feature = "lab"))]
mod has {
    use std::ffi::OsString;
    use std::process::ExitCode;

    use super::Run;

    pub(crate) const BENCH: Run = absent;
    pub(crate) const ESP: Run = absent;
    pub(crate) const LAYOUT: Run = absent;
    pub(crate) const SIM: Run = absent;
    pub(crate) const WHAT_IF: Run = absent;

    fn absent(_: &[OsString]) -> ExitCode {
        eprintln!(
            "squall: error: this build has no laboratory (bench, esp, layout, sim, what-if): use a build of squall-cli \
             with the feature `lab`, as it is by default"
        );
        ExitCode::FAILURE
    }
}

pub(crate) use has::{BENCH, ESP, LAYOUT, SIM, WHAT_IF};
