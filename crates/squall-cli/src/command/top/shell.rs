//! Runs a top in a terminal: keys, events and answers in, requests and frames out.

use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_client::{FeedSelection, Follower};
use squall_host::sys::signals::SignalFd;
use squall_model::id::JobId;
use squall_model::time::Time;
use squall_model::wire::client::Answer;

use super::app::{App, Effect, Input};
use super::keys::KeyCode;
use super::terminal::Terminal;
use super::{NAME, draw, read, used};
use squall_client::{Client, ClientError};
use squall_text::refusal;

/// Shortest time between two readings of the lists.
const SHORTEST: Duration = Duration::from_secs(1);
/// Time between two readings where nothing has happened: loads of nodes and expected starts change without an event.
const LONGEST: Duration = Duration::from_secs(30);
/// A top asks during at most one part in this many of the time.
const SHARE: u32 = 25;
/// Most news and orders that wait to be taken.
const WAITING: usize = 8;

/// Lists of a cluster are read again: when?
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether something has changed since the lists were read.
    changed: bool,
    /// When the last answer came; None: there was none.
    last: Option<Instant>,
    /// How long it took to read them.
    cost: Duration,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { changed: true, last: None, cost: Duration::ZERO }
    }

    /// Notes that something has changed.
    pub(super) fn change(&mut self) {
        self.changed = true;
    }

    /// Notes that a reading begins.
    pub(super) fn begin(&mut self) {
        self.changed = false;
    }

    /// Notes that a reading ended at `now`, after `cost`.
    pub(super) fn end(&mut self, now: Instant, cost: Duration) {
        (self.last, self.cost) = (Some(now), cost);
    }

    /// Returns how long to wait for the next reading.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = if self.changed { SHORTEST } else { LONGEST };
        pause.max(self.cost * (SHARE - 1)).saturating_sub(now.duration_since(last))
    }
}

/// What the other threads tell.
enum News {
    /// Something has changed in the cluster.
    Changed,
    /// The lists were read, or not, in this time.
    Read(Duration, Input),
    /// For the top: something was asked or done, after which the lists may be others.
    Input(Input),
    /// For the top, which asked for what it shows.
    Seen(Input),
}

/// What the asking thread is to do.
enum Order {
    Read,
    Effect(Effect),
}

/// A sender that wakes the thread which waits for keys.
struct Wire {
    news: SyncSender<News>,
    bell: UnixStream,
}

impl Wire {
    /// Sends news. Returns false if no listener is left.
    fn send(&mut self, news: News) -> bool {
        // A full pipe means that the bell rings already.
        self.news.send(news).is_ok() && !matches!(self.bell.write(&[0]), Err(e) if e.kind() == ErrorKind::BrokenPipe)
    }
}

/// Shows a top until the user ends it. Returns the signal that has ended it. The error is a text for the user.
pub(super) fn show(app: App, output_is_terminal: bool, coloured: bool) -> Result<Option<u8>, String> {
    if !output_is_terminal || !std::io::stdin().is_terminal() {
        return Err("it needs a terminal; `squall top --once` prints one screen as text".to_owned());
    }
    // Before there are threads, which inherit what is blocked.
    let signals =
        SignalFd::new(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGWINCH]).map_err(|e| e.to_string())?;
    let (ear, bell) = UnixStream::pair().map_err(|e| e.to_string())?;
    for end in [&ear, &bell] {
        end.set_nonblocking(true).map_err(|e| e.to_string())?;
    }
    let (sender, news) = sync_channel(WAITING);
    let (orders, received) = sync_channel(WAITING);
    let wire = || Ok::<_, std::io::Error>(Wire { news: sender.clone(), bell: bell.try_clone()? });
    let (following, asking) = (wire().map_err(|e| e.to_string())?, wire().map_err(|e| e.to_string())?);
    std::thread::spawn(move || follow(following));
    let (gauge, jobs) = sync_channel(1);
    let measuring = wire().map_err(|e| e.to_string())?;
    std::thread::spawn(move || ask(&received, asking));
    std::thread::spawn(move || measure(&jobs, measuring));
    let terminal = Terminal::enter(coloured).map_err(|e| format!("the terminal can't be used: {e}"))?;
    Shell { app, terminal, signals, ear, news, orders, gauge, pace: Pace::new(), asked: false }.run()
}

