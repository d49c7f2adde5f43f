//! Options about resources: nodes, tasks, CPUs, memory.

use squall_model::duration::parse_memory_mb;
use squall_model::job::options::AsGiven;
use squall_model::resource::Memory;

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::submit::SubmitOptions;
use crate::options::table::{counted, same_place, some};
use crate::options::values::number::node_count;
use crate::options::{GivenOption, NO, Opt, Stop, Tool, Tools, opt};

/// Entries of the options about nodes, tasks, CPUs and memory.
pub const OPTIONS: &[Opt] = &[
    opt(
        "constraint",
        'C',
        Needed("list"),
        Tools::ALL,
        &["SBATCH_CONSTRAINT", "SALLOC_CONSTRAINT", "SLURM_CONSTRAINT"],
        "features that the nodes must have",
        |asked, given| {
            asked.spec.need.constraint = some(given)?.filter(|list| !list.is_empty());
            Ok(())
        },
    ),
    opt("contiguous", NO, Flag, Tools::ALL, &[], "only neighbouring nodes", |asked, _| {
        asked.spec.need.contiguous = true;
        Ok(())
    }),
    opt(
        "cpus-per-task",
        'c',
        Needed("ncpus"),
        Tools::ALL,
        &["SRUN_CPUS_PER_TASK"],
        "CPUs for each task",
        |asked, given| {
            asked.spec.need.cpus_per_task = Some(counted(given, true)?);
            Ok(())
        },
    ),
    opt("exclude", 'x', Needed("hosts..."), Tools::ALL, &[], "nodes to avoid", |asked, given| {
        asked.spec.need.exclude = host_list(given)?;
        Ok(())
    }),
    opt(
        "exclusive",
        NO,
        Maybe("user|topo"),
        Tools::ALL,
        &["SBATCH_EXCLUSIVE", "SALLOC_EXCLUSIVE", "SLURM_EXCLUSIVE"],
        "whole nodes (or nodes of one user, or whole blocks), shared with nobody; a step: CPUs of its own",
        exclusive,
    )
    .partly("mcs is refused: there is no multi-category security"),
    opt(
        "gres",
        NO,
        Needed("list"),
        Tools::ALL,
        &["SBATCH_GRES", "SALLOC_GRES", "SLURM_GRES"],
        "generic resources of each node",
        |asked, given| {
            // `NAME=COUNT` is the format of --tres-per-task.
            if given.text().contains('=') {
                let remedy = given.remedy("use NAME[:TYPE]:COUNT, such as gpu:2 or gpu:a100:1");
                return Err(Stop::Bad {
                    lines: vec!["Invalid generic resource (gres) specification".into(), remedy],
                    exit: 1,
                });
            }
            asked.spec.need.gres = some(given)?;
            Ok(())
        },
    ),
    opt("licenses", 'L', Needed("names"), Tools::ALL, &[], "licenses", |asked, given| {
        asked.spec.need.licenses = some(given)?;
        Ok(())
    })
    .partly("licenses of a database, such as fluent@db, are refused: only those of the configuration are counted"),
    opt(
        "mem",
        NO,
        Needed("MB"),
        Tools::ALL,
        &["SBATCH_MEM_PER_NODE", "SALLOC_MEM_PER_NODE", "SLURM_MEM_PER_NODE"],
        "memory of each node, in MB or with K, M, G or T; 0: all of it",
        |asked, given| {
            let mb = memory(asked, given)?;
            asked.spec.need.memory = Memory::PerNodeMb(mb);
            Ok(())
        },
    ),
    opt(
        "mem-per-cpu",
        NO,
        Needed("MB"),
        Tools::ALL,
        &["SBATCH_MEM_PER_CPU", "SALLOC_MEM_PER_CPU", "SLURM_MEM_PER_CPU"],
        "memory for each CPU",
        |asked, given| {
            let mb = memory(asked, given)?;
            asked.spec.need.memory = Memory::PerCpuMb(mb);
            Ok(())
        },
    ),
    opt(
        "mem-per-gpu",
        NO,
        Needed("n"),
        Tools::ALL,
        &["SBATCH_MEM_PER_GPU", "SALLOC_MEM_PER_GPU", "SLURM_MEM_PER_GPU"],
        "memory for each GPU",
        |asked, given| {
            let value = memory(asked, given)?;
            asked.spec.options.gpus.memory_mb = Some(AsGiven { text: given.text().to_owned(), value });
            Ok(())
        },
    ),
    opt("mincpus", NO, Needed("n"), Tools::ALL, &[], "CPUs that each node has at least", |asked, given| {
        asked.spec.need.cpus_min = Some(counted(given, true)?);
        Ok(())
    }),
    opt("nodefile", 'F', Needed("filename"), Tools::ALL, &[], "file with the names of the nodes", |asked, given| {
        let Ok(text) = std::fs::read_to_string(given.text()) else {
            return Err(Stop::Bad {
                lines: vec![
                    "Invalid --nodefile node file".into(),
                    given.remedy("it can't be read as text; give a file with host names"),
                ],
                exit: 255,
            });
        };
        let names: Vec<&str> = text.split([',', '\n', ' ', '\t']).filter(|name| !name.is_empty()).collect();
        asked.spec.need.nodelist = Some(names.join(","));
        Ok(())
    }),
    opt(
        "nodelist",
        'w',
        Needed("hosts..."),
        Tools::ALL,
        &[],
        "nodes that must be among those allocated",
        |asked, given| {
            asked.spec.need.nodelist = host_list(given)?;
            Ok(())
        },
    ),
    opt("nodes", 'N', Needed("N"), Tools::ALL, &["SLURM_JOB_NUM_NODES"], "how many nodes", |asked, given| {
        let (min, max) = node_count(given.text())
            .map_err(|line| Stop::Bad { lines: vec![line, given.remedy("use 2 or 2-4")], exit: 255 })?;
        (asked.spec.need.nodes_min, asked.spec.need.nodes_max) = (Some(min), max);
        Ok(())
    })
    .partly("lists and steps, such as 1,3 and 2-8:2, are refused: use a number or a range"),
    opt(
        "ntasks",
        'n',
        Needed("ntasks"),
        Tools::ALL,
        &["SLURM_NPROCS", "SLURM_NTASKS"],
        "how many tasks",
        |asked, given| {
            asked.spec.need.ntasks = Some(counted(given, true)?);
            Ok(())
        },
    ),
    opt("ntasks-per-core", NO, Needed("n"), Tools::ALL, &[], "at most so many tasks on each core", |asked, given| {
        asked.spec.options.inside.tasks_per_core = counted(given, true)?;
        Ok(())
    }),
    opt(
        "ntasks-per-node",
        NO,
        Needed("n"),
        Tools::ALL,
        &["SLURM_NTASKS_PER_NODE"],
        "so many tasks on each node",
        |asked, given| {
            asked.spec.need.ntasks_per_node = Some(counted(given, true)?);
            Ok(())
        },
    )
    .or(&["tasks-per-node"]),
    opt(
        "ntasks-per-socket",
        NO,
        Needed("n"),
        Tools::ALL,
        &[],
        "at most so many tasks on each socket",
        |asked, given| {
            asked.spec.options.inside.tasks_per_socket = counted(given, true)?;
            Ok(())
        },
    ),
    opt(
        "overcommit",
        'O',
        Flag,
        Tools::ALL,
        &["SBATCH_OVERCOMMIT", "SALLOC_OVERCOMMIT", "SLURM_OVERCOMMIT"],
        "allow more tasks than CPUs",
        |asked, given| {
            asked.spec.need.overcommit = given.set;
            Ok(())
        },
    ),
    opt("oversubscribe", 's', Flag, Tools::ALL, &[], "share the resources with other jobs", |asked, _| {
        asked.spec.need.oversubscribe = true;
        Ok(())
    })
    .or(&["share"]),
    opt(
        "spread-job",
        NO,
        Flag,
        Tools::ALL,
        &["SBATCH_SPREAD_JOB", "SALLOC_SPREAD_JOB", "SLURM_SPREAD_JOB"],
        "over as many nodes as possible",
        |asked, given| {
            asked.spec.need.spread = given.set;
            Ok(())
        },
    ),
    opt(
        "tmp",
        NO,
        Needed("MB"),
        Tools::ALL,
        &[],
        "scratch space of each node, in MB or with K, M, G or T",
        |asked, given| {
            let Ok(mb) = parse_memory_mb(given.text()) else {
                return Err(Stop::Bad {
                    lines: vec![
                        "Invalid --tmp specification".into(),
                        given.remedy("use a number of MB, or one with K, M, G or T"),
                    ],
                    exit: 255,
                });
            };
            asked.spec.need.tmp_disk_mb = mb;
            Ok(())
        },
    ),
    opt(
        "use-min-nodes",
        NO,
        Flag,
        Tools::ALL,
        &["SBATCH_USE_MIN_NODES", "SALLOC_USE_MIN_NODES", "SLURM_USE_MIN_NODES"],
        "prefer the smaller node count of a range",
        |asked, given| {
            asked.spec.options.use_min_nodes = given.set;
            Ok(())
        },
    ),
];

