//! Tests of cgroups.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;

use squall_model::id::{Attempt, JobId, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::set::CoreSet;

use super::devices::{Device, Means};
use super::{
    Cgroups, Hierarchy, Limits, Mounts, SHARES_MAX, StepGroups, Version, cpu_list, job_name, job_of, members,
    step_name, write,
};

#[test]
fn groups_survive_being_written() {
    let groups = StepGroups {
        join: vec!["/sys/fs/cgroup/a b/step_0".into(), "/x".into()],
        needed: vec!["/d".into()],
        memory: Some(("/y".into(), Version::V1)),
        idle: Some("/z".into()),
    };
    assert_eq!(StepGroups::from_text(&groups.to_text()), groups);
    assert_eq!(StepGroups::from_text(""), StepGroups::default());
}

#[test]
fn only_the_group_of_birth_need_not_be_joined() {
    let (v2, v1) = (PathBuf::from("/cg/unified/squall/job_1.1/step_0"), "/cg/memory/squall/job_1.1/step_0".into());
    let mut groups = StepGroups { join: vec![v2.clone(), v1], ..StepGroups::default() };
    groups.memory = Some((groups.join[1].clone(), Version::V1));
    let left = |groups: &StepGroups, born| groups.left_to_join(born).cloned().collect::<Vec<_>>();
    assert_eq!(left(&groups, "squall/job_1.1/step_0"), groups.join[1..]);
    assert_eq!(left(&groups, ""), groups.join);
    assert_eq!(left(&groups, "user.slice"), groups.join);
    let only = StepGroups { join: vec![v2.clone()], memory: Some((v2, Version::V2)), ..StepGroups::default() };
    assert!(left(&only, "squall/job_1.1/step_0").is_empty());
}

#[test]
fn cpus_are_listed_as_the_kernel_wants_them() {
    assert_eq!(cpu_list(&[0, 1, 2, 5, 64].into_iter().collect()), "0-2,5,64");
    assert_eq!(cpu_list(&CoreSet::new()), "");
}

#[test]
fn nodes_of_a_machine_share_its_cpus_in_one_group() {
    let root = std::env::temp_dir().join(format!("squall-shares-{}", std::process::id()));
    let group = root.join("squall");
    fs::create_dir_all(&group).unwrap();
    let files = ["cpu.shares", "cgroup.procs"].map(|name| group.join(name));
    let read = || files.each_ref().map(|file| fs::read_to_string(file).unwrap());
    for file in &files {
        fs::write(file, "").unwrap();
    }
    let below = PathBuf::from("squall/cluster/n1");
    let mut cgroups = Cgroups { cpu_roots: vec![root.clone(), root.join("service")], below, ..Cgroups::default() };
    // The process that started this one has its own group for it already.
    cgroups.share_cpus().unwrap();
    assert_eq!(read(), ["", ""]);
    cgroups.cpu_roots.pop();
    cgroups.share_cpus().unwrap();
    let [shares, procs] = read();
    assert_eq!(procs, "0");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let of = |processes: usize| (1024 * processes).min(SHARES_MAX).to_string();
    assert_eq!(shares, of(cpus));
    // More nodes than CPUs.
    let nodes: Vec<PathBuf> = (0..=cpus).map(|n| root.join(format!("v2/squall/cluster/n{n}"))).collect();
    for node in &nodes {
        fs::create_dir_all(node).unwrap();
    }
    cgroups.v2 = Some(Hierarchy { base: nodes[0].clone(), version: Version::V2, controllers: Vec::new() });
    cgroups.share_cpus().unwrap();
    assert_eq!(read()[0], of(cpus + 1));
    cgroups.cpu_roots.clear();
    cgroups.share_cpus().unwrap();
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn names_lead_back_to_jobs() {
    let job = JobAttempt { job: JobId(12), attempt: Attempt(3) };
    assert_eq!(job_of(&job_name(job)), Some(job));
    assert_eq!(job_of("job_x.1"), None);
    assert_eq!(step_name(StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH }), "step_batch");
}

#[test]
fn a_process_is_limited_found_and_killed_where_that_is_allowed() {
    let (mounts, cluster) = (Mounts::read().unwrap(), format!("test-{}", std::process::id()));
    let (mut cgroups, notices) = Cgroups::open(&mounts, &cluster, "n1");
    let unlimited = cgroups.limit_processes(77);
    if cgroups.v2.is_none() && cgroups.memory.is_none() {
        assert!(!notices.is_empty(), "what is missing must be said");
        return;
    }
    let key = StepKey { job: JobId(5), attempt: Attempt(1), step: StepNo(0) };
    let job = JobAttempt { job: key.job, attempt: key.attempt };
    let limits = Limits { memory_mb: 64, cpus: [0].into_iter().collect(), takes_turns: true, ..Limits::default() };
    cgroups.open_job(job, &limits, false).unwrap();
    cgroups.open_job(job, &Limits { memory_mb: 32, ..limits.clone() }, false).unwrap();
    let groups = cgroups.open_step(key, &limits).unwrap();
    assert_eq!(cgroups.jobs(), [job]);
    let pids_max = groups.join[0].parent().map(|dir| fs::read_to_string(dir.join("pids.max")));
    assert_eq!(pids_max.and_then(Result::ok).as_deref() == Some("77\n"), unlimited.is_none());
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    for dir in &groups.join {
        write(dir, "cgroup.procs", &child.id().to_string()).unwrap();
    }
    assert_eq!(members(&groups.join[0]), [child.id()]);
    let members = BTreeSet::from([child.id()]);
    assert_eq!((cgroups.members_of_job(job), cgroups.members_of_step(key)), (members.clone(), members));
    if let Some(dir) = groups.memory_dir() {
        let limit = ["memory.max", "memory.limit_in_bytes"].map(|name| fs::read_to_string(dir.join(name)));
        assert!(limit.iter().flatten().any(|text| text.trim() == (64_u64 << 20).to_string()));
        assert_eq!(groups.oom_kills(), 0);
    }
    assert!(!cgroups.close_job(job), "it has a member");
    cgroups.kill_job(job);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(cgroups.close_job(job) && cgroups.jobs().is_empty());
    cgroups.close();
    assert!(cgroups.all().all(|hierarchy| !hierarchy.base.exists()));
}

/// Whether a process of these groups can read each of the files.
fn readable(groups: &StepGroups, files: [&str; 2]) -> [bool; 2] {
    let enter = "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\" || exit 9; shift; done; shift";
    let script = format!("{enter}; for file; do head -c1 \"$file\" > /dev/null 2>&1; echo $?; done");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, "sh"]).args(groups.folders()).arg("--").args(files);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let lines = String::from_utf8(out.stdout).unwrap();
    let mut read = lines.lines().map(|status| status == "0");
    files.map(|_| read.next().unwrap())
}

