//! The surroundings of a command: controller, users, environment, clock, output. Tests replace them with fakes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use squall_files::place::Place;
use squall_files::users;
use squall_model::id::JobId;
use squall_model::plain::plain;
use squall_model::time::Time;
use squall_model::wire::Standby;
use squall_model::wire::broadcast::Broadcast;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobSelection, Refusal, Request};
use squall_model::wire::feed::FeedPage;
use squall_model::wire::history::HistoryRow;
use squall_model::wire::info::{AccountingRow, JobsPage};

use crate::contact::Patience;
use squall_client::broadcast::{self, BroadcastResult};
use squall_client::{Client, ClientError, unexpected};
use squall_client::{FeedSelection, Follower};
use squall_text::format::clock::{Clock, Style};
use squall_text::format::colour::clean;
use squall_text::format::harmless_lines;
use squall_text::format::words;
use squall_text::hints::Hint;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::refusal;

/// What the pages of commands that print states say about colours.
pub(crate) const COLOUR_NOTE: &str = "\
With the variable SQUALL_COLOR=auto, states have colours on a terminal, unless NO_COLOR is set.
";

/// Option of commands that list.
pub(crate) const FROM_STANDBY: Flag = flag(
    "from-standby",
    '\0',
    Arg::None,
    "ask the controller of this host, even if another one leads (SQUALL_FROM_STANDBY=1)",
);

/// The controller as a listing or control command uses it.
pub(crate) trait Controller {
    /// Returns the cluster's name.
    fn cluster(&mut self) -> Result<String, ClientError>;
    /// Returns the path of the cluster's configuration and the user id of its controller; None: unknown on this
    /// machine.
    fn home(&mut self) -> Option<(PathBuf, u32)>;
    /// Returns the name that this host has as one of several controllers. None: it is none, as far as is known.
    fn name_here(&self) -> Option<String>;
    /// Returns names and addresses of several controllers, as the configuration on this machine has them. Empty: there is
    /// one, or it is not known here.
    fn configured(&self) -> Vec<(String, String)>;
    /// From now on asks the controller of this host, which may be a standby.
    fn ask_this_host(&mut self);
    /// Returns the standby that answered, with the age of its state. None: the leader answered.
    fn standby(&self) -> Option<&Standby>;
    /// Sends a request and returns the answer.
    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError>;
    /// Sends a request that the controller's daemon answers, and returns the answer.
    fn ask_host(&mut self, request: &HostRequest) -> Result<Answer, ClientError>;
    /// Calls `take` with each page of a job listing. `take(None)` means that the listing starts again: the pages so far
    /// must be discarded.
    fn pages(
        &mut self,
        jobs: JobSelection,
        ended: bool,
        steps: bool,
        take: &mut dyn FnMut(Option<JobsPage>),
    ) -> Result<(), ClientError>;
    /// Returns all pages of a job listing joined into one.
    fn jobs(&mut self, jobs: JobSelection, ended: bool, steps: bool) -> Result<JobsPage, ClientError> {
        let mut all = JobsPage::default();
        self.pages(jobs, ended, steps, &mut |page| match page {
            Some(page) => all.append(page),
            None => all = JobsPage::default(),
        })?;
        Ok(all)
    }
    /// Calls `take` with each page of rows of an accounting query. `take(None)` means that the answer starts again: the
    /// rows so far must be discarded.
    fn accounting_pages(
        &mut self,
        query: AccountingQuery,
        take: &mut dyn FnMut(Option<Vec<AccountingRow>>),
    ) -> Result<(), ClientError>;
    /// Returns all rows of an accounting query.
    fn accounting(&mut self, query: AccountingQuery) -> Result<Vec<AccountingRow>, ClientError> {
        let mut all = Vec::new();
        self.accounting_pages(query, &mut |rows| match rows {
            Some(rows) => all.extend(rows),
            None => all.clear(),
        })?;
        Ok(all)
    }
    /// Returns what accounting has recorded apart from jobs (nodes, reservations, changes of accounts), oldest first.
    fn history(&mut self) -> Result<Vec<HistoryRow>, ClientError>;
    /// Begins to follow events, which [`Controller::next_events`] returns.
    fn follow(&mut self, wanted: FeedSelection) -> Result<(), ClientError>;
    /// Waits for the next page of events and returns it. Resumes by itself when the controller restarts.
    fn next_events(&mut self) -> Result<FeedPage, ClientError>;
    /// Sends a file to nodes, which store it.
    fn broadcast(&mut self, _file: &File, _wanted: Broadcast) -> Result<BroadcastResult, ClientError> {
        Err(unexpected())
    }
}

