//! Tests of which cores of a node a job gets, and how tasks are shared out to nodes.

use squall_model::config::Unit;
use squall_model::gres::DeviceGroup;
use squall_model::job::Need;
use squall_model::set::CoreSet;

use super::{Cluster, tasks};
use crate::{Discipline, Scratch, Start};

#[test]
fn jobs_of_a_partition_leave_cpus_of_each_socket_to_others() {
    // Two sockets of 4 cores of 2 threads; a job holds a core of the first socket.
    let mut cluster = Cluster::new(&[16]).run(0, 0, 100);
    let topology = (2, 4, 2);
    let has = &mut cluster.nodes[0].hardware;
    (has.sockets, has.cores_per_socket, has.threads_per_core) = topology;
    cluster.runs[0].alloc.groups[0].cores = [0, 8].into_iter().collect();
    cluster.nodes[0].cores = [0, 8].into_iter().collect();
    let cores = |unit, most: u32, jobs: &[Need]| {
        let mut cluster = Cluster { unit, ..cluster.clone() };
        cluster.rules.socket = Some(most);
        let plan = cluster.queue(jobs.to_vec()).plan_by(Discipline::Easy, &mut Scratch::default());
        let of = |start: &Start| start.given.alloc.groups[0].cores.iter().collect::<Vec<_>>();
        plan.starts.iter().map(of).collect::<Vec<_>>()
    };
    let [of_cpus, of_cores, others] = [(Unit::Cpu, 3, tasks(1)), (Unit::Core, 5, tasks(4)), (Unit::Core, 4, tasks(7))]
        .map(|(unit, most, need)| {
            let jobs = [need, tasks(2), tasks(2), tasks(2)];
            cores(unit, most, &jobs)
        });
    assert_eq!(of_cpus, [vec![1], vec![4, 5]], "3 of each socket, of which 2 are held");
    assert_eq!(of_cores, [vec![1, 4, 9, 12], vec![5, 13]], "whole cores only");
    assert_eq!(others, [vec![1, 9], vec![4, 12], vec![5, 13]], "a job beyond the limit blocks only itself");
    let all = cores(Unit::Core, 8, &[tasks(14)]);
    assert_eq!(all[0].len(), 14, "a limit that is not reached");
}

#[test]
fn nodes_are_filled_one_after_the_other_where_they_are_to() {
    // With more CPUs than the tasks need, the nodes' shares of the tasks are free to choose.
    let need = Need { nodes_min: Some(2), ntasks: Some(6), cpus_min: Some(2), ..Need::default() };
    let mut cluster = Cluster::new(&[8, 8]).queue(vec![need]);
    assert_eq!(cluster.started(), [(1, vec![(0, 3), (1, 3)])]);
    cluster.rules.packs = true;
    assert_eq!(cluster.started(), [(1, vec![(0, 5), (1, 2)])]);
}

#[test]
fn cores_near_the_gpus_of_a_job_are_its_own() {
    let mut cluster = Cluster::new(&[4]).with_gpus(4);
    let node = &mut cluster.gpus[0];
    node.kinds = (0..4)
        .map(|index| DeviceGroup {
            name: "gpu".into(),
            indices: index..index + 1,
            cores: [index / 2 * 2, index / 2 * 2 + 1].into_iter().collect(),
            ..DeviceGroup::default()
        })
        .collect();
    // A core of the first socket and its first GPU are in use: two GPUs of one socket are those of the second.
    cluster.nodes[0].cores = CoreSet::first(1);
    node.held.insert("gpu".into(), CoreSet::first(1));
    let two = Need { gres: Some("gpu:2".into()), ..tasks(2) };
    let plan = cluster.queue(vec![two]).plan_by(Discipline::Easy, &mut Scratch::default());
    let given = &plan.starts[0].given;
    let cores: Vec<usize> = given.alloc.groups[0].cores.iter().collect();
    assert_eq!((given.gres[0].indices.iter().collect::<Vec<_>>(), cores), (vec![2, 3], vec![2, 3]));
}
