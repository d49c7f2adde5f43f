//! Simulated users: their requests, retries and the answers that they remember.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_engine::control::Who as Asker;
use squall_model::checkpoint::CheckpointVerb;
use squall_model::encoding::ByteBuf;
use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::id::{Attempt, ClientKey, JobId, StepNo};
use squall_model::job::{ExitCode, JobKind, JobSpec, Owner};
use squall_model::policy::PolicyChange;
use squall_model::step::StepLaunch;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, JobSelection, JobUpdate, Refusal, Request};
use squall_model::wire::node::SignalTarget;
use squall_model::wire::reservation::ReservationChange;

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::order::{Order, Truth, selection};
use crate::query::Question;
use crate::setup::FAST;
use crate::trace::{Origin, answer_name};
use crate::world::files::Parcel;
use crate::world::{Happening, World};

/// State of all simulated users.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) placed: Vec<PlacedOrder>,
    pub(crate) calls: Vec<Call>,
    by_caller: BTreeMap<u64, usize>,
    last_caller: u64,
    /// Number of verdicts that filter processes have begun to work on.
    pub(crate) filter_turns: u64,
    /// The controller that users try first.
    pub(crate) controller: usize,
    /// Whether the clients are on another machine than the controller.
    pub(crate) away: bool,
    /// Probability that the connection of a request breaks, in millionths.
    pub(crate) loss_ppm: u32,
    /// Last answer to each query of a scenario, by the query's name: nodes on which the condition is false, and nodes
    /// that did not answer.
    pub(crate) told: BTreeMap<String, (Vec<String>, Vec<String>)>,
    /// For each connection that sends a file, by caller: when it will have sent the pieces that the controller has
    /// requested.
    pub(crate) sending: BTreeMap<u64, Time>,
    /// Last answer to the client that sent each file, by the file's name: whether all nodes have the file, and how many
    /// nodes lacked it.
    pub(crate) brought: BTreeMap<String, (bool, usize)>,
}

/// A submitted job order, and the answers that its user has received.
#[derive(Clone, Debug)]
pub(crate) struct PlacedOrder {
    pub(crate) order: Order,
    pub(crate) id: Option<JobId>,
    pub(crate) refused: Option<Refusal>,
    pub(crate) requeue_sent: bool,
    /// Largest limit of simultaneously running tasks that the job order's array ever had. None: there was never a
    /// limit.
    array_limit: Option<u32>,
    allocated: bool,
    /// The job's attempt in which its batch script has started last. The script runs the job order's steps.
    pub(crate) attempt: Attempt,
    pub(crate) steps_done: u32,
    /// Nodes for which the job order's last srun reported that output may be missing. None: no srun of it has ended.
    pub(crate) missing: Option<Vec<String>>,
    /// Whether the user waits for no more answers about the job order.
    pub(crate) over: bool,
    /// Whether a request of the job order's user is in progress.
    busy: bool,
    /// Whether the job order's srun or salloc was killed and never reconnects.
    pub(crate) abandoned: bool,
}