/// Names and ids of users and groups.
pub(crate) trait People {
    /// Returns the id of the user who runs the command.
    fn me(&self) -> u32;
    /// Returns the id of the user `name`; None: no such user.
    fn uid(&self, name: &str) -> Option<u32>;
    /// Returns the id of the group `name`; None: no such group.
    fn gid(&self, name: &str) -> Option<u32>;
    /// Returns the name of a user, or the number where there is none.
    fn user(&self, uid: u32) -> String;
    /// Returns the name of a user's primary group, or its number where there is none.
    fn group(&self, uid: u32) -> String;
}

/// Failure of a command, with its exit code. The message was printed on standard error already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fail(pub(crate) u8);

/// Everything that a running command uses: controller, users, environment, clock, output.
pub(crate) struct Call<'a> {
    /// Name of the command, such as `squeue`.
    pub(crate) name: &'static str,
    /// Connection to the controller, to which requests are sent.
    pub(crate) controller: &'a mut dyn Controller,
    /// Looks up names and ids of users and groups.
    pub(crate) people: &'a dyn People,
    /// Function that returns the value of an environment variable.
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    /// Whether standard output is a terminal.
    pub(crate) terminal: bool,
    /// Whether hints are printed on standard error.
    pub(crate) hints: bool,
    /// Time zone in which times are printed and read.
    pub(crate) zone: TimeZone,
    /// Current time by this machine's clock.
    pub(crate) now: Time,
    /// Standard output of the command.
    pub(crate) out: &'a mut dyn Write,
    /// Whether standard output was found to be closed.
    pub(crate) closed: bool,
    /// Standard error of the command.
    pub(crate) err: &'a mut dyn Write,
}

