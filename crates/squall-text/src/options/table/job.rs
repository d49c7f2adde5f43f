//! Options about a job's name, times, priority and files.

use squall_files::users;
use squall_model::checkpoint::CheckpointPlan;
use squall_model::duration::{parse_limit, whole_minutes};
use squall_model::job::mail::is_recipients;
use squall_model::job::{ArraySpec, Dependency};
use squall_model::limits::{CHECKPOINT_EVERY_MAX_S, UNLIMITED_S};
use squall_model::places::OnNodeFail;
use squall_model::time::Time;

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::collect::sets_flag;
use crate::options::submit::SubmitOptions;
use crate::options::table::{checked, counted, named, some};
use crate::options::values::when::{REMEDY, when_here};
use crate::options::values::{self, array, dependency, signal};
use crate::options::{GivenOption, NO, Opt, Source, Stop, Tools, opt};

const FILES: Tools = Tools::SBATCH.and(Tools::SRUN);

/// Entries of the options about the job.
pub const OPTIONS: &[Opt] = &[
    opt(
        "account",
        'A',
        Needed("name"),
        Tools::ALL,
        &["SBATCH_ACCOUNT", "SALLOC_ACCOUNT", "SLURM_ACCOUNT"],
        "charge this account",
        |asked, given| {
            asked.spec.account = named(given)?;
            Ok(())
        },
    ),
    opt(
        "acctg-freq",
        NO,
        Needed("<datatype>=<interval>"),
        Tools::ALL,
        &["SBATCH_ACCTG_FREQ", "SALLOC_ACCTG_FREQ", "SLURM_ACCTG_FREQ"],
        "sampling intervals of accounting",
        |_, given| checked(given, values::checked::sampling, "use seconds, or a list such as task=30,energy=10"),
    )
    .hint("usage is read when steps end and when it is asked for, not at intervals"),
    opt(
        "array",
        'a',
        Needed("indexes"),
        Tools::SBATCH,
        &["SBATCH_ARRAY_INX"],
        "submit an array: 0-9, 1,3,5-7, 0-20:4, with %N for the most that run at once",
        |asked, given| {
            asked.spec.array = if given.text().is_empty() { None } else { Some(array_of(given)?) };
            Ok(())
        },
    ),
    opt(
        "begin",
        'b',
        Needed("time"),
        Tools::ALL,
        &[],
        "do not start before this time: 16:00, now+1hour, tomorrow, 2027-01-20T12:34:00",
        |asked, given| {
            asked.spec.begin = Some(time(given)?);
            // A time relative to now does not depend on later changes of the wall clock, but any other time does.
            let now = given.text().trim().get(..3).is_some_and(|word| word.eq_ignore_ascii_case("now"));
            asked.spec.options.begins_after_submission = now;
            Ok(())
        },
    ),
    opt(
        "chdir",
        'D',
        Needed("path"),
        Tools::ALL,
        &["SLURM_REMOTE_CWD", "SLURM_WORKING_DIR"],
        "working directory of the job",
        |asked, given| {
            given.text().clone_into(&mut asked.spec.work_dir);
            Ok(())
        },
    )
    .or(&["workdir"]),
    opt(
        "checkpoint",
        NO,
        Needed("minutes|signal[,must]"),
        Tools::SBATCH,
        &["SBATCH_CHECKPOINT"],
        "write the running job to disk every so many minutes; signal: only when it has to leave its node; must: end it if \
         that can't be done",
        |asked, given| {
            asked.spec.options.checkpoint = Some(checkpoint(given)?);
            Ok(())
        },
    ),
    opt("comment", NO, Needed("name"), Tools::ALL, &[], "any comment", |asked, given| {
        asked.spec.comment = some(given)?;
        Ok(())
    }),
    opt(
        "deadline",
        NO,
        Needed("time"),
        Tools::ALL,
        &[],
        "remove the job if it can't end by this time",
        |asked, given| {
            asked.spec.deadline = Some(time(given)?);
            Ok(())
        },
    ),
    opt(
        "delay-boot",
        NO,
        Needed("mins"),
        Tools::ALL,
        &["SBATCH_DELAY_BOOT", "SALLOC_DELAY_BOOT", "SLURM_DELAY_BOOT"],
        "use only nodes that are powered up, until the job has waited for so long",
        |asked, given| {
            let limit = parse_limit(given.text()).map_err(|problem| given.invalid(&problem.to_string()))?;
            asked.spec.options.delay_boot_s = Some(limit.unwrap_or(UNLIMITED_S));
            Ok(())
        },
    ),
    opt(
        "node-fence",
        NO,
        Maybe("seconds"),
        Tools::ALL,
        &["SBATCH_NODE_FENCE", "SALLOC_NODE_FENCE", "SLURM_NODE_FENCE"],
        "nodes end the job by themselves when the controller could not be heard for so long: then it may run elsewhere",
        node_fence,
    ),
    opt(
        "dependency",
        'd',
        Needed("type:jobid[:time]"),
        Tools::ALL,
        &["SLURM_DEPENDENCY"],
        "start when other jobs allow: afterok:ID[:ID], afterany:ID, singleton; `,` all of them, `?` any",
        |asked, given| {
            asked.spec.dependency = dependency_of(given)?;
            Ok(())
        },
    ),
    opt(
        "error",
        'e',
        Needed("err"),
        FILES,
        &["SBATCH_ERROR", "SLURM_STDERRMODE", "SRUN_ERROR"],
        "file for standard error; %j job, %A array, %a index, %x name, %N node, %t task",
        |asked, given| {
            asked.spec.stderr = some(given)?;
            Ok(())
        },
    ),
    opt("gid", NO, Needed("group_id"), Tools::ALL, &[], "run in this group (root only)", gid),
    opt("hold", 'H', Flag, Tools::ALL, &[], "submit the job held", |asked, _| {
        asked.spec.hold = true;
        Ok(())
    }),
    opt(
        "input",
        'i',
        Needed("in"),
        FILES,
        &["SBATCH_INPUT", "SLURM_STDINMODE", "SRUN_INPUT"],
        "file for standard input",
        |asked, given| {
            asked.spec.stdin = some(given)?;
            Ok(())
        },
    ),
    opt(
        "job-name",
        'J',
        Needed("jobname"),
        Tools::ALL,
        &["SBATCH_JOB_NAME", "SALLOC_JOB_NAME", "SLURM_JOB_NAME"],
        "name of the job",
        |asked, given| {
            asked.spec.name = some(given)?.unwrap_or_default();
            Ok(())
        },
    ),
    opt(
        "kill-on-invalid-dep",
        NO,
        Needed("yes|no"),
        Tools::SBATCH,
        &[],
        "whether the job is cancelled when its dependency can never hold",
        |asked, given| {
            asked.spec.kill_on_invalid_dep = Some(yes_no(given)?);
            Ok(())
        },
    ),
    opt(
        "mail-type",
        NO,
        Needed("type"),
        Tools::ALL,
        &[],
        "events of which to send mail: BEGIN,END,FAIL,ALL,...",
        mail_type,
    )
    .partly("INVALID_DEPEND is sent only where the job is cancelled for it; there are no burst buffers for STAGE_OUT"),
    opt("mail-user", NO, Needed("user"), Tools::ALL, &[], "who gets the mail: users or addresses", |asked, given| {
        asked.spec.mail_user = named(given)?;
        if asked.spec.mail_user.is_some() && !is_recipients(given.text()) {
            return Err(given.invalid("use names of users or addresses, separated by commas"));
        }
        Ok(())
    }),
    opt("extra", NO, Needed("TEXT"), Tools::ALL, &[], "words about the job for other programs", |asked, given| {
        asked.spec.options.notes.extra = some(given)?;
        Ok(())
    }),
    opt("nice", NO, Maybe("value"), Tools::ALL, &[], "lower the priority by so much (100 without a number)", nice),
    opt(
        "no-kill",
        'k',
        Maybe("off"),
        Tools::ALL,
        &["SBATCH_NO_KILL", "SALLOC_NO_KILL", "SLURM_NO_KILL"],
        "keep the allocation when one of its nodes fails",
        |asked, given| {
            asked.spec.no_kill = match given.text() {
                "off" | "no" => false,
                "" | "set" | "yes" | "1" => true,
                _ => return Err(given.invalid("use it without a value, or off")),
            };
            Ok(())
        },
    ),
    opt(
        "on-node-fail",
        NO,
        Needed("end|requeue|replace|shrink"),
        Tools::ALL,
        &["SBATCH_ON_NODE_FAIL", "SALLOC_ON_NODE_FAIL", "SLURM_ON_NODE_FAIL"],
        "what happens when a node of the running job fails: end or requeue the job, replace the node, or go on without it",
        |asked, given| {
            asked.spec.options.on_node_fail = Some(
                OnNodeFail::parse(given.text()).ok_or_else(|| given.invalid("use end, requeue, replace or shrink"))?,
            );
            Ok(())
        },
    ),
    opt(
        "spare-nodes",
        NO,
        Needed("number"),
        Tools::ALL,
        &["SBATCH_SPARE_NODES", "SALLOC_SPARE_NODES", "SLURM_SPARE_NODES"],
        "hold so many nodes more, which idle until they replace failed ones",
        |asked, given| {
            asked.spec.options.spare_nodes = Some(counted(given, false)?).filter(|spares| *spares > 0);
            Ok(())
        },
    ),
    opt(
        "no-requeue",
        NO,
        Flag,
        Tools::SBATCH,
        &["SBATCH_NO_REQUEUE"],
        "never run the job a second time",
        |asked, given| {
            asked.spec.requeue = given.set.then_some(false);
            Ok(())
        },
    ),
    opt(
        "open-mode",
        NO,
        Needed("append|truncate"),
        FILES,
        &["SBATCH_OPEN_MODE", "SLURM_OPEN_MODE"],
        "how output files are opened",
        |asked, given| {
            // Only the first letter counts, as in Slurm.
            asked.spec.append = match given.text().as_bytes().first() {
                Some(b'a' | b'A') => Some(true),
                Some(b't' | b'T') => Some(false),
                _ => return Err(given.invalid("use append or truncate")),
            };
            Ok(())
        },
    ),
    opt(
        "output",
        'o',
        Needed("out"),
        FILES,
        &["SBATCH_OUTPUT", "SLURM_STDOUTMODE", "SRUN_OUTPUT"],
        "file for standard output (and error); %j job, %A array, %a index, %x name, %N node, %t task",
        |asked, given| {
            asked.spec.stdout = some(given)?;
            Ok(())
        },
    ),
    opt(
        "partition",
        'p',
        Needed("partition"),
        Tools::ALL,
        &["SBATCH_PARTITION", "SALLOC_PARTITION", "SLURM_PARTITION"],
        "partition, or several of which one will do",
        |asked, given| {
            asked.spec.partition = some(given)?;
            Ok(())
        },
    ),
    opt("priority", NO, Needed("value"), Tools::ALL, &[], "set the priority (operators)", |asked, given| {
        asked.spec.priority = Some(match given.text() {
            "TOP" | "top" => u32::MAX - 2,
            text => match text.parse::<i64>() {
                Ok(value) if value < 0 => {
                    return Err(Stop::Bad { lines: vec!["Priority must be >= 0".into()], exit: 255 });
                }
                Ok(value) if value < i64::from(u32::MAX - 1) => value as u32,
                Ok(_) => {
                    return Err(Stop::Bad { lines: vec![format!("Priority must be < {}", u32::MAX - 1)], exit: 255 });
                }
                Err(_) => return Err(given.invalid("use a number or TOP")),
            },
        });
        Ok(())
    }),
    opt(
        "profile",
        NO,
        Needed("value"),
        Tools::ALL,
        &["SBATCH_PROFILE", "SALLOC_PROFILE", "SLURM_PROFILE"],
        "detailed profiles to take: none",
        profile,
    )
    .partly("only none is taken: no profiles of energy, task, lustre or network are recorded"),
    opt(
        "qos",
        'q',
        Needed("qos"),
        Tools::ALL,
        &["SBATCH_QOS", "SALLOC_QOS", "SLURM_QOS"],
        "quality of service",
        |asked, given| {
            asked.spec.qos = named(given)?;
            Ok(())
        },
    ),
    opt(
        "report",
        NO,
        Maybe("0|1"),
        Tools::SBATCH,
        &["SBATCH_REPORT"],
        "end the output with a line about the job's end and usage",
        |asked, given| {
            asked.spec.options.report = match given.text() {
                "" | "1" => Some(true),
                "0" => Some(false),
                _ => return Err(given.invalid("0 or 1 is needed")),
            };
            Ok(())
        },
    ),
    opt("reboot", NO, Flag, Tools::ALL, &[], "reboot the nodes before the job starts (operators)", |asked, _| {
        asked.spec.options.reboot = Some(true);
        Ok(())
    }),
    opt(
        "requeue",
        NO,
        Maybe("expedite"),
        Tools::SBATCH,
        &["SBATCH_REQUEUE"],
        "run the job again when a node fails; expedite: before all others",
        |asked, given| {
            asked.spec.requeue = match given.text() {
                "" => Some(true),
                "expedite" => {
                    asked.spec.options.expedite = Some(true);
                    Some(true)
                }
                // As a variable it is a flag, as it was before it had a value.
                value if matches!(given.source, Source::Variable(_)) => sets_flag(value).then_some(true),
                _ => return Err(given.invalid("use it without a value")),
            };
            Ok(())
        },
    ),
    opt(
        "reservation",
        NO,
        Needed("name"),
        Tools::ALL,
        &["SBATCH_RESERVATION", "SALLOC_RESERVATION", "SLURM_RESERVATION"],
        "use this reservation",
        |asked, given| {
            asked.spec.reservation = named(given)?;
            Ok(())
        },
    ),
    opt(
        "signal",
        NO,
        Needed("[R:]num[@time]"),
        Tools::ALL,
        &["SBATCH_SIGNAL", "SALLOC_SIGNAL", "SLURM_SIGNAL"],
        "send a signal so many seconds before the time limit; B: to the batch script only",
        |asked, given| {
            let Some(spec) = signal::signal_spec(given.text()) else {
                return Err(given.invalid("use [R|B:]SIGNAL[@SECONDS], such as B:USR1@120, with at most 65535 seconds"));
            };
            asked.spec.signal = Some(spec);
            Ok(())
        },
    ),
    opt(
        "time",
        't',
        Needed("minutes"),
        Tools::ALL,
        &["SBATCH_TIMELIMIT", "SALLOC_TIMELIMIT", "SLURM_TIMELIMIT"],
        "time limit, rounded up to whole minutes: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED",
        |asked, given| {
            asked.spec.time_limit_s = Some(limit(given)?);
            Ok(())
        },
    ),
    opt(
        "time-min",
        NO,
        Needed("minutes"),
        Tools::ALL,
        &[],
        "the time limit may be lowered to this to start earlier",
        |asked, given| {
            asked.spec.time_min_s = Some(limit(given)?);
            Ok(())
        },
    ),
    opt("uid", NO, Needed("user_id"), Tools::ALL, &[], "run as this user (root only)", uid),
    opt(
        "wckey",
        NO,
        Needed("wckey"),
        Tools::ALL,
        &["SBATCH_WCKEY", "SALLOC_WCKEY", "SLURM_WCKEY"],
        "workload key for accounting",
        |asked, given| {
            asked.spec.wckey = named(given)?;
            Ok(())
        },
    ),
    opt(
        "batch",
        NO,
        Needed("LIST"),
        Tools::SBATCH,
        &["SBATCH_BATCH"],
        "features of the node for the script",
        |asked, given| {
            asked.spec.options.shown.batch = some(given)?;
            Ok(())
        },
    )
    .partly("all of its features must be in --constraint, without | and counts: the script runs on the first node"),
    opt(
        "wait-all-nodes",
        NO,
        Needed("0|1"),
        Tools::SBATCH.and(Tools::SALLOC),
        &["SBATCH_WAIT_ALL_NODES", "SALLOC_WAIT_ALL_NODES"],
        "wait until every node is ready",
        |_, given| match given.text() {
            "0" | "1" => Ok(()),
            _ => Err(given.invalid("use 0 or 1")),
        },
    )
    .hint("every node is ready before a script runs"),
];

