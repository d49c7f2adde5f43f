//! Steps that go on without their srun (`srun --async`), and `swait`, with real programs.

use crate::harness::Cluster;

#[test]
fn a_step_goes_on_without_its_srun() {
    let c = Cluster::new("background", "async");
    c.up("[[nodes]]\nname = \"n[1-2]\"\ncpus = 2\nmemory_mb = 1000\nforce = true\n", &[]);
    let late = "until test -e go; do sleep 0.05; done; echo last";
    c.script(
        "job",
        &format!(
            "SQUALL srun --async --exact -n1 sh -c 'echo first; echo wrong >&2; {late}'\n\
             SQUALL srun --async --exact --parsable -n1 -o own-%s -e err sh -c 'cat; echo there; echo bad >&2; exit 3'\n\
             SQUALL srun --async --exact -Q -n1 -o none true\n\
             SQUALL swait --timeout=1; echo $?\ntouch go\nSQUALL swait; echo $?"
        ),
    );
    c.ok(&["sbatch", "-W", "-N1", "-n2", "-o", "out", "job"]);
    assert_eq!(c.read("out"), "Submitted step 1.0\n1.1\n1\n0\n");
    let mut lines: Vec<String> = c.read("slurm-1.0.out").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["first", "last", "wrong"], "its errors are there, too");
    assert_eq!((c.read("own-1").as_str(), c.read("err").as_str()), ("there\n", "bad\n"), "it has no input");
    assert_eq!(c.ok(&["sacct", "-nP", "-j", "1.1", "-o", "State,ExitCode"]), "FAILED|3:0");
    // The end of the job ends its steps, and swait has nothing to wait for.
    c.ok(&["salloc", "-Q", "-n1", "sh", "-c", &c.filled("SQUALL srun --async -Q -n1 sleep 600")]);
    c.until("the job has ended", || c.ok(&["squeue", "-h"]).is_empty());
    c.ok(&["swait", "2"]);
    // What the srun in the background refuses is told by the one that waits.
    for (args, says) in [
        (
            &["srun", "--async", "true"][..],
            "--async is only valid for steps submitted within an existing job allocation.",
        ),
        (&["srun", "--parsable", "true"], "--parsable requires --async."),
        (&["srun", "--async", "--jobid=1", "true"], "Unable to confirm allocation for job 1"),
        (&["srun", "--async", "--jobid=1", "--pty", "true"], "--async and --pty are mutually exclusive."),
    ] {
        c.fails(args, says);
    }
    assert_eq!(c.squall(&["swait", "99"]).status.code(), Some(2));
}
