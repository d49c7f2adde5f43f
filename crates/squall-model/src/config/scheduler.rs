//! Options of the scheduler: whether jobs may start before earlier ones, and how far ahead it reserves resources.

use serde::{Deserialize, Serialize};

use super::text::similar;
use crate::duration::{format_limit, parse_limit};
use crate::limits::UNLIMITED_S;
use crate::time::Span;

/// Whether jobs may start before pending jobs that precede them in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchedulerType {
    /// Jobs may start early if they don't delay the first pending job of their partition.
    #[default]
    #[serde(rename = "sched/backfill")]
    Backfill,
    /// Jobs start in the order of the queue.
    #[serde(rename = "sched/builtin")]
    Builtin,
}

/// Default of `max_switch_wait`, seconds: how long a job waits at most for an allocation on few leaf switches.
const SWITCH_WAIT_S: u32 = 300;

/// Parameters of the scheduler, as in Slurm:
/// `bf_window=MINUTES,bf_max_job_test=N,bf_job_part_count_reserve=N,max_switch_wait=SECONDS`. Without `bf_window` and
/// `bf_max_job_test` the scheduler looks ahead without limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchedulerParameters {
    /// Period for which resources are reserved ahead for pending jobs, minutes. None: without limit.
    pub bf_window_min: Option<u32>,
    /// Most pending jobs tried in each partition after its first pending job.
    pub bf_max_job_test: usize,
    /// Number of pending jobs of each partition that get a reservation. 0: all that are tried.
    pub bf_job_part_count_reserve: usize,
    /// Longest time that a job waits for an allocation on as few leaf switches as it requests, seconds.
    pub max_switch_wait_s: u32,
    /// Seconds from the time when a job could run, in which it gets only nodes that are up, unless it has `--delay-boot`.
    pub delay_boot_s: u64,
    /// Whether users may reorder their own pending jobs (`scontrol top`).
    pub enable_user_top: bool,
    /// Slurm's parameters that have no field here, as written in the configuration.
    pub idle: Vec<String>,
}

/// Number of pending jobs tried in each partition if all of them get a reservation and `bf_max_job_test` is not set.
/// Slurm tries 500, but only every 30 s (`bf_interval`); Squall tries after each event.
const TESTS: usize = 50;

/// Slurm's parameters for a scheduler that runs periodically, or for limits of slurmctld itself. They have no effect
/// here, because the scheduler runs after each event.
const PACES: [&str; 30] = [
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
    // Parameters with an effect that always holds here, and parameters of missing features.
    "bb_array_stage_cnt",
    "bf_ignore_newly_avail_nodes",
    "bf_licenses",
    "build_queue_timeout",
    "correspond_after_task_cnt",
    "defer_batch",
    "enable_job_state_cache",
    "enable_hetjob_steps",
    "inventory_interval",
    "no_backup_scheduling",
    "no_env_cache",
    "step_retry_count",
    "step_retry_time",
];

/// Slurm's parameters with an effect that is not implemented here.
const MISSING: [&str; 44] = [
    "allow_zero_lic",
    "assoc_limit_continue",
    "assoc_limit_stop",
    "bf_allow_magnetic_slot",
    "bf_busy_nodes",
    "bf_hetjob_immediate",
    "bf_hetjob_prio",
    "bf_max_job_array_resv",
    "bf_max_job_assoc",
    "bf_max_job_part",
    "bf_max_job_start",
    "bf_max_job_user",
    "bf_max_job_user_part",
    "bf_min_age_reserve",
    "bf_min_prio_reserve",
    "bf_one_resv_per_job",
    "bf_running_job_reserve",
    "bf_topopt_enable",
    "bf_topopt_iterations",
    "bf_window_linear",
    "disable_hetjob_steps",
    "disable_job_shrink",
    "extra_constraints",
    "Ignore_NUMA",
    "ignore_constraint_validation",
    "ignore_prefer_validation",
    "max_array_tasks",
    "max_depend_depth",
    "max_script_size",
    "max_submit_line_size",
    "pack_serial_at_end",
    "permit_job_expansion",
    "preempt_reorder_count",
    "preempt_strict_order",
    "preempt_youngest_first",
    "reduce_completing_frag",
    "requeue_delay",
    "requeue_on_resume_failure",
    "requeue_setup_env_fail",
    "salloc_wait_nodes",
    "sbatch_wait_nodes",
    "spec_cores_first",
    "time_min_as_soft_limit",
    "whole_hetjob",
];

/// Slurm's parameters that have a field of their own in `SchedulerParameters`.
const HERE: [&str; 6] =
    ["bf_window", "bf_max_job_test", "bf_job_part_count_reserve", "max_switch_wait", "delay_boot", "enable_user_top"];

/// Slurm's parameters that take effect in other parts of Squall. They are stored as written.
const SWITCHES: [&str; 2] = ["kill_invalid_depend", "nohold_on_prolog_fail"];

