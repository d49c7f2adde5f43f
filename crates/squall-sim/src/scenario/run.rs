//! Runs a scenario: executes its statements and checks its expectations.

use std::fmt;
use std::sync::Arc;

use squall_model::config::{NodeLostAction, PartitionConfig};
use squall_model::event::NodeAdmin;
use squall_model::gang::{Coscheduling, OverSubscribe, Preempt, TimeSlice};
use squall_model::job::{EndState, Outcome};
use squall_model::policy::{PolicyChange, PreemptMode, PreemptType, Qos};
use squall_model::time::{Span, Time};
use squall_model::wire::reservation::{ListChange, ReservationChange};

use super::expect::{Expectation, State};
use super::parse::{Action, Booking, ParseError, Placement, Statement, Victim, parse};
use crate::cells;
use crate::coverage::Phase;
use crate::judge::JobFile;
use crate::order::Order;
use crate::run::run_to_rest;
use crate::setup::Setup;
use crate::world::World;
use crate::world::client::Wish;
use crate::world::controller::CrashPoint;
use crate::world::files::Parcel;
use crate::world::node::NodeHost;

/// Failure of a scenario.
#[derive(Clone, Debug)]
pub struct StoryFailure {
    /// Number of the failed line, from 1; 0: the failure came after the last line.
    pub line: usize,
    /// Description of the statement's or the final checks' failure.
    pub problem: String,
    /// Last lines of the simulation's trace.
    pub trace: Vec<String>,
}

impl fmt::Display for StoryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl From<ParseError> for StoryFailure {
    fn from(error: ParseError) -> Self {
        Self { line: error.line, problem: error.problem, trace: Vec::new() }
    }
}

/// State of a running scenario: the setup from its first lines, then the simulated world.
struct Teller {
    setup: Option<Setup>,
    seed: u64,
    world: Option<World>,
}

/// Runs a scenario. Invariants are checked at every step. At the end all faults are healed, and all jobs must end.
pub fn tell(text: &str) -> Result<(), StoryFailure> {
    if cells::story::is_meant(text) {
        return cells::story::tell(text);
    }
    let story = parse(text)?;
    let mut teller = Teller { setup: None, seed: 1, world: None };
    for (line, statement) in story {
        if let Err(problem) = teller.carry_out(statement) {
            return Err(teller.failure(line, problem));
        }
    }
    let end = teller.world().and_then(|world| {
        world.heal_everything();
        run_to_rest(world).and_then(|()| world.judge.check_over()).map_err(|v| v.to_string())
    });
    end.map_err(|problem| teller.failure(0, problem))
}

impl Teller {
    fn failure(&self, line: usize, problem: String) -> StoryFailure {
        let trace = self.world.as_ref().map(|w| w.trace.lines()).unwrap_or_default();
        let trace = trace.into_iter().rev().take(60).rev().collect();
        StoryFailure { line, problem, trace }
    }

    /// Returns the simulated world. The first call creates it and lets it run for ten seconds.
    fn world(&mut self) -> Result<&mut World, String> {
        if self.world.is_none() {
            let setup = self.setup.clone().ok_or("a story begins with `cluster`")?;
            let mut world = World::new(setup, self.seed);
            let until = world.now + Span::from_secs(10);
            world.run_until(until).map_err(|v| v.to_string())?;
            self.world = Some(world);
        }
        self.world.as_mut().ok_or_else(|| "a story begins with `cluster`".into())
    }