/// Request of a simulated user or operator.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Submit {
        order: usize,
    },
    Own {
        order: usize,
    },
    Step {
        order: usize,
    },
    Finish {
        order: usize,
    },
    Cancel {
        order: usize,
        index: Option<u32>,
    },
    Hold {
        order: usize,
    },
    Release {
        order: usize,
    },
    Requeue {
        order: usize,
    },
    Suspend {
        order: usize,
        suspend: bool,
    },
    Update {
        order: usize,
        array_limit: Option<u32>,
        time_limit_s: Option<u64>,
    },
    Admin {
        nodes: String,
        admin: NodeAdmin,
        /// After what time the nodes are to be resumed by themselves. None: they are not.
        after: Option<Span>,
    },
    /// The signal TERM to all processes of the job, with `scancel --signal`.
    Signal(usize),
    /// Replacement of a node of a running job (`scontrol replace`).
    Replace(usize, usize),
    /// A checkpoint of the job, or its return to one.
    Checkpoint(usize, CheckpointVerb),
    /// Removal of a node, or its creation (true).
    Member(usize, bool),
    /// Rotation of the controllers' keys.
    Rotate,
    Policy(Vec<PolicyChange>),
    /// Request to create a reservation of nodes.
    Reserve(Box<ReservationChange>),
    Unreserve(String),
    Await {
        order: usize,
    },
    Look {
        order: usize,
    },
    ShutDown {
        keep_jobs: bool,
    },
    /// COMPARE-AND-WRITE: queries a condition on all nodes, and may write a variable if it holds everywhere.
    Query(Box<Question>),
    /// XFER-AND-SIGNAL: sends a file to the nodes that it names.
    Bring(Arc<Parcel>),
    AuditJobs,
    AuditNodes,
    /// Checks that a query is answered by every node.
    AuditTree,
    AuditCounters,
}

/// A user's request to the controller, which is retried until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) wish: Wish,
    caller: Option<u64>,
    /// The controller that was asked last.
    controller: usize,
    tries: u32,
    done: bool,
    /// Arrival time of the last answer in flight.
    last_answer: Time,
    /// Time at which the request was sent last.
    asked: Time,
}

impl Clients {
    /// Returns when a request was sent last.
    pub(crate) fn asked_at(&self, call: usize) -> Time {
        self.calls[call].asked
    }
    pub(crate) fn order(&self, order: usize) -> Option<&Order> {
        self.placed.get(order).map(|p| &p.order)
    }
    /// Returns the largest limit of simultaneously running tasks that a job order's array ever had. None: there was
    /// never a limit.
    pub(crate) fn array_limit(&self, order: usize) -> Option<u32> {
        self.placed.get(order).and_then(|p| p.array_limit)
    }
    /// Returns how the processes of a launch will behave: run time, exit, handling of SIGTERM.
    pub(crate) fn truth(&self, launch: &StepLaunch) -> Truth {
        let order = order_of(launch).and_then(|tag| self.order(tag));
        let index = launch.facts.array.map(|a| a.index);
        let Some(order) = order else {
            return Truth { run: Span(1), exit: ExitCode::OK, stubborn: false, hides: false };
        };
        let mut truth = order.truth(index);
        if order.kind == JobKind::Batch && launch.key.step != StepNo::BATCH {
            truth.run = Span(truth.run.0 / u64::from(order.steps + 1));
        }
        truth
    }
    /// Returns when the next answer on a connection arrives: at `at`, or right after an earlier answer that is still in
    /// flight.
    pub(crate) fn in_order(&mut self, caller: u64, at: Time) -> Time {
        let Some(call) = self.by_caller.get(&caller).and_then(|&call| self.calls.get_mut(call)) else { return at };
        call.last_answer = at.max(Time(call.last_answer.0 + 1));
        call.last_answer
    }
    /// Returns the controller at the other end of a connection.
    pub(crate) fn controller_of(&self, caller: u64) -> Option<usize> {
        self.by_caller.get(&caller).map(|&call| self.calls[call].controller)
    }
    /// Returns whether all users' requests are finished.
    pub(crate) fn are_content(&self) -> bool {
        self.calls.iter().all(|c| c.done)
    }
    /// Returns the first unfinished request as text; empty if there is none.
    pub(crate) fn first_waiting(&self) -> String {
        let waiting = self.calls.iter().find(|call| !call.done);
        let job = |wish: &Wish| match wish {
            Wish::Own { order } => self.placed.get(*order).and_then(|placed| placed.id),
            _ => None,
        };
        waiting
            .map(|call| format!("{:?}, job {:?}, {} tries", call.wish, job(&call.wish), call.tries))
            .unwrap_or_default()
    }
}