impl Default for SchedulerParameters {
    fn default() -> Self {
        Self {
            bf_window_min: None,
            bf_max_job_test: usize::MAX,
            bf_job_part_count_reserve: 1,
            max_switch_wait_s: SWITCH_WAIT_S,
            delay_boot_s: 0,
            enable_user_top: false,
            idle: Vec::new(),
        }
    }
}

impl SchedulerParameters {
    /// Returns the period for which resources are reserved ahead for pending jobs.
    pub fn window(&self) -> Span {
        self.bf_window_min.map_or(Span(u64::MAX), |minutes| Span::from_secs(60 * u64::from(minutes)))
    }
    /// Returns whether the parameter `word` is among those stored as written (`idle`).
    pub fn has(&self, word: &str) -> bool {
        self.idle.iter().any(|said| name(said) == word)
    }
    /// Returns the parameters that have no effect, as written: first those that need none here, then those with an
    /// effect that is not implemented.
    pub fn without_effect(&self) -> (Vec<&str>, Vec<&str>) {
        let idle = self.idle.iter().map(String::as_str).filter(|word| !SWITCHES.contains(&name(word)));
        idle.partition(|word| !MISSING.contains(&name(word)))
    }
    /// Returns how many pending jobs of each partition get a reservation.
    pub fn kept(&self) -> usize {
        if self.bf_job_part_count_reserve == 0 { self.depth() } else { self.bf_job_part_count_reserve }
    }
    /// Returns how many jobs are tried in each partition after its first pending job. If all of them get a reservation,
    /// the default is [`TESTS`], because each reservation costs a search over the ends of all jobs.
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
            if [&PACES[..], &MISSING, &SWITCHES].iter().any(|words| words.contains(&name.trim())) {
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
                "delay_boot" => {
                    let limit = parse_limit(value.trim()).map_err(|problem| format!("`{word}`: {problem}"))?;
                    parameters.delay_boot_s = limit.unwrap_or(UNLIMITED_S);
                }
                "bf_job_part_count_reserve" => {
                    let number = value.trim().parse::<u32>();
                    let number = number.map_err(|_| format!("`{word}`: a number is needed, 0 for all that wait"))?;
                    parameters.bf_job_part_count_reserve = number as usize;
                }
                other => {
                    let known: Vec<&str> = [&HERE[..], &PACES, &MISSING, &SWITCHES].concat();
                    let meant = similar(other, &known).map(|name| format!("; did you mean `{name}`?"));
                    return Err(format!("`{word}` is no word of Slurm's{}", meant.unwrap_or_default()));
                }
            }
        }
        Ok(parameters)
    }
}

/// Returns the name of a parameter: `bf_interval` for `bf_interval=30`.
fn name(word: &str) -> &str {
    word.split('=').next().unwrap_or_default().trim()
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
        let boot = parameters.delay_boot_s;
        let boot = (boot > 0).then(|| format!("delay_boot={}", format_limit((boot != UNLIMITED_S).then_some(boot))));
        let top = parameters.enable_user_top.then(|| "enable_user_top".to_owned());
        let words =
            window.into_iter().chain(depth).chain(kept).chain(wait).chain(boot).chain(top).chain(parameters.idle);
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
            ("delay_boot=00:05:00", 1, usize::MAX),
            ("delay_boot=UNLIMITED", 1, usize::MAX),
            ("bf_job_part_count_reserve=3", 3, usize::MAX),
            ("bf_job_part_count_reserve=0", 50, 50),
            ("bf_max_job_test=9,bf_job_part_count_reserve=0", 9, 9),
        ] {
            let parameters = read(words).expect("these are the words").scheduler_parameters;
            assert_eq!((parameters.kept(), parameters.depth()), (kept, depth), "{words}");
            assert_eq!(String::from(parameters), words);
        }
        for (words, why) in [
            ("bf_max_jobuser=3", "did you mean `bf_max_job_user`?"),
            ("bf_window=x", "a number above 0"),
            ("delay_boot=soon", "`delay_boot=soon`: "),
            ("bf_job_part_count_reserve=", "0 for all"),
        ] {
            assert!(read(words).is_err_and(|e| e.contains(why)), "{words}");
        }
    }

    // faults.md E: words of Slurm without a counterpart are known.
    #[test]
    fn e_all_of_slurms_words_are_taken_and_the_missing_ones_named() {
        let words =
            "kill_invalid_depend,bf_max_job_user=20,nohold_on_prolog_fail,preempt_youngest_first,bf_interval=30";
        let config = Config::from_toml(&format!("SchedulerParameters = \"{words}\"\n")).expect("these are the words");
        assert!(config.kill_invalid_depend);
        let (moot, missing) = config.scheduler_parameters.without_effect();
        assert_eq!(moot, ["bf_interval=30"]);
        assert_eq!(missing, ["bf_max_job_user=20", "preempt_youngest_first"]);
        assert_eq!(String::from(config.scheduler_parameters), words);
    }
}
