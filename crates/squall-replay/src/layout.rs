//! `squall layout`: places the ranks of a process grid on a torus; prints a listing, draws pictures, and writes files
//! that MPI launchers read.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use squall_model::hostlist;
use squall_sched::layout::{Grid, Layout, Model, Site, best, layouts, shapes, sockets};
use squall_sched::torus::{AXES_MAX, Axis, Coords, Frame, Prism};

use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};
use squall_text::picture::slices::{Shade, Slices};

use crate::write_picture;

/// Distance between neighbouring routers in pictures, pixels.
const CELL: u32 = 26;
/// Gap between neighbouring routers in pictures, pixels.
const GAP: u32 = 2;

/// `squall layout`, for its help, manual page and completion.
pub static PAGE: Page = Page {
    name: "squall layout",
    about: "where the ranks of a process grid go on a torus",
    synopsis: &["--grid=AxBxC[:periodic] [OPTIONS]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Lays the ranks of a process grid on a prism of a torus so that neighbours are neighbours, and says what the links carry. \
Without --prism the best one is looked for.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("grid", '\0', Arg::Needed("GRID"), "1 to 4 extents; the last counts fastest; :periodic if it wraps"),
    flag("stencil", '\0', Arg::Needed("W,W,W"), "what neighbours exchange along each dimension (otherwise all alike)"),
    flag("prism", '\0', Arg::Needed("AxBxC"), "routers in the prism"),
    flag("at", '\0', Arg::Needed("X,Y,Z"), "its first corner (otherwise 0,0,0)"),
    flag(
        "torus",
        '\0',
        Arg::Needed("AxBxC"),
        "routers of the machine (otherwise Blue Waters' 24x24x24 with y links half as fast)",
    ),
    flag("nodes-per-router", '\0', Arg::Needed("N"), "nodes of a router (otherwise 2, with --torus 1)"),
    flag("tasks-per-node", '\0', Arg::Needed("N"), "most tasks of a node (otherwise 32)"),
    flag(
        "sockets",
        '\0',
        Arg::Needed("N"),
        "sockets of a node: ranks of one come after each other in what is written (otherwise 1)",
    ),
    flag(
        "hole",
        '\0',
        Arg::Needed("X,Y,Z"),
        "a router of the prism without usable nodes, counted from its corner; may be repeated",
    ),
    flag("polish", '\0', Arg::Needed("N"), "exchanges that are tried (otherwise 10000)"),
    flag("all", '\0', Arg::None, "name every layout that was scored"),
    flag("pictures", '\0', Arg::Needed("DIR"), "draw it slice by slice, as SVG"),
    flag("hosts", '\0', Arg::Needed("LIST"), "names of the nodes, router by router, the first axis counting fastest"),
    flag("mpich", '\0', Arg::Needed("FILE"), "write MPICH_RANK_ORDER, for MPICH_RANK_REORDER_METHOD=3"),
    flag("rankfile", '\0', Arg::Needed("FILE"), "write Open MPI's rankfile (wants --hosts)"),
    flag("hostfile", '\0', Arg::Needed("FILE"), "write SLURM_HOSTFILE, for --distribution=arbitrary (wants --hosts)"),
    flag("json", '\0', Arg::None, "print one JSON object"),
];

#[derive(Default)]
struct Options {
    grid: Option<String>,
    stencil: String,
    prism: Option<Vec<u32>>,
    at: Vec<u32>,
    torus: Option<Vec<u32>>,
    per_router: Option<u32>,
    per_node: Option<u32>,
    sockets: Option<u32>,
    holes: Vec<Vec<u32>>,
    polish: Option<u32>,
    all: bool,
    pictures: Option<PathBuf>,
    hosts: Option<String>,
    mpich: Option<PathBuf>,
    rankfile: Option<PathBuf>,
    hostfile: Option<PathBuf>,
    json: bool,
}

/// Lays out ranks, as `squall layout` does. Returns the text to print.
pub fn run(args: &[OsString]) -> Result<String, String> {
    parse(args)?.map_or_else(|| Ok(PAGE.help()), |options| lay_out(&options))
}

fn parse(args: &[OsString]) -> Result<Option<Options>, String> {
    let given = PAGE.parse(args).map_err(|e| format!("{e}; see `squall layout --help`"))?;
    if given.has("help") {
        return Ok(None);
    }
    if let Some(operand) = given.operands.first() {
        return Err(format!("unexpected argument `{operand}`; see `squall layout --help`"));
    }
    let text = |name| given.last(name).map(str::to_owned);
    let path = |name| given.last(name).map(PathBuf::from);
    let listed = |name| given.last(name).map(|text| numbers(name, text)).transpose();
    let counted = |name| given.last(name).map(|text| number(name, text)).transpose();
    Ok(Some(Options {
        grid: text("grid"),
        stencil: text("stencil").unwrap_or_default(),
        prism: listed("prism")?,
        at: listed("at")?.unwrap_or_default(),
        torus: listed("torus")?,
        per_router: counted("nodes-per-router")?,
        per_node: counted("tasks-per-node")?,
        sockets: counted("sockets")?,
        holes: given.every("hole").map(|text| numbers("hole", text)).collect::<Result<_, _>>()?,
        polish: given.parsed("polish")?,
        all: given.has("all"),
        pictures: path("pictures"),
        hosts: text("hosts"),
        mpich: path("mpich"),
        rankfile: path("rankfile"),
        hostfile: path("hostfile"),
        json: given.has("json"),
    }))
}

fn numbers(option: &str, text: &str) -> Result<Vec<u32>, String> {
    let parts = text.split(['x', 'X', ',']).map(|part| part.trim().parse().ok());
    let numbers: Option<Vec<u32>> = parts.collect();
    let fine = numbers.filter(|numbers| numbers.len() <= AXES_MAX);
    fine.ok_or_else(|| format!("--{option}: `{text}` is not a list of up to {AXES_MAX} numbers like 8x8x8"))
}

fn number(option: &str, text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=4096).contains(n));
    number.ok_or_else(|| format!("--{option}: `{text}` is not a number from 1 to 4096"))
}

