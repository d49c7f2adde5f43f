//! Gang scheduling: how many jobs share a core, how long a time slice is, and which time slot is active when.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::JobAttempt;
use crate::policy::PreemptMode;
use crate::time::{Span, Time};

/// Most rows (time slots) of the gang matrix, because a set of slots is stored as the bits of a 64-bit word.
pub const ROWS_MAX: u32 = 64;

/// Number of rows (time slots) of the gang matrix if `OverSubscribe` has no number, as in Slurm.
const ROWS_USUAL: u32 = 4;

/// The shortest time slice, 100 µs. STORM's node manager kept up with 0.3 ms.
const SLICE_MIN: Span = Span(100);

/// The longest time slice, 65,533 s, as in Slurm.
const SLICE_MAX: Span = Span::from_secs(65_533);

/// Time between two `Strobe` messages, which tell nodes the controller's time so that their slots stay aligned.
pub const STROBE: Span = Span::from_secs(1);

/// `OverSubscribe` of a partition: how many jobs may hold the same core at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OverSubscribe {
    /// Each core is held by one job at most.
    #[default]
    No,
    /// Each core is held by one job at most, and a job gets whole nodes.
    Exclusive,
    /// Each core is held by up to this many jobs that request it (`--oversubscribe`).
    Yes(u32),
    /// Each core is held by up to this many jobs, whether they request it or not.
    Force(u32),
}

impl OverSubscribe {
    /// Returns how many jobs may hold the cores of one job, itself included. `asked`: the job has `--oversubscribe`.
    pub fn rows(self, asked: bool) -> u32 {
        match self {
            Self::Force(rows) => rows,
            Self::Yes(rows) if asked => rows,
            Self::No | Self::Exclusive | Self::Yes(_) => 1,
        }
    }
}

impl TryFrom<String> for OverSubscribe {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (word, count) = text.split_once(':').map_or((&*text, None), |(word, count)| (word, Some(count)));
        let rows = match count.map(str::parse) {
            None => ROWS_USUAL,
            Some(Ok(rows)) if (1..=ROWS_MAX).contains(&rows) => rows,
            Some(_) => return Err(format!("OverSubscribe `{text}`: the number must be 1 to {ROWS_MAX}")),
        };
        match (word.to_ascii_uppercase().as_str(), count) {
            ("NO", None) => Ok(Self::No),
            ("EXCLUSIVE", None) => Ok(Self::Exclusive),
            ("YES", _) => Ok(Self::Yes(rows)),
            ("FORCE", _) => Ok(Self::Force(rows)),
            _ => Err(format!("OverSubscribe `{text}`: NO, EXCLUSIVE, YES[:N] or FORCE[:N] is meant")),
        }
    }
}

impl From<OverSubscribe> for String {
    fn from(of: OverSubscribe) -> Self {
        match of {
            OverSubscribe::No => "NO".to_owned(),
            OverSubscribe::Exclusive => "EXCLUSIVE".to_owned(),
            OverSubscribe::Yes(rows) => format!("YES:{rows}"),
            OverSubscribe::Force(rows) => format!("FORCE:{rows}"),
        }
    }
}

/// `SchedulerTimeSlice`: seconds as a number, as in Slurm, or a text such as `10ms`, `300us`, `2s`. Default 30 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Slice", into = "Slice")]
pub struct TimeSlice(pub Span);

/// A time slice as a configuration file has it: a number of seconds, or a text with a unit.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Slice {
    Seconds(u64),
    Text(String),
}

impl Default for TimeSlice {
    fn default() -> Self {
        Self(Span::from_secs(30))
    }
}

impl TryFrom<Slice> for TimeSlice {
    type Error = String;

    fn try_from(slice: Slice) -> Result<Self, String> {
        let (text, span) = match slice {
            Slice::Seconds(seconds) => (seconds.to_string(), Some(Span::from_secs(seconds))),
            Slice::Text(text) => {
                let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let unit = match &text[digits.len()..] {
                    "" | "s" => Some(1_000_000),
                    "ms" => Some(1000),
                    "us" => Some(1),
                    _ => None,
                };
                let span = digits.trim().parse::<u64>().ok().zip(unit).map(|(n, unit)| Span(n.saturating_mul(unit)));
                (text, span)
            }
        };
        span.filter(|span| (SLICE_MIN..=SLICE_MAX).contains(span)).map(Self).ok_or_else(|| {
            format!("SchedulerTimeSlice `{text}`: seconds (5), or 10ms, 300us, between 100us and 65533s, are meant")
        })
    }
}

