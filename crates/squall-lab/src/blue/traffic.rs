//! Traffic of jobs over links, and the slowdown of a job by other jobs' traffic.

use squall_sched::torus::{Frame, Link, route};

use super::workload::{APPLICATIONS, Job, Pattern, QUIET};
use squall_sim::Seed;

/// Number of partners of each router in the all-to-all pattern.
const PARTNERS: usize = 6;

/// Greatest slowdown. The talk on Blue Waters saw no job run longer than this many times its run time alone. Without
/// the limit, traffic of a large job could keep a job of two routers between prisms for half a day.
const SLOWEST: f64 = 4.0;

/// Loads of all links of the torus by the traffic of running jobs, indexed by router, axis and direction.
#[derive(Debug)]
pub(super) struct Traffic {
    links: usize,
    total: Vec<f32>,
    /// Whether applications have more communication patterns than halo and all-to-all.
    patterns: bool,
}

/// Traffic of one job: the links that it uses, each with the load that the job adds, divided by the link's weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    links: Vec<(u32, f32)>,
    /// Load of the job's most loaded link.
    worst: f32,
    /// Load of the job's most loaded link if the job had the widest prism.
    ideal: f32,
}

impl Traffic {
    pub(super) fn new(frame: &Frame, patterns: bool) -> Self {
        let links = frame.axes().len() * 2;
        Self { patterns, links, total: vec![0.0; frame.cells() * links] }
    }

    /// Returns the traffic of a job on these routers, which are in the order of its ranks.
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
        let mut random = Seed::new(job.number.into());
        match APPLICATIONS[job.application].pattern(self.patterns) {
            Pattern::Halo => halo(n, 3, &mut send),
            Pattern::Halo4 => halo(n, 4, &mut send),
            Pattern::All => {
                for at in 0..n {
                    (0..PARTNERS / 2).for_each(|_| send(at, random.below(n as u64) as usize));
                }
            }
            Pattern::Random => {
                // Pairs of neighbours in a shuffled list.
                let mut list: Vec<usize> = (0..n).collect();
                (1..n).rev().for_each(|at| list.swap(at, random.below(at as u64 + 1) as usize));
                list.chunks_exact(2).for_each(|pair| send(pair[0], pair[1]));
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
        // A job that sends little is not slower for that. Its load is scaled to what the link would carry at full
        // traffic.
        let worst = found.iter().map(|(_, load)| *load).fold(0.0, f32::max) / scale;
        Share { links: found, worst, ideal: worst }
    }

    pub(super) fn add(&mut self, share: &Share) {
        share.links.iter().for_each(|(link, load)| self.total[*link as usize] += load);
    }
    pub(super) fn remove(&mut self, share: &Share) {
        share.links.iter().for_each(|(link, load)| self.total[*link as usize] -= load);
    }

    /// Returns a job's slowdown compared with running alone in the widest prism, and compared with running alone on
    /// the same nodes. Communication time grows with the load of the job's most loaded link.
    pub(super) fn stretch(&self, job: &Job, share: &Share) -> (f64, f64) {
        if share.worst <= 0.0 {
            return (1.0, 1.0);
        }
        let most = share.links.iter().map(|(link, _)| self.total[*link as usize]).fold(share.worst, f32::max);
        let fraction = job.fraction();
        let longer = |alone: f32| (1.0 - fraction + fraction * f64::from(most / alone).max(1.0)).min(SLOWEST);
        // A job on a single router sends nothing over links.
        let ideal = if share.ideal > 0.0 { share.ideal.min(share.worst) } else { share.worst };
        (longer(ideal), longer(share.worst))
    }

    /// Returns [`Self::share`], with the load that the job would have on the routers of the widest prism.
    pub(super) fn share_beside(&self, frame: &Frame, job: &Job, cells: &[usize], ideal: &[usize]) -> Share {
        let mut share = self.share(frame, job, cells);
        share.ideal = self.share(frame, job, ideal).worst;
        share
    }
}

/// Passes each pair of communicating ranks to `send`: every rank sends to the next one along each dimension of a grid
/// with sides that are about equal.
fn halo(n: usize, dimensions: i32, send: &mut impl FnMut(usize, usize)) {
    let side = (n as f64).powf(f64::from(dimensions).recip()).ceil() as usize;
    for stride in (0..dimensions as u32).map(|dimension| side.pow(dimension)) {
        (0..n.saturating_sub(stride)).for_each(|at| send(at, at + stride));
    }
}

#[cfg(test)]
mod tests {
    use squall_sched::torus::Frame;

    use super::super::workload::{APPLICATIONS, Job, Pattern};
    use super::Traffic;

    #[test]
    fn every_application_loads_links_in_its_own_pattern() {
        let frame = Frame::blue_waters(false);
        let traffic = Traffic::new(&frame, true);
        let cells: Vec<usize> = (0..64).collect();
        let of = |pattern: Pattern| {
            let application = APPLICATIONS.iter().position(|one| one.other == pattern).unwrap();
            let job = Job { number: 1, nodes: 128, run_s: 1.0, estimate_s: 1, application, sensitive: true };
            traffic.share(&frame, &job, &cells).links.iter().map(|(_, load)| f64::from(*load)).sum::<f64>()
        };
        let sums = [Pattern::Halo, Pattern::Halo4, Pattern::All, Pattern::Random].map(of);
        // A permutation has 32 pairs. All-to-all has six times as many messages; halos have more messages over short
        // routes.
        assert!(sums.iter().all(|sum| *sum > 0.0) && sums[3] < sums[2], "{sums:?}");
        let two = [sums[0], sums[1]];
        assert!((two[0] - two[1]).abs() > 1.0, "{sums:?}");
    }
}
