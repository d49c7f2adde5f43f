//! Bodies that change the records of jobs in accounting, as `sacctmgr modify job` does.

use serde_json::Value;
use squall_model::wire::client::JobRef;

use super::body::{self, Parsed, integer, list};
use super::change::job_id;
use crate::shapes::problem::path;
use crate::shapes::{Problem, Warning};

/// Names of fields of a job's record, from [`squall_model::wire::history::RECORDED`], with new values.
pub type Values = Vec<(String, String)>;

/// Fields of a body, and their names in the record.
const TEXTS: [(&str, &str); 5] = [
    ("/comment/administrator", "admin-comment"),
    ("/comment/job", "comment"),
    ("/comment/system", "system-comment"),
    ("/extra", "extra"),
    ("/wckey", "wckey"),
];

/// Returns the changes of the body of `job/{job_id}`.
pub fn values(given: &Value) -> Result<Parsed<Values>, Problem> {
    let (body, warnings) = read("job_modify", given)?;
    Ok(Parsed { value: changes(&body, "")?, warnings })
}

/// Returns the jobs of the body of `jobs`, and their changes.
pub fn jobs(given: &Value) -> Result<Parsed<(Vec<JobRef>, Values)>, Problem> {
    let (body, warnings) = read("openapi_job_modify_req", given)?;
    let ids = list(&body, "job_id_list").unwrap_or_default();
    if ids.is_empty() {
        return Err(Problem { number: 2017, ..Problem::malformed("job_id_list", "No job is named") });
    }
    let below = |problem: Problem| Problem { source: "job_id_list".into(), ..problem };
    let jobs = ids.iter().map(|id| job_id(id).map_err(below)).collect::<Result<_, _>>()?;
    let values = changes(body.get("job_rec").unwrap_or(&Value::Null), "job_rec")?;
    Ok(Parsed { value: (jobs, values), warnings })
}

fn read(name: &str, given: &Value) -> Result<(Value, Vec<Warning>), Problem> {
    if !given.is_object() {
        return Err(Problem::malformed("", "The body is not an object"));
    }
    let mut warnings = Vec::new();
    let body = body::read(body::shape(name), given, "", &mut warnings)?;
    Ok((body, warnings))
}

fn changes(record: &Value, place: &str) -> Result<Values, Problem> {
    let held = record.pointer("/tres/allocated").and_then(Value::as_array);
    if held.is_some_and(|held| !held.is_empty()) {
        return Err(Problem::not_done(path(place, "tres.allocated"), "What a job held was measured, and stays"));
    }
    let text = |at: &str| record.pointer(at).and_then(Value::as_str).map(str::to_owned);
    let mut values: Values = TEXTS.iter().filter_map(|(at, name)| Some(((*name).to_owned(), text(at)?))).collect();
    if let Some(exit) = record.get("derived_exit_code") {
        let here = path(place, "derived_exit_code");
        let code: Option<u8> = integer(exit, "return_code", &here)?;
        let signal: Option<u8> = match exit.get("signal") {
            Some(signal) => integer(signal, "id", &path(&here, "signal"))?,
            None => None,
        };
        if code.is_some() || signal.is_some() {
            let text = format!("{}:{}", code.unwrap_or(0), signal.unwrap_or(0));
            values.push(("derived-exit-code".to_owned(), text));
        }
    }
    if values.is_empty() { Err(Problem::malformed(place, "No changes specified")) } else { Ok(values) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use squall_model::wire::history::RECORDED;

    use super::{TEXTS, jobs, values};

    #[test]
    fn records_of_jobs_are_changed() {
        let given = json!({
            "comment": {"job": "good", "administrator": ""}, "derived_exit_code": {"return_code": {"number": 3}},
        });
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = [pair("admin-comment", ""), pair("comment", "good"), pair("derived-exit-code", "3:0")];
        assert_eq!(values(&given).unwrap().value, all);
        let (ids, same) = jobs(&json!({"job_id_list": "7,8_1", "job_rec": given})).unwrap().value;
        assert_eq!((ids.len(), same), (2, all.into()));
        assert!(TEXTS.iter().all(|(_, name)| RECORDED.contains(name)));
    }

    #[test]
    fn what_can_not_be_changed_is_refused() {
        let held = json!({"job_id_list": ["7"], "job_rec": {"tres": {"allocated": [{"type": "cpu", "count": 3}]}}});
        let refused = jobs(&held).unwrap_err();
        assert_eq!((refused.status, refused.source.as_str()), (501, "job_rec.tres.allocated"));
        assert_eq!(values(&json!({})).unwrap_err().description, "No changes specified");
        assert_eq!(values(&json!({"derived_exit_code": {"return_code": 256}})).unwrap_err().status, 400);
        assert_eq!(jobs(&json!({"job_rec": {"extra": "x"}})).unwrap_err().number, 2017);
        assert_eq!(jobs(&json!({"job_id_list": ["x"], "job_rec": {"extra": "x"}})).unwrap_err().source, "job_id_list");
    }
}
