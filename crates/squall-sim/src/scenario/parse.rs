//! Parser of scenarios: from text to statements.

use std::fmt;

use squall_model::checkpoint::{CheckpointPlan, CheckpointVerb};
use squall_model::hostlist;
use squall_model::job::network::{self, Network};
use squall_model::job::{ArraySpec, DependencyKind, JobKind};
use squall_model::places::OnNodeFail;
use squall_model::policy::{Limit, Qos, Scope, Tres};
use squall_model::set::IndexSet;
use squall_model::time::Span;
use squall_model::wire::fabric::{Comparison, Test, Variable};

use super::expect::Expectation;
use crate::network::{Direction, Weather};
use crate::order::Order;
use crate::query::Question;
use crate::world::controller::CrashPoint;
use crate::world::restore::RestoreMethod;

/// Error in a line of a scenario that is not a valid statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Number of the line in the scenario, from 1.
    pub line: usize,
    /// Description of the error in the line.
    pub problem: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// Part of the cluster that a scenario can crash and restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The controller process.
    Controller,
    /// Node daemons of the named nodes.
    Nodes(Vec<String>),
    /// The named nodes as a whole: they lose power.
    Power(Vec<String>),
    /// The step daemons of the job with this order name.
    Steps(String),
    /// The srun or salloc of the job with this order name.
    Client(String),
    /// The next restore of the job with this order name.
    Restore(String),
    /// The dump that is being made of the job with this order name.
    Dump(String),
    /// The processes of the submit filter.
    Filter,
}

/// Action of an operator or user on a job or on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Cancel,
    Signal,
    Hold,
    Release,
    Requeue,
    Suspend,
    Unsuspend,
    Checkpoint(CheckpointVerb),
    Drain,
    Resume,
    Down,
    Remove,
    Create,
}

/// Expected position of a node in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The node has a session with the controller, and the controller shows it as connected.
    Connected,
    /// The controller shows the node as not connected. Nothing is checked about the tree.
    Away,
    /// The node's parent is this node, or the controller.
    Under(String),
}

/// Reservation of nodes that a scenario's operator creates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Booking {
    pub(crate) name: String,
    pub(crate) nodes: String,
    /// Number of nodes that the controller chooses, instead of `nodes`.
    pub(crate) count: Option<u32>,
    /// Time from the statement's execution until the reservation begins.
    pub(crate) starts_in: Span,
    pub(crate) lasts: Span,
    /// Users who may use the reservation; empty: every user.
    pub(crate) users: Vec<String>,
    pub(crate) flags: Vec<String>,
}

