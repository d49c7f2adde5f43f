//! Writes records, many in one transaction.

use squall_model::event::{Event, Record};

use super::{Book, DRAFTS_MAX, Recent, SqlResult, is_of_the_event};
use crate::accounts::encode::Number;
use crate::accounts::tables::Tables;

impl Book {
    /// Stores records in one transaction; those already stored are skipped.
    pub(in crate::accounts) fn store<'a>(&mut self, records: impl Iterator<Item = &'a Record> + Clone) -> SqlResult {
        match self.try_store(records.clone()) {
            // A server gives up a transaction as a whole: once more, with a way back from each event.
            Err(error) if self.db.is_served() && is_of_the_event(&error) => {
                self.db.go_carefully(true);
                let result = self.try_store(records);
                self.db.go_carefully(false);
                result
            }
            result => result,
        }
    }

    fn try_store<'a>(&mut self, records: impl Iterator<Item = &'a Record> + Clone) -> SqlResult {
        self.db.run("BEGIN")?;
        let result = self.write_records(records).and_then(|()| self.db.run("COMMIT"));
        if result.is_err() {
            // A failed commit may have rolled back already.
            drop(self.db.run("ROLLBACK"));
            self.recent = Recent::default();
            self.load()?;
        }
        result
    }

    fn write_records<'a>(&mut self, records: impl Iterator<Item = &'a Record> + Clone) -> SqlResult {
        self.go_on()?;
        let (before, mut now) = (self.position, None);
        if let Tables::Server(session) = &self.db {
            let events = records.clone().filter(|r| r.seq > before).flat_map(|r| &r.events);
            session.look_up(events.filter_map(|event| match event {
                Event::JobSubmitted { spec, .. } => Some(&**spec),
                _ => None,
            }))?;
        }
        records.filter(|r| r.seq > before).try_for_each(|record| {
            now = Some(record.time);
            for event in &record.events {
                self.part(&format_args!("record {}", record.seq), |book| book.event(record, event))?;
            }
            self.position = record.seq;
            if self.recent.drafts.len() >= DRAFTS_MAX { self.write_drafts() } else { Ok(()) }
        })?;
        self.finish(now)
    }

    /// Keeps other controllers of the cluster from writing until the transaction ends, and goes on after what they have
    /// written. Only a server has others.
    fn go_on(&mut self) -> SqlResult {
        if !self.db.is_served() {
            return Ok(());
        }
        let sql = "SELECT value FROM meta WHERE key = 'position' FOR UPDATE";
        let at = self.db.one(sql, &[], |r| r.get::<Number>(0))?.map_or(0, |seq| seq.0 as u64);
        if at == self.position {
            return Ok(());
        }
        self.recent = Recent::default();
        self.load()
    }

    /// Writes what belongs to one event or job. If that fails by its own fault, it is left out.
    pub(super) fn part(
        &mut self,
        name: &dyn std::fmt::Display,
        write: impl FnOnce(&mut Self) -> SqlResult,
    ) -> SqlResult {
        self.db.begin_part()?;
        match write(self).and_then(|()| self.db.end_part()) {
            Err(error) if is_of_the_event(&error) && self.db.undo_part()? => {
                // Their rows may have been undone, too.
                (self.recent.owner, self.recent.spec) = (None, None);
                tracing::error!(%error, "accounting skips {name}");
                Ok(())
            }
            result => result,
        }
    }
}
