//! Blocks for a job without segments: no border of a block is crossed that the job could avoid.

use std::ops::Range;

use super::segments::best_fit;

/// What a block has for a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Number of candidates: nodes that can take tasks of the job now.
    pub(super) nodes: usize,
    /// Number of tasks that these can take.
    pub(super) tasks: u64,
    /// Number of nodes that are up and that the job may use, whatever runs on them.
    pub(super) all: usize,
}

/// What a job needs of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    /// Number of nodes.
    pub(super) nodes: usize,
    /// Number of tasks; 0: it asked for nodes.
    pub(super) tasks: u64,
    /// Whether the job waits for as few blocks as can hold it. Otherwise the smallest combination of blocks counts that has
    /// room now.
    pub(super) firm: bool,
}

/// Returns the blocks for a job, in the order of use: as in Slurm those of the smallest aggregated block that can hold the
/// job, of several the one with the fewest candidates, and in it as few of the next smaller ones as can hold it. `sizes`:
/// number of nodes of a base block, and of each aggregated one. None: the job must wait.
pub(super) fn choose(offers: &[Offer], sizes: &[u32], needed: Needed) -> Option<Vec<usize>> {
    let base = sizes.first().copied().unwrap_or(1).max(1);
    let mut spans: Vec<usize> = sizes.iter().map(|size| (size / base) as usize).collect();
    spans.push(offers.len().max(1));
    let holds = |run: Range<usize>| offers[run].iter().map(|offer| offer.all).sum::<usize>() >= needed.nodes;
    let level = spans.iter().position(|span| runs(0..offers.len(), *span).any(holds)).filter(|_| needed.firm);
    let levels = level.map_or(0..spans.len(), |level| level..level + 1);
    levels.into_iter().find_map(|level| {
        let part = if level == 0 { 1 } else { spans[level - 1] };
        let roomy = runs(0..offers.len(), spans[level]).filter(|run| has_room(offers, run, part, needed));
        let best = roomy.min_by_key(|run| (nodes_in(offers, run), run.start))?;
        Some(ordered(offers, &best, part, needed.nodes))
    })
}

/// Cuts a run of blocks into runs of `span` blocks.
fn runs(of: Range<usize>, span: usize) -> impl Iterator<Item = Range<usize>> {
    let end = of.end;
    of.step_by(span.max(1)).map(move |from| from..(from + span.max(1)).min(end))
}

fn nodes_in(offers: &[Offer], run: &Range<usize>) -> usize {
    offers[run.clone()].iter().map(|offer| offer.nodes).sum()
}

/// Returns whether a job fits in a run of blocks now. A firm one gets no more parts (runs of `part` blocks) than
/// can hold it.
fn has_room(offers: &[Offer], run: &Range<usize>, part: usize, needed: Needed) -> bool {
    let tasks: u64 = offers[run.clone()].iter().map(|offer| offer.tasks).sum();
    if nodes_in(offers, run) < needed.nodes || tasks < needed.tasks {
        return false;
    }
    let most = |count: fn(&Offer) -> usize| {
        let mut parts: Vec<usize> = runs(run.clone(), part).map(|part| offers[part].iter().map(count).sum()).collect();
        parts.sort_unstable_by(|a, b| b.cmp(a));
        let sums = parts.iter().scan(0, |sum, nodes| {
            let before = *sum;
            *sum += nodes;
            Some(before)
        });
        sums.take_while(|before| *before < needed.nodes).count()
    };
    !needed.firm || most(|offer| offer.nodes) <= most(|offer| offer.all)
}

/// Returns the blocks of a run in an order that uses few parts, and few blocks of each.
fn ordered(offers: &[Offer], run: &Range<usize>, part: usize, nodes: usize) -> Vec<usize> {
    let parts: Vec<Range<usize>> = runs(run.clone(), part).collect();
    let roomy = parts.iter().enumerate().map(|(at, part)| (at, nodes_in(offers, part)));
    let mut left = nodes;
    let mut order = Vec::new();
    for at in best_fit(roomy.filter(|(_, nodes)| *nodes > 0).collect(), nodes) {
        let blocks = parts[at].clone().map(|block| (block, offers[block].nodes)).filter(|(_, nodes)| *nodes > 0);
        order.extend(best_fit(blocks.collect(), left));
        left = left.saturating_sub(nodes_in(offers, &parts[at]));
    }
    order
}