/// Returns the index of the job order that a launch belongs to.
pub(crate) fn order_of(launch: &StepLaunch) -> Option<usize> {
    Order::tag_of(&launch.facts.spec)
}

/// Returns the user id of the owner of an order's jobs.
pub(crate) fn user_of(order: usize) -> u32 {
    1000 + (order % 3) as u32
}

impl World {
    /// Places a job order: its user submits a job. Returns the job order's index.
    pub(crate) fn submit(&mut self, order: Order) -> usize {
        let tag = self.clients.placed.len();
        let owning = order.kind != JobKind::Batch;
        if let Some(limit_s) = order.limit_s {
            self.judge.limits.insert(tag, limit_s);
            self.judge.first_limits.insert(tag, limit_s);
        }
        let array_limit = order.array.as_ref().and_then(|a| a.limit);
        self.clients.placed.push(PlacedOrder {
            order,
            id: None,
            refused: None,
            requeue_sent: false,
            array_limit,
            allocated: false,
            attempt: Attempt(0),
            steps_done: 0,
            missing: None,
            over: false,
            busy: false,
            abandoned: false,
        });
        self.wish(if owning { Wish::Own { order: tag } } else { Wish::Submit { order: tag } });
        tag
    }

    /// Adds a request, which is retried until it is answered. Returns false if it was not added, because its job order
    /// has no job id yet or another request of the job order's user is in progress.
    pub(crate) fn wish(&mut self, wish: Wish) -> bool {
        if let Some(order) = wish.deed_on() {
            let placed = &mut self.clients.placed[order];
            if placed.busy || placed.id.is_none() {
                return false;
            }
            placed.busy = true;
            match wish {
                Wish::Release { .. } => self.judge.release_sent(order),
                Wish::Suspend { suspend: false, .. } => self.judge.told_suspended(order, None),
                Wish::Requeue { .. } | Wish::Checkpoint(..) => {
                    placed.requeue_sent = true;
                    self.judge.requeue_sent(order);
                }
                Wish::Update { array_limit, time_limit_s, .. } => {
                    placed.array_limit = placed.array_limit.map(|old| old.max(array_limit.unwrap_or(old)));
                    if let (Some(limit_s), Some(known)) = (time_limit_s, self.judge.limits.get_mut(&order)) {
                        *known = limit_s.max(*known);
                    }
                }
                _ => {}
            }
        }
        if let Wish::Admin { nodes, admin, after } = &wish {
            self.judge.admin_sent(self.clients.calls.len(), nodes, *admin, *after);
        }
        self.clients.calls.push(Call {
            wish,
            caller: None,
            controller: 0,
            tries: 0,
            done: false,
            last_answer: self.now,
            asked: self.now,
        });
        let call = self.clients.calls.len() - 1;
        self.after(Span(0), Happening::ClientTries { call });
        true
    }

    /// Adds a policy change. It joins the last batch of changes not sent yet, so that it never arrives before changes
    /// that it builds on.
    pub(crate) fn set_up(&mut self, change: PolicyChange) {
        match self.clients.calls.last_mut() {
            Some(Call { wish: Wish::Policy(changes), caller: None, done: false, .. }) => changes.push(change),
            _ => {
                self.wish(Wish::Policy(vec![change]));
            }
        }
    }

