//! Tests of scontrol: its output, its requests, its errors.

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
use squall_model::billing::{Billing, BillingWeights};
use squall_model::config::{NodeConfig, NodeStart, PartitionState};
use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::gang::OverSubscribe;
use squall_model::id::{JobId, StepNo};
use squall_model::job::JobSpec;
use squall_model::job::network::{self, Network};
use squall_model::job::options::Chosen;
use squall_model::power::PowerWish;
use squall_model::resource::Memory;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobName, JobRef, JobSelection, JobUpdate, Refusal, Request};

use super::scontrol;
use crate::command::listing::fake::{CommandResult, Fake, NOW, check, fake, refused, run, run_with, transcript};

/// Returns the requests that the controller received, listings left out.
fn asked(args: &[&str]) -> Vec<Request> {
    let mut fake = fake();
    let seen = run_with(&mut fake, "scontrol", scontrol, args, &[]);
    assert_eq!(seen.code, 0, "{args:?}: {}", seen.err);
    fake.asked.retain(|r| !matches!(r, Request::Jobs { .. } | Request::Nodes | Request::Partitions));
    fake.asked
}

fn answered(args: &[&str], answer: Answer) -> CommandResult {
    let mut fake = fake();
    fake.answers.push(answer);
    run_with(&mut fake, "scontrol", scontrol, args, &[])
}

fn update(words: &[&str]) -> JobUpdate {
    let args = [&["update", "jobid=10"], words].concat();
    match asked(&args).remove(0) {
        Request::UpdateJob { change, .. } => *change,
        other => panic!("not an update: {other:?}"),
    }
}

#[test]
fn show() {
    let text = transcript(
        "scontrol",
        scontrol,
        &[
            &["show", "job", "10"],
            &["show", "jobid", "20"],
            &["-d", "show", "job=32"],
            &["show", "job", "30", "-o"],
            &["show", "node", "n[1,4]"],
            &["-a", "show", "-o", "nodes"],
            &["show", "partition"],
            &["show", "part", "-o"],
            &["-a", "show", "-o", "partitions"],
            &["-a", "show", "-o", "reservations"],
            &["show", "res"],
            &["show", "step"],
            &["show", "step", "10.0", "-o"],
            &["show", "daemons"],
            &["show", "hostnames", "n[1-3],m"],
            &["show", "hostname", "n[08-10]"],
            &["show", "hostlist", "n3,n1,n2"],
            &["show", "hostlistsorted", "n3,n1,n2,n1"],
            &["show", "licenses"],
            &["show", "assoc_mgr"],
            &["show", "slurmd"],
            &["show", "nonsense"],
            &["version"],
            &["-V"],
        ],
    );
    check("scontrol_show", &text);
}

#[test]
fn show_what_was_asked_of_the_network() {
    let mut fake = fake();
    let network = Network { class: Some(network::class("devname=ib0,us")), ..Network::default() };
    let options = Chosen { network, ..Chosen::default() }.into();
    fake.page.specs[2] = Arc::new(JobSpec { options, ..JobSpec::clone(&fake.page.specs[2]) });
    let mut network = |job: &str| {
        let seen = run_with(&mut fake, "scontrol", scontrol, &["show", "job", job, "-o"], &[]);
        seen.out.split(' ').find_map(|word| word.strip_prefix("Network=")).map(str::to_owned)
    };
    assert_eq!((network("30"), network("10")), (Some("devname=ib0,us".to_owned()), Some("(null)".to_owned())));
}

// Lines of Slurm 22.05.8 with GresTypes=gpu,fpga and nodes of gpu:a100:2,gpu:h100:2,fpga:3. One word differs: Slurm
// numbers only devices with files, and prints `fpga(CNT:2)`.
#[test]
fn show_job_details_names_generic_resources_as_slurm_does() {
    let details = |job: u32, gres: &[(&str, &str)], per_node: &[(&str, &str)]| {
        let mut fake = fake();
        let run = fake.page.jobs.iter_mut().find(|known| known.id.0 == job).and_then(|job| job.run.as_mut());
        if let Some(run) = run {
            let text = |(hosts, text): &(&str, &str)| ((*hosts).to_owned(), (*text).to_owned());
            run.gres = gres.iter().map(text).collect();
            run.per_node = per_node.iter().map(text).map(|(hosts, cores)| (hosts, cores, 0)).collect();
        }
        let shown = run_with(&mut fake, "scontrol", scontrol, &["show", "job", "-d", &job.to_string()], &[]).out;
        let tells =
            |line: &&str| ["Socks/", "JOB_GRES=", "Nodes=n", "MinCPUs"].iter().any(|start| line.starts_with(start));
        let lines =
            shown.lines().map(str::trim_start).filter(tells).map(|line| line.split(" Min").next().unwrap_or(line));
        lines.map(|line| line.split(" Ntasks").next().unwrap_or(line).to_owned()).collect::<Vec<_>>()
    };
    // `--gres=gpu:a100:1,fpga:2`: the lines stand between Socks/Node and MinCPUsNode; names and types are in the nodes'
    // order.
    assert_eq!(
        details(10, &[("n1", "gpu:a100:1(IDX:0)"), ("n1", "fpga:2(IDX:0-1)")], &[("n1", "0")]),
        [
            "Socks/Node=*",
            "JOB_GRES=gpu:a100:1,fpga:2",
            "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0),fpga:2(IDX:0-1)",
            "MinCPUsNode=1"
        ]
    );
    // `-N2 --gres=gpu:h100:1`: the sum over the nodes, then each node's devices. Nodes with the same devices share a
    // line.
    let (gres, nodes) = ([("n[1-2]", "gpu:h100:1(IDX:2)")], [("n[1-2]", "3")]);
    let lines = details(10, &gres, &nodes);
    assert_eq!(lines[1..3], ["JOB_GRES=gpu:h100:2", "Nodes=n[1-2] CPU_IDs=3 Mem=0 GRES=gpu:h100:1(IDX:2)"]);
    // A job without generic resources, and one without an allocation.
    assert_eq!(details(10, &[], &nodes)[1..3], ["JOB_GRES=(null)", "Nodes=n[1-2] CPU_IDs=3 Mem=0 GRES="]);
    assert_eq!(details(30, &[], &[]), ["Socks/Node=*", "MinCPUsNode=1"]);
}

