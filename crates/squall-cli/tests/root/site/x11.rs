//! X clients of tasks on the user's display.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::{Cluster, has, text};

/// A display that wants a cookie, ended when dropped.
struct Server {
    child: Child,
    name: String,
    authority: String,
}

impl Server {
    /// Starts a display for a test. None: there is no Xvfb, or no xdpyinfo to try it.
    fn start(cluster: &Cluster) -> Option<Self> {
        if !["Xvfb", "xauth", "xdpyinfo"].iter().all(|program| has(program)) {
            return None;
        }
        let authority = cluster.shared("real-authority");
        let cookie = "00112233445566778899aabbccddeeff";
        // The server chooses its number, so the cookie is written for it first under another, and then under its own.
        let add = |display: &str| {
            let added = Command::new("xauth")
                .args(["-f", &authority, "add", display, ".", cookie])
                .stderr(Stdio::null())
                .status();
            assert!(added.unwrap().success());
        };
        add(":99");
        let mut child = Command::new("Xvfb")
            .args(["-displayfd", "1", "-auth", &authority, "-screen", "0", "640x480x8", "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut number = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let name = format!(":{}", number.trim());
        add(&name);
        fs::set_permissions(&authority, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        Some(Self { child, name, authority })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn x_clients_of_tasks_reach_the_display_of_srun_and_others_do_not() {
    let cluster = Cluster::start("x11", "");
    let Some(server) = Server::start(&cluster) else { return };
    let run = |args: &[&str]| {
        let mut command = cluster.users(args);
        command.env("DISPLAY", &server.name).env("XAUTHORITY", &server.authority).output().unwrap()
    };
    let ask = "echo $DISPLAY; stat -c %a $XAUTHORITY; xdpyinfo | grep dimensions";
    let out = run(&["srun", "--x11", "-N2", "-l", "sh", "-c", ask]);
    let said = text(&out);
    for rank in 0..2 {
        assert!(said.contains(&format!("{rank}: localhost:")), "{said}");
        assert!(said.contains(&format!("{rank}: 600\n")), "{said}");
        assert!(
            said.lines().any(|line| line.starts_with(&format!("{rank}:")) && line.contains("640x480 pixels")),
            "{said}"
        );
    }
    // A client without the step's cookie is refused, and the display's cookie is on no node.
    let out = run(&["srun", "--x11", "sh", "-c", "xauth list; XAUTHORITY=/dev/null xdpyinfo"]);
    assert!(!out.status.success() && !text(&out).contains("00112233"), "{}", text(&out));
    // Only the nodes that are named.
    let out = run(&["srun", "--x11=last", "-N2", "-l", "sh", "-c", "echo [$XAUTHORITY]"]);
    let set = |rank: u32| {
        text(&out).lines().any(|line| line.starts_with(&format!("{rank}: ")) && line.contains("/own/xauthority]"))
    };
    assert!(!set(0) && set(1), "{}", text(&out));
    // In an allocation of salloc --x11, each srun.
    let squall = env!("CARGO_BIN_EXE_squall");
    let out = run(&["salloc", "--x11", squall, "srun", "xdpyinfo"]);
    assert!(text(&out).contains("640x480 pixels"), "{}", text(&out));
    let out = cluster.users(&["srun", "--x11", "true"]).env("DISPLAY", ":4711").output().unwrap();
    assert!(text(&out).contains("cannot setup x11 forwarding: DISPLAY=:4711"), "{}", text(&out));
}