    #[expect(clippy::too_many_lines, reason = "a table: a row for each statement")]
    fn carry_out(&mut self, statement: Statement) -> Result<(), String> {
        match statement {
            Statement::Cluster { nodes, cores, memory_mb, tree_width, signed, multicast, network } => {
                let setup = Setup { tree_width, multicast, signed, ..Setup::of(nodes, cores, memory_mb) };
                self.setup = Some(match network {
                    None => setup,
                    Some((kind, size)) => setup.on_network(&kind, &size)?,
                });
                return Ok(());
            }
            Statement::Config { key, value } => return self.configure(&key, value),
            Statement::Seed(seed) => {
                self.seed = seed;
                return Ok(());
            }
            _ => {}
        }
        let world = self.world()?;
        match statement {
            Statement::RotateKeys => {
                world.wish(Wish::Rotate);
                Ok(())
            }
            Statement::Submit(order, after) => world.tell_submit(*order, after),
            Statement::Crash { victim, at } => world.tell_crash(victim, at),
            Statement::Restart { victim, after } => world.tell_restart(victim, after),
            Statement::Stop { victim: Victim::Controller, span } => {
                world.stop_controller(span);
                Ok(())
            }
            Statement::Stop { victim: Victim::Nodes(names), span } => {
                world.each_node(&names, |world, node| world.stop_daemon(node, span))
            }
            Statement::Stop { .. } => Err("controller and node daemons are stopped".into()),
            Statement::WatchSessions => {
                world.watch_sessions();
                Ok(())
            }
            Statement::Backup { restore } => world.tell_backup(restore),
            Statement::Lie { node } => {
                let node = world.node_named(&node)?;
                world.lie(node).map_err(|v| v.to_string())
            }
            Statement::Replace { job, node } => {
                world.wish(Wish::Replace(world.order_named(&job)?, world.node_named(&node)?));
                Ok(())
            }
            Statement::ToJob { action, job, index } => world.tell_action(action, &job, index),
            Statement::ToNodes { action: action @ (Action::Remove | Action::Create), nodes } => {
                world.each_node(&nodes, |world, node| world.change_member(node, action == Action::Create))
            }
            Statement::ToNodes { action, nodes } => {
                world.tell_admin(action, &nodes);
                Ok(())
            }
            Statement::Qos { name, qos } => {
                world.set_qos(&name, *qos);
                Ok(())
            }
            Statement::Reserve(booking) => {
                world.reserve(*booking);
                Ok(())
            }
            Statement::Unreserve(name) => {
                world.wish(Wish::Unreserve(name));
                Ok(())
            }
            Statement::ShutDown { keep_jobs } => {
                world.shut_down(keep_jobs, None);
                Ok(())
            }
            Statement::Run(span) => {
                let until = world.now + span;
                world.run_until(until).map_err(|v| v.to_string())
            }
            Statement::Expect(expected) => world.check(&expected),
            Statement::Follow => {
                world.add_viewer(0);
                Ok(())
            }
            Statement::ExpectFollower { missed } => world.check_follower(missed),
            Statement::Query(question) => {
                world.wish(Wish::Query(question));
                Ok(())
            }
            Statement::Bring { name, size, nodes } => {
                world.wish(Wish::Bring(Arc::new(Parcel::new(&name, nodes, size, 0))));
                Ok(())
            }
            Statement::ExpectBrought { name, nowhere } => world.check_brought(&name, nowhere),
            Statement::ExpectAnswer { query, no, unreachable } => world.check_answer(&query, &no, &unreachable),
            Statement::ExpectOutput { job, missing } => world.check_output(&job, missing),
            Statement::ExpectNodes { nodes, place } => {
                nodes.iter().try_for_each(|name| world.check_place(name, &place))
            }
            statement => world.tell_weather(statement),
        }
    }

