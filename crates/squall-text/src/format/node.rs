//! State of a node and its resources, in Slurm's terms.

use std::collections::BTreeMap;

use squall_model::duration::format_memory_mb;
use squall_model::event::NodeAdmin;
use squall_model::fault::Fault;
use squall_model::gres;
use squall_model::power::{PowerPhase, PowerWish};
use squall_model::wire::info::NodeInfo;

use crate::format::clock::Clock;

/// Base state of a node, to which flags are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// The node has never registered.
    Unknown,
    /// The node is out of service.
    Down,
    /// No job runs on the node.
    Idle,
    /// All CPUs of the node are allocated.
    Allocated,
    /// Some CPUs of the node are allocated.
    Mixed,
    /// The node may join some day.
    Future,
}

/// A node's state: the base state and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeState {
    /// The node does not answer.
    pub silent: bool,
    /// No job may start on the node.
    pub drain: bool,
    /// No job may start on the node: it is expected to fail.
    pub fail: bool,
    /// Jobs on the node are ending.
    pub completing: bool,
    /// A reservation of the node is active.
    pub reserved: bool,
    /// The active reservation is for maintenance.
    pub maint: bool,
    /// A reboot of the node was requested.
    pub reboot: bool,
    /// The node was ordered to reboot.
    pub rebooting: bool,
    /// Phase of the node's power.
    pub power: PowerPhase,
    /// What an operator wants of the node's power.
    pub wish: Option<PowerWish>,
    /// The node comes and goes with its power.
    pub cloud: bool,
    /// Base state of the node.
    pub base: Base,
}

impl NodeState {
    /// Derives the state of a node.
    pub fn of(node: &NodeInfo) -> Self {
        let power = node.power.unwrap_or_default();
        let sleeps = power.phase != PowerPhase::On;
        let base = if node.future {
            Base::Future
        } else if !node.known && !sleeps {
            Base::Unknown
        } else if (!node.up && !sleeps) || node.admin == NodeAdmin::Down {
            Base::Down
        } else if node.cpus_used >= node.hardware.cpus && node.cpus_used > 0 {
            Base::Allocated
        } else if node.cpus_used > 0 || node.jobs_running > 0 {
            Base::Mixed
        } else {
            Base::Idle
        };
        Self {
            // The silence of a node that is to be down is no news.
            silent: !(node.up && node.responds
                || node.future
                || matches!(power.phase, PowerPhase::Off | PowerPhase::GoingDown)),
            drain: node.admin == NodeAdmin::Drain,
            fail: node.admin == NodeAdmin::Fail,
            completing: node.jobs_completing > 0,
            reserved: !node.reservation.is_empty(),
            maint: node.maint,
            reboot: node.reboot == Some(false),
            rebooting: node.reboot == Some(true),
            power: power.phase,
            wish: power.wish,
            cloud: node.cloud,
            base,
        }
    }

    /// Returns whether jobs hold CPUs of the node.
    pub fn busy(self) -> bool {
        matches!(self.base, Base::Allocated | Base::Mixed)
    }

    /// Returns whether a job could start on the node.
    pub fn usable(self) -> bool {
        let goes = self.power == PowerPhase::GoingDown;
        !goes
            && !self.drain
            && !self.fail
            && !self.rebooting
            && !matches!(self.base, Base::Down | Base::Unknown | Base::Future)
    }

    /// Returns the state's long form: `idle`, `drained`, `down*`.
    pub fn long(self) -> String {
        self.with_star(self.word())
    }

    /// Returns the state's short form: `idle`, `drain`, `down*`.
    pub fn compact(self) -> String {
        self.with_star(self.words().1)
    }

