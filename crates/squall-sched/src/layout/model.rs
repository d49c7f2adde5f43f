//! Run time of a halo exchange, by a law fitted to ten measurements of a talk (torus-aware scheduling on Blue Waters,
//! 2014). One part is constant, one grows as nodes fill up, one is proportional to the load of the most loaded link.

/// Parameters of the law `t0 + t1 / (1 - q/q0) + k load`, milliseconds, with q tasks on a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Constant part of a halo exchange, milliseconds.
    pub t0_ms: f64,
    /// Part of a halo exchange that grows as a node fills up, milliseconds: its size on a nearly empty node.
    pub t1_ms: f64,
    /// Number of tasks on a node at which it is saturated.
    pub q0: f64,
    /// Milliseconds for each message on the most loaded link, where the number of messages is divided by the link's
    /// weight.
    pub k_ms: f64,
}

impl Default for Model {
    fn default() -> Self {
        Self { t0_ms: 0.564, t1_ms: 0.0727, q0: 33.4, k_ms: 0.0312 }
    }
}

impl Model {
    /// Returns the time of a halo exchange, milliseconds, with `per_node` tasks on a node and load `worst` of the
    /// worst link. Near saturation and above it `per_node / q0` counts as 0.99.
    pub fn time_ms(&self, per_node: u32, worst: f64) -> f64 {
        let full = (f64::from(per_node) / self.q0).min(0.99);
        self.t0_ms + self.t1_ms / (1.0 - full) + self.k_ms * worst
    }
}
