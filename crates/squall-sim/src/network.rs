//! The simulated network between controller and nodes: delay, loss, doubles, disorder, cuts.

use squall_model::time::{Span, Time};

use crate::seed::Seed;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Node to controller.
    Up,
    /// Controller to node.
    Down,
}

/// How badly the network behaves, all links alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Least delay of a frame.
    pub(crate) delay_min: Span,
    /// Largest delay of a frame.
    pub(crate) delay_max: Span,
    /// Frames lost, of a million.
    pub(crate) drop_ppm: u32,
    /// Frames doubled, of a million.
    pub(crate) duplicate_ppm: u32,
    /// Frames that others may overtake, of a million.
    pub(crate) reorder_ppm: u32,
}

impl Weather {
    /// A machine room on a good day.
    pub(crate) const FINE: Self =
        Self { delay_min: Span(50), delay_max: Span(400), drop_ppm: 0, duplicate_ppm: 0, reorder_ppm: 0 };
    /// Nothing is lost, but everything takes very long.
    pub(crate) const TAR: Self = Self { delay_min: Span(1_000_000), delay_max: Span(20_000_000), ..Self::FINE };
    /// Everything that a network may do.
    pub(crate) const FOUL: Self = Self {
        delay_min: Span(50),
        delay_max: Span(300_000),
        drop_ppm: 30_000,
        duplicate_ppm: 30_000,
        reorder_ppm: 50_000,
    };
}

/// State of one node's way to the controller.
#[derive(Clone, Debug, Default)]
struct Path {
    up_cut: bool,
    down_cut: bool,
    /// Times everything takes longer; 0: as usual.
    slowness: u64,
    up_last: Time,
    down_last: Time,
}

/// All links.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// How it behaves at present.
    pub(crate) weather: Weather,
    paths: Vec<Path>,
}

/// When copies of a frame arrive: none, one or two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// The frame itself, unless lost.
    pub(crate) first: Option<Time>,
    /// Its double, if there is one.
    pub(crate) second: Option<Time>,
}

impl Network {
    /// A good network for so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { weather: Weather::FINE, paths: vec![Path::default(); nodes] }
    }
    /// Loses all frames of a node that go that way, until [`Self::heal`].
    pub(crate) fn cut(&mut self, node: usize, way: Way) {
        match way {
            Way::Up => self.paths[node].up_cut = true,
            Way::Down => self.paths[node].down_cut = true,
        }
    }
    /// Ends the cuts of a node.
    pub(crate) fn heal(&mut self, node: usize) {
        self.paths[node].up_cut = false;
        self.paths[node].down_cut = false;
    }
    /// Everything from and to that node takes so many times longer.
    pub(crate) fn slow(&mut self, node: usize, times: u64) {
        self.paths[node].slowness = times;
    }
    /// How many times longer it takes; 1: as usual.
    pub(crate) fn slowness(&self, node: usize) -> u64 {
        self.paths[node].slowness.max(1)
    }
    /// A new connection: its frames do not wait behind those of the last.
    pub(crate) fn fresh(&mut self, node: usize) {
        self.paths[node].up_last = Time(0);
        self.paths[node].down_last = Time(0);
    }
    /// Whether frames go that way at all.
    pub(crate) fn open(&self, node: usize, way: Way) -> bool {
        match way {
            Way::Up => !self.paths[node].up_cut,
            Way::Down => !self.paths[node].down_cut,
        }
    }
    /// What becomes of a frame sent now. Frames keep their order unless the weather is bad.
    pub(crate) fn fate(&mut self, now: Time, node: usize, way: Way, seed: &mut Seed) -> Fate {
        if !self.open(node, way) || seed.chance(self.weather.drop_ppm) {
            return Fate::default();
        }
        let arrival = now + self.delay(node, seed);
        let path = &mut self.paths[node];
        let last = if way == Way::Up { &mut path.up_last } else { &mut path.down_last };
        let first = if seed.chance(self.weather.reorder_ppm) {
            arrival
        } else {
            *last = arrival.max(Time(last.0 + 1));
            *last
        };
        let second = seed.chance(self.weather.duplicate_ppm).then(|| now + self.delay(node, seed));
        Fate { first: Some(first), second }
    }
    /// How long something takes between that node and the controller, one way.
    pub(crate) fn delay(&self, node: usize, seed: &mut Seed) -> Span {
        Span(seed.between(self.weather.delay_min.0, self.weather.delay_max.0) * self.slowness(node))
    }
}

#[cfg(test)]
mod tests {
    use super::{Network, Seed, Time, Way, Weather};

    #[test]
    fn fine_weather_keeps_frames_and_their_order() {
        let (mut network, mut seed, mut last) = (Network::new(1), Seed::new(1), Time(0));
        for now in 0..1000 {
            let fate = network.fate(Time(now), 0, Way::Up, &mut seed);
            let arrival = fate.first.expect("nothing is lost");
            assert!(arrival > last && fate.second.is_none());
            last = arrival;
        }
    }

    #[test]
    fn a_cut_is_one_way_and_foul_weather_loses_and_doubles() {
        let (mut network, mut seed) = (Network::new(2), Seed::new(2));
        network.cut(1, Way::Up);
        assert!(network.fate(Time(0), 1, Way::Up, &mut seed).first.is_none());
        assert!(network.fate(Time(0), 1, Way::Down, &mut seed).first.is_some());
        network.heal(1);
        network.weather = Weather::FOUL;
        let fates: Vec<_> = (0..5000).map(|n| network.fate(Time(n), 1, Way::Up, &mut seed)).collect();
        assert!(fates.iter().any(|f| f.first.is_none()) && fates.iter().any(|f| f.second.is_some()));
    }
}
