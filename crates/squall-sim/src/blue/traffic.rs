//! What jobs send over links, and how much slower they are for what others send there.

use squall_sched::torus::{Frame, Link, route};

use super::workload::{APPLICATIONS, Job, Pattern, QUIET};
use crate::Seed;

/// Partners of each router where everybody talks with everybody.
const PARTNERS: usize = 6;

/// No job was seen to run longer than so many times as alone (the talk), so none does here. Without this a job of two
/// routers would stand between prisms for half a day because a large one's traffic goes by.
const SLOWEST: f64 = 4.0;

/// Loads of links, by router, axis and direction.
#[derive(Debug)]
pub(super) struct Traffic {
    links: usize,
    total: Vec<f32>,
}

/// What one job sends: link and load by its weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    links: Vec<(u32, f32)>,
    /// Its most loaded link.
    worst: f32,
    /// What that would be in the widest prism.
    ideal: f32,
}

impl Traffic {
    pub(super) fn new(frame: &Frame) -> Self {
        let links = frame.axes().len() * 2;
        Self { links, total: vec![0.0; frame.cells() * links] }
    }

    /// What a job on these routers, in the order of its ranks, sends.
    pub(super) fn share(&self, frame: &Frame, job: &Job, cells: &[usize]) -> Share {
        let mut found: Vec<(u32, f32)> = Vec::new();
        let scale = if job.is_quiet() { QUIET as f32 } else { 1.0 };
        let mut send = |a: usize, b: usize| {
            for (from, to) in [(a, b), (b, a)] {
                route(frame, cells[from], cells[to], (a + b).is_multiple_of(2), |link: Link| {
                    let at = link.cell * self.links + link.axis * 2 + usize::from(link.up);
                    found.push((at as u32, scale / frame.axes()[link.axis].weight as f32));
                });
            }
        };
        let n = cells.len();
        match APPLICATIONS[job.application].pattern {
            Pattern::Halo => {
                let side = (n as f64).cbrt().ceil() as usize;
                for stride in [1, side, side * side] {
                    (0..n.saturating_sub(stride)).for_each(|at| send(at, at + stride));
                }
            }
            Pattern::All => {
                let mut random = Seed::new(job.number.into());
                for at in 0..n {
                    (0..PARTNERS / 2).for_each(|_| send(at, random.below(n as u64) as usize));
                }
            }
        }
        found.sort_unstable_by_key(|(link, _)| *link);
        found.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        // Who sends little is not slower for that: what counts is what a link would carry if it sent like others.
        let worst = found.iter().map(|(_, load)| *load).fold(0.0, f32::max) / scale;
        Share { links: found, worst, ideal: worst }
    }

    pub(super) fn add(&mut self, share: &Share) {
        share.links.iter().for_each(|(link, load)| self.total[*link as usize] += load);
    }
    pub(super) fn remove(&mut self, share: &Share) {
        share.links.iter().for_each(|(link, load)| self.total[*link as usize] -= load);
    }

    /// How much longer a job runs than in the widest prism with no others, and than alone on the same nodes: its
    /// communication takes as much longer as the most loaded of its links carries more.
    pub(super) fn stretch(&self, job: &Job, share: &Share) -> (f64, f64) {
        if share.worst <= 0.0 {
            return (1.0, 1.0);
        }
        let most = share.links.iter().map(|(link, _)| self.total[*link as usize]).fold(share.worst, f32::max);
        let fraction = job.fraction();
        let longer = |alone: f32| (1.0 - fraction + fraction * f64::from(most / alone).max(1.0)).min(SLOWEST);
        // Within a single router nothing is sent over links.
        let ideal = if share.ideal > 0.0 { share.ideal.min(share.worst) } else { share.worst };
        (longer(ideal), longer(share.worst))
    }

    /// [`Self::share`], with what it would be on the routers of the widest prism.
    pub(super) fn share_beside(&self, frame: &Frame, job: &Job, cells: &[usize], ideal: &[usize]) -> Share {
        let mut share = self.share(frame, job, cells);
        share.ideal = self.share(frame, job, ideal).worst;
        share
    }
}
