//! SPANK plugins and users without rights: whose rights each hook has, and what a user can't have loaded.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Cluster, USER};

/// A folder of root's with a plugin, its list and its notes, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

impl Folder {
    /// Compiles the plugin of the tests. None: this machine can't, or the test isn't run by root.
    fn new(test: &str) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: only root has users without rights");
            return None;
        }
        let folder = Self(PathBuf::from(format!("/var/tmp/squall-plugins-{}-{test}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        folder.compile("spank.c", "probe.so").then_some(folder)
    }

    /// Compiles a source of the tests; returns whether this machine has a compiler.
    fn compile(&self, source: &str, library: &str) -> bool {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o", &self.path(library), "-I"]).arg(here.join("../squall-c"));
        let source = if source.starts_with('/') { source.into() } else { here.join("tests/e2e").join(source) };
        let Ok(out) = cc.arg(source).output() else {
            eprintln!("skipped: this machine has no C compiler");
            return false;
        };
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        true
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text.replace("DIR", self.0.to_str().unwrap())).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.path("notes")).unwrap()
    }

    /// Starts a cluster with the list.
    fn cluster(&self, test: &str) -> Cluster {
        self.write("notes", "", 0o666);
        Cluster::start_in(
            "/var/tmp".as_ref(),
            test,
            &format!("[slurm]\nplugstack = \"{}\"", self.path("plugstack.conf")),
        )
    }
}

#[test]
fn each_hook_has_the_rights_of_slurms() {
    let Some(folder) = Folder::new("rights") else { return };
    folder.write("plugstack.conf", "required DIR/probe.so notes=DIR/notes\n", 0o644);
    let cluster = folder.cluster("plugin-rights");
    cluster.users_ok(&["srun", "-w", "n1", "--greet=you", "true"]);
    cluster.until("the epilog has run", || folder.notes().contains("job_epilog "));
    let notes = folder.notes();
    let root =
        ["init context=2", "init_post_opt context=2", "task_init_privileged context=2", "task_post_fork context=2"];
    let root = [&root[..], &["task_exit context=2", "exit context=2", "job_prolog context=5", "job_epilog context=5"]]
        .concat();
    let users = ["init context=1", "local_user_init context=1", "user_init context=2", "task_init context=2"];
    for (hooks, uid) in [(&root[..], 0), (&users[..], USER), (&["slurmd_init context=4"][..], 0)] {
        for hook in hooks {
            let seen: Vec<&str> = notes.lines().filter(|line| line.starts_with(&format!("{hook} "))).collect();
            assert!(
                !seen.is_empty() && seen.iter().all(|line| line.contains(&format!(" uid={uid} "))),
                "{hook}: {notes}"
            );
        }
    }
    assert!(notes.contains(&format!("owner={USER}:{USER} ")), "{notes}");
}

/// What a user has in the environment is for the user's processes alone.
#[test]
fn a_user_gets_nothing_into_the_processes_of_root() {
    let Some(folder) = Folder::new("preload") else { return };
    let source = "#include <stdio.h>\n#include <unistd.h>\n__attribute__((constructor)) static void who(void)\n\
                  { FILE *f = fopen(\"DIR/who\", \"a\"); if (f) { fprintf(f, \"%d\\n\", (int)geteuid()); fclose(f); } }\n";
    folder.write("evil.c", source, 0o644);
    folder.write("who", "", 0o666);
    assert!(folder.compile(&folder.path("evil.c"), "evil.so"));
    folder.write("plugstack.conf", "required DIR/probe.so notes=DIR/notes\n", 0o644);
    let cluster = folder.cluster("plugin-preload");
    let export = format!("--export=ALL,LD_PRELOAD={}", folder.path("evil.so"));
    cluster.users_ok(&["srun", "-w", "n1", &export, "--greet=you", "true"]);
    cluster.until("the epilog has run", || folder.notes().contains("job_epilog "));
    let who = fs::read_to_string(folder.path("who")).unwrap();
    assert!(who.contains(&USER.to_string()) && !who.lines().any(|uid| uid == "0"), "{who}");
}

#[test]
fn no_list_and_no_plugin_that_a_user_can_change_is_loaded() {
    let Some(folder) = Folder::new("changed") else { return };
    let good = "required DIR/probe.so notes=DIR/notes\n";
    // The node daemons find no hooks around jobs, so that steps are what refuses.
    folder.write("plugstack.conf", "", 0o644);
    let cluster = folder.cluster("plugin-changed");
    folder.write("plugstack.conf", good, 0o644);
    cluster.users_ok(&["srun", "-w", "n1", "true"]);
    let refused = |what: &str| {
        let out = cluster.users(&["srun", "-w", "n1", "echo", "ran"]).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(!out.status.success() && said.contains(what) && !said.contains("ran\n"), "{what}: {said}");
    };
    // The list itself.
    folder.write("plugstack.conf", good, 0o666);
    refused("plugstack.conf: every user can write it: chmod o-w it");
    folder.write("plugstack.conf", good, 0o644);
    chown(folder.path("plugstack.conf"), Some(USER), Some(USER)).unwrap();
    refused("plugstack.conf: it belongs to another user: chown it to root");
    chown(folder.path("plugstack.conf"), Some(0), Some(0)).unwrap();
    // What it includes.
    folder.write("plugstack.conf", "include DIR/more\n", 0o644);
    folder.write("more", good, 0o646);
    refused("more: every user can write it");
    // A plugin, and the folder in which it is.
    folder.write("plugstack.conf", good, 0o644);
    chown(folder.path("probe.so"), Some(USER), Some(USER)).unwrap();
    refused("probe.so: it belongs to another user: chown it to root");
    chown(folder.path("probe.so"), Some(0), Some(0)).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    refused("every user can replace what is in");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    cluster.users_ok(&["srun", "-w", "n1", "true"]);
    let states = cluster.ok(&["sinfo", "-h", "-N", "-o", "%t"]);
    assert!(!states.contains("drain") && !states.contains("down"), "{states}");
}
