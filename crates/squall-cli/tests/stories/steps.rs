//! Stories of srun and salloc: output, exit codes, labels, terminals, many steps.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("srun_on_four_nodes", four_nodes),
    ("srun_reports_exit_codes_as_slurm", exit_codes),
    ("srun_streams_input_and_output", streams),
    ("srun_writes_a_file_for_each_task", task_files),
    ("sstat_measures_running_steps", running_steps_are_measured),
    ("a_hostfile_says_where_ranks_go_whoever_asks_for_the_nodes", host_file),
    ("files_of_tasks_are_labelled", labelled_files),
    ("d11_srun_waits_only_so_long_after_the_first_task", waits_for_others),
    ("srun_gives_a_terminal", terminal),
    ("salloc_runs_a_command_here_and_srun_uses_its_nodes", salloc),
    ("many_steps_share_the_cores_of_a_job", many_steps),
    ("multi_prog", multi_prog),
    ("kill_on_bad_exit", kill_on_bad_exit),
    ("a_task_waits_for_its_children_if_asked", waits_for_children),
    ("r7_a_task_that_dies_with_its_step_daemon_ends_the_step", killed_with_its_daemon),
    ("p13_tasks_and_scripts_ignore_no_signal", no_signal_is_ignored),
    ("tasks_are_bound_to_cpus", cpu_bind),
    ("a_program_is_broadcast_and_laid_down_under_slurms_name", broadcast),
    ("d11_srun_does_as_slurms", as_slurm),
    ("d12_sbcast_goes_to_the_nodes_of_a_step", broadcast_to_a_step),
];

fn four_nodes(c: &Cluster) {
    let out = c.ok(&[
        "srun",
        "-N4",
        "--ntasks-per-node=2",
        "-l",
        "sh",
        "-c",
        "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_NTASKS",
    ]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..8).map(|r| format!("{r}: {r} {} {} n{} 8", r % 2, r / 2, r / 2 + 1)).collect();
    assert_eq!(lines, expected);
}

fn running_steps_are_measured(c: &Cluster) {
    let busy = "x=0; while [ ! -e busy.done ]; do x=$((x + 1)); done";
    let job = c.sbatch(&["-N2", "-n2", "--wrap", &format!("srun sh -c '{busy}' & {busy}; wait")]);
    let seen = |step: &str| {
        let text = c.ok(&["sstat", "-nP", "--noconvert", "-o", "JobID,NTasks,AveCPU,MaxRSS", "-j", step]);
        text.split('|').map(str::to_owned).collect::<Vec<_>>()
    };
    c.until("its steps have used some time", || {
        [format!("{job}.0"), format!("{job}.batch")].iter().all(|step| {
            let row = seen(step);
            row.len() == 4 && row[2].as_str() >= "00:00:01" && row[3] != "0" && !row[3].is_empty()
        })
    });
    assert_eq!(seen(&job)[..2], [format!("{job}.0"), "2".to_owned()]);
    c.write("busy.done", "");
    assert_eq!(c.end_of(&job), "COMPLETED|0:0");
}

fn host_file(c: &Cluster) {
    c.write("hosts", "n3\nn1\nn3\n");
    let env = [("SLURM_HOSTFILE", "hosts")];
    let places = "0: n3\n1: n1\n2: n3\n";
    let sorted = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n") + "\n"
    };
    let tell = "srun -l sh -c 'echo $SLURMD_NODENAME'";
    let done = c.run_with(&["sbatch", "--wait", "-o", "hosts.out", "--wrap", tell], &env, "");
    assert_eq!((done.status, sorted(&c.read("hosts.out"))), (0, places.to_owned()), "{done:?}");
    let done = c.run_with(&["salloc", "-Q", "sh", "-c", tell], &env, "");
    assert_eq!((done.status, sorted(&done.out)), (0, places.to_owned()), "{done:?}");
    let done = c.run_with(&["srun", "-l", "sh", "-c", "echo $SLURMD_NODENAME"], &env, "");
    assert_eq!((done.status, sorted(&done.out)), (0, places.to_owned()), "{done:?}");
    let done = c.run_with(&["salloc", "-Q", "-m", "arbitrary", "-w", "n2,n4", "sh", "-c", tell], &[], "");
    assert_eq!((done.status, sorted(&done.out)), (0, "0: n2\n1: n4\n".to_owned()), "{done:?}");
    let done = c.run_with(&["sbatch", "--wrap", "true"], &[("SLURM_HOSTFILE", "nosuch")], "");
    assert!(done.status != 0 && done.err.contains("Failure getting NodeNames from hostfile"), "{done:?}");
}

