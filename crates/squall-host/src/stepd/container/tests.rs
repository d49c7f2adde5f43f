//! Tests of containers: what becomes of a bundle, an image and a name.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use squall_model::job::container::{Container, Mount};

use super::{BROUGHT, Order, Task, image_of_apptainer};

fn order(container: Container) -> Order {
    Order { container, runtime: String::new(), node: "n7".into(), brought: None }
}

fn task(uid: u32) -> Task {
    Task {
        argv: vec!["prog".into(), "a b".into()],
        env: ["PATH=/host", "SLURM_PROCID=3", "PMIX_SECURITY_MODE=native"].map(str::to_owned).into(),
        dir: PathBuf::from("/nowhere/at/all"),
        uid,
        gid: uid,
    }
}

fn bundle() -> Value {
    json!({
        "process": {"terminal": true, "user": {"uid": 0, "gid": 0}, "args": ["sh"], "env": ["PATH=/own", "X=1"], "cwd": "/"},
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "bundle",
        "mounts": [
            {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm"},
        ],
        "linux": {"resources": {}, "cgroupsPath": "/x", "namespaces": [{"type": "network"}, {"type": "uts"}]},
    })
}

#[test]
fn a_bundle_becomes_a_task_with_its_own_path_and_the_nodes_network() {
    let mounts = vec![Mount { source: "/data".into(), target: "/mnt".into(), read_only: true }];
    let container = Container { bundle: Some("/b".into()), mounts, ..Container::default() };
    let config = order(container).derive(bundle(), Path::new("/b"), &task(1000)).unwrap();
    assert_eq!(config["root"], json!({"path": "/b/rootfs", "readonly": true}));
    assert_eq!(config["process"]["args"], json!(["prog", "a b"]));
    assert_eq!(
        config["process"]["env"],
        json!(["SLURM_PROCID=3", "PATH=/own", "X=1", "PMIX_SECURITY_MODE=none", "PMIX_MCA_psec=none"])
    );
    assert_eq!((&config["process"]["terminal"], &config["process"]["cwd"]), (&json!(false), &json!("/")));
    assert_eq!(config["hostname"], "n7");
    let linux = config["linux"].as_object().unwrap();
    assert_eq!(linux["namespaces"], json!([{"type": "uts"}, {"type": "user"}]));
    assert_eq!(linux["uidMappings"], json!([{"containerID": 0, "hostID": 1000, "size": 1}]));
    assert!(!linux.contains_key("resources") && !linux.contains_key("cgroupsPath"));
    let mounts = config["mounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount["type"] == "bind"));
    let sources: Vec<_> = mounts.iter().filter_map(|mount| mount["source"].as_str()).collect();
    assert_eq!(sources, ["/sys", "/dev/shm", "/data"]);
}

#[test]
fn root_needs_no_namespace_of_users_and_a_script_is_mounted() {
    let container = Container { bundle: Some("/b".into()), work_dir: Some("/w".into()), ..Container::default() };
    let order = Order { brought: Some(b"/spool/script".to_vec()), ..order(container) };
    let config = order.derive(bundle(), Path::new("/b"), &task(0)).unwrap();
    assert_eq!(config["linux"]["namespaces"], json!([{"type": "uts"}]));
    assert_eq!(config["process"]["args"], json!([BROUGHT, "a b"]));
    assert_eq!(config["process"]["cwd"], "/w");
    assert_eq!(config["process"]["env"][1], "PMIX_SECURITY_MODE=native");
    assert_eq!(order.derive(json!({"process": {}}), Path::new("/b"), &task(0)), None);
}

#[test]
fn images_without_a_kind_are_of_a_registry() {
    assert_eq!(image_of_apptainer("ubuntu:24.04"), "docker://ubuntu:24.04");
    assert_eq!(image_of_apptainer("nvcr.io#nvidia/pytorch"), "docker://nvcr.io/nvidia/pytorch");
    assert_eq!(image_of_apptainer("oras://x/y"), "oras://x/y");
    assert_eq!(image_of_apptainer("/dev/null"), "/dev/null");
}

#[test]
fn a_container_by_enroot_has_its_name() {
    let order = order(Container { name: Some("mine".into()), ..Container::default() });
    // A program in the place of enroot that lists no container.
    let said = order.become_enroot(Path::new("/bin/true"), Path::new("/nowhere"), &[]);
    assert_eq!(said, "node n7 has no container mine: give --container-image too");
}
