//! Attacks on the HTTP server: refused, bounded, and no other client is delayed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use squall_client::{Client, ClientError};
use squall_files::place::Place;
use squall_host::server;
use squall_model::id::JobId;
use squall_model::wire::client::{Answer, AnyRequest, HostRequest, Refusal, Request};
use squall_model::wire::join::{Bearer, Passed};

use crate::rest::http::{Cluster, answer};
use crate::rest::script;

#[test]
fn cve_2023_48022_2025_62593_2026_27482_without_a_valid_token_nothing_is_told() {
    let c = Cluster::start("tokens");
    let token = c.token(None);
    let jobs = "/slurm/v0.0.42/jobs";
    assert_eq!(c.get(&token, jobs).status, 200);
    let short = c.ok(&["scontrol", "token", "lifespan=1"]).trim().replace("SLURM_JWT=", "");
    std::thread::sleep(Duration::from_millis(2100));
    let forged = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'Q' } else { 'A' });
    let none = "eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTksInN1biI6InJvb3QifQ.";
    for bad in ["", "x", &short, &forged, none, &"y".repeat(20_000)] {
        let answer = c.get(bad, jobs);
        assert_eq!(answer.status, 401, "{bad}: {answer:?}");
        assert!(answer.json()["errors"][0]["error_number"].as_u64().is_some(), "{answer:?}");
        assert_eq!(c.get(bad, "/metrics").status, 401);
        assert_eq!(c.get(bad, "/squall/v1/events").status, 401);
    }
    c.ok(&["scontrol", "token", "revoke"]);
    Cluster::until("the token is revoked", || c.get(&token, jobs).status == 401);
    assert_eq!(c.get(&c.token(None), jobs).status, 200);
}

/// Set for the part of a test that runs as another user: the test's folder, and the secret that is shown.
const BOB: &str = "SQUALL_TEST_BOB";

/// Waits for a victim on the configured path of the HTTP server's socket, which is bob's own file in a mount namespace,
/// and asks the controller in the victim's name.
#[test]
#[expect(clippy::print_stdout, reason = "the answers of this process")]
fn bob_listens_where_the_server_should() {
    let Some(told) = std::env::var_os(BOB) else { return };
    let told = told.into_string().unwrap();
    let (dir, secret) = told.split_once('|').unwrap();
    let dir = Path::new(dir);
    let listener = UnixListener::bind(dir.join("http/rest.sock")).unwrap();
    println!("listens");
    let (victim, _) = listener.accept().unwrap();
    let place = Place::at(&dir.join("state")).unwrap();
    let asked = Client::connect_for(&place, ("rest", secret), victim.as_fd()).and_then(|mut c| c.ask(&Request::Caller));
    println!("{}", asked.map_or_else(|e| format!("refused: {e}"), |answer| format!("{answer:?}")));
}

