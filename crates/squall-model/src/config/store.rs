//! The database in PostgreSQL that keeps the records of accounting.

/// How to reach a database in PostgreSQL. It has no password, as the configuration is in the journal and on the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Name or address of its machine; a path that begins with `/` is the folder of its socket.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Role as which Squall logs in.
    pub user: String,
    /// Name of the database.
    pub database: String,
    /// File with passwords, in the form of `~/.pgpass`. Empty: the one of `PGPASSFILE`, or none.
    pub passfile: String,
    /// Whether the connection is encrypted, and the server's certificate checked.
    pub tls: bool,
    /// File with certificates of authorities (PEM) that vouch for the server. Empty: those of the system.
    pub root_certificate: String,
}

impl Server {
    const PORT: u16 = 5432;

    /// Reads an address such as `postgresql://squall@db.example.org:5432/squall?passfile=/etc/squall/pgpass`. After `?` may
    /// stand `host` (the folder of a socket), `port`, `passfile`, `sslmode` (`disable`, `require` or `verify-full`) and
    /// `sslrootcert`. A server on another machine is spoken to by TLS, unless `sslmode=disable` says otherwise.
    pub fn parse(url: &str) -> Result<Self, String> {
        const FORM: &str = "use postgresql://USER@HOST/DATABASE, or postgresql://USER@/DATABASE?host=/run/postgresql";
        let rest = url.strip_prefix("postgresql://").or_else(|| url.strip_prefix("postgres://"));
        // Nothing of the text is repeated: it may have a password.
        let rest = rest.ok_or_else(|| format!("it is no address in PostgreSQL: {FORM}"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = rest.split_once('/').ok_or_else(|| format!("it names no database: {FORM}"))?;
        let (user, place) = place.rsplit_once('@').ok_or_else(|| format!("it names no user: {FORM}"))?;
        if user.contains(':') {
            return Err(NO_PASSWORD.to_owned());
        }
        let (host, port) = split_port(place)?;
        let mut found =
            Self { host: decoded(host)?, port, user: decoded(user)?, database: decoded(database)?, ..Self::default() };
        let mode = found.take(query)?;
        if found.user.is_empty() || found.database.is_empty() || found.host.is_empty() {
            return Err(format!("it lacks a user, a host or a database: {FORM}"));
        }
        if found.host.contains(',') {
            return Err(
                "it names several servers: name one, or an address that leads to the one that writes".to_owned()
            );
        }
        found.tls = match mode.as_deref() {
            Some("disable") => false,
            Some("require" | "verify-full") if found.is_socket() => {
                return Err("sslmode: there is no TLS on a socket of this machine".to_owned());
            }
            Some("require" | "verify-full") => true,
            None => !found.is_socket() && !["localhost", "127.0.0.1", "::1"].contains(&found.host.as_str()),
            Some(other) => return Err(format!("sslmode={other}: use disable, require or verify-full")),
        };
        Ok(found)
    }

    /// Takes over what stands after `?`, and returns the mode of TLS.
    fn take(&mut self, query: &str) -> Result<Option<String>, String> {
        let mut mode = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or("after `?` stand parts such as passfile=/etc/squall/pgpass")?;
            let value = decoded(value)?;
            match name {
                "host" => self.host = value,
                "port" => self.port = port(&value)?,
                "passfile" => self.passfile = value,
                "sslmode" => mode = Some(value),
                "sslrootcert" => self.root_certificate = value,
                "password" => return Err(NO_PASSWORD.to_owned()),
                _ => return Err(format!("`{name}`: use host, port, passfile, sslmode or sslrootcert")),
            }
        }
        for (name, path) in [("passfile", &self.passfile), ("sslrootcert", &self.root_certificate)] {
            if !path.is_empty() && !path.starts_with('/') {
                return Err(format!("{name}: `{path}` is no absolute path"));
            }
        }
        Ok(mode)
    }

    /// Returns whether the server is reached by a socket of this machine.
    pub fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Returns where the server is, for people.
    pub fn place(&self) -> String {
        let Self { host, port, .. } = self;
        if self.is_socket() { format!("{host}/.s.PGSQL.{port}") } else { format!("{host}:{port}") }
    }
}

const NO_PASSWORD: &str = "a password has no place here, as the configuration is shown and sent to nodes: put a line \
    HOST:PORT:DATABASE:USER:PASSWORD into a file of mode 0600, and name it with ?passfile=/etc/squall/pgpass";

fn split_port(place: &str) -> Result<(&str, u16), String> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the address of the server lacks a `]`")?;
        return Ok((host, rest.strip_prefix(':').map_or(Ok(Server::PORT), port)?));
    }
    match place.rsplit_once(':') {
        Some((host, number)) => Ok((host, port(number)?)),
        None => Ok((place, Server::PORT)),
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "the port is no number from 1 to 65535".to_owned())
}