/// Reads `--checkpoint=30,must`.
fn checkpoint(given: &GivenOption<'_>) -> Result<CheckpointPlan, Stop> {
    let (when, must) = match given.text().split_once(',') {
        Some((when, "must")) => (when, true),
        Some(_) => return Err(given.invalid("only `must` may follow")),
        None => (given.text(), false),
    };
    let every_s = match when {
        "signal" => 0,
        "auto" => CheckpointPlan::AUTO_S,
        _ => match parse_limit(when) {
            Ok(Some(seconds)) if (1..=CHECKPOINT_EVERY_MAX_S).contains(&seconds) => seconds,
            _ => return Err(given.invalid("use minutes such as 30, auto, or signal")),
        },
    };
    Ok(CheckpointPlan { every_s, must })
}

/// Reads a time limit, rounded up to whole minutes, in seconds; 0 and no limit give `UNLIMITED_S`.
fn limit(given: &GivenOption<'_>) -> Result<u64, Stop> {
    match parse_limit(given.text()) {
        Ok(None | Some(0)) => Ok(UNLIMITED_S),
        Ok(Some(seconds)) => Ok(whole_minutes(seconds)),
        Err(problem) => Err(given.invalid(&problem.to_string())),
    }
}

fn time(given: &GivenOption<'_>) -> Result<Time, Stop> {
    when_here(given.text()).ok_or_else(|| given.invalid(REMEDY))
}