#[test]
fn devices_of_others_cant_be_opened_by_either_means() {
    let (mounts, cluster) = (Mounts::read().unwrap(), format!("devices-{}", std::process::id()));
    let (mut cgroups, _) = Cgroups::open(&mounts, &cluster, "n1");
    let files = ["/dev/full", "/dev/zero"];
    let [full, zero] = files.map(|file| Device::of(file.as_ref()).unwrap());
    let v2 = cgroups.v2.clone();
    let program = Means::find(v2.as_ref().map(|v2| &*v2.base), || None).ok();
    let mut roots = mounts.candidates(Some("devices")).into_iter();
    let group = Means::find(None, || roots.find_map(|root| Hierarchy::make(&root, &cgroups.below, Version::V1))).ok();
    assert!(program != Some(Means::None) && group != Some(Means::None));
    for (number, means) in (1..).zip(program.into_iter().chain(group)) {
        eprintln!("by {means:?}");
        cgroups.devices = means;
        let key = |step| StepKey { job: JobId(number), attempt: Attempt(1), step };
        let job = JobAttempt { job: JobId(number), attempt: Attempt(1) };
        let denied = |denied: &[Device]| Limits { denied: denied.to_vec(), ..Limits::default() };
        cgroups.open_job(job, &denied(&[zero]), false).unwrap();
        cgroups.open_job(job, &denied(&[zero]), false).unwrap();
        let open = |step, limits: &[Device]| cgroups.open_step(key(StepNo(step)), &denied(limits)).unwrap();
        assert_eq!(readable(&open(0, &[zero]), files), [true, false]);
        assert_eq!(readable(&open(1, &[full, zero]), files), [false, false], "a part of the job's");
        let batch = cgroups.open_step(key(StepNo::BATCH), &denied(&[zero])).unwrap();
        assert_eq!(readable(&batch, files), [true, false]);
        assert!(cgroups.close_job(job));
        assert_eq!(readable(&StepGroups::default(), files), [true, true], "this process may");
    }
    cgroups.devices = Means::Impossible("no kernel".to_owned());
    let key = StepKey { job: JobId(9), attempt: Attempt(1), step: StepNo(0) };
    let problem = cgroups.open_step(key, &Limits { denied: vec![full], ..Limits::default() }).unwrap_err();
    assert_eq!(problem.to_string(), "devices can't be kept from it: no kernel");
    cgroups.open_step(key, &Limits::default()).unwrap();
    assert!(cgroups.close_job(JobAttempt { job: JobId(9), attempt: Attempt(1) }));
    cgroups.close();
    for root in mounts.candidates(Some("devices")) {
        let below = root.join(&cgroups.below);
        below.ancestors().take(3).for_each(|dir| drop(fs::remove_dir(dir)));
    }
}

