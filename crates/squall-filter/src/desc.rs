//! A job as the submit filter sees it: its specification, script and environment, and which fields the filter has changed.

use squall_model::encoding::ByteBuf;
use squall_model::job::JobSpec;
use squall_model::wire::client::JobUpdate;
use squall_model::wire::filter::{About, Modification, Submission, Verdict};

use crate::fields::{self, FIELDS};
use crate::update;

/// A value of a field, as scripts see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// There is none (`nil`).
    Nil,
    /// A whole number.
    Int(i64),
    /// A number that is too large for a whole one.
    Large(f64),
    /// A text.
    Text(Vec<u8>),
    /// Texts, counted from 0.
    List(Vec<String>),
}

/// A job that is submitted or changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desc {
    pub(crate) spec: JobSpec,
    pub(crate) script: ByteBuf,
    pub(crate) env: ByteBuf,
    pub(crate) about: About,
    pub(crate) component: Option<u32>,
    pub(crate) immediate: bool,
    /// Whether it is a change of a job: an empty text then removes a value.
    pub(crate) is_change: bool,
    /// Id and state of a job that exists.
    pub(crate) job: Option<(u32, u32)>,
    /// Names of changed fields, in the order of their first change.
    changed: Vec<&'static str>,
}

impl Desc {
    /// Returns the job of a submission.
    pub(crate) fn of_submission(submission: Submission) -> Self {
        let Submission { spec, script, env, about, component, immediate } = submission;
        Self { spec, script, env, about, component, immediate, ..Self::default() }
    }

    /// Returns the changes of a job, and the job as it is.
    pub(crate) fn of_modification(modification: Modification) -> (Self, Self) {
        let Modification { job, spec, change, about, state, .. } = modification;
        let record = Self { spec, about: about.clone(), job: Some((job.0, state)), ..Self::default() };
        let asked = Self { spec: update::spec_of(&change), about, is_change: true, ..Self::default() };
        (asked, record)
    }

    /// Returns the value of a field; `Nil` if there is no such field.
    pub(crate) fn get(&self, name: &str) -> Value {
        fields::find(name).map_or(Value::Nil, |field| (field.get)(self))
    }

    /// Sets a field. The error is for the log: the field can't be set, or not to this value.
    pub(crate) fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let Some(field) = fields::find(name) else { return Err(format!("unrecognized field: {name}")) };
        let before = (field.get)(self);
        if before == *value {
            return Ok(());
        }
        let Some(set) = field.set else { return Err(format!("{name} can't be set: it has no effect here")) };
        if self.is_change && update::is_fixed(name) {
            return Err(format!("{name} of a job can't be changed after its submission"));
        }
        set(self, value).map_err(|problem| format!("{name}: {problem}"))?;
        // An empty text removes a value of the job that the change does not name.
        if (field.get)(self) != before || (self.is_change && *value == Value::Text(Vec::new())) {
            self.note(field.name);
        }
        Ok(())
    }

    /// Notes that a field was changed.
    pub(crate) fn note(&mut self, name: &'static str) {
        if !self.changed.contains(&name) {
            self.changed.push(name);
        }
    }

    /// Completes a verdict by what was changed. `change`: what was asked for, if a job is changed.
    pub(crate) fn conclude(self, change: Option<JobUpdate>, verdict: &mut Verdict) {
        let Self { spec, script, env, changed, .. } = self;
        verdict.changed = changed.iter().map(|name| (*name).to_owned()).collect();
        if changed.is_empty() {
            return;
        }
        if let Some(mut change) = change {
            for name in changed {
                update::take(name, &spec, &mut change);
            }
            verdict.change = Some(Box::new(change));
            return;
        }
        verdict.script = changed.contains(&"script").then_some(script);
        verdict.env = changed.contains(&"environment").then_some(env);
        verdict.spec = Some(Box::new(spec));
    }

    /// Returns the names and values of all fields that have one.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, Value)> {
        FIELDS.iter().map(|field| (field.name, (field.get)(self))).filter(|(_, value)| *value != Value::Nil)
    }

    /// Returns the value of a variable of the environment.
    pub(crate) fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let mut entries = self.env.split(|byte| *byte == 0);
        entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
    }

    /// Sets a variable of the environment. The error is for the log.
    pub(crate) fn set_variable(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        if name.is_empty() || name.contains(&b'=') || name.contains(&0) || value.contains(&0) {
            return Err("environment: a name without `=` is needed, and no NUL".to_owned());
        }
        if self.variable(name) == Some(value) {
            return Ok(());
        }
        let others = self
            .env
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.is_empty() && !entry.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"=")));
        let mut env = Vec::with_capacity(self.env.len() + name.len() + value.len() + 2);
        others.for_each(|entry| env.extend_from_slice(&[entry, &b"\0"[..]].concat()));
        env.extend_from_slice(&[name, &b"="[..], value, &b"\0"[..]].concat());
        self.env = env.into();
        self.note("environment");
        Ok(())
    }
}