/// attack-trial.md A1: whoever connected to any Unix socket of bob's was bob's to impersonate.
#[test]
fn a1_only_the_http_server_speaks_for_the_peers_of_its_own_sockets() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let c = Cluster::start("impersonate");
    assert!(c.send_here("GET", "/squall/v1/caller", &[], "").body.contains("\"root\""), "the real one works");
    let fake = c.dir.join("fake");
    std::fs::create_dir(&fake).unwrap();
    std::os::unix::fs::chown(&fake, Some(2), Some(2)).unwrap();
    let real = std::fs::read_to_string(c.dir.join("state/run/rest.key")).unwrap_or_default();
    let real = real.lines().next().unwrap_or_default();
    // Bob does not know the server's secret, and can't read it. With it, as a server that was broken into, he still has a
    // socket of the same name only.
    for (uid, secret) in [("2", ""), ("2", "00"), ("2", real)] {
        drop(std::fs::remove_file(fake.join("rest.sock")));
        let mount = format!(
            "mount --bind {} {} && exec setpriv --reuid {uid} --regid {uid} --clear-groups \"$@\"",
            fake.display(),
            c.dir.join("http").display()
        );
        let mut bob = Command::new("unshare")
            .args(["--mount", "sh", "-ec", &mount, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "rest::attacks::bob_listens_where_the_server_should", "--nocapture"])
            .env(BOB, format!("{}|{secret}", c.dir.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(bob.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.by_ref().any(|line| line.ends_with("listens")));
        let victim = UnixStream::connect(fake.join("rest.sock")).unwrap();
        let said: Vec<String> = said.collect();
        drop(victim);
        assert!(bob.wait().unwrap().success());
        assert!(said.iter().any(|line| line.starts_with("refused: ")), "{secret}: {said:?}");
    }
    let mode = std::fs::metadata(c.dir.join("state/run/rest.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // What the server may say of a caller makes no token.
    let listener = UnixListener::bind(c.dir.join("own.sock")).unwrap();
    let place = Place::at(&c.dir.join("state")).unwrap();
    let secret = server::introduce(&place, [listener.as_fd()].into_iter()).unwrap();
    let _caller = UnixStream::connect(c.dir.join("own.sock")).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let ask = |request: &AnyRequest| {
        Client::connect_for(&place, ("rest", secret.as_str()), accepted.as_fd()).and_then(|mut c| c.ask(request))
    };
    assert!(matches!(ask(&Request::Caller.into()), Ok(Answer::Caller { uid: 0, .. })));
    let token = ask(&HostRequest::Token { user: None, lifespan_s: None, link: false }.into());
    assert!(matches!(token, Err(ClientError::Refused(Refusal::BadToken(_)))), "{token:?}");
}

/// Regression test of attacks A4 and B5: who listened on another port got a browser's cookie, and who listened on the
/// server's port a link; both were good for everything, and at the controller's socket.
#[test]
fn b5_links_and_cookies_are_good_with_the_server_and_for_the_browser_that_has_logged_in() {
    let c = Cluster::start("cookie");
    let link = c.ok(&["web"]).trim().rsplit_once("link=").unwrap().1.to_owned();
    let place = Place::at(&c.dir.join("state")).unwrap();
    let directly = |token: &str, request: &AnyRequest| {
        let forged = Passed { secret: "0".repeat(64), from: "uid 0".to_owned() };
        [None, Some(forged)].map(|passed| {
            let bearer = Bearer { token: token.to_owned(), user: None, passed };
            Client::connect_with(&place, "evil", &bearer).and_then(|mut c| c.ask(request)).is_err()
        })
    };
    let exchange = HostRequest::Token { user: None, lifespan_s: None, link: false }.into();
    assert_eq!(directly(&link, &exchange), [true, true], "the server exchanges links, and nobody else");
    let answer = c.get("", &format!("/login?link={link}"));
    let cookie = answer.head.lines().find_map(|line| line.split_once("squall_token=")).unwrap().1;
    let token = cookie.split(';').next().unwrap().to_owned();
    let cookie = format!("squall_token={token}");
    assert_eq!(c.send("GET", "/jobs", &[("Cookie", &cookie)], "").status, 200);
    assert_eq!(
        directly(&token, &Request::Caller.into()),
        [true, true],
        "a cookie is of no use at the controller's socket"
    );
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Another user has got it.
    for header in [format!("Cookie: {cookie}"), format!("X-SLURM-USER-TOKEN: {token}")] {
        let code = format!(
            "import socket; s = socket.create_connection(('127.0.0.1', {})); \
             s.sendall(b'GET /squall/v1/caller HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n{header}\\r\\n\\r\\n'); \
             print(b''.join(iter(lambda: s.recv(65536), b'')).decode())",
            c.port
        );
        let out = Command::new("runuser").args(["-u", "nobody", "--", "python3", "-c", &code]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    }
}

#[test]
fn a_user_can_not_touch_what_is_anothers() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let c = Cluster::start("others");
    let (root, user) = (c.token(None), c.token(Some("nobody")));
    let id = c.post(&root, "/slurm/v0.0.42/job/submit", &script("roots", "sleep 60", &c.dir)).json()["job_id"].clone();
    let path = format!("/slurm/v0.0.42/job/{id}");
    let header = [("X-SLURM-USER-TOKEN", user.as_str())];
    assert_eq!(c.send("DELETE", &path, &header, "").status, 403);
    assert_eq!(c.post(&user, &path, &json!({"priority": 9})).status, 403);
    assert_eq!(c.send("POST", &format!("/squall/v1/job/{id}/hold"), &header, "").status, 403);
    assert_eq!(c.post(&user, "/slurm/v0.0.42/node/n1", &json!({"state": ["DRAIN"]})).status, 403);
    let others = [("X-SLURM-USER-TOKEN", user.as_str()), ("X-SLURM-USER-NAME", "root")];
    assert_eq!(c.send("GET", "/slurm/v0.0.42/jobs", &others, "").status, 401, "not even by naming another");
    let proxied = [("X-SLURM-USER-TOKEN", root.as_str()), ("X-SLURM-USER-NAME", "nobody")];
    assert!(c.send("GET", "/squall/v1/caller", &proxied, "").body.contains("\"nobody\""), "an operator may");
    let own = c.post(&user, "/slurm/v0.0.42/job/submit", &script("own", "id -u > out", &c.dir));
    assert_eq!(own.status, 200, "{own:?}");
    assert!(c.ok(&["squeue", "-h", "-t", "all", "-n", "own", "-o", "%u"]).contains("nobody"));
    // A request by a browser's cookie, as another site's page could cause it.
    let cookie = [("Cookie", format!("squall_token={root}"))];
    let cookie = [(cookie[0].0, cookie[0].1.as_str()), ("Content-Type", "application/json")];
    assert_eq!(c.send("DELETE", &path, &cookie, "").status, 403);
    assert_eq!(
        c.send("POST", "/slurm/v0.0.42/job/submit", &cookie, &script("x", "true", &c.dir).to_string()).status,
        403
    );
    assert_eq!(c.send("GET", &path, &cookie, "").status, 200, "reading is harmless");
}

#[test]
fn only_its_owner_sees_a_jobs_output_and_a_pipe_does_no_harm() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let c = Cluster::start("tail");
    let (root, user) = (c.token(None), c.token(Some("nobody")));
    let submit = |token: &str, output: &Path| {
        let mut body = script("writes", "echo '<b>'secret-$((6 * 7))", &c.dir);
        body["job"]["standard_output"] = json!(output);
        let id = c.post(token, "/slurm/v0.0.42/job/submit", &body).json()["job_id"].to_string();
        Cluster::until("the job has ended", || {
            let job = c.get(token, &format!("/slurm/v0.0.42/job/{id}")).json();
            ["COMPLETED", "FAILED"].iter().any(|state| job["jobs"][0]["job_state"][0] == *state)
        });
        id
    };
    let page = |token: &str, id: &str| {
        let cookie = format!("squall_token={token}");
        c.send("GET", &format!("/job/{id}"), &[("Cookie", &cookie)], "").body
    };
    let output = c.dir.join("out-of-root");
    let id = submit(&root, &output);
    let own = page(&root, &id);
    assert!(own.contains("&lt;b&gt;secret-42") && !own.contains("<b>secret"), "{own}");
    let others = page(&user, &id);
    assert!(others.contains("Only its owner sees") && !others.contains("secret-42"), "{others}");
    // A file that only root may read is not shown to a user that names it as a job's output.
    std::fs::set_permissions(&output, PermissionsExt::from_mode(0o600)).unwrap();
    let shown = page(&user, &submit(&user, &output));
    assert!(!shown.contains("secret-42"), "{shown}");
    // The pipe has no writer: reading it would wait for ever.
    std::fs::remove_file(&output).unwrap();
    assert!(Command::new("mkfifo").arg(&output).status().unwrap().success());
    let begin = Instant::now();
    let pipe = page(&root, &id);
    assert!(pipe.contains("it is no regular file") && begin.elapsed().as_secs() < 3, "{pipe}");
}

#[test]
fn bodies_heads_and_paths_are_bounded() {
    let c = Cluster::start("bounds");
    let token = c.token(None);
    let headers = [("X-SLURM-USER-TOKEN", token.as_str()), ("Content-Type", "application/json")];
    let large = format!("{{\"script\": \"{}\"}}", "x".repeat(10 << 20));
    assert_eq!(c.send("POST", "/slurm/v0.0.42/job/submit", &headers, &large).status, 413);
    assert_eq!(c.send("POST", "/slurm/v0.0.42/job/submit", &headers, "{").status, 400);
    assert_eq!(c.send("POST", "/slurm/v0.0.42/job/submit", &headers, &"[".repeat(100_000)).status, 400);
    assert_eq!(c.send("POST", "/slurm/v0.0.42/job/submit", &headers[..1], "{}").status, 415);
    assert_eq!(c.send("PUT", "/slurm/v0.0.42/jobs", &headers, "").status, 405);
    assert_eq!(c.send("GET", "//slurm//v0.0.42/jobs", &headers, "").status, 200, "as in Slurm, slashes too many");
    for missing in
        ["/slurm/v0.0.39/jobs", "/slurm/v9/jobs", "/slurm/v0.0.42/nosuch", "/nosuch", "/slurm/v0.0.42/../../etc"]
    {
        assert_eq!(c.get(&token, missing).status, 404, "{missing}");
    }
    let many: Vec<(String, String)> = (0..500).map(|n| (format!("X-{n}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(c.send("GET", "/slurm/v0.0.42/jobs", &many, "").status, 431);
    let long = format!("/slurm/v0.0.42/job/{}", "9".repeat(200_000));
    assert!([0, 414, 431, 400].contains(&c.get(&token, &long).status));
    // What a user names can't become a header or another line.
    for path in
        ["/slurm/v0.0.42/node/n1%0d%0aSet-Cookie:%20x=y", "/slurm/v0.0.42/job/1%0d%0aX:%201", "/squall/v1/why/%00"]
    {
        let answer = c.get(&token, path);
        assert!(
            answer.status >= 400 && !answer.head.contains("Set-Cookie") && !answer.head.contains("\nX:"),
            "{answer:?}"
        );
    }
    let nested = json!({"script": "#!/bin/sh\ntrue\n", "job": {"nosuch": {"deep": [1, 2, {"x": null}]}, "environment": ["A=b"]}});
    let answer = c.post(&token, "/slurm/v0.0.42/job/submit", &nested);
    assert!(answer.status == 200 && answer.body.contains("nosuch"), "an unknown field is named: {answer:?}");
}

#[test]
fn slow_and_many_clients_keep_nobody_out() {
    let c = Cluster::start("many");
    let token = c.token(None);
    raise_open_files();
    // Each sends half a head, and then nothing.
    let begin = |stream: &mut TcpStream| stream.write_all(b"GET /slurm/v0.0.42/jobs HTTP/1.1\r\nHost:").is_ok();
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..1500 {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", c.port)) else { break };
        if begin(&mut stream) {
            slow.push(stream);
        }
    }
    assert!(slow.len() >= 1000, "{}", slow.len());
    let before = Instant::now();
    assert_eq!(c.get(&token, "/slurm/v0.0.42/ping").status, 200);
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    // Beyond its limit a user's oldest connections end, and others are served.
    for _ in 0..1500 {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", c.port)) else { break };
        begin(&mut stream);
        slow.push(stream);
    }
    let refused = slow.iter_mut().take(100).filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut reader: &TcpStream = stream;
        let read = reader.read(&mut [0; 16]);
        matches!(read, Ok(0)) || read.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
    });
    assert!(refused.count() > 50, "connections beyond the limit are closed");
    assert_eq!(c.send_here("GET", "/slurm/v0.0.42/ping", &[], "").status, 200);
    drop(slow);
    Cluster::until("the address is served again", || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", c.port)) else { return false };
        let text = format!(
            "GET /slurm/v0.0.42/ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).is_ok() && answer(&mut stream).status == 200
    });
    assert!(c.ok(&["scontrol", "ping"]).contains("UP"));
}

/// Regression test of attack A4: `squall up` said that the dashboard was up when another process had its port.
#[test]
fn a4_up_names_each_part_that_does_not_answer() {
    let c = Cluster::start("parts");
    c.ok(&["down"]);
    let other = std::net::TcpListener::bind(("127.0.0.1", c.port)).unwrap();
    let up = c.squall(&["up"]);
    let said = String::from_utf8_lossy(&up.stdout).into_owned();
    let user = squall_files::users::by_uid(rustix::process::geteuid().as_raw()).unwrap().name;
    let line = format!("dashboard: FAILED: port {} is in use by {} ({user})\n", c.port, std::process::id());
    assert!(up.status.code() == Some(1) && said.contains(&line), "{said}");
    c.ok(&["squeue"]);
    let doctor = c.squall(&["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("FAIL dashboard port"), "{doctor:?}");
    // A root's log-in is given to nobody else.
    let web = c.squall(&["web"]);
    let said = String::from_utf8_lossy(&web.stderr).into_owned();
    assert!(!web.status.success() && web.stdout.is_empty() && said.contains("is in use by"), "{said}");
    drop(other);
    c.ok(&["up"]);
    assert!(c.ok(&["web"]).contains("/login?link="));
    assert!(c.ok(&["doctor"]).contains("ok   dashboard the HTTP server listens at"));
    // A new cluster is asked for a port that is taken: nothing says later that it listens there.
    let new = c.dir.join("new");
    let of_new = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.args(args).env("SQUALL_STATE", &new).output().unwrap()
    };
    let up = of_new(&["up", "--web", &c.port.to_string()]);
    let said = String::from_utf8_lossy(&up.stdout).into_owned();
    assert!(up.status.code() == Some(1) && said.contains("dashboard: FAILED: port"), "{said}");
    assert!(of_new(&["squeue"]).status.success() && of_new(&["up"]).status.success());
    assert!(of_new(&["down"]).status.success());
}

/// Regression test of attack A4: a state folder that is closed to the HTTP server's user.
#[test]
fn a4_up_names_the_folder_that_the_server_cant_enter() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let c = Cluster::start("closed");
    c.ok(&["down"]);
    let mode = |mode| PermissionsExt::from_mode(mode);
    std::fs::set_permissions(c.dir.join("state"), mode(0o700)).unwrap();
    let up = c.squall(&["up"]);
    let said = String::from_utf8_lossy(&up.stdout).into_owned();
    assert!(up.status.code() == Some(1) && said.contains("dashboard: FAILED: the user nobody, "), "{said}");
    c.ok(&["squeue"]);
    std::fs::set_permissions(c.dir.join("state"), mode(0o755)).unwrap();
    c.ok(&["up"]);
}

/// Regression test of attack A5: a user called from several loopback addresses, each counted by itself.
#[test]
fn a5_a_user_on_many_addresses_keeps_no_other_out() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let c = Cluster::start("seats");
    let token = c.token(None);
    // 4 processes, as one may not have enough files; each opens 2,050 connections from an address of its own.
    let code = format!(
        "import socket, resource, sys; h = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; \
         resource.setrlimit(resource.RLIMIT_NOFILE, (h, h)); a = []\n\
         for i in range(2050):\n s = socket.socket(); s.bind((sys.argv[1], 0)); s.connect(('127.0.0.1', {})); a.append(s)\n\
         print('up', flush=True); sys.stdin.read()",
        c.port
    );
    let flood = |n: u8| {
        let address = format!("127.0.0.{n}");
        let mut command = Command::new("runuser");
        command.args(["-u", "nobody", "--", "python3", "-c", &code, &address]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        child
    };
    let floods: Vec<_> = (2..6).map(flood).collect();
    for _ in 0..10 {
        assert_eq!(c.get(&token, "/slurm/v0.0.42/ping").status, 200);
    }
    for mut child in floods {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[test]
fn b10_a_stream_of_events_ends_soon_after_its_token_is_revoked() {
    let c = Cluster::start("revoked");
    let token = c.token(None);
    let mut stream = c.connect();
    let ask = format!("GET /squall/v1/events HTTP/1.1\r\nHost: x\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).unwrap();
    c.ok(&["scontrol", "token", "revoke"]);
    let revoked = Instant::now();
    // The last chunk of the answer has no bytes.
    let mut rest = Vec::new();
    while !rest.ends_with(b"0\r\n\r\n") {
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(length @ 1..) => rest.extend_from_slice(&piece[..length]),
            _ => break,
        }
    }
    assert!(revoked.elapsed() < Duration::from_secs(15), "{:?}", revoked.elapsed());
}

fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[test]
fn the_server_has_no_rights_and_may_die_at_any_time() {
    let c = Cluster::start("dies");
    let token = c.token(None);
    // The server gives up its rights before it answers, and after it can be connected to.
    assert_eq!(c.get(&token, "/slurm/v0.0.42/ping").status, 200);
    let pid = std::fs::read_to_string(c.dir.join("state/run/rest.pid")).unwrap().trim().to_owned();
    if rustix::process::geteuid().is_root() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let uid = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert!(!uid.split_whitespace().skip(1).any(|uid| uid == "0"), "{uid}");
        let caps = status.lines().find(|line| line.starts_with("CapEff:")).unwrap();
        assert!(caps.ends_with("0000000000000000"), "{caps}");
    }
    let id =
        c.post(&token, "/slurm/v0.0.42/job/submit", &script("goes-on", "sleep 1; exit 4", &c.dir)).json()["job_id"]
            .clone();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    Cluster::until("the server is dead", || TcpStream::connect(("127.0.0.1", c.port)).is_err());
    c.ok(&["up"]);
    Cluster::until("the job has ended", || c.get(&token, &format!("/slurm/v0.0.42/job/{id}")).body.contains("FAILED"));
    c.ok(&["down"]);
    assert!(TcpStream::connect(("127.0.0.1", c.port)).is_err(), "down ends the server too");
}

#[test]
fn a_short_body_that_is_much_work_delays_nobody() {
    let c = Cluster::start("work");
    let token = c.token(None);
    let begin = Instant::now();
    let mut body = script("wide", "true", &c.dir);
    body["job"]["required_nodes"] = json!(["n[0-1048575]"]);
    let wide = std::thread::scope(|scope| {
        let wide = scope.spawn(|| c.post(&token, "/slurm/v0.0.42/job/submit", &body));
        for _ in 0..10 {
            let asked = Instant::now();
            assert_eq!(c.get("", "/login").status, 200);
            assert!(asked.elapsed() < Duration::from_secs(5), "others wait {:?}", asked.elapsed());
        }
        wide.join().unwrap()
    });
    assert!(wide.status >= 400 && begin.elapsed() < Duration::from_mins(1), "{:?} {wide:?}", begin.elapsed());
    let many = format!("[{}0]", "{\"\":0},".repeat(1_000_000));
    let headers = [("X-SLURM-USER-TOKEN", token.as_str()), ("Content-Type", "application/json")];
    assert_eq!(c.send("POST", "/slurm/v0.0.42/job/submit", &headers, &many).status, 413);
}

#[test]
fn whoever_has_a_token_can_not_make_it_last_and_a_stranger_can_not_send_much() {
    let c = Cluster::start("last");
    let token = c.token(None);
    assert_eq!(c.get(&token, "/squall/v1/caller").status, 200);
    let renewed = c.get("", &format!("/login?link={token}"));
    assert!(renewed.status == 401 && !renewed.head.contains("set-cookie"), "only links are exchanged: {renewed:?}");
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let answer = c.send("POST", "/login", &form, &format!("token={}", "a".repeat(6 << 20)));
    assert_eq!(answer.status, 413);
    assert_eq!(c.send("POST", "/login", &form, &format!("token={token}")).status, 303);
}

#[test]
fn others_see_of_a_past_job_what_the_site_allows_and_never_its_output() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (test, lines, is_shown) in [("shown", "", true), ("hidden", "private_data = \"jobs,usage\"\n", false)] {
        let c = Cluster::start_with(test, &format!("min_job_age_s = 1\n{lines}"));
        let (root, user) = (c.token(None), c.token(Some("nobody")));
        let wrap = "echo secret-$((6 * 7)); exit 3";
        let line = ["sbatch", "--parsable", "-J", "fitting", "-o", "o-%A-%a", "--array=1-2", "--wrap", wrap];
        let id = c.ok(&line).trim().to_owned();
        Cluster::until("its tasks have failed", || {
            c.ok(&["sacct", "-nX", "-j", &id, "-o", "state"]).matches("FAILED").count() == 2
        });
        c.until_forgotten(&id);
        let task = format!("/job/{id}_1");
        let own = c.get(&root, &task).body;
        assert!(own.contains("secret-42") && own.contains("exit code 3"), "{own}");
        for path in [&task, &format!("/job/{id}"), &format!("/squall/v1/report/{id}")] {
            let seen = c.get(&user, path);
            assert_eq!(seen.status, if is_shown { 200 } else { 404 }, "{path}: {}", seen.body);
            assert_eq!(seen.body.contains("exit code 3"), is_shown, "{path}: {}", seen.body);
            assert!(!seen.body.contains("secret-42"), "{path}: {}", seen.body);
        }
        for path in ["/past?user=*", "/past?user=root&state=bad"] {
            assert_eq!(c.get(&user, path).body.contains("fitting"), is_shown, "{path}");
        }
        assert!(!c.get(&user, "/").body.contains("fitting"), "the first screen has the viewer's own jobs");
        // The controller itself does not give it.
        let place = Place::at(&c.dir.join("state")).unwrap();
        let last = c.ok(&["sacct", "-nX", "-j", &format!("{id}_1"), "-o", "jobidraw"]).trim().parse().unwrap();
        let tail = |token: &str| {
            let bearer = Bearer { token: token.to_owned(), user: None, passed: None };
            let request: AnyRequest = HostRequest::Tail { job: JobId(last), past: true, errors: false }.into();
            Client::connect_with(&place, "test", &bearer).and_then(|mut c| c.ask(&request))
        };
        let Ok(Answer::Tail(end)) = tail(&root) else { panic!("{:?}", tail(&root)) };
        assert_eq!(&*end.bytes, b"secret-42\n");
        assert!(matches!(tail(&user), Err(ClientError::Refused(Refusal::InvalidJobId))), "{:?}", tail(&user));
    }
}

#[test]
fn addresses_of_pages_are_anybodys_words() {
    let c = Cluster::start("addresses");
    let token = c.token(None);
    for path in [
        "/job/0",
        "/job/99999999999999999999",
        "/job/1_[0-4000000000]",
        "/job/1_[0-4000000000:1]",
        "/job/%00",
        "/job/..%2f..%2fetc%2fpasswd",
        "/job/1+4000000000",
        "/job/1_-1",
        "/squall/v1/report/1_[0-4000000000]",
        "/squall/v1/report/x",
    ] {
        let seen = c.get(&token, path);
        assert!([400, 404].contains(&seen.status), "{path}: {seen:?}");
    }
    for path in [
        "/past?from=9999-99-99",
        "/past?state=%27--",
        "/past?user=nobody-at-all",
        "/past?page=18446744073709551615",
        "/past?sort=%3Cscript%3E",
    ] {
        let seen = c.get(&token, path);
        assert!(seen.status == 200 && !seen.body.contains("<script>"), "{path}: {seen:?}");
    }
}