impl Call<'_> {
    /// Prints to standard output. A closed pipe is no error; a command without end should end then.
    /// On a terminal no control characters come out.
    pub(crate) fn print(&mut self, text: &str) {
        let text = if self.terminal { clean(text) } else { text.into() };
        self.closed |= self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).is_err();
    }

    /// From now on prints nothing on standard output.
    pub(crate) fn hush(&mut self) {
        self.out = Box::leak(Box::new(std::io::sink()));
    }

    /// Prints a line on standard error, without a prefix.
    pub(crate) fn say(&mut self, text: &str) {
        drop(writeln!(self.err, "{}", harmless_lines(&plain(text))));
    }

    /// Prints `NAME: error: TEXT` on standard error.
    pub(crate) fn complain(&mut self, text: &str) {
        drop(writeln!(self.err, "{}: error: {}", self.name, harmless_lines(&plain(text))));
    }

    /// Prints `NAME: hint: TEXT` on standard error, if the user wants hints.
    pub(crate) fn hint(&mut self, hint: &Hint) {
        if self.hints {
            self.say(&format!("{}: hint: {hint}", self.name));
        }
    }

    /// Prints an error message and fails with exit code 1.
    pub(crate) fn fail<T>(&mut self, text: &str) -> Result<T, Fail> {
        self.complain(text);
        Err(Fail(1))
    }

    /// Prints a failed request's error and fails: first `WHAT: WORDS` as Slurm's `slurm_perror` prints it, then details
    /// if there are any.
    pub(crate) fn failed<T>(&mut self, what: &str, error: &ClientError) -> Result<T, Fail> {
        self.say(&format!("{what}: {error}"));
        let behind = match error {
            // For these refusals Slurm's text alone would not say what to do.
            ClientError::Refused(
                refusal @ (Refusal::NotSupported(_)
                | Refusal::InvalidValue { .. }
                | Refusal::CellAway(_)
                | Refusal::NoLeader(_)
                | Refusal::PartitionBusy(_)
                | Refusal::NotFrom(..)
                | Refusal::Contradiction(..)),
            ) => refusal::detail(refusal),
            error => error.detail().map(str::to_owned),
        };
        if let Some(detail) = behind {
            self.say(&format!("{}: {detail}", self.name));
        }
        Err(Fail(1))
    }

    /// Returns an environment variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    /// Returns whether states are printed in colours: on a terminal, if the variable `SQUALL_COLOR` is `auto` and
    /// `NO_COLOR` is not set.
    pub(crate) fn coloured(&mut self) -> Result<bool, Fail> {
        match self.variable("SQUALL_COLOR").as_deref() {
            None | Some("never") => Ok(false),
            Some("auto") => Ok(self.terminal && self.variable("NO_COLOR").is_none()),
            Some(other) => self.fail(&format!("SQUALL_COLOR: `{other}` is not valid: use auto or never")),
        }
    }

    /// Parses the command line. Returns None after it has answered `--help`, `--usage` or `--version` itself.
    pub(crate) fn arguments(&mut self, page: &Page, args: &[String]) -> Result<Option<Arguments>, Fail> {
        let arguments = match page.parse(args) {
            Ok(arguments) => arguments,
            Err(problem) => {
                let name = self.name;
                let problem = problem.replace('\n', &format!("\n{name}: "));
                self.say(&format!("{name}: {problem}\nTry \"{name} --help\" for more information"));
                return Err(Fail(1));
            }
        };
        let text = match () {
            () if arguments.has("help") => page.help(),
            () if arguments.has("usage") => page.usage(),
            () if arguments.has("version") => words::version(),
            () => {
                if self.asks_this_host(page, &arguments) {
                    self.controller.ask_this_host();
                }
                return Ok(Some(arguments));
            }
        };
        self.print(&text);
        Ok(None)
    }

    /// Returns whether the controller of this host is to be asked: by [`FROM_STANDBY`] or its variable.
    fn asks_this_host(&self, page: &Page, given: &Arguments) -> bool {
        let Options::Own(flags) = page.options else { return false };
        let offered = flags.iter().any(|flag| flag.long == FROM_STANDBY.long);
        let wanted = |value: String| !["0", "no"].contains(&value.to_ascii_lowercase().as_str());
        offered && (given.has(FROM_STANDBY.long) || self.variable("SQUALL_FROM_STANDBY").is_some_and(wanted))
    }

    /// Returns the format for times, given the controller's current time `now`.
    pub(crate) fn clock(&self, now: Time) -> Rc<Clock> {
        let style = Style::from_variable(self.variable("SLURM_TIME_FORMAT").as_deref());
        Rc::new(Clock { zone: self.zone.clone(), style, now })
    }

    /// Returns the cluster's name; reports why if the controller can't be asked.
    pub(crate) fn cluster(&mut self, what: &str) -> Result<Rc<str>, Fail> {
        match self.controller.cluster() {
            Ok(name) => Ok(name.into()),
            Err(e) => self.failed(what, &e),
        }
    }

    /// Returns all rows of an accounting query. `what` begins the error message.
    pub(crate) fn accounting(&mut self, what: &str, query: AccountingQuery) -> Result<Vec<AccountingRow>, Fail> {
        self.controller.accounting(query).or_else(|e| self.failed(what, &e))
    }

    /// Checks the cluster names of `-M`: only this cluster can be asked. Prints Slurm's line `CLUSTER: NAME` if
    /// `header` is set.
    pub(crate) fn check_cluster(&mut self, asked: Option<&str>, header: bool, what: &str) -> Result<(), Fail> {
        let Some(asked) = asked else { return Ok(()) };
        let here = self.cluster(what)?;
        if let Some(other) = asked.split(',').find(|c| !c.is_empty() && *c != &*here && !c.eq_ignore_ascii_case("all"))
        {
            return self.fail(&format!(
                "'{other}' can't be reached now, or it is an invalid entry for --cluster.  \
                 The cluster here is '{here}'."
            ));
        }
        if header {
            self.print(&format!("CLUSTER: {here}\n"));
        }
        Ok(())
    }

    /// Reports each unknown field name of a format; these fields are left out.
    pub(crate) fn unknown_fields(&mut self, kind: &str, unknown: &[String]) {
        for name in unknown {
            self.complain(&format!("Invalid {kind} specification: {name}"));
        }
    }
}

/// Timeout for the first rows of accounting and for each further page. Accounting may have to read a large database.
const ACCOUNTING_TIME: Duration = Duration::from_mins(1);

/// Connection to the running cluster, opened by the first request.
struct Live {
    command: &'static str,
    client: Option<Client>,
    /// None: the command follows no events.
    follower: Option<Follower>,
    /// Cells that were reported as missing already.
    absent: BTreeSet<u32>,
    /// Whether the controller of this host is asked, which may be a standby.
    here: bool,
    /// The standby that has answered. None: none has.
    standby: Option<Standby>,
}

