//! A simulation of cells and their front: production controllers, the production front's gateway sessions, clients
//! that pipeline and retry, and faults: cells and front killed, cells stopped, connections broken. Nodes are only
//! imitated. Checked are the acceptance of submissions, their recovery, and dependencies across cells.

mod carrier;
mod client;
mod judge;
mod nodes;
mod play;
pub(crate) mod story;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_engine::commit::{Append, Commit, Pipeline, Release};
use squall_engine::control::state::State;
use squall_engine::control::{CallerId, Controller, Input, Who};
use squall_engine::front::{self, Cells, Courier, Desk};
use squall_engine::machine::Machine;
use squall_model::config::{Config, NodeConfig};
use squall_model::event::Record;
use squall_model::job::{JobAttempt, Owner};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, AnyRequest, HostRequest};
use squall_model::wire::fabric::{DownFrame, UpFrame};

use crate::agenda::Agenda;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::setup::BEGIN;
use crate::world::controller::PAGE;
use carrier::COURIER;
use client::Client;
use judge::Judge;
use nodes::{Node, NodeKey};

pub(crate) use play::run;

/// Ended jobs are forgotten after this many seconds: later than any client's last retry, and soon enough that jobs of
/// other cells depend on some forgotten ones.
const KEPT_S: u64 = 60;

/// User ID of all clients.
const USER: u32 = 1001;

/// A simulated event. Connection numbers are never reused, so a message of a connection that has ended is dropped.
#[derive(Debug)]
enum Happening {
    ClientActs {
        client: usize,
    },
    ToFront {
        session: u64,
        request: AnyRequest,
    },
    ToClient {
        session: u64,
        answer: Box<Answer>,
    },
    /// The client notices that its connection has ended.
    ClientLost {
        session: u64,
    },
    LinkMeets {
        link: u64,
    },
    ToCell {
        link: u64,
        request: AnyRequest,
    },
    ToDesk {
        link: u64,
        answer: Box<Answer>,
    },
    /// The front notices that its connection to a cell has ended. `met`: the cell had sent its greeting before.
    LinkEnds {
        session: u64,
        cell: u32,
        link: u64,
        met: bool,
    },
    CellHangup {
        cell: u32,
        life: u64,
        link: u64,
    },
    DeskTick {
        session: u64,
    },
    Flushed {
        cell: u32,
        life: u64,
    },
    Turn {
        cell: u32,
        life: u64,
    },
    CellStarts {
        cell: u32,
    },
    CellGoesOn {
        cell: u32,
    },
    FrontStarts,
    FaultStrikes,
    /// A timer of a cell's controller expires.
    CellTick {
        cell: u32,
        life: u64,
    },
    CourierCalls {
        cell: u32,
    },
    NodeCalls {
        key: NodeKey,
    },
    NodeOpens {
        cell: u32,
        life: u64,
        link: u64,
    },
    FromNode {
        cell: u32,
        life: u64,
        link: u64,
        frame: Box<UpFrame>,
    },
    ToNode {
        key: NodeKey,
        link: u64,
        frame: Box<DownFrame>,
    },
    ScriptEnds {
        key: NodeKey,
        job: JobAttempt,
    },
}

/// A cell: its controller and its disk.
#[derive(Debug)]
struct Cell {
    /// The pipeline of the cell's controller. None while the controller is down.
    pipeline: Option<Pipeline<()>>,
    config: Config,
    life: u64,
    disk: Vec<Record>,
    /// Records that were appended to the disk and not yet flushed.
    unflushed: Vec<Record>,
    inbox: Vec<Input>,
    /// Time of the next planned timer event of the cell's controller.
    due: Option<Time>,
    /// Whether the cell's controller makes no progress, as after SIGSTOP.
    stopped: bool,
}

/// A client's connection to the front, with the front's gateway session.
#[derive(Debug)]
struct Session {
    desk: Desk,
    links: BTreeMap<u32, u64>,
}

/// A connection of the front to a cell.
#[derive(Debug)]
struct CellLink {
    session: u64,
    cell: u32,
    /// Incarnation of the cell's controller. None: the cell has not sent its greeting yet.
    met: Option<u64>,
    /// Requests held back until the cell's greeting.
    waiting: Vec<AnyRequest>,
}