    /// Returns the state's long form without the star of a node that does not answer: `idle`, `drained`, `down`.
    pub fn word(self) -> &'static str {
        self.words().0
    }

    fn words(self) -> (&'static str, &'static str) {
        if self.fail {
            return if self.busy() || self.completing { ("failing", "failg") } else { ("fail", "fail") };
        }
        if self.rebooting {
            return ("reboot", "boot");
        }
        match (self.drain, self.base) {
            (true, _) if self.busy() || self.completing => ("draining", "drng"),
            (true, _) => ("drained", "drain"),
            (false, Base::Unknown) => ("unknown", "unk"),
            (false, Base::Future) => ("future", "futr"),
            (false, Base::Down) => ("down", "down"),
            (false, Base::Allocated) => ("allocated", "alloc"),
            (false, Base::Mixed) => ("mixed", "mix"),
            (false, Base::Idle) if self.completing => ("completing", "comp"),
            (false, Base::Idle) if self.maint => ("maint", "maint"),
            (false, Base::Idle) if self.reserved => ("reserved", "resv"),
            (false, Base::Idle) => ("idle", "idle"),
        }
    }

    fn with_star(self, word: &str) -> String {
        // As in Slurm, one sign: those of reboots and power take precedence.
        let sign = match self {
            Self { rebooting: true, .. } => "^",
            Self { reboot: true, .. } => "@",
            Self { power: PowerPhase::GoingUp, .. } => "#",
            Self { power: PowerPhase::GoingDown, .. } => "%",
            Self { power: PowerPhase::Off, .. } => "~",
            _ if self.is_to_go_down() => "!",
            Self { silent: true, .. } => "*",
            _ => "",
        };
        format!("{word}{sign}")
    }

    /// Returns base state and flags, as scontrol and JSON have them: `IDLE`, `DOWN+DRAIN+NOT_RESPONDING`.
    pub fn list(self) -> Vec<&'static str> {
        let mut out = vec![match self.base {
            Base::Unknown => "UNKNOWN",
            Base::Future => "FUTURE",
            Base::Down => "DOWN",
            Base::Idle => "IDLE",
            Base::Allocated => "ALLOCATED",
            Base::Mixed => "MIXED",
        }];
        if self.cloud {
            out.push("CLOUD");
        }
        if self.completing {
            out.push("COMPLETING");
        }
        if self.drain {
            out.push("DRAIN");
        }
        if self.fail {
            out.push("FAIL");
        }
        if self.maint {
            out.push("MAINTENANCE");
        }
        if self.reserved {
            out.push("RESERVED");
        }
        if self.reboot {
            out.push("REBOOT_REQUESTED");
        }
        if self.rebooting {
            out.push("REBOOT_ISSUED");
        }
        if self.silent {
            out.push("NOT_RESPONDING");
        }
        out.extend(match self.power {
            PowerPhase::On => None,
            PowerPhase::Off => Some("POWERED_DOWN"),
            PowerPhase::GoingUp => Some("POWERING_UP"),
            PowerPhase::GoingDown => Some("POWERING_DOWN"),
        });
        out.extend(match self.wish {
            None => None,
            Some(PowerWish::Up) => Some("POWER_UP"),
            Some(PowerWish::DownAsap) => Some("POWER_DRAIN"),
            Some(PowerWish::Down | PowerWish::DownForce) => Some("POWER_DOWN"),
        });
        out
    }

    /// Returns whether an operator wants the node to be powered down.
    fn is_to_go_down(self) -> bool {
        self.wish.is_some_and(|wish| wish != PowerWish::Up)
    }

    /// Returns whether `sinfo -t WORD` selects this state. None: Slurm has no such state.
    pub fn is(self, word: &str) -> Option<bool> {
        Some(match word.trim_end_matches(['*', '@', '^', '#', '%', '~', '!']).to_ascii_lowercase().as_str() {
            "all" => true,
            "alloc" | "allocated" => self.base == Base::Allocated,
            "mix" | "mixed" => self.base == Base::Mixed,
            "idle" => self.base == Base::Idle && !self.drain && !self.fail && !self.completing && !self.reserved,
            "maint" => self.maint,
            "resv" | "res" | "reserved" => self.reserved,
            "down" => self.base == Base::Down,
            "future" | "futr" => self.base == Base::Future,
            "unk" | "unknown" => self.base == Base::Unknown,
            "comp" | "completing" => self.completing,
            "drain" => self.drain,
            "fail" => self.fail && !self.busy(),
            "failing" | "failg" => self.fail && self.busy(),
            "drained" => self.drain && !self.busy(),
            "drng" | "draining" => self.drain && self.busy(),
            "no_respond" | "not_responding" => self.silent,
            "reboot" => self.reboot || self.rebooting,
            "reboot_requested" => self.reboot,
            "reboot_issued" | "boot" => self.rebooting,
            "power_down" => self.is_to_go_down(),
            "power_up" => self.wish == Some(PowerWish::Up),
            "powered_down" => self.power == PowerPhase::Off,
            "powering_down" | "pow_dn" => self.power == PowerPhase::GoingDown,
            "powering_up" | "pow_up" => self.power == PowerPhase::GoingUp,
            "cloud" => self.cloud,
            "err" | "error" | "npc" | "perfctrs" | "planned" | "plnd" | "blocked" | "inval" | "invalid_reg"
            | "drain_" => false,
            _ => return None,
        })
    }
}

