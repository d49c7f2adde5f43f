//! srun's ends of a step's standard streams. They are opened when the step has its number, which file names may
//! contain.

use std::fs::File;

use squall_model::id::StepNo;
use squall_model::step::{Among, JobFacts, Layout, Stream};

use super::input::Input;
use super::output::{Output, Sink};
use super::streams::{Names, Route, expand};
use squall_text::options::Stop;

/// Options of a step's standard streams, with which they will be opened.
#[derive(Clone, Debug)]
pub(crate) struct StreamRoutes {
    /// Source of the tasks' standard input.
    pub(crate) input: Route,
    /// Destination of the tasks' standard output.
    pub(crate) output: Route,
    /// Destination of the tasks' standard error.
    pub(crate) error: Route,
    /// `--label`: lines of output begin with the task's rank.
    pub(crate) label: bool,
    /// `--unbuffered`: output is passed on without waiting for whole lines.
    pub(crate) unbuffered: bool,
    /// Position of this component's tasks in a step of several components; None: there is one component.
    pub(crate) among: Option<Among>,
    /// `--open-mode=append`: output files keep their content.
    pub(crate) append: bool,
}

impl StreamRoutes {
    /// Opens srun's ends of the step's standard streams.
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