impl Live {
    fn client(&mut self, patience: &mut Patience) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None if self.here => self.connect_here()?,
            None => patience.connect()?,
        };
        Ok(self.client.insert(client))
    }

    /// Connects to the controller of this host. Says so once, if it is a standby.
    fn connect_here(&mut self) -> Result<Client, ClientError> {
        let mut client = Client::connect_here(self.command)?;
        client.greet()?;
        let standby = client.standby().cloned();
        if let Some(standby) = standby.as_ref().filter(|_| self.standby.is_none()) {
            eprintln!("{}: {}", self.command, of_standby(standby));
        }
        self.standby = standby;
        Ok(client)
    }

    /// Sends a request that may safely be repeated; retries while the controller may be restarting.
    fn again<T>(&mut self, mut ask: impl FnMut(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut patience = Patience::new(self.command);
        loop {
            let result = self.client(&mut patience).and_then(&mut ask);
            match result {
                Err(error) if error.is_transient() => {
                    self.client = None;
                    if !patience.wait(&error) {
                        return Err(error);
                    }
                }
                result => {
                    self.tell_absent();
                    return result;
                }
            }
        }
    }

    /// Reports on standard error the cells from which a part of an answer is missing, each once.
    fn tell_absent(&mut self) {
        for cell in self.client.as_mut().map(Client::take_absent).unwrap_or_default() {
            if self.absent.insert(cell) {
                eprintln!("{}: cell {cell} does not answer: what it has is missing here", self.command);
            }
        }
    }
}

impl Controller for Live {
    fn cluster(&mut self) -> Result<String, ClientError> {
        self.again(|client| Ok(client.cluster()?.to_owned()))
    }

    fn home(&mut self) -> Option<(PathBuf, u32)> {
        let place = Place::find()?;
        let owner = std::fs::metadata(place.run()).ok()?.uid();
        Some((place.config(), owner))
    }

    fn name_here(&self) -> Option<String> {
        let place = Place::find()?;
        Some(place.controller_name().unwrap_or_else(squall_host::life::host_name))
    }

    fn configured(&self) -> Vec<(String, String)> {
        Place::find().map(|place| squall_client::configured(&place)).unwrap_or_default()
    }

    fn ask_this_host(&mut self) {
        self.here = true;
    }

    fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref()
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        match request {
            // The question is whether the controller answers now: no retries.
            Request::Ping if !self.here => Client::connect(self.command)?.ask(request),
            // Doing these twice differs from doing them once: no retries.
            Request::Requeue { .. } | Request::Suspend { .. } | Request::Checkpoint(..) | Request::ShutDown { .. } => {
                self.client(&mut Patience::new(self.command))?.ask(request)
            }
            _ => self.again(|client| client.ask(request)),
        }
    }

    fn ask_host(&mut self, request: &HostRequest) -> Result<Answer, ClientError> {
        match request {
            // The leader knows best. If there is none, the controller of this host knows a little.
            HostRequest::Controllers => {
                let asked = Client::connect(self.command).and_then(|mut client| client.ask(request));
                asked.or_else(|e| Client::connect_here(self.command)?.ask(request).map_err(|_| e))
            }
            // Doing it twice differs from doing it once: no retries.
            HostRequest::StepDown { .. } => self.client(&mut Patience::new(self.command))?.ask(request),
            _ => self.again(|client| client.ask(request)),
        }
    }

    fn pages(
        &mut self,
        jobs: JobSelection,
        ended: bool,
        steps: bool,
        take: &mut dyn FnMut(Option<JobsPage>),
    ) -> Result<(), ClientError> {
        self.again(|client| {
            take(None);
            client.pages(jobs.clone(), ended, steps, |page| take(Some(page)))
        })
    }

    fn accounting_pages(
        &mut self,
        query: AccountingQuery,
        take: &mut dyn FnMut(Option<Vec<AccountingRow>>),
    ) -> Result<(), ClientError> {
        let request = HostRequest::Accounting(Box::new(query));
        let lost = self.again(|client| {
            client.wait_up_to(Some(ACCOUNTING_TIME))?;
            client.send(&request)?;
            take(None);
            loop {
                let Answer::Accounting { rows, more, lost } = client.receive()? else { return Err(unexpected()) };
                take(Some(rows));
                if !more {
                    return Ok(lost);
                }
            }
        })?;
        if !lost.is_empty() {
            let (command, lost) = (self.command, ranges(&lost));
            eprintln!(
                "{command}: warning: accounting was damaged: rows of jobs {lost} may be missing; see the controller's log"
            );
        }
        Ok(())
    }

    fn history(&mut self) -> Result<Vec<HistoryRow>, ClientError> {
        self.again(|client| {
            client.wait_up_to(Some(ACCOUNTING_TIME))?;
            client.send(&HostRequest::History)?;
            let mut all = Vec::new();
            loop {
                let Answer::History(rows, more) = client.receive()? else { return Err(unexpected()) };
                all.extend(rows);
                if !more {
                    // Cells answer in any order.
                    all.sort_by_key(|row: &HistoryRow| row.time);
                    return Ok(all);
                }
            }
        })
    }

    fn follow(&mut self, wanted: FeedSelection) -> Result<(), ClientError> {
        if self.here {
            let problem = "a standby has no events: leave out --from-standby".to_owned();
            return Err(ClientError::Refused(Refusal::NotSupported(problem)));
        }
        let mut patience = Patience::new(self.command);
        loop {
            match Follower::connect(self.command, wanted.clone()) {
                Err(error) if patience.wait(&error) => {}
                connected => {
                    self.follower = Some(connected?);
                    return Ok(());
                }
            }
        }
    }

    fn next_events(&mut self) -> Result<FeedPage, ClientError> {
        self.follower.as_mut().ok_or_else(unexpected)?.next_page()
    }

    fn broadcast(&mut self, file: &File, wanted: Broadcast) -> Result<BroadcastResult, ClientError> {
        self.again(|client| broadcast::broadcast(client, file, wanted.clone()))
    }
}

