//! A rehearsal: what a filter would make of a job that is described in JSON (`squall check --submit`).

use std::fmt::Write as _;

use serde_json::Value as Json;
use squall_model::job::{JobSpec, Owner};
use squall_model::wire::filter::{About, Submission, Verdict};

use crate::desc::{Desc, Value};
use crate::program::{object, of_json};
use crate::serve::Filter;

/// Levels of lines for the controller's log.
const LEVELS: [&str; 3] = ["error", "info", "debug"];

/// Filters a job that is described in JSON, as programs get it: `{"job": {"partition": "gpu", "time_limit": 60}}`. Returns
/// what the filter makes of it, for users, and whether it accepts the job. The error says what is wrong with the JSON.
pub fn rehearse(filter: &mut Filter, text: &str, owner: Owner) -> Result<(String, bool), String> {
    let submission = submission(text, owner)?;
    let before = submission.clone();
    let verdict = filter.submit(submission);
    Ok((report(before, &verdict), verdict.error == 0))
}

/// Returns the submission that a text describes.
fn submission(text: &str, owner: Owner) -> Result<Submission, String> {
    let given: Json = serde_json::from_str(text).map_err(|e| format!("it is no JSON: {e}"))?;
    let fields = given.get("job").unwrap_or(&given).as_object().ok_or("`job` is no object")?;
    let spec = JobSpec { name: "check".to_owned(), work_dir: "/".to_owned(), ..JobSpec::default() };
    let script = b"#!/bin/sh\n".to_vec().into();
    let about = About { owner, ..About::default() };
    let mut job = Desc::of_submission(Submission { spec, script, about, ..Submission::default() });
    for (name, value) in fields {
        let value = of_json(value).ok_or_else(|| format!("{name}: a text or a number is needed"))?;
        let (text, number) = match &value {
            Value::Text(text) => (Some(String::from_utf8_lossy(text).into_owned()), None),
            Value::Int(number) => (None, u32::try_from(*number).ok()),
            _ => (None, None),
        };
        match (name.as_str(), text, number) {
            ("user_name", Some(user), _) => job.about.owner.user = user,
            ("user_id", _, Some(uid)) => job.about.owner.uid = uid,
            ("group_id", _, Some(gid)) => job.about.owner.gid = gid,
            ("default_account", account, _) => job.about.account = account,
            ("default_qos", qos, _) => job.about.qos = qos,
            ("assoc_qos", allowed, _) => job.about.allowed_qos = allowed,
            ("alloc_node", Some(host), _) => job.spec.submit_host = host,
            _ => job.set(name, &value)?,
        }
    }
    for (name, value) in given.get("environment").and_then(Json::as_object).into_iter().flatten() {
        job.set_variable(name.as_bytes(), value.as_str().unwrap_or_default().as_bytes())?;
    }
    let Desc { spec, script, env, about, component, immediate, .. } = job;
    Ok(Submission { spec, script, env, about, component, immediate })
}

/// Writes what a filter has made of a job.
fn report(before: Submission, verdict: &Verdict) -> String {
    let mut text = String::new();
    for (level, line) in &verdict.log {
        let _ = writeln!(text, "log ({}): {line}", LEVELS.get(*level as usize).unwrap_or(&"debug"));
    }
    for line in verdict.message.lines() {
        let _ = writeln!(text, "user: {line}");
    }
    let mut after = before.clone();
    if let Some(spec) = &verdict.spec {
        after.spec = JobSpec::clone(spec);
    }
    after.script = verdict.script.clone().unwrap_or(after.script);
    let (before, after) = (Desc::of_submission(before), Desc::of_submission(after));
    for name in &verdict.changed {
        let shown = |job: &Desc| {
            let shown = object(job.all().filter(|(field, _)| field == name));
            shown.get(name).map_or_else(|| "unset".to_owned(), Json::to_string)
        };
        let _ = match name.as_str() {
            "environment" | "script" => writeln!(text, "changed: {name}"),
            _ => writeln!(text, "changed: {name}: {} -> {}", shown(&before), shown(&after)),
        };
    }
    let _ = match verdict.error {
        0 => writeln!(text, "accepted"),
        number => writeln!(text, "refused (error {number})"),
    };
    text
}
