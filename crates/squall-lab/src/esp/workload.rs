//! The Effective System Performance workload: number, width, run time, order and submission times of its jobs. Pure.
//!
//! It is ESP-2 of suite 2.2.1, and its light variant with a twelfth of the run times, in the suite's exact submission
//! order.

/// A type of job: its letter, share of the machine, number of jobs, and run times in ESP-2 and Light-ESP in seconds.
struct JobType {
    letter: char,
    fraction: f64,
    count: u32,
    full_s: u32,
    light_s: u32,
}

const fn kind(letter: char, fraction: f64, count: u32, full_s: u32, light_s: u32) -> JobType {
    JobType { letter, fraction, count, full_s, light_s }
}

const KINDS: [JobType; 14] = [
    kind('A', 0.03125, 75, 267, 22),
    kind('B', 0.06250, 9, 322, 27),
    kind('C', 0.50000, 3, 534, 45),
    kind('D', 0.25000, 3, 616, 51),
    kind('E', 0.50000, 3, 315, 26),
    kind('F', 0.06250, 9, 1846, 154),
    kind('G', 0.12500, 6, 1334, 111),
    kind('H', 0.15820, 6, 1067, 89),
    kind('I', 0.03125, 24, 1432, 119),
    kind('J', 0.06250, 24, 725, 60),
    kind('K', 0.09570, 15, 487, 41),
    kind('L', 0.12500, 36, 366, 30),
    kind('M', 0.25000, 15, 187, 15),
    kind('Z', 1.00000, 2, 100, 10),
];

/// Seed of the suite's random generator.
const SEED: u64 = 142;
/// Multiplier of the suite's random generator.
const MULTIPLIER: u64 = 3_476_221;
/// Modulus of the suite's random generator.
const ORDER_MODULUS: u64 = 1_000_000;
/// Number of jobs that are submitted one second apart, before the random gaps begin.
const FIRST_JOBS: usize = 50;

/// Variant of the ESP suite, which determines the run times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Light-ESP, with a twelfth of ESP-2's run times.
    Light,
    /// ESP-2, with the full run times.
    Full,
}

/// The machine for which the workload is made, and the submission times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setup {
    pub(crate) variant: Variant,
    pub(crate) nodes: u32,
    /// Number of cores of each node.
    pub(crate) cores: u32,
    /// Mean time between submissions after the first 50, seconds; 0: all jobs are submitted at once.
    pub(crate) interval_s: u32,
    /// Number by which the times between submissions are divided.
    pub(crate) compress: f64,
    /// Whether the two jobs that take the whole machine are omitted (throughput mode).
    pub(crate) throughput: bool,
}

/// A job of the workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// The suite's name of the job: type, tasks, number.
    pub(crate) name: String,
    pub(crate) letter: char,
    /// Share of the machine that the job takes, from 0 to 1.
    pub(crate) fraction: f64,
    pub(crate) tasks: u32,
    pub(crate) nodes: u32,
    pub(crate) run_s: u32,
    /// Time of submission, seconds after the first one.
    pub(crate) submit_s: f64,
}

impl Job {
    /// Returns whether the job takes the whole machine: from its submission until its end no other may start.
    pub(crate) fn is_full(&self) -> bool {
        self.letter == 'Z'
    }
}

/// Returns all jobs in the order of their submission.
pub(crate) fn workload(setup: &Setup) -> Vec<Job> {
    let mut jobs = shuffled(regular(setup));
    let gaps = gaps(setup.interval_s, jobs.len().saturating_sub(FIRST_JOBS));
    let mut at = 0.0;
    for (index, job) in jobs.iter_mut().enumerate() {
        job.submit_s = at;
        let gap = match index.checked_sub(FIRST_JOBS - 1) {
            _ if setup.interval_s == 0 => 0,
            None => 1,
            Some(drawn) => gaps.get(drawn).copied().unwrap_or(0),
        };
        at += f64::from(gap) / setup.compress;
    }
    let last_s = jobs.last().map_or(0.0, |job| job.submit_s);
    if !setup.throughput {
        let due = if setup.variant == Variant::Light { [200.0, 600.0] } else { [2400.0, 7200.0] };
        // Jobs for the whole machine follow the regular ones.
        jobs.extend(full(setup).into_iter().zip(due).map(|(job, due)| Job { submit_s: last_s.max(due), ..job }));
    }
    jobs
}

/// Returns the seconds that the jobs would take on a machine that is always fully used: the sum of share times run
/// time.
pub(crate) fn ideal_s(jobs: &[Job]) -> f64 {
    jobs.iter().map(|job| job.fraction * f64::from(job.run_s)).sum()
}

/// Returns the number of reports of job ends that the controller must count: each job ends once on each of its nodes.
pub(crate) fn node_epilogs(jobs: &[Job]) -> u64 {
    jobs.iter().map(|job| u64::from(job.nodes)).sum()
}

/// Returns the jobs without type Z, sorted by name: by type, then by number.
fn regular(setup: &Setup) -> Vec<Job> {
    KINDS[..KINDS.len() - 1].iter().flat_map(|kind| of_kind(setup, kind)).collect()
}

fn full(setup: &Setup) -> Vec<Job> {
    of_kind(setup, &KINDS[KINDS.len() - 1]).collect()
}

