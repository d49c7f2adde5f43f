//! Tests of the variables of typical jobs, as a script sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::container::{Container, Mount};
use squall_model::job::gpus::{GpuBind, GpuCount, Gpus};
use squall_model::job::options::{AsGiven, Chosen, Hint, OfStep, Shown};
use squall_model::job::spread::Spread;
use squall_model::job::{
    ArraySpec, ArrayTask, Dependency, DependencyJob, DependencyKind, DependencyTerm, JobKind, JobSpec, Need, Owner,
};
use squall_model::resource::Memory;
use squall_model::set::{CoreSet, IndexSet, NodeSet};
use squall_model::step::{ClientAddress, Distribution, JobFacts, Layout, Program, SharedGpus, StepLaunch, TaskProgram};
use squall_model::time::Time;

use super::{Env, bind_env, closest_env, counts_text, default_env, is_output, job_env, step_env, task_env};
use squall_model::step::cpu_bind::CpuBind;

fn facts() -> JobFacts {
    JobFacts {
        key: StepKey { job: JobId(72), attempt: Attempt(1), step: StepNo::BATCH },
        owner: Owner { uid: 1000, gid: 100, groups: vec![100], user: "ada".into(), group: "users".into() }.into(),
        spec: JobSpec {
            name: "wrap".into(),
            work_dir: "/home/ada".into(),
            submit_host: "login".into(),
            umask: 0o022,
            ..JobSpec::default()
        }
        .into(),
        partition: "debug".into(),
        account: "root".into(),
        qos: "normal".into(),
        cluster: "squall".into(),
        nodes: ["n1"].into_iter().collect(),
        ids: NodeSet::one(NodeId(0)),
        cpus: vec![1].into(),
        memory_mb: vec![0].into(),
        tasks: vec![1].into(),
        start: Time::from_secs(1_800_000_000),
        end: Some(Time::from_secs(1_800_003_600)),
        ..JobFacts::default()
    }
}

fn layout(nodes: &[&str], each: u32, distribution: Distribution) -> Layout {
    let tasks = nodes.iter().map(|_| each).collect();
    Layout { nodes: nodes.iter().collect(), tasks, distribution, cpus_per_task: each, ports: None }
}

fn batch(facts: JobFacts, cores: usize) -> StepLaunch {
    StepLaunch {
        key: facts.key,
        layout: layout(&["n1"], 1, Distribution::Block),
        facts: facts.into(),
        node: "n1".into(),
        cores: CoreSet::first(cores),
        ..StepLaunch::default()
    }
}

fn four_nodes() -> JobFacts {
    JobFacts {
        nodes: (1..=4).map(|i| format!("n{i}")).collect(),
        ids: (0..4).map(NodeId).collect(),
        cpus: vec![4, 4, 4, 2].into(),
        memory_mb: vec![1000; 4].into(),
        tasks: vec![2, 2, 2, 1].into(),
        spec: JobSpec {
            need: Need {
                nodes_min: Some(4),
                ntasks: Some(7),
                cpus_per_task: Some(2),
                memory: Memory::PerNodeMb(1000),
                ..Need::default()
            },
            ..(*facts().spec).clone()
        }
        .into(),
        ..facts()
    }
}

fn text(env: &Env) -> String {
    env.iter().flat_map(|(name, value)| [name, "=", value, "\n"]).collect()
}

