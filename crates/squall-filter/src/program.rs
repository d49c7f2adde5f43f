//! A program as the filter: it gets each job as JSON, and returns as JSON what it changes.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Map, Value as Json, json};
use squall_model::config::PartitionConfig;
use squall_model::wire::filter::{FilterScript, Modification, Submission, Verdict};

use crate::constants::{NO_VAL, NO_VAL16};
use crate::desc::{Desc, Value};
use crate::partitions;

/// Most bytes of a program's output and of its messages.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
const MESSAGE_BYTES_MAX: u64 = 16 << 10;

/// A program that filters jobs.
pub(crate) struct Program {
    path: String,
    partitions: Vec<PartitionConfig>,
}

impl Program {
    pub(crate) fn new(script: FilterScript) -> Self {
        Self { path: script.name, partitions: script.partitions }
    }

    /// Replaces the partitions that the program is told.
    pub(crate) fn set_partitions(&mut self, all: Vec<PartitionConfig>) {
        self.partitions = all;
    }

    /// Filters a submission.
    pub(crate) fn submit(&self, submission: Submission) -> Verdict {
        let uid = submission.about.owner.uid;
        let job = Desc::of_submission(submission);
        let told = json!({
            "operation": "submit",
            "uid": uid,
            "job": object(job.all()),
            "environment": environment(&job),
            "partitions": self.told(),
        });
        let mut verdict = Verdict::default();
        self.decide(&told, job, &mut verdict).map_or_else(
            |problem| self.fault(&problem),
            |job| {
                job.conclude(None, &mut verdict);
                verdict
            },
        )
    }

    /// Filters a change of a job.
    pub(crate) fn modify(&self, modification: Modification) -> Verdict {
        let (uid, asked) = (modification.modify_uid, modification.change.clone());
        let (job, record) = Desc::of_modification(modification);
        let told = json!({
            "operation": "modify",
            "uid": uid,
            "job": object(job.all()),
            "record": object(record.all()),
            "partitions": self.told(),
        });
        let mut verdict = Verdict::default();
        self.decide(&told, job, &mut verdict).map_or_else(
            |problem| self.fault(&problem),
            |job| {
                job.conclude(Some(asked), &mut verdict);
                verdict
            },
        )
    }

    fn told(&self) -> Json {
        let one = |config: &PartitionConfig| (config.name.clone(), object(partitions::fields(config).into_iter()));
        Json::Object(self.partitions.iter().map(one).collect())
    }

    fn fault(&self, problem: &str) -> Verdict {
        let message = format!("{}: {problem}", self.path);
        Verdict { error: 1, log: vec![(0, message.clone())], message, ..Verdict::default() }
    }

    /// Runs the program on a job, and applies what it returns. An error number in the verdict refuses the job.
    fn decide(&self, told: &Json, mut job: Desc, verdict: &mut Verdict) -> Result<Desc, String> {
        let (output, messages, good) = self.run(told).map_err(|e| e.to_string())?;
        let lines = messages.lines().filter(|line| !line.is_empty());
        if !good {
            (verdict.error, verdict.message) = (1, messages.trim().to_owned());
            return Ok(Desc::default());
        }
        verdict.log = lines.map(|line| (1, line.to_owned())).collect();
        if output.trim_ascii().is_empty() {
            return Ok(job);
        }
        let said: Json = serde_json::from_slice(&output).map_err(|e| format!("its output is no JSON: {e}"))?;
        said.get("message").and_then(Json::as_str).unwrap_or_default().clone_into(&mut verdict.message);
        match said.get("error") {
            None | Some(Json::Null | Json::Bool(false)) => {}
            Some(error) => {
                verdict.error = error.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
                if let Some(text) = error.as_str() {
                    text.clone_into(&mut verdict.message);
                }
            }
        }
        if verdict.error != 0 {
            return Ok(Desc::default());
        }
        let fields = said.get("job").and_then(Json::as_object).into_iter().flatten();
        // Lists, such as `argv`, are only read.
        for (name, value) in fields.filter(|(_, value)| !value.is_array()) {
            let set = of_json(value).ok_or("a text or a number is needed".to_owned());
            job.set(name, &set.map_err(|problem| format!("{name}: {problem}"))?)?;
        }
        for (name, value) in said.get("environment").and_then(Json::as_object).into_iter().flatten() {
            job.set_variable(name.as_bytes(), value.as_str().unwrap_or_default().as_bytes())?;
        }
        Ok(job)
    }

    /// Runs the program. Returns its output and messages, and whether it succeeded.
    fn run(&self, told: &Json) -> io::Result<(Vec<u8>, String, bool)> {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let mut child = command.spawn()?;
        let (Some(mut input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("it has no pipes"));
        };
        let text = serde_json::to_vec(told)?;
        let read = |from: Box<dyn Read + Send>, most| {
            move || {
                let mut bytes = Vec::new();
                // What is left of an output that breaks off is no JSON, which is noticed.
                drop(from.take(most).read_to_end(&mut bytes));
                bytes
            }
        };
        let output = std::thread::spawn(read(Box::new(output), OUTPUT_BYTES_MAX));
        let errors = std::thread::spawn(read(Box::new(errors), MESSAGE_BYTES_MAX));
        // A program that does not read its input knows what it wants.
        drop(input.write_all(&text));
        drop(input);
        let lost = |_| io::Error::other("its output can't be read");
        let (output, errors) = (output.join().map_err(lost)?, errors.join().map_err(lost)?);
        let good = child.wait()?.success();
        Ok((output, String::from_utf8_lossy(&errors).into_owned(), good))
    }
}

/// Returns fields as an object. Numbers that stand for none are left out.
pub(crate) fn object(fields: impl Iterator<Item = (&'static str, Value)>) -> Json {
    let json = |value| match value {
        // The fields min_mem_per_cpu and min_mem_per_node have what is a large number.
        Value::Nil | Value::Int(NO_VAL | NO_VAL16) | Value::Large(_) => None,
        Value::Int(number) => Some(json!(number)),
        Value::Text(text) => Some(json!(String::from_utf8_lossy(&text))),
        Value::List(all) => Some(json!(all)),
    };
    Json::Object(fields.filter_map(|(name, value)| Some((name.to_owned(), json(value)?))).collect())
}

fn environment(job: &Desc) -> Json {
    let entries = job.env.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let pair = |entry: std::borrow::Cow<'_, str>| {
        entry.split_once('=').map(|(name, value)| (name.to_owned(), Json::from(value)))
    };
    Json::Object(entries.filter_map(pair).collect::<Map<_, _>>())
}

/// Returns a value of JSON for a field. None: it is no text and no number.
pub(crate) fn of_json(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => Value::Text(Vec::new()),
        Json::Bool(on) => Value::Int((*on).into()),
        Json::String(text) => Value::Text(text.as_bytes().to_vec()),
        Json::Number(number) => number.as_i64().map(Value::Int)?,
        Json::Array(_) | Json::Object(_) => return None,
    })
}