/// State of a simulation of cells and their front.
#[derive(Debug)]
struct World {
    now: Time,
    agenda: Agenda<Happening>,
    seed: Seed,
    mutation: Option<Mutation>,
    configs: Vec<Config>,
    cells: BTreeMap<u32, Cell>,
    nodes: BTreeMap<NodeKey, Node>,
    front_up: bool,
    /// The front's cross-cell relay. None: no relay is running.
    courier: Option<Courier>,
    /// Connections of the relay, by cell.
    courier_links: BTreeMap<u32, u64>,
    /// Table of all cells, by which the front routes requests.
    fixed: Arc<Cells>,
    sessions: BTreeMap<u64, Session>,
    links: BTreeMap<u64, CellLink>,
    clients: Vec<Client>,
    /// Arrival time of the last message in flight, by (connection, direction); later messages arrive after it.
    last: BTreeMap<(u64, bool), Time>,
    numbers: u64,
    /// Whether fault injection has ended.
    healed: bool,
    judge: Judge,
    steps: u64,
    trace: Vec<String>,
}

impl World {
    fn new(cells: u32, mutation: Option<Mutation>, seed: u64) -> Self {
        let mut seed = Seed::new(seed);
        let configs: Vec<Config> = (0..cells).map(|cell| config(cell, seed.between(1, 8) as u32)).collect();
        let mut world = Self {
            now: BEGIN,
            agenda: Agenda::new(),
            seed,
            mutation,
            cells: BTreeMap::new(),
            nodes: BTreeMap::new(),
            front_up: false,
            courier: None,
            courier_links: BTreeMap::new(),
            fixed: Arc::new(Cells::new(&configs).expect("cells of a world can stand beside each other")),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            clients: Vec::new(),
            last: BTreeMap::new(),
            numbers: 0,
            healed: false,
            judge: Judge::default(),
            steps: 0,
            trace: Vec::new(),
            configs,
        };
        for number in 0..cells {
            let mut config = world.configs[number as usize].clone();
            if mutation == Some(Mutation::CellIdsShared) {
                config.cell = None;
            }
            let cell = Cell {
                pipeline: None,
                config,
                life: 0,
                disk: Vec::new(),
                unflushed: Vec::new(),
                inbox: Vec::new(),
                due: None,
                stopped: false,
            };
            let names = squall_model::hostlist::expand(&cell.config.nodes[0].name).unwrap_or_default();
            world.nodes.extend((0..).zip(names).map(|(at, name)| ((number, at), Node::new(name))));
            world.cells.insert(number, cell);
            world.cell_starts(number);
        }
        world.front_starts();
        world
    }

    fn after(&mut self, span: Span, what: Happening) {
        self.agenda.at(self.now + span, what);
    }

    fn say(&mut self, text: impl Into<String>) {
        let time = self.now.since(BEGIN);
        self.trace.push(format!("{:>6}.{:06} {}", time.secs(), time.0 % 1_000_000, text.into()));
    }

    /// Schedules a message's arrival, after all earlier ones of the same connection and direction.
    fn under_way(&mut self, connection: u64, down: bool, what: Happening) {
        let delay = self.seed.span(Span(20), Span(2000));
        let last = self.last.entry((connection, down)).or_default();
        *last = (self.now + delay).max(*last + Span(1));
        let at = *last;
        self.agenda.at(at, what);
    }