    pub(crate) fn client_tries(&mut self, call: usize) {
        if self.clients.calls[call].done || self.clients.calls[call].caller.is_some() {
            return;
        }
        let found = if self.is_shut() || self.lacks_ids(call) { None } else { self.find_leader() };
        let Some(controller) = found else {
            let again = self.pause_of_clients();
            return self.after(again, Happening::ClientTries { call });
        };
        self.clients.calls[call].controller = controller;
        self.clients.calls[call].tries += 1;
        self.clients.calls[call].asked = self.now;
        let order = self.clients.calls[call].wish.order();
        let abandoned = order.is_some_and(|order| self.clients.placed[order].abandoned);
        let Some(request) = self.request(call).filter(|_| !abandoned) else {
            self.clients.calls[call].done = true;
            return;
        };
        self.listen_for(call);
        self.clients.last_caller += 1;
        let caller = self.clients.last_caller;
        self.clients.calls[call].caller = Some(caller);
        self.clients.by_caller.insert(caller, call);
        let delay = self.seed.span(Span(30), Span(300));
        self.after(delay, Happening::Ask { caller, request: Box::new(request) });
        let lost = self.loses_answer(call);
        if lost || self.seed.chance(self.clients.loss_ppm) {
            let breaks = if lost { Span(delay.0 + 21) } else { self.seed.span(Span(0), Span::from_millis(20)) };
            self.after(breaks, Happening::ClientBreaks { caller });
        }
    }

    /// Returns whether a submission depends on a job order that has no job id yet.
    fn lacks_ids(&self, call: usize) -> bool {
        let Wish::Submit { order } = self.clients.calls[call].wish else { return false };
        let lacks = |other: usize| self.clients.placed[other].id.is_none() && !self.clients.placed[other].over;
        self.clients.placed[order].order.after.iter().any(|&(_, other)| lacks(other))
    }

    /// Returns whether the answer to a request is lost, as the scenario demands for the first answer to some
    /// submissions.
    fn loses_answer(&self, call: usize) -> bool {
        let call = &self.clients.calls[call];
        match call.wish {
            Wish::Submit { order } | Wish::Own { order } if call.tries == 1 => {
                self.clients.placed[order].order.lose_answer
            }
            _ => false,
        }
    }

    pub(crate) fn ask_arrives(&mut self, caller: u64, request: Box<Request>) {
        let Some(&call) = self.clients.by_caller.get(&caller) else { return };
        let controller = self.clients.calls[call].controller;
        if !self.controllers[controller].serves() || !self.reaches_clients(controller) {
            return self.client_breaks(caller);
        }
        let order = self.clients.calls[call].wish.order();
        let reboots = |order: usize| self.clients.placed[order].order.options.reboots();
        let operator = order.is_none_or(reboots)
            || matches!(self.clients.calls[call].wish, Wish::Requeue { .. } | Wish::Suspend { .. });
        let uid = order.map_or(0, user_of);
        let owner = Owner { uid, gid: uid, groups: vec![uid], user: format!("user{uid}"), group: format!("user{uid}") };
        let who = Asker { owner: Arc::new(owner), operator, by: None, job: None };
        self.ask_controller(controller, caller, who, request);
    }

    /// Breaks a client's connection: the controller receives a hangup, the client retries.
    pub(crate) fn client_breaks(&mut self, caller: u64) {
        let Some(call) = self.clients.by_caller.remove(&caller) else { return };
        self.clients.calls[call].caller = None;
        self.hang_up_client(call, caller);
        if self.clients.calls[call].done {
            return;
        }
        self.strike(Fault::ClientLost, caller);
        if self.is_killed(call) {
            return;
        }
        let again = self.seed.span(Span::from_millis(1), Span::from_millis(2000));
        self.after(again, Happening::ClientTries { call });
    }

    /// Tells the controller that a client's connection has ended.
    fn hang_up_client(&mut self, call: usize, caller: u64) {
        let controller = self.clients.calls[call].controller;
        if self.controllers[controller].serves() {
            self.end_connection(controller, caller);
        }
    }

    /// Breaks the connection of a job order's srun or salloc, which retries.
    pub(crate) fn reset_client(&mut self, order: usize) {
        let of = |call: &Call| matches!(call.wish, Wish::Own { order: other } if other == order);
        let callers: Vec<u64> =
            self.clients.calls.iter().filter(|call| of(call)).filter_map(|call| call.caller).collect();
        for caller in callers {
            self.client_breaks(caller);
        }
    }