/// Replaces `%2F` and the like.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "after `%` stand two hexadecimal digits".to_owned();
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(wrong);
                ((digit(*high)? * 16 + digit(*low)?) as u8, after)
            }
            (b'%', _) => return Err(wrong()),
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains(char::is_control))
        .ok_or_else(|| "it is no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::Server;
    use crate::config::Config;

    fn parsed(url: &str) -> Server {
        Server::parse(url).expect("it is an address")
    }

    #[test]
    fn an_address_names_role_machine_and_database() {
        let server = parsed("postgresql://squall@db.example.org/records?passfile=/etc/squall/pgpass");
        let expected = Server {
            host: "db.example.org".into(),
            port: 5432,
            user: "squall".into(),
            database: "records".into(),
            passfile: "/etc/squall/pgpass".into(),
            tls: true,
            root_certificate: String::new(),
        };
        assert_eq!(server, expected);
        assert_eq!(server.place(), "db.example.org:5432");
        let socket = parsed("postgresql://squall@/squall?host=/run/postgresql&port=5433");
        assert_eq!((socket.place().as_str(), socket.tls), ("/run/postgresql/.s.PGSQL.5433", false));
        assert_eq!(
            parsed("postgres://a%40b@%2Ftmp/d"),
            Server { user: "a@b".into(), host: "/tmp".into(), database: "d".into(), port: 5432, ..Server::default() }
        );
        assert_eq!(parsed("postgresql://a@[::1]:6000/d").place(), "::1:6000");
    }

    /// On the way to another machine nobody reads along unless the site has said so.
    #[test]
    fn another_machine_is_spoken_to_by_tls() {
        let tls = |url: &str| parsed(url).tls;
        assert!(tls("postgresql://a@db/d") && tls("postgresql://a@localhost/d?sslmode=require"));
        assert!(!tls("postgresql://a@localhost/d") && !tls("postgresql://a@db/d?sslmode=disable"));
        assert!(Server::parse("postgresql://a@/d?host=/tmp&sslmode=require").is_err());
        assert!(Server::parse("postgresql://a@db/d?sslmode=prefer").is_err_and(|said| said.contains("use disable")));
    }

    /// The configuration is shown to every user: a password must not get into it, nor into a message about it.
    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for url in
            ["postgresql://a:secret@db/d", "postgresql://a@db/d?password=secret", "mysql://a:secret@db/d", "secret"]
        {
            let said = Config::from_toml(&format!("[accounting]\nstore = \"{url}\"\n")).expect_err("it is refused");
            assert!(said.contains("[accounting] store: ") && !said.contains("secret"), "{said}");
        }
        assert!(Server::parse("postgresql://a:b@db/d").is_err_and(|said| said.contains("?passfile=")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, why) in [
            ("postgresql://db/d", "names no user"),
            ("postgresql://a@db", "names no database"),
            ("postgresql://a@/d", "lacks a user, a host or a database"),
            ("postgresql://a@db:x/d", "port"),
            ("postgresql://a@db,other/d", "several servers"),
            ("postgresql://a@db/d?passfile=pw", "no absolute path"),
            ("postgresql://a@db/d?color=red", "`color`"),
            ("postgresql://a@db/%zz", "hexadecimal"),
        ] {
            assert!(Server::parse(url).is_err_and(|said| said.contains(why)), "{url}");
        }
        let both = Config::from_toml("[accounting]\nreaders = \"root\"\nstore = \"postgresql://a@db/d\"\n");
        assert!(both.is_err_and(|said| said.contains("[accounting] readers: ") && said.contains("GRANT")));
    }
}
