//! Node requests of extended traces: the twenty-first column of `.swf-ext` files, in the syntax of PBS, such as
//! `4:ppn=8:x86_64:cl_zegox#excl` or `1:ppn=1+2:ppn=2`.

/// A job's request for nodes and their properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Number of requested nodes.
    pub nodes: u32,
    /// Number of processors on each node. None: the number differs between nodes.
    pub per_node: Option<u32>,
    /// Whether no other job may use the nodes.
    pub exclusive: bool,
    /// Index in [`super::Trace::properties`] of the required properties.
    pub properties: usize,
}

/// Parsed content of a node request column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The request; its index of properties is not set yet.
    pub(crate) spec: NodeSpec,
    /// Total number of requested processors.
    pub(crate) processors: u64,
    /// Properties that all nodes must have, sorted; among them node names and excluded properties (`^name`).
    pub(crate) properties: Vec<String>,
}

/// A part of a node request: a number of equal nodes.
struct Chunk {
    nodes: u32,
    per_node: u32,
    properties: Vec<String>,
}

/// Parses a node request column of an extended trace.
pub(crate) fn read(text: &str) -> Result<Read, String> {
    let (chunks, flags) = text.split_once('#').unwrap_or((text, ""));
    let exclusive = match flags {
        "" => false,
        "excl" => true,
        other => return Err(format!("`#{other}` is not known, only #excl")),
    };
    let chunks: Vec<Chunk> = chunks.split('+').map(chunk).collect::<Result<_, _>>()?;
    let (nodes, processors) = chunks.iter().fold((0_u64, 0_u64), |(nodes, processors), chunk| {
        let more = u64::from(chunk.nodes);
        (nodes + more, processors + more * u64::from(chunk.per_node))
    });
    let nodes = u32::try_from(nodes).map_err(|_| format!("{nodes} nodes are too many"))?;
    let first = chunks.first().map_or(0, |chunk| chunk.per_node);
    let per_node = chunks.iter().all(|chunk| chunk.per_node == first).then_some(first);
    let mut properties = chunks.first().map(|chunk| chunk.properties.clone()).unwrap_or_default();
    properties.retain(|name| chunks.iter().all(|chunk| chunk.properties.contains(name)));
    properties.sort();
    properties.dedup();
    Ok(Read { spec: NodeSpec { nodes, per_node, exclusive, properties: 0 }, processors, properties })
}

/// Parses `N:ppn=P:property…`, or the same with the name of a node instead of N.
fn chunk(text: &str) -> Result<Chunk, String> {
    let mut words = text.split(':');
    let first = words.next().unwrap_or_default();
    let mut found = Chunk { nodes: 1, per_node: 1, properties: Vec::new() };
    if first.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-') {
        found.nodes = whole(first).ok_or_else(|| format!("`{first}` is not a number of nodes"))?;
    } else if first.is_empty() {
        return Err(format!("`{text}` names no nodes"));
    } else {
        found.properties.push(first.to_owned());
    }
    for word in words {
        match word.split_once('=') {
            Some(("ppn", number)) => {
                // Of a fractional number of processors the whole part was allocated.
                let given = number.split_once('.').map_or(number, |(given, _)| given);
                found.per_node =
                    whole(given).ok_or_else(|| format!("ppn: `{number}` is not a number of processors"))?;
            }
            None if word.is_empty() => return Err(format!("`{text}` has an empty property")),
            _ => found.properties.push(word.to_owned()),
        }
    }
    Ok(found)
}

/// Parses a number of at least 1.
fn whole(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::{NodeSpec, read};

    #[test]
    fn what_is_asked_of_nodes() {
        let of = |text: &str| {
            let read = read(text).unwrap();
            (read.spec.nodes, read.spec.per_node, read.spec.exclusive, read.processors, read.properties.join(" "))
        };
        assert_eq!(of("8:ppn=8:x86_64:cl_zegox#excl"), (8, Some(8), true, 64, "cl_zegox x86_64".into()));
        assert_eq!(of("2"), (2, Some(1), false, 2, String::new()));
        assert_eq!(of("1:ppn=1:a:b+2:ppn=2:b"), (3, None, false, 5, "b".into()));
        assert_eq!(of("zewura19:ppn=12:brno").4, "brno zewura19");
        assert_eq!(of("1:ppn=1.5:^zewura2:mem=3gb"), (1, Some(1), false, 1, "^zewura2 mem=3gb".into()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let wrong = |text: &str| read(text).unwrap_err();
        assert_eq!(wrong("2:ppn=x"), "ppn: `x` is not a number of processors");
        assert_eq!(wrong("0:ppn=1"), "`0` is not a number of nodes");
        assert_eq!(wrong("-1"), "`-1` is not a number of nodes");
        assert_eq!(wrong("1:ppn=1+"), "`` names no nodes");
        assert_eq!(wrong("1::a"), "`1::a` has an empty property");
        assert_eq!(wrong("1#shared"), "`#shared` is not known, only #excl");
        assert_eq!(wrong("4294967295+1"), "4294967296 nodes are too many");
        let most = read("4294967295:ppn=4294967295").unwrap();
        assert_eq!(most.spec, NodeSpec { nodes: u32::MAX, per_node: Some(u32::MAX), exclusive: false, properties: 0 });
    }
}
