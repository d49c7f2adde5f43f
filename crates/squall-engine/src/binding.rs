//! `--cpu-bind`: which of a step's CPUs each of its tasks on a node may use.

use std::collections::BTreeMap;

use squall_model::job::options::Options;
use squall_model::job::spread::{Spread, Turn};
use squall_model::set::CoreSet;
use squall_model::step::cpu_bind::{BindMethod, Unit};
use squall_model::step::{StepLaunch, TaskProgram};
use squall_sched::layout::sockets;
use squall_sched::topology::Wish;

/// A CPU of a node, with its position in the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Number of the CPU in the kernel.
    pub number: usize,
    /// Number of the core that the CPU belongs to, unique on the node.
    pub core: u32,
    /// Number of the socket that the CPU belongs to.
    pub socket: u32,
    /// Number of the memory domain (NUMA node) that the CPU belongs to.
    pub domain: u32,
}

/// Returns the CPUs of each of the node's `tasks` tasks, each of which needs `each` CPUs. `cpus` are those that the
/// step may use. An empty set: the task is not bound, since it asked only for CPUs that the step may not use. None:
/// no task is bound. `near`: the socket of each task, if the step's ranks form a process grid (see [`near`]).
pub fn masks(
    way: &BindMethod,
    cpus: &[Cpu],
    (tasks, each): (usize, usize),
    spread: Spread,
    near: Option<&[u32]>,
) -> Option<Vec<CoreSet>> {
    let usable: CoreSet = cpus.iter().map(|cpu| cpu.number).collect();
    let numbers: Vec<usize> = usable.iter().collect();
    let one = |number: usize| [number].into_iter().collect::<CoreSet>();
    if numbers.is_empty() {
        return None;
    }
    let masks: Vec<CoreSet> = match way {
        BindMethod::Unsaid => {
            let of = |socket: u32| cpus.iter().filter(move |cpu| cpu.socket == socket).map(|cpu| cpu.number);
            near?.iter().map(|socket| of(*socket).collect()).collect()
        }
        BindMethod::None => return None,
        BindMethod::Rank => numbers.iter().map(|&number| one(number)).collect(),
        BindMethod::Map(list) => list.iter().map(|&number| one(number)).collect(),
        BindMethod::Mask(list) => list.clone(),
        BindMethod::Units(unit) => {
            // CPUs are shared out socket by socket, so tasks of one socket have to come one after the other.
            let mut order: Vec<usize> = (0..tasks).collect();
            order.sort_by_key(|task| near.and_then(|near| near.get(*task)));
            let shares = shares(*unit, cpus, (tasks, each.max(1)), spread);
            let mut masks = vec![CoreSet::default(); tasks];
            order.into_iter().zip(shares).for_each(|(task, share)| masks[task] = share);
            masks
        }
    };
    let of_task = masks.iter().cycle().take(tasks).cloned();
    Some(
        of_task
            .map(|mut mask| {
                mask.intersect_with(&usable);
                mask
            })
            .collect(),
    )
}

/// Returns the CPUs that tasks may use that use only so many hardware threads of each core: the first ones of each.
pub fn of_threads(cpus: &[Cpu], threads: u32) -> Vec<Cpu> {
    let before = |cpu: &Cpu| cpus.iter().filter(|other| other.core == cpu.core && other.number < cpu.number).count();
    cpus.iter().filter(|cpu| before(cpu) < threads as usize).copied().collect()
}

/// Returns the socket of each of the node's tasks, chosen so that little communication crosses sockets. None: neither
/// the step nor its job has a process grid (`--grid`), the grid does not match the step's tasks, or the step's CPUs
/// here are all on one socket.
pub fn near(launch: &StepLaunch, program: &TaskProgram, cpus: &[Cpu]) -> Option<Vec<u32>> {
    let grid = |options: &Options| Wish::of(&options.network).ok()?.grid;
    let grid = grid(&program.options).or_else(|| grid(&launch.facts.spec.options))?.grid();
    let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in cpus {
        *sizes.entry(cpu.socket).or_default() += 1;
    }
    if sizes.len() < 2 || grid.tasks() != launch.layout.ntasks() as usize {
        return None;
    }
    let (names, sizes): (Vec<u32>, Vec<u32>) = sizes.into_iter().unzip();
    Some(sockets(&grid, &launch.ranks(), &sizes).into_iter().map(|socket| names[socket]).collect())
}

fn unit_of(unit: Unit, cpu: &Cpu) -> u32 {
    match unit {
        Unit::Threads => cpu.number as u32,
        Unit::Cores => cpu.core,
        Unit::Sockets => cpu.socket,
        Unit::Domains => cpu.domain,
    }
}

