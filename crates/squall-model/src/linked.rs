//! The choice among free devices of a node: those that are well connected with each other.

use crate::set::CoreSet;

/// A free device that a job may get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device<'a> {
    /// Index of the device among those of its name on the node.
    pub(crate) index: usize,
    /// Number that devices have in common which are equal in all that follows.
    pub(crate) kind: usize,
    /// Number of links to each device of the node, -1 in the device's own place. Empty: there are none.
    pub(crate) links: &'a [i32],
    /// Cores near the device. Empty: all cores are equally near.
    pub(crate) cores: &'a CoreSet,
    /// Whether it is near CPUs that the job can get.
    pub(crate) near: bool,
}

/// How well connected a set of devices is; greater is better: the number of links between any two of them, then how
/// many are near CPUs of the job, then the number of pairs that are near the same cores.
type Score = (u32, u32, u32);

/// Chooses `count` of these devices, and fewer only if there are fewer: the best connected ones, and among equals the
/// first. The choice is grown from each device in turn by the one that adds most, which finds the best set where links
/// form groups, as they do in machines.
pub(crate) fn choose(free: &[Device<'_>], count: usize) -> Vec<usize> {
    let first = || free.iter().take(count).map(|device| device.index).collect();
    let plain = |device: &Device<'_>| device.links.is_empty() && device.cores.is_empty();
    let alike = free.iter().all(plain) || free.windows(2).all(|pair| pair[0].kind == pair[1].kind);
    if count < 2 || count >= free.len() || alike {
        return first();
    }
    let mut best: Option<(Score, Vec<usize>)> = None;
    // Devices of one kind are equal.
    let seeds = (0..free.len()).filter(|at| *at == 0 || free[at - 1].kind != free[*at].kind);
    for seed in seeds {
        let (score, set) = grown(free, seed, count);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, set));
        }
    }
    best.map_or_else(first, |(_, set)| set.into_iter().map(|at| free[at].index).collect())
}

/// Returns a set of `count` devices that contains the one at `seed`, as positions in `free`, and its score.
fn grown(free: &[Device<'_>], seed: usize, count: usize) -> (Score, Vec<usize>) {
    let mut set = vec![seed];
    let mut taken = vec![false; free.len()];
    taken[seed] = true;
    let mut score = gain(free, &[], seed);
    // What each of the others would add to the score.
    let mut gains: Vec<Score> = (0..free.len()).map(|at| gain(free, &set, at)).collect();
    while set.len() < count {
        let others = (0..free.len()).filter(|at| !taken[*at]);
        let Some(next) = others.rev().max_by_key(|at| gains[*at]) else { break };
        score = sum(score, gains[next]);
        for (at, gain) in gains.iter_mut().enumerate() {
            *gain = sum(*gain, pair(&free[at], &free[next]));
        }
        set.push(next);
        taken[next] = true;
    }
    (score, set)
}

/// Returns what a device adds to the score of a set.
fn gain(free: &[Device<'_>], set: &[usize], at: usize) -> Score {
    let alone = (0, u32::from(free[at].near), 0);
    set.iter().fold(alone, |all, other| sum(all, pair(&free[at], &free[*other])))
}

fn sum(one: Score, other: Score) -> Score {
    (one.0 + other.0, one.1 + other.1, one.2 + other.2)
}

/// Returns what two devices add to the score of a set if it contains both.
fn pair(one: &Device<'_>, other: &Device<'_>) -> Score {
    let together = !one.cores.is_empty() && one.cores == other.cores;
    (links(one.links, other.links).max(links(other.links, one.links)), 0, u32::from(together))
}

/// Returns the number of links from one device to another. Each device's list has -1 in its own place.
fn links(from: &[i32], to: &[i32]) -> u32 {
    let place = to.iter().position(|links| *links == -1);
    let count = place.and_then(|place| from.get(place)).copied().unwrap_or(0);
    u32::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Device, choose};
    use crate::set::CoreSet;

    type All = Vec<(Vec<i32>, CoreSet)>;

    /// Devices of which each has the links of one row, and the cores of one list.
    fn kinds(rows: &[Vec<i32>], cores: &[&[usize]]) -> All {
        rows.iter().cloned().zip(cores.iter().map(|cores| cores.iter().copied().collect())).collect()
    }

    fn chosen(all: &All, free: &[usize], near: &[usize], count: usize) -> Vec<usize> {
        let device = |&index: &usize| {
            let (links, cores) = &all[index];
            Device { index, kind: index, links, cores, near: near.contains(&index) }
        };
        let mut set = choose(&free.iter().map(device).collect::<Vec<_>>(), count);
        set.sort_unstable();
        set
    }

    #[test]
    fn devices_with_links_to_each_other_come_together() {
        // Pairs 0-2 and 1-3 have four links each, the others one.
        let rows = [[-1, 1, 4, 1], [1, -1, 1, 4], [4, 1, -1, 1], [1, 4, 1, -1]].map(|row| row.to_vec());
        let none: [&[usize]; 4] = [&[]; 4];
        let all = kinds(&rows, &none);
        assert_eq!(chosen(&all, &[0, 1, 2, 3], &[], 2), [0, 2]);
        assert_eq!(chosen(&all, &[0, 1, 3], &[], 2), [1, 3]);
        assert_eq!(chosen(&all, &[0, 1], &[], 2), [0, 1], "what is left");
        assert_eq!(chosen(&all, &[0, 1, 2, 3], &[], 1), [0]);
        assert_eq!(chosen(&all, &[0, 1, 2, 3], &[1, 3], 2), [1, 3], "of two equal pairs the one near the cores");
        assert_eq!(chosen(&all, &[0, 1, 2, 3], &[], 3).len(), 3);
    }

    #[test]
    fn devices_near_the_same_cores_come_together() {
        let all = kinds(&[const { Vec::new() }; 5], &[&[0], &[0], &[1], &[1], &[1]]);
        assert_eq!(chosen(&all, &[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4], 3), [2, 3, 4]);
        assert_eq!(chosen(&all, &[1, 2, 4], &[1, 2, 4], 2), [2, 4]);
        assert_eq!(chosen(&all, &[1, 2, 4], &[1, 2], 2), [1, 2], "cores of the job count more");
        let links = [[-1, 0, 2], [0, -1, 0], [2, 0, -1]].map(|row| row.to_vec());
        let all = kinds(&links, &[&[0], &[0], &[1]]);
        assert_eq!(chosen(&all, &[0, 1, 2], &[0, 1], 2), [0, 2], "and links more than both");
    }

    #[test]
    fn groups_of_four_stay_whole() {
        // Eight devices, which are linked within each four.
        let row = |own: usize| {
            let to = |other: usize| i32::from(own / 4 == other / 4) * 2;
            (0..8).map(|other| if own == other { -1 } else { to(other) }).collect::<Vec<i32>>()
        };
        let rows: Vec<Vec<i32>> = (0..8).map(row).collect();
        let none: [&[usize]; 8] = [&[]; 8];
        let all = kinds(&rows, &none);
        assert_eq!(chosen(&all, &[1, 2, 3, 4, 5, 6, 7], &[], 4), [4, 5, 6, 7]);
        assert_eq!(chosen(&all, &[0, 3, 5, 6, 7], &[], 3), [5, 6, 7]);
    }
}