/// One statement of a scenario.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    /// Rotates the controllers' keys.
    RotateKeys,
    /// Copies the spools of nodes.
    SpoolCopied {
        nodes: Vec<String>,
    },
    /// Replaces the spools of nodes by their copies, while the node daemons are down.
    SpoolRolledBack {
        nodes: Vec<String>,
    },
    /// Removes a job's directories from the spools of nodes, while the node daemons are down.
    SpoolLoses {
        nodes: Vec<String>,
        job: String,
    },
    Cluster {
        nodes: Vec<String>,
        cores: u32,
        memory_mb: u64,
        tree_width: u32,
        signed: bool,
        multicast: Option<u32>,
        /// Kind of network (`torus`, `leaf` or `block`), and its size.
        network: Option<(String, String)>,
    },
    Config {
        key: String,
        value: u64,
    },
    Seed(u64),
    Weather(Weather),
    Submit(Box<Order>, Vec<(DependencyKind, String)>),
    Crash {
        victim: Victim,
        at: Option<(CrashPoint, u32)>,
    },
    /// Copies the controller's disk (`restore` None), or brings a copy back: the last one, or that of a number.
    Backup {
        restore: Option<(RestoreMethod, Option<usize>)>,
    },
    /// A node claims to have heard of a newer controller.
    Lie {
        node: String,
    },
    Restart {
        victim: Victim,
        after: Span,
    },
    Cut {
        nodes: Vec<String>,
        ways: Vec<Direction>,
    },
    CutBetween {
        from: String,
        to: String,
    },
    CutSubtree {
        head: String,
    },
    Heal {
        nodes: Vec<String>,
    },
    Reset {
        nodes: Vec<String>,
    },
    /// The connection of the srun or salloc of the job with this order name breaks.
    ResetClient {
        job: String,
    },
    /// All clients are on another machine than the controller.
    ClientsAway,
    Deaf {
        nodes: Vec<String>,
    },
    Slow {
        nodes: Vec<String>,
        times: u64,
    },
    Disk {
        full: bool,
        /// Bytes that can still be written although the disk is full. None: any number.
        room: Option<u64>,
    },
    SlowDisk {
        flush: Span,
    },
    Clock {
        by_us: i64,
    },
    Spool {
        nodes: Vec<String>,
        full: bool,
    },
    SlowSpool {
        nodes: Vec<String>,
        each: Span,
    },
    ToJob {
        action: Action,
        job: String,
        index: Option<u32>,
    },
    /// A node of a job is replaced (`scontrol replace`).
    Replace {
        job: String,
        node: String,
    },
    ToNodes {
        action: Action,
        nodes: Vec<String>,
    },
    ShutDown {
        keep_jobs: bool,
    },
    /// The daemons are stopped (SIGSTOP), and go on later.
    Stop {
        victim: Victim,
        span: Span,
    },
    /// From now on nodes that run must be in session.
    WatchSessions,
    Run(Span),
    Expect(Box<Expectation>),
    /// A user follows events from now on.
    Follow,
    ExpectFollower {
        missed: bool,
    },
    Query(Box<Question>),
    Bring {
        name: String,
        size: usize,
        nodes: Vec<String>,
    },
    Qos {
        name: String,
        qos: Box<Qos>,
    },
    Reserve(Box<Booking>),
    Unreserve(String),
    ExpectBrought {
        name: String,
        nowhere: Option<usize>,
    },
    ExpectAnswer {
        query: String,
        no: Vec<String>,
        unreachable: Vec<String>,
    },
    /// Checks for which nodes the step's srun reported missing output.
    ExpectOutput {
        job: String,
        missing: Vec<String>,
    },
    ExpectNodes {
        nodes: Vec<String>,
        place: Placement,
    },
}

/// Parses all statements of a scenario, with their line numbers.
pub(crate) fn parse(text: &str) -> Result<Vec<(usize, Statement)>, ParseError> {
    let mut story = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let parsed = statement(&words).map_err(|problem| ParseError { line: at + 1, problem })?;
        story.push((at + 1, parsed));
    }
    Ok(story)
}