#[test]
fn show_all_jobs_and_json() {
    let all = run("scontrol", scontrol, &["show", "job"]).out;
    assert_eq!(all.matches("JobId=").count() - all.matches("ArrayJobId=").count(), 7);
    assert!(all.ends_with("\n\n"));
    for (entity, key, count) in [("jobs", "jobs", 7), ("nodes", "nodes", 4), ("partitions", "partitions", 2)] {
        let text = run("scontrol", scontrol, &["show", entity, "--json"]).out;
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value[key].as_array().unwrap().len(), count, "{entity}");
    }
}

#[test]
fn steps_and_pings_are_json_where_that_is_asked() {
    let parsed = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run("scontrol", scontrol, args).out).expect("it is JSON")
    };
    let steps = parsed(&["--json", "show", "steps"]);
    let first = &steps["steps"][0];
    assert!(first["id"].as_str().unwrap().contains('.') && first["state"][0] == "RUNNING", "{first}");
    let mut down = fake();
    down.down = true;
    let seen = run_with(&mut down, "scontrol", scontrol, &["ping", "--json"], &[]);
    assert_eq!(seen.code, 1);
    let answer: serde_json::Value = serde_json::from_str(&seen.out).expect("it is JSON");
    assert_eq!((&answer["pings"][0]["pinged"], &answer["pings"][0]["mode"]), (&"DOWN".into(), &"primary".into()));
}

#[test]
fn config_and_ping() {
    let pong = |trouble: Option<&str>| Answer::Pong {
        host: "vm".into(),
        version: "0.1.0".into(),
        nodes_up: 4,
        nodes_expected: 4,
        trouble: trouble.map(str::to_owned),
        started: Time::from_secs(NOW - 60),
        next_job: JobId(34),
        cluster_version: squall_model::version::ClusterVersion(2),
        speaks: squall_model::version::ClusterVersion(2),
        records: None,
    };
    assert_eq!(answered(&["ping"], pong(None)).out, "Slurmctld(primary) at vm is UP\n");
    assert_eq!(answered(&["ping"], pong(Some("the disk is full"))).err, "scontrol: error: the disk is full\n");
    check("scontrol_config", &answered(&["show", "config"], pong(None)).out);
    let mut down = fake();
    down.down = true;
    let seen = run_with(&mut down, "scontrol", scontrol, &["ping"], &[]);
    assert_eq!((seen.code, seen.out.as_str()), (1, "Slurmctld(primary) at localhost is DOWN\n"));
}

#[test]
fn the_configuration_is_written_and_read_again() {
    let path = std::env::temp_dir().join(format!("squall-written-{}.toml", std::process::id()));
    let seen = run("scontrol", scontrol, &["write", "config", &path.display().to_string()]);
    let text = std::fs::read_to_string(&path);
    drop(std::fs::remove_file(&path));
    assert_eq!((seen.code, seen.out), (0, format!("Slurm config saved to {}\n", path.display())));
    let config = squall_model::config::Config::from_toml(&text.unwrap()).unwrap();
    assert_eq!(config.partitions.len(), 2, "those that there are now");
    let seen = run("scontrol", scontrol, &["write", "config", "/nowhere/at/all"]);
    assert_eq!(seen.code, 1);
    assert!(seen.err.contains("/nowhere/at/all"), "{}", seen.err);
}

#[test]
fn host_names_of_the_job() {
    let with = |env: &[(&str, &str)]| run_with(&mut fake(), "scontrol", scontrol, &["show", "hostnames"], env);
    assert_eq!(with(&[("SLURM_JOB_NODELIST", "n[1-2]")]).out, "n1\nn2\n");
    assert_eq!(with(&[("SLURM_NODELIST", "n3")]).out, "n3\n");
    // As in Slurm, this prints an error but is no failure.
    let none = with(&[]);
    assert_eq!((none.code, none.err.as_str()), (0, "scontrol: error: host list is empty\n"));
}