    /// Breaks all clients' connections to a controller, which has ended or can't be reached.
    pub(crate) fn clients_lose_controller(&mut self, of: usize) {
        let calls = &self.clients.calls;
        let lost: Vec<_> = self.clients.by_caller.extract_if(.., |_, call| calls[*call].controller == of).collect();
        for (caller, call) in lost {
            self.clients.calls[call].caller = None;
            self.hang_up_client(call, caller);
            if self.is_killed(call) {
                continue;
            }
            let again = self.seed.span(Span::from_millis(1), Span::from_millis(1000));
            self.after(again, Happening::ClientTries { call });
        }
    }

    /// Returns whether the client of a broken connection never reconnects. Now and then an srun or salloc is killed
    /// together with its connection. A client that requested a shutdown takes the end of the connection as the answer.
    fn is_killed(&mut self, call: usize) -> bool {
        if matches!(self.clients.calls[call].wish, Wish::ShutDown { .. }) {
            self.clients.calls[call].done = true;
            return true;
        }
        let Wish::Own { order } = self.clients.calls[call].wish else { return false };
        let killed = self.nemesis.is_active() && self.seed.chance(100_000);
        if killed {
            self.abandon(order);
        }
        killed
    }

    /// Handles the start of a batch script: it may run steps one after the other.
    pub(crate) fn script_starts(&mut self, launch: &StepLaunch) {
        let Some(order) = order_of(launch).filter(|_| is_script(launch)) else { return };
        let placed = &mut self.clients.placed[order];
        if placed.order.array.is_none() && placed.order.steps > 0 && placed.id == Some(launch.key.job) {
            placed.attempt = launch.key.attempt;
            placed.steps_done = 0;
            self.wish(Wish::Step { order });
        }
    }

    /// Handles the end of a batch script, which also ends the srun that the script waits for.
    pub(crate) fn script_ends(&mut self, launch: &StepLaunch) {
        let Some(order) = order_of(launch).filter(|_| is_script(launch)) else { return };
        if self.clients.placed[order].order.array.is_some() || self.clients.placed[order].order.steps == 0 {
            return;
        }
        for call in 0..self.clients.calls.len() {
            let open = !self.clients.calls[call].done;
            if open && matches!(self.clients.calls[call].wish, Wish::Step { order: other } if other == order) {
                self.forsake(order);
                self.content(call);
            }
        }
    }

    /// Kills a job order's srun or salloc.
    pub(crate) fn abandon(&mut self, order: usize) {
        self.strike(Fault::ClientKilled, order as u64);
        self.clients.placed[order].abandoned = true;
        self.clients.placed[order].over = true;
        self.forsake(order);
        self.content_all(order);
    }

    /// Finishes all requests of a job order.
    fn content_all(&mut self, order: usize) {
        for call in 0..self.clients.calls.len() {
            if self.clients.calls[call].wish.order() == Some(order) && !self.clients.calls[call].done {
                self.content(call);
            }
        }
    }

    /// Marks a request as finished and ends its connection.
    pub(crate) fn content(&mut self, call: usize) {
        self.clients.calls[call].done = true;
        if let Some(order) = self.clients.calls[call].wish.deed_on() {
            self.clients.placed[order].busy = false;
        }
        if let Some(caller) = self.clients.calls[call].caller.take() {
            self.clients.by_caller.remove(&caller);
            self.hang_up_client(call, caller);
        }
    }