/// Distributes CPUs over `tasks` tasks, `each` CPUs to a task, by whole cores or threads; starts again from the
/// first if there are too few. Returns the CPUs of each task.
fn shares(unit: Unit, cpus: &[Cpu], (tasks, each): (usize, usize), spread: Spread) -> Vec<CoreSet> {
    let mut sorted = cpus.to_vec();
    sorted.sort_by_key(|cpu| (cpu.socket, cpu.core, cpu.number));
    if unit == Unit::Threads && spread.cores != Turn::Block {
        // One thread of each core of a socket comes before the second thread of any.
        let sibling = |cpu: &Cpu| cpus.iter().filter(|c| c.core == cpu.core && c.number < cpu.number).count();
        sorted.sort_by_key(|cpu| (cpu.socket, sibling(cpu), cpu.core));
    }
    // Tasks that are bound to a larger unit get cores of their own as long as there are enough.
    let parts = if unit == Unit::Threads { Unit::Threads } else { Unit::Cores };
    let parts: Vec<&[Cpu]> = sorted.chunk_by(|a, b| unit_of(parts, a) == unit_of(parts, b)).collect();
    let parts = in_turn(&parts, each, spread.sockets);
    let mut next = parts.iter().cycle();
    (0..tasks)
        .map(|_| {
            let mut own: Vec<Cpu> = Vec::new();
            for part in next.by_ref().take(parts.len()) {
                own.extend_from_slice(part);
                if own.len() >= each {
                    break;
                }
            }
            let touched = sorted.iter().filter(|cpu| own.iter().any(|mine| unit_of(unit, mine) == unit_of(unit, cpu)));
            touched.map(|cpu| cpu.number).collect()
        })
        .collect()
}

/// Returns the parts of a node (cores or threads, given socket by socket) in the order in which tasks of `each` CPUs
/// use them.
fn in_turn<'a>(parts: &[&'a [Cpu]], each: usize, turn: Turn) -> Vec<&'a [Cpu]> {
    let mut sockets: Vec<_> = parts.chunk_by(|a, b| a[0].socket == b[0].socket).map(|of| of.iter().copied()).collect();
    let mut order = Vec::new();
    while order.len() < parts.len() {
        for socket in &mut sockets {
            let mut cpus = 0;
            for part in socket.by_ref() {
                order.push(part);
                cpus += part.len();
                if turn == Turn::Full || (turn == Turn::Cyclic && cpus >= each) {
                    break;
                }
            }
        }
    }
    order
}

/// Returns a set of CPUs as Slurm writes it: `0x` and hexadecimal digits.
pub fn hex(mask: &CoreSet) -> String {
    let digits = mask.iter().last().map_or(1, |last| last / 4 + 1);
    let digit = |at: usize| (0..4).filter(|bit| mask.contains(at * 4 + bit)).map(|bit| 1 << bit).sum();
    let text = (0..digits).rev().filter_map(|at| char::from_digit(digit(at), 16));
    "0x".chars().chain(text).collect()
}

#[cfg(test)]
mod tests {
    use squall_model::job::network::{self, Network};
    use squall_model::job::options::Chosen;
    use squall_model::step::{Layout, StepLaunch, TaskProgram};

    use squall_model::step::cpu_bind::CpuBind;

    use super::{Cpu, Spread, hex, near};

    /// Returns two sockets of two cores of two threads, numbered as in Linux: all first threads, then all second
    /// ones.
    fn machine() -> Vec<Cpu> {
        (0..8)
            .map(|number| {
                let core = (number % 4) as u32;
                Cpu { number, core, socket: core / 2, domain: core / 2 }
            })
            .collect()
    }

    fn masks(text: &str, cpus: &[Cpu], tasks: usize, each: usize) -> String {
        spread_masks(text, "", cpus, (tasks, each))
    }