    fn configure(&mut self, key: &str, value: u64) -> Result<(), String> {
        let setup = self.setup.as_mut().ok_or("`config` comes after `cluster`")?;
        let config = &mut setup.config;
        match key {
            "prolog" => config.hooks.prolog = vec!["/prolog".to_owned(); usize::from(value > 0)],
            "epilog" => config.hooks.epilog = vec!["/epilog".to_owned(); usize::from(value > 0)],
            "prolog_alloc" => config.hooks.prolog_flags.alloc = value > 0,
            "hook_timeout" => config.hooks.prolog_epilog_timeout_s = value,
            "checkpoints" => config.checkpoint_dir = "/checkpoints".repeat(usize::from(value > 0)),
            "filter_ms" => setup.filter = Some(Span::from_millis(value)),
            "checkpoint_shared" => config.checkpoint_shared = value > 0,
            "hook_fails_percent" => setup.hook_fails = u32::try_from(value).unwrap_or(100).min(100) * 10_000,
            "after_fault_fails_percent" => {
                setup.check_after_faults(u32::try_from(value).unwrap_or(100).min(100) * 10_000);
            }
            "spare_nodes" => setup.keep_spares(u32::try_from(value).unwrap_or(u32::MAX)),
            "cpu_weight" => setup.weigh_cpus(value),
            "suspend_time" => setup.switch_nodes(value),
            "suspend_timeout" => config.power.suspend_timeout_s = value,
            "resume_timeout" => config.health.resume_timeout_s = value,
            "reboots" => setup.reboot_nodes(),
            "boot_fails_percent" => setup.boot_fails = u32::try_from(value).unwrap_or(100).min(100) * 10_000,
            "clouds" => setup.add_clouds(usize::try_from(value).unwrap_or(0)),
            "kill_wait" => config.kill_wait_s = value,
            "node_timeout" => config.node_timeout_s = value,
            "node_lost" => config.node_lost_s = value,
            "node_lost_requeue" if value > 0 => config.node_lost_action = NodeLostAction::Requeue,
            "min_job_age" => config.min_job_age_s = value,
            "rows" => {
                let rows = OverSubscribe::Force(u32::try_from(value).unwrap_or(u32::MAX));
                config.partitions =
                    vec![PartitionConfig { default: true, oversubscribe: rows, ..PartitionConfig::default() }];
                config.coscheduling = Some(Coscheduling::Gang);
            }
            "leases" => {
                let lease_jobs = u32::try_from(value).unwrap_or(u32::MAX);
                let default_time_s = Some(3600);
                config.partitions =
                    vec![PartitionConfig { default: true, lease_jobs, default_time_s, ..PartitionConfig::default() }];
            }
            "slice_ms" => config.scheduler_time_slice = TimeSlice(Span::from_millis(value)),
            "preempt_checkpoint" => {
                config.preempt_type = PreemptType::Qos;
                config.preempt_mode.way = PreemptMode::Checkpoint;
                "/checkpoints".clone_into(&mut config.checkpoint_dir);
            }
            "preempt_cancel" => {
                config.preempt_type = PreemptType::Qos;
                config.preempt_mode.way = if value == 0 { PreemptMode::Requeue } else { PreemptMode::Cancel };
            }
            "tiers" => {
                let tier = |name: &str, priority_tier| PartitionConfig {
                    name: name.into(),
                    priority_tier,
                    ..PartitionConfig::default()
                };
                config.partitions = vec![PartitionConfig { default: true, ..tier("low", 1) }, tier("high", 2)];
                config.preempt_type = PreemptType::Partition;
                config.preempt_mode = Preempt { way: PreemptMode::Suspend, gang: value != 0 };
            }
            "kill_invalid_depend" => config.kill_invalid_depend = value != 0,
            _ => return Err(format!("`{key}` can't be configured in a story")),
        }
        Ok(())
    }
}

impl World {
    fn node_named(&self, name: &str) -> Result<usize, String> {
        self.nodes.iter().position(|n| n.name == name).ok_or(format!("there is no node `{name}`"))
    }

    fn port_named(&self, name: &str) -> Result<usize, String> {
        match name {
            "controller" => Ok(self.network.controller(0)),
            "login" => Ok(self.network.login()),
            name => self.node_named(name),
        }
    }

    fn order_named(&self, name: &str) -> Result<usize, String> {
        self.clients.placed.iter().position(|p| p.order.name == name).ok_or(format!("there is no job `{name}`"))
    }