/// Reads `--array`. The error has the form of a refused request, because in Slurm the controller finds it.
fn array_of(given: &GivenOption<'_>) -> Result<ArraySpec, Stop> {
    array::array(given.text()).map_err(|problem| late(given, &problem, "Invalid job array specification"))
}

fn dependency_of(given: &GivenOption<'_>) -> Result<Option<Dependency>, Stop> {
    dependency::dependency(given.text()).map_err(|problem| late(given, &problem, "Job dependency problem"))
}

fn late(given: &GivenOption<'_>, problem: &str, slurm: &str) -> Stop {
    let failed = given.tool.failed();
    Stop::Bad { lines: vec![given.remedy(problem), format!("{failed}: {slurm}")], exit: 1 }
}

fn yes_no(given: &GivenOption<'_>) -> Result<bool, Stop> {
    match given.text().to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(given.invalid("use yes or no")),
    }
}

/// Words that `--mail-type` accepts.
pub(crate) const MAIL_TYPES: [&str; 14] = [
    "ALL",
    "ARRAY_TASKS",
    "BEGIN",
    "END",
    "FAIL",
    "INVALID_DEPEND",
    "NODE_FAIL",
    "NONE",
    "REQUEUE",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_50",
    "TIME_LIMIT_80",
    "TIME_LIMIT_90",
];

