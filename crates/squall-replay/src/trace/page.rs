//! `squall sim` for its help, manual page and completion: of what it runs, traces are read here.

use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

/// `squall sim`, for its help, manual page and completion.
pub static PAGE: Page = Page {
    name: "squall sim",
    about: "simulate clusters: stories, random faults, planted bugs, workload traces",
    synopsis: &[
        "FILE...",
        "--seeds=A..B [--nodes=N] [--hours=H] [--json]",
        "--seed=N [--nodes=N] [--hours=H] [--trace]",
        "--seeds=A..B --cells=N [--json]",
        "--mutations [--json]",
        "TRACE.swf[.gz] [--policy=POLICY[,POLICY...]] [--procs=N | --machine=NxCPUS[+NxCPUS...] | --config=FILE]",
    ],
    options: Options::Own(FLAGS),
    notes: "\
A FILE is a story for the simulator. Random worlds run the production code with faults; a failed one names the command \
that replays it. A TRACE is a workload in the Standard Workload Format. Packages run traces; `make build` also runs \
stories, and `make lab` makes target/lab/squall, which also runs random worlds and plants bugs.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("seeds", '\0', Arg::Needed("A..B"), "simulate one random world for each seed"),
    flag("seed", '\0', Arg::Needed("N"), "simulate the random world of this seed"),
    flag("nodes", '\0', Arg::Needed("N"), "nodes of a random world (otherwise 64)"),
    flag("cells", '\0', Arg::Needed("N"), "cells of a random world, with their front"),
    flag(
        "controllers",
        '\0',
        Arg::Needed("N"),
        "controllers of a random world (otherwise 1; in about every fifth world 3)",
    ),
    flag("hours", '\0', Arg::Needed("H"), "simulated hours of a random world (otherwise 1)"),
    flag("threads", '\0', Arg::Needed("N"), "worlds or policies at a time (otherwise all CPUs)"),
    flag("trace", '\0', Arg::None, "show what happens"),
    flag("mutations", '\0', Arg::None, "plant bugs, each of which must be found"),
    flag("mutation", '\0', Arg::Needed("NAME"), "plant this bug"),
    flag(
        "policy",
        '\0',
        Arg::Needed("LIST"),
        "policies for a trace: fcfs, easy (the default), easy-sjbf, conservative; or all. On nodes: all but easy-sjbf, as a controller has them",
    ),
    flag("procs", '\0', Arg::Needed("N"), "run a trace on a pool of N processors"),
    flag(
        "machine",
        '\0',
        Arg::Needed("SIZES"),
        "run a trace on nodes of these sizes: 20x80+48x12 is 20 nodes of 80 CPUs and 48 of 12",
    ),
    flag(
        "config",
        '\0',
        Arg::Needed("FILE"),
        "run a trace on the nodes of a configuration, by its scheduler's settings, partitions and topology",
    ),
    flag(
        "strict",
        '\0',
        Arg::None,
        "a job of a trace whose submit time is missing (-1) is an error; otherwise it is left out and counted",
    ),
    flag("csv", '\0', Arg::Needed("FILE"), "write a trace's jobs with their starts"),
    flag("pictures", '\0', Arg::Needed("DIR"), "draw a trace's utilisation and waits"),
    flag("days", '\0', Arg::Needed("N"), ""),
    flag("json", '\0', Arg::None, "print one JSON object"),
];

/// Options for random worlds alone.
pub const WORLD: &[&str] = &["seeds", "seed", "cells", "controllers", "hours", "trace", "mutations", "mutation"];

/// Options for workload traces alone.
pub const OF_TRACES: &[&str] = &["policy", "procs", "machine", "config", "strict", "csv", "pictures", "days"];