    fn each_node(&mut self, names: &[String], mut action: impl FnMut(&mut Self, usize)) -> Result<(), String> {
        for name in names {
            let node = self.node_named(name)?;
            action(self, node);
        }
        Ok(())
    }

    fn tell_submit(
        &mut self,
        mut order: Order,
        after: Vec<(squall_model::job::DependencyKind, String)>,
    ) -> Result<(), String> {
        for (kind, name) in after {
            order.after.push((kind, self.order_named(&name)?));
        }
        self.submit(order);
        let until = self.now + Span::from_millis(5);
        self.run_until(until).map_err(|v| v.to_string())
    }

    fn tell_crash(&mut self, victim: Victim, at: Option<(CrashPoint, u32)>) -> Result<(), String> {
        match victim {
            Victim::Controller => {
                match at {
                    Some(plan) => self.controllers[0].plan.push_back(plan),
                    None => self.crash_controller(0, CrashPoint::Idle),
                }
                Ok(())
            }
            Victim::Nodes(names) => self.each_node(&names, Self::kill_node_daemon),
            Victim::Power(names) => self.each_node(&names, |world, node| world.cut_power(node, None)),
            Victim::Client(job) => {
                let order = self.order_named(&job)?;
                self.abandon(order);
                Ok(())
            }
            Victim::Filter if self.kill_filters(0) => Ok(()),
            Victim::Filter => Err("nothing is being filtered".to_owned()),
            Victim::Restore(job) => {
                let order = self.order_named(&job)?;
                for id in self.judge.files_of(order, None) {
                    *self.restores_die.entry(id).or_default() += 1;
                }
                Ok(())
            }
            Victim::Dump(job) => {
                let order = self.order_named(&job)?;
                let ids = self.judge.files_of(order, None);
                let dumps =
                    |host: &NodeHost| host.dumps.iter().find(|(of, _)| ids.contains(&of.job)).map(|(of, n)| (*of, *n));
                let found = self.nodes.iter().enumerate().find_map(|(node, host)| Some((node, dumps(host)?)));
                let (node, (of, number)) = found.ok_or(format!("no dump of `{job}` is being made"))?;
                self.damage(node, of, number);
                Ok(())
            }
            Victim::Steps(job) => {
                let order = self.order_named(&job)?;
                let ids = self.judge.files_of(order, None);
                for node in 0..self.nodes.len() {
                    let keys: Vec<_> =
                        self.nodes[node].steps.keys().copied().filter(|key| ids.contains(&key.job)).collect();
                    for key in keys {
                        self.kill_step_daemon(node, key);
                    }
                }
                Ok(())
            }
        }
    }

    /// Starts a stopped part of the cluster after the time `after`. A controller that is killed later restarts after
    /// the same pause.
    fn tell_restart(&mut self, victim: Victim, after: Span) -> Result<(), String> {
        match victim {
            Victim::Controller => {
                self.controllers[0].restart = Some(after);
                let dead = self.controllers[0].plan.front().is_none_or(|(point, _)| *point == CrashPoint::InRecovery);
                if !self.controllers[0].serves() && dead {
                    self.start_controller(0, after);
                }
                Ok(())
            }
            Victim::Nodes(names) => self.each_node(&names, |world, node| {
                if !world.nodes[node].has_daemon() {
                    world.start_node(node, after);
                }
            }),
            Victim::Power(names) => self.each_node(&names, |world, node| world.restore_power(node, after)),
            Victim::Steps(_) | Victim::Client(_) | Victim::Dump(_) | Victim::Restore(_) | Victim::Filter => {
                Err("step daemons, clients, dumps and filters are not restarted".into())
            }
        }
    }