fn labelled_files(c: &Cluster) {
    let both = "echo out; echo err >&2; printf rest";
    c.ok(&["srun", "-N2", "-n3", "-l", "-o", "label.%t", "sh", "-c", both]);
    for rank in 0..3 {
        assert_eq!(c.read(&format!("label.{rank}")), format!("{rank}: out\n{rank}: err\n{rank}: rest\n"));
    }
    c.ok(&["srun", "-n12", "-O", "-N2", "-l", "-o", "labels.%N", "echo", "a"]);
    let mut lines: Vec<String> = ["n1", "n2"]
        .iter()
        .flat_map(|node| c.read(&format!("labels.{node}")).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.sort();
    assert_eq!(lines, (0..12).map(|rank| format!("{rank:>2}: a")).collect::<Vec<_>>());
}

fn waits_for_others(c: &Cluster) {
    let tell = "[ $SLURM_PROCID = 0 ] || exec sleep 1000";
    let done = c.run(&["srun", "-N2", "-n2", "-W1", "sh", "-c", tell]);
    let begin = done.err.lines().next().unwrap_or_default();
    assert_eq!(begin, "srun: First task exited 1s ago", "{done:?}");
    let ended = "Job step aborted: Waiting up to ";
    for words in ["task 0: exited", "task 1: running", "srun: Terminating StepId=", ended, "task 1: Killed"] {
        assert!(done.err.contains(words), "{words}: {done:?}");
    }
    // faults.md D11: as in Slurm they are killed.
    assert_eq!(done.status, 137, "{done:?}");
}

fn exit_codes(c: &Cluster) {
    let done = c.run(&["srun", "sh", "-c", "exit 5"]);
    assert_eq!(done.status, 5, "{done:?}");
    assert!(done.err.contains("srun: error: n1: task 0: Exited with exit code 5"), "{done:?}");
    let done = c.run(&["srun", "sh", "-c", "kill -9 $$"]);
    assert_eq!(done.status, 137, "{done:?}");
    assert!(done.err.contains("task 0: Killed"), "{done:?}");
    let done = c.run(&["srun", "nosuchcmd"]);
    assert_eq!(done.status, 2, "{done:?}");
    assert!(done.err.contains("execve(): nosuchcmd: No such file or directory"), "{done:?}");
}

fn cpu_bind(c: &Cluster) {
    let tell = "echo $(grep Cpus_allowed_list /proc/self/status) $SLURM_CPU_BIND_TYPE$SLURM_CPU_BIND_LIST";
    let run = |bind: &str| {
        let done = c.run(&["srun", "-N1", "-n3", "-l", bind, "sh", "-c", tell]);
        let mut lines: Vec<String> = done.out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        (lines, done.err)
    };
    // Those of this test are those of the cluster that it started.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let ends: Vec<usize> = all.split([',', '-']).map(|cpu| cpu.parse().unwrap()).collect();
    let (first, last) = (ends[0], *ends.last().unwrap());
    let shown = |rank: usize, cpu: usize, what: &str| format!("{rank}: Cpus_allowed_list: {cpu} {what}");
    let map = format!("map_cpu:{last},{first}");
    assert_eq!(
        run(&format!("--cpu-bind={map}")),
        (vec![shown(0, last, &map), shown(1, first, &map), shown(2, last, &map)], String::new())
    );
    let (lines, said) = run(&format!("--cpu-bind=verbose,mask_cpu:{:#x}", 1_u64 << (first % 64)));
    if first < 64 {
        let mask = format!("mask_cpu:{:#x}", 1_u64 << first);
        assert_eq!(lines, [0, 1, 2].map(|rank| shown(rank, first, &mask)));
        for rank in 0..3 {
            // On whichever node is free.
            let head = format!("{rank}: cpu-bind=MASK - n");
            let (task, tail) = (format!(", task {rank:2} {rank:2} ["), format!("]: mask {:#x} set", 1_u64 << first));
            let is_it = |line: &str| line.starts_with(&head) && line.contains(&task) && line.ends_with(&tail);
            assert!(said.lines().any(is_it), "{said}");
        }
    }
    assert_eq!(run("--cpu-bind=none").0, [0, 1, 2].map(|rank| format!("{rank}: Cpus_allowed_list: {all} none")));
    assert!(
        run("--cpu-bind=threads").0[0].starts_with(&shown(0, first, "mask_cpu:0x")),
        "{:?}",
        run("--cpu-bind=threads")
    );
    let (lines, said) = run("--cpu-bind=map_cpu:4000");
    assert_eq!(lines[0], format!("0: Cpus_allowed_list: {all} map_cpu:4000"));
    assert!(said.contains("3 task(s) not bound"), "{said}");
    let (lines, said) = run("--cpu-bind=corse");
    assert_eq!(
        (lines.len(), said.lines().next().unwrap().contains("unrecognized --cpu-bind argument \"corse\"")),
        (0, true)
    );
}

fn streams(c: &Cluster) {
    let done = c.run_with(&["srun", "cat"], &[], "line one\nline two\n");
    assert_eq!((done.status, done.out.as_str()), (0, "line one\nline two\n"), "{done:?}");
    let done = c.run(&["srun", "-n2", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("out\nout\n", "err\nerr\n"), "{done:?}");
    let out = c.ok(&["srun", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]);
    assert_eq!(out.len(), 3_000_000);
}

fn task_files(c: &Cluster) {
    c.ok(&["srun", "-n3", "-o", "task-%t.out", "sh", "-c", "echo I am $SLURM_PROCID"]);
    for rank in 0..3 {
        assert_eq!(c.read(&format!("task-{rank}.out")), format!("I am {rank}\n"));
    }
}

fn terminal(c: &Cluster) {
    let done = c.run(&["srun", "--pty", "sh", "-c", "test -t 1 && echo a terminal; exit 3"]);
    assert_eq!(done.status, 3, "{done:?}");
    assert!(done.out.contains("a terminal"), "{done:?}");
}

fn salloc(c: &Cluster) {
    let done = c.run(&["salloc", "-N2", "sh", "-c", "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST; srun hostname; exit 9"]);
    assert_eq!(done.status, 9, "{done:?}");
    let id = done.out.split(' ').next().unwrap();
    assert!(done.out.lines().next().unwrap().ends_with("n[1-2]"), "{done:?}");
    assert_eq!(done.out.lines().count(), 3, "{done:?}");
    assert!(done.err.contains(&format!("salloc: Granted job allocation {id}")), "{done:?}");
    assert!(done.err.contains(&format!("salloc: Relinquishing job allocation {id}")), "{done:?}");
    c.until("the allocation has ended", || c.ok(&["squeue", "-h", "-j", id, "-t", "all", "-o", "%T"]) != "RUNNING");
}

fn many_steps(c: &Cluster) {
    c.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 4\n#SBATCH -N 1\nfor i in $(seq 40); do srun -n1 --exact sh -c 'echo done' & done\nwait\n",
    );
    let id = c.sbatch(&["-o", "steps.out", "steps.sh"]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read("steps.out").lines().filter(|l| *l == "done").count(), 40, "{}", c.read("steps.out"));
    let rows = c.ok(&["sacct", "-n", "-P", "-o", "JobID,State", "-j", &id]);
    assert_eq!(rows.lines().filter(|l| l.ends_with("|COMPLETED")).count(), 42, "{rows}");
}

fn multi_prog(c: &Cluster) {
    c.write("multi.conf", "# ranks\n0 echo zero %t\n1-2 echo others %o\n");
    let out = c.ok(&["srun", "-n3", "-l", "--multi-prog", "multi.conf"]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: zero 0", "1: others 0", "2: others 1"]);
}

/// faults.md R7.
fn killed_with_its_daemon(c: &Cluster) {
    let task = "[ $SLURM_PROCID = 1 ] || exec sleep 600; kill -9 $PPID $$";
    let done = c.run(&["srun", "-K1", "-N2", "-n2", "sh", "-c", task]);
    assert_eq!(done.status, 143, "{done:?}");
    assert!(done.err.contains(": task 1: Killed\nsrun: Terminating StepId="), "{done:?}");
}

/// faults.md P13.
fn no_signal_is_ignored(c: &Cluster) {
    let ignored = "SigIgn:\t0000000000000000";
    assert_eq!(c.ok(&["srun", "grep", "SigIgn", "/proc/self/status"]), ignored);
    // The command of salloc is one of the caller's own: under nohup it ignores HUP, and in the background of a script INT and
    // QUIT.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let own = format!("SigIgn:\t{:016x}", u64::from_str_radix(own, 16).unwrap() & 0b111);
    assert_eq!(c.ok(&["salloc", "-Q", "grep", "SigIgn", "/proc/self/status"]), own);
    c.sbatch(&["--wait", "--output=ignored.out", "--wrap", "grep SigIgn /proc/self/status"]);
    assert_eq!(c.read("ignored.out").trim_end(), ignored);
}

fn kill_on_bad_exit(c: &Cluster) {
    let start = std::time::Instant::now();
    let done =
        c.run(&["srun", "-n2", "--kill-on-bad-exit=1", "sh", "-c", "test $SLURM_PROCID = 1 && exit 7; sleep 50"]);
    assert_eq!(done.status, 7.max(done.status), "{done:?}");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

fn waits_for_children(c: &Cluster) {
    let late = "(sleep 1; echo late) & setsid sh -c 'sleep 2; echo later' & echo early";
    assert_eq!(c.ok(&["srun", "-n1", "sh", "-c", late]), "early");
    assert_eq!(c.ok(&["srun", "-n1", "--wait-for-children", "sh", "-c", late]), "early\nlate\nlater");
    // Each task waits for its own; the other's status is the step's.
    let some = "test $SLURM_PROCID = 1 && exit 4; (sleep 1; echo late) & true";
    let done = c.run(&["srun", "-n2", "--wait-for-children", "sh", "-c", some]);
    assert_eq!((done.status, done.out.as_str()), (4, "late\n"), "{done:?}");
    let start = std::time::Instant::now();
    let done = c.run(&["srun", "-n1", "--wait-for-children", "-K", "sh", "-c", "sleep 50 & exit 3"]);
    assert_eq!(done.status, 3, "{done:?}");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    // What is left behind is signalled in place of the task.
    let id = c.sbatch(&["-n1", "-o", "out", "--wrap", "srun --wait-for-children sh -c 'sleep 50 & true'"]);
    c.until("the step runs", || c.ok(&["squeue", "-hs", "-j", &id, "-o", "%i"]).contains(&format!("{id}.0")));
    c.ok(&["scancel", &format!("{id}.0")]);
    c.until("the job has ended", || c.ok(&["squeue", "-h", "-j", &id]).is_empty());
}

fn broadcast(c: &Cluster) {
    let folder = c.path("work/there/");
    std::fs::create_dir(&folder).unwrap();
    // Longer than one piece.
    c.write("program", &format!("#!/bin/sh\necho ran\nexit\n{}", "#".repeat(300_000)));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(c.path("work/program"), mode).unwrap();
    let there = || {
        let mut names: Vec<String> =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let script = format!(
        "srun -N2 true\nsrun -N2 --bcast={folder} ./program\nsrun -N2 --bcast ./program\n\
         sbcast ./program {folder}copy\nsbcast ./program {folder}copy\nrm {folder}copy; echo $?"
    );
    let id = c.sbatch(&["-N2", "-o", "out", "--wrap", &script]);
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read("out"), "ran\nran\nran\nran\n0\n");
    let nodes: Vec<String> = there().iter().map(|name| name.rsplit('_').next().unwrap().to_owned()).collect();
    assert_eq!(there(), nodes.iter().map(|node| format!("slurm_bcast_{id}.1_{node}")).collect::<Vec<_>>());
    assert_eq!(nodes.len(), 2);
}

/// faults.md D11: what was seen on Slurm 22.05.8.
fn as_slurm(c: &Cluster) {
    let said = |args: &[&str]| {
        let done = c.run(&[&["srun"], args].concat());
        (done.status, done.out, done.err)
    };
    for (asked, shown) in [
        ("*", "block"),
        ("*:*", "block:cyclic"),
        ("cyclic:*", "cyclic:cyclic"),
        ("block:block:*", "block:block:block"),
        ("*:*:fcyclic", "block:cyclic:fcyclic"),
        ("*,NoPack", "block,nopack"),
    ] {
        assert_eq!(said(&["-m", asked, "printenv", "SLURM_DISTRIBUTION"]).1, format!("{shown}\n"), "{asked}");
    }
    let refused =
        "srun: error: With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option\n";
    assert_eq!(said(&["-m", "arbitrary", "true"]), (1, String::new(), refused.into()));
    let (_, level, told) = said(&["--slurmd-debug=verbose", "printenv", "SLURMD_DEBUG"]);
    assert!(level == "4\n" && told.contains(": debug levels are stderr='debug2', logfile='error'"), "{told}");
    assert!(told.contains(": starting 1 tasks\n") && told.contains(") exited with exit code 0.\n"), "{told}");
    assert_eq!(said(&["--slurmd-debug=9", "printenv", "SLURMD_DEBUG"]).1, "4\n");

    let nodes = "srun -N1-2 printenv SLURM_NNODES; srun -N2-4 printenv SLURM_NNODES; srun -N5 true";
    c.ok(&["sbatch", "-W", "-N4", "-o", "d11.nodes", "--wrap", &format!("{nodes}; true")]);
    let expected = "2\n2\n4\n4\n4\n4\nsrun: error: Only allocated 4 nodes asked for 5\n";
    assert_eq!(c.read("d11.nodes"), expected);

    let unable = |why: &str| (1, String::new(), format!("srun: error: Unable to allocate resources: {why}\n"));
    assert_eq!(said(&["-I", "-H", "true"]), unable("Job dependency problem"));
    assert_eq!(said(&["-I", "-b", "now+1hour", "true"]), unable("Job dependency problem"));
    c.ok(&["scontrol", "update", "partitionname=low", "state=DOWN"]);
    assert_eq!(said(&["-I", "-p", "low", "true"]), unable("Partition in DOWN state"));
    let waited = said(&["-I2", "-p", "low", "true"]).2;
    assert!(waited.starts_with("srun: Partition in DOWN state\nsrun: job "), "{waited}");
    c.ok(&["scontrol", "update", "partitionname=low", "state=UP"]);
    let held = said(&["-I2", "-H", "true"]).2;
    assert!(held.starts_with("srun: Job is in held state, pending scheduler release\nsrun: job "), "{held}");
}

/// faults.md D12.
fn broadcast_to_a_step(c: &Cluster) {
    c.write("file", "content\n");
    let inner = "srun -N2 -n2 sh -c 'echo > begun; while [ ! -e done ]; do sleep 0.05; done' &
        while [ ! -e begun ]; do sleep 0.05; done
        for of in .0 +0.0 '' .7; do sbcast -vv -f -j $SLURM_JOB_ID$of file $PWD/brought; echo $?; rm -f brought; done
        echo > done; wait";
    let done = c.run(&["salloc", "-Q", "-N3", "sh", "-c", inner]);
    assert_eq!(done.out, "0\n0\n0\n255\n", "{}", done.err);
    let shown = |what: &str| done.err.lines().filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>();
    let nodes = ["n[1-2]", "n[1-2]", "n[1-3]"].map(|nodes| format!("sbcast: node_list  = {nodes}"));
    assert_eq!(shown("node_list"), nodes);
    let brought: Vec<String> =
        shown("lacking").iter().map(|line| line.split(" of ").last().unwrap().to_owned()).collect();
    assert_eq!(brought, ["2 nodes", "2 nodes", "3 nodes"]);
    assert!(done.err.contains("lookup error: Invalid job id specified"), "{}", done.err);
    assert!(done.err.contains("sbcast: block_size = 8388608\nsbcast: compress   = 0\n"), "{}", done.err);
}
