//! Tests of the unit of allocation on one node of 2 sockets x 8 cores x 2 threads.

use proptest::prelude::{any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};
use squall_model::config::Unit;
use squall_model::inside::Inside;
use squall_model::resource::Hardware;
use squall_model::set::CoreSet;

use super::{Grain, PerTask};

fn hardware(sockets: u32, cores_per_socket: u32, threads_per_core: u32) -> Hardware {
    let cpus = sockets * cores_per_socket * threads_per_core;
    Hardware { cpus, sockets, cores_per_socket, threads_per_core, ..Hardware::default() }
}

fn request(cpus: u32, inside: Inside) -> PerTask {
    PerTask { cpus, inside }
}

fn set(numbers: &[usize]) -> CoreSet {
    numbers.iter().copied().collect()
}

#[test]
fn jobs_hold_whole_units() {
    let node = hardware(2, 8, 2);
    let [cpu, core, socket] = [Unit::Cpu, Unit::Core, Unit::Socket].map(|unit| Grain::of(unit, &node));
    let plain = request(1, Inside::default());
    let held = |grain: Grain, tasks| grain.cpus(plain, tasks, 1);
    assert_eq!([1, 2, 3].map(|tasks| held(cpu, tasks)), [1, 2, 3]);
    assert_eq!([1, 2, 3].map(|tasks| held(core, tasks)), [2, 2, 4]);
    assert_eq!([1, 16, 17].map(|tasks| held(socket, tasks)), [16, 16, 32]);
    let all = CoreSet::first(32);
    assert_eq!((cpu.take(&all, 1), core.take(&all, 2)), (set(&[0]), set(&[0, 16])));
    assert_eq!(socket.take(&all, 1), (0..8).chain(16..24).collect());
    let mut rest = all.clone();
    rest.subtract(&socket.take(&all, 1));
    assert_eq!(socket.take(&rest, 16), (8..16).chain(24..32).collect());
    assert_eq!(core.core_by_core(&set(&[0, 16, 3, 19])), set(&[0, 1, 6, 7]), "as Slurm numbers them");
}

#[test]
fn who_uses_one_thread_of_each_core_holds_the_others_too() {
    let core = Grain::of(Unit::Core, &hardware(2, 8, 2));
    let with = |task_cpus, inside| request(task_cpus, inside);
    let one_thread = Inside { threads: 1, ..Inside::default() };
    let one_task = Inside { tasks_per_core: 1, ..Inside::default() };
    for (request, tasks, held, most) in [
        (with(1, one_thread), 4, 8, 16),
        (with(2, one_thread), 4, 16, 8),
        (with(1, one_task), 4, 8, 16),
        (with(2, one_task), 4, 8, 16),
        (with(3, one_task), 2, 8, 8),
        (with(3, Inside::default()), 2, 6, 10),
    ] {
        assert_eq!((core.cpus(request, tasks, 1), core.tasks(request, 32)), (held, most), "{request:?}");
    }
}

#[test]
fn cpus_that_are_no_whole_units_are_given_out_one_by_one() {
    let odd = Hardware { cpus: 31, ..hardware(2, 8, 2) };
    assert_eq!(Grain::of(Unit::Core, &odd), Grain::CPU);
    let uneven = Hardware { cpus: 30, ..hardware(2, 8, 2) };
    assert!(!Grain::of(Unit::Core, &uneven).is_cpu());
    assert_eq!(Grain::of(Unit::Socket, &Hardware::default()), Grain::CPU, "a node that has not said what it is");
}

#[test]
fn cores_of_which_a_part_is_held_are_taken_last() {
    let core = Grain::of(Unit::Core, &hardware(1, 4, 2));
    assert_eq!(core.take(&set(&[1, 2, 3, 4, 5, 6]), 4), set(&[1, 5, 2, 6]));
    assert_eq!(core.take(&set(&[1, 3, 4, 5]), 4), set(&[1, 5, 3, 4]), "a job of before holds the other halves");
}

#[test]
fn a_job_gets_cores_of_few_sockets_where_it_is_to() {
    let node = hardware(2, 4, 2);
    let core = Grain::of(Unit::Core, &node);
    let few = core.in_few_sockets(&node);
    // One core of the first socket is held.
    let mut free = CoreSet::first(16);
    free.subtract(&set(&[0, 8]));
    assert_eq!(
        (core.take(&free, 8), few.take(&free, 8)),
        (set(&[1, 9, 2, 10, 3, 11, 4, 12]), set(&[4, 12, 5, 13, 6, 14, 7, 15]))
    );
    assert_eq!(few.take(&free, 4), set(&[1, 9, 2, 10]), "the socket with the fewest that suffices");
    assert_eq!(few.take(&free, 10), set(&[4, 12, 5, 13, 6, 14, 7, 15, 1, 9]), "the greatest first");
    assert_eq!(few.take(&free, 99), free);
    let cpu = Grain::of(Unit::Cpu, &node).in_few_sockets(&node);
    assert_eq!(cpu.take(&free, 7), set(&[4, 5, 6, 7, 12, 13, 14]));
}

#[test]
fn cores_near_devices_come_first() {
    let node = hardware(2, 4, 2);
    let (core, cpu) = (Grain::of(Unit::Core, &node), Grain::CPU);
    let (free, near) = (CoreSet::first(16), set(&[4, 5, 6, 7]));
    assert_eq!(core.take_near(&free, 2, &near), set(&[4, 12]), "with the second thread");
    assert_eq!(core.take_near(&free, 10, &near), set(&[4, 12, 5, 13, 6, 14, 7, 15, 0, 8]), "then the others");
    assert_eq!(cpu.take_near(&free, 5, &near), set(&[4, 5, 6, 7, 0]));
    assert_eq!(cpu.take_near(&free, 2, &CoreSet::new()), set(&[0, 1]));
}

proptest! {
    #[test]
    fn no_unit_is_given_twice_and_each_is_whole(
        (sockets, cores, threads) in (1..4_u32, 1..9_u32, 1..4_u32),
        whole_socket in any::<bool>(),
        jobs in prop::collection::vec((1..5_u32, 1..5_u32, 0..4_u32, 0..3_u32), 1..20),
    ) {
        let node = hardware(sockets, cores, threads);
        let grain = Grain::of(if whole_socket { Unit::Socket } else { Unit::Core }, &node);
        let size = if whole_socket { cores * threads } else { threads };
        let mut free = CoreSet::first(node.cpus as usize);
        for (tasks, task_cpus, threads, tasks_per_core) in jobs {
            let request = request(task_cpus, Inside { threads, tasks_per_core, ..Inside::default() });
            let held = grain.cpus(request, tasks, 1);
            let fits = grain.tasks(request, free.len() as u32) >= tasks;
            prop_assert_eq!(fits, held <= free.len() as u32, "what fits and what is held agree");
            prop_assert!(held >= tasks * task_cpus && held.is_multiple_of(size));
            if !fits {
                continue;
            }
            let given = grain.take(&free, held);
            prop_assert_eq!(given.len() as u32, held);
            prop_assert!(given.is_subset(&free));
            let all_cores = sockets * cores;
            let unit = |cpu: usize| (cpu as u32 % all_cores) / if whole_socket { cores } else { 1 };
            let touched: std::collections::BTreeSet<u32> = given.iter().map(unit).collect();
            prop_assert_eq!(touched.len() as u32 * size, held, "nothing but whole units");
            free.subtract(&given);
        }
    }
}