    fn spread_masks(text: &str, distribution: &str, cpus: &[Cpu], sizes: (usize, usize)) -> String {
        let bound = super::masks(&CpuBind::parse(text).unwrap().way, cpus, sizes, Spread::of(distribution), None);
        bound.map_or("none".into(), |masks| masks.iter().map(hex).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn tasks_get_whole_units() {
        let all = machine();
        for (text, tasks, each, expected) in [
            ("none", 2, 1, "none"),
            ("verbose", 2, 1, "none"),
            ("rank", 3, 1, "0x1,0x2,0x4"),
            ("threads", 4, 1, "0x1,0x10,0x2,0x20"),
            ("threads", 2, 3, "0x13,0x64"),
            ("cores", 4, 1, "0x11,0x22,0x44,0x88"),
            ("cores", 5, 2, "0x11,0x22,0x44,0x88,0x11"),
            ("cores", 2, 3, "0x33,0xcc"),
            ("q,sockets", 3, 1, "0x33,0x33,0xcc"),
            ("ldoms", 1, 8, "0xff"),
            ("cores", 2, 100, "0xff,0xff"),
        ] {
            assert_eq!(masks(text, &all, tasks, each), expected, "{text} {tasks} {each}");
        }
        assert_eq!(masks("cores", &all[1..3], 2, 1), "0x2,0x4", "only what the step may use");
    }

    #[test]
    fn tasks_use_one_thread_of_each_core_if_asked_so() {
        let all = super::of_threads(&machine(), 1);
        assert_eq!(all.iter().map(|cpu| cpu.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(masks("threads", &all, 2, 2), "0x3,0xc");
        assert_eq!(super::of_threads(&machine(), 2), machine());
        assert_eq!(super::of_threads(&machine()[5..], 1).len(), 3, "where only the second threads are the step's");
    }

    /// Finding 2.1 of audit-admin.md: the socket and core levels of `--distribution` take effect.
    #[test]
    fn distribution_within_nodes_goes_by_sockets_and_cores() {
        let all = machine();
        for (bind, distribution, tasks, each, expected) in [
            ("cores", "block:block", 4, 1, "0x11,0x22,0x44,0x88"),
            ("cores", "block:cyclic", 4, 1, "0x11,0x44,0x22,0x88"),
            ("cores", "cyclic:cyclic:block,Pack", 2, 4, "0x33,0xcc"),
            ("cores", "block:fcyclic", 2, 4, "0x55,0xaa"),
            ("threads", "*:block:block", 4, 1, "0x1,0x10,0x2,0x20"),
            ("threads", "block:block:cyclic", 4, 1, "0x1,0x2,0x10,0x20"),
            ("threads", "block:cyclic", 4, 1, "0x1,0x4,0x2,0x8"),
            ("threads", "block:cyclic:block", 4, 1, "0x1,0x4,0x10,0x40"),
            ("cores", "plane=2", 4, 1, "0x11,0x22,0x44,0x88"),
        ] {
            assert_eq!(spread_masks(bind, distribution, &all, (tasks, each)), expected, "{bind} {distribution}");
        }
    }

    #[test]
    fn ranks_of_a_grid_are_split_by_socket() {
        let launch = |grid: &str, stencil: &str| {
            let network =
                Network { grid: network::grid(grid), stencil: network::stencil(stencil), ..Network::default() };
            let options = Chosen { network, ..Chosen::default() }.into();
            let program = TaskProgram { options, ..TaskProgram::default() };
            let layout = Layout { tasks: [8].into_iter().collect(), ..Layout::default() };
            (StepLaunch { layout, ..StepLaunch::default() }, program)
        };
        let told = |grid: &str, stencil: &str, cpus: &[Cpu]| {
            let (launch, program) = launch(grid, stencil);
            near(&launch, &program, cpus)
        };
        let all = machine();
        // Neighbours along the first dimension communicate most; the other dimensions are split.
        assert_eq!(told("2x2x2", "4,1,2", &all), Some(vec![0, 0, 1, 1, 0, 0, 1, 1]));
        assert_eq!(told("2x2x2", "1,4,2", &all), Some(vec![0, 0, 0, 0, 1, 1, 1, 1]));
        assert_eq!(told("8", "", &all[..3]), Some(vec![0, 0, 0, 0, 0, 0, 1, 1]), "as many as it has CPUs");
        assert_eq!(told("2x2x2", "", &all[..2]), None, "one socket");
        assert_eq!(told("2x2x3", "", &all), None, "not this step");
        let sockets = [0, 0, 1, 1, 0, 0, 1, 1];
        let bound = |text: &str| {
            let masks =
                super::masks(&CpuBind::parse(text).unwrap().way, &all, (8, 1), Spread::default(), Some(&sockets))
                    .unwrap();
            masks.iter().map(hex).collect::<Vec<_>>().join(",")
        };
        assert_eq!(bound(""), "0x33,0x33,0xcc,0xcc,0x33,0x33,0xcc,0xcc");
        assert_eq!(bound("threads"), "0x1,0x10,0x4,0x40,0x2,0x20,0x8,0x80");
        assert_eq!(bound("rank"), "0x1,0x2,0x4,0x8,0x10,0x20,0x40,0x80", "what is asked for holds");
    }

    #[test]
    fn lists_are_used_from_the_start_again_and_never_beyond_the_step() {
        let all = machine();
        assert_eq!(masks("map_cpu:3,0x1", &all, 3, 1), "0x8,0x2,0x8");
        assert_eq!(masks("v,map_cpu:0*2,5", &all, 3, 1), "0x1,0x1,0x20");
        assert_eq!(masks("mask_cpu:0x3,0xF0,verbose", &all, 2, 1), "0x3,0xf0");
        assert_eq!(masks("map_cpu:1,6", &all[..4], 2, 1), "0x2,0x0", "the second is not bound");
        assert_eq!(masks("mask_cpu:0x11", &all[..4], 1, 1), "0x1");
        assert_eq!(masks("cores", &[], 2, 1), "none");
    }
}