/// The thread that owns the terminal.
struct Shell {
    app: App,
    terminal: Terminal,
    signals: SignalFd,
    /// Becomes readable when there are news.
    ear: UnixStream,
    news: Receiver<News>,
    orders: SyncSender<Order>,
    /// Takes jobs to measure.
    gauge: SyncSender<Vec<JobId>>,
    pace: Pace,
    /// Whether the lists are being read.
    asked: bool,
}

impl Shell {
    fn run(mut self) -> Result<Option<u8>, String> {
        let trouble = |e: std::io::Error| format!("the terminal: {e}");
        loop {
            if !self.asked && self.pace.wait(Instant::now()).is_zero() {
                self.asked = self.order(Order::Read)?;
                if self.asked {
                    self.pace.begin();
                }
            }
            if let Some(effect) = self.app.step(Input::Tick(now())) {
                self.send(effect)?;
            }
            let (width, height) = Terminal::size();
            self.app.step(Input::Size(height));
            self.terminal.show(draw::screen(&self.app, width, height)).map_err(trouble)?;
            self.measure(width);
            if !self.await_something() {
                return Ok(None);
            }
            // A change of the terminal's size only shows another screen.
            if let Some(signal) = self.signals.take().filter(|signal| *signal != libc::SIGWINCH) {
                return Ok(Some(signal as u8));
            }
            self.hear()?;
            for key in self.terminal.keys().map_err(trouble)? {
                if key == KeyCode::Interrupt {
                    return Ok(None);
                }
                match self.app.step(Input::Key(key)) {
                    Some(Effect::Quit) => return Ok(None),
                    Some(effect) => self.send(effect)?,
                    None => {}
                }
            }
        }
    }

    /// Has the jobs measured that are shown, a screen at a time.
    fn measure(&mut self, width: usize) {
        let jobs = self.app.measure_due(width);
        if !jobs.is_empty() {
            // What is not measured now is measured later.
            let _ = self.gauge.try_send(jobs);
        }
    }

    /// Gives the order for an effect, or says that too many wait already.
    fn send(&mut self, effect: Effect) -> Result<(), String> {
        if !self.order(Order::Effect(effect))? {
            let line = "nothing done: the controller has not answered what was asked before";
            self.app.step(Input::Told(line.to_owned()));
        }
        Ok(())
    }

    /// Gives an order. Returns false if too many wait already.
    fn order(&self, order: Order) -> Result<bool, String> {
        match self.orders.try_send(order) {
            Ok(()) => Ok(true),
            Err(TrySendError::Full(_)) => Ok(false),
            Err(TrySendError::Disconnected(_)) => Err("a part of it has failed".to_owned()),
        }
    }