fn lay_out(options: &Options) -> Result<String, String> {
    let text = options.grid.as_deref().ok_or("--grid is needed; see `squall layout --help`")?;
    let grid = Grid::parse(text, &options.stencil).map_err(|e| e.to_string())?;
    let frame = frame(options)?;
    let per_node = options.per_node.unwrap_or(32);
    let size = match &options.prism {
        Some(extents) => size(&frame, extents)?,
        None => *shapes(&frame, &grid, per_node, None, usize::MAX)
            .first()
            .ok_or_else(|| too_large(&frame, &grid, per_node))?,
    };
    let mut site = Site::whole(&frame, Prism { at: corner(&frame, &options.at)?, size }, per_node);
    for hole in &options.holes {
        let inside = hole.len() == frame.axes().len() && hole.iter().zip(size).all(|(at, n)| *at < n);
        if !inside {
            return Err(format!("--hole {hole:?} does not lie in the prism {}", frame.text(&size)));
        }
        let cell = hole.iter().zip(size).fold(0, |cell, (at, n)| cell * n as usize + *at as usize);
        site.usable[cell] = 0;
    }
    let model = Model::default();
    let Some(layout) = best(&site, &grid, &model, options.polish.unwrap_or(10_000)) else {
        return Err(unfit(&frame, &grid, &site));
    };
    write_files(options, (&site, &grid), &layout)?;
    if let Some(folder) = &options.pictures {
        write_picture(&slices(&site, &grid, &layout).svg(), folder, "layout")?;
    }
    let others = if options.all { layouts(&site, &grid, &model) } else { Vec::new() };
    Ok(if options.json { as_json(&site, &layout, &others) } else { as_text(&site, &grid, &layout, &others) })
}

fn frame(options: &Options) -> Result<Frame, String> {
    let Some(extents) = &options.torus else {
        let weights = [2, 1, 2].map(|weight| Axis { extent: 24, wrap: true, weight });
        let per_router = options.per_router.unwrap_or(2);
        return Frame::new(weights.to_vec(), per_router, false).map_err(|e| e.to_string());
    };
    let axes = extents.iter().map(|&extent| Axis { extent, wrap: true, weight: 1 }).collect();
    Frame::new(axes, options.per_router.unwrap_or(1), false).map_err(|e| format!("--torus: {e}"))
}

fn size(frame: &Frame, extents: &[u32]) -> Result<Coords, String> {
    let mut size = [1; AXES_MAX];
    let fits = extents.len() == frame.axes().len()
        && extents.iter().zip(frame.axes()).all(|(n, axis)| (1..=axis.extent).contains(n));
    if !fits {
        return Err(format!("--prism {extents:?} does not fit on a torus of {}", frame.text(&frame.size())));
    }
    size[..extents.len()].copy_from_slice(extents);
    Ok(size)
}

