//! Errors and warnings in answers over HTTP, with Slurm's numbers, and the status of the answer.
//!
//! The status is that of slurmrestd where it distinguishes (400, 401, 404, 415). Elsewhere slurmrestd answers 500. What
//! the request is to blame for has a status of 4xx here, because clients repeat what failed with 5xx.

use serde_json::{Value, json};
use squall_model::wire::client::Refusal;

use crate::refusal;

/// Errors and warnings of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Why the request was not carried out. Empty: it was.
    pub errors: Vec<Problem>,
    /// What the request contains without effect.
    pub warnings: Vec<Warning>,
}

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status of the answer.
    pub status: u16,
    /// Slurm's number of the error.
    pub number: u32,
    /// Slurm's text for that number.
    pub error: String,
    /// What is wrong, and what would be right.
    pub description: String,
    /// Where it is wrong: a field of the request, or the name of the operation.
    pub source: String,
}

/// Something in a request that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What has no effect, and why.
    pub description: String,
    /// The field of the request.
    pub source: String,
}

impl Notes {
    /// Returns notes with one error.
    pub fn of(problem: Problem) -> Self {
        Self { errors: vec![problem], warnings: Vec::new() }
    }

    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        self.errors.first().map_or(200, |problem| problem.status)
    }
}

impl Problem {
    /// Returns the problem of a request that the controller refused.
    pub fn of(refusal: &Refusal, source: &str) -> Self {
        let (row, error) = (refusal::row_of(refusal), refusal::text(refusal));
        let description = refusal::detail(refusal).unwrap_or_else(|| error.clone());
        Self { status: row.status, number: row.number, error, description, source: source.to_owned() }
    }

    /// Returns the problem of a body or query that can't be read; `source` names the field.
    pub fn malformed(source: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(400, 9001, "Failure during parsing", source, description)
    }

    /// Returns the problem of a field that Squall can't obey, and that would change the result.
    pub fn not_done(source: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(501, 2036, "Requested operation not supported on this system", source, description)
    }

    /// Returns the problem of a request for a thing that does not exist, such as `node n7`.
    pub fn not_found(source: impl Into<String>, what: &str) -> Self {
        Self::new(404, 9003, "Nothing found with query", source, format!("{what} does not exist"))
    }

    /// Returns the problem of a request without a valid token.
    pub fn unauthenticated(description: impl Into<String>) -> Self {
        Self::new(401, 1007, "Protocol authentication error", "", description)
    }

    /// Returns the problem of a controller that does not answer.
    pub fn away(description: impl Into<String>) -> Self {
        Self::new(503, 1800, "Unable to contact slurm controller (connect failure)", "", description)
    }

    fn new(status: u16, number: u32, error: &str, source: impl Into<String>, description: impl Into<String>) -> Self {
        Self { status, number, error: error.to_owned(), description: description.into(), source: source.into() }
    }

    /// Returns the problem with `place` before the field that it names, as `job` before `nodes`.
    #[must_use]
    pub fn below(mut self, place: &str) -> Self {
        self.source = path(place, &self.source);
        self
    }

    /// Returns the JSON of the problem.
    pub fn json(&self) -> Value {
        json!({
            "description": self.description, "error_number": self.number, "error": self.error, "source": self.source,
        })
    }
}

impl Warning {
    /// Returns a warning about a field.
    pub fn new(source: impl Into<String>, description: impl Into<String>) -> Self {
        Self { description: description.into(), source: source.into() }
    }

    /// Returns the JSON of the warning.
    pub fn json(&self) -> Value {
        json!({"description": self.description, "source": self.source})
    }
}

/// Returns the path of a field within another, as `job.nodes`.
pub fn path(place: &str, field: &str) -> String {
    match (place, field) {
        ("", field) => field.to_owned(),
        (place, "") => place.to_owned(),
        (place, field) => format!("{place}.{field}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use squall_model::wire::client::Refusal;

    use super::{Notes, Problem};

    #[test]
    fn refusals_have_slurms_numbers() {
        let unknown = Problem::of(&Refusal::InvalidJobId, "job_id");
        let said = json!({
            "description": "Invalid job id specified", "error_number": 2017, "error": "Invalid job id specified",
            "source": "job_id",
        });
        assert_eq!((unknown.status, unknown.json()), (404, said));
        let denied = Problem::of(&Refusal::AccessDenied, "");
        assert_eq!((denied.status, denied.number), (403, 2002));
        let value = Refusal::InvalidValue { option: "time".into(), value: "x".into(), problem: "too long".into() };
        let bad = Problem::of(&value, "job.time_limit");
        assert_eq!((bad.status, bad.number, bad.description.as_str()), (400, 2051, "--time=x: too long"));
        assert_eq!((Notes::default().status(), Notes::of(bad).status()), (200, 400));
    }
}
