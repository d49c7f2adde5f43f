//! Changes of the rows of running jobs.

use rusqlite::params;
use squall_model::gang::Shift;
use squall_model::id::{Attempt, JobId};
use squall_model::resource::Alloc;
use squall_model::time::Time;

use super::{Book, SqlResult};

impl Book {
    /// Changes the row of a job that has given back nodes: it shows the remaining allocation only.
    pub(super) fn shrunk(&mut self, id: JobId, attempt: Attempt, alloc: &Alloc) -> SqlResult {
        let (nodes, names) = (alloc.nodes(), self.names(&alloc.nodes()));
        let sql =
            "UPDATE jobs SET nodes = ?3, num_nodes = ?4, num_cpus = ?5, memory_mb = ?6 WHERE id = ?1 AND attempt = ?2";
        let values = params![id.0, attempt.0, names, nodes.len() as i64, alloc.cpus(), alloc.memory_mb() as i64];
        self.db.write(sql, values)
    }

    /// Changes the row of a job that has got a node for a failed one. Its end then takes one release more, unless the node
    /// was a spare of the job.
    pub(super) fn node_replaced(&mut self, id: JobId, attempt: Attempt, alloc: &Alloc) -> SqlResult {
        let sql = "UPDATE jobs SET left = left + ?3 - num_nodes WHERE id = ?1 AND attempt = ?2";
        self.db.write(sql, params![id.0, attempt.0, alloc.nodes().len() as i64])?;
        self.shrunk(id, attempt, alloc)
    }

    /// Changes the rows of a job that waited for nodes to be powered up: its time begins now.
    pub(super) fn awake(&mut self, time: Time, id: JobId, attempt: Attempt) -> SqlResult {
        for sql in [
            "UPDATE jobs SET start = ?3 WHERE id = ?1 AND attempt = ?2 AND latest",
            "UPDATE steps SET start = ?3 WHERE job = ?1 AND attempt = ?2",
        ] {
            self.db.write(sql, params![id.0, attempt.0, time.0 as i64])?;
        }
        Ok(())
    }

    pub(super) fn suspended(&self, time: Time, id: JobId, suspended: bool) -> SqlResult {
        let sql = if suspended {
            "UPDATE jobs SET state = 2, suspended_since = ?2
             WHERE id = ?1 AND latest AND state IN (1, 2) AND suspended_since IS NULL"
        } else {
            "UPDATE jobs SET state = 1, suspended = suspended + ?2 - coalesce(suspended_since, ?2), suspended_since = NULL
             WHERE id = ?1 AND latest AND state = 2 AND suspended_since IS NOT NULL"
        };
        self.db.write(sql, params![id.0, time.0 as i64])
    }

    /// Counts a gang-scheduled job's time outside its slots as suspended. A job without any slot is suspended.
    pub(super) fn shifted(&self, shift: &Shift) -> SqlResult {
        let sql = "UPDATE jobs SET suspended = suspended + ?2,
            state = CASE WHEN state NOT IN (1, 2) THEN state WHEN ?3 OR suspended_since IS NOT NULL THEN 2 ELSE 1 END
            WHERE id = ?1 AND latest";
        let values = params![shift.job.0, shift.idle.0 as i64, shift.turn.mask == 0];
        self.db.write(sql, values)
    }
}
