//! Users who attack a cluster that others use, too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use squall_model::job::Digest;

use super::containers::{bundle, contained, runtime};
use super::{Cluster, USER, has, text};

/// attack-trial.md L3: columns between bars are as in Slurm, which does not escape them; programs read JSON.
#[test]
fn l3_a_name_with_a_bar_is_one_value_in_json() {
    let cluster = Cluster::start("bar", "");
    let name = "a|b\"c\n$(id)";
    let job = cluster.users_ok(&["sbatch", "--parsable", "--hold", "-J", name, "-o", "/dev/null", "--wrap", "true"]);
    let lists: Value = serde_json::from_str(&cluster.users_ok(&["squeue", "--json", "-j", &job])).unwrap();
    assert_eq!(lists["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(lists["jobs"][0]["name"], name);
    assert_eq!(cluster.users_ok(&["squeue", "-h", "-o", "%j|%i", "-j", &job]), format!("a|b\"c?$(id)|{job}"));
    cluster.users_ok(&["scancel", &job]);
}

/// attack-trial.md L4: whoever may not do a thing is refused before anything is said or done.
#[test]
fn l4_a_stranger_is_refused_before_anything_is_said() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let cluster = Cluster::start("stranger", "");
    for args in [&["down"][..], &["down", "--keep-jobs"], &["token", "--revoke", "n1"], &["token", "n3"], &["up"]] {
        let out = cluster.users(args).output().unwrap();
        let said = text(&out);
        let why = if args == ["up"] { "belongs to user 0, not to you" } else { "only root may do that" };
        assert!(!out.status.success() && said.contains(why), "{args:?}: {said}");
        assert!(!said.contains("ending") && !said.contains("key"), "{args:?}: {said}");
    }
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%D %t"]), "2 idle");
}

/// A folder of user `daemon`'s, with one of root's in it, which that user can replace by another one.
fn below_a_users(test: &str) -> Option<PathBuf> {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return None;
    }
    let folder = std::env::temp_dir().join(format!("squall-below-{}-{test}", std::process::id()));
    fs::create_dir_all(folder.join("roots")).unwrap();
    std::os::unix::fs::chown(&folder, Some(USER), Some(USER)).unwrap();
    Some(folder)
}

/// attack-trial.md A2, neighbours: root's daemons would use a state folder that a user has put in the place of root's, and
/// root's commands would write where a user's cluster leads them.
#[test]
fn a2_root_uses_no_state_folder_below_a_users() {
    let Some(folder) = below_a_users("state") else { return };
    let run = |args: &[&str], state: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        text(&command.args(args).arg("--state").arg(state).output().unwrap())
    };
    for args in [&["up"][..], &["node"], &["controller"], &["restore", "/dev/null"]] {
        let said = run(args, &folder.join("roots/state"));
        assert!(said.contains("can replace what is in"), "{args:?}: {said}");
    }
    assert!(!folder.join("roots/state/run").exists());
    // The user's own cluster.
    let said = run(&["token", "n1"], &folder);
    assert!(said.contains("run this as daemon"), "{said}");
    assert!(!folder.join("keys").exists());
    fs::remove_dir_all(folder).unwrap();
}

/// attack-trial.md A1 and A2: those who ran a build with these faults are told, and those who offer an occasion.
#[test]
fn a1_doctor_and_up_name_exposed_sockets_and_faults_of_earlier_builds() {
    let Some(folder) = below_a_users("socket") else { return };
    let cluster = Cluster::start("doctor", "");
    let findings = || {
        let out = cluster.command(&["doctor", "--json"]).output().unwrap();
        let all: Value = serde_json::from_slice(&out.stdout).unwrap();
        let mut found: Vec<(String, String)> = Vec::new();
        for row in all.as_array().unwrap().iter().filter(|row| row["result"] == "warn") {
            found.push((row["check"].as_str().unwrap().into(), row["finding"].as_str().unwrap().into()));
        }
        found
    };
    let has = |check: &str, what: &str| findings().iter().any(|(name, text)| name == check && text.contains(what));
    assert!(!has("folders", "") && !has("builds", "under a build"), "{:?}", findings());
    // The cluster as an earlier build has left it.
    cluster.ok(&["down"]);
    fs::remove_file(cluster.path("state/builds")).unwrap();
    let socket = folder.join("roots/rest.sock");
    let config =
        format!("[rest]\nlisten = \"unix:{}\"\n[[nodes]]\nname = \"n[1-2]\"\nforce = true\n", socket.display());
    fs::write(cluster.path("squall.toml"), config).unwrap();
    let out = cluster.command(&["up", "--config", &cluster.path("squall.toml")]).output().unwrap();
    assert!(out.status.success() && text(&out).contains("daemon can replace what is in"), "{}", text(&out));
    assert!(has("folders", "another socket in the place of"), "{:?}", findings());
    assert!(has("builds", "may have run with unix:") && !has("builds", "private_tmp"), "{:?}", findings());
    drop(cluster);
    fs::remove_dir_all(folder).unwrap();
}