    /// Waits for a key, news, a signal, or the next second. Returns false if the terminal is gone.
    fn await_something(&self) -> bool {
        let stdin = std::io::stdin();
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&self.ear, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        let due = if self.asked { SHORTEST } else { self.pace.wait(Instant::now()).clamp(SHORTEST / 10, SHORTEST) };
        let limit = Timespec { tv_sec: due.as_secs() as i64, tv_nsec: i64::from(due.subsec_nanos()) };
        let _ = poll(&mut fds, Some(&limit));
        !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    fn hear(&mut self) -> Result<(), String> {
        let mut rung = [0; 256];
        while self.ear.read(&mut rung).is_ok_and(|count| count == rung.len()) {}
        loop {
            match self.news.try_recv() {
                Ok(News::Changed) => self.pace.change(),
                Ok(News::Seen(input)) => {
                    self.app.step(input);
                }
                Ok(News::Input(input)) => {
                    // What was done is seen in the lists.
                    self.pace.change();
                    self.app.step(input);
                }
                Ok(News::Read(cost, input)) => {
                    self.asked = false;
                    self.pace.end(Instant::now(), cost);
                    if matches!(input, Input::Away(_)) {
                        self.pace.change();
                    }
                    self.app.step(input);
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err("a part of it has failed".to_owned()),
            }
        }
    }
}

fn now() -> Time {
    Time(u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0))
}

/// Tells of each change in the cluster. Comes back by itself when the controller was away.
fn follow(mut wire: Wire) {
    loop {
        if let Ok(mut follower) = Follower::connect(NAME, FeedSelection::default()) {
            // What happened before is not told: the lists are read again.
            while let Ok(page) = follower.next_page() {
                if (page.missed || !page.events.is_empty()) && !wire.send(News::Changed) {
                    return;
                }
            }
        }
        std::thread::sleep(SHORTEST);
        if !wire.send(News::Changed) {
            return;
        }
    }
}

/// Asks the controller what it is told to ask.
fn ask(orders: &Receiver<Order>, mut wire: Wire) {
    let mut kept: Option<Client> = None;
    while let Ok(order) = orders.recv() {
        let begun = Instant::now();
        let connected = match kept.take() {
            Some(client) => Ok(client),
            None => Client::connect(NAME),
        };
        let answered = connected.and_then(|mut client| {
            let answered = answer(&mut client, &order);
            // After a refusal the connection is as good as before.
            if !matches!(&answered, Err(error) if !matches!(error, ClientError::Refused(_))) {
                kept = Some(client);
            }
            answered
        });
        let news = match (order, answered) {
            (Order::Read, Ok(input)) => News::Read(begun.elapsed(), input),
            (Order::Read, Err(error)) => News::Read(begun.elapsed(), Input::Away(problem(&error))),
            (Order::Effect(_), Ok(input @ Input::Output(..))) => News::Seen(input),
            (Order::Effect(_), Ok(input)) => News::Input(input),
            (Order::Effect(_), Err(error)) => News::Input(Input::Told(problem(&error))),
        };
        if !wire.send(news) {
            return;
        }
    }
}

/// Measures the jobs that it is told to measure.
fn measure(orders: &Receiver<Vec<JobId>>, mut wire: Wire) {
    while let Ok(jobs) = orders.recv() {
        let Ok(mut client) = Client::connect(NAME) else { continue };
        for (job, lately) in used(&mut client, &jobs) {
            if !wire.send(News::Seen(Input::Used(job, lately))) {
                return;
            }
        }
    }
}

fn answer(client: &mut Client, order: &Order) -> Result<Input, ClientError> {
    Ok(match order {
        Order::Read => Input::Read(Box::new(read(client)?)),
        Order::Effect(Effect::Quit) => Input::Told(String::new()),
        Order::Effect(Effect::Why(title, request)) => match client.ask(&**request)? {
            Answer::Why(told) => Input::Why(title.clone(), told),
            _ => Input::Told("the controller does not say why".to_owned()),
        },
        Order::Effect(Effect::Output(title, job, request)) => match client.ask(&**request)? {
            Answer::Tail(tail) => Input::Output(title.clone(), *job, tail),
            _ => Input::Told("the controller does not send the output".to_owned()),
        },
        Order::Effect(Effect::Do(deed)) => Input::Told(match client.ask(&*deed.request)? {
            Answer::Affected { refused, .. } if !refused.is_empty() => {
                let each = refused.iter().map(|(job, refusal)| format!("job {job}: {}", refusal::text(refusal)));
                each.collect::<Vec<_>>().join("; ")
            }
            _ => deed.done.clone(),
        }),
    })
}

fn problem(error: &ClientError) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.to_string(),
    }
}
