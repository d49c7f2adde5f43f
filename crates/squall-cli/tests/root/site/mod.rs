//! What a site's nodes do for jobs beside running them, with the programs that sites use. Where a program is not
//! installed its test says so and passes.

mod containers;
mod cores;
mod devices;
mod fuse;
mod hostile;
mod mail;
mod pam;
mod plugins;
mod private;
mod web;
mod x11;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything that a test waits for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A user without rights: `daemon`. Root's cluster runs this user's jobs.
const USER: u32 = 1;

/// A cluster in a folder of its own, ended and removed at the end.
struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// Starts a cluster of two nodes with this configuration.
    fn start(test: &str, config: &str) -> Self {
        Self::start_in(&std::env::temp_dir(), test, config)
    }

    /// The same, with its folder in this one.
    fn start_in(base: &Path, test: &str, config: &str) -> Self {
        let folder = base.join(format!("squall-site-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("shared")).unwrap();
        fs::set_permissions(folder.join("shared"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        let cluster = Self { folder };
        let nodes = "[[nodes]]\nname = \"n[1-2]\"\ncpus = 4\nmemory_mb = 1024\nforce = true\n";
        cluster.up(&format!("{config}\n{nodes}"));
        cluster
    }

    /// Starts the cluster's daemons with this configuration.
    fn up(&self, config: &str) {
        fs::write(self.path("squall.toml"), format!("kill_wait_s = 2\n{config}")).unwrap();
        self.ok(&["up", "--config", &self.path("squall.toml")]);
    }

    /// A path in the test's folder.
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A path in the folder where all users may write, which is the working directory of commands.
    fn shared(&self, name: &str) -> String {
        self.path(&format!("shared/{name}"))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join("shared").join(name)).unwrap_or_default()
    }

    fn command(&self, args: &[&str]) -> Command {
        self.prepared(Command::new(env!("CARGO_BIN_EXE_squall")), args)
    }

    /// A command of a user without rights, or of the user that runs the test if only that one can be.
    fn users(&self, args: &[&str]) -> Command {
        if !rustix::process::getuid().is_root() {
            return self.command(args);
        }
        let mut command = Command::new("setpriv");
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", env!("CARGO_BIN_EXE_squall")]);
        self.prepared(command, args)
    }

    fn prepared(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("SQUALL_STATE", self.path("state")).current_dir(self.folder.join("shared")).stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed; returns its output.
    fn ok(&self, args: &[&str]) -> String {
        done(args, &self.command(args).output().unwrap())
    }

    /// The same as a user without rights.
    fn users_ok(&self, args: &[&str]) -> String {
        done(args, &self.users(args).output().unwrap())
    }

    /// Waits until something holds.
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "in vain: {what}\n{}", self.ok(&["squeue"]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.command(&["down"]).output());
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn done(args: &[&str], out: &Output) -> String {
    assert!(out.status.success(), "{args:?}: {}", text(out));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Whether a program is installed; says so if not.
fn has(program: &str) -> bool {
    let has =
        ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"].iter().any(|dir| Path::new(dir).join(program).exists());
    if !has {
        eprintln!("skipped: {program} is not installed");
    }
    has
}
