//! Groups nodes that sinfo prints on one line: those with equal values in all its fields.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use squall_model::wire::info::{NodeInfo, PartitionInfo};

use squall_text::columns::groups::{FIELDS, FieldScope, Group, kind};
use squall_text::format::clock::Clock;
use squall_text::format::layout::Layout;
use squall_text::format::{Field, by_letter};

/// Options of sinfo that affect grouping.
pub(crate) struct Grouping {
    /// `--Node`: a line for each node and partition.
    pub(crate) each_node: bool,
    /// `--exact`: nodes of different sizes have separate lines, instead of `4+`.
    pub(crate) exact: bool,
    /// Whether partitions without nodes have a line, too.
    pub(crate) empty: bool,
    /// The current time, time zone and format of times.
    pub(crate) clock: Rc<Clock>,
    /// Name of the cluster.
    pub(crate) cluster: Rc<str>,
}

/// Groups nodes for a format, in the order of the partitions.
pub(crate) fn group(
    layout: &Layout<Group>,
    grouping: &Grouping,
    partitions: &[Rc<PartitionInfo>],
    nodes: &[Rc<NodeInfo>],
    reason_user: &dyn Fn(u32) -> String,
) -> Vec<Group> {
    let keys: Vec<&'static Field<Group>> = layout
        .fields()
        .filter(|f| match kind(f) {
            FieldScope::Partition | FieldScope::Sum => false,
            FieldScope::Node => true,
            FieldScope::Size => grouping.exact,
        })
        .collect();
    let by_partition: Vec<&'static Field<Group>> =
        layout.fields().filter(|f| kind(f) == FieldScope::Partition).collect();
    let mut found: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut members: BTreeSet<(usize, &str)> = BTreeSet::new();
    for partition in partitions {
        let mut any = false;
        for node in nodes.iter().filter(|n| n.partitions.contains(&partition.config.name)) {
            any = true;
            let one = Group {
                partition: Some(partition.clone()),
                nodes: vec![node.clone()],
                clock: grouping.clock.clone(),
                cluster: grouping.cluster.clone(),
                reason_user: node.reason.as_ref().map(|r| reason_user(r.1)).unwrap_or_default(),
            };
            let mut key: Vec<String> = by_partition.iter().chain(&keys).map(|f| f.text(&one)).collect();
            if grouping.each_node {
                key.extend([node.name.clone(), partition.config.name.clone()]);
            }
            let at = *found.entry(key).or_insert(groups.len());
            // A node of several partitions counts once if the line doesn't name partitions.
            let fresh = members.insert((at, node.name.as_str()));
            match groups.get_mut(at) {
                Some(group) if fresh => group.nodes.push(node.clone()),
                Some(_) => {}
                None => groups.push(one),
            }
        }
        if !any && grouping.empty && !grouping.each_node {
            groups.push(Group {
                partition: Some(partition.clone()),
                nodes: Vec::new(),
                clock: grouping.clock.clone(),
                cluster: grouping.cluster.clone(),
                reason_user: String::new(),
            });
        }
    }
    groups
}

/// Sorts by letters of `-o`, each with `-` for descending order; `#P` keeps the order of the partitions. The error is
/// an unknown letter.
pub(crate) fn sort(groups: &mut [Group], order: &str, partitions: &[Rc<PartitionInfo>]) -> Result<(), String> {
    let mut keys: Vec<(bool, char)> = Vec::new();
    let mut bad = None;
    for item in order.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let (falling, rest) = match item.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, item.strip_prefix('+').unwrap_or(item)),
        };
        let natural = rest.starts_with('#');
        match rest.trim_start_matches('#').chars().next() {
            Some('P' | 'R') if natural => keys.push((falling, '#')),
            Some(letter) if by_letter(FIELDS, letter).is_some() => keys.push((falling, letter)),
            _ => bad = Some(item.to_owned()),
        }
    }
    let place = |g: &Group| {
        let name = g.partition.as_ref().map(|p| p.config.name.as_str());
        partitions.iter().position(|p| Some(p.config.name.as_str()) == name)
    };
    groups.sort_by(|a, b| {
        keys.iter()
            .map(|(falling, letter)| {
                let order = match letter {
                    '#' => place(a).cmp(&place(b)),
                    't' | 'T' => a.state().cmp(&b.state()),
                    'D' => a.nodes.len().cmp(&b.nodes.len()),
                    'N' | 'n' => first(a).cmp(&first(b)),
                    other => by_letter(FIELDS, *other).map_or(std::cmp::Ordering::Equal, |f| f.text(a).cmp(&f.text(b))),
                };
                if *falling { order.reverse() } else { order }
            })
            .find(|order| order.is_ne())
            .unwrap_or_else(|| first(a).cmp(&first(b)))
    });
    bad.map_or(Ok(()), Err)
}

/// Returns the name of the first node as (prefix, number), so that n9 is sorted before n10.
fn first(group: &Group) -> (String, u64) {
    let name = group.nodes.first().map_or("", |n| n.name.as_str());
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(18);
    let (prefix, number) = name.split_at(name.len() - digits);
    (prefix.to_owned(), number.parse().unwrap_or(0))
}
