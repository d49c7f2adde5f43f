//! Static facts about the cells behind a front, from their configurations.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::Config;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{DependencyKind, JobSpec};
use squall_model::limits::CELLS_MAX;
use squall_model::wire::client::Refusal;
use squall_model::{gres, hostlist, license};
use squall_sched::Constraint;

/// The cells behind a front (the gateway that makes several cells look like one cluster), ascending by number.
#[derive(Debug)]
pub struct Cells(Vec<Cell>);

/// Static facts about one cell, from its configuration.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) number: u32,
    nodes: BTreeSet<String>,
    /// Number of nodes of each partition, by the partition's name.
    partitions: BTreeMap<String, usize>,
    default_partition: String,
    features: BTreeSet<String>,
    gres: BTreeSet<String>,
    licenses: BTreeSet<String>,
}

impl Cells {
    /// Makes the set of cells from their configurations. Err: text that says why they can't stand behind one front.
    pub fn new(configs: &[Config]) -> Result<Self, String> {
        let mut cells = configs.iter().map(Cell::new).collect::<Result<Vec<_>, String>>()?;
        cells.sort_by_key(|cell| cell.number);
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for pair in cells.windows(2) {
            if pair[0].number == pair[1].number {
                return Err(format!("there are two cells {}", pair[0].number));
            }
        }
        for cell in &cells {
            for node in &cell.nodes {
                if let Some(other) = seen.insert(node, cell.number) {
                    return Err(format!("node {node} is in cell {other} and in cell {}", cell.number));
                }
            }
        }
        match configs.iter().find(|config| config.cluster != configs[0].cluster) {
            Some(other) => Err(format!("the cells are of two clusters, {} and {}", configs[0].cluster, other.cluster)),
            None if cells.is_empty() => Err("there are no cells".to_owned()),
            None => Ok(Self(cells)),
        }
    }

    /// Returns the numbers of the cells.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|cell| cell.number)
    }

    /// Returns the number of the cell in which a job would be. An id that no cell assigns goes to the first cell, which
    /// refuses it as unknown.
    pub(super) fn of(&self, job: JobId) -> u32 {
        let first = self.0[0].number;
        self.numbers().find(|cell| *cell == job.cell()).unwrap_or(first)
    }

    /// Returns the numbers of the cells that have a partition of this name.
    pub(super) fn with_partition<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().filter(move |cell| cell.partitions.contains_key(name)).map(|cell| cell.number)
    }

    /// Returns the nodes of a host list, by the number of the cell that has them.
    pub(super) fn of_nodes(&self, list: &str) -> Result<BTreeMap<u32, Vec<String>>, Refusal> {
        let most = self.0.iter().map(|cell| cell.nodes.len()).sum();
        let names = hostlist::expand_within(list, most).map_err(|_| Refusal::InvalidNode(list.to_owned()))?;
        let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for name in names {
            match self.0.iter().find(|cell| cell.nodes.contains(&name)) {
                Some(cell) => found.entry(cell.number).or_default().push(name),
                None => return Err(Refusal::InvalidNode(name)),
            }
        }
        Ok(found)
    }

    /// Returns the part of a node list that is in a cell; None: none of it is.
    pub(super) fn nodes_in(&self, cell: u32, list: &str) -> Option<String> {
        let names = self.of_nodes(list).ok()?.remove(&cell)?;
        Some(hostlist::compress(names))
    }

    /// Returns the number of the cell for a submission. Arrays with `aftercorr` go to the cell of the arrays that they
    /// name. Otherwise it is one of the cells that have what the submission asks for. If the jobs that it depends on
    /// are all in one such cell, it is that one. If not, the key decides, and each cell is chosen in proportion to its
    /// nodes. The cells' present state has no influence, so the same submission always goes to the same cell.
    pub(super) fn choose(&self, specs: &[JobSpec], key: ClientKey) -> Result<u32, Refusal> {
        if self.0.len() > 1 {
            specs.iter().try_for_each(possible)?;
        }
        if let Some(cell) = self.of_tasks(specs)? {
            return Ok(cell);
        }
        let suited = self.suited(specs)?;
        let near = self.of_dependencies(specs, |_| true);
        if let Some(cell) = near.first().filter(|cell| near.len() == 1 && suited.iter().any(|(one, _)| one == *cell)) {
            return Ok(*cell);
        }
        let first = |a: f64, b: f64| a.total_cmp(&b);
        let best = suited.into_iter().min_by(|a, b| first(turn(key, a), turn(key, b)));
        Ok(best.map_or(self.0[0].number, |(number, _)| number))
    }

    /// Returns the cells that have what a submission asks for, with the number of nodes for it. If none has, returns
    /// the cells that will explain best in their refusal.
    pub(super) fn suited(&self, specs: &[JobSpec]) -> Result<Vec<(u32, usize)>, Refusal> {
        for list in specs.iter().filter_map(|spec| spec.need.nodelist.as_deref()) {
            if self.of_nodes(list)?.len() > 1 {
                return Err(Refusal::NodeConfigNotAvailable(format!("{list}: these nodes are in different cells")));
            }
        }
        specs.iter().try_for_each(|spec| self.holds(spec))?;
        let among = |fits: &dyn Fn(&Cell, &JobSpec) -> Option<usize>| -> Vec<(u32, usize)> {
            let size = |cell: &Cell| specs.iter().map(|spec| fits(cell, spec)).min().flatten();
            self.0.iter().filter_map(|cell| Some((cell.number, size(cell)?.max(1)))).collect()
        };
        let all = [
            among(&|cell, spec| cell.fits(spec)),
            among(&|cell, spec| cell.room(spec)),
            among(&|cell, _| Some(cell.nodes.len())),
        ];
        Ok(all.into_iter().find(|cells| !cells.is_empty()).unwrap_or_default())
    }

    /// Refuses a job that asks for more nodes than any cell has for it: a job runs in one cell.
    fn holds(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let (wanted, most) = (spec.need.nodes_min.unwrap_or(1), self.0.iter().filter_map(|cell| cell.room(spec)).max());
        match most {
            Some(most) if self.0.len() > 1 && wanted as usize > most.max(1) => {
                let what = format!("--nodes={wanted}: a job runs in one cell, and the largest has {most} nodes for it");
                Err(Refusal::NodeConfigNotAvailable(what))
            }
            _ => Ok(()),
        }
    }

    /// Returns the cell of the arrays named by `aftercorr`. The arrays' tasks are matched with this submission's.
    fn of_tasks(&self, specs: &[JobSpec]) -> Result<Option<u32>, Refusal> {
        let cells = self.of_dependencies(specs, |when| when == DependencyKind::AfterCorr);
        if cells.len() > 1 {
            let what = "--dependency=aftercorr: tasks can't be matched with those of arrays in several cells";
            return Err(Refusal::NotSupported(what.to_owned()));
        }
        Ok(cells.into_iter().next())
    }

    /// Returns the cells of the jobs that dependencies of the given kinds name.
    fn of_dependencies(&self, specs: &[JobSpec], kind: impl Fn(DependencyKind) -> bool) -> BTreeSet<u32> {
        let terms = specs.iter().filter_map(|spec| spec.dependency.as_ref()).flat_map(|d| &d.terms);
        let jobs = terms.filter(|term| kind(term.when)).filter_map(|term| term.job);
        jobs.map(|job| self.of(job.id)).collect()
    }
}