impl From<TimeSlice> for Slice {
    fn from(TimeSlice(span): TimeSlice) -> Self {
        match span.0 {
            us if us.is_multiple_of(1_000_000) => Self::Seconds(us / 1_000_000),
            us if us.is_multiple_of(1000) => Self::Text(format!("{}ms", us / 1000)),
            us => Self::Text(format!("{us}us")),
        }
    }
}

impl std::fmt::Display for TimeSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Slice::from(*self) {
            Slice::Seconds(seconds) => write!(f, "{seconds}"),
            Slice::Text(text) => f.write_str(&text),
        }
    }
}

/// `PreemptMode` of the cluster: what happens to preempted jobs, and whether jobs are gang-scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Preempt {
    /// What happens to preempted jobs (`CANCEL`, `REQUEUE`, `CHECKPOINT` or `SUSPEND`).
    pub way: PreemptMode,
    /// Whether jobs that share cores run in turn, a time slice each (`GANG`).
    pub gang: bool,
}

impl TryFrom<String> for Preempt {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut mode = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_uppercase().as_str() {
                "OFF" => mode.way = PreemptMode::Off,
                "CANCEL" => mode.way = PreemptMode::Cancel,
                // What can't be checkpointed is requeued, with or without this word.
                "REQUEUE" if mode.way == PreemptMode::Checkpoint => {}
                "REQUEUE" => mode.way = PreemptMode::Requeue,
                "CHECKPOINT" => mode.way = PreemptMode::Checkpoint,
                "SUSPEND" => mode.way = PreemptMode::Suspend,
                "GANG" => mode.gang = true,
                _ => {
                    let words = "OFF, CANCEL, REQUEUE, CHECKPOINT, SUSPEND or GANG";
                    return Err(format!("PreemptMode `{word}`: {words} is meant"));
                }
            }
        }
        if mode.way == PreemptMode::Suspend && !mode.gang {
            // As in Slurm: suspended jobs are resumed by the gang scheduler.
            return Err("PreemptMode SUSPEND needs GANG beside it".to_owned());
        }
        Ok(mode)
    }
}

impl From<Preempt> for String {
    fn from(mode: Preempt) -> Self {
        let way = match mode.way {
            PreemptMode::Cancel => Some("CANCEL"),
            PreemptMode::Requeue => Some("REQUEUE"),
            PreemptMode::Checkpoint => Some("CHECKPOINT,REQUEUE"),
            PreemptMode::Suspend => Some("SUSPEND"),
            PreemptMode::Off if mode.gang => None,
            PreemptMode::Off => Some("OFF"),
        };
        let words = [mode.gang.then_some("GANG"), way];
        words.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

/// How jobs in different rows (time slots) of the gang matrix share their cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode)]
#[cbor(index_only)]
#[serde(rename_all = "lowercase")]
pub enum Coscheduling {
    /// Jobs don't share cores, whatever `OverSubscribe` allows.
    #[n(0)]
    Batch,
    /// The jobs of one row run at a time, on all of their nodes together.
    #[n(1)]
    Gang,
    /// Jobs with processes that communicate often, as measured, run as with `Gang`. Other jobs run while no such job is
    /// in its slot on their cores, and otherwise use CPU time that it leaves idle (flexible coscheduling, FCS).
    #[n(2)]
    Flexible,
    /// The jobs of all rows run at once. The nodes' kernels share the time, and a process that waits for another
    /// blocks.
    #[default]
    #[n(3)]
    Implicit,
}

impl Coscheduling {
    /// Returns whether jobs run in turn, a time slice each.
    pub fn rotates(self) -> bool {
        matches!(self, Self::Gang | Self::Flexible)
    }
}

/// How a node stops the processes of jobs outside their time slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GangSwitch {
    /// Like `Idle` for slices of at most [`GangSwitch::SHORT`], otherwise like `Freeze`.
    #[default]
    Auto,
    /// The job's cgroup is frozen, so none of its processes runs.
    Freeze,
    /// The job's cgroup gets `cpu.idle`: its processes run only where no other process would. Sleeping processes
    /// needn't be woken to stop them.
    Idle,
}

impl GangSwitch {
    /// Longest slice for which `Auto` uses `cpu.idle`: in short slices the cost of a switch matters more than that all
    /// ranks stop at once. With `cpu.idle` a process may go on until the kernel's next tick.
    pub const SHORT: Span = Span::from_millis(10);

