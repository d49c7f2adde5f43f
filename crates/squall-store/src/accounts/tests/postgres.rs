//! A server of PostgreSQL for tests: in a folder of its own, reached by a socket there, and by nobody else.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A user without rights: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Postgres {
    dir: PathBuf,
    programs: PathBuf,
    /// Settings besides the usual ones.
    settings: Vec<String>,
    port: u16,
    server: Child,
}

impl Postgres {
    /// Starts a server. None: it is not installed here, as is said.
    pub(crate) fn start() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // The path of a socket is short.
        let dir = PathBuf::from(format!("/tmp/squall-pg-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o755).create(&dir).unwrap();
        if is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = lowly(&programs.join("initdb"))
            .args([
                "-U",
                "squall",
                "--auth-local=trust",
                "--auth-host=scram-sha-256",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
                "-D",
            ])
            .arg(dir.join("data"))
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb");
        let server = begun(&programs, &dir, &[]);
        let this = Self { dir, programs, settings: Vec::new(), port: 5432, server };
        this.wait();
        Some(this)
    }

    /// Has it listen on this machine, too, with TLS and passwords. Returns the port and the certificate of `localhost`. None:
    /// openssl is not installed, as is said.
    pub(crate) fn listen(&mut self) -> Option<(u16, PathBuf)> {
        let (certificate, key) = (self.dir.join("server.crt"), self.dir.join("server.key"));
        let made = lowly(Path::new("openssl"))
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("skipped: openssl is not installed");
            return None;
        }
        self.kill();
        self.port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        self.settings = vec![
            "listen_addresses=127.0.0.1".into(),
            format!("port={}", self.port),
            "ssl=on".into(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        self.start_again();
        Some((self.port, certificate))
    }

    /// Returns the folder of its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.dir
    }

    /// Makes a database.
    pub(crate) fn make(&self, database: &str) {
        self.sql("postgres", &format!("CREATE DATABASE {database} OWNER squall"));
    }

    /// Returns the address of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgresql://squall@/{database}?host={}", self.dir.display())
    }

    /// Returns what a statement finds, as `psql -At` prints it.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let out = self.psql(database, sql).output().unwrap();
        assert!(out.status.success(), "{sql}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-p", &self.port.to_string()]);
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "squall", "-d", database, "-c", sql])
            .arg("-h")
            .arg(&self.dir);
        psql
    }

    fn wait(&self) {
        let begin = Instant::now();
        while !self.psql("postgres", "SELECT 1").stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
        {
            assert!(begin.elapsed() < PATIENCE, "PostgreSQL does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts it again after [`Self::kill`].
    pub(crate) fn start_again(&mut self) {
        let begin = Instant::now();
        // The processes of the killed one notice it in a moment, and keep this one from starting until then.
        loop {
            self.server = begun(&self.programs, &self.dir, &self.settings);
            std::thread::sleep(Duration::from_millis(300));
            if self.server.try_wait().unwrap().is_none() {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "PostgreSQL does not start again");
        }
        self.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // With the server its other processes end.
        drop(self.server.kill());
        drop(self.server.wait());
        drop(fs::remove_dir_all(&self.dir));
    }
}

fn begun(programs: &Path, dir: &Path, settings: &[String]) -> Child {
    lowly(&programs.join("postgres"))
        .arg("-D")
        .arg(dir.join("data"))
        .arg("-k")
        .arg(dir)
        .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"])
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns a command that runs without root's rights.
fn lowly(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/tmp");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Returns the folder with the newest version's programs.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|version| version.path().join("bin")).collect();
    found.retain(|folder| folder.join("initdb").exists() && folder.join("psql").exists());
    found.sort_by_key(|folder| folder.parent()?.file_name()?.to_str()?.parse::<u32>().ok());
    found.pop()
}