#[expect(clippy::too_many_lines, reason = "a table: a row for each statement")]
fn statement(words: &[&str]) -> Result<Statement, String> {
    match *words {
        ["cluster", list, ref rest @ ..] => cluster(list, rest),
        ["config", pair] => {
            let (key, value) = pair.split_once('=').ok_or("config needs KEY=NUMBER")?;
            Ok(Statement::Config { key: key.into(), value: number(value)? })
        }
        ["seed", n] => Ok(Statement::Seed(number(n)?)),
        ["weather", "foul"] => Ok(Statement::Weather(Weather::FOUL)),
        ["weather", "tar"] => Ok(Statement::Weather(Weather::TAR)),
        ["weather", "fine"] => Ok(Statement::Weather(Weather::FINE)),
        ["submit", name, ref rest @ ..] => submit(JobKind::Batch, name, rest),
        ["srun", name, ref rest @ ..] => submit(JobKind::Run, name, rest),
        ["salloc", name, ref rest @ ..] => submit(JobKind::Allocation, name, rest),
        ["crash", ref rest @ ..] => crash(rest),
        ["restart", ref rest @ ..] => restart(rest),
        ["lie", node] => Ok(Statement::Lie { node: node.into() }),
        ["backup" | "restore", "controller", ref rest @ ..] => backup(words[0] == "restore", rest),
        ["cut", "subtree", head] => Ok(Statement::CutSubtree { head: head.into() }),
        ["cut", from, "to", to] => Ok(Statement::CutBetween { from: from.into(), to: to.into() }),
        ["query", name, variable, comparison, value, ref rest @ ..] => query(name, variable, (comparison, value), rest),
        ["qos", name, ref rest @ ..] => qos(name, rest),
        ["reserve", name, ref rest @ ..] => reserve(name, rest),
        ["unreserve", name] => Ok(Statement::Unreserve(name.into())),
        ["bring", name, size, "to", list] => {
            let size = number(size)? as usize;
            Ok(Statement::Bring { name: name.into(), size, nodes: names(list)? })
        }
        ["follow", "events"] => Ok(Statement::Follow),
        ["expect", "follower", "missed", "nothing"] => Ok(Statement::ExpectFollower { missed: false }),
        ["expect", "follower", "missed", "some"] => Ok(Statement::ExpectFollower { missed: true }),
        ["expect", name, "everywhere"] => Ok(Statement::ExpectBrought { name: name.into(), nowhere: None }),
        ["expect", name, "nowhere", "of", all] => {
            Ok(Statement::ExpectBrought { name: name.into(), nowhere: Some(number(all)? as usize) })
        }
        ["expect", name, "output", ref rest @ ..] => output(name, rest),
        ["expect", "query", name, ref rest @ ..] => answer(name, rest),
        ["expect", "nodes", list, ref rest @ ..] => placed(list, rest),
        ["cut", list] => Ok(Statement::Cut { nodes: names(list)?, ways: vec![Direction::Out, Direction::In] }),
        ["cut", list, "up"] => Ok(Statement::Cut { nodes: names(list)?, ways: vec![Direction::Out] }),
        ["cut", list, "down"] => Ok(Statement::Cut { nodes: names(list)?, ways: vec![Direction::In] }),
        ["heal", list] => Ok(Statement::Heal { nodes: names(list)? }),
        ["deaf", list] => Ok(Statement::Deaf { nodes: names(list)? }),
        ["reset", "client", job] => Ok(Statement::ResetClient { job: job.into() }),
        ["clients", "on", "login"] => Ok(Statement::ClientsAway),
        ["reset", list] => Ok(Statement::Reset { nodes: names(list)? }),
        ["slow", list, times] => {
            Ok(Statement::Slow { nodes: names(list)?, times: number(times.trim_start_matches('x'))? })
        }
        ["disk", "full"] => Ok(Statement::Disk { full: true, room: None }),
        ["disk", "full", "without", "reserve"] => Ok(Statement::Disk { full: true, room: Some(0) }),
        ["disk", "free"] => Ok(Statement::Disk { full: false, room: None }),
        ["disk", "flushes", "in", time] => Ok(Statement::SlowDisk { flush: span(time)? }),
        ["clock", "ahead", time] => Ok(Statement::Clock { by_us: span(time)?.0.cast_signed() }),
        ["clock", "back", time] => Ok(Statement::Clock { by_us: -span(time)?.0.cast_signed() }),
        ["spool", list, ref rest @ ..] => spool(names(list)?, rest),
        ["replace", job, node] => Ok(Statement::Replace { job: job.into(), node: node.into() }),
        ["drain", list] => Ok(Statement::ToNodes { action: Action::Drain, nodes: names(list)? }),
        ["resume", list] => Ok(Statement::ToNodes { action: Action::Resume, nodes: names(list)? }),
        ["remove", list] => Ok(Statement::ToNodes { action: Action::Remove, nodes: names(list)? }),
        ["create", list] => Ok(Statement::ToNodes { action: Action::Create, nodes: names(list)? }),
        ["down", list] => Ok(Statement::ToNodes { action: Action::Down, nodes: names(list)? }),
        ["rotate", "keys"] => Ok(Statement::RotateKeys),
        ["cancel", job] => to_job(Action::Cancel, job),
        ["signal", job] => to_job(Action::Signal, job),
        ["hold", job] => to_job(Action::Hold, job),
        ["release", job] => to_job(Action::Release, job),
        ["requeue", job] => to_job(Action::Requeue, job),
        ["suspend", job] => to_job(Action::Suspend, job),
        ["checkpoint", job] => to_job(Action::Checkpoint(CheckpointVerb::Create), job),
        ["vacate", job] => to_job(Action::Checkpoint(CheckpointVerb::Vacate), job),
        ["rewind", job] => to_job(Action::Checkpoint(CheckpointVerb::Restart), job),
        ["unsuspend", job] => to_job(Action::Unsuspend, job),
        ["shut", "down", "keeping", "jobs"] => Ok(Statement::ShutDown { keep_jobs: true }),
        ["shut", "down", "ending", "jobs"] => Ok(Statement::ShutDown { keep_jobs: false }),
        ["stop", ref who @ .., "for", time] => Ok(Statement::Stop { victim: victim(who)?, span: span(time)? }),
        ["watch", "sessions"] => Ok(Statement::WatchSessions),
        ["run", time] => Ok(Statement::Run(span(time)?)),
        ["expect", ref rest @ ..] => Ok(Statement::Expect(Box::new(super::expect::parse(rest)?))),
        _ => Err(format!("`{}` is not a statement", words.join(" "))),
    }
}

