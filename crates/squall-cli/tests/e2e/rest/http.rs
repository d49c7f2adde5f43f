//! A cluster with an HTTP server, and a client that sends what it is told to.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for anything that a test waits for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cluster with an HTTP server on a port and a Unix socket, ended and removed at the end.
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
}

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Cluster {
    pub(crate) fn start(test: &str) -> Self {
        Self::start_with(test, "")
    }

    /// Starts a cluster with these lines in its configuration.
    pub(crate) fn start_with(test: &str, lines: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("squall-rest-{}-{test}", std::process::id()));
        let run = dir.join("http");
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&run).unwrap();
        // Free now; if another process takes it in between, the test fails and says so.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { dir, port };
        let text = format!(
            "kill_wait_s = 1\n{lines}[[nodes]]\nname = \"n[1-2]\"\ncpus = 2\nforce = true\n[rest]\nlisten = \"127.0.0.1:{port},unix:{}\"\n",
            cluster.socket().display()
        );
        let config = cluster.dir.join("squall.toml");
        std::fs::write(&config, text).unwrap();
        let said = cluster.ok(&["up", "--config", config.to_str().unwrap()]);
        assert!(said.contains(&format!("http://127.0.0.1:{port}")), "{said}");
        cluster
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("http/rest.sock")
    }

    pub(crate) fn squall(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_squall"))
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("SQUALL_STATE", self.dir.join("state"))
            .current_dir(&self.dir)
            .output()
            .unwrap()
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let out = self.squall(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(out.status.success(), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
        text(&out.stdout)
    }

    /// Returns a token of the user who runs the test, or of `user`.
    pub(crate) fn token(&self, user: Option<&str>) -> String {
        let name = user.map(|user| format!("username={user}"));
        let args: Vec<&str> = ["scontrol", "token"].into_iter().chain(name.as_deref()).collect();
        self.ok(&args).trim().strip_prefix("SLURM_JWT=").unwrap().to_owned()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request, and returns the answer.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request(method, path, headers, body).as_bytes()).unwrap();
        answer(&mut stream)
    }

    /// The same over the Unix socket.
    pub(crate) fn send_here(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(request(method, path, headers, body).as_bytes()).unwrap();
        answer(&mut stream)
    }

    pub(crate) fn get(&self, token: &str, path: &str) -> Answer {
        self.send("GET", path, &[("X-SLURM-USER-TOKEN", token)], "")
    }

    pub(crate) fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        let headers = [("X-SLURM-USER-TOKEN", token), ("Content-Type", "application/json")];
        self.send("POST", path, &headers, &body.to_string())
    }

    /// Waits until the controller has forgotten a job. It forgets none in the first minute after its start.
    pub(crate) fn until_forgotten(&self, job: &str) {
        let (token, path) = (self.token(None), format!("/slurm/v0.0.42/job/{job}"));
        let begin = Instant::now();
        while self.get(&token, &path).status != 404 {
            assert!(begin.elapsed() < 3 * PATIENCE, "job {job} is not forgotten");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Waits until something holds.
    pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.squall(&["down"]));
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: squall\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

/// Reads an answer: as many bytes as it says, or up to the end of the connection.
pub(crate) fn answer(stream: &mut impl Read) -> Answer {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 65536]);
    let is_whole = |bytes: &[u8]| {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
        length.is_some_and(|length: usize| bytes.len() >= end + 4 + length)
    };
    // A server that has answered may reset the connection if it has not read the whole request.
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..length]);
        if is_whole(&bytes) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    Answer { status, head: head.to_owned(), body: if chunked { unchunked(body) } else { body.to_owned() } }
}

fn unchunked(mut body: &str) -> String {
    let mut all = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 || rest.len() < length {
            break;
        }
        all.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    all
}