fn mail_type(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let known = |word: &str| MAIL_TYPES.iter().any(|t| t.eq_ignore_ascii_case(word.trim()));
    if !given.text().split(',').all(known) {
        return Err(given.invalid(&format!("use one or several of {}", MAIL_TYPES.join(","))));
    }
    asked.spec.mail_type = Some(given.text().to_owned());
    Ok(())
}

fn profile(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    const KINDS: [&str; 6] = ["all", "energy", "task", "lustre", "filesystem", "network"];
    let words = given.text().to_ascii_lowercase();
    match words.as_str() {
        "none" => {
            asked.spec.options.shown.profile = some(given)?;
            Ok(())
        }
        words if words.split(',').all(|word| KINDS.contains(&word)) => {
            Err(given.not_done("no profiles are recorded: leave it out; sstat and sacct show what steps use"))
        }
        _ => {
            let line = format!("invalid --profile={} option", given.text());
            Err(Stop::Bad { lines: vec![line, given.remedy("use none")], exit: 255 })
        }
    }
}

/// Refuses the option to users other than root. As in Slurm, this is checked before the value.
fn root_only(given: &GivenOption<'_>) -> Result<(), Stop> {
    if users::is_root() {
        return Ok(());
    }
    let line = format!("--{} only permitted by root user", given.option.long);
    Err(Stop::Bad { lines: vec![line], exit: 255 })
}

