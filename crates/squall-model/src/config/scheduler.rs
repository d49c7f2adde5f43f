//! Who may pass whom, and how far the scheduler looks.

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Whether jobs may pass others that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchedulerType {
    /// Those that don't delay the first that waits in their partition.
    #[default]
    #[serde(rename = "sched/backfill")]
    Backfill,
    /// Nobody.
    #[serde(rename = "sched/builtin")]
    Builtin,
}

/// How long a job waits for few leaf switches, at most and unless it says less, seconds.
const SWITCH_WAIT_S: u32 = 300;

/// `bf_window=MINUTES,bf_max_job_test=N,bf_job_part_count_reserve=N,max_switch_wait=SECONDS` in Slurm's words. What is
/// not said is not limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchedulerParameters {
    /// Room is not kept farther ahead than this, minutes.
    pub bf_window_min: Option<u32>,
    /// Behind the first job that waits in a partition so many are looked at.
    pub bf_max_job_test: usize,
    /// For so many of those that wait in each partition room is kept; 0: for all of them that are looked at.
    pub bf_job_part_count_reserve: usize,
    /// A job waits no longer for as few leaf switches as it asked for, seconds.
    pub max_switch_wait_s: u32,
    /// Users may say which of their jobs go first (`scontrol top`).
    pub enable_user_top: bool,
    /// Words, as they were written, that say at what pace a scheduler goes that looks again and again; they change
    /// nothing for one that looks when something has happened.
    pub idle: Vec<String>,
}

/// Slurm looks at 500 (`bf_max_job_test`), but each 30 s (`bf_interval`) and not whenever something has happened.
const TESTS: usize = 50;

/// Words of that kind.
const PACES: [&str; 17] = [
    "batch_sched_delay",
    "bf_continue",
    "bf_interval",
    "bf_max_time",
    "bf_node_space_size",
    "bf_resolution",
    "bf_yield_interval",
    "bf_yield_rpc_cnt",
    "bf_yield_sleep",
    "default_queue_depth",
    "defer",
    "max_rpc_cnt",
    "max_sched_time",
    "partition_job_depth",
    "sched_interval",
    "sched_max_job_start",
    "sched_min_interval",
];

impl Default for SchedulerParameters {
    fn default() -> Self {
        Self {
            bf_window_min: None,
            bf_max_job_test: usize::MAX,
            bf_job_part_count_reserve: 1,
            max_switch_wait_s: SWITCH_WAIT_S,
            enable_user_top: false,
            idle: Vec::new(),
        }
    }
}

impl SchedulerParameters {
    /// How far ahead room is kept.
    pub fn window(&self) -> Span {
        self.bf_window_min.map_or(Span(u64::MAX), |minutes| Span::from_secs(60 * u64::from(minutes)))
    }
    /// For how many of those that wait in each partition room is kept.
    pub fn kept(&self) -> usize {
        if self.bf_job_part_count_reserve == 0 { self.depth() } else { self.bf_job_part_count_reserve }
    }
    /// How many are looked at in each partition behind the first that waits: where all of them have room kept no more
    /// than [`TESTS`] unless it is said, for each costs a search over all that ends.
    pub fn depth(&self) -> usize {
        let most = if self.bf_job_part_count_reserve == 0 { TESTS } else { usize::MAX };
        if self.bf_max_job_test == usize::MAX { most } else { self.bf_max_job_test }
    }
}

impl TryFrom<String> for SchedulerParameters {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parameters = Self::default();
        for word in text.split(',').filter(|word| !word.trim().is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if PACES.contains(&name.trim()) {
                parameters.idle.push(word.trim().to_owned());
                continue;
            }
            let number = || {
                let number: Option<u32> = value.trim().parse().ok().filter(|number| *number > 0);
                number.ok_or_else(|| format!("`{word}`: a number above 0 is needed"))
            };
            match name.trim() {
                "enable_user_top" => parameters.enable_user_top = true,
                "bf_window" => parameters.bf_window_min = Some(number()?),
                "bf_max_job_test" => parameters.bf_max_job_test = number()? as usize,
                "max_switch_wait" if value.trim() == "0" => parameters.max_switch_wait_s = 0,
                "max_switch_wait" => parameters.max_switch_wait_s = number()?,
                "bf_job_part_count_reserve" => {
                    let number = value.trim().parse::<u32>();
                    let number = number.map_err(|_| format!("`{word}`: a number is needed, 0 for all that wait"))?;
                    parameters.bf_job_part_count_reserve = number as usize;
                }
                _ => {
                    let known = "bf_window=MINUTES, bf_max_job_test=N, bf_job_part_count_reserve=N, \
                                 max_switch_wait=SECONDS and enable_user_top";
                    return Err(format!("`{word}`: only {known} have an effect; leave it out"));
                }
            }
        }
        Ok(parameters)
    }
}

impl From<SchedulerParameters> for String {
    fn from(parameters: SchedulerParameters) -> Self {
        let window = parameters.bf_window_min.map(|minutes| format!("bf_window={minutes}"));
        let depth = parameters.bf_max_job_test;
        let depth = (depth < usize::MAX).then(|| format!("bf_max_job_test={depth}"));
        let kept = parameters.bf_job_part_count_reserve;
        let kept = (kept != 1).then(|| format!("bf_job_part_count_reserve={kept}"));
        let wait = parameters.max_switch_wait_s;
        let wait = (wait != SWITCH_WAIT_S).then(|| format!("max_switch_wait={wait}"));
        let top = parameters.enable_user_top.then(|| "enable_user_top".to_owned());
        let words = window.into_iter().chain(depth).chain(kept).chain(wait).chain(top).chain(parameters.idle);
        words.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn words_that_only_set_a_pace_are_kept_and_others_are_refused() {
        let read = |words: &str| Config::from_toml(&format!("SchedulerParameters = \"{words}\"\n"));
        let config = read("bf_continue,bf_window=60, bf_resolution=300,bf_max_job_test=9,max_switch_wait=0")
            .expect("these are the words");
        let parameters = &config.scheduler_parameters;
        assert_eq!((parameters.bf_window_min, parameters.bf_max_job_test), (Some(60), 9));
        assert_eq!(parameters.idle, ["bf_continue", "bf_resolution=300"]);
        assert_eq!((parameters.max_switch_wait_s, Config::default().scheduler_parameters.max_switch_wait_s), (0, 300));
        let words = "bf_window=60,bf_max_job_test=9,max_switch_wait=0,bf_continue,bf_resolution=300";
        assert_eq!(String::from(parameters.clone()), words);
        let again = Config::from_toml(&toml::to_string(&config).expect("it is text")).expect("what is written is read");
        assert_eq!(again, config);
        for (words, kept, depth) in [
            ("", 1, usize::MAX),
            ("enable_user_top", 1, usize::MAX),
            ("bf_job_part_count_reserve=3", 3, usize::MAX),
            ("bf_job_part_count_reserve=0", 50, 50),
            ("bf_max_job_test=9,bf_job_part_count_reserve=0", 9, 9),
        ] {
            let parameters = read(words).expect("these are the words").scheduler_parameters;
            assert_eq!((parameters.kept(), parameters.depth()), (kept, depth), "{words}");
            assert_eq!(String::from(parameters), words);
        }
        for (words, why) in [
            ("bf_max_job_user=3", "leave it out"),
            ("bf_window=x", "a number above 0"),
            ("bf_job_part_count_reserve=", "0 for all"),
        ] {
            assert!(read(words).is_err_and(|e| e.contains(why)), "{words}");
        }
    }
}