/// faults.md R12: whoever removes empty groups leaves no step without limits.
#[test]
fn r12_groups_that_were_removed_are_made_again_with_their_limits() {
    let (mounts, cluster) = (Mounts::read().unwrap(), format!("removed-{}", std::process::id()));
    let (mut cgroups, _) = Cgroups::open(&mounts, &cluster, "n1");
    cgroups.limit_processes(77);
    if cgroups.v2.is_none() {
        return;
    }
    let key = |step| StepKey { job: JobId(7), attempt: Attempt(1), step };
    let job = JobAttempt { job: JobId(7), attempt: Attempt(1) };
    let remove = |depth| {
        for hierarchy in cgroups.all() {
            let dirs: Vec<PathBuf> =
                hierarchy.base.join(job_name(job)).ancestors().take(depth).map(Into::into).collect();
            for dir in &dirs {
                drop(fs::remove_dir(dir));
            }
        }
    };
    let limits = |memory_mb| Limits { memory_mb, ..Limits::default() };
    let limited = |dir: &std::path::Path, mb: u64| {
        let limit = ["memory.max", "memory.limit_in_bytes"].map(|name| fs::read_to_string(dir.join(name)));
        limit.iter().flatten().any(|text| text.trim() == (mb << 20).to_string())
    };
    // The node's folder, and those above it.
    remove(3);
    assert!(cgroups.all().all(|hierarchy| !hierarchy.base.exists()));
    cgroups.open_job(job, &limits(64), false).unwrap();
    for depth in [1, 3] {
        remove(depth);
        let groups = cgroups.open_step(key(StepNo(depth as u32)), &limits(32)).unwrap();
        for dir in groups.folders() {
            assert!(fs::read_to_string(dir.join("cgroup.procs")).is_ok(), "{dir:?}");
        }
        if let Some(dir) = groups.memory_dir() {
            assert!(limited(dir, 32) && limited(dir.parent().unwrap(), 64), "{dir:?}");
        }
        cgroups.close_step(key(StepNo(depth as u32)));
    }
    // A step daemon that comes after its group was removed starts nothing.
    let groups = cgroups.open_step(key(StepNo(9)), &limits(32)).unwrap();
    cgroups.close_step(key(StepNo(9)));
    let error = groups.join().unwrap_err().to_string();
    assert!(error.contains("step_9"), "{error}");
    assert!(cgroups.close_job(job));
    // Where it can't be made again nothing is started.
    if let Some(v2) = &mut cgroups.v2 {
        v2.base = PathBuf::from("/nowhere/squall/c/n1");
    }
    let error = cgroups.open_step(key(StepNo(1)), &limits(0)).unwrap_err().to_string();
    assert!(error.contains("was removed, and can't be made again"), "{error}");
    cgroups.v2 = None;
    cgroups.close();
}

#[test]
fn a_step_daemon_is_born_in_its_group_where_that_is_allowed() {
    use crate::sys::spawn::{Session, Spawn};
    use std::os::fd::AsFd;
    let (mounts, cluster) = (Mounts::read().unwrap(), format!("born-{}", std::process::id()));
    let (cgroups, _) = Cgroups::open(&mounts, &cluster, "n1");
    let key = StepKey { job: JobId(6), attempt: Attempt(1), step: StepNo::BATCH };
    let groups = cgroups.open_step(key, &Limits::default()).unwrap();
    let Some(birthplace) = cgroups.birthplace(key).and_then(|dir| File::open(dir).ok()) else { return };
    let out = std::env::temp_dir().join(format!("squall-born-{}", std::process::id()));
    let (file, null) = (File::create(&out).unwrap(), File::open("/dev/null").unwrap());
    let argv = [c"cat".to_owned(), c"/proc/self/cgroup".to_owned()];
    let stdio = [null.as_fd(), file.as_fd(), null.as_fd()];
    let spawn = |program| Spawn { session: Session::New, ..Spawn::new(program, &argv, stdio) };
    let error = spawn(c"/nonexistent").start_in(birthplace.as_fd()).unwrap_err();
    assert_eq!((error.call, error.errno()), ("execve", libc::ENOENT));
    let child = spawn(c"/bin/cat").start_in(birthplace.as_fd()).unwrap();
    crate::sys::wait::reap_pid(child.pid).unwrap();
    let text = fs::read_to_string(&out).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    assert!(groups.join[0].ends_with(own), "{own} is not {:?}", groups.join);
    fs::remove_file(&out).unwrap();
    assert!(cgroups.close_job(JobAttempt { job: key.job, attempt: key.attempt }));
    cgroups.close();
}

#[test]
fn counts_are_read_from_either_version() {
    let dir = std::env::temp_dir().join(format!("squall-cgroup-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    for (name, text) in [
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("memory.max_usage_in_bytes", "1048576\n"),
        ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n"),
        ("memory.peak", "2097152\n"),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
    let groups = |version| StepGroups { memory: Some((dir.clone(), version)), ..StepGroups::default() };
    let seen = |version| (groups(version).oom_kills(), groups(version).peak_kb());
    assert_eq!(seen(Version::V1), (2, Some(1024)));
    assert_eq!(seen(Version::V2), (1, Some(2048)));
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(seen(Version::V2), (0, None));
}