/// Parses the rest of a line such as `spool n1 loses a`.
fn spool(nodes: Vec<String>, rest: &[&str]) -> Result<Statement, String> {
    match *rest {
        ["full"] => Ok(Statement::Spool { nodes, full: true }),
        ["free"] => Ok(Statement::Spool { nodes, full: false }),
        ["copied"] => Ok(Statement::SpoolCopied { nodes }),
        ["rolled", "back"] => Ok(Statement::SpoolRolledBack { nodes }),
        ["loses", job] => Ok(Statement::SpoolLoses { nodes, job: job.into() }),
        ["takes", time] => Ok(Statement::SlowSpool { nodes, each: span(time)? }),
        _ => Err(format!("`{}` does not happen to a spool", rest.join(" "))),
    }
}

/// Parses the rest of a line such as `qos high priority=10 preempt=low max-jobs-per-user=2 cpus=8 nodes=4 jobs=3
/// billing=16 grace=20`.
fn qos(name: &str, rest: &[&str]) -> Result<Statement, String> {
    let mut qos = Qos::default();
    for pair in rest {
        let (key, value) = pair.split_once('=').ok_or(format!("`{pair}` should be KEY=VALUE"))?;
        let limit = match key {
            "preempt" => {
                qos.preempt = value.split(',').map(str::to_owned).collect();
                continue;
            }
            "priority" => {
                qos.priority = number(value)? as u32;
                continue;
            }
            "grace" => {
                qos.grace_s = number(value)?;
                continue;
            }
            "max-jobs-per-user" => Limit::UserJobs,
            "cpus" => Limit::GrpCpu,
            "nodes" => Limit::GrpNode,
            "jobs" => Limit::GrpJobs,
            "billing" => Limit::Tres(Scope::Grp, Tres::Billing),
            _ => return Err(format!("`{key}` is not known of a QOS")),
        };
        qos.limits.insert(limit, number(value)?);
    }
    Ok(Statement::Qos { name: name.into(), qos: Box::new(qos) })
}

/// Parses the rest of a line such as `reserve r nodes=n[1-2] in=60s for=10m users=user1001 flags=maint,daily`; `count=2`
/// instead of `nodes=`: any two.
fn reserve(name: &str, rest: &[&str]) -> Result<Statement, String> {
    let mut booking = Booking { name: name.into(), ..Booking::default() };
    let list = |value: &str| value.split(',').map(str::to_owned).collect();
    for pair in rest {
        match pair.split_once('=') {
            Some(("nodes", value)) => booking.nodes = value.into(),
            Some(("count", value)) => booking.count = u32::try_from(number(value)?).ok(),
            Some(("in", value)) => booking.starts_in = span(value)?,
            Some(("for", value)) => booking.lasts = span(value)?,
            Some(("users", value)) => booking.users = list(value),
            Some(("flags", value)) => booking.flags = list(value),
            _ => return Err(format!("a reservation has nodes= or count=, in=, for=, users= and flags=, not `{pair}`")),
        }
    }
    Ok(Statement::Reserve(Box::new(booking)))
}