    fn tell_action(&mut self, action: Action, job: &str, index: Option<u32>) -> Result<(), String> {
        let order = self.order_named(job)?;
        let wish = match action {
            Action::Cancel => Wish::Cancel { order, index },
            Action::Signal => Wish::Signal(order),
            Action::Hold => Wish::Hold { order },
            Action::Release => Wish::Release { order },
            Action::Requeue => Wish::Requeue { order },
            Action::Suspend => Wish::Suspend { order, suspend: true },
            Action::Checkpoint(verb) => Wish::Checkpoint(order, verb),
            Action::Unsuspend => Wish::Suspend { order, suspend: false },
            Action::Drain | Action::Resume | Action::Down | Action::Remove | Action::Create => {
                return Err("that is done to nodes".into());
            }
        };
        if self.wish(wish) {
            Ok(())
        } else {
            Err(format!("`{job}` has no id yet, or something else is being done to it"))
        }
    }

    /// Adds an operator's request to create a QOS.
    fn set_qos(&mut self, name: &str, qos: Qos) {
        self.set_up(PolicyChange::Qos(name.to_owned(), Some(qos)));
    }

    /// Adds an operator's request to create a reservation.
    fn reserve(&mut self, booking: Booking) {
        let all = (1000..1003).map(|uid| format!("user{uid}")).collect();
        let users = if booking.users.is_empty() { all } else { booking.users };
        self.wish(Wish::Reserve(Box::new(ReservationChange {
            name: Some(booking.name),
            start: Some(self.now + booking.starts_in),
            duration_s: Some(booking.lasts.secs()),
            nodes: Some(booking.nodes).filter(|nodes| !nodes.is_empty()),
            node_count: booking.count,
            users: Some(ListChange::Set(users)),
            flags: Some(ListChange::Set(booking.flags)),
            ..ReservationChange::default()
        })));
    }

    fn tell_admin(&mut self, action: Action, nodes: &[String]) {
        let admin = match action {
            Action::Drain => NodeAdmin::Drain,
            Action::Down => NodeAdmin::Down,
            _ => NodeAdmin::Resume,
        };
        self.wish(Wish::Admin { nodes: squall_model::hostlist::compress(nodes), admin, after: None });
    }

    fn tell_weather(&mut self, statement: Statement) -> Result<(), String> {
        self.disturb(Span(0));
        match statement {
            Statement::Weather(weather) => {
                self.network.weather = weather;
                Ok(())
            }
            Statement::Cut { nodes, ways } => {
                self.each_node(&nodes, |world, node| ways.iter().for_each(|&way| world.network.cut(node, way)))
            }
            Statement::CutBetween { from, to } => {
                let (from, to) = (self.port_named(&from)?, self.port_named(&to)?);
                self.network.cut_between(from, to);
                Ok(())
            }
            Statement::CutSubtree { head } => {
                let nodes = self.tree.subtree(self.node_named(&head)?, self.nodes.len());
                self.network.isolate(&nodes);
                Ok(())
            }
            Statement::Heal { nodes } => self.each_node(&nodes, |world, node| world.network.heal(node)),
            Statement::Deaf { nodes } => self.each_node(&nodes, |world, node| world.nodes[node].deaf = true),
            Statement::Reset { nodes } => self.each_node(&nodes, |world, node| {
                if let Some(hop) = world.nodes[node].parent() {
                    world.break_hop(hop);
                }
            }),
            Statement::ResetClient { job } => {
                self.reset_client(self.order_named(&job)?);
                Ok(())
            }
            Statement::ClientsAway => {
                self.clients.away = true;
                Ok(())
            }
            Statement::Slow { nodes, times } => self.each_node(&nodes, |world, node| world.network.slow(node, times)),
            Statement::Disk { full, room } => {
                self.set_disk_full(0, full, room);
                Ok(())
            }
            Statement::SlowDisk { flush } => {
                self.controllers[0].flush_span = (flush, flush);
                Ok(())
            }
            Statement::Clock { by_us } => {
                self.set_clock(by_us);
                Ok(())
            }
            Statement::Spool { nodes, full } => {
                self.each_node(&nodes, |world, node| world.nodes[node].spool.full = full)
            }
            Statement::SpoolCopied { nodes } => self.each_node(&nodes, |world, node| {
                world.nodes[node].copy = Some(world.nodes[node].spool.clone());
            }),
            Statement::SpoolRolledBack { nodes } => self.each_node(&nodes, Self::roll_back),
            Statement::SpoolLoses { nodes, job } => {
                let order = self.order_named(&job)?;
                let ids = self.judge.files_of(order, None);
                self.each_node(&nodes, |world, node| {
                    let keys = world.nodes[node].spool.steps.keys().copied().filter(|key| ids.contains(&key.job));
                    world.lose_folders(node, keys.collect::<Vec<_>>());
                })
            }
            Statement::SlowSpool { nodes, each } => {
                self.each_node(&nodes, |world, node| world.nodes[node].disk_takes = each)
            }
            _ => Err("not a statement about faults".into()),
        }
    }