/// Names of the states in which nodes can be and by which they are selected ([`NodeState::is`]).
pub const STATES: [&str; 23] = [
    "ALLOCATED",
    "CLOUD",
    "COMPLETING",
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "FAILING",
    "FUTURE",
    "IDLE",
    "MAINT",
    "MIXED",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "POWER_DOWN",
    "POWER_UP",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
    "RESERVED",
    "UNKNOWN",
];

/// Formats the faults of a node, the newest first, with the jobs that suffered: `lost@2026-11-28T21:00:00(12,14)`. Empty:
/// it had none.
pub fn faults(node: &NodeInfo, clock: &Clock) -> String {
    let one = |fault: &Fault| {
        let jobs: Vec<String> = fault.jobs.iter().map(ToString::to_string).collect();
        let jobs = if jobs.is_empty() { String::new() } else { format!("({})", jobs.join(",")) };
        format!("{}@{}{jobs}", fault.kind.name(), clock.show(fault.time))
    };
    node.faults.iter().rev().map(one).collect::<Vec<_>>().join(",")
}

/// Formats a node's resources: `cpu=8,mem=16G,billing=8,gres/gpu=4`.
pub fn has(node: &NodeInfo) -> String {
    let hardware = &node.hardware;
    format!("cpu={}{},billing={}{}", hardware.cpus, memory(hardware.memory_mb), hardware.cpus, generic(&node.gres))
}

/// Formats the resources of a node that jobs hold: `cpu=8,mem=16G,gres/gpu=4`; empty if there are none.
pub fn holds(node: &NodeInfo) -> String {
    if node.cpus_used == 0 {
        return String::new();
    }
    format!("cpu={}{}{}", node.cpus_used, memory(node.memory_used_mb), generic(&node.gres_used))
}

fn memory(mb: u64) -> String {
    if mb > 0 { format!(",mem={}", format_memory_mb(mb)) } else { String::new() }
}

/// Formats generic resources: `,gres/gpu=4`.
fn generic(list: &str) -> String {
    let sums = devices(list).into_iter().filter(|(_, count)| *count > 0);
    sums.map(|(name, count)| format!(",gres/{name}={count}")).collect::<Vec<_>>().concat()
}

/// Returns the number of generic resources of each name, summed over its types, in a list such as
/// `gpu:a100:2(IDX:0-1),gpu:v100:1`.
pub fn devices(list: &str) -> BTreeMap<String, u32> {
    let mut sums: BTreeMap<String, u32> = BTreeMap::new();
    // Removes parts in parentheses, because the indices in them contain commas.
    let bare: String = list.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
    for count in gres::parse(&bare).unwrap_or_default() {
        let sum = sums.entry(count.name).or_default();
        *sum = sum.saturating_add(count.count);
    }
    sums
}

#[cfg(test)]
mod tests {
    use squall_model::event::NodeAdmin;
    use squall_model::fault::{Fault, FaultKind};
    use squall_model::id::JobId;
    use squall_model::power::{Power, PowerPhase, PowerWish};
    use squall_model::resource::Hardware;
    use squall_model::time::Time;
    use squall_model::wire::info::NodeInfo;