    fn run_until(&mut self, until: Time) {
        while let Some((time, what)) = self.agenda.pop(until) {
            self.now = time;
            self.steps += 1;
            self.happen(what);
            if self.judge.violation.is_some() {
                return;
            }
        }
        self.now = until;
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::ClientActs { client } => self.client_acts(client),
            Happening::ToFront { session, request } => self.desk(session, front::Input::Asked(request)),
            Happening::ToClient { session, answer } => self.client_hears(session, *answer),
            Happening::ClientLost { session } => self.client_lost(session),
            Happening::LinkMeets { link } => self.link_meets(link),
            Happening::ToCell { link, request } => self.cell_hears(link, request),
            Happening::ToDesk { link, answer } => self.desk_hears(link, answer),
            Happening::LinkEnds { session, cell, link, met } => self.link_ends(session, cell, link, met),
            Happening::CellHangup { cell, life, link } => {
                self.tell_cell(cell, life, Input::Hangup { caller: CallerId(link), away: true });
            }
            Happening::DeskTick { session } => self.desk(session, front::Input::Tick),
            Happening::Flushed { cell, life } => self.flushed(cell, life),
            Happening::Turn { cell, life } => self.goes_on(cell, life),
            Happening::CellStarts { cell } => self.cell_starts(cell),
            Happening::CellGoesOn { cell } => self.cell_goes_on(cell),
            Happening::FrontStarts => self.front_starts(),
            Happening::FaultStrikes => self.fault_strikes(),
            Happening::CellTick { cell, life } => self.cell_ticks(cell, life),
            Happening::CourierCalls { cell } => self.courier_calls(cell),
            Happening::NodeCalls { key } => self.node_calls(key),
            Happening::NodeOpens { cell, life, link } => self.cell_hears_node(cell, life, link, None),
            Happening::FromNode { cell, life, link, frame } => self.cell_hears_node(cell, life, link, Some(frame)),
            Happening::ToNode { key, link, frame } => self.node_hears(key, link, *frame),
            Happening::ScriptEnds { key, job } => self.script_ends(key, job),
        }
    }

    // Front.

    /// Opens a client's connection. Returns its session number; None: the front is down.
    fn call(&mut self) -> Option<u64> {
        if !self.front_up {
            return None;
        }
        let mut configs = self.configs.clone();
        if self.mutation == Some(Mutation::RoutedByLoad) {
            // Cells with little load are made to look larger.
            for config in &mut configs {
                let cell = config.cell.unwrap_or_default();
                config.nodes[0].name = nodes(cell, self.seed.spread(1, 500) as u32);
            }
        }
        let cells = Arc::new(Cells::new(&configs).ok()?);
        self.numbers += 1;
        self.sessions.insert(self.numbers, Session { desk: Desk::new(cells), links: BTreeMap::new() });
        Some(self.numbers)
    }

    fn desk(&mut self, number: u64, input: front::Input) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let mut out = front::Out::default();
        let before = session.desk.deadline();
        session.desk.step(self.now, input, &mut out);
        let deadline = session.desk.deadline().filter(|due| Some(*due) != before);
        for (cell, request) in out.sends {
            self.pass_on(number, cell, request);
        }
        for cell in out.drops {
            let link = self.sessions.get_mut(&number).and_then(|session| session.links.remove(&cell));
            self.end_link(link, false);
        }
        for answer in out.answers {
            if self.mutation == Some(Mutation::AbsenceUnsaid) && matches!(answer, Answer::Without(_)) {
                continue;
            }
            self.under_way(number, false, Happening::ToClient { session: number, answer: Box::new(answer) });
        }
        if out.hangup {
            return self.end_session(number);
        }
        if let Some(due) = deadline {
            self.agenda.at(due, Happening::DeskTick { session: number });
        }
    }

    fn pass_on(&mut self, session: u64, cell: u32, request: AnyRequest) {
        let known = self.sessions.get(&session).and_then(|session| session.links.get(&cell)).copied();
        let number = known.unwrap_or_else(|| {
            self.numbers += 1;
            let link = self.numbers;
            self.links.insert(link, CellLink { session, cell, met: None, waiting: Vec::new() });
            if let Some(session) = self.sessions.get_mut(&session) {
                session.links.insert(cell, link);
            }
            self.under_way(link, true, Happening::LinkMeets { link });
            link
        });
        self.send_over(number, request);
    }

    /// Sends a request over a connection to a cell, or holds it back until the cell's greeting.
    fn send_over(&mut self, number: u64, request: AnyRequest) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.met.is_some() {
            self.under_way(number, true, Happening::ToCell { link: number, request });
        } else {
            link.waiting.push(request);
        }
    }

    fn link_meets(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let cell = &self.cells[&link.cell];
        if cell.pipeline.is_none() || cell.stopped {
            return self.end_link(Some(number), true);
        }
        link.met = Some(cell.life);
        for request in std::mem::take(&mut link.waiting) {
            self.under_way(number, true, Happening::ToCell { link: number, request });
        }
    }

    fn desk_hears(&mut self, number: u64, answer: Box<Answer>) {
        let Some(link) = self.links.get(&number) else { return };
        let (session, cell) = (link.session, link.cell);
        if session == COURIER {
            return self.courier_told(cell, *answer);
        }
        self.desk(session, front::Input::Answered { cell, answer });
    }

    fn link_ends(&mut self, number: u64, cell: u32, link: u64, met: bool) {
        if number == COURIER {
            return self.courier_loses(cell, link);
        }
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if session.links.get(&cell) != Some(&link) {
            return;
        }
        session.links.remove(&cell);
        let heard = met && self.mutation != Some(Mutation::LostTakenForAway);
        self.desk(number, if heard { front::Input::Lost { cell } } else { front::Input::Away { cell } });
    }

    /// Ends a connection to a cell. `front_sees`: the front is notified, because the cell's side ended it.
    fn end_link(&mut self, number: Option<u64>, front_sees: bool) {
        let Some((number, link)) = number.and_then(|number| Some((number, self.links.remove(&number)?))) else {
            return;
        };
        if front_sees {
            let (session, cell, met) = (link.session, link.cell, link.met.is_some());
            self.under_way(number, false, Happening::LinkEnds { session, cell, link: number, met });
        }
        if let Some(life) = link.met {
            self.under_way(number, true, Happening::CellHangup { cell: link.cell, life, link: number });
        }
    }

    /// Ends a client's connection and the session's connections to cells.
    fn end_session(&mut self, number: u64) {
        let Some(session) = self.sessions.remove(&number) else { return };
        for link in session.links.into_values() {
            self.end_link(Some(link), false);
        }
        self.under_way(number, false, Happening::ClientLost { session: number });
    }

    fn crash_front(&mut self) {
        self.say("FAULT front killed");
        (self.front_up, self.courier) = (false, None);
        for link in std::mem::take(&mut self.courier_links).into_values() {
            self.end_link(Some(link), false);
        }
        for number in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.end_session(number);
        }
    }

    // Cells and their controllers.

    fn cell_starts(&mut self, number: u32) {
        let Some(cell) = self.cells.get_mut(&number) else { return };
        if cell.pipeline.is_some() {
            return;
        }
        let mut state = State::default();
        for record in &cell.disk {
            state.apply_record(record);
        }
        cell.life += 1;
        let mut machine = Controller::new(state);
        machine.set_page(PAGE);
        cell.pipeline = Some(Pipeline::new(machine, cell.disk.len() as u64 + 1));
        let config = Box::new(cell.config.clone());
        cell.inbox.push(Input::Start { config, version: "sim".into(), host: "sim".into() });
        self.turn(number);
        for key in self.nodes.keys().copied().filter(|key| key.0 == number).collect::<Vec<_>>() {
            self.after(Span(1000), Happening::NodeCalls { key });
        }
    }

    fn crash_cell(&mut self, number: u32) {
        self.say(format!("FAULT cell {number} killed"));
        let Some(cell) = self.cells.get_mut(&number) else { return };
        (cell.pipeline, cell.stopped, cell.due) = (None, false, None);
        cell.inbox.clear();
        // Records that were appended but not flushed may survive the crash.
        let records = std::mem::take(&mut cell.unflushed);
        if !records.is_empty() && self.seed.chance(500_000) {
            cell.disk.extend(records);
        }
        let own: Vec<u64> = self.links.iter().filter(|(_, link)| link.cell == number).map(|(link, _)| *link).collect();
        for link in own {
            self.end_link(Some(link), true);
        }
        self.survey();
    }

    fn cell_goes_on(&mut self, number: u32) {
        if let Some(cell) = self.cells.get_mut(&number) {
            cell.stopped = false;
        }
        self.turn(number);
    }

    fn cell_hears(&mut self, number: u64, request: AnyRequest) {
        let Some(link) = self.links.get(&number) else { return };
        let (cell, Some(life)) = (link.cell, link.met) else { return };
        let request = match request {
            AnyRequest::Machine(request) => request,
            AnyRequest::Host(HostRequest::Accounting(query)) => {
                let answer = Box::new(carrier::accounting(&self.cells[&cell].disk, &query));
                return self.under_way(number, false, Happening::ToDesk { link: number, answer });
            }
            // No other request of the host is sent here.
            AnyRequest::Host(_) => return,
        };
        let who = Who { owner: Arc::new(owner()), operator: link.session == COURIER, by: None, job: None };
        self.tell_cell(cell, life, Input::Ask { caller: CallerId(number), who, request });
    }

    fn tell_cell(&mut self, number: u32, life: u64, input: Input) {
        let Some(cell) = self.cells.get_mut(&number).filter(|cell| cell.life == life && cell.pipeline.is_some()) else {
            return;
        };
        cell.inbox.push(input);
        self.turn(number);
    }

    /// Runs one controller iteration of a cell over all queued inputs, unless a flush is in progress.
    fn turn(&mut self, number: u32) {
        let Some(cell) = self.cells.get_mut(&number).filter(|cell| !cell.stopped && !cell.inbox.is_empty()) else {
            return;
        };
        let Some(pipeline) = cell.pipeline.as_mut().filter(|pipeline| !pipeline.is_flushing()) else { return };
        pipeline.begin(self.now);
        for input in std::mem::take(&mut cell.inbox) {
            pipeline.take(input);
        }
        pipeline.settle();
        if pipeline.machine().lists() {
            cell.inbox.push(Input::Page);
        }
        match pipeline.commit() {
            Some(Commit::Append(Append { records, .. })) => {
                cell.unflushed.extend(records.iter().cloned());
                let (wait, life) = (self.seed.span(Span(200), Span(3000)), cell.life);
                self.after(wait, Happening::Flushed { cell: number, life });
            }
            Some(Commit::Release(release)) => {
                self.release(number, release);
                let life = self.cells[&number].life;
                self.after(Span(1), Happening::Turn { cell: number, life });
            }
            Some(Commit::Fenced(_)) | None => {}
        }
    }

    fn flushed(&mut self, number: u32, life: u64) {
        let Some(cell) = self.cells.get_mut(&number).filter(|cell| cell.life == life) else { return };
        let news = !cell.unflushed.is_empty();
        cell.disk.append(&mut cell.unflushed);
        let release = cell.pipeline.as_mut().and_then(Pipeline::flushed);
        if news {
            self.survey();
        }
        if let Some(release) = release {
            self.release(number, release);
        }
        self.turn(number);
        self.wind(number);
    }

    /// Runs a controller iteration over the inputs that have arrived since the last one, if the cell is still in
    /// incarnation `life`.
    fn goes_on(&mut self, number: u32, life: u64) {
        if self.cells.get(&number).is_some_and(|cell| cell.life == life) {
            self.turn(number);
            self.wind(number);
        }
    }

    fn release(&mut self, number: u32, release: Release<()>) {
        let Release { answers, sends, drops, .. } = release;
        for (caller, answer) in answers {
            if self.links.contains_key(&caller.0) {
                self.under_way(caller.0, false, Happening::ToDesk { link: caller.0, answer: Box::new(answer) });
            }
        }
        for (link, frame) in sends {
            self.send_to_node(number, link, frame);
        }
        for link in drops {
            self.node_dropped(number, link);
        }
    }

    /// Schedules the cell's next timer event at the deadline that its controller reports.
    fn wind(&mut self, number: u32) {
        let Some(cell) = self.cells.get_mut(&number).filter(|cell| cell.unflushed.is_empty()) else { return };
        let due = cell.pipeline.as_ref().and_then(Pipeline::deadline).map(|due| due.max(self.now));
        if due.is_some() && cell.due != due {
            cell.due = due;
            let life = cell.life;
            self.agenda.at(due.unwrap_or_default(), Happening::CellTick { cell: number, life });
        }
    }

    fn cell_ticks(&mut self, number: u32, life: u64) {
        let now = self.now;
        let due = |cell: &&mut Cell| cell.life == life && cell.due.is_some_and(|due| due <= now);
        if let Some(cell) = self.cells.get_mut(&number).filter(due) {
            cell.due = None;
            self.tell_cell(number, life, Input::Tick);
        }
    }

    /// Has the judge examine the records on all disks.
    fn survey(&mut self) {
        let disks: Vec<(u32, &[Record])> = self.cells.iter().map(|(number, cell)| (*number, &cell.disk[..])).collect();
        self.judge.survey(&disks);
    }
}

fn owner() -> Owner {
    Owner { uid: USER, gid: USER, groups: vec![USER], user: format!("user{USER}"), group: "users".into() }
}

fn nodes(cell: u32, count: u32) -> String {
    if count == 1 { format!("c{cell}n1") } else { format!("c{cell}n[1-{count}]") }
}

fn config(cell: u32, count: u32) -> Config {
    let mut config = Config { cell: Some(cell), ..Config::default() };
    config.nodes.push(NodeConfig { name: nodes(cell, count), cpus: Some(4), ..NodeConfig::default() });
    config.min_job_age_s = KEPT_S;
    config.complete();
    config
}
