//! A cluster's configuration with real processes: what is taken, refused, replaced, and found again after a power cut.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Cluster, text};

fn nodes(c: &Cluster) -> String {
    c.ok(&["sinfo", "-h", "-o", "%N"])
}

/// faults.md A7 (V1): before a file gets its name its content is flushed, and afterwards its folder.
#[test]
fn a7_a_configuration_is_flushed_before_and_after_it_is_renamed() {
    let c = Cluster::new("configured", "flushed");
    let (shim, log) = (c.dir.join("shim.so"), c.dir.join("log"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/shim.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(source).arg("-ldl").output();
    assert!(compiled.as_ref().unwrap().status.success(), "{}", text(&compiled.unwrap()));
    c.write("c.toml", "[[nodes]]\nname = \"n1\"\ngres = \"gpu:1\"\n");
    c.write("gres.conf", "Name=gpu Count=1\n");
    let mut up = c.command(&["up", "--config", "c.toml"]);
    let out = up.env("LD_PRELOAD", &shim).env("FLUSH_LOG", &log).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    let log = c.read("log");
    let lines: Vec<&str> = log.lines().collect();
    for file in ["squall.toml", "gres.conf"] {
        let path = c.state().join(file);
        let renamed = lines.iter().position(|line| line.ends_with(&format!(" {}", path.display()))).unwrap();
        let draft = lines[renamed].split(' ').nth(1).unwrap();
        let before = lines[..renamed].iter().any(|line| line.trim_end() == format!("flush {draft}"));
        let folder = format!("flush {}", c.state().display());
        let after = lines[renamed..].iter().any(|line| line.trim_end() == folder);
        assert!(before && after, "{file}: {log}");
    }
}

/// faults.md A7 (V1): a file that a power cut has emptied is no configuration of a cluster that had nodes.
#[test]
fn a7_an_emptied_configuration_is_refused_and_what_is_known_of_it_is_named() {
    let c = Cluster::new("configured", "emptied");
    c.said(&["up", "--nodes", "2"]);
    c.said(&["down"]);
    std::fs::write(c.state().join("squall.toml"), "").unwrap();
    c.fails(&["up"], "it is empty or names no nodes, but this cluster had n[1-2]");
    c.said(&["up", "--config", c.state().join("squall.toml.journaled").to_str().unwrap()]);
    assert_eq!(nodes(&c), "n[1-2]");
}

/// faults.md A7 (N4)
#[test]
fn a7_five_starts_at_once_make_one_cluster() {
    let c = Cluster::new("configured", "five");
    let starts: Vec<_> = (0..5)
        .map(|_| c.command(&["up", "--nodes", "2"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for start in starts {
        let out = start.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", text(&out));
    }
    assert_eq!(nodes(&c), "n[1-2]");
    // Those that found another one running try for half a second, and would take its place after `squall down`.
    let state = c.state();
    let daemons = || {
        let lines = std::fs::read_dir("/proc").unwrap().flatten().map(|p| std::fs::read(p.path().join("cmdline")));
        lines.flatten().filter(|line| String::from_utf8_lossy(line).contains(state.to_str().unwrap())).count()
    };
    let end = Instant::now() + Duration::from_secs(20);
    while daemons() > 3 {
        assert!(Instant::now() < end, "{} daemons", daemons());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(daemons(), 3, "a controller and two nodes");
}

/// faults.md D1 (V10)
#[test]
fn d1_a_cluster_elsewhere_is_not_the_one_that_commands_talk_to() {
    let c = Cluster::new("configured", "elsewhere");
    let state = c.state();
    let without = |args: &[&str]| c.command(args).env_remove("SQUALL_STATE").output().unwrap();
    let out = without(&["up", "--nodes", "1", "--state", state.to_str().unwrap()]);
    assert!(
        text(&out).contains(&format!("to talk to this one: export SQUALL_STATE={}\n", state.display())),
        "{}",
        text(&out)
    );
    c.said(&["sbatch", "--hold", "--job-name", "only-elsewhere", "--wrap", "true"]);
    assert!(c.said(&["squeue", "-h", "-o", "%j"]).contains("only-elsewhere"));
    assert!(!text(&without(&["squeue", "-h", "-o", "%j"])).contains("only-elsewhere"));
    assert!(c.said(&["up"]).contains("commands talk to this cluster, while SQUALL_STATE says so"));
}

/// faults.md D6 (V11)
#[test]
fn d6_what_is_rejected_leaves_nothing_behind_and_the_mended_files_start() {
    let c = Cluster::new("configured", "rejected");
    c.write("c.toml", "[[nodes]]\nname = \"n[1-2\"\n");
    c.fails(&["up", "--config", "c.toml"], "c.toml: line 2: nodes `n[1-2`");
    assert!(!c.state().exists());
    c.write("c.toml", "[[nodes]]\nname = \"n[1-2]\"\n");
    c.write("topology.conf", "SwitchName=s1 Nods=n[1-2]\n");
    c.fails(&["up", "--config", "c.toml"], "topology.conf: line 1: unknown key `nods`");
    c.write("gres.conf", "Nam=gpu\n");
    std::fs::remove_file(c.dir.join("topology.conf")).unwrap();
    c.fails(&["up", "--config", "c.toml"], "gres.conf: line 1: `Nam` is not known");
    assert!(!c.state().exists());
    std::fs::remove_file(c.dir.join("gres.conf")).unwrap();
    c.said(&["up", "--config", "c.toml"]);
    assert_eq!(nodes(&c), "n[1-2]");
}

/// faults.md D6: a configuration that the controller refuses (another cluster's name) is taken back.
#[test]
fn nodes_beside_several_controllers_have_names_of_their_machines() {
    let c = Cluster::new("configured", "heads");
    c.write("conf.toml", "[[controllers]]\nname = \"h1\"\naddress = \"127.0.0.1:1\"\n[[controllers]]\nname = \"h2\"\naddress = \"127.0.0.1:2\"\n[log]\netcd = [\"127.0.0.1:3\"]\n");
    c.fails(&["up", "--controller", "h1", "--config", "conf.toml", "--nodes", "2"], "--nodes: where there are several");
    assert!(!c.state().exists(), "nothing is left behind");
}

#[test]
fn d6_a_running_cluster_keeps_its_configuration_and_an_ended_one_takes_another() {
    let c = Cluster::new("configured", "replaced");
    c.write("a.toml", "[[nodes]]\nname = \"n[1-2]\"\n");
    c.write("b.toml", "[[nodes]]\nname = \"n[1-3]\"\n");
    c.write("other.toml", "cluster = \"other\"\n[[nodes]]\nname = \"n[1-3]\"\n");
    c.said(&["up", "--config", "a.toml"]);
    c.fails(&["up", "--config", "b.toml"], "this cluster runs with another configuration");
    c.said(&["down"]);
    c.fails(&["up", "--config", "other.toml"], "belongs to cluster `squall`");
    assert_eq!(c.read("state/squall.toml"), c.read("a.toml"));
    assert!(c.said(&["up", "--config", "b.toml"]).contains("the one before is kept as"));
    assert_eq!((nodes(&c).as_str(), c.read("state/squall.toml.old")), ("n[1-3]", c.read("a.toml")));
    assert!(c.said(&["up", "--config", "b.toml"]).contains("runs already"));
}

#[test]
fn files_that_are_gone_beside_the_configuration_and_stay_in_force_are_named() {
    let c = Cluster::new("configured", "kept");
    c.write("a.toml", "[[nodes]]\nname = \"n1\"\n");
    c.write("gres.conf", "Name=gpu Count=1\n");
    assert!(!c.said(&["up", "--config", "a.toml"]).contains("stays in force"));
    c.said(&["down"]);
    std::fs::remove_file(c.dir.join("gres.conf")).unwrap();
    let named = format!("{} stays in force: delete it", c.state().join("gres.conf").display());
    assert!(c.said(&["up", "--config", "a.toml"]).contains(&named));
    c.said(&["down"]);
    c.write("a.toml", "kill_wait_s = 20\n[[nodes]]\nname = \"n1\"\n");
    assert!(!c.said(&["up", "--config", "a.toml"]).contains("stays in force"));
    assert!(!c.state().join("gres.conf").exists());
}

/// faults.md V11
#[test]
fn d6_the_same_start_with_a_port_resumes() {
    let c = Cluster::new("configured", "resumes");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    c.write("a.toml", "[[nodes]]\nname = \"n1\"\n");
    c.said(&["up", "--config", "a.toml", "--listen", &listen]);
    assert!(c.said(&["up", "--config", "a.toml", "--listen", &listen]).contains("runs already"));
    c.said(&["down"]);
    c.said(&["up", "--config", "a.toml", "--listen", &listen]);
    assert!(c.read("state/squall.toml").contains(&format!("SlurmctldPort = {port}")));
}

/// faults.md D6, E: `squall down` stops a cluster whatever its files say; `scontrol reconfigure` says what is wrong.
#[test]
fn d6_faulty_files_are_named_by_reconfigure_and_do_not_hold_up_the_end() {
    let c = Cluster::new("configured", "faulty");
    c.said(&["up", "--nodes", "2"]);
    let toml = c.read("state/squall.toml");
    c.write("state/topology.conf", "SwitchName=s1 Nodes=n1\nSwitchName=s1 Nodes=n2\n");
    c.fails(&["scontrol", "reconfigure"], "topology.conf: line 2: switch `s1` stands in line 1 already");
    std::fs::remove_file(c.state().join("topology.conf")).unwrap();
    c.write("state/squall.toml", &format!("{toml}[[partitions]]\nname = \"a\"\nnodes = \"n9\"\n"));
    c.fails(&["scontrol", "reconfigure"], "partition a: there is no node `n9`");
    c.write("state/squall.toml", &format!("kil_wait_s = 3\n{toml}"));
    c.fails(&["scontrol", "reconfigure"], "did you mean");
    c.fails(&["up"], "unknown key `kil_wait_s`");
    let said = c.said(&["down"]);
    assert!(said.contains("is down") && said.contains("going on without the configuration"), "{said}");
    assert!(!c.state().join("run/node-n1.pid").exists() && !c.state().join("run/controller.pid").exists());
}

/// faults.md D5
#[test]
fn d5_more_than_the_machine_has_is_refused_or_drained_unless_forced() {
    let c = Cluster::new("configured", "more");
    c.write("a.toml", "[[nodes]]\nname = \"n[1-2]\"\ncpus = 4000\n");
    c.fails(&["up", "--config", "a.toml"], "a.toml: nodes `n[1-2]`: cpus = 4000, but this machine has");
    c.write("a.toml", "[[nodes]]\nname = \"n[1-2]\"\ncpus = 4000\nforce = true\n");
    c.said(&["up", "--config", "a.toml"]);
    assert_eq!(c.said(&["sinfo", "-h", "-N", "-o", "%N %c %T"]), "n1 4000 idle\nn2 4000 idle\n");
    let memory: Vec<u64> = c.said(&["sinfo", "-h", "-N", "-o", "%m"]).lines().map(|m| m.parse().unwrap()).collect();
    let all = std::fs::read_to_string("/proc/meminfo").unwrap();
    let all: u64 = all.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10;
    assert_eq!(memory, [all / 2, all / 2], "nodes of one machine share its memory");
    c.said(&["down"]);
    let unforced = c.read("a.toml").replace("force = true\n", "");
    c.write("state/squall.toml", &unforced);
    c.said(&["up"]);
    let drained = c.said(&["sinfo", "-h", "-N", "-o", "%N %T %E"]);
    assert!(drained.starts_with("n1 drained Low socket*core*thread count"), "{drained}");
    c.said(&["down"]);
    c.write("state/squall.toml", &c.read("a.toml"));
    c.said(&["up"]);
    assert_eq!(c.said(&["sinfo", "-h", "-N", "-o", "%N %T"]), "n1 idle\nn2 idle\n");
}

/// faults.md E
#[test]
fn e_odd_topologies_words_and_devices_are_told_and_start() {
    let c = Cluster::new("configured", "odd");
    c.write(
        "a.toml",
        "SchedulerParameters = \"kill_invalid_depend,bf_max_job_user=9\"\n[[nodes]]\nname = \"n[1-3]\"\n\
         [[partitions]]\nname = \"a\"\nDefault = \"NO\"\nMaxTime = \"60\"\n",
    );
    c.write("topology.conf", "SwitchName=s1 Nodes=n[1-2],x1\nSwitchName=s2 Nodes=n2\n");
    c.write("gres.conf", "AutoDetect=nvml\n");
    c.fails(&["up", "--strict", "--config", "a.toml"], "topology.conf: line 1: there is no node `x1`");
    let said = c.said(&["up", "--config", "a.toml"]);
    for told in ["`x1`", "line 2: node `n2` stands in line 1 already", "node `n3` of", "bf_max_job_user=9"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    c.fails(&["sbatch", "--wrap", "true"], "No partition specified or system default partition");
    c.said(&["sbatch", "-p", "a", "-w", "n3", "-W", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(c.said(&["sinfo", "-h", "-o", "%P %l"]).trim(), "a 1:00:00");
}

/// Two nodes of 2 sockets of 8 cores of 2 threads, which this machine only pretends to have.
const SMT: &str = "[[nodes]]\nname = \"n[1-2]\"\nsockets = 2\ncores_per_socket = 8\nthreads_per_core = 2\n\
                   memory_mb = 4000\nforce = true\n";

#[test]
fn whole_cores_and_sockets_are_held_as_in_slurm() {
    let c = Cluster::new("configured", "cores");
    c.write("b.toml", "SelectTypeParameters = \"CR_Memory\"\n");
    c.fails(&["up", "--config", "b.toml"], "CPUs are given out, too: use CR_CPU_Memory");
    c.write("b.toml", &format!("SelectTypeParameters = \"CR_Core\"\n{SMT}cpus = 24\n"));
    c.fails(&["up", "--config", "b.toml"], "these are no whole cores");
    c.write("a.toml", &format!("SelectTypeParameters = \"CR_Core_Memory\"\n{SMT}"));
    c.said(&["up", "--config", "a.toml"]);
    let sleeps = |args: &[&str]| {
        let all = [&["sbatch", "--parsable", "-o", "/dev/null"], args, &["--wrap", "sleep 300"]].concat();
        c.said(&all).trim().to_owned()
    };
    let shown = |job: &str| c.said(&["scontrol", "show", "-d", "job", job]);
    let held = |job: &str| c.said(&["squeue", "-h", "-j", job, "-o", "%C %T"]);
    let one = sleeps(&["-n1", "--mem-per-cpu=100"]);
    let said = shown(&one);
    for told in ["NumCPUs=2 NumTasks=1", "AllocTRES=cpu=2,mem=200M,node=1", "CPU_IDs=0-1 Mem=200"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let three = sleeps(&["-n3"]);
    assert!(shown(&three).contains("CPU_IDs=2-5 "), "{}", shown(&three));
    assert_eq!(held(&three), "4 RUNNING\n");
    assert_eq!(held(&sleeps(&["-n3", "--threads-per-core=1"])), "6 RUNNING\n");
    assert_eq!(held(&sleeps(&["-n2", "--hint=nomultithread", "-c2"])), "8 RUNNING\n");
    assert_eq!(c.said(&["sinfo", "-h", "-o", "%C %z"]), "20/44/0/64 2:8:2\n");
    let on_node = c.said(&["srun", "-n1", "sh", "-c", "echo $SLURM_CPUS_ON_NODE $SLURM_JOB_CPUS_PER_NODE"]);
    assert_eq!(on_node, "2 2\n");
    c.said(&["scancel", "-u", c.said(&["squeue", "-h", "-o", "%u"]).lines().next().unwrap()]);
    c.write("state/squall.toml", &format!("SelectTypeParameters = \"CR_Socket\"\n{SMT}"));
    c.said(&["scontrol", "reconfigure"]);
    assert!(c.said(&["scontrol", "show", "config"]).contains("SelectTypeParameters    = CR_SOCKET\n"));
    let socket = c.said(&["srun", "-n1", "--mem=4000", "sh", "-c", "echo $SLURM_CPUS_ON_NODE"]);
    assert_eq!(socket, "16\n");
    // Memory is not given out, so that a second job with all of it fits beside the first.
    let both = [sleeps(&["-n1", "-w", "n1", "--mem=4000"]), sleeps(&["-n1", "-w", "n1", "--mem=4000"])];
    assert_eq!(both.each_ref().map(|job| held(job)), ["16 RUNNING\n", "16 RUNNING\n"]);
}

#[test]
fn cores_and_memory_are_kept_and_limited_as_in_slurm() {
    let c = Cluster::new("configured", "kept");
    let rules = "SelectTypeParameters = \"CR_Core_Memory\"\nmax_mem_per_cpu_mb = 500\n";
    let partitions = "[[partitions]]\nname = \"all\"\ndefault = true\nLLN = \"YES\"\n[[partitions]]\n\
                      name = \"few\"\nMaxCPUsPerNode = 4\ndef_mem_per_node_mb = 300\n";
    c.write("a.toml", &format!("{rules}{SMT}CoreSpecCount = 1\nMemSpecLimit = 1000\n{partitions}"));
    c.said(&["up", "--config", "a.toml"]);
    let node = c.said(&["scontrol", "show", "node", "n1"]);
    for told in ["CPUEfctv=30 CPUTot=32", "RealMemory=4000", "CoreSpecCount=1 MemSpecLimit=1000"] {
        assert!(node.contains(told), "{told}: {node}");
    }
    let few = c.said(&["scontrol", "show", "partition", "few"]);
    assert!(few.contains("LLN=NO MaxCPUsPerNode=4") && few.contains("DefMemPerNode=300"), "{few}");
    let job = |args: &[&str]| {
        let all = [&["sbatch", "--parsable", "-o", "/dev/null"], args, &["--wrap", "sleep 300"]].concat();
        let id = c.said(&all).trim().to_owned();
        c.said(&["squeue", "-h", "-j", &id, "-o", "%C %m %N %T"])
    };
    assert_eq!(job(&["-n1"]), "2 500M n1 RUNNING\n");
    assert_eq!(job(&["-n1", "--mem-per-cpu=900"]), "2 450M n2 RUNNING\n");
    assert_eq!(job(&["-n1", "--mem=1400", "-w", "n2"]), "4 1400M n2 RUNNING\n");
    assert_eq!(job(&["-p", "few", "-n3", "-w", "n1"]), "4 300M n1 RUNNING\n");
    assert_eq!(job(&["-p", "few", "-n1", "-w", "n1"]), "1 300M  PENDING\n");
}

#[test]
fn steps_get_whole_cores_and_jobs_keep_to_sockets() {
    let c = Cluster::new("configured", "smt");
    let rules = "SelectTypeParameters = \"CR_Core_Memory,CR_ONE_TASK_PER_CORE,CR_Pack_Nodes\"\n";
    let partitions = "[[partitions]]\nname = \"all\"\ndefault = true\n[[partitions]]\nname = \"few\"\n\
                      MaxCPUsPerSocket = 4\n";
    c.write("a.toml", &format!("{rules}{SMT}{partitions}"));
    c.said(&["up", "--config", "a.toml"]);
    assert!(c.said(&["scontrol", "show", "partition", "few"]).contains("MaxCPUsPerSocket=4\n"));
    c.said(&["links", "bin"]);
    let in_job = |job: &[&str], command: &str| {
        c.write("job.sh", &format!("#!/bin/sh\nPATH=$PWD/bin:$PATH\n{command}\n"));
        c.said(&[&["sbatch", "-W", "-o", "out"], job, &["job.sh"]].concat());
        c.read("out")
    };
    assert_eq!(in_job(&["-N2", "--exclusive", "-n6"], "echo $SLURM_TASKS_PER_NODE"), "5,1\n", "the first is filled");
    // Each task has a core of its own, with both threads.
    let step = |args: &str| {
        let step = "scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID | grep -o ' CPUs=[0-9]*'";
        in_job(&["-N1", "-n4"], &format!("srun {args} sh -c '{}'", step.replace('\'', "\"")))
    };
    assert_eq!(step("-n1"), " CPUs=8\n");
    assert_eq!(step("--exact -n1"), " CPUs=2\n");
    assert_eq!(step("--exact -n1 -c3"), " CPUs=4\n");
    assert_eq!(step("--exact -n2 --ntasks-per-core=2 -N1").lines().next(), Some(" CPUs=2"));
    assert_eq!(step("-n1 --threads-per-core=1"), " CPUs=2\n", "it implies --exact");
    let job = |args: &[&str]| {
        let all = [&["sbatch", "--parsable", "-o", "/dev/null"], args, &["--wrap", "sleep 300"]].concat();
        c.said(&all).trim().to_owned()
    };
    let shown = |job: &str, key: &str| {
        let all = c.said(&["scontrol", "show", "-d", "job", job]);
        let words: Vec<&str> = all.split_whitespace().filter(|word| word.starts_with(key)).collect();
        words.join(" ")
    };
    assert_eq!(shown(&job(&["-n3"]), "NumCPUs="), "NumCPUs=6");
    let few = job(&["-p", "few", "-n4", "-w", "n2", "-N1"]);
    assert_eq!(shown(&few, "CPU_IDs="), "CPU_IDs=0-3,16-19", "two cores of each socket");
    assert!(shown(&job(&["-p", "few", "-n1", "-w", "n2"]), "JobState=").contains("PENDING"));
}

#[test]
fn gpus_with_links_and_cores_near_them_come_together() {
    let c = Cluster::new("configured", "links");
    c.write("a.toml", "GresTypes = \"gpu\"\n[[nodes]]\nname = \"n1\"\ncpus = 4\nforce = true\nGres = \"gpu:4\"\n");
    let lines = [("0-1", "-1,4,0,0"), ("0-1", "4,-1,0,0"), ("2-3", "0,0,-1,4"), ("2-3", "0,0,4,-1")];
    let line = |(gpu, (cores, links)): (usize, (&str, &str))| {
        format!("NodeName=n1 Name=gpu File=/dev/gpu{gpu} Cores={cores} Links={links}\n")
    };
    c.write("gres.conf", &lines.into_iter().enumerate().map(line).collect::<String>());
    c.said(&["up", "--config", "a.toml"]);
    let job = |gpus: &str| {
        let id = c.said(&["sbatch", "--parsable", "-n1", gpus, "-o", "/dev/null", "--wrap", "sleep 300"]);
        let all = c.said(&["scontrol", "show", "-d", "job", id.trim()]);
        let words = all.split_whitespace().filter(|word| word.starts_with("CPU_IDs=") || word.starts_with("GRES="));
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(job("--gpus=1"), "CPU_IDs=0 GRES=gpu:1(IDX:0)");
    assert_eq!(job("--gpus=2"), "CPU_IDs=2 GRES=gpu:2(IDX:2-3)");
    assert_eq!(job("--gpus=1"), "CPU_IDs=1 GRES=gpu:1(IDX:1)");
}

/// faults.md C: names of nodes that share a machine resolve in their jobs, their own and each other's.
#[test]
fn c_names_of_nodes_resolve_in_jobs_of_all_of_them() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: without root jobs have the host's name");
        return;
    }
    let c = Cluster::new("configured", "names");
    c.said(&["up", "--nodes", "2"]);
    c.write(
        "t.py",
        "import socket, os\nme = socket.gethostname()\nassert me == os.environ['SLURMD_NODENAME']\n\
         for name in (me, 'n1', 'n2'):\n    server = socket.socket()\n    server.bind((name, 0))\n    server.listen()\n\
         \x20   socket.create_connection((name, server.getsockname()[1])).close()\n\
         other = socket.gethostbyname('n1')\nprint(me, other)\n",
    );
    let mut lines: Vec<String> = c.said(&["srun", "-N2", "python3", "t.py"]).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["n1 127.0.0.1", "n2 127.0.0.1"]);
    assert!(!std::fs::read_to_string("/etc/hosts").unwrap().contains("Nodes of Squall"), "the host keeps its own");
}

/// faults.md D13
#[test]
fn d13_every_command_says_what_it_is() {
    let c = Cluster::new("configured", "help");
    let all = c.said(&["help"]);
    let names: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names.iter().filter(|name| **name != "step") {
        let help = c.said(&[name, "--help"]);
        assert!(help.lines().count() > 1, "{name}: {help}");
        assert_eq!(c.said(&["help", name]), help, "{name}");
    }
    let out = c.command(&["upp"]).output().unwrap();
    assert!(out.status.code() == Some(2) && text(&out).contains("did you mean `up`?"), "{}", text(&out));
    c.said(&["links", "bin"]);
    assert!(c.dir.join("bin/squall").is_symlink() && c.dir.join("bin/sbatch").is_symlink());
}

/// faults.md D8
#[test]
fn d8_what_if_behind_cells_starts_every_job_that_ran() {
    let c = Cluster::new("configured", "cells");
    c.said(&["up", "--cells", "2", "--nodes", "4"]);
    for _ in 0..6 {
        c.said(&["sbatch", "-o", "/dev/null", "-W", "--wrap", "true"]);
    }
    let said = c.said(&["what-if"]);
    assert!(said.starts_with("6 jobs") && !said.contains("could never start"), "{said}");
}

/// A cluster's slurm.conf, and the same by hand.
const SLURM_CONF: &str = "ClusterName=lab\nSlurmctldHost=localhost\nSlurmdParameters=config_overrides\n\
    NodeName=DEFAULT CPUs=2 NodeHostname=localhost State=UNKNOWN\n\
    NodeName=n1 Feature=slow\nNodeName=n[2-3] \\\n  Feature=fast Weight=5\n\
    NodeSet=quick Feature=fast\nInclude parts.conf\n";
const PARTS_CONF: &str = "PartitionName=DEFAULT MaxTime=2-0 State=UP\n\
    PartitionName=all Nodes=ALL Default=YES DefaultTime=30\nPartitionName=quick Nodes=quick MaxTime=10\n";
const BY_HAND: &str = "cluster = \"lab\"\n[[nodes]]\nname = \"n1\"\ncpus = 2\nforce = true\nfeatures = [\"slow\"]\n\
    [[nodes]]\nname = \"n[2-3]\"\ncpus = 2\nforce = true\nfeatures = [\"fast\"]\nweight = 5\n\
    [[partitions]]\nname = \"all\"\ndefault = true\nmax_time_s = 172800\ndefault_time_s = 1800\n\
    [[partitions]]\nname = \"quick\"\nnodes = \"n[2-3]\"\nmax_time_s = 600\n";

/// A slurm.conf starts a cluster that places jobs as one with a configuration that was written by hand.
#[test]
fn slurms_configuration_places_jobs_as_one_by_hand() {
    let placed = |c: &Cluster| {
        for args in [&["-N2"][..], &["-n1"], &["-C", "fast"], &["-p", "quick", "-N2"], &["-n6"], &["-t", "20"]] {
            c.said(&[&["sbatch", "--wait", "-o", "/dev/null"], args, &["--wrap", "true"]].concat());
        }
        c.said(&["sbatch", "-p", "quick", "-t", "20", "--wrap", "true"]);
        let jobs = c.said(&["sacct", "-nPX", "-o", "JobID,Partition,NodeList,AllocCPUS,Timelimit,State"]);
        let nodes = c.said(&["sinfo", "-h", "-N", "-o", "%N %c %f %w %P %T"]);
        format!("{jobs}{}{nodes}", c.said(&["squeue", "-h", "-o", "%i %T %r"]))
    };
    let (slurms, own) = (Cluster::new("configured", "slurms"), Cluster::new("configured", "by-hand"));
    slurms.write("slurm.conf", SLURM_CONF);
    slurms.write("parts.conf", PARTS_CONF);
    own.write("c.toml", BY_HAND);
    slurms.said(&["up", "--slurm-conf", "slurm.conf"]);
    own.said(&["up", "--config", "c.toml"]);
    assert_eq!(placed(&slurms), placed(&own));
    assert!(slurms.said(&["up", "--slurm-conf", "slurm.conf"]).contains("runs already"));
    slurms.write("slurm.conf", &SLURM_CONF.replace("config_overrides", "config_overrides\nResvProlog=/p\nKilWait=3"));
    slurms.fails(&["up", "--slurm-conf", "slurm.conf"], "slurm.conf:5 KilWait: unknown: ");
}

/// Jobs that Slurm has run are in accounting once, beside those of the cluster.
#[test]
fn a_history_is_brought_once_and_shown() {
    let c = Cluster::new("configured", "history");
    c.write(
        "sacct.txt",
        "JobID|JobIDRaw|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|Elapsed|NNodes|NCPUS|NodeList|QOS|Planned\n\
         7|7|first|root|phys|long|COMPLETED|0:0|2026-01-02T03:00:00|2026-01-02T03:10:00|2026-01-02T04:10:00|01:00:00|2|8|n[1-2]|high|x\n\
         7.batch|7.batch|batch||phys||COMPLETED|0:0|2026-01-02T03:10:00|2026-01-02T03:10:00|2026-01-02T04:10:00|01:00:00|1|4|n1||x\n\
         8_3|9|tasks|nobody-here|bio|long|TIMEOUT|0:15|2026-01-02T03:00:00|2026-01-02T03:10:00|2026-01-02T04:10:00|01:00:00|1|1|n1|high|x\n",
    );
    let said = c.said(&["import", "--history", "sacct.txt"]);
    assert!(
        said.contains("2 jobs were added, 0 were there already\nto give new jobs higher ids: FirstJobId = 10"),
        "{said}"
    );
    assert!(said.contains("columns that are not read: Planned") && said.contains("are of steps"), "{said}");
    c.write("c.toml", "FirstJobId = 10\n[[nodes]]\nname = \"n1\"\n");
    c.said(&["up", "--config", "c.toml"]);
    c.said(&["sbatch", "-W", "-o", "/dev/null", "-J", "own", "--wrap", "true"]);
    let columns = "JobID,JobName,User,Account,Partition,State,ExitCode,Start,Elapsed,NNodes,AllocCPUS,NodeList,QOS";
    let sacct = ["sacct", "-anPX", "-S", "2026-01-01", "-o", columns];
    let all = c.said(&sacct);
    let mut lines = all.lines();
    assert_eq!(
        lines.next(),
        Some("7|first|root|phys|long|COMPLETED|0:0|2026-01-02T03:10:00|01:00:00|2|8|n[1-2]|high"),
        "{all}"
    );
    assert_eq!(
        lines.next(),
        Some("8_3|tasks|nobody-here|bio|long|TIMEOUT|0:15|2026-01-02T03:10:00|01:00:00|1|1|n1|high"),
        "{all}"
    );
    assert!(lines.next().unwrap().starts_with("10|own|") && lines.next().is_none(), "{all}");
    c.fails(&["import", "--history", "sacct.txt"], "squall down --keep-jobs");
    c.said(&["down"]);
    assert!(c.said(&["import", "--history", "sacct.txt"]).contains("0 jobs were added, 2 were there already"));
    c.said(&["up"]);
    assert_eq!(c.said(&sacct), all);
}

/// An import writes a configuration with a report, keeps what is there, and names what can't be read.
#[test]
fn an_import_is_written_once_and_checked() {
    let c = Cluster::new("configured", "import");
    c.write("slurm.conf", &format!("{SLURM_CONF}ResvProlog=/p\n"));
    c.fails(&["import", "."], "slurm.conf:9: Include parts.conf: cannot read ./parts.conf");
    c.write("parts.conf", PARTS_CONF);
    let said = c.said(&["import", "."]);
    assert!(
        said.contains("slurm.conf:10 ResvProlog: missing: ") && said.contains("parts.conf:2 PartitionName=all: taken"),
        "{said}"
    );
    c.fails(&["import", "."], "squall.toml is there already: use --force");
    c.fails(&["import", ".", "--force", "--output", "."], "would replace Slurm's there: use another --output DIR");
    c.write("squall/squall.toml", "before");
    c.said(&["import", "slurm.conf", "--force"]);
    assert_eq!(c.read("squall/squall.toml.old"), "before");
    assert!(c.said(&["check", "squall"]).contains("squall/squall.toml: good: cluster lab, 3 nodes, 2 partitions"));
    let said = c.said(&["check", "slurm.conf"]);
    assert!(said.contains("slurm.conf: good") && said.contains("10 ResvProlog") && !said.contains("taken"), "{said}");
    c.write("slurm.conf", &SLURM_CONF.replace("Weight=5", "Weight=heavy"));
    c.fails(&["check", "slurm.conf"], "slurm.conf:6 NodeName=n[2-3] Weight: wrong: `heavy` is no whole number");
    c.write("slurm.conf", "ClusterName=a\n\nNodeName=n1 NodeAddr=localhost CPUs=4000\nPartitionName=p Nodes=n1\n");
    c.fails(&["check", "slurm.conf"], "error: slurm.conf:3: nodes `n1`: cpus = 4000, but this machine has");
    c.write("squall/squall.toml", "[[nodes]]\nname = \"n1\"\ncpus = 4000\n");
    c.fails(&["check", "squall"], "squall/squall.toml: line 2: nodes `n1`: cpus = 4000, but this machine has");
    c.write("squall/squall.toml", "[[nodes]]\nname = \"n1\"\nnodse = 3\n");
    c.fails(&["check", "squall/squall.toml"], "unknown key `nodse`");
    assert!(!c.state().exists(), "nothing was started");
}

/// Completion of a shell asks the command, which knows the option tables and the cluster.
#[test]
fn shells_complete_options_partitions_and_jobs() {
    let cluster = Cluster::new("configured", "complete");
    cluster.write("c.toml", "[[partitions]]\nname = \"debug\"\n\n[[partitions]]\nname = \"short\"\n");
    cluster.said(&["up", "--config", "c.toml"]);
    cluster.said(&["sbatch", "--hold", "--job-name=waits", "--wrap", "true"]);
    cluster.said(&["links", "bin"]);
    cluster.said(&["completions", "share"]);
    let complete = |line: &str| {
        let script = format!(
            "PATH=$PWD/bin:$PATH; . share/bash/squall.bash
             COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _squall 2>/dev/null
             echo \"${{COMPREPLY[*]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &script]).env("SQUALL_STATE", cluster.state()).current_dir(&cluster.dir);
        let out = bash.output().unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    assert_eq!(complete("sbatch --par"), "--partition= --parsable");
    // Bash takes `=` for the end of a word: what is before it stays.
    assert_eq!(complete("sbatch --partition=s"), "short");
    assert_eq!(complete("squeue -p debug,"), "debug,debug debug,short");
    assert_eq!(complete("scancel "), "1");
    assert_eq!(complete("squall wh"), "why what-if");
    assert_eq!(complete("squall why "), "1");
    assert_eq!(complete("scontrol show par"), "partition");
    assert_eq!(complete("sbatch jo"), "", "files are the shell's");
    cluster.said(&["scancel", "1"]);
}

/// The same with a person's fingers: TAB in a terminal. It needs tmux.
#[test]
fn tab_completes_in_a_terminal() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return eprintln!("skipped: tmux is not installed");
    }
    let cluster = Cluster::new("configured", "tab");
    cluster.write("c.toml", "[[partitions]]\nname = \"debug\"\n\n[[partitions]]\nname = \"short\"\n");
    cluster.said(&["up", "--config", "c.toml"]);
    cluster.said(&["links", "bin"]);
    cluster.said(&["completions", "share"]);
    let bin = cluster.dir.join("bin");
    cluster.write(
        "rc",
        &format!("PATH={}:$PATH\nfor file in share/bash/*; do . $file; done\nPS1='ready '\n", bin.display()),
    );
    let tmux = Tmux::start(&cluster, (80, 24), "bash --rcfile rc -i");
    tmux.shows("ready");
    tmux.keys(&["sbatch --part", "Tab"]);
    tmux.shows("sbatch --partition=");
    tmux.keys(&["sh", "Tab"]);
    tmux.shows("sbatch --partition=short");
}

/// A terminal of tmux with a program in it, which ends with it.
struct Tmux<'a>(&'a Cluster);

impl<'a> Tmux<'a> {
    fn start(cluster: &'a Cluster, (width, height): (u16, u16), program: &str) -> Self {
        let tmux = Self(cluster);
        // A server before this one, on the same socket, may be ending still.
        for _ in 0..100 {
            tmux.run(&["new-session", "-d", "-s", "s", "-x", &width.to_string(), "-y", &height.to_string(), program]);
            if tmux.run(&["list-sessions"]).starts_with("s:") {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-S", "socket", "-f", "/dev/null"]).args(args).current_dir(&self.0.dir);
        let out = command.env("SQUALL_STATE", self.0.state()).env("TERM", "xterm").output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys", "-t", "s"], keys].concat());
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-t", "s"])
    }

    /// Waits until the screen shows a text, and returns the screen.
    fn shows(&self, wanted: &str) -> String {
        for _ in 0..200 {
            let screen = self.screen();
            if screen.contains(wanted) {
                return screen;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no `{wanted}` in:\n{}", self.screen());
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

/// `squall top` in a terminal: it shows what happens, acts, and leaves the terminal as it was. It needs tmux.
#[test]
fn top_in_a_terminal() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return eprintln!("skipped: tmux is not installed");
    }
    let cluster = Cluster::new("configured", "top");
    cluster.write("c.toml", "[[partitions]]\nname = \"debug\"\n");
    cluster.said(&["up", "--config", "c.toml"]);
    cluster.said(&["links", "bin"]);
    cluster.fails(&["top"], "it needs a terminal; `squall top --once` prints one screen as text");
    let bin = cluster.dir.join("bin");
    cluster.write("rc", &format!("PATH={}:$PATH\nPS1='ready '\n", bin.display()));
    for size in [(80, 24), (160, 50), (40, 12)] {
        let tmux = Tmux::start(&cluster, size, "bash --rcfile rc -i");
        tmux.shows("ready");
        tmux.keys(&["squall top", "Enter"]);
        tmux.shows("The queue is empty.");
        cluster.said(&["sbatch", "--hold", "-J", "seen", "-o", "/dev/null", "--wrap", "true"]);
        let screen = tmux.shows("PD");
        assert!(screen.lines().all(|line| line.chars().count() <= size.0.into()), "{screen}");
        tmux.keys(&["w"]);
        tmux.shows("is held");
        tmux.keys(&["q", "c"]);
        tmux.shows("cancel job");
        tmux.keys(&["y"]);
        tmux.shows("The queue is empty.");
        tmux.keys(&["2", "Down", "Enter"]);
        tmux.shows("State      idle");
        tmux.keys(&["Escape"]);
        tmux.shows(" NODE   ");
        tmux.keys(&["q"]);
        tmux.shows("ready");
        let screen = tmux.screen();
        assert!(!screen.contains("1 queue"), "{screen}");
    }
    let tmux = Tmux::start(&cluster, (80, 24), "bash --rcfile rc -i");
    tmux.shows("ready");
    // Its keys and its echo work again after Ctrl-C and after a signal.
    for (end, code) in [("C-c", 0), ("TERM", 143)] {
        tmux.keys(&["clear; sh -c 'echo $$ > pid; exec squall top'; echo code $?; stty -a", "Enter"]);
        tmux.shows("? keys  Enter details");
        tmux.run(&["resize-window", "-t", "s", "-x", "50", "-y", "20"]);
        tmux.shows("? keys  Enter details  w why  o output  a arrays\n");
        tmux.run(&["resize-window", "-t", "s", "-x", "80", "-y", "24"]);
        tmux.shows("/ filter");
        if end == "TERM" {
            let pid = std::fs::read_to_string(cluster.dir.join("pid")).unwrap();
            assert!(Command::new("kill").arg(pid.trim()).status().unwrap().success());
        } else {
            tmux.keys(&[end]);
        }
        let screen = tmux.shows(&format!("code {code}\n"));
        let screen = if screen.contains("extproc") { screen } else { tmux.shows("extproc") };
        for mode in [" icanon ", " isig ", " echo ", " opost ", " icrnl "] {
            assert!(screen.replace('\n', " ").contains(mode), "{mode} in {screen}");
        }
    }
}

/// Every command has a manual page, which man reads without a warning and shows at 80 columns.
#[test]
fn man_reads_the_manual_pages() {
    let cluster = Cluster::new("configured", "man");
    cluster.said(&["man", "man"]);
    let pages = ["man1", "man5"].map(|folder| std::fs::read_dir(cluster.dir.join("man").join(folder)).unwrap());
    let pages: Vec<PathBuf> = pages.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    for page in ["sbatch.1", "squall.1", "squall-up.1", "squall.toml.5"] {
        assert!(pages.iter().any(|path| name(path) == page), "{page}");
    }
    if Command::new("man").arg("--version").output().is_err() {
        return eprintln!("skipped: man is not installed");
    }
    for page in &pages {
        let mut man = Command::new("man");
        man.args(["--warnings", "-P", "cat", "-l"]).arg(page).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let out = man.output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{}: {}", page.display(), text(&out));
        let shown = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(shown.contains("NAME"), "{}: {shown}", page.display());
    }
    let sbatch =
        Command::new("man").args(["-P", "cat", "-l"]).arg(cluster.dir.join("man/man1/sbatch.1")).output().unwrap();
    let sbatch = String::from_utf8_lossy(&sbatch.stdout).into_owned();
    for words in ["queue a batch script", "--partition=", "SBATCH_PARTITION"] {
        assert!(sbatch.contains(words), "{words}: {sbatch}");
    }
}

/// `[slurm] compatible`: version numbers, and the default version of JSON; `docs/slurm-versions.md` has the table.
#[test]
fn commands_show_the_release_that_the_cluster_names() {
    for (release, version, parser) in
        [("24.05", "24.05.8", "v0.0.41"), ("25.11", "25.11.7", "v0.0.44"), ("26.05", "26.05.3", "v0.0.45")]
    {
        let c = Cluster::new("compatible", &release.replace('.', "-"));
        c.up(&format!("[[nodes]]\nname = \"n1\"\nforce = true\n[slurm]\ncompatible = \"{release}\"\n"), &[]);
        for command in ["sbatch", "squeue", "sinfo", "sacct", "scontrol"] {
            assert_eq!(c.ok(&[command, "--version"]), format!("slurm {version}"), "{command}");
        }
        let json: serde_json::Value = serde_json::from_str(&c.ok(&["sinfo", "--json"])).unwrap();
        assert_eq!(json["meta"]["plugin"]["data_parser"], format!("data_parser/{parser}"));
        assert_eq!(json["meta"]["slurm"]["release"], version);
        let asked: serde_json::Value = serde_json::from_str(&c.ok(&["sinfo", "--json=v0.0.42"])).unwrap();
        assert_eq!(asked["meta"]["plugin"]["data_parser"], "data_parser/v0.0.42");
        assert!(c.ok(&["scontrol", "show", "config"]).contains(version));
    }
}