fn get<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_plain_batch_script() {
    insta::assert_snapshot!(text(&job_env(&facts())), @r"
    SLURM_CLUSTER_NAME=squall
    SLURM_JOB_ID=72
    SLURM_JOBID=72
    SLURM_JOB_NAME=wrap
    SLURM_JOB_NODELIST=n1
    SLURM_NODELIST=n1
    SLURM_JOB_NUM_NODES=1
    SLURM_NNODES=1
    SLURM_JOB_PARTITION=debug
    SLURM_JOB_START_TIME=1800000000
    SLURM_JOB_END_TIME=1800003600
    SLURM_SUBMIT_DIR=/home/ada
    SLURM_SUBMIT_HOST=login
    SLURM_JOB_ACCOUNT=root
    SLURM_JOB_QOS=normal
    SLURM_JOB_UID=1000
    SLURM_JOB_USER=ada
    SLURM_JOB_GID=100
    SLURM_JOB_GROUP=users
    SLURM_JOB_CPUS_PER_NODE=1
    SLURM_TASKS_PER_NODE=1
    SLURM_UMASK=0022
    SLURM_PRIO_PROCESS=0
    ");
    let launch = batch(facts(), 1);
    insta::assert_snapshot!(text(&step_env(&launch)), @r"
    SLURMD_NODENAME=n1
    SLURM_TOPOLOGY_ADDR=n1
    SLURM_TOPOLOGY_ADDR_PATTERN=node
    SLURM_CPUS_ON_NODE=1
    SLURM_GTIDS=0
    ENVIRONMENT=BATCH
    HOSTNAME=n1
    ");
    insta::assert_snapshot!(text(&task_env(&launch, 0, 0, Some(4711))), @r"
    SLURM_PROCID=0
    SLURM_LOCALID=0
    SLURM_NODEID=0
    SLURM_TASK_PID=4711
    ");
}

#[test]
fn a_wide_job() {
    let env = job_env(&four_nodes());
    assert_eq!(get(&env, "SLURM_JOB_CPUS_PER_NODE"), Some("4(x3),2"));
    assert_eq!(get(&env, "SLURM_TASKS_PER_NODE"), Some("2(x3),1"));
    assert_eq!(get(&env, "SLURM_JOB_NODELIST"), Some("n[1-4]"));
    assert_eq!(get(&env, "SLURM_NTASKS"), Some("7"));
    assert_eq!(get(&env, "SLURM_NPROCS"), Some("7"));
    assert_eq!(get(&env, "SLURM_CPUS_PER_TASK"), Some("2"));
    assert_eq!(get(&env, "SLURM_MEM_PER_NODE"), Some("1000"));
    assert_eq!(get(&env, "SLURM_MEM_PER_CPU"), None);
    assert_eq!(get(&env, "SLURM_NTASKS_PER_NODE"), None);
}

#[test]
fn counts_appear_only_if_they_were_asked_for() {
    let mut facts = facts();
    let env = job_env(&facts);
    for name in ["NTASKS", "NPROCS", "CPUS_PER_TASK", "NTASKS_PER_NODE", "MEM_PER_NODE", "MEM_PER_CPU", "RESTART_COUNT"]
    {
        assert_eq!(get(&env, &format!("SLURM_{name}")), None, "{name}");
    }
    Arc::make_mut(&mut facts.spec).need.ntasks_per_node = Some(3);
    Arc::make_mut(&mut facts.spec).need.memory = Memory::PerCpuMb(512);
    facts.restarts = 2;
    facts.end = None;
    let env = job_env(&facts);
    assert_eq!(get(&env, "SLURM_NTASKS"), Some("3"));
    assert_eq!(get(&env, "SLURM_NTASKS_PER_NODE"), Some("3"));
    assert_eq!(get(&env, "SLURM_MEM_PER_CPU"), Some("512"));
    assert_eq!(get(&env, "SLURM_RESTART_COUNT"), Some("2"));
    assert_eq!(get(&env, "SLURM_JOB_END_TIME"), Some("1831536000"));
}

#[test]
fn memory_not_asked_for_but_held() {
    let mut facts = facts();
    facts.cpus = vec![4].into();
    facts.memory_mb = vec![4096].into();
    assert_eq!(get(&job_env(&facts), "SLURM_MEM_PER_CPU"), Some("1024"));
    Arc::make_mut(&mut facts.spec).need.memory = Memory::PerNodeMb(0);
    assert_eq!(get(&job_env(&facts), "SLURM_MEM_PER_NODE"), Some("4096"));
}

#[test]
fn an_array_task() {
    let mut facts = facts();
    facts.array = Some(ArrayTask { array: JobId(70), index: 5 });
    Arc::make_mut(&mut facts.spec).array = Some(ArraySpec {
        indices: [1, 3, 5, 7].into_iter().collect::<IndexSet>(),
        limit: Some(2),
        text: "1-7:2%2".into(),
    });
    let env: Env = job_env(&facts).into_iter().filter(|(name, _)| name.contains("ARRAY")).collect();
    insta::assert_snapshot!(text(&env), @r"
    SLURM_ARRAY_JOB_ID=70
    SLURM_ARRAY_TASK_ID=5
    SLURM_ARRAY_TASK_COUNT=4
    SLURM_ARRAY_TASK_MIN=1
    SLURM_ARRAY_TASK_MAX=7
    SLURM_ARRAY_TASK_STEP=2
    ");
    assert_eq!(get(&job_env(&facts), "SLURM_JOB_ID"), Some("72"));
}

#[test]
fn options_are_handed_on() {
    let mut facts = facts();
    let job = |id, index| Some(DependencyJob { id: JobId(id), index, delay_min: 0 });
    Arc::make_mut(&mut facts.spec).dependency = Some(Dependency {
        terms: vec![
            DependencyTerm { when: DependencyKind::AfterOk, job: job(12, None) },
            DependencyTerm { when: DependencyKind::AfterOk, job: job(13, Some(4)) },
            DependencyTerm { when: DependencyKind::Singleton, job: None },
        ],
        any: false,
    });
    Arc::make_mut(&mut facts.spec).append = Some(true);
    let shown = Shown { export: Some("NONE".into()), submit_dir: Some("/tmp".into()), ..Shown::default() };
    let chosen = Chosen { hint: Hint::parse("nomultithread"), shown, ..Chosen::default() };
    Arc::make_mut(&mut facts.spec).options = chosen.into();
    let env = job_env(&facts);
    assert_eq!(get(&env, "SLURM_JOB_DEPENDENCY"), Some("afterok:12:13_4,singleton"));
    assert_eq!(get(&env, "SLURM_OPEN_MODE"), Some("a"));
    assert_eq!(get(&env, "SLURM_EXPORT_ENV"), Some("NONE"));
    assert_eq!(get(&env, "SLURM_HINT"), Some("nomultithread"));
    assert_eq!(get(&env, "SLURM_SUBMIT_DIR"), Some("/tmp"));
}

fn distribution(text: &str) -> Option<AsGiven<Spread>> {
    AsGiven::of(text, Some(Spread::of(text)))
}

#[test]
fn tasks_of_a_step_on_the_second_node() {
    let program = TaskProgram {
        client: ClientAddress::Abstract("squall-srun-1".into()),
        umask: 0o027,
        export: Some("NONE".into()),
        options: Chosen { distribution: distribution("cyclic"), ..Chosen::default() }.into(),
        ..TaskProgram::default()
    };
    let launch = StepLaunch {
        key: StepKey { step: StepNo(3), ..four_nodes().key },
        layout: layout(&["n2", "n4"], 2, Distribution::Cyclic),
        node: "n4".into(),
        node_index: 1,
        job_node_index: 3,
        program: Program::Tasks(Box::new(program)),
        ..batch(four_nodes(), 4)
    };
    insta::assert_snapshot!(text(&step_env(&launch)), @r"
    SLURMD_NODENAME=n4
    SLURM_TOPOLOGY_ADDR=n4
    SLURM_TOPOLOGY_ADDR_PATTERN=node
    SLURM_CPUS_ON_NODE=4
    SLURM_GTIDS=1,3
    SLURM_NNODES=2
    SLURM_NTASKS=4
    SLURM_NPROCS=4
    SLURM_TASKS_PER_NODE=2(x2)
    SLURM_STEP_ID=3
    SLURM_STEPID=3
    SLURM_STEP_NODELIST=n[2,4]
    SLURM_STEP_NUM_NODES=2
    SLURM_STEP_NUM_TASKS=4
    SLURM_STEP_TASKS_PER_NODE=2(x2)
    SLURM_CPUS_PER_TASK=2
    SLURM_DISTRIBUTION=cyclic
    SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0=4(x3),2
    SLURM_LAUNCH_NODE_IPADDR=127.0.0.1
    SLURM_SRUN_COMM_HOST=127.0.0.1
    SLURM_UMASK=0027
    SLURM_EXPORT_ENV=NONE
    ");
    insta::assert_snapshot!(text(&task_env(&launch, 1, 3, Some(99))), @r"
    SLURM_PROCID=3
    SLURM_LOCALID=1
    SLURM_NODEID=1
    SLURM_TASK_PID=99
    ");
}

#[test]
fn what_srun_was_told_goes_before_what_the_job_was_told() {
    let own = OfStep { cpus_per_task: Some(1), ntasks_per_node: Some(5), ..OfStep::default() };
    let chosen = Chosen { distribution: distribution("plane=3"), step: own, ..Chosen::default() };
    let program = TaskProgram { pty: Some((24, 80)), options: chosen.into(), ..TaskProgram::default() };
    let env = step_env(&StepLaunch { program: Program::Tasks(Box::new(program)), ..batch(facts(), 4) });
    for (name, value) in [
        ("SLURM_CPUS_PER_TASK", "1"),
        ("SLURM_NTASKS_PER_NODE", "5"),
        ("SLURM_DISTRIBUTION", "plane"),
        ("SLURM_DIST_PLANESIZE", "3"),
        ("SLURM_PTY_WIN_ROW", "24"),
        ("SLURM_PTY_WIN_COL", "80"),
        ("SLURM_NTASKS", "1"),
    ] {
        assert_eq!(get(&env, name), Some(value), "{name}");
        assert!(is_output(name), "{name}");
    }
    let own = OfStep { preserve_env: true, ..OfStep::default() };
    let options = Chosen { step: own, ..Chosen::default() }.into();
    let program = TaskProgram { options, ..TaskProgram::default() };
    let env = step_env(&StepLaunch { program: Program::Tasks(Box::new(program)), ..batch(facts(), 4) });
    for name in ["SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"] {
        assert_eq!(get(&env, name), None, "{name}");
    }
    assert_eq!((get(&env, "SLURM_STEP_NUM_TASKS"), get(&env, "SLURM_STEP_RESV_PORTS")), (Some("1"), None));
    let mut launch = StepLaunch { program: Program::Tasks(Box::default()), ..batch(facts(), 4) };
    launch.layout.ports = Some([12_000, 12_001, 12_004].into_iter().collect());
    assert_eq!(get(&step_env(&launch), "SLURM_STEP_RESV_PORTS"), Some("12000-12001,12004"));
}

#[test]
fn bindings_of_tasks() {
    let masks: Vec<CoreSet> = [CoreSet::first(2), [5].into_iter().collect()].into();
    let shown = |text: &str| {
        let env = bind_env(&CpuBind::parse(text).unwrap(), Some(&masks));
        assert!(env.iter().all(|(name, _)| is_output(name)));
        env.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown("verbose,map_cpu:0,1"), "verbose map_cpu: 0,1 verbose,map_cpu:0,1");
    assert_eq!(shown("mask_cpu:0x03"), "quiet mask_cpu: 0x3 quiet,mask_cpu:0x3");
    assert_eq!(shown("cores"), "quiet mask_cpu: 0x3,0x20 quiet,mask_cpu:0x3,0x20");
    assert_eq!(shown("none"), "quiet none  quiet,none");
    assert_eq!(shown("v"), "verbose mask_cpu: 0x3,0x20 verbose,mask_cpu:0x3,0x20", "ranks of a grid");
    let unbound = bind_env(&CpuBind::parse("v").unwrap(), None);
    assert_eq!(get(&unbound, "SLURM_CPU_BIND"), Some("verbose"));
}

#[test]
fn what_is_set_is_known_as_output() {
    let mut facts = four_nodes();
    facts.restarts = 1;
    let all = [job_env(&facts), step_env(&batch(facts.clone(), 4)), task_env(&batch(facts, 4), 0, 0, Some(1))];
    for (name, _) in all.iter().flatten() {
        assert!(is_output(name) || !name.starts_with("SLURM"), "{name}");
    }
    for input in ["SLURM_TIME_FORMAT", "SLURM_CONF", "SBATCH_PARTITION", "PATH", "SLURM_JOBS"] {
        assert!(!is_output(input), "{input}");
    }
    assert_eq!(default_env(), [("TMPDIR".to_owned(), "/tmp".to_owned())]);
}

#[test]
fn counts_fold() {
    let text = |counts: &[u32]| counts_text(&counts.iter().copied().collect());
    assert_eq!(text(&[]), "");
    assert_eq!(text(&[4]), "4");
    assert_eq!(text(&[2, 2, 2, 1]), "2(x3),1");
    assert_eq!(text(&[1, 2, 1]), "1,2,1");
}

#[test]
fn gpus_that_are_the_only_ones_to_be_seen_are_counted_from_0() {
    let gres = [("gpu".to_owned(), [1, 3, 6].into_iter().collect())].into_iter().collect();
    let options = Chosen { gpus: Gpus { per_task: GpuCount::parse("1"), ..Gpus::default() }, ..Chosen::default() };
    let program = TaskProgram { options: options.into(), ..TaskProgram::default() };
    let layout = layout(&["n1"], 2, Distribution::Block);
    let mut launch = StepLaunch { program: Program::Tasks(Box::new(program)), gres, layout, ..batch(facts(), 2) };
    let shown = |launch: &StepLaunch| {
        let of = |env: Env| get(&env, "CUDA_VISIBLE_DEVICES").map(str::to_owned).unwrap_or_default();
        let step = step_env(launch);
        assert_eq!(get(&step, "SLURM_STEP_GPUS"), Some("1,3,6"), "as the node counts them");
        [of(step), of(task_env(launch, 1, 1, Some(1)))]
    };
    assert_eq!(shown(&launch), ["1,3,6", "3"]);
    launch.sees_own_gpus = true;
    assert_eq!(shown(&launch), ["0,1,2", "1"]);
    launch.gpu_ids = [1, 3, 6].map(|gpu| (gpu, format!("MIG-{gpu}"))).into_iter().collect();
    assert_eq!(shown(&launch), ["MIG-1,MIG-3,MIG-6", "MIG-3"]);
    let (name, gpus) = ("mps".to_owned(), [3].into_iter().collect());
    let shared = Some(SharedGpus { name, gpus, count: 50, percent: 25 });
    let launch = StepLaunch { shared, gres: BTreeMap::new(), gpu_ids: BTreeMap::new(), ..launch };
    let env = step_env(&launch);
    let values =
        ["CUDA_VISIBLE_DEVICES", "SLURM_MPS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"].map(|name| get(&env, name));
    assert_eq!(values, [Some("0"), Some("50"), Some("25")]);
}

#[test]
fn tasks_get_the_gpus_near_their_cpus() {
    let gres = [("gpu".to_owned(), [0, 1, 2].into_iter().collect())].into_iter().collect();
    let near = |cpus: &[usize]| -> CoreSet { cpus.iter().copied().collect() };
    let gpu_cpus = BTreeMap::from([(0, near(&[0, 1])), (1, near(&[2, 3])), (2, near(&[2, 3]))]);
    let with = |bind: &str| {
        let gpus = Gpus { bind: AsGiven::<GpuBind>::parse(bind), ..Gpus::default() };
        let program = TaskProgram { options: Chosen { gpus, ..Chosen::default() }.into(), ..TaskProgram::default() };
        let (program, gpu_cpus, gres) = (Program::Tasks(Box::new(program)), gpu_cpus.clone(), BTreeMap::clone(&gres));
        StepLaunch { program, gres, gpu_cpus, ..batch(facts(), 2) }
    };
    let closest = with("closest");
    let shown = |cpus| get(&closest_env(&closest, &near(cpus)), "CUDA_VISIBLE_DEVICES").map(str::to_owned);
    assert_eq!(
        [shown(&[1]), shown(&[3]), shown(&[1, 2]), shown(&[9])].map(Option::unwrap),
        ["0", "1,2", "0,1,2", "0,1,2"]
    );
    assert!(closest_env(&with("none"), &near(&[1])).is_empty() && closest_env(&with("x"), &near(&[1])).is_empty());
}

// faults.md P3: without --gpu-bind, tasks are bound as by Slurm's srun.
#[test]
fn p3_tasks_are_bound_to_their_gpus_unasked() {
    let shown = |gpus: Gpus| {
        let options = Chosen { gpus, ..Chosen::default() }.into();
        let program = TaskProgram { options, ..TaskProgram::default() };
        let gres = [("gpu".to_owned(), CoreSet::first(4))].into_iter().collect();
        let layout = layout(&["n1"], 4, Distribution::Block);
        let launch = StepLaunch { program: Program::Tasks(Box::new(program)), gres, layout, ..batch(facts(), 4) };
        let visible = |rank| get(&task_env(&launch, rank, rank, Some(1)), "CUDA_VISIBLE_DEVICES").map(str::to_owned);
        [0, 1, 2, 3].map(|rank| visible(rank).unwrap_or_else(|| "all".to_owned()))
    };
    let each = |tasks| Gpus { tasks: Some(tasks), ..Gpus::default() };
    let own = |count: &str| Gpus { per_task: GpuCount::parse(count), ..Gpus::default() };
    let bound = |bind: &str, gpus: Gpus| shown(Gpus { bind: AsGiven::<GpuBind>::parse(bind), ..gpus });
    assert_eq!(shown(each(1)), ["0", "1", "2", "3"]);
    assert_eq!(shown(each(2)), ["0", "0", "1", "1"]);
    assert_eq!(bound("none", each(1)), ["all"; 4]);
    assert_eq!(bound("map_gpu:3,2", each(1)), ["3", "2", "3", "2"]);
    assert_eq!((shown(own("1")), shown(own("a100:1"))), (["0", "1", "2", "3"].map(str::to_owned), shown(own("1"))));
    assert_eq!(shown(own("a100:1,v100:1")), ["0,1", "2,3", "0", "0"], "of all types together");
    assert_eq!(bound("none", own("1")), ["all"; 4]);
    assert_eq!(shown(own("none")), ["all"; 4]);
    assert_eq!(bound("mask_gpu:0xf0,0x2", Gpus::default()), ["0", "1", "0", "1"], "one at least");
}

// faults.md P1: as with pyxis, steps in an allocation run in its container, and a script is in it already.
#[test]
fn p1_salloc_hands_its_container_on_to_its_steps() {
    let variables = |kind: JobKind| {
        let container = Container {
            image: Some("ubuntu".into()),
            mount_home: Some(false),
            mounts: Mount::parse_all("/a:/b:ro,tmpfs:/t").unwrap(),
            ..Container::default()
        };
        let options = Chosen { container: Some(Box::new(container)), ..Chosen::default() }.into();
        let facts = JobFacts { spec: Arc::new(JobSpec { options, kind, ..JobSpec::default() }), ..facts() };
        let env = job_env(&facts);
        ["IMAGE", "MOUNT_HOME", "MOUNTS", "NAME"]
            .map(|name| get(&env, &format!("PYXIS_CONTAINER_{name}")).unwrap_or("").to_owned())
    };
    assert_eq!(variables(JobKind::Allocation), ["ubuntu", "0", "/a:/b:ro,tmpfs:/t", ""]);
    assert_eq!(variables(JobKind::Batch), ["", "", "", ""]);
}

// faults.md P12.
#[test]
fn p12_memory_for_each_gpu_is_not_memory_for_each_cpu() {
    let variables = |memory: Option<&str>| {
        let gpus = Gpus { memory_mb: memory.and_then(AsGiven::memory), ..Gpus::default() };
        let spec = JobSpec { options: Chosen { gpus, ..Chosen::default() }.into(), ..JobSpec::default() };
        let facts = JobFacts { spec: Arc::new(spec), memory_mb: [2000].into_iter().collect(), ..facts() };
        let env = job_env(&facts);
        ["SLURM_MEM_PER_GPU", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE"].map(|name| get(&env, name).is_some())
    };
    assert_eq!((variables(Some("1G")), variables(None)), ([true, false, false], [false, true, false]));
}

#[test]
fn d3_gpu_bind_none_and_masks() {
    let visible = |bind: &str, each: &str, rank: u32| {
        let (bind, per_task) = (AsGiven::<GpuBind>::parse(bind), Some(each).and_then(GpuCount::parse));
        let gpus = Gpus { bind, per_task: per_task.filter(|given| !given.value.is_empty()), ..Gpus::default() };
        let options = Chosen { gpus, ..Chosen::default() }.into();
        let program = TaskProgram { options, ..TaskProgram::default() };
        let gres = [("gpu".to_owned(), CoreSet::first(4))].into_iter().collect();
        let layout = layout(&["n1"], 2, Distribution::Block);
        let launch = StepLaunch { program: Program::Tasks(Box::new(program)), gres, layout, ..batch(facts(), 2) };
        get(&task_env(&launch, rank, rank, Some(1)), "CUDA_VISIBLE_DEVICES").map(str::to_owned)
    };
    let masks = |rank| visible("mask_gpu:0x1,0xc", "", rank);
    assert_eq!((masks(0).as_deref(), masks(1).as_deref()), (Some("0"), Some("2,3")));
    assert_eq!(visible("", "1", 1).as_deref(), Some("1"));
    assert_eq!(visible("none", "1", 1), None, "it has all of the step's");
    let shown = |bind: &str| [0, 1].map(|rank| visible(bind, "", rank).unwrap_or_default());
    assert_eq!(shown("map_gpu:3,1"), ["3", "1"]);
    assert_eq!(
        (shown("per_task:2"), shown("single:2")),
        (["0,1", "2,3"].map(str::to_owned), ["0", "0"].map(str::to_owned))
    );
}
