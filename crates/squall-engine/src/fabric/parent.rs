//! The hop upward: the parent that a node is attached to, its liveness, and the next to try when it dies.

use squall_model::limits::HEARTBEAT_S;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::Path;

use crate::invariant::invariant;

/// First and longest pause after connections to all candidates for the parent have failed.
const PAUSE: (Span, Span) = (Span::from_millis(10), Span::from_secs(1));

/// How long a starting node tries only its own parent, which may be starting too.
const START_WAIT: Span = Span::from_secs(2);

/// Interval, first and longest, at which a node away from its own parent tries to return to it. It doubles with each
/// parent that the node leaves for the controller, since there was no path to the controller from there.
const HOME: (Span, Span) = (Span::from_secs(20), Span::from_secs(1800));

/// How long a node that starts stays with a parent that has no path to the controller, before it asks the controller itself:
/// the whole cluster may be starting. A node that has had a path in this run stays as long as with a silent parent.
const PATHLESS: Span = Span::from_secs(120);

/// Number of heartbeat intervals without a frame after which a hop counts as dead.
pub(super) const SILENT_HEARTBEATS: u64 = 3;

/// Process to which a node opens a connection, to make it its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dial {
    /// The controller itself.
    Controller,
    /// The node daemon of the node with this name.
    Node(String),
}

/// A node's connection to its parent, and the candidates for the next parent.
#[derive(Debug)]
pub(super) struct Parent {
    /// Names of the nodes above this one in a healthy tree (one in which all node daemons run), its parent first,
    /// without the controller.
    home: Vec<String>,
    /// Candidates for the parent, in the order in which they are dialled.
    ladder: Vec<Dial>,
    rung: usize,
    dialling: Option<Dial>,
    next_dial: Option<Time>,
    pause: Span,
    /// Time before which only the first candidate is dialled. None: all candidates may be dialled.
    climb_at: Option<Time>,
    pub(super) attached: Option<Attached>,
    home_at: Option<Time>,
    home_wait: Span,
    /// When to try the controller directly, because the parent has no path to it or changes its messages.
    detour_at: Option<Time>,
    /// Whether there was a path to the controller in this run of the daemon.
    had_path: bool,
    /// Time between two of the controller's queries to all nodes, as it was told last.
    beat: Span,
}

/// An open connection to a parent.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) to: Dial,
    /// Number of the last message received from the parent.
    pub(super) heard_hops: u64,
    pub(super) said_hops: u64,
    pub(super) heard: Time,
    pub(super) said: Time,
    /// Path from the parent to the controller. None: the parent has not sent one yet.
    pub(super) path: Option<Path>,
}

impl Parent {
    /// Makes the state of a node without a parent yet. `home`: names of the nodes above it in a healthy tree, nearest
    /// first.
    pub(super) fn new(home: Vec<String>) -> Self {
        let mut parent = Self {
            ladder: Vec::new(),
            home,
            rung: 0,
            dialling: None,
            next_dial: Some(Time::default()),
            pause: PAUSE.0,
            climb_at: None,
            attached: None,
            home_at: None,
            home_wait: HOME.0,
            detour_at: None,
            had_path: false,
            beat: Span::from_secs(HEARTBEAT_S),
        };
        parent.ladder = parent.all();
        parent
    }

    /// Returns all candidates for the parent in a healthy tree, nearest first.
    fn all(&self) -> Vec<Dial> {
        self.home.iter().cloned().map(Dial::Node).chain([Dial::Controller]).collect()
    }

    /// Returns the node's own parent in a healthy tree.
    fn first_choice(&self) -> Dial {
        self.home.first().cloned().map_or(Dial::Controller, Dial::Node)
    }

    /// Returns the time between two of the controller's queries to all nodes, as it was told last.
    pub(super) fn beat(&self) -> Span {
        self.beat
    }

    /// Returns the time between heartbeats of a connection between nodes.
    pub(super) fn pulse(&self) -> Span {
        Span(self.beat.0 / 2)
    }

    /// Returns the time between heartbeats of the connection to the parent.
    pub(super) fn heartbeat(&self) -> Span {
        let attached = self.attached.as_ref().and_then(|attached| Some((&attached.to, attached.path.as_ref()?)));
        match attached {
            Some((Dial::Node(_), Path { beat: Some(_), .. })) => self.pulse(),
            Some((_, Path { beat: None, heartbeat_s, .. })) => Span::from_secs((*heartbeat_s).max(1)),
            Some((Dial::Controller, _)) | None => self.beat,
        }
    }

    /// Counts the last `away` until `now` as no silence of the parent, as this node itself did not run.
    pub(super) fn excuse(&mut self, now: Time, away: Span) {
        if let Some(attached) = &mut self.attached {
            attached.heard = (attached.heard + away).min(now);
        }
    }

    /// Records that the requested connection to a parent is open, in place of the previous one.
    pub(super) fn opened(&mut self, now: Time) {
        let to = self.dialling.take().unwrap_or(Dial::Controller);
        let bypassed = self.attached.as_ref().is_some_and(|attached| attached.to != Dial::Controller);
        if bypassed && to == Dial::Controller {
            self.home_wait = Span(self.home_wait.0 * 2).min(HOME.1);
        }
        self.home_at = (to != self.first_choice()).then(|| now + self.home_wait);
        let wait = if self.had_path { Span(self.pulse().0 * SILENT_HEARTBEATS) } else { PATHLESS };
        self.detour_at = (to != Dial::Controller).then(|| now + wait);
        self.attached = Some(Attached { to, heard_hops: 0, said_hops: 0, heard: now, said: now, path: None });
        self.next_dial = None;
        self.pause = PAUSE.0;
    }

