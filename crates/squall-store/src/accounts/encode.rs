//! Encodes states, outcomes and requests for database columns.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use squall_model::encoding::{self, Decoded, Encoded};
use squall_model::job::{EndState, JobSpec, JobState};

/// Encodes a state as a number and, for a cancelled job, the id of the user who cancelled it (None for other states).
pub(super) fn state_columns(state: JobState) -> (i64, Option<u32>) {
    let end = |end: EndState| match end {
        EndState::Completed => (0, None),
        EndState::Failed => (1, None),
        EndState::Cancelled { by } => (2, Some(by)),
        EndState::Timeout => (3, None),
        EndState::NodeFail => (4, None),
        EndState::OutOfMemory => (5, None),
        EndState::Preempted => (6, None),
        EndState::Deadline => (7, None),
        EndState::BootFail => (8, None),
        EndState::Requeued => (9, None),
    };
    match state {
        JobState::Pending => (0, None),
        JobState::Running | JobState::Configuring => (1, None),
        JobState::Suspended => (2, None),
        JobState::Completing(how) => (200 + end(how).0, end(how).1),
        JobState::Ended(how) => (100 + end(how).0, end(how).1),
    }
}

/// Decodes what [`state_columns`] has encoded. None: unknown number.
pub(super) fn state_of(number: i64, by: Option<u32>) -> Option<JobState> {
    let how = match number % 100 {
        0 => EndState::Completed,
        1 => EndState::Failed,
        2 => EndState::Cancelled { by: by.unwrap_or_default() },
        3 => EndState::Timeout,
        4 => EndState::NodeFail,
        5 => EndState::OutOfMemory,
        6 => EndState::Preempted,
        7 => EndState::Deadline,
        8 => EndState::BootFail,
        9 => EndState::Requeued,
        _ => return None,
    };
    match number {
        0 => Some(JobState::Pending),
        1 => Some(JobState::Running),
        2 => Some(JobState::Suspended),
        100..200 => Some(JobState::Ended(how)),
        200..300 => Some(JobState::Completing(how)),
        _ => None,
    }
}

/// Returns the number of CPUs that a job requests.
pub(super) fn req_cpus(spec: &JobSpec) -> u32 {
    let nodes = spec.need.nodes_min.unwrap_or(1);
    let tasks = spec.need.tasks_on(nodes).saturating_mul(spec.need.task_cpus());
    tasks.max(nodes.saturating_mul(spec.need.cpus_min.unwrap_or(1)))
}

/// A column value encoded by [`squall_model::encoding`].
#[derive(Clone, Debug)]
pub(super) struct Packed<T>(pub(super) T);

impl<T: Encoded> ToSql for Packed<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(encoding::to_vec(&self.0).into())
    }
}

impl<T: Decoded> FromSql for Packed<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        encoding::from_slice(value.as_blob()?).map(Self).map_err(|e| FromSqlError::Other(e.into()))
    }
}

/// A number in the table of single values. A server has only byte strings there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(pub(super) i64);

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.into())
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Blob(bytes) => {
                bytes.try_into().map(|bytes| Self(i64::from_be_bytes(bytes))).map_err(|_| FromSqlError::InvalidType)
            }
            value => value.as_i64().map(Self),
        }
    }
}
