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
        let error = refusal::text(refusal);
        let description = refusal::detail(refusal).unwrap_or_else(|| error.clone());
        Self { status: status(refusal), number: number(refusal), error, description, source: source.to_owned() }
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

fn status(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::InvalidJobId | Refusal::InvalidStepId => 404,
        Refusal::BadToken(_) => 401,
        Refusal::AccessDenied | Refusal::HeldByAdmin | Refusal::NotFrom(..) | Refusal::ReservationAccess(_) => 403,
        Refusal::Held
        | Refusal::AlreadyDone
        | Refusal::NotPending
        | Refusal::NotRunning
        | Refusal::WrongState(_)
        | Refusal::KeyReused
        | Refusal::Busy
        | Refusal::PartitionDown(_)
        | Refusal::NodeNotAvailable
        | Refusal::Revoked
        | Refusal::Stale
        | Refusal::PartitionBusy(_)
        | Refusal::ReservationBusy(_)
        | Refusal::ReservationOverlap(_) => 409,
        Refusal::NotSupported(_) => 501,
        Refusal::QueueFull(_)
        | Refusal::DiskFull
        | Refusal::CellAway(_)
        | Refusal::NoLeader(_)
        | Refusal::OutOfIds
        | Refusal::ShuttingDown => 503,
        _ => 400,
    }
}

/// Number of an invalid argument in the C library, which Slurm uses, too.
const EINVAL: u32 = 22;

/// Returns Slurm's number for a refusal (its `slurm_errno`).
fn number(refusal: &Refusal) -> u32 {
    match refusal {
        Refusal::InvalidPartition(name) if !name.is_empty() => 2000,
        Refusal::InvalidPartition(_) => 2001,
        Refusal::BadToken(_) => 1007,
        Refusal::AccessDenied | Refusal::HeldByAdmin | Refusal::NotFrom(..) => 2002,
        Refusal::TooManyRequested(what) => match what.as_str() {
            "nodes" => 2006,
            "memory" => 2044,
            _ => 2005,
        },
        Refusal::OutOfIds => 2007,
        Refusal::KeyReused => 2011,
        Refusal::TooLarge(..) => 2012,
        Refusal::NodeConfigNotAvailable(_) => 2014,
        Refusal::Busy => 2016,
        Refusal::InvalidJobId | Refusal::InvalidStepId => 2017,
        Refusal::InvalidNode(_) => 2018,
        Refusal::DiskFull => 2019,
        Refusal::WrongState(_) | Refusal::Stale => 2020,
        Refusal::AlreadyDone => 2021,
        Refusal::NotSupported(_) => 2036,
        Refusal::NotRequeueable => 2037,
        Refusal::DependencyProblem => 2038,
        Refusal::Held => 2042,
        Refusal::InvalidAccount(_) => 2045,
        Refusal::QueueFull(_) | Refusal::Limit(..) => 2050,
        Refusal::ReservationAccess(_) => 2052,
        Refusal::ReservationInvalid(_) => 2053,
        Refusal::ReservationBusy(_) => 2055,
        Refusal::ReservationOverlap(_) => 2058,
        Refusal::InvalidQos(_) => 2066,
        Refusal::NodeNotAvailable => 2068,
        Refusal::PartitionNotAvailable(_) => 2070,
        Refusal::NotPending => 2073,
        Refusal::PartitionBusy(_) => 2075,
        Refusal::ArrayTooLarge { .. } | Refusal::HetArray => 2081,
        Refusal::Revoked => 2084,
        Refusal::MixedTypes(_) => 2118,
        Refusal::NotRunning => 2085,
        Refusal::PartitionDown(_) => 2101,
        Refusal::CellAway(_) | Refusal::NoLeader(_) => 1800,
        Refusal::ShuttingDown => 1803,
        Refusal::InvalidValue { option, .. } => invalid_value(option),
        Refusal::Contradiction(..) => EINVAL,
    }
}

fn invalid_value(option: &str) -> u32 {
    match option {
        "nodes" => 2006,
        "nodelist" | "exclude" => 2018,
        "ntasks" => 2025,
        "constraint" => 2029,
        "active-features" => 2031,
        "dependency" => 2038,
        "licenses" => 2048,
        "time" | "TimeLimit" | "deadline" => 2051,
        "reservation" => 2053,
        "begin" => 2054,
        "cpus-per-task" => 2069,
        "gres" | "gpus" | "gpus-per-node" | "gpus-per-socket" | "gpus-per-task" => 2072,
        "array" => 2081,
        "nice" => 2123,
        "time-min" => 2124,
        "prefer" => 2133,
        _ => EINVAL,
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