/// faults.md R12: a node whose empty cgroups somebody has removed runs jobs as before, and in cgroups.
#[test]
fn r12_a_node_whose_cgroup_was_removed_makes_it_again() {
    let cluster = Cluster::start("cleaned", "");
    let digest = Digest::of(cluster.path("state").as_bytes()).to_string();
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let roots = hierarchies.chain(["/sys/fs/cgroup".into()]);
    let folders: Vec<_> = roots.map(|root| root.join(format!("squall/{}/n1", &digest[..16]))).collect();
    let folders: Vec<_> = folders.into_iter().filter(|folder| folder.is_dir()).collect();
    if folders.is_empty() {
        return eprintln!("skipped: there are no cgroups here");
    }
    let within = |said: &str| said.lines().any(|line| line.contains(&format!("/squall/{}/n1/job_", &digest[..16])));
    for by_script in [false, true] {
        folders.iter().filter(|folder| folder.is_dir()).for_each(|folder| fs::remove_dir(folder).unwrap());
        let said = if by_script {
            cluster.users_ok(&["sbatch", "-W", "-w", "n1", "-o", "out", "--wrap", "cat /proc/self/cgroup"]);
            cluster.read("out")
        } else {
            cluster.users_ok(&["srun", "-w", "n1", "--mem=64", "cat", "/proc/self/cgroup"])
        };
        assert!(within(&said), "{said}");
        cluster.until("the job's group is gone", || {
            folders.iter().all(|folder| {
                !fs::read_dir(folder).is_ok_and(|mut all| all.any(|e| e.is_ok_and(|e| e.path().is_dir())))
            })
        });
    }
    let log = fs::read_to_string(cluster.path("state/log/node-n1.log")).unwrap();
    assert!(log.contains("was removed by somebody, and is made again"), "{log}");
}

/// A bundle is a user's: whatever its configuration asks for, the runtime has the user's rights.
#[test]
fn a_hostile_bundle_has_its_users_rights() {
    if !rustix::process::getuid().is_root() || !has(runtime()) {
        return;
    }
    let cluster = Cluster::start("bundle", &format!("container_runtime = \"{}\"", runtime()));
    let Some(bundle) = bundle(&cluster) else { return };
    let (secret, hooked) = (cluster.path("secret"), cluster.shared("hooked"));
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    fs::create_dir(format!("{bundle}/rootfs/host")).unwrap();
    let path = format!("{bundle}/config.json");
    let plain: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let hostile = |change: &dyn Fn(&mut Value)| {
        let mut config = plain.clone();
        config["process"]["user"] = json!({"uid": 0, "gid": 0});
        let mounts = config["mounts"].as_array_mut().unwrap();
        mounts.push(json!({"destination": "/host", "type": "bind", "source": "/", "options": ["rbind", "rw"]}));
        let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|namespace| namespace["type"] != "user");
        change(&mut config);
        fs::write(&path, config.to_string()).unwrap();
        let look = format!("id -u; cat /host{secret}; echo forged >/host{secret}");
        let container = format!("--container={bundle}");
        let said = text(&contained(&cluster, &["srun", "-w", "n1", &container, "sh", "-c", &look]));
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret", "{said}");
        said.replace(&secret, "SECRET")
    };
    let said = hostile(&|_| {});
    assert!(said.starts_with("0\n") && !said.contains("secret"), "{said}");
    // All ids of the node, and programs that the runtime runs outside of the container.
    let said = hostile(&|config| {
        for ids in ["uidMappings", "gidMappings"] {
            config["linux"][ids] = json!([{"containerID": 0, "hostID": 0, "size": 65536}]);
        }
    });
    assert!(!said.contains("secret"), "{said}");
    let hook = format!("id -u >>{hooked}; cat {secret} >>{hooked}");
    hostile(&|config| config["hooks"] = json!({"prestart": [{"path": "/bin/sh", "args": ["sh", "-c", hook]}]}));
    let said = cluster.read("hooked");
    assert!(said.lines().all(|line| line == "1"), "{said}");
    // No configuration ends more than the step.
    let deep = "[".repeat(5000);
    for config in ["[]", r#"{"root":[]}"#, r#"{"root":{"path":"x"},"process":7}"#, &deep] {
        fs::write(&path, config).unwrap();
        let out = contained(&cluster, &["srun", "-w", "n1", &format!("--container={bundle}"), "true"]);
        assert!(!out.status.success() && text(&out).contains("config.json: "), "{}", text(&out));
    }
    cluster.users_ok(&["srun", "-w", "n1", "true"]);
}