    /// Returns the message to send for a request now. None: the request has become pointless.
    fn request(&mut self, call: usize) -> Option<Request> {
        let Call { wish, tries, .. } = self.clients.calls[call].clone();
        let id_of = |order: usize| self.clients.placed[order].id;
        Some(match wish {
            Wish::Submit { order } => {
                let ids: Vec<Option<JobId>> = self.clients.placed.iter().map(|p| p.id).collect();
                let spec = self.clients.placed[order].order.spec(order, |o| ids[o]);
                self.submission(order, tries, spec)
            }
            Wish::Own { order } => match id_of(order) {
                Some(job) => Request::Attach { job },
                None => self.submission(order, tries, self.clients.placed[order].order.spec(order, |_| None)),
            },
            Wish::Step { order } => self.step_request(order)?,
            Wish::Finish { order } => {
                let exit = self.clients.placed[order].order.truth(None).exit;
                Request::Finish { job: id_of(order)?, exit }
            }
            Wish::Cancel { order, index } => {
                Request::Cancel { jobs: selection(id_of(order)?, index), signal: None, step: None, verbose: true }
            }
            Wish::Signal(order) => {
                let signal = Some((15, SignalTarget::All));
                Request::Cancel { jobs: selection(id_of(order)?, None), signal, step: None, verbose: true }
            }
            Wish::Checkpoint(order, verb) => Request::Checkpoint(id_of(order)?, verb),
            Wish::Hold { order } => Request::Hold { jobs: selection(id_of(order)?, None), user: true },
            Wish::Release { order } => Request::Release { jobs: selection(id_of(order)?, None) },
            Wish::Requeue { order } => {
                Request::Requeue { jobs: selection(id_of(order)?, None), hold: false, from: None, special: None }
            }
            Wish::Suspend { order, suspend } => Request::Suspend { jobs: selection(id_of(order)?, None), suspend },
            Wish::Update { order, array_limit, time_limit_s } => {
                let array_limit = array_limit.map(Some);
                // Some updates ask for a new number of nodes: running jobs give nodes back, pending ones change their
                // request. Components, or jobs of the smaller partition, could then wait for nodes for ever.
                let placed = &self.clients.placed[order].order;
                let single = array_limit.is_none() && placed.beside == 0;
                let all = self.nodes.len() - self.setup.spares() as usize;
                let most = if placed.partition.as_deref() == Some(FAST) { all / 2 } else { all };
                let most = most - placed.options.spare_nodes.unwrap_or(0) as usize;
                let count = time_limit_s.filter(|limit| single && limit % 3 == 0);
                let nodes = count.map(|limit| ((1 + limit as usize % 4).min(most) as u32, None));
                let time_limit_s = time_limit_s.map(Some);
                let change = JobUpdate { array_limit, time_limit_s, nodes, ..JobUpdate::default() };
                Request::UpdateJob { jobs: selection(id_of(order)?, None), change: Box::new(change) }
            }
            Wish::Admin { nodes, admin, after } => {
                let (admin, reason) = (Some(admin), Some("sim".into()));
                let resumed = |after: Span| NodeChange { resume_after_s: Some(after.secs()), ..NodeChange::default() };
                Request::UpdateNodes { nodes, admin, reason, change: after.map(resumed).map(Box::new) }
            }
            Wish::Replace(order, node) => Request::Replace(id_of(order)?, self.nodes[node].name.clone()),
            // One operator at a time: the change builds on the durable version of the policy.
            Wish::Policy(changes) => Request::ChangePolicy { version: self.judge.policy.version, changes },
            Wish::Reserve(change) => Request::Reserve { change, create: true },
            Wish::Unreserve(name) => Request::Unreserve { name },
            Wish::Await { order } => Request::AwaitJob { job: id_of(order)? },
            Wish::Look { order } => Request::Jobs { jobs: selection(id_of(order)?, None), ended: true, steps: true },
            Wish::ShutDown { keep_jobs } => Request::ShutDown { keep_jobs },
            Wish::AuditJobs => Request::Jobs { jobs: JobSelection::default(), ended: true, steps: false },
            Wish::AuditNodes => Request::Nodes,
            Wish::Member(node, create) => self.member_request(node, create),
            Wish::Rotate => self.rotation(),
            Wish::AuditCounters => Request::Diag { reset: false },
            Wish::AuditTree => Question::probe().request(&self.setup.names),
            Wish::Query(question) => question.request(&self.setup.names),
            Wish::Bring(parcel) => parcel.request(),
        })
    }