fn corner(frame: &Frame, at: &[u32]) -> Result<Coords, String> {
    let mut corner = [0; AXES_MAX];
    if !at.is_empty()
        && (at.len() != frame.axes().len() || at.iter().zip(frame.axes()).any(|(at, axis)| *at >= axis.extent))
    {
        return Err(format!("--at {at:?} does not lie on the torus"));
    }
    corner[..at.len()].copy_from_slice(at);
    Ok(corner)
}

fn too_large(frame: &Frame, grid: &Grid, per_node: u32) -> String {
    let slots = frame.cells() as u64 * u64::from(frame.per_router()) * u64::from(per_node);
    format!("no prism takes this grid: {} tasks, and the whole torus has {slots} places", grid.tasks())
}

/// Returns the message that a grid does not fit a prism, with the nearest alternatives: larger prisms, or a grid that
/// fits this prism.
fn unfit(frame: &Frame, grid: &Grid, site: &Site<'_>) -> String {
    let nodes: u64 = site.usable.iter().map(|n| u64::from(*n)).sum();
    let places = nodes * u64::from(site.per_node);
    let mut text = format!("{} tasks do not lie on {} ({places} places)", grid.tasks(), frame.text(site.size()));
    let prisms = shapes(frame, grid, site.per_node, None, usize::MAX);
    if !prisms.is_empty() {
        let named: Vec<String> = prisms.iter().take(3).map(|size| frame.text(size)).collect();
        let _ = write!(text, "; the nearest prisms on which they do: {}", named.join(", "));
    }
    // The longest dimension shrinks until the grid fits.
    let mut smaller = grid.clone();
    while smaller.tasks() > 1 {
        let Some(longest) = smaller.extents.iter_mut().max() else { break };
        *longest -= 1;
        if smaller.tasks() as u64 <= places && best(site, &smaller, &Model::default(), 0).is_some() {
            let named: Vec<String> = smaller.extents.iter().map(u32::to_string).collect();
            let _ = write!(text, "; the nearest grid that fits here: {}", named.join("x"));
            break;
        }
    }
    text
}

/// Formats the position of a router on the torus.
fn place(site: &Site<'_>, cell: usize) -> String {
    let coords = site.frame.coords(cell);
    let named: Vec<String> = coords[..site.frame.axes().len()].iter().map(u32::to_string).collect();
    format!("({})", named.join(","))
}

fn worst_link(site: &Site<'_>, layout: &Layout) -> String {
    layout.score.link.map_or("none".to_owned(), |link| {
        let way = if link.up { '+' } else { '-' };
        let axis = ["x", "y", "z", "a", "b", "c"][link.axis];
        format!("{way}{axis} of router {}", place(site, link.cell))
    })
}

fn as_text(site: &Site<'_>, grid: &Grid, layout: &Layout, others: &[Layout]) -> String {
    let score = &layout.score;
    let extents: Vec<String> = grid.extents.iter().map(u32::to_string).collect();
    let mut text = format!("grid {} on {}: {}\n", extents.join("x"), site.frame.text(site.size()), layout.name);
    let _ = writeln!(text, "  routers {}, at most {} tasks on a node", score.routers, score.per_node);
    let _ = writeln!(text, "  worst link {:.1} messages by its weight: {}", score.worst, worst_link(site, layout));
    let _ = writeln!(text, "  hops {} at most, {:.2} on average", score.hops_max, score.hops_mean);
    let _ = writeln!(text, "  an exchange as the talk's: {:.3} ms in the model", score.time_ms);
    for other in others {
        let score = &other.score;
        let _ = writeln!(
            text,
            "  {:>8.1} {:>4} hops {:>8.3} ms  {}",
            score.worst, score.hops_max, score.time_ms, other.name
        );
    }
    text
}

fn as_json(site: &Site<'_>, layout: &Layout, others: &[Layout]) -> String {
    let one = |layout: &Layout| {
        let score = &layout.score;
        json!({
            "layout": layout.name, "worst": score.worst, "worst_link": worst_link(site, layout),
            "hops_max": score.hops_max, "hops_mean": score.hops_mean, "tasks_per_node": score.per_node,
            "routers": score.routers, "model_ms": score.time_ms,
        })
    };
    let mut value = one(layout);
    value["prism"] = json!(site.frame.text(site.size()));
    value["order"] = json!(order(site, layout).concat());
    if !others.is_empty() {
        value["others"] = others.iter().map(one).collect();
    }
    format!("{value}\n")
}

