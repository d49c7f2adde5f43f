//! File systems that only the user who mounted them may use, as sshfs makes.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use super::{Cluster, USER, has};

/// A folder that its user shows at another place; not even root may look there.
struct Mount(PathBuf);

impl Mount {
    /// None: users can't mount here.
    fn new() -> Option<Self> {
        let base = std::env::temp_dir().join(format!("squall-fuse-{}", std::process::id()));
        for name in ["files", "shown"] {
            fs::create_dir_all(base.join(name)).unwrap();
            chown(base.join(name), Some(USER), Some(USER)).unwrap();
        }
        let user = USER.to_string();
        let done = Command::new("setpriv")
            .args(["--reuid", &user, "--regid", &user, "--clear-groups", "bindfs", "--no-allow-other"])
            .args([base.join("files"), base.join("shown")])
            .status();
        let mount = Self(base);
        done.unwrap().success().then_some(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.join("shown")).status());
        drop(fs::remove_dir_all(&self.0));
    }
}

// attack-trial.md L8: the supervisor of batch scripts is root's, and root may not use such a file system even in the
// user's name. A process that has become the user opens the files then.
#[test]
fn l8_output_goes_to_a_file_system_that_only_its_user_may_use() {
    if !rustix::process::getuid().is_root() || !has("bindfs") {
        eprintln!("skipped: wants root and bindfs");
        return;
    }
    // Before the cluster: nodes that share a machine see what was mounted before they began.
    let Some(mount) = Mount::new() else {
        eprintln!("skipped: users can't mount here");
        return;
    };
    let shown = mount.0.join("shown").display().to_string();
    assert!(fs::read_dir(&shown).is_err(), "root may not");
    let cluster = Cluster::start("fuse", "");
    let output = format!("{shown}/batch");
    cluster.users_ok(&["sbatch", "--wait", "--chdir", &shown, "--output", &output, "--wrap", "pwd; echo more >> here"]);
    cluster.users_ok(&["srun", "--chdir", &shown, "--output", &format!("{shown}/step"), "pwd"]);
    for (name, content) in [("batch", &*shown), ("here", "more"), ("step", &*shown)] {
        assert_eq!(fs::read_to_string(mount.0.join("files").join(name)).unwrap(), format!("{content}\n"), "{name}");
    }
}