    fn submission(&self, order: usize, tries: u32, spec: JobSpec) -> Request {
        let (env, key) = (ByteBuf::from(Order::environment(order)), self.key(order, tries));
        let batch = spec.kind == JobKind::Batch;
        let script = ByteBuf::from(if batch { Order::script(order) } else { Vec::new() });
        let asked = &self.clients.placed[order].order;
        match batch {
            _ if asked.beside > 0 => {
                let specs = vec![spec.clone(), asked.component(&spec)];
                Request::SubmitHet { specs, script, env, key, immediate_s: None }
            }
            true => Request::Submit { spec: Arc::new(spec), script, env, key },
            false => {
                let step = asked.comes_with_step().then(|| self.first_step(order));
                Request::Allocate { spec: Arc::new(spec), env, key, immediate_s: None, step }
            }
        }
    }

    pub(crate) fn key(&self, order: usize, tries: u32) -> ClientKey {
        let changed = self.is_planted(Mutation::RetryKeyIgnored) && tries > 1;
        ClientKey(((order as u128 + 1) << 16) | if changed { u128::from(tries) << 96 } else { 0 })
    }

    pub(crate) fn answer_arrives(&mut self, caller: u64, answer: Answer) {
        let Some(&call) = self.clients.by_caller.get(&caller) else { return };
        if !self.reaches_clients(self.clients.calls[call].controller) {
            return self.client_breaks(caller);
        }
        self.say(Origin::Client(call as u32), answer_name(&answer), 0, 0);
        match self.clients.calls[call].wish.clone() {
            Wish::Submit { order } => self.submit_answered(call, order, answer),
            Wish::Own { order } => self.own_answered(call, order, answer),
            Wish::Step { order } => self.step_answered(call, order, answer),
            Wish::Finish { order } => {
                self.clients.placed[order].over = true;
                self.content_all(order);
            }
            Wish::Cancel { order, index } => self.cancel_answered(call, order, index, &answer),
            Wish::Suspend { order, suspend: true } => {
                if matches!(&answer, Answer::Affected { jobs, refused } if !jobs.is_empty() && refused.is_empty()) {
                    self.judge.told_suspended(order, Some(self.now));
                }
                self.content(call);
            }
            Wish::Hold { order } => {
                if matches!(&answer, Answer::Affected { jobs, .. } if !jobs.is_empty()) {
                    self.judge.told_held(order);
                }
                self.content(call);
            }
            Wish::Await { order } => {
                self.judge.told_done(order, &answer, self.clients.placed[order].requeue_sent);
                self.content(call);
            }
            Wish::Look { order } => {
                self.judge.told_of(order, &answer);
                if !matches!(&answer, Answer::Jobs(page) if page.more) {
                    self.content(call);
                }
            }
            Wish::Policy(changes) => {
                self.content(call);
                if answer == Answer::Refused(Refusal::Stale) {
                    self.wish(Wish::Policy(changes));
                }
            }
            Wish::Query(question) => self.queried(call, &question, &answer),
            Wish::Member(node, create) => {
                self.member_answered(node, create);
                self.content(call);
            }
            Wish::Admin { nodes, admin, after } => {
                self.judge.admin_answered(self.now, call, &nodes, (admin, after), &answer);
                self.content(call);
                self.replace_ahead(&nodes, admin);
            }
            Wish::Bring(parcel) => {
                if self.parcel_answered(caller, &parcel, &answer) {
                    self.content(call);
                }
            }
            Wish::AuditJobs | Wish::AuditNodes | Wish::AuditTree | Wish::AuditCounters => {
                self.judge.audit(self.now, &answer);
                if !matches!(&answer, Answer::Jobs(page) if page.more) {
                    self.content(call);
                }
            }
            _ => self.content(call),
        }
    }

