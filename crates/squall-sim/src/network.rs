//! The simulated network between the controller and nodes: delay, loss, duplication, reordering, cuts.

use std::collections::BTreeSet;

use squall_model::time::{Span, Time};

use crate::seed::Seed;

/// Direction of a frame, seen from a machine that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Frames that the machine sends are lost.
    Out,
    /// Frames that the machine receives are lost.
    In,
}

/// Delay and loss of the whole network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Shortest delay of a frame.
    pub(crate) delay_min: Span,
    /// Longest delay of a frame.
    pub(crate) delay_max: Span,
    /// Probability that a frame is lost, in millionths.
    pub(crate) drop_ppm: u32,
    /// Probability that a frame is duplicated, in millionths.
    pub(crate) duplicate_ppm: u32,
    /// Probability that later frames may overtake a frame, in millionths.
    pub(crate) reorder_ppm: u32,
}

impl Weather {
    /// A healthy network: short delays and no losses.
    pub(crate) const FINE: Self =
        Self { delay_min: Span(50), delay_max: Span(400), drop_ppm: 0, duplicate_ppm: 0, reorder_ppm: 0 };
    /// A slow network: no losses, but delays of 1 to 20 s.
    pub(crate) const TAR: Self = Self { delay_min: Span(1_000_000), delay_max: Span(20_000_000), ..Self::FINE };
    /// A bad network: losses, duplicates and reordering.
    pub(crate) const FOUL: Self = Self {
        delay_min: Span(50),
        delay_max: Span(300_000),
        drop_ppm: 30_000,
        duplicate_ppm: 30_000,
        reorder_ppm: 50_000,
    };
}

/// Longest delay that the slowness of a machine makes of that of the weather.
const DELAY_MAX: Span = Span::from_secs(120);

/// State of a machine's connection to the network: cuts and slowness.
#[derive(Clone, Debug, Default)]
struct Port {
    out_cut: bool,
    in_cut: bool,
    /// Number of the machine's island: machines of different islands do not reach each other. 0: the part of the
    /// network that is not isolated.
    island: u64,
    /// Factor by which all delays from and to the machine are longer; 0 and 1: as usual.
    slowness: u64,
}

/// The simulated network. A node's port has the node's index. After those of all nodes come the ports of the
/// controllers, that of the machine where every `srun` runs, and that of etcd.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// Present delay and loss of the whole network.
    pub(crate) weather: Weather,
    ports: Vec<Port>,
    /// Port of the first controller.
    first_controller: usize,
    /// Pairs (from, to) of ports between which all frames are lost.
    cuts: BTreeSet<(usize, usize)>,
    last_island: u64,
}

/// Arrival times of the copies of a frame: none, one or two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// Arrival time of the frame itself. None: it is lost.
    pub(crate) first: Option<Time>,
    /// Arrival time of the frame's duplicate. None: there is none.
    pub(crate) second: Option<Time>,
}

