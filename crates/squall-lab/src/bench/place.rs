//! `bench place`: time to find every free prism for a job on a torus; and a check that jobs share no link.

use std::time::Instant;

use serde_json::{Value, json};
use squall_sched::torus::{
    Ask, Axis, Board, Chooser, Fits, Frame, Link, Placed, Prism, Shape, Sums, count_corners, route,
};
use squall_sim::Seed;

use super::{BenchOptions, Finding, round};

/// Number of placements that are timed on each torus.
const PLACEMENTS: usize = 400;
/// Number of repetitions of each timed placement; the quickest counts.
const REPEATS: u32 = 3;
/// Number of routers without usable nodes, as many as on Blue Waters.
const HOLES: u32 = 108;
/// Number of allocations checked by default.
const ALLOCATIONS: u64 = 1_000_000;
/// Slack, percent: shapes with up to this many more routers than needed are searched, too.
const SLACK: u32 = 10;
/// Target for the search on a torus of 24 x 24 x 24 routers, microseconds.
const BAR_24_US: f64 = 300.0;
/// Target for the search on a torus of 64 x 64 x 64 routers, microseconds.
const BAR_64_US: f64 = 5000.0;
/// Maximum number of pairs of a job's routers between which messages are routed.
const PAIRS: usize = 96;

/// Returns the 99th percentile of the search time on a torus of 24 x 24 x 24.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let mut random = Seed::new(24);
    let (small, small_rows) = timed(&Frame::blue_waters(false), HOLES, &mut random);
    let large = Frame::torus(&[64, 64, 64]).map_err(|e| e.to_string())?;
    let (large, large_rows) = timed(&large, HOLES, &mut random);
    let allocations = options.jobs.unwrap_or(ALLOCATIONS);
    let (messages, shared) = check(allocations, &mut random)?;
    let row = |name: &str, times: &Times, bar: Option<f64>| json!({ "what": name, "p50_us": round(times.at(0.5)), "p99_us": round(times.at(0.99)), "bar_us": bar });
    let rows: Vec<Value> = vec![
        row("24^3, all legal shapes", &small, Some(BAR_24_US)),
        row("24^3, the choice among them", &small_rows, None),
        row("64^3, all legal shapes", &large, Some(BAR_64_US)),
        row("64^3, the choice among them", &large_rows, None),
    ];
    let fields = vec![
        ("holes", json!(HOLES)),
        ("slack_percent", json!(SLACK)),
        ("placements", Value::Array(rows)),
        ("large_p99_us", json!(round(large.at(0.99)))),
        ("allocations", json!(allocations)),
        ("messages_routed", json!(messages)),
        ("links_shared", json!(shared)),
    ];
    Ok(Finding {
        bench: "place",
        figure: round(small.at(0.99)),
        unit: "us at the 99th percentile",
        limit: Some((BAR_24_US, "the bar")),
        fields,
    })
}

/// Durations in ascending order, microseconds.
struct Times(Vec<f64>);

impl Times {
    fn new(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }
    fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

/// Times the search and the choice of prisms on a torus with holes while it fills up and empties; both in microseconds.
fn timed(frame: &Frame, holes: u32, random: &mut Seed) -> (Times, Times) {
    let mut board = Board::new(frame.clone());
    let mut sums = Sums::default();
    let mut lacking = vec![0; frame.cells()];
    for _ in 0..holes {
        let cell = random.below(frame.cells() as u64) as usize;
        lacking[cell] = frame.per_router() as i32;
        board.retire(cell, frame.per_router());
    }
    let mut chooser = Chooser::new(frame);
    let mut fits = Fits::default();
    let mut running: Vec<Prism> = Vec::new();
    let (mut searches, mut choices) = (Vec::new(), Vec::new());
    for _ in 0..PLACEMENTS {
        let nodes = random.spread(1, frame.cells() as u64 * u64::from(frame.per_router()) / 4) as u32;
        let shapes = chooser
            .shapes()
            .between(nodes.div_ceil(frame.per_router()), (nodes + nodes * SLACK / 100).div_ceil(frame.per_router()));
        searches.push(quickest(|| {
            sums.build(frame, lacking.iter().copied());
            std::hint::black_box(search(&mut fits, &board, &shapes));
        }));
        let mut placed = None;
        choices.push(quickest(|| {
            chooser.renew();
            placed = chooser.prism(&board, &Ask { nodes, geometry: None, end: 0 });
        }));
        turn_over(&mut board, &mut running, placed, random);
    }
    (Times::new(searches), Times::new(choices))
}

/// Returns the microseconds of the quickest of several runs, so that interruptions by other processes don't count.
fn quickest(mut work: impl FnMut()) -> f64 {
    let times = (0..REPEATS).map(|_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1e6
    });
    times.fold(f64::MAX, f64::min)
}