    /// Returns whether jobs outside their slot get `cpu.idle`, for slices of length `slice`. Otherwise they are frozen.
    pub fn steps_back(self, slice: Span) -> bool {
        match self {
            Self::Auto => slice <= Self::SHORT,
            Self::Freeze => false,
            Self::Idle => true,
        }
    }
}

/// A job's position in the gang matrix (jobs by time slot): the time slots in which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Turn {
    /// Number of the job's own slot, from 0.
    #[n(0)]
    pub slot: u32,
    /// Slots in which the job runs, one bit each: its own slot, and those in which no other job has its cores.
    #[n(1)]
    pub mask: u64,
    /// Number of slots in a round, after which the slots repeat. 1: the job always runs.
    #[n(2)]
    pub of: u32,
}

/// The position of a job that does not share its cores: it always runs.
impl Default for Turn {
    fn default() -> Self {
        Self { slot: 0, mask: 1, of: 1 }
    }
}

impl Turn {
    /// Returns whether the job runs in the slot with this number.
    pub fn runs_in(self, slot: u32) -> bool {
        self.mask >> slot & 1 == 1
    }
    /// Returns whether the job runs at `time`, for slices of length `slice`.
    pub fn runs_at(self, time: Time, slice: Span) -> bool {
        self.runs_in(slot_at(time, slice, self.of))
    }
    /// Returns the number of slots of a round in which the job runs.
    pub fn active(self) -> u32 {
        self.mask.count_ones()
    }
    /// Returns for how much of `span` the job does not run.
    pub fn idle(self, span: Span) -> Span {
        let idle = u64::from(self.of.saturating_sub(self.active()));
        Span((u128::from(span.0) * u128::from(idle) / u128::from(self.of.max(1))) as u64)
    }
    /// Returns the time that passes until the job has run for `span` in its slots. None: it never runs.
    pub fn stretch(self, span: Span) -> Option<Span> {
        let active = u128::from(self.active());
        let stretched = (u128::from(span.0) * u128::from(self.of)).checked_div(active)?;
        Some(Span(u64::try_from(stretched).unwrap_or(u64::MAX)))
    }
}

/// Returns the number of the slot that is active at `time`, if a round has `of` slots of length `slice`. The number
/// follows from the time alone, so nodes needn't be told of each change of slot.
pub fn slot_at(time: Time, slice: Span, of: u32) -> u32 {
    let round = u64::from(of.max(1));
    (time.0 / slice.0.max(1) % round) as u32
}

/// A job's change of position in the gang matrix. Recorded in the journal whenever the matrix changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Shift {
    /// The job that changed position.
    #[n(0)]
    pub job: JobId,
    /// The job's new position in the gang matrix.
    #[n(1)]
    pub turn: Turn,
    /// For how long the job did not run since its last change of position, because its slots were not active.
    #[n(2)]
    pub idle: Span,
}

/// Message to nodes with the controller's time, from which they calculate the active slot. Sent again at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Strobe {
    /// The controller's time when the message was sent.
    #[n(0)]
    pub at: Time,
    /// Length of a time slot.
    #[n(1)]
    pub slice: Span,
    /// How jobs outside their slots are stopped, or share their cores.
    #[n(2)]
    pub policy: Coscheduling,
}

/// New positions of jobs in the gang matrix, sent to the nodes of these jobs.
pub type Turns = Vec<(JobAttempt, Turn)>;

#[cfg(test)]
mod tests {
    use super::{Coscheduling, OverSubscribe, TimeSlice, Turn, slot_at};
    use crate::config::Config;
    use crate::time::{Span, Time};

    fn slice(text: &str) -> Result<Span, String> {
        Config::from_toml(&format!("SchedulerTimeSlice = {text}")).map(|config| config.scheduler_time_slice.0)
    }

