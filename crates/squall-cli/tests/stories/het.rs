//! Stories of heterogeneous jobs.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("a_heterogeneous_job_starts_whole_and_ends_with_its_script", whole),
    ("one_name_cancels_all_components", cancelled),
    ("srun_runs_in_components_of_a_heterogeneous_job", steps),
    ("salloc_and_srun_get_several_components", allocations),
    ("tasks_of_all_components_are_counted_through", one_world),
    ("what_heterogeneous_jobs_can_not_be_is_said", refused),
    ("d12_sbcast_goes_to_components", broadcast),
    ("d12_het_group_steps_have_options_for_each_group", options_for_each),
];

const SCRIPT: &str = "#!/bin/sh
#SBATCH --output=het.out --job-name=het --nodes=1
#SBATCH hetjob
#SBATCH --nodes=2 --exclusive
echo size $SLURM_HET_SIZE job $SLURM_JOB_ID of $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOB_ID_HET_GROUP_1
echo nodes $SLURM_NNODES_HET_GROUP_0 $SLURM_JOB_NUM_NODES_HET_GROUP_1
test \"$(scontrol show hostnames $SLURM_JOB_NODELIST_HET_GROUP_0)\" = \"$(hostname)\" || echo elsewhere
srun -l --het-group=0,1 sh -c 'echo $SLURM_JOB_ID' | sort
while [ ! -e go-on ]; do sleep 0.02; done
exit 3
";

fn whole(c: &Cluster) {
    c.write("het.sh", SCRIPT);
    let blocker = c.sbatch(&["-N3", "--exclusive", "--wrap", "sleep 600"]);
    c.until_state(&blocker, "RUNNING");
    let job = c.sbatch(&["het.sh"]);
    let next = (job.parse::<u32>().unwrap() + 1).to_string();
    let listed = || c.ok(&["squeue", "-h", "-o", "%i %t", "-j", &job]);
    // One node is free: room for the first component only.
    assert_eq!(listed(), format!("{job}+0 PD\n{job}+1 PD"));
    c.ok(&["scancel", &blocker]);
    c.until("both components run", || listed() == format!("{job}+0 R\n{job}+1 R"));
    let shown = c.ok(&["scontrol", "show", "job", &format!("{job}+1")]);
    assert!(shown.contains(&format!("JobId={next} HetJobId={job} HetJobOffset=1 JobName=het")), "{shown}");
    assert!(shown.contains(&format!("HetJobIdSet={job}-{next}")), "{shown}");
    c.write("go-on", "");
    assert_eq!(c.end_of(&job), "FAILED|3:0\nFAILED|3:0");
    assert_eq!(c.ok(&["sacct", "-n", "-X", "-P", "-o", "JobID", "-j", &job]), format!("{job}+0\n{job}+1"));
    let said = c.read("het.out");
    let steps = format!("0: {job}\n1: {next}\n2: {next}\n");
    assert_eq!(said, format!("size 2 job {job} of {job} {next}\nnodes 1 2\n{steps}"));
}

fn cancelled(c: &Cluster) {
    let job = c.sbatch(&["-N1", ":", "-N2", "--wrap", "sleep 600"]);
    c.until("both components run", || c.ok(&["squeue", "-h", "-o", "%t", "-j", &job]) == "R\nR");
    c.ok(&["scancel", &job]);
    let end = c.end_of(&job);
    assert!(end.lines().count() == 2 && end.lines().all(|line| line.starts_with("CANCELLED by ")), "{end}");
}

fn steps(c: &Cluster) {
    let inner = "srun --het-group=1 -N1 -n1 sh -c 'exit 4'; echo $?
        srun sh -c 'echo first' : sh -c 'echo second; exit 6'; echo $?
        srun --het-group=0-2 true; echo $?; srun --mpi=pmix --het-group=0,1 true; echo $?";
    let done = c.run(&["salloc", "-Q", "-N1", ":", "-N1", "sh", "-c", inner]);
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines[1..3].sort_unstable();
    assert_eq!(lines, ["4", "first", "second", "6", "1", "1"], "{done:?}");
    let most = "het group value of 2, but the job allocation has maximum value of 1";
    assert!(done.err.contains(most) && done.err.contains("(one MPI_COMM_WORLD)"), "{done:?}");
}