    fn check_answer(&self, query: &str, no: &[String], unreachable: &[String]) -> Result<(), String> {
        let told = self.clients.told.get(query).ok_or(format!("{query} was not answered"))?;
        if told.0 == no && told.1 == unreachable {
            return Ok(());
        }
        Err(format!("{query} is not so on {:?}, unreachable are {:?}", told.0, told.1))
    }

    fn check_place(&self, name: &str, place: &Placement) -> Result<(), String> {
        let node = self.node_named(name)?;
        if let Placement::Under(parent) = place {
            let port = self.nodes[node].parent().and_then(|hop| self.tree.parent(hop));
            let wanted = self.port_named(parent)?;
            let here = port.map(|port| self.nodes.get(port).map_or("controller", |node| &node.name));
            return if port == Some(wanted) { Ok(()) } else { Err(format!("{name} is under {here:?}")) };
        }
        let connected = self.controllers[0].is_connected(name);
        if connected == (*place == Placement::Connected) {
            return Ok(());
        }
        Err(format!("{name} is {}", if connected { "connected" } else { "away" }))
    }

    fn check_output(&self, job: &str, missing: Vec<String>) -> Result<(), String> {
        let told = &self.clients.placed[self.order_named(job)?].missing;
        if *told == Some(missing) { Ok(()) } else { Err(format!("missing output of {job}: {told:?}")) }
    }

    fn check_follower(&self, missed: bool) -> Result<(), String> {
        let viewer = self.viewer.as_ref().ok_or("nobody follows events")?;
        let times = viewer.missed;
        if (times > 0) == missed { Ok(()) } else { Err(format!("it was told {times} times that it missed events")) }
    }

    fn check(&self, expected: &Expectation) -> Result<(), String> {
        if expected.job.is_empty() {
            return (0..self.clients.placed.len()).try_for_each(|order| self.check_order(order, expected));
        }
        self.check_order(self.order_named(&expected.job)?, expected)
    }

    fn check_order(&self, order: usize, expected: &Expectation) -> Result<(), String> {
        let placed = &self.clients.placed[order];
        let name = &placed.order.name;
        if expected.state == Some(State::Refused) {
            return if placed.refused.is_some() { Ok(()) } else { Err(format!("{name} was not refused")) };
        }
        if let Some(refusal) = &placed.refused {
            return Err(format!("{name} was refused: {refusal:?}"));
        }
        if let Some(most) = expected.at_once {
            let seen = self.judge.widths.get(&order).map_or(0, |w| w.most);
            if seen > most {
                return Err(format!("{seen} of {name} ran at once"));
            }
        }
        // Only the first component of a heterogeneous job has processes.
        let mut ids = self.judge.files_of(order, expected.index);
        ids.retain(|id| !self.judge.is_component(*id));
        let files: Vec<&JobFile> = ids.iter().filter_map(|id| self.judge.files.get(id)).collect();
        if let Some(count) = expected.count {
            let fitting = files.iter().filter(|f| check_file(name, f, expected).is_ok()).count() as u32;
            return if fitting == count {
                Ok(())
            } else {
                Err(format!("{fitting} tasks of {name} are so, not {count}"))
            };
        }
        if files.is_empty() && expected.state.is_some_and(|s| s != State::Pending) {
            return Err(format!("nothing has happened to {name}"));
        }
        files.iter().try_for_each(|file| check_file(name, file, expected))?;
        if let Some(places) = &expected.places {
            files.iter().try_for_each(|file| self.check_places(name, file, places))?;
        }
        expected.before.as_ref().map_or(Ok(()), |other| self.check_before(name, &files, other))
    }