    #[test]
    fn slurms_words_and_shorter_slices() {
        assert_eq!(slice("30"), Ok(Span::from_secs(30)));
        assert_eq!(slice("\"10ms\""), Ok(Span::from_millis(10)));
        assert_eq!(slice("\"300us\""), Ok(Span(300)));
        assert_eq!(slice("\"2s\""), Ok(Span::from_secs(2)));
        for wrong in ["0", "70000", "\"10\u{b5}s\"", "\"\"", "\"99us\"", "\"-1s\"", "\"1h\""] {
            assert!(slice(wrong).is_err(), "{wrong}");
        }
        let of = |text: &str| OverSubscribe::try_from(text.to_owned());
        assert_eq!(
            (of("FORCE:2"), of("yes"), of("no")),
            (Ok(OverSubscribe::Force(2)), Ok(OverSubscribe::Yes(4)), Ok(OverSubscribe::No))
        );
        for wrong in ["FORCE:0", "FORCE:65", "NO:2", "MAYBE", ""] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn jobs_are_suspended_for_those_of_higher_tiers_only() {
        let read = |text: &str| Config::from_toml(text);
        let tiers = "PreemptType = \"preempt/partition_prio\"\n";
        let config = read(&format!("{tiers}PreemptMode = \"suspend,gang\"\n")).expect("these are the words");
        assert_eq!(String::from(config.preempt_mode), "GANG,SUSPEND");
        assert!(config.suspends(&config.partitions[0]));
        let own = "[[partitions]]\nname = \"low\"\nPreemptMode = \"SUSPEND\"\n[[partitions]]\nname = \"high\"\n";
        let config = read(&format!("{tiers}PreemptMode = \"GANG\"\n{own}")).expect("these are the words");
        assert_eq!([0, 1].map(|at| config.suspends(&config.partitions[at])), [true, false]);
        let qos = "PreemptType = \"preempt/qos\"\nPreemptMode = \"SUSPEND,GANG\"\n".to_owned();
        for (text, why) in [
            (qos, "with preempt/qos use REQUEUE or CANCEL"),
            (format!("{tiers}PreemptMode = \"SUSPEND\"\n"), "needs GANG"),
            (format!("{tiers}{own}"), "of partition low needs"),
            (format!("PreemptMode = \"GANG\"\n{own}"), "of partition low needs"),
        ] {
            assert!(read(&text).is_err_and(|e| e.contains(why)), "{text}");
        }
    }

    #[test]
    fn what_can_not_be_checkpointed_is_requeued() {
        let dir = "checkpoint_dir = \"/c\"\n";
        for words in ["checkpoint", "CHECKPOINT,REQUEUE", "REQUEUE,CHECKPOINT"] {
            let config = Config::from_toml(&format!("{dir}PreemptMode = \"{words}\"\n")).expect("these are the words");
            assert_eq!(String::from(config.preempt_mode), "CHECKPOINT,REQUEUE");
        }
        let own = "[[partitions]]\nname = \"low\"\nPreemptMode = \"CHECKPOINT,REQUEUE\"\n";
        assert!(Config::from_toml(&format!("{dir}{own}")).is_ok());
        let without = Config::from_toml(own);
        assert!(without.is_err_and(|e| e.contains("needs checkpoint_dir")));
    }

    #[test]
    fn a_configuration_with_gangs_is_written_as_it_is_read() {
        let text = "SchedulerTimeSlice = \"10ms\"\ncoscheduling = \"gang\"\n\
                    [[partitions]]\nname = \"g\"\nOverSubscribe = \"FORCE:3\"\n";
        let config = Config::from_toml(text).expect("these are the words");
        assert_eq!(config.partitions[0].oversubscribe, OverSubscribe::Force(3));
        assert_eq!(
            (config.scheduler_time_slice, config.coscheduling()),
            (TimeSlice(Span::from_millis(10)), Coscheduling::Gang)
        );
        let again = Config::from_toml(&toml::to_string(&config).expect("it is text")).expect("what is written is read");
        assert_eq!(again, config);
    }

    #[test]
    fn every_slot_comes_in_turn_and_lasts_a_slice() {
        let slice = Span::from_millis(2);
        let slots: Vec<u32> = (0..12).map(|ms| slot_at(Time(ms * 1000), slice, 3)).collect();
        assert_eq!(slots, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        let turn = Turn { slot: 1, mask: 0b110, of: 3 };
        assert_eq!(turn.idle(Span::from_secs(9)), Span::from_secs(3));
        assert_eq!(turn.stretch(Span::from_secs(2)), Some(Span::from_secs(3)));
        assert_eq!(Turn { mask: 0, ..turn }.stretch(Span(1)), None);
        assert!(Turn::default().runs_at(Time(77), slice));
    }
}
