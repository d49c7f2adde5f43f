//! Connects to PostgreSQL, on a thread of its own: a server that does not answer delays nothing else.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use squall_model::config::Server;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::secure::Secure;
use super::server::{Session, described};
use super::{away, schema};

/// Longest time that a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for which whoever asks waits for a connection: one that works is there by then.
const WAIT: Duration = Duration::from_secs(1);
/// Pause after the first attempt that failed; it doubles up to the second one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// After this time a connection on which nothing comes back is dead.
const SILENCE: Duration = Duration::from_secs(15);
/// Most bytes of a file with passwords.
const PASSWORDS_MAX: u64 = 1 << 20;

/// What each session begins with. An aborted transaction of a machine that is gone must not hold locks for long.
const BEGIN: &str = "SET search_path = squall_rows; SET client_min_messages = warning; SET work_mem = '64MB';
    SET idle_in_transaction_session_timeout = '5min'; SET default_transaction_isolation = 'read committed';
    SET standard_conforming_strings = on; SET lock_timeout = '60s'";

/// Makes sessions with one server.
pub(in crate::accounts) struct Dial {
    server: Server,
    /// Number of the journal that its rows follow.
    cluster: u128,
    attempt: Option<Receiver<Result<Session, String>>>,
    /// Before this time no other attempt is made.
    next: Option<Instant>,
    pause: Duration,
    why: String,
}

impl Dial {
    /// Prepares to connect.
    pub(in crate::accounts) fn to(server: Server, cluster: u128) -> Self {
        Self { server, cluster, attempt: None, next: None, pause: PAUSE.0, why: String::new() }
    }

    /// Returns a session, within [`WAIT`]. Err: why there is none now.
    pub(in crate::accounts) fn session(&mut self) -> rusqlite::Result<Session> {
        let (attempt, wait) = match &self.attempt {
            Some(attempt) => (attempt, Duration::ZERO),
            None if self.next.is_some_and(|next| Instant::now() < next) => return Err(away(&self.why)),
            none => {
                let (done, attempt) = sync_channel(1);
                let (server, cluster) = (self.server.clone(), self.cluster);
                let begun = std::thread::Builder::new().name("accounting-dial".into()).spawn(move || {
                    // Whoever asked may be gone.
                    drop(done.send(connect(&server, Some(cluster))));
                });
                begun.map_err(away)?;
                debug_assert!(none.is_none(), "one attempt at a time");
                (&*self.attempt.insert(attempt), WAIT)
            }
        };
        let done = match wait {
            Duration::ZERO => attempt.try_recv().map_err(|e| e == TryRecvError::Empty),
            wait => attempt.recv_timeout(wait).map_err(|e| e == RecvTimeoutError::Timeout),
        };
        let why = match done {
            Err(true) => {
                let unknown = self.why.is_empty();
                return Err(away(if unknown { self.no_answer() } else { self.why.clone() }));
            }
            Ok(Ok(session)) => {
                self.attempt = None;
                return Ok(session);
            }
            Ok(Err(why)) => why,
            Err(false) => self.no_answer(),
        };
        self.attempt = None;
        self.failed(&why);
        Err(away(&self.why))
    }

    /// Notes why there is no session, so that the next attempt is made after a pause.
    pub(in crate::accounts) fn failed(&mut self, why: &str) {
        self.next = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
        why.clone_into(&mut self.why);
    }

    /// Notes that a session was lost: the next attempt is made at once.
    pub(in crate::accounts) fn lost(&mut self, why: &str) {
        self.next = None;
        why.clone_into(&mut self.why);
    }

    /// Notes that a session does its work.
    pub(in crate::accounts) fn went_well(&mut self) {
        (self.next, self.pause) = (None, PAUSE.0);
        self.why.clear();
    }

    fn no_answer(&self) -> String {
        format!("PostgreSQL at {} does not answer", self.server.place())
    }
}

/// Connects, and brings the tables up to date. `cluster`: the number of the journal that the rows follow; None: that of any.
/// Err: what is wrong, where, and what to do.
pub(in crate::accounts) fn connect(server: &Server, cluster: Option<u128>) -> Result<Session, String> {
    let place = server.place();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| format!("{place}: {e}"))?;
    let client = opened(&runtime, server)?;
    let session = Session::new(runtime, client, format!("PostgreSQL at {place}"));
    let text = |e: rusqlite::Error| format!("the database `{}`: {e}", server.database);
    session.batch(BEGIN).map_err(text)?;
    schema::prepare(&session, server)?;
    if let Some(cluster) = cluster {
        schema::belong(&session, server, cluster)?;
    }
    Ok(session)
}