    fn check_places(&self, name: &str, file: &JobFile, places: &[String]) -> Result<(), String> {
        let hosts = file.nodes.iter().filter_map(|node| self.judge.host(node));
        let mut ran: Vec<&String> = hosts.map(|host| &self.nodes[host].name).collect();
        let mut wanted: Vec<&String> = places.iter().collect();
        ran.sort();
        wanted.sort();
        if ran == wanted { Ok(()) } else { Err(format!("{name} ran on {ran:?}")) }
    }

    fn check_before(&self, name: &str, files: &[&JobFile], other: &str) -> Result<(), String> {
        let others = self.judge.files_of(self.order_named(other)?, None);
        let first = others.iter().filter_map(|id| self.judge.files.get(id)?.first_process).min();
        let last: Option<Time> = files.iter().filter_map(|f| f.last_process_end).max();
        match (last, first) {
            (Some(last), Some(first)) if last <= first => Ok(()),
            (last, first) => Err(format!("{name} ended {last:?}, {other} started {first:?}")),
        }
    }
}

fn check_file(name: &str, file: &JobFile, expected: &Expectation) -> Result<(), String> {
    if let Some(state) = expected.state
        && !is_in(file, state)
    {
        return Err(format!("{name} is {} ({:?}), not {state:?}", file.phase.name(), file.outcome));
    }
    if let Some(runs) = expected.runs
        && file.runs != runs
    {
        return Err(format!("{name} ran {} times, not {runs}", file.runs));
    }
    if let Some(nodes) = expected.nodes
        && file.nodes.len() != nodes as usize
    {
        return Err(format!("{name} ran on {} nodes, not {nodes}", file.nodes.len()));
    }
    let exit = file.outcome.as_ref().map(|o| o.exit.code);
    if expected.exit.is_some_and(|code| exit != Some(code)) {
        return Err(format!("{name} ended with {exit:?}"));
    }
    if let Some(span) = expected.took {
        let took = file.last_process_end.unwrap_or_default().since(file.process_started);
        if took.0.abs_diff(span.0) > 2_000_000 {
            return Err(format!("{name} took {} s", took.secs()));
        }
    }
    Ok(())
}

fn is_in(file: &JobFile, state: State) -> bool {
    let ended = |fits: fn(EndState) -> bool| {
        let state = |outcome: &Outcome| fits(outcome.state);
        file.phase == Phase::Ended && file.outcome.as_ref().is_some_and(state)
    };
    match state {
        State::Pending => file.phase == Phase::Pending,
        State::Running => matches!(file.phase, Phase::Starting | Phase::Running | Phase::Unreported),
        State::Completing => file.phase == Phase::Ending,
        State::Completed => ended(|s| s == EndState::Completed),
        State::Failed => ended(|s| s == EndState::Failed),
        State::Cancelled => ended(|s| matches!(s, EndState::Cancelled { .. })),
        State::Timeout => ended(|s| s == EndState::Timeout),
        State::NodeFail => ended(|s| s == EndState::NodeFail),
        State::Preempted => ended(|s| s == EndState::Preempted),
        State::Refused => false,
    }
}