/// Returns the ranks of each node, in the order of the nodes' routers, with the first axis changing fastest.
fn order(site: &Site<'_>, layout: &Layout) -> Vec<Vec<usize>> {
    let per_router = site.frame.per_router() as usize;
    let mut routers: Vec<usize> = (0..site.prism.volume()).collect();
    routers.sort_by_key(|cell| {
        let mut place = site.prism.place(*cell);
        place.reverse();
        place
    });
    let mut at = vec![0; routers.len()];
    routers.iter().enumerate().for_each(|(number, cell)| at[*cell] = number);
    let mut nodes = vec![Vec::new(); routers.len() * per_router];
    for (rank, (cell, node)) in layout.cells.iter().zip(&layout.nodes).enumerate() {
        nodes[at[*cell as usize] * per_router + *node as usize].push(rank);
    }
    nodes
}

/// Sorts the ranks of a node by socket; returns each rank's socket and its position there.
fn by_sockets(grid: &Grid, ranks: &mut [usize], count: u32) -> Vec<(usize, usize)> {
    let all: Vec<u32> = ranks.iter().map(|rank| *rank as u32).collect();
    let mut sorted: Vec<(usize, usize)> =
        sockets(grid, &all, &vec![1; count as usize]).into_iter().zip(ranks.iter().copied()).collect();
    sorted.sort_unstable();
    ranks.iter_mut().zip(&sorted).for_each(|(rank, (_, sorted))| *rank = *sorted);
    let first = |socket: usize| sorted.partition_point(|(other, _)| *other < socket);
    sorted.iter().enumerate().map(|(at, (socket, _))| (*socket, at - first(*socket))).collect()
}