    use super::NodeState;
    use crate::format::clock::{Clock, Style};

    fn node(name: &str) -> NodeInfo {
        let hardware = Hardware { cpus: 4, ..Hardware::default() }.into();
        NodeInfo { name: name.into(), up: true, responds: true, known: true, hardware, ..NodeInfo::default() }
    }

    #[test]
    fn faults_are_told_the_newest_first_with_the_jobs_that_suffered() {
        let at = |minutes: u64| Time::from_secs(minutes * 60);
        let fault = |kind, minutes, jobs: &[u32]| Fault {
            kind,
            time: at(minutes),
            jobs: jobs.iter().map(|id| JobId(*id)).collect(),
        };
        let faults = vec![fault(FaultKind::Health, 1, &[]), fault(FaultKind::Lost, 5, &[12, 14])];
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: at(10) };
        let told = super::faults(&NodeInfo { faults, ..node("n1") }, &clock);
        assert_eq!(told, "lost@1970-01-01T00:05:00(12,14),health@1970-01-01T00:01:00");
        assert_eq!(super::faults(&node("n1"), &clock), "");
    }

    #[test]
    fn every_state_has_its_words() {
        let words = |change: fn(&mut NodeInfo)| {
            let mut n = node("n1");
            change(&mut n);
            let s = NodeState::of(&n);
            format!("{} {} {}", s.long(), s.compact(), s.list().join("+"))
        };
        assert_eq!(words(|_| ()), "idle idle IDLE");
        assert_eq!(words(|n| n.cpus_used = 2), "mixed mix MIXED");
        assert_eq!(words(|n| n.cpus_used = 4), "allocated alloc ALLOCATED");
        assert_eq!(words(|n| n.jobs_completing = 1), "completing comp IDLE+COMPLETING");
        assert_eq!(words(|n| n.responds = false), "idle* idle* IDLE+NOT_RESPONDING");
        assert_eq!(words(|n| n.up = false), "down* down* DOWN+NOT_RESPONDING");
        assert_eq!(words(|n| n.admin = NodeAdmin::Down), "down down DOWN");
        assert_eq!(words(|n| n.reboot = Some(false)), "idle@ idle@ IDLE+REBOOT_REQUESTED");
        assert_eq!(words(|n| n.reboot = Some(true)), "reboot^ boot^ IDLE+REBOOT_ISSUED");
        assert_eq!(words(|n| n.admin = NodeAdmin::Drain), "drained drain IDLE+DRAIN");
        assert_eq!(words(|n| n.admin = NodeAdmin::Fail), "fail fail IDLE+FAIL");
        let power = |n: &mut NodeInfo, phase| n.power = Some(Power { phase, ..Power::default() });
        let phase = |phase| {
            let mut n = node("n1");
            (n.responds, n.known, n.up, n.cloud) = (false, false, false, true);
            power(&mut n, phase);
            let s = NodeState::of(&n);
            format!("{} {}", s.compact(), s.list().join("+"))
        };
        assert_eq!(phase(PowerPhase::Off), "idle~ IDLE+CLOUD+POWERED_DOWN");
        assert_eq!(phase(PowerPhase::GoingUp), "idle# IDLE+CLOUD+NOT_RESPONDING+POWERING_UP");
        assert_eq!(phase(PowerPhase::GoingDown), "idle% IDLE+CLOUD+POWERING_DOWN");
        let wish = |wish| Some(Power { wish: Some(wish), ..Power::default() });
        let mut leaving = node("n1");
        leaving.power = wish(PowerWish::Down);
        assert_eq!(NodeState::of(&leaving).compact(), "idle!");
        let busy = |n: &mut NodeInfo| (n.admin, n.cpus_used) = (NodeAdmin::Drain, 1);
        assert_eq!(words(busy), "draining drng MIXED+DRAIN");
        assert_eq!(words(|n| (n.known, n.up) = (false, false)), "unknown* unk* UNKNOWN+NOT_RESPONDING");
    }
}