/// Refuses a job in a reservation: it has to be submitted to the reservation's cell directly.
fn possible(spec: &JobSpec) -> Result<(), Refusal> {
    if spec.reservation.is_none() {
        return Ok(());
    }
    let what = "--reservation: a reservation is of one cell; submit there, by the cell's folder in SQUALL_STATE";
    Err(Refusal::NotSupported(what.to_owned()))
}

/// Returns a cell's rank for a key: the cell with the least is chosen. Each is chosen in proportion to its nodes
/// (rendezvous hashing). A new cell takes keys from the others, and no key moves between those.
fn turn(key: ClientKey, (cell, nodes): &(u32, usize)) -> f64 {
    let hash = mix(mix(mix(u64::from(*cell) + 1) ^ (key.0 >> 64) as u64) ^ key.0 as u64);
    let evenly = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -evenly.ln() / *nodes as f64
}

/// Applies the finalizer of splitmix64, which spreads a number over 64 bits.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

impl Cell {
    fn new(config: &Config) -> Result<Self, String> {
        let number = config.cell.filter(|cell| *cell < CELLS_MAX);
        let number = number.ok_or_else(|| format!("cell = N is missing, N below {CELLS_MAX}"))?;
        let wrong = |list: &str| format!("cell {number}: `{list}` is no list of nodes");
        let mut nodes = BTreeSet::new();
        for entry in &config.nodes {
            nodes.extend(hostlist::expand(&entry.name).map_err(|_| wrong(&entry.name))?);
        }
        let mut partitions = BTreeMap::new();
        for partition in &config.partitions {
            let all = partition.nodes.is_empty() || partition.nodes.eq_ignore_ascii_case("ALL");
            let listed = || hostlist::expand(&partition.nodes).map_err(|_| wrong(&partition.nodes));
            let size = if all { nodes.len() } else { listed()?.len() };
            partitions.insert(partition.name.clone(), size);
        }
        let of_nodes = config.nodes.iter().flat_map(|entry| gres::parse(&entry.gres).unwrap_or_default());
        Ok(Self {
            number,
            nodes,
            partitions,
            default_partition: config.default_partition().map(|p| p.name.clone()).unwrap_or_default(),
            features: config.nodes.iter().flat_map(|entry| entry.features.iter().cloned()).collect(),
            gres: of_nodes.map(|count| count.name).chain(config.gres.iter().map(|line| line.name.clone())).collect(),
            licenses: license::parse(&config.licenses).unwrap_or_default().into_keys().collect(),
        })
    }

    /// Returns the number of nodes in the partitions that a job names; None: the cell lacks one of these.
    fn room(&self, spec: &JobSpec) -> Option<usize> {
        let names = spec.partition.as_deref().unwrap_or(&self.default_partition);
        let sizes = names.split(',').map(|name| self.partitions.get(name).copied());
        sizes.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the number of nodes in the partitions that a job names. None: the cell lacks one of these, or a node,
    /// feature or resource that the job asks for, or has too few nodes.
    fn fits(&self, spec: &JobSpec) -> Option<usize> {
        let need = &spec.need;
        let room = self.room(spec)?;
        let has_nodes = need.nodelist.as_deref().is_none_or(|list| {
            hostlist::expand_within(list, self.nodes.len())
                .is_ok_and(|names| names.iter().all(|name| self.nodes.contains(name)))
        });
        let has_features = need
            .constraint
            .as_deref()
            .and_then(Constraint::parse)
            .is_none_or(|constraint| constraint.features().all(|feature| self.features.contains(feature)));
        let has_gres =
            gres::Ask::of_job(spec).is_some_and(|ask| ask.counts().all(|count| self.gres.contains(&count.name)));
        let wanted = need.licenses.as_deref().and_then(license::parse).unwrap_or_default();
        let has_licenses = wanted.keys().all(|name| self.licenses.contains(name));
        let large = need.nodes_min.unwrap_or(1) as usize <= room.max(1);
        (has_nodes && has_features && has_gres && has_licenses && large).then_some(room)
    }
}