fn cluster(list: &str, rest: &[&str]) -> Result<Statement, String> {
    let (mut cores, mut memory_mb, mut tree_width, mut multicast, mut network) = (1, 0, 0, None, None);
    let mut signed = false;
    for pair in rest {
        match pair.split_once('=') {
            None if *pair == "signed" => signed = true,
            Some(("cores", n)) => cores = number(n)? as u32,
            Some(("memory", n)) => memory_mb = number(n)?,
            Some(("width", n)) => tree_width = number(n)? as u32,
            Some((kind @ ("torus" | "leaf" | "block"), size)) => network = Some((kind.to_owned(), size.to_owned())),
            Some(("multicast", lost)) => multicast = Some(number(lost.trim_end_matches('%'))? as u32 * 10_000),
            _ => {
                return Err(format!(
                    "a cluster has signed, cores=N, memory=MIB, width=N, torus=AxBxC, leaf=N, block=N and multicast=PERCENT-LOST, \
                     not `{pair}`"
                ));
            }
        }
    }
    let memory_mb = if memory_mb == 0 { u64::from(cores) * 1024 } else { memory_mb };
    Ok(Statement::Cluster { nodes: names(list)?, cores, memory_mb, tree_width, signed, multicast, network })
}

/// Parses the rest of a line such as `query q v = 0 write 1 within 2s wait`.
fn query(name: &str, variable: &str, (word, value): (&str, &str), rest: &[&str]) -> Result<Statement, String> {
    let comparison = match word {
        ">=" => Comparison::AtLeast,
        "<" => Comparison::Less,
        "=" => Comparison::Equal,
        "!=" => Comparison::Different,
        _ => return Err(format!("`{word}` is not >=, <, = or !=")),
    };
    let variable = match variable {
        "heard" => Variable::Heard,
        name => Variable::Named(name.into()),
    };
    let test = Test { variable: variable.clone(), comparison, value: number(value)? as i64 };
    let mut question = Question { name: name.into(), test, ..Question::probe() };
    let mut rest = rest;
    while let Some((word, after)) = rest.split_first() {
        rest = match (*word, after) {
            ("wait", _) => {
                question.wait = true;
                after
            }
            ("write", [value, tail @ ..]) => {
                question.write = Some((variable.clone(), number(value)? as i64));
                tail
            }
            ("within", [time, tail @ ..]) => {
                question.time = span(time)?;
                tail
            }
            _ => return Err(format!("`{word}` is not known of a query")),
        };
    }
    Ok(Statement::Query(Box::new(question)))
}

/// Parses the rest of `expect query q true`, `expect query q false on n2` or `expect query q unreachable n3`.
fn answer(name: &str, rest: &[&str]) -> Result<Statement, String> {
    let (no, unreachable) = match rest {
        ["true"] => (Vec::new(), Vec::new()),
        ["false", "on", list] => (names(list)?, Vec::new()),
        ["unreachable", list] => (Vec::new(), names(list)?),
        _ => return Err("an answer is `true`, `false on NODES` or `unreachable NODES`".into()),
    };
    Ok(Statement::ExpectAnswer { query: name.into(), no, unreachable })
}

/// Parses the rest of `expect nodes n1 connected`, `expect nodes n1 away` or `expect nodes n1 under n2`.
fn placed(list: &str, rest: &[&str]) -> Result<Statement, String> {
    let place = match *rest {
        ["connected"] => Placement::Connected,
        ["away"] => Placement::Away,
        ["under", parent] => Placement::Under(parent.into()),
        _ => return Err("nodes are `connected`, `away` or `under NODE`".into()),
    };
    Ok(Statement::ExpectNodes { nodes: names(list)?, place })
}

/// Parses the rest of `expect a output complete` or `expect a output missing on n1`.
fn output(job: &str, rest: &[&str]) -> Result<Statement, String> {
    let missing = match *rest {
        ["complete"] => Vec::new(),
        ["missing", "on", list] => names(list)?,
        _ => return Err("output is `complete` or `missing on NODES`".into()),
    };
    Ok(Statement::ExpectOutput { job: job.into(), missing })
}