#[test]
fn verbs() {
    let ids = |request: &Request| match request {
        Request::Hold { jobs, .. } | Request::Release { jobs } => jobs.ids.len(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(asked(&["hold", "10,20_[2-3]", "30"])[0], Request::Hold { user: false, .. }));
    assert_eq!(ids(&asked(&["hold", "10,20_[2-3]", "30"])[0]), 3);
    assert!(matches!(asked(&["uhold", "10"])[0], Request::Hold { user: true, .. }));
    assert_eq!(ids(&asked(&["release", "10", "30"])[0]), 2);
    assert!(matches!(asked(&["requeue", "10"])[0], Request::Requeue { hold: false, .. }));
    assert!(matches!(asked(&["requeuehold", "10"])[0], Request::Requeue { hold: true, .. }));
    assert!(matches!(asked(&["requeueh", "10"])[0], Request::Requeue { hold: true, .. }));
    let special = |args: &[&str]| match &asked(args)[0] {
        Request::Requeue { jobs, special, .. } => (jobs.ids.len(), *special, jobs.states.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(special(&["requeuehold", "State=SpecialExit", "10,11"]), (2, Some(true), 0));
    assert_eq!(special(&["requeue", "incomplete", "10"]), (1, None, 3));
    assert_eq!(special(&["requeuehold", "Incomplete,10", "11"]), (2, None, 3));
    assert_eq!(run("scontrol", scontrol, &["requeuehold", "State=Bogus", "10"]).code, 1);
    // faults F11: an update of jobs by name that finds none is an error.
    let named = |args: &[&str]| run("scontrol", scontrol, &[&["update"], args].concat());
    for (args, said) in [
        (&["JobName=nosuch", "Comment=x"][..], "scontrol: error: No jobs with name 'nosuch'\n"),
        (&["JobName=wide", "UserID=0", "Comment=x"], "scontrol: error: No jobs with user ID 0 and name 'wide'\n"),
    ] {
        assert_eq!((named(args).code, named(args).err.as_str()), (1, said));
    }
    assert!(matches!(asked(&["susp", "10"])[0], Request::Suspend { suspend: true, .. }));
    assert!(matches!(asked(&["res", "10"])[0], Request::Suspend { suspend: false, .. }));
    assert!(matches!(&asked(&["release", "jobname=wide"])[0], Request::Release { jobs } if jobs.names == ["wide"]));
    assert!(matches!(&asked(&["hold", "jobid=10"])[0], Request::Hold { jobs, .. } if jobs.ids.len() == 1));
    assert_eq!(asked(&["reconfigure"]), [Request::Reconfigure { config: None }]);
    assert_eq!(asked(&["shutdown"]), [Request::ShutDown { keep_jobs: true }]);
}

#[test]
fn updates_of_jobs() {
    assert_eq!(update(&["TimeLimit=5"]).time_limit_s, Some(Some(300)));
    assert_eq!(update(&["timelimit=1:30"]).time_limit_s, Some(Some(120)));
    assert_eq!(update(&["TimeLimit=UNLIMITED"]).time_limit_s, Some(None));
    assert_eq!(update(&["TimeLimit+=30"]).time_limit_s, Some(Some(5400)));
    assert_eq!(update(&["TimeLimit=-10"]).time_limit_s, Some(Some(3000)));
    assert_eq!(update(&["Priority=0"]).priority, Some(0));
    assert_eq!(update(&["Nice=-5"]).nice, Some(-5));
    assert_eq!(update(&["JobName=new", "Partition=long"]).name.as_deref(), Some("new"));
    assert_eq!(update(&["ArrayTaskThrottle=3"]).array_limit, Some(Some(3)));
    assert_eq!(update(&["ArrayTaskThrottle=0"]).array_limit, Some(None));
    assert_eq!(update(&["ArrayTaskThrottle", "4", "Nice=1"]).array_limit, Some(Some(4)));
    assert_eq!(update(&["MinMemoryNode=2G"]).memory, Some(Memory::PerNodeMb(2048)));
    assert_eq!(update(&["MinMemoryCPU=500"]).memory, Some(Memory::PerCpuMb(500)));
    assert_eq!(update(&["NumNodes=2-4"]).nodes, Some((2, Some(4))));
    assert_eq!(update(&["StartTime=now+60"]).begin, Some(Time::from_secs(NOW + 60)));
    assert_eq!(update(&["Dependency="]).dependency, Some(None));
    assert!(update(&["Dependency=afterok:11"]).dependency.unwrap().is_some());
    assert_eq!(update(&["Comment=a b c", "Requeue=0"]).requeue, Some(false));
    assert_eq!(update(&["ReqNodeList="]).nodelist, Some(None));
    assert_eq!(update(&["ExcNodeList=n1"]).exclude, Some(Some("n1".into())));
    match asked(&["update", "job", "10", "QOS=high"]).remove(0) {
        Request::UpdateJob { jobs, change } => {
            assert_eq!((jobs.ids, change.qos), (vec![JobRef::Job(JobId(10))], Some("high".into())));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(asked(&["update", "jobname=wide", "timelimit=9"]).len(), 1);
}

#[test]
fn updates_of_steps() {
    let limited = |words: &[&str]| asked(&[&["update"], words].concat());
    let to = |step: Option<u32>, time_limit_s| {
        [Request::UpdateStep { job: JobId(10), step: step.map(StepNo), time_limit_s }]
    };
    assert_eq!(limited(&["StepId=10.0", "TimeLimit=5"]), to(Some(0), Some(300)));
    assert_eq!(limited(&["StepId=10.0", "TimeLimit=+5"]), to(Some(0), Some(420)));
    assert_eq!(limited(&["stepid", "10", "timelimit=UNLIMITED"]), to(None, None));
    let failed = |words: &[&str]| {
        let seen = answered(&[&["update"], words].concat(), Answer::Refused(Refusal::InvalidStepId));
        (seen.code, seen.err)
    };
    let larger = "scontrol: error: TimeLimit decrement larger than current time limit (180 > 120 s)\n";
    assert_eq!(failed(&["StepId=10.0", "TimeLimit-=3"]), (1, larger.into()));
    assert_eq!(failed(&["StepId=10.0"]), (1, "No changes specified\n".into()));
    assert_eq!(failed(&["StepId=x", "TimeLimit=5"]).1, "Invalid StepID parameter: StepId=x\nRequest aborted\n");
    let other = "Update of this parameter is not supported: Name=x\nRequest aborted\n";
    assert_eq!(failed(&["StepId=10.0", "Name=x"]), (1, other.into()));
    let absent = failed(&["StepId=10.7", "TimeLimit=5"]);
    assert!(absent.0 == 1 && absent.1.contains("slurm_update error: Invalid job id specified"), "{absent:?}");
}

#[test]
fn jobs_are_put_first_in_the_order_in_which_they_are_named() {
    let ids = [12, 10].map(|id| JobRef::Job(JobId(id))).to_vec();
    let jobs = JobSelection { ids, ..JobSelection::default() };
    assert_eq!(asked(&["top", "12,10"]), [Request::Top { jobs: jobs.clone() }]);
    assert_eq!(asked(&["top", "JobId=12,10"]), [Request::Top { jobs }]);
    let seen = answered(&["top", "10"], Answer::Refused(Refusal::AccessDenied));
    assert_eq!((seen.code, seen.err.as_str()), (1, "Access/permission denied for job 10\n"));
}

#[test]
fn reboots_are_requested_and_cancelled() {
    let reboot = |asap, next, reason: Option<&str>| {
        [Request::Reboot { nodes: "n[1-2]".into(), asap, next, reason: reason.map(str::to_owned) }]
    };
    assert_eq!(asked(&["reboot", "n[1-2]"]), reboot(false, None, None));
    let args = ["reboot", "ASAP", "nextstate=DOWN", "reason=new kernel", "n[1-2]"];
    assert_eq!(asked(&args), reboot(true, Some(NodeAdmin::Down), Some("new kernel")));
    assert_eq!(asked(&["replace", "10", "n3"]), [Request::Replace(JobId(10), "n3".into())]);
    for args in [&["replace", "10"][..], &["replace", "x", "n3"], &["replace", "10.0", "n3"]] {
        assert_eq!(run("scontrol", scontrol, args).code, 1, "{args:?}");
    }
    assert_eq!(asked(&["cancel_reboot", "n1"]), [Request::CancelReboot { nodes: "n1".into() }]);
}

#[test]
fn power_is_wished_in_slurms_words() {
    let power = |wish| [Request::Power { nodes: "n[1-2]".into(), wish }];
    for (words, wish) in [
        (&["up"][..], PowerWish::Up),
        (&["down"], PowerWish::Down),
        (&["down", "asap"], PowerWish::DownAsap),
        (&["down_asap"], PowerWish::DownAsap),
        (&["DOWN", "Force"], PowerWish::DownForce),
        (&["down_force"], PowerWish::DownForce),
    ] {
        assert_eq!(asked(&[&["power"], words, &["n[1-2]"]].concat()), power(wish), "{words:?}");
    }
    assert_eq!(asked(&["update", "nodename=n[1-2]", "state=power_down_asap"]), power(PowerWish::DownAsap));
    let why = |reason: &str| {
        let reason = Some(reason.to_owned());
        let update = Request::UpdateNodes { nodes: "n[1-2]".into(), admin: None, reason, change: None };
        [&power(PowerWish::Down)[..], &[update]].concat()
    };
    assert_eq!(asked(&["power", "down", "n[1-2]", "Reason=too hot"]), why("too hot"));
    assert_eq!(asked(&["update", "nodename=n[1-2]", "state=power_down", "reason=fan"]), why("fan"));
    assert_eq!(run("scontrol", scontrol, &["power", "up", "n1", "reason=x"]).code, 1);
    assert_eq!(run("scontrol", scontrol, &["power", "off", "n1"]).code, 1);
    assert_eq!(run("scontrol", scontrol, &["power", "up"]).code, 1);
}

#[test]
fn updates_of_nodes_and_partitions() {
    let nodes = |admin, reason: Option<&str>| {
        [Request::UpdateNodes { nodes: "n[1-2]".into(), admin, reason: reason.map(str::to_owned), change: None }]
    };
    let args = ["update", "nodename=n[1-2]", "state=drain", "reason=bad disk"];
    assert_eq!(asked(&args), nodes(Some(NodeAdmin::Drain), Some("bad disk")));
    assert_eq!(asked(&["update", "NodeName=n[1-2]", "State=RESUME"]), nodes(Some(NodeAdmin::Resume), None));
    assert_eq!(asked(&["update", "NodeName=n[1-2]", "Reason=x"]), nodes(None, Some("x")));
    assert_eq!(
        asked(&["update", "PartitionName=debug", "State=inact"]),
        [Request::UpdatePartition { name: "debug".into(), state: PartitionState::Inactive }]
    );
}

// Fault E: `update node` with Weight, Comment, Extra, Gres, features, and the states of a node.
#[test]
fn e_update_node_changes_how_nodes_are_described() {
    let change = |word: &str| match asked(&["update", "NodeName=n1", word]).pop() {
        Some(Request::UpdateNodes { admin: None, reason: None, change: Some(change), .. }) => *change,
        other => panic!("{other:?}"),
    };
    let text = |text: &str| Some(text.to_owned());
    let list = |list: &[&str]| Some(list.iter().map(|name| (*name).to_owned()).collect());
    let none = NodeChange::default;
    assert_eq!(change("Weight=7"), NodeChange { weight: Some(7), ..none() });
    assert_eq!(change("Comment=bad fan"), NodeChange { comment: text("bad fan"), ..none() });
    assert_eq!(change("comment="), NodeChange { comment: text(""), ..none() });
    assert_eq!(change("Extra=x"), NodeChange { extra: text("x"), ..none() });
    assert_eq!(change("Gres=gpu:2"), NodeChange { gres: text("gpu:2"), ..none() });
    assert_eq!(change("AvailableFeatures=a,b"), NodeChange { features: list(&["a", "b"]), ..none() });
    assert_eq!(change("ActiveFeatures=a"), NodeChange { active_features: list(&["a"]), ..none() });
    let both = NodeChange { features: list(&["a"]), active_features: list(&["a"]), ..none() };
    assert_eq!(change("Features=a"), both);
    assert_eq!(change("InstanceId=i"), NodeChange { instance_id: text("i"), ..none() });
    assert_eq!(change("InstanceType=t"), NodeChange { instance_type: text("t"), ..none() });
    let refused = |word: &str| {
        let seen = run("scontrol", scontrol, &["update", "NodeName=n1", word]);
        (seen.code, seen.err)
    };
    let of_weight = "scontrol: error: Invalid value Weight=x for Weight\n";
    assert_eq!(refused("Weight=x"), (1, of_weight.into()));
    let state = |word: &str| match asked(&["update", "NodeName=n1", word, "Reason=x"]).pop() {
        Some(Request::UpdateNodes { admin: Some(admin), change: None, .. }) => admin,
        other => panic!("{other:?}"),
    };
    assert_eq!(state("State=FAIL"), NodeAdmin::Fail);
    assert_eq!(state("State=undrain"), NodeAdmin::Resume);
    for word in ["State=cancel_reboot", "State=future", "State=noresp", "State=allocated"] {
        assert_eq!(refused(word), (1, "slurm_update error: Invalid node state specified\n".into()), "{word}");
    }
    let unknown = refused("State=bogus").1;
    assert!(unknown.starts_with("Invalid input: State=bogus\nRequest aborted\nValid states are: NoResp DRAIN FAIL"));
    for word in ["State=DOWN", "State=DRAIN", "State=FAIL"] {
        let reason = "You must specify a reason when DOWNING or DRAINING a node. Request denied\n";
        assert_eq!(refused(word), (1, reason.into()), "{word}");
    }
}

// Fault E: messages and exit codes of scontrol are those of Debian's Slurm 22.05.8 and 24.11.5.
#[test]
fn e_scontrol_says_what_slurm_says() {
    let cases: &[(&[&str], u8, &str)] = &[
        (&["show", "hostnames"], 0, "scontrol: error: host list is empty\n"),
        (&["show", "hostlist"], 1, "invalid encode argument\n"),
        (&["show", "hostlistsorted", "n3,n1,n1"], 0, "n[1,1,3]\n"),
        (&["show", "hostlist", "n3,n1"], 0, "n[3,1]\n"),
        (&["show", "bbstat"], 0, ""),
        (&["show", "dwstat"], 0, ""),
        (&["show", "federation"], 0, ""),
        (&["show", "daemons"], 0, "slurmctld slurmd\n"),
        (&["show", "aliases", "n2"], 0, "n2\n"),
        (&["show", "bogus"], 1, "invalid entity:bogus for keyword:show \n"),
        (&["show"], 1, "too few arguments for keyword:show\n"),
        (&["bogus"], 1, "invalid keyword: bogus\n"),
        (&["getaddrs", "n[1-2]"], 0, "n1: n1:6818\nn2: n2:6818\n"),
        (&["getaddrs", "nosuch"], 0, ""),
        (&["getaddrs"], 1, "one argument required for keyword:getaddrs\n"),
        (&["ping", "x"], 1, "too many arguments for keyword:ping\n"),
        (&["setdebug"], 1, "too few arguments for keyword:setdebug\n"),
        (&["setdebug", "bogus"], 1, "invalid debug level: bogus\n"),
        (&["setdebugflags"], 1, "too few arguments for keyword:setdebugflags\n"),
        (&["schedloglevel"], 1, "too few arguments for keyword:schedloglevel\n"),
        (&["schedloglevel", "bogus"], 1, "invalid schedlog level: bogus\n"),
        (
            &["schedloglevel", "enable"],
            1,
            "slurm_set_schedlog_level error: Requested operation is presently disabled\n",
        ),
        (&["errnumstr"], 1, "one arguments required for keyword:errnumstr\n"),
        (&["errnumstr", "abc"], 1, "numeric arguments required for keyword:errnumstr\n"),
        (&["errnumstr", "2"], 0, "No such file or directory\n"),
        (&["errnumstr", "999999"], 0, "Unknown error 999999\n"),
        (&["fsdampeningfactor"], 1, "too few arguments for keyword:fsdampeningfactor\n"),
        (&["reboot"], 1, "Missing node list. Specify ALL|<NodeList>\n"),
        (&["reboot", "ASAP", "reason=x"], 1, "Missing node list. Specify ALL|<NodeList>\n"),
        (&["cancel_reboot"], 1, "missing argument for keyword:cancel_reboot\n"),
        (&["wait_job", "abc"], 1, "Invalid job_id abc\n"),
        (&["write"], 1, "too few arguments for keyword:write\n"),
        (&["write", "bogus"], 1, "invalid write argument:bogus\n"),
        (&["write", "batch_script", "abc"], 1, "job script retrieval failed: Invalid job id specified\n"),
        (&["requeue", "abc"], 1, "Invalid job id specified for job abc\n"),
        (&["hold", "abc"], 1, "Invalid job id specified for job abc\nslurm_suspend error: Invalid job id specified\n"),
        (&["suspend", "abc"], 1, "Invalid job id specified for job abc\n"),
        (&["update", "jobid=abc", "priority=1"], 1, "Invalid job id specified for job abc\n"),
        (&["update"], 1, "too few arguments for update keyword\n"),
        (&["create"], 1, "too few arguments for create keyword\n"),
        (&["create", "bogus"], 1, "scontrol: error: Invalid creation entity: bogus\n"),
        (&["delete"], 1, "too few arguments for delete keyword\n"),
        (
            &["delete", "bogus"],
            1,
            "scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'\n",
        ),
        (&["listpids", "abc"], 1, "\"abc\" does not look like a jobid\n"),
    ];
    for (args, code, text) in cases {
        let seen = run("scontrol", scontrol, args);
        assert_eq!((seen.code, seen.out + &seen.err), (*code, (*text).to_owned()), "{args:?}");
    }
}

#[test]
fn partitions_are_made_changed_and_deleted() {
    let change = |args: &[&str]| match asked(args).pop() {
        Some(Request::ChangePartition { name, was, now }) => (name, was.map(|p| *p), now.map(|p| *p)),
        other => panic!("{other:?}"),
    };
    let args = ["create", "PartitionName=new", "Nodes=n[1-2]", "MaxTime=1:30:00", "Default=YES", "AllowAccounts=a,b"];
    let (name, was, new) = change(&args);
    let new = new.unwrap();
    assert_eq!((name.as_str(), was, new.nodes.as_str()), ("new", None, "n[1-2]"));
    assert_eq!(
        (new.max_time_s, new.default, &new.allow_accounts[..]),
        (Some(5400), true, &["a".into(), "b".into()][..])
    );
    let (_, was, now) = change(&["update", "PartitionName=debug", "DefaultTime", "10", "PriorityTier=5", "DenyQos=x"]);
    let now = now.unwrap();
    assert_eq!((now.default_time_s, now.priority_tier, &now.deny_qos[..]), (Some(600), 5, &["x".into()][..]));
    assert_eq!(was.map(|was| (was.name, was.priority_tier)), Some(("debug".into(), 1)));
    let nodes = |word: &str| change(&["update", "partitionname=debug", word]).2.unwrap().nodes;
    assert_eq!((nodes("Nodes-=n2").as_str(), nodes("Nodes+=n9").as_str()), ("n[1,3-4]", "n[1-4,9]"));
    assert_eq!(change(&["update", "part=debug", "MaxTime=-1", "Hidden=NO"]).2.unwrap().max_time_s, None);
    let (name, was, now) = change(&["delete", "partition", "debug"]);
    assert_eq!((name.as_str(), was.is_some(), now), ("debug", true, None));
    let busy = || refused(Refusal::PartitionBusy("debug".into()));
    let said = |args: &[&str]| run("scontrol", scontrol, args).err;
    assert_eq!(said(&["delete", "partition=x"]), "delete_partition partition=x: Invalid partition name specified\n");
    // faults F10: a partition may have no nodes, from the first or later.
    assert_eq!(change(&["create", "partition=x"]).2.unwrap().nodes, "NONE");
    assert_eq!((nodes("Nodes="), nodes("Nodes-=n[1-4]")), ("NONE".into(), "NONE".into()));
    assert!(said(&["update", "partition=debug", "MaxNodes=few"]).contains("Invalid input: MaxNodes=few"));
    assert_eq!(
        answered(&["create", "partition=x", "nodes=n1"], busy()).err,
        "Error creating the partition: Partition is in use\nscontrol: jobs of partition debug wait or run; squeue -p debug\n"
    );
}

#[test]
fn nodes_are_created_and_deleted() {
    let made = |args: &[&str]| match asked(args).pop() {
        Some(Request::CreateNodes(node)) => *node,
        other => panic!("{other:?}"),
    };
    let keys = ["CPUs=8", "Sockets=2", "CoresPerSocket=2", "ThreadsPerCore=2", "RealMemory=900", "Weight=3"];
    let more = ["Features=a,b", "Gres=gpu:2", "State=FUTURE"];
    let node = made(&[&["create", "nodename=n[8-9]"], &keys[..], &more].concat());
    let expected = NodeConfig {
        name: "n[8-9]".into(),
        cpus: Some(8),
        sockets: Some(2),
        cores_per_socket: Some(2),
        threads_per_core: Some(2),
        memory_mb: Some(900),
        features: vec!["a".into(), "b".into()],
        weight: Some(3),
        gres: "gpu:2".into(),
        state: NodeStart::Future,
        ..NodeConfig::default()
    };
    assert_eq!(node, expected);
    assert_eq!(made(&["create", "node", "n8"]), NodeConfig { name: "n8".into(), ..NodeConfig::default() });
    assert_eq!(asked(&["delete", "nodename=n[8-9]"]), [Request::DeleteNodes("n[8-9]".into())]);
    assert_eq!(asked(&["delete", "node", "n8"]), [Request::DeleteNodes("n8".into())]);
    let said = |args: &[&str]| run("scontrol", scontrol, args).err;
    assert!(said(&["create", "nodename=n8", "Boards=2"]).contains("Boards"));
    assert!(said(&["create", "nodename=n8", "CPUs=many"]).contains("Invalid value CPUs=many"));
    assert_eq!(made(&["create", "nodename=n8", "State=CLOUD"]).state, NodeStart::Cloud);
    assert!(said(&["create", "nodename=n8", "State=DOWN"]).contains("State=DOWN"));
    assert!(said(&["create", "nodename=n[8"]).contains("Invalid node name n[8"));
    assert!(said(&["delete", "nodename=n8", "CPUs=2"]).contains("nothing else"));
}

#[test]
fn future_nodes_are_shown_on_demand() {
    let shown = |args: &[&str]| run("scontrol", scontrol, args).out;
    assert!(shown(&["-F", "show", "node", "f1"]).contains("State=FUTURE "));
    assert!(!shown(&["show", "node"]).contains("f1"));
    let listed = |args: &[&str]| run("sinfo", crate::command::sinfo::sinfo, args).out;
    assert!(listed(&["-F", "-h", "-N", "-o", "%N %T"]).contains("f1 future\n"));
    assert!(listed(&["-F", "-h", "-t", "future", "-N", "-o", "%N"]).trim() == "f1");
    assert!(!listed(&["-N"]).contains("f1"));
}

#[test]
fn every_key_of_a_partition_is_updated_or_refused_by_name() {
    let change = |word: &str| match asked(&["update", "PartitionName=debug", word]).pop() {
        Some(Request::ChangePartition { now: Some(now), .. }) => *now,
        other => panic!("{word}: {other:?}"),
    };
    let is = change("MaxTime=UNLIMITED");
    // Keys that only Squall has.
    let users = |word: &str| change(word).allow_users;
    assert_eq!((users("AllowUsers=ann,bob"), users("AllowUsers=ALL")), (vec!["ann".into(), "bob".into()], vec![]));
    assert_eq!(change("LeaseJobs=4").lease_jobs, 4);
    // Abbreviations are Slurm's; `Priority` sets both tier and job factor.
    let priority = |word: &str| (change(word).priority_tier, change(word).priority_job_factor);
    assert_eq!([priority("Priority=7"), priority("PriorityT=7"), priority("PriorityJ=7")], [(7, 7), (7, 1), (1, 7)]);
    assert_eq!(change("OverSubscribe=f:2").oversubscribe, OverSubscribe::Force(2));
    assert!(
        change("E=y").exclusive_user
            && change("ExclusiveTopo=yes").exclusive_topo
            && change("PowerDownOnIdle=YES").power_down_on_idle
            && change("Default=Ye").default
            && change("L=y").lln
    );
    assert_eq!((change("MaxC=2").max_cpus_per_node, change("MaxC=UNLIMITED").max_cpus_per_node), (Some(2), None));
    let on_socket = ["MaxCPUsPerS=2", "MaxCPUsPerSocket=INFINITE"].map(|text| change(text).max_cpus_per_socket);
    assert_eq!(on_socket, [Some(2), None]);
    let memory = |text| {
        let now = change(text);
        let defaults = [now.def_mem_per_cpu_mb, now.def_mem_per_node_mb];
        (defaults, [now.max_mem_per_cpu_mb, now.max_mem_per_node_mb])
    };
    assert_eq!((memory("DefMemPerC=7"), memory("DefMemPerNode=7")), (([7, 0], [0, 0]), ([0, 7], [0, 0])));
    assert_eq!((memory("MaxMemPerCPU=7"), memory("MaxMemPerN=7")), (([0, 0], [7, 0]), ([0, 0], [0, 7])));
    assert_eq!(memory("DefMemPerNode=UNLIMITED"), ([0, 0], [0, 0]));
    for (text, state) in [("d", PartitionState::Down), ("dr", PartitionState::Drain), ("i", PartitionState::Inactive)] {
        let sent = asked(&["update", "PartitionName=debug", &format!("State={text}")]);
        assert_eq!(sent, [Request::UpdatePartition { name: "debug".into(), state }]);
    }
    assert_eq!(change("OverTimeLimit=NONE"), is);
    let minutes = |text| change(text).over_time_limit_min;
    assert_eq!([minutes("OverT=5"), minutes("OverTimeLimit=UNLIMITED")], [Some(5), Some(65_535)]);
    let rights = |text| {
        let now = change(text);
        (now.disable_root_jobs, now.root_only, now.req_resv)
    };
    assert_eq!(rights("D=YES"), (Some(true), false, false));
    assert_eq!((rights("Root=YES"), rights("ReqResv=YES")), ((None, true, false), (None, false, true)));
    // Keys for features that Squall's partitions don't have: switching the feature off changes nothing, any other value
    // is refused.
    let bound = "tasks are bound as `srun --cpu-bind` says\n";
    for (none, some, why) in [("CpuBind=off", "CpuBind=core", bound), ("MaxTime=-1", "Nosuch=1", "")] {
        assert_eq!(change(none), is, "{none}");
        let seen = run("scontrol", scontrol, &["update", "partition=debug", some]);
        let refused = format!("{why}Update of this parameter is not supported: {some}\nRequest aborted\n");
        assert_eq!((seen.code, seen.err), (1, refused));
    }
}

#[test]
fn a_partition_is_shown_with_what_slurm_does_not_have() {
    let mut fake = fake();
    let shown = |fake: &mut Fake| run_with(fake, "scontrol", scontrol, &["show", "partition", "debug"], &[]).out;
    let before = shown(&mut fake);
    let config = &mut fake.partitions[0].config;
    (config.allow_users, config.lease_jobs) = (vec!["ann".into(), "bob".into()], 4);
    assert_eq!(shown(&mut fake), before.replace("billing=16\n", "billing=16\n   AllowUsers=ann,bob\n   LeaseJobs=4\n"));
}

#[test]
fn weights_of_a_partition_are_set_and_shown() {
    let set = |text: &str| run("scontrol", scontrol, &["update", "PartitionName=debug", text]);
    let weights = |text: &str| match &asked(&["update", "PartitionName=debug", text])[..] {
        [Request::ChangePartition { now: Some(config), .. }] => config.tres_billing_weights.as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(weights("TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=2.0"), "CPU=1.0,Mem=0.25G,GRES/gpu=2.0");
    assert_eq!(weights("TRESB=cpu=1"), "cpu=1");
    let refused = set("TRESBillingWeights=colour=1");
    assert!(refused.code == 1 && refused.err.contains("jobs are not billed for that"), "{}", refused.err);
    let mut fake = fake();
    let shown = |fake: &mut Fake| run_with(fake, "scontrol", scontrol, &["show", "partition", "debug"], &[]).out;
    let before = shown(&mut fake);
    let weights = BillingWeights::try_from("CPU=2".to_owned()).expect("they are weights");
    (fake.partitions[0].config.tres_billing_weights, fake.partitions[0].billing) = (weights, Some(Billing(32_500_000)));
    assert_eq!(shown(&mut fake), before.replace("billing=16\n", "billing=32\n   TRESBillingWeights=CPU=2\n"));
}

#[test]
fn refusals() {
    let name = JobName { id: JobId(99_999), task: None };
    let no = || Answer::Affected { jobs: Vec::new(), refused: vec![(name, Refusal::InvalidJobId)] };
    let held = answered(&["hold", "99999"], no());
    assert_eq!(
        (held.code, held.err.as_str()),
        (1, "Invalid job id specified for job 99999\nslurm_suspend error: Invalid job id specified\n")
    );
    let requeued = answered(&["requeue", "99999"], no());
    assert_eq!((requeued.code, requeued.err.as_str()), (1, "Invalid job id specified for job 99999\n"));
    let updated = answered(&["update", "jobid=99999", "timelimit=5"], no());
    assert_eq!((updated.code, updated.err.as_str()), (1, "Invalid job id specified for job 99999\n"));
    let whole = answered(&["update", "jobid=99999", "timelimit=5"], refused(Refusal::InvalidJobId));
    assert_eq!((whole.code, whole.err.as_str()), (1, "Invalid job id specified for job 99999\n"));
    let node = answered(&["update", "nodename=n9", "state=resume"], refused(Refusal::InvalidNode("n9".into())));
    assert_eq!((node.code, node.err.as_str()), (1, "slurm_update error: Invalid node name specified\n"));
}

#[test]
fn script() {
    let script = || Answer::Script(squall_model::encoding::ByteBuf::from(*b"#!/bin/sh\n"));
    assert_eq!(answered(&["write", "batch_script", "10", "-"], script()).out, "#!/bin/sh\n");
    let path = std::env::temp_dir().join(format!("squall-scontrol-{}.sh", std::process::id()));
    let seen = answered(&["write", "batch_script", "10", path.to_str().unwrap()], script());
    assert_eq!(seen.code, 0, "{}", seen.err);
    assert_eq!(std::fs::read(&path).unwrap(), b"#!/bin/sh\n");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_fails_and_how() {
    let text = transcript(
        "scontrol",
        scontrol,
        &[
            &["show", "job", "99999"],
            &["show", "node", "nosuch"],
            &["show", "partition", "nosuch"],
            &["show", "hostnames", "n[1"],
            &["show", "nosuch"],
            &["show"],
            &["nosuch"],
            &["hold"],
            &["hold", "x"],
            &["update", "jobid=10", "timelimit=abc"],
            &["update", "jobid=10", "nosuch=1"],
            &["update", "jobid=10"],
            &["update", "timelimit=5"],
            &["update", "jobid=30", "timelimit+=5"],
            &["update", "nodename=n1", "state=drain"],
            &["update", "nodename=n1", "state=nosuch"],
            &["update", "partitionname=debug", "state=nosuch"],
            &["update", "nonsense"],
            &["create", "reservation"],
            &["write", "nosuch", "1"],
            &["--nosuch"],
        ],
    );
    check("scontrol_what_fails_and_how", &text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_argument_panics(
        verb in "(show|update|hold|release|requeue|suspend) ?(job|node|partition|hostlist|step|jobid=10|nodename=n1)?",
        words in prop::collection::vec(any::<String>(), 1..3),
        near in "(job|node|part|time|nice|dep|start|mem|num)[a-zA-Z]{0,8}[+-]?=[a-z0-9:,_\\[\\]-]{0,12}",
    ) {
        let args: Vec<&str> =
            verb.split_whitespace().chain(words.iter().map(String::as_str)).chain([near.as_str()]).collect();
        let seen = run("scontrol", scontrol, &args);
        prop_assert!(seen.code == 0 || !seen.err.is_empty() || !seen.out.is_empty());
    }
}

/// Checks fault E: every key of scontrol(1) takes effect, or is refused by its name with the reason.
#[test]
fn e_every_key_of_a_job_is_updated_or_refused_by_name() {
    let done = "AdminComment=a Comment=b Deadline=2030-01-01 TimeMin=5 WCKey=w OverSubscribe=yes Contiguous=no \
                Switches=1@10:00 ReservationName=r Gres=gpu:1 TresPerNode=gpu:1 Licenses=x:1 EndTime=2030-01-01 \
                Extra=e Prefer=p MinCPUsNode=2 MinTmpDiskNode=10 TasksPerNode=2 StdIn=/x Shared=0 Account=a \
                ArrayTaskThrottle=2 CPUsPerTask=2 Dependency=singleton EligibleTime=now ExcNodeList=n1 Features=f \
                JobName=n DelayBoot=1 Reboot=yes MailType=END MailUser=u MinMemoryCPU=1 MinMemoryNode=1 Name=n Nice=3 NodeList=n1 \
                NumCPUs=2 NumNodes=1 NumTasks=1 Partition=debug Priority=0 Progress=p QOS=normal ReqNodeList=n1 Requeue=1 \
                StartTime=now StdErr=/x StdOut=/x TimeLimit=5 WorkDir=/x";
    for pair in done.split_whitespace() {
        let updates = asked(&["update", "JobId=10", pair]);
        assert!(
            matches!(&updates[..], [Request::UpdateJob { change, .. }] if **change != JobUpdate::default()),
            "{pair}"
        );
    }
    let refused = "BurstBuffer=x Clusters=x CoreSpec=1 CronJob=x GroupID=1 Power=x ReqCores=1 \
                   ReqSockets=1 ReqThreads=1 ResetAccrueTime=1 SiteFactor=1 SuspendTime=x ThreadSpec=1 TRESPerJob=x \
                   TRESPerSocket=x TRESPerTask=x";
    for pair in refused.split_whitespace() {
        let seen = run("scontrol", scontrol, &["update", "JobId=10", pair]);
        let key = pair.split('=').next().unwrap();
        assert!(seen.code == 1 && seen.err.contains(&format!("{key} can't be updated: ")), "{pair}: {}", seen.err);
    }
    let bad = run("scontrol", scontrol, &["update", "JobId=10", "Contiguous=maybe"]);
    assert!(bad.err.contains("Invalid Contiguous value: maybe"), "{}", bad.err);
}

/// Checks fault D12: jobs are selected by name and user.
#[test]
fn d12_update_of_a_users_jobs_by_name() {
    let updates = asked(&["update", "JobName=a-long-name", "UserID=ann", "Comment=x"]);
    let [Request::UpdateJob { jobs, .. }] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!((jobs.names.len(), jobs.users.as_slice()), (1, &[1000][..]));
}

/// Checks fault D12 (`-v` prints the number of records) and finding 2.1 of the audit (`--uid` is refused).
#[test]
fn d12_verbose_counts_the_records_and_audit_uid_is_refused() {
    let seen = run("scontrol", scontrol, &["-v", "show", "partition", "debug"]);
    assert!(
        seen.out.starts_with("last_update_time=2026-11-21T08:00:00, records=2\nPartitionName=debug"),
        "{}",
        seen.out
    );
    let seen = run("scontrol", scontrol, &["--uid=ann", "update", "JobId=10", "Comment=x"]);
    assert!(seen.code == 1 && seen.err.contains("--uid=ann"), "{}", seen.err);
}

/// Checks fault D10: `show config` has the keys of Slurm 22.05.8.
#[test]
fn d10_the_configuration_has_every_key() {
    const KEYS: &str = include_str!("keys_22_05.txt");
    let pong = Answer::Pong {
        host: "vm".into(),
        version: "0.1.0".into(),
        nodes_up: 4,
        nodes_expected: 4,
        trouble: None,
        started: Time::from_secs(NOW),
        next_job: JobId(34),
        cluster_version: squall_model::version::ClusterVersion(2),
        speaks: squall_model::version::ClusterVersion(2),
        records: None,
    };
    let text = answered(&["show", "config"], pong).out;
    let has = |key: &&str| text.lines().any(|line| line.split(' ').next() == Some(*key));
    let missing: Vec<&str> = KEYS.lines().filter(|key| !has(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn hidden_partitions_are_shown_on_demand() {
    let mut fake = fake();
    fake.partitions[0].config.hidden = true;
    let mut shows = |args: &[&str]| {
        let args = [args, &["show", "partition"]].concat();
        run_with(&mut fake, "scontrol", scontrol, &args, &[]).out.contains("PartitionName=debug\n")
    };
    assert!(!shows(&[]) && !shows(&["-a", "--hide"]) && shows(&["--all"]));
}