fn opened(runtime: &Runtime, server: &Server) -> Result<Client, String> {
    let mut config = Config::new();
    config
        .host(&server.host)
        .port(server.port)
        .user(&server.user)
        .dbname(&server.database)
        .application_name("squall")
        .connect_timeout(CONNECT)
        .keepalives_idle(SILENCE)
        .keepalives_interval(Duration::from_secs(5))
        .keepalives_retries(3)
        .tcp_user_timeout(SILENCE);
    if let Some(password) = password(server)? {
        config.password(password);
    }
    let failed = |e: Error| explained(&e, server);
    runtime.block_on(async {
        let late = |_| format!("PostgreSQL at {} does not answer", server.place());
        // The mode says whether to do without TLS, never whether to check: that is done always.
        if server.tls {
            config.ssl_mode(tokio_postgres::config::SslMode::Require);
            let secure = Secure::trusting(&server.root_certificate)?;
            let made = tokio::time::timeout(CONNECT, config.connect(secure)).await.map_err(late)?;
            let (client, connection) = made.map_err(failed)?;
            runtime.spawn(connection);
            Ok(client)
        } else {
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
            let made = tokio::time::timeout(CONNECT, config.connect(NoTls)).await.map_err(late)?;
            let (client, connection) = made.map_err(failed)?;
            runtime.spawn(connection);
            Ok(client)
        }
    })
}

/// Says why no connection was made, and what to do.
fn explained(error: &Error, server: &Server) -> String {
    let Server { user, database, .. } = server;
    let place = server.place();
    match error.code() {
        Some(&SqlState::INVALID_CATALOG_NAME) => {
            format!("PostgreSQL at {place} has no database `{database}`: make it with `createdb -O {user} {database}`")
        }
        Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION | &SqlState::INVALID_PASSWORD) => format!(
            "PostgreSQL at {place} refuses the role `{user}` ({}): make it with `createuser {user}`, let it in by pg_hba.conf, \
             and name its password with ?passfile=FILE in [accounting] store",
            described(error)
        ),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => format!(
            "the role `{user}` may not use the database `{database}` of PostgreSQL at {place}: \
             `ALTER DATABASE {database} OWNER TO {user}`"
        ),
        _ => format!("PostgreSQL at {place} can't be reached ({})", described(error)),
    }
}

/// Returns the password from the file with passwords. None: there is no such file, or no line in it for this server.
fn password(server: &Server) -> Result<Option<String>, String> {
    let named = Some(server.passfile.clone()).filter(|path| !path.is_empty());
    let Some(path) = named.or_else(|| std::env::var("PGPASSFILE").ok()).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let wrong = |e: &dyn std::fmt::Display| format!("[accounting] store: passfile {path}: {e}");
    let file = File::open(&path).map_err(|e| wrong(&e))?;
    let meta = file.metadata().map_err(|e| wrong(&e))?;
    if !meta.is_file() || meta.mode() & 0o077 != 0 {
        return Err(wrong(&format!("others may read it: `chmod 600 {path}`")));
    }
    let mut text = String::new();
    file.take(PASSWORDS_MAX).read_to_string(&mut text).map_err(|e| wrong(&e))?;
    Ok(text.lines().find_map(|line| password_in(line, server)))
}

/// Returns the password of a line `HOST:PORT:DATABASE:USER:PASSWORD`, in which `*` stands for all. None: it is another's.
fn password_in(line: &str, server: &Server) -> Option<String> {
    let (mut fields, mut escaped) = (vec![String::new()], false);
    for c in line.trim_end_matches('\r').chars() {
        match c {
            '\\' if !escaped => escaped = true,
            // Behind the fourth, a colon is part of the password.
            ':' if !escaped && fields.len() < 5 => fields.push(String::new()),
            c => {
                escaped = false;
                fields.last_mut()?.push(c);
            }
        }
    }
    let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
    let own = if server.is_socket() { "localhost" } else { &server.host };
    let is = |field: &str, value: &str| field == "*" || field == value;
    let here = is(&host, own) || host == server.host;
    let fits =
        here && is(&port, &server.port.to_string()) && is(&database, &server.database) && is(&user, &server.user);
    (fits && !line.starts_with('#')).then_some(password)
}

#[cfg(test)]
mod tests {
    use squall_model::config::Server;

    use super::password_in;

    #[test]
    fn a_line_of_the_file_with_passwords_is_found_as_psql_does() {
        let server = Server::parse("postgresql://ann@db:5433/squall").unwrap();
        let found = |line| password_in(line, &server);
        assert_eq!(found("db:5433:squall:ann:pa:ss\\\\w").as_deref(), Some("pa:ss\\w"));
        assert_eq!(found("*:*:*:ann:x").as_deref(), Some("x"));
        for other in ["db:5432:squall:ann:x", "db:5433:squall:bob:x", "#db:5433:squall:ann:x", "db:5433:squall", ""] {
            assert_eq!(found(other), None, "{other}");
        }
        let socket = Server::parse("postgresql://ann@/squall?host=/tmp").unwrap();
        assert_eq!(password_in("localhost:5432:squall:ann:x", &socket).as_deref(), Some("x"));
    }
}