fn submit(kind: JobKind, name: &str, rest: &[&str]) -> Result<Statement, String> {
    let mut order = Order { name: name.into(), kind, nodes: 1, cores: 1, ..Order::default() };
    order.steps = u32::from(kind != JobKind::Batch);
    order.run = Span::from_secs(1);
    let mut after = Vec::new();
    for word in rest {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "nodes" => order.nodes = number(value)? as u32,
            "beside" => order.beside = number(value)? as u32,
            "cores" => order.cores = number(value)? as u32,
            "memory" => order.memory_mb = number(value)?,
            "time" => order.run = span(value)?,
            "limit" => order.limit_s = Some(span(value)?.secs()),
            "step-limit" => order.step_limit_s = Some(span(value)?.secs()),
            "steps" => order.steps = number(value)? as u32,
            "exit" => match value.split_once('@') {
                Some((code, index)) => {
                    order.exit = number(code)? as u8;
                    order.exit_index = Some(number(index)? as u32);
                }
                None => order.exit = number(value)? as u8,
            },
            "array" => order.array = Some(array(value)?),
            "after" => after = dependencies(value, &mut order.any)?,
            "qos" => order.qos = Some(value.into()),
            "partition" => order.partition = Some(value.into()),
            "reservation" => order.reservation = Some(value.into()),
            "network" | "geometry" | "grid" | "stencil" | "switches" | "groups" => {
                wish(&mut order.options.network, key, value)?;
            }
            "exclusive" if value == "topo" => order.options.exclusive_topo = Some(true),
            "tasks" => order.tasks = Some(number(value)? as u32),
            "hold" => order.hold = true,
            "reboot" => order.options.reboot = Some(true),
            "delay-boot" => order.options.delay_boot_s = Some(span(value)?.secs()),
            "fence" => order.options.node_fence_s = Some(span(value)?.secs()),
            "requeue" => order.requeue = Some(value != "no"),
            "on-node-fail" => {
                let action = OnNodeFail::parse(value).ok_or_else(|| format!("`{word}` can't be understood"))?;
                order.options.on_node_fail = Some(action);
            }
            "checkpoint" => {
                let every_s = if value == "signal" { 0 } else { span(value)?.secs() };
                order.options.checkpoint = Some(CheckpointPlan { every_s, must: false });
            }
            "spares" => order.options.spare_nodes = Some(number(value)? as u32),
            "hides" => order.hides = true,
            "ignores-term" => order.stubborn = true,
            "loses-answer" => order.lose_answer = true,
            _ => return Err(format!("`{word}` is not known of a submission")),
        }
    }
    Ok(Statement::Submit(Box::new(order), after))
}

/// Parses an option about the network, such as `geometry=2x2x2`, into `wishes`.
fn wish(wishes: &mut Network, option: &str, value: &str) -> Result<(), String> {
    let wrong = || format!("`{option}={value}` can't be understood");
    match option {
        "network" => wishes.class = Some(network::class(value)),
        "geometry" => wishes.geometry = Some(network::geometry(value).ok_or_else(wrong)?),
        "grid" => wishes.grid = Some(network::grid(value).ok_or_else(wrong)?),
        "groups" => wishes.groups = Some(network::groups(value).ok_or_else(wrong)?),
        "stencil" => wishes.stencil = Some(network::stencil(value).ok_or_else(wrong)?),
        _ => wishes.switches = Some(network::switches(value).ok_or_else(wrong)?),
    }
    Ok(())
}

fn array(text: &str) -> Result<ArraySpec, String> {
    let (list, limit) = match text.split_once('%') {
        Some((list, limit)) => (list, Some(number(limit)? as u32)),
        None => (text, None),
    };
    let mut indices = IndexSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        indices.union_with(&IndexSet::range(number(first)? as u32, number(last)? as u32));
    }
    Ok(ArraySpec { indices, limit, text: text.into() })
}

fn dependencies(text: &str, any: &mut bool) -> Result<Vec<(DependencyKind, String)>, String> {
    *any = text.contains('?');
    text.split(['?', ','])
        .map(|term| {
            let (kind, name) = term.split_once(':').ok_or(format!("`{term}` should be KIND:NAME"))?;
            let kind = DependencyKind::of_word(kind).ok_or_else(|| format!("`{kind}` is not a kind of dependency"))?;
            Ok((kind, name.to_owned()))
        })
        .collect()
}