fn host_list(given: &GivenOption<'_>) -> Result<Option<String>, Stop> {
    let text = given.text();
    let file = if text.contains('/') { std::fs::read_to_string(text).ok() } else { None };
    match file {
        Some(names) => Ok(Some(names.split_whitespace().collect::<Vec<_>>().join(","))),
        None => some(given),
    }
}

fn exclusive(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let (user, blocks) = match given.text().to_ascii_lowercase().as_str() {
        "" | "exclusive" | "1" | "yes" => (false, false),
        "user" => (true, false),
        "topo" => (false, true),
        "mcs" => return Err(given.not_done("there is no multi-category security: use --exclusive or --exclusive=user")),
        _ => return Err(given.invalid("use it without a value, user or topo")),
    };
    (asked.spec.need.exclusive, asked.spec.options.exclusive_user) = (!user, user);
    asked.spec.options.exclusive_topo = blocks.then_some(true);
    Ok(())
}

fn memory(asked: &SubmitOptions, given: &GivenOption<'_>) -> Result<u64, Stop> {
    let rival = ["mem", "mem-per-cpu", "mem-per-gpu"]
        .iter()
        .filter(|name| **name != given.option.long)
        .any(|name| asked.sources.get(*name).is_some_and(|source| same_place(source, given.source)));
    if rival && given.tool != Tool::Srun {
        return Err(Stop::bad("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."));
    }
    parse_memory_mb(given.text()).map_err(|problem| given.invalid(&format!("{problem} (MB without a letter)")))
}
