//! Options about the tasks that srun starts.

use std::sync::Arc;

use squall_model::job::options::AsGiven;
use squall_model::job::spread::Spread;
use squall_model::step::Distribution;
use squall_model::step::cpu_bind::CpuBind;

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::submit::SubmitOptions;
use crate::options::table::{counted, ignore, ignore_count, limited, some};
use crate::options::{GivenOption, NO, Opt, Stop, Tools, opt};

/// Sets `--cpu-bind`. The value is parsed here only to report errors at once.
fn cpu_bind(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let text = some(given)?;
    CpuBind::parse(text.as_deref().unwrap_or_default()).map_err(|word| {
        let known = "none, threads, cores, sockets, ldoms, rank, map_cpu:LIST, mask_cpu:LIST, quiet, verbose";
        Stop::bad(format!("unrecognized --cpu-bind argument \"{word}\": use {known}"))
    })?;
    asked.run.cpu_bind = text;
    Ok(())
}

/// Entries of the options about tasks.
pub const OPTIONS: &[Opt] = &[
    opt(
        "async",
        NO,
        Flag,
        Tools::SRUN,
        &[],
        "srun ends when the step runs; the output is in files (slurm-%J.out), and swait waits for the step",
        |asked, given| {
            asked.run.asynchronous = given.set;
            Ok(())
        },
    ),
    opt(
        "bcast",
        NO,
        Maybe("<dest_path>"),
        Tools::SRUN,
        &["SLURM_BCAST"],
        "copy the program to the nodes first",
        |asked, given| {
            asked.run.bcast = some(given)?;
            Ok(())
        },
    ),
    opt(
        "bcast-exclude",
        NO,
        Needed("<paths>"),
        Tools::SRUN,
        &["SLURM_BCAST_EXCLUDE"],
        "libraries not to copy",
        bcast_exclude,
    )
    .partly("only NONE is taken: srun copies the program alone"),
    opt("compress", NO, Maybe("library"), Tools::SRUN, &["SLURM_COMPRESS"], "compress what is copied", compress)
        .hint("the program is copied as it is"),
    opt(
        "cpu-bind",
        NO,
        Needed("TYPE"),
        Tools::SRUN,
        &["SLURM_CPU_BIND"],
        "which CPUs tasks use: none, threads, cores, sockets, ldoms, rank, map_cpu:LIST, mask_cpu:LIST; v,… to tell",
        cpu_bind,
    )
    .or(&["cpu_bind"]),
    opt(
        "disable-status",
        'X',
        Flag,
        Tools::SRUN,
        &["SLURM_DISABLE_STATUS"],
        "the first Ctrl-C goes to the tasks at once",
        |asked, given| {
            asked.run.disable_status = given.set;
            Ok(())
        },
    ),
    opt(
        "distribution",
        'm',
        Needed("type"),
        Tools::ALL,
        &["SBATCH_DISTRIBUTION", "SALLOC_DISTRIBUTION", "SLURM_DISTRIBUTION"],
        "how ranks go to nodes: block, cyclic, plane=SIZE (further parts: within nodes)",
        distribution,
    ),
    opt(
        "epilog",
        NO,
        Needed("program"),
        Tools::SRUN,
        &["SLURM_EPILOG"],
        "program to run after the step",
        |asked, given| {
            asked.run.around.epilog = limited(given)?;
            Ok(())
        },
    ),
    opt("exact", NO, Flag, Tools::SRUN, &["SLURM_EXACT"], "only the CPUs that the tasks need", |asked, given| {
        asked.run.exact = given.set;
        Ok(())
    }),
    opt(
        "het-group",
        NO,
        Needed("value"),
        Tools::SRUN,
        &[],
        "components of a heterogeneous job in which to run",
        ignore,
    )
    .or(&["pack-group"]),
    opt("interactive", NO, Flag, Tools::SRUN, &[], "", ignore).hint("salloc runs its command where it is called"),
    opt(
        "jobid",
        NO,
        Needed("id"),
        Tools::SRUN,
        &["SLURM_JOBID", "SLURM_JOB_ID"],
        "run in this allocation",
        |asked, given| {
            asked.run.job = Some(counted(given, true)?);
            Ok(())
        },
    ),
    opt(
        "kill-on-bad-exit",
        'K',
        Maybe("0|1"),
        Tools::SRUN,
        &["SLURM_KILL_BAD_EXIT"],
        "end the step when a task fails",
        |asked, given| {
            asked.run.kill_on_bad_exit = Some(given.value.is_none() || counted(given, false)? != 0);
            Ok(())
        },
    ),
    opt(
        "label",
        'l',
        Flag,
        Tools::SRUN,
        &["SLURM_LABELIO"],
        "put the task's rank before each line of output",
        |asked, given| {
            asked.run.label = given.set;
            Ok(())
        },
    ),
    opt(
        "mpi",
        NO,
        Needed("type"),
        Tools::SRUN,
        &["SLURM_MPI_TYPE"],
        "how MPI programs find each other: none, pmi2, pmix (always served, nothing needs to be said)",
        |asked, given| {
            if given.text() == "list" {
                return Err(Stop::Show("MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n".into()));
            }
            let known = ["none", "openmpi", "pmi2", "pmix"].contains(&given.text());
            if !known && !given.text().starts_with("pmix_v") {
                let line = format!("invalid MPI type '{}', --mpi=list for acceptable types", given.text());
                return Err(Stop::Bad { lines: vec![line], exit: 1 });
            }
            asked.spec.options.step.mpi = some(given)?;
            Ok(())
        },
    ),
    opt("msg-timeout", NO, Needed("SECONDS"), Tools::SRUN, &[], "", ignore_count)
        .hint("the cluster sets its own message timeouts"),
    opt(
        "multi-prog",
        NO,
        Flag,
        Tools::SRUN,
        &["SLURM_SRUN_MULTI"],
        "the operand is a file: which ranks run which program",
        |asked, given| {
            asked.run.multi_prog = given.set;
            Ok(())
        },
    ),
    opt(
        "overlap",
        NO,
        Maybe("force"),
        Tools::SRUN,
        &["SLURM_OVERLAP"],
        "share CPUs with other steps of the job",
        |asked, given| {
            // A step that overlaps always does so by force, even beside exclusive ones.
            if !matches!(given.text(), "" | "0" | "1" | "yes" | "force") {
                return Err(given.invalid("use it without a value, or force"));
            }
            asked.run.overlap = true;
            Ok(())
        },
    ),
    opt(
        "preserve-env",
        'E',
        Flag,
        Tools::SRUN,
        &["SLURM_PRESERVE_ENV"],
        "keep SLURM_NNODES and SLURM_NTASKS as they are",
        |asked, given| {
            asked.spec.options.step.preserve_env = given.set;
            Ok(())
        },
    ),
    opt(
        "prolog",
        NO,
        Needed("program"),
        Tools::SRUN,
        &["SLURM_PROLOG"],
        "program to run before the step",
        |asked, given| {
            asked.run.around.prolog = limited(given)?;
            Ok(())
        },
    ),
    opt("pty", NO, Flag, Tools::SRUN, &[], "give task 0 a terminal", |asked, _| {
        asked.run.pty = true;
        Ok(())
    }),
    opt("quit-on-interrupt", NO, Flag, Tools::SRUN, &[], "one Ctrl-C ends the step", |asked, _| {
        asked.run.quit_on_interrupt = true;
        Ok(())
    }),
    opt("relative", 'r', Needed("n"), Tools::SRUN, &[], "begin at node N of the allocation", |asked, given| {
        asked.run.relative = Some(counted(given, false)?);
        Ok(())
    }),
    opt(
        "resv-ports",
        NO,
        Maybe("count"),
        Tools::SRUN,
        &["SLURM_RESV_PORTS"],
        "ports to reserve on the step's nodes, one more than a node's tasks if no number is given; 0: none",
        |asked, given| {
            asked.run.resv_ports = match given.text() {
                "" => None,
                _ => Some(counted(given, false)?),
            };
            Ok(())
        },
    ),
    opt("send-libs", NO, Maybe("yes|no"), Tools::SRUN, &["SLURM_SEND_LIBS"], "", send_libs)
        .partly("only no is taken: srun copies the program alone"),
    opt(
        "slurmd-debug",
        NO,
        Needed("level"),
        Tools::SRUN,
        &["SLURMD_DEBUG"],
        "what step daemons tell of the step: 0 to 4, or quiet, fatal, error, info, verbose",
        slurmd_debug,
    ),
    opt(
        "task-epilog",
        NO,
        Needed("program"),
        Tools::SRUN,
        &["SLURM_TASK_EPILOG"],
        "program to run after each task",
        |asked, given| {
            asked.spec.options.step.scripts.epilog = limited(given)?;
            Ok(())
        },
    ),
    opt(
        "task-prolog",
        NO,
        Needed("program"),
        Tools::SRUN,
        &["SLURM_TASK_PROLOG"],
        "program to run before each task",
        |asked, given| {
            asked.spec.options.step.scripts.prolog = limited(given)?;
            Ok(())
        },
    ),
    opt("threads", 'T', Needed("threads"), Tools::SRUN, &["SLURM_THREADS"], "", ignore_count)
        .hint("srun needs no threads to launch tasks"),
    opt(
        "unbuffered",
        'u',
        Flag,
        Tools::SRUN,
        &["SLURM_UNBUFFEREDIO"],
        "pass output on as it comes, without waiting for whole lines",
        |asked, given| {
            asked.run.unbuffered = given.set;
            Ok(())
        },
    ),
    opt(
        "restart-only-lost",
        NO,
        Flag,
        Tools::SRUN,
        &["SRUN_RESTART_ONLY_LOST"],
        "with --restarts: start only the tasks of the failed node again, for programs whose other tasks go on",
        |asked, given| {
            asked.run.restart_only_lost = given.set;
            Ok(())
        },
    ),
    opt(
        "restarts",
        NO,
        Needed("number"),
        Tools::SRUN,
        &["SRUN_RESTARTS"],
        "start the step again, at most so often, when a node of it has failed and the job goes on",
        |asked, given| {
            asked.run.restarts = counted(given, false)?;
            Ok(())
        },
    ),
    opt(
        "wait",
        'W',
        Needed("sec"),
        Tools::SRUN,
        &["SLURM_WAIT"],
        "end the step so many seconds after its first task has ended; 0: never",
        |asked, given| {
            asked.run.wait_s = Some(counted(given, false)?);
            Ok(())
        },
    ),
    opt(
        "wait-for-children",
        NO,
        Flag,
        Tools::SRUN,
        &[],
        "a task lasts until the processes that it has left behind have ended",
        |asked, given| {
            asked.run.wait_for_children = given.set;
            Ok(())
        },
    ),
    opt("whole", NO, Flag, Tools::SRUN, &["SLURM_WHOLE"], "all CPUs of the job on the step's nodes", |asked, given| {
        asked.run.whole = given.set;
        Ok(())
    }),
];

