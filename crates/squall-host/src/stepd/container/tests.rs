//! Tests of containers: what becomes of a bundle, an image and a name.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use squall_model::job::container::{Container, Mount};

use super::images::{Call, image_of_apptainer, saving};
use super::{BROUGHT, Order, Task};

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
        home: Some("/home/ann".into()),
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
    let mounts = vec![Mount { source: "/data".into(), target: "/mnt".into(), read_only: true, flags: Vec::new() }];
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

// faults.md P1: options of pyxis change the container of a bundle.
#[test]
fn p1_a_bundle_is_mounted_and_mapped_as_the_options_say() {
    let derived = |container: Container, bundle: Value, uid: u32| {
        let container = Container { bundle: Some("/b".into()), ..container };
        order(container).derive(bundle, Path::new("/b"), &task(uid)).unwrap()
    };
    let of = |container: Container| derived(container, bundle(), 1000);
    let targets = |config: &Value| -> Vec<String> {
        let mounts = config["mounts"].as_array().unwrap().iter();
        mounts.filter_map(|mount| mount["destination"].as_str().map(str::to_owned)).collect()
    };
    let flag = |container: Container| of(container)["root"]["readonly"].clone();
    assert_eq!(flag(Container::default()), true);
    assert_eq!(flag(Container { writable: Some(true), ..Container::default() }), false);
    assert_eq!(flag(Container { writable: Some(false), ..Container::default() }), true);
    let home = |shown| targets(&of(Container { mount_home: shown, ..Container::default() }));
    assert_eq!(home(None), ["/sys", "/dev/shm"]);
    assert_eq!(home(Some(true)), ["/sys", "/dev/shm", "/home/ann"]);
    let mut with_home = bundle();
    with_home["mounts"][1]["destination"] = json!("/home/ann");
    let without = Container { mount_home: Some(false), ..Container::default() };
    assert_eq!(targets(&derived(without, with_home, 1000)), ["/sys", "/dev/shm"]);
    let user = |remap, uid| {
        let mut bundle = bundle();
        bundle["process"]["user"] = json!({"uid": 7, "gid": 7});
        bundle["linux"]["uidMappings"] = json!([{"containerID": 7, "hostID": 0, "size": 1}]);
        let config = derived(Container { remap_root: remap, ..Container::default() }, bundle, uid);
        (config["process"]["user"]["uid"].clone(), config["linux"]["uidMappings"][0].clone())
    };
    let mapped = |inside: u32, outside: u32| json!({"containerID": inside, "hostID": outside, "size": 1});
    assert_eq!(user(Some(true), 1000), (json!(0), mapped(0, 1000)));
    assert_eq!(user(None, 1000), (json!(7), mapped(7, 0)), "the bundle's mappings count");
    assert_eq!(user(Some(true), 0), (json!(0), mapped(7, 0)));
    let path = Container { env: vec!["PATH".into()], ..Container::default() };
    assert_eq!(of(path)["process"]["env"][0], "PATH=/host");
    let mounts = Mount::parse_all("./data:/mnt:ro+nosuid,tmpfs:/scratch:size=1G,umount:/sys").unwrap();
    let config = of(Container { mounts, ..Container::default() });
    assert_eq!(targets(&config), ["/dev/shm", "/mnt", "/scratch"]);
    assert_eq!(
        config["mounts"].as_array().unwrap()[1..],
        [
            json!({"destination": "/mnt", "type": "bind", "source": "/nowhere/at/all/./data",
                "options": ["rbind", "ro", "nosuid"]}),
            json!({"destination": "/scratch", "type": "tmpfs", "source": "tmpfs", "options": ["size=1G"]}),
        ]
    );
}

fn told(call: &Call) -> (String, String) {
    let text = |words: Vec<String>| words.join(" ");
    let args = call.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    (text(args), text(call.env.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy())).collect()))
}

