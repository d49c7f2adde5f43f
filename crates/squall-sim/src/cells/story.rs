//! Scenarios of cells and their front: scripted simulations written as text.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::JobId;
use squall_model::job::{Dependency, DependencyKind};
use squall_model::time::Span;

use super::client::{CellRequest, Client, after, single};
use super::{Happening, World};
use crate::scenario::parse::{ParseError, span};
use crate::scenario::run::StoryFailure;

/// Time after a scenario's end within which all requests must be answered.
const PATIENCE: Span = Span::from_secs(600);

/// Returns whether a text is a scenario (a scripted simulation) of cells: its first line begins with `cells N`.
pub(crate) fn is_meant(text: &str) -> bool {
    lines(text).next().is_some_and(|(_, words)| words[0] == "cells")
}

fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let words: Vec<&str> = line.split('#').next()?.split_whitespace().collect();
        (!words.is_empty()).then_some((at + 1, words))
    })
}

/// Runs a scenario. At its end all faults are healed, and all requests must be answered.
pub(crate) fn tell(text: &str) -> Result<(), StoryFailure> {
    let mut world = None;
    for (line, words) in lines(text) {
        let failed = |problem: String, world: Option<&World>| {
            let trace = world.map(|world| world.trace.clone()).unwrap_or_default();
            StoryFailure { trace, ..StoryFailure::from(ParseError { line, problem }) }
        };
        if let ["cells", count] = words[..] {
            world = Some(begin(count).map_err(|problem| failed(problem, None))?);
            continue;
        }
        let Some(world) = world.as_mut() else { return Err(failed("a story begins with `cells`".to_owned(), None)) };
        let done = world.carry_out(&words);
        let broken = world.judge.violation.as_ref().map(ToString::to_string);
        if let Some(problem) = done.err().or(broken) {
            return Err(failed(problem, Some(world)));
        }
    }
    let Some(mut world) = world else { return Ok(()) };
    world.heal();
    world.look(0);
    world.run_until(world.now + PATIENCE);
    world.close();
    let end = world.judge.violation.take().map(|violation| violation.to_string());
    end.map_or(Ok(()), |problem| Err(StoryFailure { line: 0, problem, trace: world.trace }))
}

fn begin(count: &str) -> Result<World, String> {
    let mut world = World::new(number(count)?, None, 1);
    world.clients = (0..3).map(|_| Client::default()).collect();
    world.run_until(world.now + Span::from_secs(1));
    Ok(world)
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

impl World {
    fn look(&mut self, client: usize) {
        self.ask(
            client,
            CellRequest::List { promised: BTreeSet::new(), seen: BTreeSet::new(), absent: BTreeSet::new() },
        );
    }

    fn submit_all(&mut self, count: u32, after: Option<&Dependency>) {
        for number in 0..count as usize {
            self.submit(number % self.clients.len(), "job", after.cloned());
        }
    }

    /// Returns the last acknowledged job of each cell.
    fn last_of_each(&self) -> Vec<JobId> {
        let last: BTreeMap<u32, JobId> = self.judge.promised.iter().map(|job| (job.cell(), *job)).collect();
        last.into_values().collect()
    }

    fn carry_out(&mut self, words: &[&str]) -> Result<(), String> {
        let cell = |text: &str| number(text).ok().filter(|cell| self.cells.contains_key(cell)).ok_or("no such cell");
        match *words {
            ["submit", count] => self.submit_all(number(count)?, None),
            ["submit", count, "after", "last"] => {
                let last = self.judge.promised.last().map(|job| (DependencyKind::AfterAny, *job));
                self.submit_all(number(count)?, Some(&after(last, false)));
            }
            ["submit", count, "after", "each"] => {
                let each = self.last_of_each().into_iter().map(|job| (DependencyKind::AfterAny, job));
                self.submit_all(number(count)?, Some(&after(each, false)));
            }
            ["submit", count, "single"] => self.submit_all(number(count)?, Some(&single())),
            ["list"] => self.look(0),
            ["crash", "front"] => self.crash_front(),
            ["restart", "front"] => self.front_starts(),
            ["crash", "cell", which] => self.crash_cell(cell(which)?),
            ["restart", "cell", which] => {
                let cell = cell(which)?;
                self.after(Span(0), Happening::CellStarts { cell });
            }
            ["stop", "cell", which, "for", time] => {
                let (cell, time) = (cell(which)?, span(time)?);
                self.stop_cell(cell, time);
            }
            ["run", time] => self.run_until(self.now + span(time)?),
            ["expect", "accepted", count] => return expect("accepted", number(count)? as usize, self.judge.count()),
            ["expect", "ended", count] => return expect("ended", number(count)? as usize, self.judge.ended()),
            ["expect", "acknowledged", count] => {
                return expect("acknowledged", number(count)? as usize, self.judge.promised.len());
            }
            ["expect", "cells", count] => {
                let cells: BTreeSet<u32> = self.judge.promised.iter().map(|job| job.cell()).collect();
                return expect("cells with jobs", number(count)? as usize, cells.len());
            }
            ["expect", "partial", "lists", count] => {
                let partial: u32 = self.clients.iter().map(|client| client.partial).sum();
                return expect("partial lists", number(count)? as usize, partial as usize);
            }
            _ => return Err(format!("`{}` is not a statement", words.join(" "))),
        }
        Ok(())
    }
}

fn expect(what: &str, wanted: usize, found: usize) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("{what}: {found}, not {wanted}")) }
}