fn allocations(c: &Cluster) {
    let env = "echo $SLURM_HET_SIZE $SLURM_NNODES_HET_GROUP_0 $SLURM_NNODES_HET_GROUP_1";
    assert_eq!(c.ok(&["salloc", "-Q", "-N1", ":", "-N2", "sh", "-c", env]), "2 1 2");
    let done = c.run(&["srun", "-N1", "sh", "-c", "echo a", ":", "-N2", "sh", "-c", "echo b"]);
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((done.status, lines), (0, vec!["a", "b", "b"]), "{}", done.err);
    c.until("nothing is left", || c.ok(&["squeue", "-h"]).is_empty());
}

fn one_world(c: &Cluster) {
    let tell = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_GTIDS $SLURM_NODEID/$SLURM_NNODES $SQUALL_HET_AMONG; \
                [ $SLURM_PROCID != 3 ] || exit 7";
    let done = c.run(&["srun", "-l", "-N1", "-n2", "-o", "het.%t", "sh", "-c", tell, ":", "-N2", "sh", "-c", tell]);
    assert_eq!(done.status, 7, "{done:?}");
    assert!(done.err.contains(": task 3: Exited with exit code 7\n"), "{done:?}");
    for (rank, words) in ["0/4 0,1 0/3", "1/4 0,1 0/3", "2/4 2 1/3", "3/4 3 2/3"].iter().enumerate() {
        assert_eq!(c.read(&format!("het.{rank}")).trim_end(), format!("{rank}: {words}"));
    }
    let inner = "srun -l --het-group=1,0 sh -c 'echo $SLURM_PROCID'";
    let done = c.run(&["salloc", "-Q", "-N1", ":", "-N2", "sh", "-c", inner]);
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: 0", "1: 1", "2: 2"], "{done:?}");
}

fn refused(c: &Cluster) {
    let done = c.run(&["sbatch", "-N1", ":", "--array=1-2", "--wrap", "true"]);
    assert!(done.status == 1 && done.err.ends_with("failed: Invalid job array specification\n"), "{done:?}");
    let done = c.run(&["sbatch", "-N1", ":", "-c", "100000", "--wrap", "true"]);
    assert!(done.status == 1 && done.err.contains("node configuration is not available"), "{done:?}");
    assert_eq!(c.ok(&["squeue", "-h"]), "");
}

/// faults.md D12.
fn broadcast(c: &Cluster) {
    c.write("file", "content\n");
    let inner = "J=$SLURM_JOB_ID
        for of in $J $J+0 $J+1 $((J + 1)) $J+2; do sbcast -v -f -j $of file $PWD/brought; echo $?; done";
    let done = c.run(&["salloc", "-Q", "-w", "n1", ":", "-w", "n[2-3]", "sh", "-c", inner]);
    assert_eq!(done.out, "0\n0\n0\n0\n255\n", "{}", done.err);
    let lists: Vec<&str> = done.err.lines().filter_map(|line| line.strip_prefix("sbcast: node_list  = ")).collect();
    assert_eq!(lists, ["n[1-3]", "n1", "n[2-3]", "n[2-3]"], "{}", done.err);
}

/// faults.md D12.
fn options_for_each(c: &Cluster) {
    let inner = "srun -l -n1 sh -c 'echo A $SLURM_NTASKS' : -n2 sh -c 'echo B $SLURM_NTASKS' | sort
        srun -l --het-group=1 -n2 sh -c 'echo X' : --het-group=0 sh -c 'echo Y' | sort
        srun -l --het-group=0-1 sh -c 'echo Z' | sort
        srun --het-group=0 sh -c 'exit 3' : --het-group=1 sh -c 'exit 4'; echo $?
        srun --het-group=0 true : --het-group=0 true; echo $?
        srun true : true : true; echo $?; srun --het-group=x true; echo $?
        squeue -h -o %i -j $SLURM_JOB_ID+1 | sed s/$SLURM_JOB_ID//";
    let done = c.run(&["salloc", "-Q", "-N1", "-n1", ":", "-N2", "-n2", "sh", "-c", inner]);
    let said = "0: A 3\n1: B 3\n2: B 3\n0: Y\n1: X\n2: X\n0: Z\n1: Z\n2: Z\n4\n1\n1\n1\n+1\n";
    assert_eq!(done.out, said, "{}", done.err);
    assert!(done.err.contains("Duplicate het groups in single srun not supported"), "{}", done.err);
}
