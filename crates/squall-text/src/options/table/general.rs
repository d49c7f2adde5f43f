//! Options about the command itself, such as `--help` and `--verbose`.

use crate::format::words::version;
use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::table::{counted, limited, some};
use crate::options::{NO, Opt, Stop, Tool, Tools, opt};

/// Entries of the options about the command itself.
pub const OPTIONS: &[Opt] = &[
    opt(
        "bell",
        NO,
        Flag,
        Tools::SALLOC,
        &["SALLOC_BELL"],
        "ring the terminal bell when the allocation is granted",
        |asked, given| {
            asked.alloc.bell = given.set.then_some(true);
            Ok(())
        },
    ),
    opt(
        "clusters",
        'M',
        Needed("names"),
        Tools::ALL,
        &["SBATCH_CLUSTERS", "SALLOC_CLUSTERS", "SLURM_CLUSTERS"],
        "clusters to which the job may go",
        |asked, given| {
            asked.clusters = some(given)?;
            Ok(())
        },
    )
    .or(&["cluster"]),
    opt(
        "export",
        NO,
        Needed("env_vars|NONE"),
        Tools::SBATCH.and(Tools::SRUN),
        &["SBATCH_EXPORT", "SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"],
        "variables to hand on: ALL, NONE, NIL or NAME[=VALUE],... (ALL, may be one of them)",
        |asked, given| {
            asked.export = some(given)?;
            Ok(())
        },
    ),
    opt(
        "export-file",
        NO,
        Needed("file|fd"),
        Tools::SBATCH,
        &[],
        "file of NAME=VALUE entries, each ended by a NUL byte, to hand on",
        |asked, given| {
            asked.batch.export_file = some(given)?;
            Ok(())
        },
    ),
    opt(
        "get-user-env",
        NO,
        Maybe("MODE"),
        Tools::SBATCH.and(Tools::SALLOC),
        &["SBATCH_GET_USER_ENV"],
        "run a login shell of the user to complete the environment",
        |asked, given| {
            let mode = given.text().trim_start_matches(|c: char| c.is_ascii_digit());
            if !matches!(mode, "" | "S" | "s" | "L" | "l") {
                return Err(given.invalid("use a timeout in seconds, S or L (a login shell)"));
            }
            if given.tool == Tool::Salloc {
                return Err(
                    given.not_done("the command runs in the environment of salloc: leave it out, or use sbatch")
                );
            }
            asked.spec.get_user_env = true;
            Ok(())
        },
    )
    .partly("salloc refuses it, for its command runs in its own environment"),
    opt("help", 'h', Flag, Tools::ALL, &[], "show this text", |_, _| Err(Stop::Help)),
    opt(
        "ignore-pbs",
        NO,
        Flag,
        Tools::SBATCH,
        &["SBATCH_IGNORE_PBS"],
        "do not read #PBS and #BSUB lines of the script",
        |asked, given| {
            asked.batch.ignore_pbs = given.set;
            Ok(())
        },
    ),
    opt(
        "immediate",
        'I',
        Maybe("secs"),
        Tools::SRUN.and(Tools::SALLOC),
        &["SALLOC_IMMEDIATE", "SLURM_IMMEDIATE"],
        "give up if the resources are not free within so many seconds (at once without a number)",
        |asked, given| {
            let seconds = match given.value {
                None => 0,
                Some(_) => counted(given, false)?,
            };
            asked.immediate_s = Some(seconds);
            Ok(())
        },
    ),
    opt(
        "kill-command",
        'K',
        Maybe("signal"),
        Tools::SALLOC,
        &["SALLOC_KILL_CMD"],
        "signal the command when the allocation ends before it (TERM without a name)",
        |asked, given| {
            let signal = match given.value {
                None => Some(15),
                Some(text) => crate::options::values::signal::signal_number(text),
            };
            let Some(signal) = signal else { return Err(given.invalid("use a signal's name or number")) };
            asked.alloc.kill_command = Some(signal);
            Ok(())
        },
    ),
    opt("no-bell", NO, Flag, Tools::SALLOC, &["SALLOC_NO_BELL"], "never ring the terminal bell", |asked, given| {
        asked.alloc.bell = given.set.then_some(false);
        Ok(())
    }),
    opt(
        "no-shell",
        NO,
        Flag,
        Tools::SALLOC,
        &[],
        "end as soon as the allocation is granted, and leave it",
        |asked, _| {
            asked.alloc.no_shell = true;
            Ok(())
        },
    ),
    opt(
        "parsable",
        NO,
        Flag,
        Tools::SBATCH.and(Tools::SRUN),
        &[],
        "print only the job's id (and the cluster's name after `;` if one was asked for), or with --async the step's",
        |asked, _| {
            asked.batch.parsable = true;
            Ok(())
        },
    ),
    opt(
        "propagate",
        NO,
        Maybe("rlimits"),
        Tools::SBATCH.and(Tools::SRUN),
        &[],
        "resource limits to hand on: ALL, NONE or names such as STACK,NOFILE",
        |asked, given| {
            asked.propagate = Some(if given.value.is_some() { limited(given)? } else { "ALL".into() });
            Ok(())
        },
    ),
    opt("quiet", 'Q', Flag, Tools::ALL, &[], "print errors only", |asked, _| {
        asked.quiet = true;
        Ok(())
    }),
    opt(
        "test-only",
        NO,
        Flag,
        Tools::SBATCH.and(Tools::SRUN),
        &[],
        "check the request and say when it would start, without submitting it",
        |asked, _| {
            asked.test_only = true;
            Ok(())
        },
    ),
    opt("usage", NO, Flag, Tools::ALL, &[], "show the options briefly", |_, _| Err(Stop::Brief)),
    opt(
        "verbose",
        'v',
        Flag,
        Tools::ALL,
        &["SBATCH_DEBUG", "SALLOC_DEBUG", "SLURM_DEBUG"],
        "say more (may be repeated)",
        |asked, given| {
            asked.verbose = match given.value {
                Some(level) => level.parse().unwrap_or(0),
                None => asked.verbose.saturating_add(1),
            };
            Ok(())
        },
    ),
    opt("version", 'V', Flag, Tools::ALL, &[], "print the version", |_, _| Err(Stop::Show(version()))),
    opt(
        "wait",
        'W',
        Flag,
        Tools::SBATCH,
        &["SBATCH_WAIT"],
        "wait until the job has ended, and exit with its exit code",
        |asked, given| {
            asked.batch.wait = given.set;
            Ok(())
        },
    ),
    opt(
        "wrap",
        NO,
        Needed("command string"),
        Tools::SBATCH,
        &[],
        "run this shell command instead of a script",
        |asked, given| {
            asked.batch.wrap = Some(given.text().to_owned());
            Ok(())
        },
    ),
];