    /// Records that the connection to the parent is gone, and prepares to dial the nodes above the lost parent. `silent`: this
    /// node leaves it, as it says nothing. With frequent beats the controller comes first then: a node above that is silent,
    /// too, would cost seconds.
    pub(super) fn closed(&mut self, now: Time, silent: bool) {
        let Some(attached) = self.attached.take() else { return invariant!("only a parent that there is can be lost") };
        let straight = silent && self.beat < Span::from_secs(HEARTBEAT_S);
        let above = attached.path.filter(|_| !straight).map(|path| path.above).unwrap_or_default();
        let above: Vec<Dial> = above.into_iter().map(Dial::Node).chain([Dial::Controller]).collect();
        // Nodes above the lost parent come first, then all others. A node that was attached to the controller has
        // only the others.
        let rest = self.all().into_iter().filter(|dial| !above.contains(dial));
        self.ladder = above.iter().cloned().chain(rest.collect::<Vec<_>>()).collect();
        self.rung = 0;
        self.home_at = None;
        self.detour_at = None;
        self.climb_at = Some(now);
        self.next_dial = Some(now);
    }

    /// Records that a connection to a candidate could not be made, and plans the next attempt.
    pub(super) fn failed(&mut self, now: Time) {
        let dialled = self.dialling.take();
        if let Some(attached) = &self.attached {
            let home = self.first_choice();
            self.home_at = (attached.to != home).then(|| now + self.home_wait);
            if dialled == Some(Dial::Controller) && (home != Dial::Controller || attached.to == home) {
                // A detour, or another greeting. The node has no session until one succeeds, or its parent has a path again.
                self.detour_at = Some(now + self.pause());
            }
            return;
        }
        // The dial was a return to the own parent. The connection went away meanwhile, and no candidate has been
        // tried yet.
        if dialled.as_ref() != self.ladder.get(self.rung) {
            self.next_dial = Some(now);
            return;
        }
        let climb_at = *self.climb_at.get_or_insert(now + START_WAIT);
        if now >= climb_at {
            self.rung += 1;
        }
        if self.rung >= self.ladder.len() {
            self.rung = 0;
            self.ladder = self.all();
        } else if self.rung > 0 {
            self.next_dial = Some(now);
            return;
        }
        self.next_dial = Some(now + self.pause());
    }

    /// Returns the pause before the next attempt; each is twice as long as the one before.
    fn pause(&mut self) -> Span {
        let next = Span(self.pause.0 * 2).min(PAUSE.1);
        std::mem::replace(&mut self.pause, next)
    }

    /// Plans to bypass a parent that is alive but has no path to the controller, or changes its messages, and to return
    /// later. False: there is no such parent.
    pub(super) fn detour(&mut self) -> bool {
        let bypassed = self.attached.as_ref().is_some_and(|attached| attached.to != Dial::Controller);
        if bypassed {
            self.detour_at = Some(Time::default());
        }
        bypassed
    }

    /// Schedules a new connection to the controller: its greeting carries the key with which it signs now.
    pub(super) fn reconnect_for_key(&mut self, now: Time) {
        self.detour_at.get_or_insert(now + PAUSE.0);
    }

    /// Records a path to the controller.
    pub(super) fn found_path(&mut self, path: Path) {
        let home = self.first_choice();
        self.detour_at = None;
        self.had_path = true;
        self.beat = path.beat.unwrap_or(Span::from_secs(HEARTBEAT_S));
        if let Some(attached) = &mut self.attached {
            if attached.to == home {
                self.home_wait = HOME.0;
            }
            attached.path = Some(path);
        }
    }

    /// Returns the target to dial now; None: no dial is due. Answered by `opened` or `failed`.
    pub(super) fn dial(&mut self, now: Time) -> Option<Dial> {
        if self.dialling.is_some() {
            return None;
        }
        let detour = self.attached.is_some() && self.detour_at.is_some_and(|at| at <= now);
        let whom = if detour {
            self.detour_at = None;
            Dial::Controller
        } else if self.attached.is_some() {
            self.home_at.filter(|at| *at <= now)?;
            self.first_choice()
        } else {
            self.next_dial.filter(|at| *at <= now)?;
            self.ladder.get(self.rung)?.clone()
        };
        self.home_at = None;
        self.next_dial = None;
        self.dialling = Some(whom.clone());
        Some(whom)
    }

    /// Returns whether the parent has been silent for too long.
    pub(super) fn is_silent(&self, now: Time) -> bool {
        self.patience().is_some_and(|until| until <= now)
    }

    fn patience(&self) -> Option<Time> {
        let span = Span(self.heartbeat().0 * SILENT_HEARTBEATS);
        self.attached.as_ref().map(|attached| attached.heard + span)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let idle = self.dialling.is_none();
        let detour = self.detour_at.filter(|_| self.attached.is_some());
        let dial = [self.next_dial, self.home_at, detour].into_iter().flatten().filter(|_| idle);
        let alive = self.attached.as_ref().map(|attached| attached.said + self.heartbeat());
        dial.chain(self.patience()).chain(alive).min()
    }
}