impl Network {
    /// Creates a healthy network for `nodes` nodes and `controllers` controllers.
    pub(crate) fn new(nodes: usize, controllers: usize) -> Self {
        let ports = vec![Port::default(); nodes + controllers + 2];
        Self { weather: Weather::FINE, ports, first_controller: nodes, cuts: BTreeSet::new(), last_island: 0 }
    }
    /// Returns the port of a controller.
    pub(crate) fn controller(&self, of: usize) -> usize {
        self.first_controller + of
    }
    /// Returns the controller at a port. None: another machine is.
    pub(crate) fn controller_at(&self, port: usize) -> Option<usize> {
        port.checked_sub(self.first_controller).filter(|_| port < self.login())
    }
    /// Returns the port of the machine where every `srun` runs.
    pub(crate) fn login(&self) -> usize {
        self.ports.len() - 2
    }
    /// Returns the port of etcd, whose members are one machine here.
    pub(crate) fn etcd(&self) -> usize {
        self.ports.len() - 1
    }
    /// Loses all frames that a node sends, or all that it receives, until [`Self::heal`].
    pub(crate) fn cut(&mut self, node: usize, way: Direction) {
        match way {
            Direction::Out => self.ports[node].out_cut = true,
            Direction::In => self.ports[node].in_cut = true,
        }
    }
    /// Loses all frames from one port to another, until [`Self::heal`].
    pub(crate) fn cut_between(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }
    /// Isolates these nodes: they reach only each other.
    pub(crate) fn isolate(&mut self, nodes: &[usize]) {
        self.last_island += 1;
        for &node in nodes {
            self.ports[node].island = self.last_island;
        }
    }
    /// Ends all cuts of a node.
    pub(crate) fn heal(&mut self, node: usize) {
        let port = &mut self.ports[node];
        (port.out_cut, port.in_cut, port.island) = (false, false, 0);
        self.cuts.retain(|&(from, to)| from != node && to != node);
    }
    /// Sets the factor by which all delays from and to a node are longer.
    pub(crate) fn slow(&mut self, node: usize, times: u64) {
        self.ports[node].slowness = times;
    }
    /// Returns the factor by which a node's delays are longer; 1: as usual.
    pub(crate) fn slowness(&self, node: usize) -> u64 {
        self.ports[node].slowness.max(1)
    }
    /// Returns whether nothing is cut or slow, and the weather is fine.
    pub(crate) fn is_fine(&self) -> bool {
        let fine = |port: &Port| !(port.out_cut || port.in_cut || port.island > 0 || port.slowness > 1);
        let Weather { delay_max, drop_ppm, .. } = self.weather;
        self.cuts.is_empty() && self.ports.iter().all(fine) && drop_ppm == 0 && delay_max == Weather::FINE.delay_max
    }
    /// Returns whether frames can pass from one machine to another.
    pub(crate) fn open(&self, from: usize, to: usize) -> bool {
        let (here, there) = (&self.ports[from], &self.ports[to]);
        !here.out_cut && !there.in_cut && here.island == there.island && !self.cuts.contains(&(from, to))
    }
    /// Returns the arrival times of a frame that is sent now. Frames keep their order unless the network reorders them;
    /// `last` is the arrival time of the previous frame.
    pub(crate) fn fate(&self, now: Time, (from, to): (usize, usize), last: &mut Time, seed: &mut Seed) -> Fate {
        if !self.open(from, to) || seed.chance(self.weather.drop_ppm) {
            return Fate::default();
        }
        let arrival = now + self.delay(from, to, seed);
        let first = if seed.chance(self.weather.reorder_ppm) {
            arrival
        } else {
            *last = arrival.max(Time(last.0 + 1));
            *last
        };
        let second = seed.chance(self.weather.duplicate_ppm).then(|| now + self.delay(from, to, seed));
        Fate { first: Some(first), second }
    }
    /// Returns a random one-way delay between two machines.
    pub(crate) fn delay(&self, from: usize, to: usize, seed: &mut Seed) -> Span {
        let slowness = self.slowness(from).max(self.slowness(to));
        let delay = seed.between(self.weather.delay_min.0, self.weather.delay_max.0);
        Span((delay * slowness).min(DELAY_MAX.0.max(delay)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, Network, Seed, Time, Weather};

    #[test]
    fn fine_weather_keeps_frames_and_their_order() {
        let (network, mut seed, mut last, mut after) = (Network::new(1, 1), Seed::new(1), Time(0), Time(0));
        for now in 0..1000 {
            let fate = network.fate(Time(now), (0, 1), &mut after, &mut seed);
            let arrival = fate.first.expect("nothing is lost");
            assert!(arrival > last && fate.second.is_none());
            last = arrival;
        }
    }

    #[test]
    fn a_cut_is_one_way_and_foul_weather_loses_and_doubles() {
        let (mut network, mut seed, mut last) = (Network::new(2, 1), Seed::new(2), Time(0));
        let controller = network.controller(0);
        network.cut(1, Direction::Out);
        assert!(network.fate(Time(0), (1, controller), &mut last, &mut seed).first.is_none());
        assert!(network.fate(Time(0), (controller, 1), &mut last, &mut seed).first.is_some());
        network.heal(1);
        network.weather = Weather::FOUL;
        let fates: Vec<_> = (0..5000).map(|n| network.fate(Time(n), (1, controller), &mut last, &mut seed)).collect();
        assert!(fates.iter().any(|f| f.first.is_none()) && fates.iter().any(|f| f.second.is_some()));
    }

    #[test]
    fn an_island_talks_to_itself_and_a_cut_has_two_ends() {
        let mut network = Network::new(4, 1);
        network.isolate(&[1, 2]);
        assert!(network.open(1, 2) && !network.open(1, 3) && !network.open(0, 2) && network.open(0, 3));
        network.heal(1);
        network.heal(2);
        network.cut_between(1, 2);
        assert!(!network.open(1, 2) && network.open(2, 1) && network.open(1, 3));
        network.heal(2);
        assert!(network.open(1, 2));
    }
}