fn crash(rest: &[&str]) -> Result<Statement, String> {
    if let ["controller", "at", point] = *rest {
        let (name, n) = point.split_once('+').ok_or("a crash point is POINT+N")?;
        let point = match name {
            "decide" => CrashPoint::BeforeAppend,
            "append" => CrashPoint::BeforeFlush,
            "journal" => CrashPoint::BeforeRelease,
            "release" => CrashPoint::MidRelease,
            "recovery" => CrashPoint::InRecovery,
            _ => return Err(format!("`{name}` is not decide, append, journal, release or recovery")),
        };
        return Ok(Statement::Crash { victim: Victim::Controller, at: Some((point, number(n)? as u32)) });
    }
    let victim = if let ["filter"] = *rest { Victim::Filter } else { victim(rest)? };
    Ok(Statement::Crash { victim, at: None })
}

/// Parses the rest of `backup controller`, `restore controller`, `restore controller accepting loss` or `restore
/// controller from backup`, of which the last ones may name a backup by its number.
fn backup(restores: bool, rest: &[&str]) -> Result<Statement, String> {
    let (words, which) = match rest {
        [words @ .., last] if last.starts_with(|c: char| c.is_ascii_digit()) => (words, Some(number(last)? as usize)),
        words => (words, None),
    };
    let way = match (restores, words) {
        (false, []) if which.is_none() => return Ok(Statement::Backup { restore: None }),
        (true, []) => RestoreMethod::Copied,
        (true, ["accepting", "loss"]) => RestoreMethod::Accepted,
        (true, ["from", "backup"]) => RestoreMethod::Restored,
        _ => return Err(format!("`{}` is not known of a backup", rest.join(" "))),
    };
    Ok(Statement::Backup { restore: Some((way, which)) })
}

fn restart(rest: &[&str]) -> Result<Statement, String> {
    match rest {
        [who @ .., "after", time] => Ok(Statement::Restart { victim: victim(who)?, after: span(time)? }),
        who => Ok(Statement::Restart { victim: victim(who)?, after: Span(0) }),
    }
}

fn victim(words: &[&str]) -> Result<Victim, String> {
    match *words {
        ["controller"] => Ok(Victim::Controller),
        ["node", list] => Ok(Victim::Nodes(names(list)?)),
        ["power", list] => Ok(Victim::Power(names(list)?)),
        ["step", job] => Ok(Victim::Steps(job.into())),
        ["client", job] => Ok(Victim::Client(job.into())),
        ["dump", job] => Ok(Victim::Dump(job.into())),
        ["restore", job] => Ok(Victim::Restore(job.into())),
        _ => Err(format!(
            "`{}` is not controller, node LIST, power LIST, step JOB, client JOB, dump JOB or restore JOB",
            words.join(" ")
        )),
    }
}

fn to_job(action: Action, job: &str) -> Result<Statement, String> {
    let (job, index) = job_name(job)?;
    Ok(Statement::ToJob { action, job, index })
}

/// Parses a job order name such as `a`, or with a task index such as `a[3]`.
pub(super) fn job_name(text: &str) -> Result<(String, Option<u32>), String> {
    match text.strip_suffix(']').and_then(|t| t.split_once('[')) {
        Some((name, index)) => Ok((name.into(), Some(number(index)? as u32))),
        None => Ok((text.into(), None)),
    }
}

pub(super) fn names(list: &str) -> Result<Vec<String>, String> {
    hostlist::expand(list).map_err(|e| e.to_string())
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// Parses a duration such as `250ms`, `5s`, `2m` or `1h`.
pub(crate) fn span(text: &str) -> Result<Span, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let n = number(digits)?;
    match &text[digits.len()..] {
        "ms" => Ok(Span::from_millis(n)),
        "s" => Ok(Span::from_secs(n)),
        "m" => Ok(Span::from_secs(60 * n)),
        "h" => Ok(Span::from_secs(3600 * n)),
        unit => Err(format!("`{unit}` is not ms, s, m or h")),
    }
}