fn bcast_exclude(_: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    match given.text() {
        "NONE" => Ok(()),
        _ => Err(given.not_done("the program is copied without its libraries: leave it out")),
    }
}

/// Checks `--compress`, which does not change the copied file.
fn compress(_: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    match given.text().to_ascii_lowercase().as_str() {
        "" | "none" | "lz4" => Ok(()),
        _ => Err(given.not_done("the program is copied as it is: use none, or leave it out")),
    }
}

fn send_libs(_: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    match given.text().to_ascii_lowercase().as_str() {
        "no" | "n" | "0" => Ok(()),
        "" | "yes" | "y" | "1" => {
            Err(given.not_done("the program is copied without its libraries: copy them with sbcast, or use no"))
        }
        _ => Err(given.invalid("use no")),
    }
}

/// Sets `--distribution`: `block|cyclic|arbitrary|plane=SIZE|*[:…[:…]][,Pack|NoPack]`. The first part distributes ranks
/// over nodes, the others within nodes.
fn distribution(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let remedy = "use block, cyclic, arbitrary or plane=SIZE, and for sockets and cores :block, :cyclic or :fcyclic";
    let lower = given.text().to_ascii_lowercase();
    let first = lower.split([':', ',']).next().unwrap_or_default();
    let (word, size) = first.split_once('=').unwrap_or((first, ""));
    let rest_known = lower[first.len()..]
        .split([':', ','])
        .all(|part| matches!(part, "" | "*" | "block" | "cyclic" | "fcyclic" | "pack" | "nopack"));
    asked.run.distribution = match word {
        "block" | "*" | "unknown" | "pack" | "nopack" if rest_known => Distribution::Block,
        "cyclic" if rest_known => Distribution::Cyclic,
        "plane" => match size.parse().or_else(|_| std::env::var("SLURM_DIST_PLANESIZE").unwrap_or_default().parse()) {
            Ok(size) if size > 0 => Distribution::Plane(size),
            _ => {
                return Err(Stop::Bad {
                    lines: vec![
                        "Invalid plane size or size not specified".into(),
                        "Invalid --distribution specification".into(),
                        given.remedy("write plane=SIZE"),
                    ],
                    exit: 255,
                });
            }
        },
        "arbitrary" if rest_known => Distribution::Arbitrary(Arc::default()),
        _ => return Err(given.invalid(remedy)),
    };
    let text = plain_distribution(&lower);
    asked.spec.options.distribution = AsGiven::of(&text, Some(Spread::of(&text)));
    Ok(())
}

