//! `--distribution=arbitrary`: each rank goes to the node that a list names for it, `SLURM_HOSTFILE` or `--nodelist`.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::hostlist::expand;
use squall_model::job::options::AsGiven;
use squall_model::job::spread::Spread;
use squall_model::step::Distribution;

use crate::capture::Vars;
use squall_text::options::Stop;
use squall_text::options::submit::SubmitOptions;

/// Maximum number of ranks for which a host list may name nodes.
const MOST: usize = squall_model::limits::TASKS_MAX as usize;

/// Applies a host list to the request: `--nodelist` with `--distribution=arbitrary`, or `SLURM_HOSTFILE` where no nodes
/// are named. As in Slurm, the latter overrides any other distribution.
pub(crate) fn apply(asked: &mut SubmitOptions, vars: &Vars) -> Result<(), Stop> {
    let file = vars.iter().find(|(name, path)| name == "SLURM_HOSTFILE" && !path.is_empty()).map(|(_, path)| path);
    let named = asked.spec.need.nodelist.clone();
    let (list, origin) = match (named, file) {
        (Some(list), _) if matches!(asked.run.distribution, Distribution::Arbitrary(_)) => {
            (list, "--nodelist".to_owned())
        }
        (None, Some(path)) => {
            let origin = format!("SLURM_HOSTFILE {}", path.display());
            let text = std::fs::read_to_string(path)
                .map_err(|e| Stop::bad(format!("Failure getting NodeNames from hostfile: {origin}: {e}")))?;
            (text, origin)
        }
        _ => {
            let arbitrary = matches!(asked.run.distribution, Distribution::Arbitrary(_));
            if arbitrary && !asked.on_line("distribution") {
                // The job's own environment sets `arbitrary` here. Without a list, the job's nodes are in its list's
                // order already.
                asked.run.distribution = Distribution::Block;
            } else if arbitrary {
                return Err(Stop::bad(
                    "With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option",
                ));
            }
            return Ok(());
        }
    };
    let mut names = names(&list).map_err(|problem| Stop::bad(format!("{origin}: {problem}")))?;
    let tasks = asked.spec.need.ntasks.map_or(names.len(), |tasks| tasks as usize);
    if tasks > names.len() || names.is_empty() {
        let names = names.len();
        return Err(Stop::bad(format!("{origin} names {names} nodes for {tasks} tasks; name one for each task")));
    }
    names.truncate(tasks);
    let mut nodes: Vec<&str> = Vec::new();
    let mut place_of: BTreeMap<&str, u32> = BTreeMap::new();
    let places = names.iter().map(|name| {
        *place_of.entry(name).or_insert_with(|| {
            nodes.push(name);
            nodes.len() as u32 - 1
        })
    });
    let places: Vec<u32> = places.collect();
    let mut tasks_of = vec![0; nodes.len()];
    for &place in &places {
        tasks_of[place as usize] += 1;
    }
    asked.run.distribution = Distribution::Arbitrary(Arc::new(places.into_iter().collect()));
    // Programs that are started within the job inherit this distribution.
    asked.spec.options.distribution = AsGiven::of("arbitrary", Some(Spread::default()));
    let need = &mut asked.spec.need;
    need.ntasks = Some(tasks as u32);
    // An allocation has a minimum of CPUs for each node: those that the node with the most tasks needs.
    let most = tasks_of.into_iter().max().filter(|_| !need.overcommit).unwrap_or(1) * need.task_cpus();
    need.cpus_min = need.cpus_min.max((most > 1).then_some(most));
    need.nodes_min = Some(nodes.len() as u32);
    need.nodes_max = need.nodes_min;
    need.nodelist = Some(nodes.join(","));
    Ok(())
}

/// Parses a host list into the node of each rank. A word such as `n1*4` stands for four ranks on one node.
fn names(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for line in list.lines().map(|line| line.split('#').next().unwrap_or_default()) {
        for word in line.split_whitespace() {
            let (hosts, times) = match word.rsplit_once('*') {
                Some((hosts, times)) => {
                    (hosts, times.parse().map_err(|_| format!("`{word}`: a number comes after *"))?)
                }
                None => (word, 1),
            };
            let hosts = expand(hosts.trim_matches(',')).map_err(|e| format!("`{word}`: {e}"))?;
            if hosts.len().saturating_mul(times).saturating_add(names.len()) > MOST {
                return Err(format!("at most {MOST} tasks"));
            }
            names.extend(hosts.iter().flat_map(|host| std::iter::repeat_n(host.clone(), times)));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_name_for_each_rank() {
        let of = |text: &str| names(text).map(|names| names.join(" "));
        assert_eq!(of("n2\nn1 # the second\n\nn2\n").as_deref(), Ok("n2 n1 n2"));
        assert_eq!(of("n[1-2],n1\n").as_deref(), Ok("n1 n2 n1"));
        assert_eq!(of("n1*2\nn3").as_deref(), Ok("n1 n1 n3"));
        assert!(of("n1*x").is_err() && of("n[").is_err() && of("n1*99999999999").is_err());
    }
}