fn of_kind<'a>(setup: &Setup, kind: &'a JobType) -> impl Iterator<Item = Job> + use<'a> {
    let tasks = (kind.fraction * f64::from(setup.nodes) * f64::from(setup.cores) + 0.5) as u32;
    let nodes = tasks.div_ceil(setup.cores).max(1);
    let run_s = if setup.variant == Variant::Light { kind.light_s } else { kind.full_s };
    (1..=kind.count).map(move |number| Job {
        name: format!("{}_{tasks:04}_{number:03}", kind.letter),
        letter: kind.letter,
        fraction: kind.fraction,
        tasks: tasks.max(1),
        nodes,
        run_s,
        submit_s: 0.0,
    })
}

/// Shuffles jobs into the order that every run of the suite has: the next is drawn from those left.
fn shuffled(mut jobs: Vec<Job>) -> Vec<Job> {
    let mut x = SEED;
    let mut order = Vec::with_capacity(jobs.len());
    while !jobs.is_empty() {
        x = (MULTIPLIER * x + 1) % ORDER_MODULUS;
        let place = x as usize % jobs.len();
        order.push(jobs.remove(place));
    }
    order
}

/// Returns the seconds between submissions. Each is the sum of twelve draws, so nearly normal, with this mean and a
/// sixth of it as standard deviation.
fn gaps(mean_s: u32, count: usize) -> Vec<u32> {
    let modulus = u64::from(mean_s) * 1000;
    let mut y = SEED;
    let mut draw = || {
        y = (MULTIPLIER * y + 1).checked_rem(modulus).unwrap_or(0);
        y
    };
    (0..count).map(|_| ((0..12).map(|_| draw()).sum::<u64>() / 6000) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::{Setup, Variant, full, gaps, ideal_s, node_epilogs, regular, shuffled, workload};

    const LIGHT: Setup =
        Setup { variant: Variant::Light, nodes: 10_080, cores: 16, interval_s: 30, compress: 1.0, throughput: false };

    /// Letters of the jobs' types in the order of submission, as the suite prints it.
    const ORDER: &str = "AAAIIBAJFJLIAEAIAAAKLLAALDBFAAKJKALHAABMLAAJAFBIAKALKIIAMLAAAIMEAAIGBLFBLAGLAADAGLIALAAKALLHLLIA\
                         AICIJALGBFAALGAJMALLLAALAAJLJAIJILLMAIJIFJLIALAAKFIAJLJIAAAMLJAMGKKCBLBLAMIAAHAHCAAJAAHDJALJFMKA\
                         LKJAJAIMAKAAMMALJMKIEJJMMKAAIALHKFJJ";

    #[test]
    fn the_order_is_the_suites() {
        let order: String = shuffled(regular(&LIGHT)).iter().map(|job| job.letter).collect();
        assert_eq!(order, ORDER);
    }

    #[test]
    fn each_job_ends_once_on_each_of_its_nodes() {
        for (nodes, ends) in [(5040, 115_245), (10_080, 230_370), (10_000, 228_584), (16_384, 374_432)] {
            let jobs = workload(&Setup { nodes, ..LIGHT });
            assert_eq!((jobs.len(), node_epilogs(&jobs)), (230, ends), "{nodes} nodes");
        }
    }

    #[test]
    fn ideal_times_are_the_sums_of_the_table() {
        let light = ideal_s(&workload(&LIGHT));
        assert!((light - 915.2).abs() < 0.05, "{light}");
        let full = ideal_s(&workload(&Setup { variant: Variant::Full, ..LIGHT }));
        assert!((full - 11_003.0).abs() < 0.5, "{full}");
        let throughput = ideal_s(&workload(&Setup { variant: Variant::Full, throughput: true, ..LIGHT }));
        assert!((throughput - 10_803.0).abs() < 0.5, "{throughput}");
    }

    #[test]
    fn gaps_are_the_suites() {
        let gaps = gaps(30, 178);
        assert_eq!((gaps.iter().sum(), gaps.iter().min(), gaps.iter().max()), (5168, Some(&13), Some(&44)));
    }

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn jobs_come_as_in_the_suite() {
        let jobs = workload(&LIGHT);
        let at = |index: usize| jobs[index].submit_s;
        assert_eq!((at(0), at(1), at(49), at(50)), (0.0, 1.0, 49.0, 85.0));
        assert_eq!(at(227), 49.0 + 5168.0);
        assert!(jobs[228].is_full() && at(228) == at(227), "Z is due by then and goes out at once");
        let fast = workload(&Setup { compress: 10.0, ..LIGHT });
        assert!((fast[227].submit_s - 521.7).abs() < 1e-6);
        assert_eq!((fast[228].submit_s, fast[229].submit_s), (fast[227].submit_s, 600.0));
        let burst = workload(&Setup { interval_s: 0, ..LIGHT });
        assert_eq!((burst[227].submit_s, burst[228].submit_s, burst[229].submit_s), (0.0, 200.0, 600.0));
        let throughput = workload(&Setup { interval_s: 0, throughput: true, ..LIGHT });
        assert_eq!((throughput.len(), throughput.iter().filter(|job| job.is_full()).count()), (228, 0));
    }

    #[test]
    fn tasks_are_rounded_as_the_suite_rounds() {
        let jobs = regular(&LIGHT);
        let of = |letter| jobs.iter().find(|job| job.letter == letter).map(|job| (job.tasks, job.nodes)).unwrap();
        assert_eq!((of('A'), of('H'), of('K')), ((5040, 315), (25_514, 1595), (15_434, 965)));
        assert_eq!((full(&LIGHT)[0].tasks, full(&LIGHT)[0].nodes), (161_280, 10_080));
        assert_eq!(jobs[0].name, "A_5040_001");
    }
}
