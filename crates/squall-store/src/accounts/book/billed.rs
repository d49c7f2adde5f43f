//! What jobs were billed by the weights of their partitions. Jobs without a row were billed for their CPUs.

use rusqlite::params;
use squall_model::billing::{Billing, Held, billing};
use squall_model::gres;
use squall_model::id::{Attempt, JobId};
use squall_model::job::JobSpec;
use squall_model::license;
use squall_model::resource::Memory;

use super::{Book, SqlResult};

/// SQL that makes the table; databases of earlier versions get it when they are opened.
pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS billed (
    job INTEGER NOT NULL, attempt INTEGER NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
";

impl Book {
    /// Stores what a run of a job is billed from now on.
    pub(super) fn set_billed(&self, job: JobId, attempt: Attempt, billing: Billing) -> SqlResult {
        self.put_billed(job, i64::from(attempt.0), billing)
    }

    /// Stores what a run of a job was billed, by the number of its attempt as it is stored.
    pub(in crate::accounts) fn put_billed(&self, job: JobId, attempt: i64, billing: Billing) -> SqlResult {
        let sql = "INSERT INTO billed (job, attempt, amount) VALUES (?1, ?2, ?3)
            ON CONFLICT (job, attempt) DO UPDATE SET amount = excluded.amount";
        let amount = i64::try_from(billing.0).unwrap_or(i64::MAX);
        self.db.write(sql, params![job.0, attempt, amount])
    }

    /// Returns what a run of a job was billed, by the number of its attempt as it is stored. None: for its CPUs.
    pub(in crate::accounts) fn billed(&self, job: JobId, attempt: i64) -> rusqlite::Result<Option<Billing>> {
        let sql = "SELECT amount FROM billed WHERE job = ?1 AND attempt = ?2";
        let amount = self.db.one(sql, params![job.0, attempt], |r| r.get::<i64>(0))?;
        Ok(amount.map(|amount| Billing(amount as u64)))
    }

    /// Returns what a job would be billed now for what it requests. None: for its CPUs.
    pub(in crate::accounts) fn would_bill(&self, partition: &str, spec: &JobSpec, cpus: u32) -> Option<Billing> {
        let partition = partition.split(',').next().unwrap_or_default();
        let weights = self.config.partitions.iter().find(|known| known.name == partition)?;
        let weights = Some(&weights.tres_billing_weights).filter(|weights| !weights.is_empty())?;
        let nodes = spec.need.nodes_min.unwrap_or(1).max(1);
        let asked = gres::Ask::of_job(spec).map(|asked| asked.kinds(nodes, spec.need.tasks_on(nodes)));
        let licenses = spec.need.licenses.as_deref().and_then(license::parse);
        let (cpus, nodes) = (u64::from(cpus), u64::from(nodes));
        let memory_mb = match spec.need.memory {
            Memory::Unset => 0,
            Memory::PerNodeMb(mb) => mb.saturating_mul(nodes),
            Memory::PerCpuMb(mb) => mb.saturating_mul(cpus),
        };
        let gres = asked.as_deref().unwrap_or_default();
        let held = Held { cpus, memory_mb, nodes, gres, licenses: licenses.as_ref() };
        Some(billing(&held, weights, self.config.priority_flags.combine))
    }
}
