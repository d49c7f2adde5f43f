//! The unit in which CPUs of a node are given to jobs: hardware threads, cores or sockets.
//!
//! A node counts its CPUs core by core: first one thread of each core, socket by socket, then the second thread of
//! each, and so on. So CPU `c` of a node with `n` cores belongs to core `c % n`.

use squall_model::config::Unit;
use squall_model::inside::Inside;
use squall_model::resource::Hardware;
use squall_model::set::CoreSet;

/// What the CPUs of tasks depend on.
#[derive(Clone, Copy, Debug)]
pub struct PerTask {
    /// CPUs of each task.
    pub cpus: u32,
    /// Required threads of each core, and tasks on each.
    pub inside: Inside,
}

/// The unit of allocation of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// Threads of each core.
    threads: u32,
    /// Cores of the node; 0 if the unit is a CPU.
    cores: u32,
    /// Cores of each unit.
    each: u32,
    /// Cores of the node, and of each socket, if a job gets CPUs of as few sockets as possible. None: it gets the first
    /// free ones.
    few: Option<(u32, u32)>,
}

impl Grain {
    /// Single CPUs.
    pub const CPU: Self = Self { threads: 1, cores: 0, each: 1, few: None };

    /// Returns the unit of a node with this hardware. Nodes with CPUs that do not make up whole cores, or with cores
    /// that do not make up whole sockets, are given out by CPUs.
    pub fn of(unit: Unit, hardware: &Hardware) -> Self {
        if unit == Unit::Cpu || hardware.cpus == 0 {
            return Self::CPU;
        }
        let threads = hardware.threads_per_core.max(1);
        let (cores, sockets) = (hardware.cpus / threads, hardware.sockets.max(1));
        let each = if unit == Unit::Socket { cores / sockets } else { 1 };
        if cores * threads != hardware.cpus || each == 0 || cores % each != 0 {
            return Self::CPU;
        }
        Self { threads, cores, each, few: None }
    }

    /// Returns the same unit on a node where a job gets CPUs of as few sockets as possible.
    #[must_use]
    pub fn in_few_sockets(self, hardware: &Hardware) -> Self {
        Self { few: Some(self.sockets(hardware)), ..self }
    }

    /// Returns the number of cores of a node, and of each socket.
    fn sockets(self, hardware: &Hardware) -> (u32, u32) {
        let cores = if self.is_cpu() { hardware.cpus / hardware.threads_per_core.max(1) } else { self.cores }.max(1);
        // Cores that are kept for the system are taken from the last sockets first.
        (cores, cores.div_ceil(hardware.sockets.max(1)))
    }

    /// Returns the unit in which the CPUs `held` that a job holds on a node are given to its steps: cores where jobs
    /// hold whole cores or sockets, otherwise single CPUs. A job that started when the unit was another may hold parts
    /// of cores; its steps get single CPUs.
    pub fn of_steps(unit: Unit, hardware: &Hardware, held: &CoreSet) -> Self {
        let grain = Self::of(if unit == Unit::Socket { Unit::Core } else { unit }, hardware);
        let whole = |core| {
            let members = grain.members(core).filter(|cpu| held.contains(*cpu)).count() as u32;
            members == 0 || members == grain.threads
        };
        if (0..grain.cores).all(whole) { grain } else { Self::CPU }
    }

    /// Returns the CPUs by Slurm's numbers, in which all threads of a core follow each other. Where single CPUs are
    /// given out, the numbers are the node's.
    pub fn core_by_core(self, cpus: &CoreSet) -> CoreSet {
        let number = |cpu: usize| match u32::try_from(cpu).ok().filter(|_| !self.is_cpu()) {
            Some(cpu) => (cpu % self.cores * self.threads + cpu / self.cores) as usize,
            None => cpu,
        };
        cpus.iter().map(number).collect()
    }

    /// Returns whether single CPUs are given out.
    pub fn is_cpu(self) -> bool {
        self.cores == 0
    }

    /// Returns the number of CPUs of a unit.
    fn size(self) -> u32 {
        self.each * self.threads
    }

    /// Returns how many threads of each core the request uses.
    fn used_threads(self, inside: &Inside) -> u32 {
        if inside.threads == 0 { self.threads } else { inside.threads.min(self.threads) }
    }

    /// Returns the greatest number of tasks that `cpus` CPUs suffice for.
    pub fn tasks(self, task: PerTask, cpus: u32) -> u32 {
        if self.is_cpu() {
            return cpus / task.cpus;
        }
        let (cores, threads) = (cpus / self.size() * self.each, self.used_threads(&task.inside));
        match task.inside.tasks_per_core {
            1 => cores / task.cpus.div_ceil(threads),
            0 => cores * threads / task.cpus,
            most => (cores * threads / task.cpus).min(cores.saturating_mul(most)),
        }
    }

    /// Returns the number of CPUs that a job with `tasks` tasks on the node holds there; `least`: no fewer than these.
    pub fn cpus(self, task: PerTask, tasks: u32, least: u32) -> u32 {
        let cpus = tasks.saturating_mul(task.cpus);
        if self.is_cpu() {
            return cpus.max(least);
        }
        let threads = self.used_threads(&task.inside);
        let cores = match task.inside.tasks_per_core {
            1 => tasks.saturating_mul(task.cpus.div_ceil(threads)),
            0 => cpus.div_ceil(threads),
            most => cpus.div_ceil(threads).max(tasks.div_ceil(most)),
        };
        let cpus = cores.saturating_mul(self.threads).max(least);
        cpus.checked_next_multiple_of(self.size()).unwrap_or(u32::MAX)
    }