/// Counts the free prisms of all shapes.
fn search(fits: &mut Fits, board: &Board, shapes: &[Shape]) -> u32 {
    fits.renew();
    let mut count = 0;
    for shape in shapes {
        count += count_corners(fits.anchors(board.frame(), board.open(), &shape.size));
    }
    count
}

/// Marks the prism of a placed job as used. Ends random jobs: some after every placement, more if there was no place
/// (`placed` None).
fn turn_over(board: &mut Board, running: &mut Vec<Prism>, placed: Option<Placed>, random: &mut Seed) {
    let full = placed.is_none();
    if let Some(placed) = placed {
        board.close(&placed.prism, 1 + random.below(10_000) as u32);
        running.push(placed.prism);
    }
    while !running.is_empty() && (random.below(4) == 0 || (full && random.below(3) != 0)) {
        let at = random.below(running.len() as u64) as usize;
        board.reopen(&running.swap_remove(at));
    }
}

/// Allocates and frees prisms on small and large tori, and routes messages between the routers of every job. Returns
/// the number of messages, and the number of links that two jobs used at the same time.
fn check(allocations: u64, random: &mut Seed) -> Result<(u64, u64), String> {
    let axis = |extent, weight, wrap| Axis { extent, wrap, weight };
    let frames = [
        Frame::new(vec![axis(8, 2, true), axis(6, 1, true), axis(7, 2, true)], 2, false),
        Frame::new(vec![axis(5, 1, true), axis(9, 1, false), axis(12, 1, true)], 1, false),
        Frame::new(vec![axis(4, 1, true), axis(3, 1, true), axis(4, 1, true), axis(5, 1, true)], 1, false),
        Frame::new(vec![axis(16, 1, true), axis(10, 1, true)], 1, false),
    ];
    let (mut messages, mut shared) = (0, 0);
    for frame in frames {
        let frame = frame.map_err(|e| e.to_string())?;
        let mut links = Owners { owner: vec![0; frame.cells() * frame.axes().len() * 2], ..Owners::default() };
        let mut board = Board::new(frame.clone());
        for _ in 0..frame.cells() / 50 {
            board.retire(random.below(frame.cells() as u64) as usize, 1);
        }
        let mut chooser = Chooser::new(&frame);
        let mut running: Vec<(Prism, Vec<usize>)> = Vec::new();
        let mut placed = 0;
        while placed < allocations.div_ceil(4) {
            let nodes = random.spread(1, board.usable_nodes() / 3) as u32;
            let found = chooser.prism(&board, &Ask { nodes, geometry: None, end: 1 });
            if let Some(found) = found {
                placed += 1;
                board.close(&found.prism, 1);
                let used = links.book(&frame, &found.prism, placed as u32, random);
                running.push((found.prism, used));
            }
            while !running.is_empty() && (found.is_none() || random.below(8) == 0) {
                let (prism, used) = running.swap_remove(random.below(running.len() as u64) as usize);
                for at in used {
                    links.owner[at] = 0;
                }
                board.reopen(&prism);
                chooser.renew();
                if random.below(2) == 0 {
                    break;
                }
            }
        }
        messages += links.messages;
        shared += links.shared;
    }
    Ok((messages, shared))
}

/// Job that uses each link of a torus, with counts of routed messages and of links shared by jobs.
#[derive(Default)]
struct Owners {
    owner: Vec<u32>,
    messages: u64,
    shared: u64,
}

impl Owners {
    /// Routes messages between the routers of a job; returns the links used.
    fn book(&mut self, frame: &Frame, prism: &Prism, job: u32, random: &mut Seed) -> Vec<usize> {
        let volume = prism.volume();
        let mut used = Vec::new();
        let all = volume * volume <= PAIRS;
        for at in 0..(volume * volume).min(PAIRS) {
            let (from, to) = if all {
                (at / volume, at % volume)
            } else {
                (random.below(volume as u64) as usize, random.below(volume as u64) as usize)
            };
            let (from, to) = (frame.cell(&prism.place(from)), frame.cell(&prism.place(to)));
            self.messages += 1;
            route(frame, from, to, random.below(2) == 0, |link: Link| {
                let at = (link.cell * frame.axes().len() + link.axis) * 2 + usize::from(link.up);
                if self.owner[at] != job {
                    self.shared += u64::from(self.owner[at] != 0);
                    self.owner[at] = job;
                    used.push(at);
                }
            });
        }
        used
    }
}
