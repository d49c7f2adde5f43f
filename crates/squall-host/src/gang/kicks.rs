//! Makes the CPUs of this machine look anew who is to run: the kernel takes notice of `cpu.idle` when it looks, which may
//! be as late as its next tick, and a slot may be shorter. A thread for each CPU, before all ordinary ones, sleeps until
//! it is woken and then sleeps again.

use std::thread::{Builder, Thread};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::sys::realtime::prefer_me;

/// All of it may be locked into memory.
const STACK_BYTES: usize = 64 << 10;

/// One thread for each CPU that this process may use. They last as long as the process.
pub(super) struct Kicks(Vec<(usize, Thread)>);

impl Kicks {
    /// Starts them. A CPU for which there is none looks at its own time.
    pub(super) fn start(priority: i32) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let start = |cpu| {
            let wait = move || {
                let mut own = CpuSet::new();
                own.set(cpu);
                if sched_setaffinity(None, &own).is_ok() {
                    // Without it whoever steps back gives way all the same.
                    let _ = prefer_me(priority);
                    loop {
                        std::thread::park();
                    }
                }
            };
            let thread = Builder::new().name(format!("kick-{cpu}")).stack_size(STACK_BYTES).spawn(wait);
            thread.ok().map(|handle| (cpu, handle.thread().clone()))
        };
        Self(cpus.filter_map(start).collect())
    }

    /// Has all of them look but the caller's, which looks when the caller sleeps.
    pub(super) fn kick(&self) {
        let own = sched_getcpu();
        self.0.iter().filter(|(cpu, _)| *cpu != own).for_each(|(_, thread)| thread.unpark());
    }
}