    /// Returns the number of CPUs that whole units of `cpus` CPUs have.
    pub(crate) fn whole(self, cpus: u32) -> u32 {
        if self.is_cpu() { cpus } else { cpus / self.size() * self.size() }
    }

    /// Takes `cpus` of the free CPUs, by whole units: the first ones, or those of as few sockets as possible. Of sockets
    /// that suffice, the one with the fewest free CPUs is taken. Takes all if there are fewer.
    pub fn take(self, free: &CoreSet, cpus: u32) -> CoreSet {
        let Some(sizes) = self.few else { return self.first(free, cpus) };
        let (mut taken, mut left) = (CoreSet::new(), cpus);
        let mut sockets = by_socket(free, sizes);
        while left > 0 && !sockets.is_empty() {
            let enough = |own: &CoreSet| own.len() >= left as usize;
            let rank = |own: &CoreSet| if enough(own) { (0, own.len()) } else { (1, usize::MAX - own.len()) };
            let Some(at) = (0..sockets.len()).min_by_key(|at| rank(&sockets[*at])) else { break };
            let own = self.first(&sockets.remove(at), left);
            left = left.saturating_sub(own.len() as u32);
            taken.union_with(&own);
        }
        taken
    }

    /// Takes `cpus` of the free CPUs as [`take`](Self::take) does, from units that contain CPUs in `near` as far as
    /// these suffice.
    pub fn take_near(self, free: &CoreSet, cpus: u32, near: &CoreSet) -> CoreSet {
        if near.is_empty() {
            return self.take(free, cpus);
        }
        let mut close = free.intersection(near);
        if !self.is_cpu() {
            let units = (0..self.cores).step_by(self.each as usize);
            let close_units = units.filter(|first| self.members(*first).any(|cpu| near.contains(cpu)));
            close = close_units.flat_map(|first| self.members(first)).filter(|cpu| free.contains(*cpu)).collect();
        }
        let mut taken = self.take(&close, cpus);
        let more = cpus.saturating_sub(taken.len() as u32);
        if more > 0 {
            let mut rest = free.clone();
            rest.subtract(&taken);
            taken.union_with(&self.take(&rest, more));
        }
        taken
    }

    /// Takes the first `cpus` of the free CPUs, by whole units. Units of which a job holds a part are taken only if
    /// the others do not suffice: such jobs started when the unit was another. Takes all if there are fewer.
    fn first(self, free: &CoreSet, cpus: u32) -> CoreSet {
        if self.is_cpu() {
            return free.take(cpus as usize).unwrap_or_else(|| free.clone());
        }
        let (mut taken, mut left) = (CoreSet::new(), cpus);
        let units = (0..self.cores).step_by(self.each as usize);
        for first in units.filter(|first| self.members(*first).all(|cpu| free.contains(cpu))) {
            if left == 0 {
                return taken;
            }
            taken.union_with(&self.members(first).collect());
            left = left.saturating_sub(self.size());
        }
        let mut rest = free.clone();
        rest.subtract(&taken);
        taken.union_with(&rest.iter().take(left as usize).collect());
        taken
    }

    /// Returns the free CPUs that are left to the jobs of a partition if they together hold at most `most` CPUs of each
    /// socket: the first ones, by whole units. `held`: CPUs that they hold already.
    pub(crate) fn within_sockets(self, hardware: &Hardware, free: &CoreSet, held: &[&CoreSet], most: u32) -> CoreSet {
        let (cores, each) = self.sockets(hardware);
        let mut left = CoreSet::new();
        for (socket, own) in (0..).zip(by_socket(free, (cores, each))) {
            let held = held.iter().flat_map(|cpus| cpus.iter()).filter(|cpu| socket_of(*cpu, (cores, each)) == socket);
            let more = most.saturating_sub(held.count() as u32);
            left.union_with(&self.first(&own, self.whole(more)));
        }
        left
    }

    /// Returns the CPUs of the unit that begins with core `first`.
    fn members(self, first: u32) -> impl Iterator<Item = usize> {
        let thread = move |thread| (first..first + self.each).map(move |core| (core + thread * self.cores) as usize);
        (0..self.threads).flat_map(thread)
    }
}

/// Returns the number of a CPU's socket. `cores`: those of the node, `each`: those of a socket.
fn socket_of(cpu: usize, (cores, each): (u32, u32)) -> u32 {
    cpu as u32 % cores / each
}

/// Returns the CPUs of each socket, without sockets behind the last CPU.
fn by_socket(cpus: &CoreSet, sizes: (u32, u32)) -> Vec<CoreSet> {
    let mut sockets = Vec::new();
    for cpu in cpus.iter() {
        let socket = socket_of(cpu, sizes) as usize;
        if sockets.len() <= socket {
            sockets.resize(socket + 1, CoreSet::new());
        }
        sockets[socket].insert(cpu);
    }
    sockets
}

#[cfg(test)]
mod tests;
