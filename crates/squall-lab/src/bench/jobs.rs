//! `bench jobs`: all figures of job throughput in one table, each with its target and the results of others.

use serde_json::json;

use super::table::{self, Bar, BenchOutput, FigureRow};
use super::{BenchOptions, Finding};

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let part = |args: &str| {
        let mut command = table::bench()?;
        command.args(args.split_whitespace());
        table::part(options, command)
    };
    let real = part("throughput --ladder")?;
    let emulated = part("throughput --emulated 10080 --jobs 1000000")?;
    let mut lines = rates(&real, &emulated);
    lines.extend(commands(&part("submit")?, &part("clients")?));
    Ok(table::of("jobs", &lines))
}

fn rates(real: &BenchOutput, emulated: &BenchOutput) -> Vec<FigureRow> {
    vec![
        FigureRow::new(
            "real jobs of /bin/true",
            real.number("figure"),
            "1/s",
            Bar::Any,
            "Slurm 78-90, 59 by its guide",
        ),
        FigureRow::new("the same, of bare spawn", real.number("ratio"), "", Bar::Least(0.7), ""),
        FigureRow::new("batch scripts of sh, of bare sh -c true", real.number("sh_ratio"), "", Bar::Least(0.7), ""),
        FigureRow::new(
            "durable no-op jobs, 10080 emulated nodes",
            emulated.number("figure"),
            "1/s",
            Bar::Least(50_000.0),
            "HyperQueue 1678, not durable",
        ),
        FigureRow::new(
            "the last tenth of a million, of the first",
            emulated.number("last_of_first_tenth"),
            "",
            Bar::Least(0.9),
            "",
        ),
    ]
}

fn commands(submit: &BenchOutput, clients: &BenchOutput) -> Vec<FigureRow> {
    let found = |what: &str| clients.cell("measured", &[("what", json!(what))], "measured");
    let line = |what: &'static str, unit, bar, others| FigureRow::new(what, found(what), unit, bar, others);
    vec![
        FigureRow::new("durable submissions, 8 threads", submit.number("figure"), "1/s", Bar::Least(20_000.0), ""),
        FigureRow::new(
            "the answer to 99 of 100",
            submit.number("p99_us").map(|us| us / 1e3),
            "ms",
            Bar::Most(10.0),
            "",
        ),
        line("srun -n1 true", "ms", Bar::Most(5.0), "Slurm 26-59, Spur 9.6, HyperQueue 64, Flux 161"),
        line("sbatch processes", "1/s", Bar::Least(500.0), "Slurm 50-59"),
        line("an array of 1 M tasks", "ms", Bar::Most(100.0), ""),
        line("memory of a waiting array task", "bytes", Bar::Most(400.0), ""),
        line("memory of a waiting job", "bytes", Bar::Most(1024.0), ""),
        line("squeue of all that wait", "ms", Bar::Most(100.0), ""),
        line("no-op jobs/s behind all that wait", "1/s", Bar::Any, ""),
        line("the same while somebody lists all without a pause", "1/s", Bar::Any, ""),
    ]
}