fn uid(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    root_only(given)?;
    let known = users::by_name(given.text()).or_else(|| users::by_uid(given.text().parse().ok()?));
    let user = known.ok_or_else(|| given.invalid("there is no such user"))?;
    asked.run_as.user = Some((user.uid, user.gid));
    Ok(())
}

fn gid(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    root_only(given)?;
    let known = users::group_id(given.text()).or_else(|| given.text().parse().ok());
    asked.run_as.group = Some(known.ok_or_else(|| given.invalid("there is no such group"))?);
    Ok(())
}

/// Highest absolute value of `--nice` in Slurm.
const NICE_MAX: i64 = 2_147_483_645;

/// Reads `--node-fence[=seconds]`. Without a number, or from a variable that is set to nothing, the controller takes what is
/// configured.
fn node_fence(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let fence_s = match given.value {
        None | Some("") => 0,
        Some(text) => match text.parse::<u64>() {
            Ok(fence_s @ 1..=UNLIMITED_S) => fence_s,
            _ => return Err(given.invalid("use a number of seconds, as --node-fence=60")),
        },
    };
    asked.spec.options.node_fence_s = Some(fence_s);
    Ok(())
}

fn nice(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let value = match given.value {
        None => 100,
        Some("") => 0,
        Some(text) => text.parse::<i64>().unwrap_or(i64::MAX),
    };
    if !(-NICE_MAX..=NICE_MAX).contains(&value) {
        return Err(Stop::Bad {
            lines: vec![
                format!("Invalid --nice value, out of range (+/- {NICE_MAX})"),
                given.remedy("use a whole number, positive to go later"),
            ],
            exit: 255,
        });
    }
    asked.spec.nice = value as i32;
    Ok(())
}
