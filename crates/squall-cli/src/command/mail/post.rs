//! Two ways to send a mail: the site's program, without a shell, or an SMTP relay (RFC 5321).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use squall_files::users;
use squall_host::life;
use squall_model::config::Config;
use squall_model::job::mail::is_recipients;

use super::letter::Letter;

/// Longest that a mail program may run, or a relay may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval of checks whether a mail program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Pause before a relay that does not answer is called again.
const PAUSE: Duration = Duration::from_secs(5);

/// User as which root's mail program runs: it needs no rights of the cluster.
const USER: &str = "nobody";

/// Most bytes of a line that a relay answers.
const LINE_BYTES_MAX: u64 = 4096;

/// Search path of a mail program.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// How mail is sent.
#[derive(Debug)]
pub(super) struct Post {
    program: String,
    relay: String,
    domain: String,
    /// This machine's name.
    host: String,
}

/// Why a mail was not sent.
enum Unsent {
    /// The relay can't be reached, or not now: the mail is tried again.
    Later(String),
    /// The mail is refused, and not tried again.
    Never(String),
}

impl From<io::Error> for Unsent {
    fn from(e: io::Error) -> Self {
        Self::Later(e.to_string())
    }
}

impl Post {
    /// Returns how the cluster with this configuration sends mail.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            program: config.mail_prog.clone(),
            relay: config.mail_relay.clone(),
            domain: config.mail_domain.clone(),
            host: life::host_name(),
        }
    }

    /// Sends a mail. Waits for a relay that is away: the events wait with the controller. A mail that is refused is
    /// logged.
    pub(super) fn send(&self, letter: &Letter) {
        if !is_recipients(&letter.to) {
            return tracing::warn!(to = letter.to, "no mail: these are no users or addresses");
        }
        let mut told = false;
        loop {
            let sent = if self.program.is_empty() { self.by_relay(letter) } else { self.by_program(letter) };
            match sent {
                Ok(()) => return,
                Err(Unsent::Never(problem)) => {
                    return tracing::warn!(to = letter.to, subject = letter.subject, %problem, "a mail was not sent");
                }
                Err(Unsent::Later(problem)) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%problem, "mail waits for the relay");
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Returns the recipients, each with a domain if the cluster has one.
    fn recipients(&self, letter: &Letter) -> Vec<String> {
        let whole = |name: &str| {
            let complete = name.contains('@') || self.domain.is_empty();
            if complete { name.to_owned() } else { format!("{name}@{}", self.domain) }
        };
        letter.to.split(',').map(whole).collect()
    }

    fn by_program(&self, letter: &Letter) -> Result<(), Unsent> {
        let mut command = Command::new(&self.program);
        command.args(["-s", &letter.subject, &self.recipients(letter).join(",")]);
        command.env_clear().env("PATH", PATH).envs(letter.env.iter().map(|(name, value)| (name, value)));
        command.stdin(if letter.text.is_empty() { Stdio::null() } else { Stdio::piped() }).stdout(Stdio::null());
        if users::is_root() {
            let user = users::by_name(USER).ok_or_else(|| Unsent::Never(format!("there is no user `{USER}`")))?;
            // It loses root's other groups, too.
            command.uid(user.uid).gid(user.gid);
        }
        let never = |e: io::Error| Unsent::Never(format!("{}: {e}", self.program));
        let mut child = command.spawn().map_err(never)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A pipe has room for all of it. A program that does not read it misses it.
            drop(stdin.write_all(letter.text.as_bytes()));
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match child.try_wait().map_err(never)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Unsent::Never(format!("{}: {status}", self.program))),
                None if Instant::now() >= until => {
                    drop(child.kill());
                    drop(child.wait());
                    return Err(Unsent::Never(format!(
                        "{}: it did not end within {} s",
                        self.program,
                        PATIENCE.as_secs()
                    )));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    fn by_relay(&self, letter: &Letter) -> Result<(), Unsent> {
        let stream = TcpStream::connect(&self.relay).map_err(|e| Unsent::Later(format!("{}: {e}", self.relay)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut relay = Relay { lines: BufReader::new(stream.try_clone()?), stream };
        let recipients = self.recipients(letter);
        let sender = format!("squall@{}", if self.domain.is_empty() { &self.host } else { &self.domain });
        relay.hear(true)?;
        relay.say(&format!("EHLO {}", self.host))?;
        relay.say(&format!("MAIL FROM:<{sender}>"))?;
        for recipient in &recipients {
            relay.offer(&format!("RCPT TO:<{recipient}>"))?;
        }
        relay.offer("DATA")?;
        let (to, subject) = (recipients.join(", "), header(&letter.subject));
        let text = body(&letter.text);
        // No line of the headers begins with a dot.
        relay.offer(&format!(
            "From: Squall <{sender}>\r\nTo: {to}\r\nSubject: {subject}\r\nAuto-Submitted: auto-generated\r\n{text}."
        ))?;
        // It is accepted, whatever the relay says to this.
        drop(relay.say("QUIT"));
        Ok(())
    }
}

/// A connection to an SMTP relay.
struct Relay {
    lines: BufReader<TcpStream>,
    stream: TcpStream,
}

impl Relay {
    fn say(&mut self, line: &str) -> Result<(), Unsent> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        self.hear(true)
    }

    /// Says what a user has chosen. A relay that does not take it now is not waited for: mail of others waits behind it.
    fn offer(&mut self, line: &str) -> Result<(), Unsent> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        self.hear(false)
    }

    /// Reads an answer, of which all lines but the last have `-` after the code. `waits`: "not now" is worth waiting.
    fn hear(&mut self, waits: bool) -> Result<(), Unsent> {
        loop {
            let mut line = String::new();
            if self.lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
                return Err(Unsent::Later("the relay has hung up".to_owned()));
            }
            if line.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            return match line.as_bytes().first() {
                Some(b'2' | b'3') => Ok(()),
                // 421: the relay ends.
                Some(b'4') if waits || line.starts_with("421") => Err(Unsent::Later(line.trim().to_owned())),
                _ => Err(Unsent::Never(line.trim().to_owned())),
            };
        }
    }
}

/// Returns headers about a text, and the text, up to the line that ends the mail.
fn body(text: &str) -> String {
    if text.is_empty() {
        return "\r\n".to_owned();
    }
    let mut body = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    Content-Transfer-Encoding: 8bit\r\n\r\n"
        .to_owned();
    for line in text.lines() {
        let dot = if line.starts_with('.') { "." } else { "" };
        body.extend([dot, line, "\r\n"]);
    }
    body
}

/// Returns a text as the value of a header: in quoted-printable words where it is not plain ASCII (RFC 2047).
fn header(text: &str) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.to_owned();
    }
    let quoted = |word: &[char]| {
        let quote =
            |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("={byte:02X}") };
        let text: String = word.iter().collect();
        format!("=?UTF-8?Q?{}?=", text.bytes().map(quote).collect::<String>())
    };
    // A word has 75 letters at most, and a letter takes 12 at most.
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(5).map(quoted).collect::<Vec<_>>().join("\r\n ")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use squall_model::config::Config;

    use super::super::letter::Letter;
    use super::{Post, body, header};

    #[test]
    fn mail_of_others_does_not_wait_for_a_recipient_that_is_not_taken_now() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config { mail_relay: listener.local_addr().unwrap().to_string(), ..Config::default() };
        let relay = std::thread::spawn(move || {
            let mut taken = Vec::new();
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                stream.write_all(b"220 here\r\n").unwrap();
                for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                    let answer = match line.split(':').next() {
                        Some("RCPT TO") if line.contains("nowhere") => "450 the domain is not found",
                        Some("DATA") => "354 go on",
                        Some("RCPT TO") => {
                            taken.push(line);
                            "250 yes"
                        }
                        Some("From" | "To" | "Subject" | "Auto-Submitted" | "") => continue,
                        _ => "250 yes",
                    };
                    stream.write_all(format!("{answer}\r\n").as_bytes()).unwrap();
                }
            }
            taken
        });
        let post = Post::of(&config);
        for to in ["ann@nowhere", "bob@here"] {
            let (to, subject) = (to.to_owned(), "Ended".to_owned());
            post.send(&Letter { to, subject, env: Vec::new(), text: String::new(), failure: None });
        }
        assert_eq!(relay.join().unwrap(), ["RCPT TO:<bob@here>"]);
    }

    #[test]
    fn no_line_of_a_text_ends_the_mail() {
        assert_eq!(body(""), "\r\n");
        assert!(body("one\n.\n..two\n").ends_with("\r\n\r\none\r\n..\r\n...two\r\n"));
    }

    #[test]
    fn what_is_not_ascii_is_quoted() {
        assert_eq!(header("Slurm Job_id=1 Ended"), "Slurm Job_id=1 Ended");
        assert_eq!(header("aä\nb"), "=?UTF-8?Q?a=C3=A4=0Ab?=");
    }
}