#[test]
fn p1_enroot_and_apptainer_are_told_what_the_options_say() {
    let argv = ["prog".into(), "a".into()];
    let (room, dir) = (Path::new("/room"), Path::new("/work"));
    let image = |container: Container| order(Container { image: Some("ubuntu".into()), ..container });
    let enroot = |container: Container, name: &str| told(&image(container).enroot(room, dir, name, &argv));
    assert_eq!(
        enroot(Container::default(), "x"),
        ("start --conf /room/enroot.conf x prog a".into(), "ENROOT_DATA_PATH=/room/containers".into())
    );
    let all = Container {
        mount_home: Some(false),
        remap_root: Some(true),
        writable: Some(false),
        name: Some("mine".into()),
        mounts: Mount::parse_all("./d:/d:ro,tmpfs:/t,umount:/root").unwrap(),
        ..Container::default()
    };
    let mounts = "--mount /work/./d:/d:none:x-create=auto,rbind,ro --mount tmpfs:/t:tmpfs:x-create=dir,rw --mount \
                  umount:/root:none:x-detach";
    assert_eq!(
        enroot(all.clone(), "mine"),
        (
            format!("start --conf /room/enroot.conf {mounts} mine prog a"),
            "ENROOT_MOUNT_HOME=n ENROOT_REMAP_ROOT=y ENROOT_ROOTFS_WRITABLE=n".into()
        )
    );
    let variable = |name: &str| match name {
        "HOME" => Some(OsString::from("/home/ann")),
        "CUDA_VERSION" => Some("12".into()),
        _ => None,
    };
    let apptainer = |container: Container| image(container).apptainer(dir, &argv, &variable).map(|call| told(&call));
    assert_eq!(apptainer(Container::default()), Ok(("exec docker://ubuntu prog a".into(), String::new())));
    let most = Container {
        mount_home: Some(true),
        remap_root: Some(true),
        writable: Some(true),
        entrypoint: Some(true),
        env: vec!["CUDA_VERSION".into(), "UNSET".into()],
        ..Container::default()
    };
    let args = "run --bind /home/ann --fakeroot --writable-tmpfs docker://ubuntu prog a";
    let env = "APPTAINERENV_CUDA_VERSION=12 SINGULARITYENV_CUDA_VERSION=12";
    assert_eq!(apptainer(most), Ok((args.into(), env.into())));
    for (container, problem) in [
        (Container { save: Some("/f".into()), ..Container::default() }, "leave out --container-save"),
        (all, "leave out --container-name"),
        (Container { mounts: Mount::parse_all("tmpfs:/t").unwrap(), ..Container::default() }, "not tmpfs at /t"),
    ] {
        let heard = apptainer(container).unwrap_err();
        assert!(heard.contains(problem), "{heard}");
    }
}

/// A folder for a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("squall-container-{test}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("etc")).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn p1_an_image_keeps_its_variables_but_those_that_are_named_and_its_entrypoint_is_left_out() {
    let folder = Folder::new("conf");
    let root = folder.0.display().to_string();
    fs::write(folder.0.join("etc/environment"), "CUDA_VERSION=11\nPATH=/image\nLANG=C\n").unwrap();
    let env = |container: Container| {
        let task =
            [("CUDA_VERSION", "12"), ("PATH", "/host"), ("SLURM_PROCID", "3"), ("TWO", "a\nb"), ("Q", "it's $x")];
        let task = task.into_iter().map(|(name, value)| (name.to_owned(), OsString::from(value)));
        order(container).write_conf(&folder.0, task).unwrap();
        // As enroot reads it.
        let script = "source \"$ENROOT_ROOTFS/enroot.conf\"; environ; if declare -F hooks >/dev/null; then hooks; fi";
        let out = Command::new("bash").args(["-eu", "-c", script]).env("ENROOT_ROOTFS", &root).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let local = fs::read_to_string(folder.0.join("etc/rc.local")).unwrap_or_default();
        drop(fs::remove_file(folder.0.join("etc/rc.local")));
        (String::from_utf8(out.stdout).unwrap(), local)
    };
    assert_eq!(env(Container::default()), ("SLURM_PROCID=3\nQ=it's $x\n".into(), "exec \"$@\"\n".into()));
    let named =
        Container { env: vec!["CUDA_VERSION".into(), "PATH".into()], entrypoint: Some(true), ..Container::default() };
    let own = "SLURM_PROCID=3\nQ=it's $x\nCUDA_VERSION=12\nPATH=/host\n";
    assert_eq!(env(named), (own.into(), String::new()));
}

#[test]
fn p1_a_container_is_saved_when_its_task_has_ended_with_the_tasks_status_and_signals() {
    let folder = Folder::new("save");
    let (enroot, log) = (folder.0.join("enroot"), folder.0.join("log"));
    // In the place of enroot: runs the command, and writes down how it is called.
    let stub = format!(
        "#!/bin/sh\nif [ $1 = export ]; then echo \"$@\" >>{log}; exit 0; fi\nshift; exec \"$@\"\n",
        log = log.display()
    );
    fs::write(&enroot, stub).unwrap();
    fs::set_permissions(&enroot, PermissionsExt::from_mode(0o755)).unwrap();
    let run = |script: &str| {
        let call = Call { args: ["start", "sh", "-c", script].map(OsString::from).into(), ..Call::default() };
        let call = saving(&enroot, Path::new("/images/x.sqsh"), "mine", call);
        let out = Command::new("/bin/sh").args(&call.args).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), fs::read_to_string(&log).unwrap_or_default())
    };
    let saved = "export -f -o /images/x.sqsh mine\n";
    assert_eq!(run("echo out; exit 7"), (Some(7), "out\n".into(), saved.into()));
    // The task has the shell's parent pass a signal on to it.
    let heard = run("trap 'echo heard; exit 3' USR1; kill -s USR1 $PPID; while :; do sleep 0.01; done");
    assert_eq!(heard, (Some(3), "heard\n".into(), saved.repeat(2)));
}
