//! Jobs whose QOS exempts them from rules.

use squall_model::job::Need;

use super::{Cluster, PartitionRules, tasks};
use crate::request::Exemptions;

#[test]
fn a_job_that_reserves_nothing_lets_others_go_before_it() {
    let queue = |reserves: [bool; 3]| {
        // The first job gets the second node in 50 s.
        let mut cluster = Cluster::new(&[4, 4]).run(0, 3, 90).run(1, 3, 50);
        cluster = cluster.queue(vec![tasks(4), tasks(1), tasks(1)]).limits(&[10, 1000, 51]);
        cluster.partitions[0].jobs.iter_mut().zip(reserves).for_each(|(job, reserves)| job.reserves = reserves);
        cluster.backfilled()
    };
    assert_eq!(queue([true, true, true]), (vec![2], vec![(1, 50)]), "the last one is in its way");
    assert_eq!(queue([false, true, true]), (vec![2, 3], vec![]));
}

#[test]
fn a_qos_lifts_limits_of_partitions() {
    let starts = |need: Need, rules: PartitionRules, exempt: Exemptions| {
        let mut cluster = Cluster::new(&[4, 4]).queue(vec![need]);
        (cluster.rules, cluster.exempt) = (rules, exempt);
        cluster.plan().starts.len()
    };
    let nodes = |nodes_min, nodes_max| Need { nodes_min, nodes_max, ..Need::default() };
    let most = PartitionRules { most: Some(1), ..PartitionRules::default() };
    let fewest = PartitionRules { fewest: 2, ..PartitionRules::default() };
    let (none, all) = (Exemptions::default(), Exemptions { nodes_max: true, nodes_min: true, ..Exemptions::default() });
    assert_eq!((starts(nodes(Some(2), None), most, none), starts(nodes(Some(2), None), most, all)), (0, 1));
    let one = || nodes(Some(1), Some(1));
    assert_eq!((starts(one(), fewest, none), starts(one(), fewest, all)), (0, 1));
}