/// Returns the note about answers of a standby.
pub(crate) fn of_standby(standby: &Standby) -> String {
    let age = match standby.age_ms {
        Some(ms) => format!("its state is {}.{} s old", ms / 1000, ms % 1000 / 100),
        None => "it has no state yet".to_owned(),
    };
    let leader = standby
        .leader
        .as_ref()
        .map_or("no controller leads".to_owned(), |leader| format!("the controller at {} leads", leader.address));
    format!("this is of {}, a standby: {age}; {leader}", standby.name)
}

/// Formats ranges of jobs: `12, 14-20`.
fn ranges(all: &[(JobId, JobId)]) -> String {
    let ranges = all.iter().map(|(first, last)| match (first == last, last.0) {
        (true, _) => format!("{first}"),
        (false, u32::MAX) => format!("{first} and above"),
        _ => format!("{first}-{last}"),
    });
    ranges.collect::<Vec<_>>().join(", ")
}

/// Users and groups of this machine, as its name service has them.
struct Machine;

impl People for Machine {
    fn me(&self) -> u32 {
        rustix::process::getuid().as_raw()
    }
    fn uid(&self, name: &str) -> Option<u32> {
        users::by_name(name).map(|user| user.uid)
    }
    fn gid(&self, name: &str) -> Option<u32> {
        users::group_id(name)
    }
    fn user(&self, uid: u32) -> String {
        users::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name)
    }
    fn group(&self, uid: u32) -> String {
        let group = users::by_uid(uid).map_or(uid, |user| user.gid);
        users::group_name(group).unwrap_or_else(|| group.to_string())
    }
}

/// Runs a command with the real controller, users, clock and output.
pub(crate) fn live(
    name: &'static str,
    args: &[OsString],
    command: fn(&mut Call<'_>, &[String]) -> Result<(), Fail>,
) -> ExitCode {
    let args: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let (client, follower, absent, standby) = Default::default();
    let mut live = Live { command: name, client, follower, absent, here: false, standby };
    let mut call = Call {
        name,
        controller: &mut live,
        people: &Machine,
        env: &|variable| std::env::var(variable).ok(),
        terminal: std::io::stdout().is_terminal(),
        hints: crate::hall::hints_wanted(),
        zone: TimeZone::system(),
        now: Time(u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0)),
        out: &mut std::io::stdout(),
        closed: false,
        err: &mut std::io::stderr(),
    };
    match command(&mut call, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fail(code)) => ExitCode::from(code),
    }
}