fn write_files(options: &Options, (site, grid): (&Site<'_>, &Grid), layout: &Layout) -> Result<(), String> {
    let mut nodes = order(site, layout);
    let count = options.sockets.unwrap_or(1);
    let places: Vec<Vec<(usize, usize)>> = nodes.iter_mut().map(|ranks| by_sockets(grid, ranks, count)).collect();
    if let Some(path) = &options.mpich {
        let line = |ranks: &Vec<usize>| ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let lines: Vec<String> = nodes.iter().filter(|ranks| !ranks.is_empty()).map(line).collect();
        put(path, &(lines.join("\n") + "\n"))?;
    }
    if options.rankfile.is_none() && options.hostfile.is_none() {
        return Ok(());
    }
    let list = options.hosts.as_deref().ok_or("--hosts is needed: a rankfile and a hostfile name nodes")?;
    let hosts = hostlist::expand(list).map_err(|e| format!("--hosts: {e}"))?;
    if hosts.len() != nodes.len() {
        return Err(format!("--hosts names {} nodes, the prism has {}", hosts.len(), nodes.len()));
    }
    let tasks: usize = nodes.iter().map(Vec::len).sum();
    let mut slots = vec![(0, (0, 0)); tasks];
    for (node, (ranks, places)) in nodes.iter().zip(places).enumerate() {
        ranks.iter().zip(places).for_each(|(rank, place)| slots[*rank] = (node, place));
    }
    if let Some(path) = &options.rankfile {
        let mut text = String::new();
        for (rank, (node, (socket, slot))) in slots.iter().enumerate() {
            let socket = if count > 1 { format!("{socket}:") } else { String::new() };
            let _ = writeln!(text, "rank {rank}={} slot={socket}{slot}", hosts[*node]);
        }
        put(path, &text)?;
    }
    if let Some(path) = &options.hostfile {
        let text = slots.iter().fold(String::new(), |text, (node, _)| text + &hosts[*node] + "\n");
        put(path, &text)?;
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Draws slices along the second axis; a router's colour shows the position of its ranks in the grid.
fn slices(site: &Site<'_>, grid: &Grid, layout: &Layout) -> Slices {
    let mut sums = vec![([0.0; 3], 0_u32); site.prism.volume()];
    for (rank, cell) in layout.cells.iter().enumerate() {
        let coords = grid.coords(rank);
        let (sum, count) = &mut sums[*cell as usize];
        for (sum, (at, n)) in sum.iter_mut().zip(coords.iter().zip(&grid.extents)) {
            *sum += f64::from(*at) / f64::from(*n);
        }
        *count += 1;
    }
    let shade = |cell: usize| -> Shade {
        let (sum, count) = sums[cell];
        let mean = |at: usize| sum[at] / f64::from(count.max(1));
        (count > 0).then(|| [mean(0) * 0.85, 0.35 + mean(1) * 0.55, 0.35 + mean(2) * 0.45])
    };
    let [across, through, down] = [0, 1, 2].map(|axis| site.size()[axis]);
    let slice = |y: u32| {
        let cells = (0..down).flat_map(|z| (0..across).map(move |x| (x * through + y) * down + z));
        (format!("y={}", site.prism.at[1] + y), cells.map(|cell| shade(cell as usize)).collect())
    };
    let extents: Vec<String> = grid.extents.iter().map(u32::to_string).collect();
    Slices {
        title: format!("{} tasks on {} routers: {}", extents.join("x"), site.frame.text(site.size()), layout.name),
        note: format!(
            "worst link {:.1}, {}; colours say where in the grid; dark: not used",
            layout.score.worst,
            worst_link(site, layout)
        ),
        axes: ("x".into(), "z".into()),
        extents: (across, down),
        cell: CELL,
        gap: GAP,
        cuts: (0..through).map(slice).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, lay_out, parse};

    fn options(line: &str) -> Options {
        let args: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        parse(&args).unwrap().unwrap()
    }

    #[test]
    fn a_layout_is_written_for_launchers() {
        let folder = std::env::temp_dir().join(format!("squall-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let line = format!(
            "--grid 4x4x4 --torus 4x4x4 --prism 2x2x2 --tasks-per-node 8 --hosts n[1-8] --polish 0 --mpich {} --rankfile {} --hostfile {} --pictures {}",
            path("order"),
            path("ranks"),
            path("hosts"),
            path("pictures")
        );
        let text = lay_out(&options(&line)).unwrap();
        assert!(text.contains("x/2 y/2 z/2") && text.contains("worst link 4.0"), "{text}");
        let order = std::fs::read_to_string(path("order")).unwrap();
        let mut ranks: Vec<u32> = order.split([',', '\n']).filter_map(|rank| rank.parse().ok()).collect();
        assert!(order.lines().count() == 8 && order.lines().all(|line| line.split(',').count() == 8));
        ranks.sort_unstable();
        assert_eq!(ranks, (0..64).collect::<Vec<_>>());
        let hosts = std::fs::read_to_string(path("hosts")).unwrap();
        assert_eq!((hosts.lines().count(), hosts.lines().next()), (64, Some("n1")));
        assert!(std::fs::read_to_string(path("ranks")).unwrap().contains("rank 63=n8 slot=7"));
        assert!(folder.join("pictures/layout.svg").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn ranks_of_one_socket_come_after_each_other() {
        let folder = std::env::temp_dir().join(format!("squall-layout-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let line = format!(
            "--grid 2x2x4 --stencil 4,1,1 --torus 4x4 --prism 1x2 --tasks-per-node 8 --sockets 2 --hosts n[1-2] --mpich {} --rankfile {}",
            path("order"),
            path("ranks")
        );
        lay_out(&options(&line)).unwrap();
        let [order, ranks] = ["order", "ranks"].map(|name| std::fs::read_to_string(path(name)).unwrap());
        std::fs::remove_dir_all(folder).unwrap();
        // Each node has half of the last dimension, and each socket half of the second.
        assert_eq!(order, "0,1,8,9,4,5,12,13\n2,3,10,11,6,7,14,15\n");
        assert!(ranks.contains("rank 8=n1 slot=0:2\n") && ranks.contains("rank 15=n2 slot=1:3\n"), "{ranks}");
    }

    #[test]
    fn the_picture_has_a_colour_for_each_router() {
        let folder = std::env::temp_dir().join(format!("squall-layout-cells-{}", std::process::id()));
        let line = "--grid 4x4x4 --torus 4x4x4 --prism 2x2x2 --tasks-per-node 8 --polish 0 --pictures";
        lay_out(&options(&format!("{line} {}", folder.display()))).unwrap();
        let svg = std::fs::read_to_string(folder.join("layout.svg")).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let colors = svg.split("<rect").skip(1).filter_map(|rect| rect.split_once("fill=\"#")?.1.get(..6));
        let colors: std::collections::BTreeSet<&str> = colors.filter(|color| *color != "ffffff").collect();
        assert_eq!(colors.len(), 8, "one for each router: {colors:?}");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_comes_nearest() {
        let said =
            lay_out(&options("--grid 4x4x8 --torus 4x4x4 --prism 2x2x2 --tasks-per-node 8 --polish 0")).unwrap_err();
        assert!(
            said.contains("128 tasks") && said.contains("nearest prisms") && said.contains("nearest grid"),
            "{said}"
        );
        assert!(lay_out(&options("--grid 5y5")).unwrap_err().contains("is no grid"));
        assert!(lay_out(&options("--grid 4x4 --prism 30x1x1")).unwrap_err().contains("does not fit on a torus"));
        assert!(lay_out(&options("--grid 4x4 --prism 2x2x2 --hole 2,0,0")).unwrap_err().contains("does not lie in"));
    }
}
