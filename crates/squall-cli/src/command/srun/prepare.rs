//! The user's ends of a step's streams, opened when the step has its number.

use std::fs::File;

use squall_model::id::StepNo;
use squall_model::step::{Among, JobFacts, Layout, Stream};

use super::input::Input;
use super::output::{Output, Sink};
use super::streams::{Names, Route, expand};
use crate::options::Stop;

/// How the streams are to be opened.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Standard input's way.
    pub(crate) input: Route,
    /// Standard output's way.
    pub(crate) output: Route,
    /// Standard error's way.
    pub(crate) error: Route,
    /// `--label`.
    pub(crate) label: bool,
    /// `--unbuffered`.
    pub(crate) unbuffered: bool,
    /// Its place among the tasks of other components.
    pub(crate) among: Option<Among>,
    /// `--open-mode=append`.
    pub(crate) append: bool,
}

impl Prepared {
    /// Opens them for a step.
    pub(crate) fn open(&self, facts: &JobFacts, step: StepNo, layout: &Layout) -> Result<(Output, Input), Stop> {
        let names = Names {
            job: facts.key.job.0,
            step: step.0,
            array: facts.array.map_or(facts.key.job.0, |task| task.array.0),
            index: facts.array.map_or(u32::MAX - 1, |task| task.index),
            user: facts.owner.user.clone(),
            name: facts.spec.name.clone(),
        };
        let open = |route: &Route, what: &str| match &route.file {
            None => Ok(None),
            Some(pattern) => {
                let path = expand(pattern, &names);
                let sink = Sink::open(&path, self.append);
                sink.map(Some).map_err(|e| Stop::bad(format!("Could not open {what} file {path}: {e}")))
            }
        };
        let out = open(&self.output, "stdout")?.unwrap_or(Sink::Stdout);
        let err = if self.error == self.output && self.error.file.is_some() {
            None
        } else {
            Some(open(&self.error, "stderr")?.unwrap_or(Sink::Stderr))
        };
        let input = match (&self.input.stream, &self.input.file) {
            (Stream::Client, Some(pattern)) => {
                let path = expand(pattern, &names);
                let file =
                    File::open(&path).map_err(|e| Stop::bad(format!("Could not open stdin file {path}: {e}")))?;
                Input::file(file)
            }
            (Stream::Client, None) => Input::own(None),
            (Stream::ClientRank(rank), _) => Input::own(Some(*rank)),
            _ => Input::none(),
        };
        let output = match self.among {
            Some(among) => Output::among(out, err, among, self.label, self.unbuffered),
            None => Output::new(out, err, layout.ntasks(), self.label, self.unbuffered),
        };
        Ok((output, input))
    }
}
