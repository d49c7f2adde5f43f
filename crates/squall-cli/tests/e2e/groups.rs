//! Parallel groups of ranks (`--groups`) on nodes in blocks, with real programs.

use crate::harness::Cluster;

#[test]
fn ranks_of_a_group_run_in_one_block() {
    let c = Cluster::new("groups", "ranks");
    // The numbers of the nodes go from block to block.
    c.write("topology.conf", "BlockName=left Nodes=n[1,3]\nBlockName=right Nodes=n[2,4]\nBlockSizes=2,4\n");
    c.up("[[nodes]]\nname = \"n[1-4]\"\ncpus = 2\nmemory_mb = 1000\nforce = true\n", &[]);
    let groups = "--groups=tp:2,pp:2,dp:2";
    let ranks = |c: &Cluster, args: &[&str]| {
        let out = c.ok(&[&["srun"], args, &["sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME"]].concat());
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(", ")
    };
    assert_eq!(ranks(&c, &["-N4", groups]), "0 n1, 1 n1, 2 n3, 3 n3, 4 n2, 5 n2, 6 n4, 7 n4");
    assert_eq!(ranks(&c, &["-N4", "-n8"]), "0 n1, 1 n1, 2 n2, 3 n2, 4 n3, 5 n3, 6 n4, 7 n4");
    // A step of all tasks of a job goes by the job's groups.
    c.script(
        "in-job",
        "SQUALL srun sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort | tr '\\n' ,\nSQUALL why $SLURM_JOB_ID",
    );
    let told = c.ok(&["salloc", "-Q", "-N4", groups, &c.path("in-job")]);
    assert!(told.starts_with("0 n1,1 n1,2 n3,3 n3,4 n2,5 n2,6 n4,7 n4,"), "{told}");
    assert!(told.ends_with("Its groups: tp in 1 block, pp in 1 block, dp in 2 blocks."), "{told}");
    let show = c.ok(&["salloc", "-Q", "-N4", groups, "sh", "-c", &c.filled("SQUALL scontrol show job $SLURM_JOB_ID")]);
    assert!(show.contains("Groups=tp:2,pp:2,dp:2"), "{show}");
    for (args, says) in [
        (["-n6", groups], "--groups=tp:2,pp:2,dp:2: these are 8 ranks, and the job has 6: --ntasks must be 8"),
        (["-N3", groups], "8 ranks don't lie evenly on 3 nodes"),
        (["-N4", "--groups=tp:2,tp:2"], "names and numbers of ranks like tp:8,pp:4,dp:16 are needed, each name once"),
    ] {
        c.fails(&[&["sbatch", "--wrap=true"], &args[..]].concat(), says);
    }
}