    fn cancel_answered(&mut self, call: usize, order: usize, index: Option<u32>, answer: &Answer) {
        let placed = &self.clients.placed[order];
        let whole = placed.order.array.is_none() || index.is_some();
        let requeue_sent = placed.requeue_sent;
        if matches!(answer, Answer::Affected { jobs, .. } if !jobs.is_empty()) && whole {
            self.judge.told_cancelled(order, index, requeue_sent);
        }
        self.content(call);
    }

    fn submit_answered(&mut self, call: usize, order: usize, answer: Answer) {
        match answer {
            Answer::Submitted { job, .. } => {
                self.judge.told_submitted(order, job, self.clients.placed[order].id);
                self.clients.placed[order].id = Some(job);
                self.content(call);
                match job.0 % 16 {
                    0 => drop(self.wish(Wish::Await { order })),
                    1 => drop(self.wish(Wish::Look { order })),
                    _ => {}
                }
            }
            Answer::Refused(refusal) => self.refused(call, order, refusal),
            _ => {}
        }
    }

    /// Handles a refusal: the request is retried later if the reason is temporary, and finished otherwise.
    fn refused(&mut self, call: usize, order: usize, refusal: Refusal) {
        if matches!(refusal, Refusal::DiskFull | Refusal::ShuttingDown | Refusal::QueueFull(_)) {
            if let Some(caller) = self.clients.calls[call].caller.take() {
                self.clients.by_caller.remove(&caller);
            }
            let again = self.seed.span(Span::from_secs(1), Span::from_secs(10));
            return self.after(again, Happening::ClientTries { call });
        }
        self.judge.told_refused(order, &refusal);
        self.clients.placed[order].refused = Some(refusal);
        self.clients.placed[order].over = true;
        self.content(call);
    }

    fn own_answered(&mut self, call: usize, order: usize, answer: Answer) {
        match answer {
            Answer::Submitted { job, .. } => {
                self.judge.told_submitted(order, job, self.clients.placed[order].id);
                self.clients.placed[order].id = Some(job);
            }
            Answer::Allocated(_) => {
                let placed = &mut self.clients.placed[order];
                if !std::mem::replace(&mut placed.allocated, true) {
                    self.next_step(order);
                }
            }
            Answer::Refused(refusal) if self.clients.placed[order].id.is_none() => self.refused(call, order, refusal),
            Answer::Refused(_) => {
                self.clients.placed[order].over = true;
                self.content(call);
            }
            _ => {}
        }
    }

    fn next_step(&mut self, order: usize) {
        let placed = &self.clients.placed[order];
        let wish = if placed.steps_done < placed.order.steps { Wish::Step { order } } else { Wish::Finish { order } };
        self.wish(wish);
    }

    fn step_answered(&mut self, call: usize, order: usize, answer: Answer) {
        match answer {
            Answer::StepCreated { layout, .. } => self.step_created(order, &layout),
            Answer::StepDone { outcome, .. } => self.step_done(order, Some(&outcome)),
            Answer::Refused(_) => {
                self.content(call);
                self.step_done(order, None);
            }
            _ => {}
        }
    }

    /// Handles the end of a job order's `srun`, after its step ended or was refused (`refused`): the job order's next
    /// step or its end follows.
    pub(crate) fn followed(&mut self, order: usize, refused: bool) {
        self.forsake(order);
        let waits = |call: &Call| !call.done && matches!(call.wish, Wish::Step { order: of } if of == order);
        if let Some(call) = self.clients.calls.iter().rposition(waits) {
            self.content(call);
        }
        if !refused {
            self.clients.placed[order].steps_done += 1;
            self.next_step(order);
        } else if self.clients.placed[order].order.kind != JobKind::Batch {
            self.wish(Wish::Finish { order });
        }
    }
}

/// Returns whether a launch is that of a job's script, and not of a keeper in its place.
fn is_script(launch: &StepLaunch) -> bool {
    launch.key.step == StepNo::BATCH && !launch.has_keeper()
}
