//! What a halo exchange takes: a law fitted to the talk's ten measurements (torus-aware scheduling on Blue Waters,
//! 2014). A part is fixed, a part grows as nodes fill up, a part is what the most loaded link has to carry.

/// `t0 + t1 / (1 - q/q0) + k load`, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// What every exchange takes.
    pub t0_ms: f64,
    /// What an exchange takes on nodes with one task.
    pub t1_ms: f64,
    /// Tasks of a node at which it is saturated.
    pub q0: f64,
    /// For each message on the most loaded link, by its weight.
    pub k_ms: f64,
}

impl Default for Model {
    fn default() -> Self {
        Self { t0_ms: 0.564, t1_ms: 0.0727, q0: 33.4, k_ms: 0.0312 }
    }
}

impl Model {
    /// Milliseconds of an exchange, with so many tasks on a node and so much on the worst link. Above saturation as at
    /// the last place before it.
    pub fn time_ms(&self, per_node: u32, worst: f64) -> f64 {
        let full = (f64::from(per_node) / self.q0).min(0.99);
        self.t0_ms + self.t1_ms / (1.0 - full) + self.k_ms * worst
    }
}