/// Sets `--slurmd-debug`: how much step daemons log, 0 to 4. Higher levels count as 4.
fn slurmd_debug(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    const MOST: u32 = 4;
    const WORDS: [&str; 10] =
        ["quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"];
    let word = WORDS.iter().position(|word| given.text().eq_ignore_ascii_case(word)).map(|at| at as u32);
    let level = word.or_else(|| given.text().parse().ok());
    let level = level.ok_or_else(|| given.invalid("use a level from 0 to 4, or quiet, fatal, error, info, verbose"))?;
    if level > MOST && !asked.quiet {
        asked.warnings.push(format!("Using srun's max debug increment of {MOST}"));
    }
    asked.run.slurmd_debug = level.min(MOST);
    asked.spec.options.step.slurmd_debug = Some(asked.run.slurmd_debug).filter(|level| *level > 0);
    Ok(())
}

/// Replaces each `*` in a distribution by its default: block over nodes, cyclic over sockets, and over cores the same
/// as over sockets.
fn plain_distribution(text: &str) -> String {
    let (levels, pack) = text.split_at(text.find(',').unwrap_or(text.len()));
    let mut plain: Vec<&str> = Vec::new();
    for (at, level) in levels.split(':').enumerate() {
        plain.push(match (level, at) {
            ("*", 0) => "block",
            ("*", 1) => "cyclic",
            ("*", _) => plain.last().copied().unwrap_or("cyclic"),
            (level, _) => level,
        });
    }
    plain.join(":") + pack
}
