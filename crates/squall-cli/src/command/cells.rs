//! `squall up --cells` and `squall down` for a cluster divided into cells: each cell is a cluster of its own, with one
//! front for all.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use squall_files::place::Place;
use squall_host::config_files::ConfigFiles;
use squall_host::controld::read_config;
use squall_host::front;
use squall_host::life::{self, Daemon};
use squall_model::config::Config;
use squall_model::hostlist;

use super::configure;
use super::down::{self, END_TIME};
use super::up::{self, CONTROLLER_TIME, LOOK_EVERY, Options};

/// Returns the number of cells that the cluster has, or will have by `--cells`. None: it is not divided into cells.
/// Fails if it has another number of cells than `--cells` asks for.
pub(super) fn meant(options: &Options) -> Result<Option<u32>, String> {
    let place = &options.place;
    let there = place.cells().map_err(|e| e.to_string())?.len() as u32;
    match (there, options.cells) {
        (0, Some(_)) if place.config().exists() => Err(format!(
            "the cluster in {} is one by itself, and its jobs have no cell: use another --state",
            place.dir().display()
        )),
        (0, asked) => Ok(asked),
        (there, Some(asked)) if there != asked => {
            Err(format!("this cluster has {there} cells: to have another number, use another --state"))
        }
        (there, _) => Ok(Some(there)),
    }
}

/// Starts the front and all cells that do not run yet; returns the message to print.
pub(super) fn up(options: &Options, cells: u32) -> Result<String, String> {
    let place = &options.place;
    if options.strict {
        return Err("--strict is for topologies, which cells have not".to_owned());
    }
    if place.cells().map_err(|e| e.to_string())?.is_empty() {
        make(options, cells)?;
    } else if options.file().is_some() {
        eprintln!(
            "squall up: the cells have their configurations already ({}/N/squall.toml)",
            place.cells_folder().display()
        );
    }
    let cells = front::cells(place).map_err(|e| e.to_string())?;
    let mut names = Vec::new();
    for (_, config) in &cells {
        names.extend(up::here(config)?);
    }
    let asked = options.nodes.or(options.rack).map(|_| options.nodes.unwrap_or(0) + options.rack.unwrap_or(0));
    if asked.is_some_and(|asked| asked as usize != names.len()) {
        return Err(format!("this cluster has {} node(s) ({})", names.len(), hostlist::compress(&names)));
    }
    let started = std::thread::scope(|scope| {
        let start = |(cell, config): &(Place, Config)| {
            life::make_folders(cell)?;
            up::start_controller(cell, options.further())?;
            up::start_nodes(cell, config)
        };
        let threads: Vec<_> = cells.iter().map(|cell| scope.spawn(move || start(cell))).collect();
        let results = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())));
        results.sum::<Result<usize, String>>()
    });
    started?;
    start_front(place)?;
    let cluster = cells.first().map(|(_, config)| config.cluster.clone()).unwrap_or_default();
    let mut text = format!(
        "cluster {cluster} is up: {} cells, {} nodes ({}), ",
        cells.len(),
        names.len(),
        hostlist::compress(&names)
    );
    let _ = writeln!(text, "state in {}", place.dir().display());
    text.push_str(&super::how_to_reach(place));
    Ok(text)
}

/// Creates the folders of all new cells; on an error none is left.
fn make(options: &Options, cells: u32) -> Result<(), String> {
    let place = &options.place;
    if options.listen.is_some() {
        return Err(
            "--listen: the nodes of cells are on this machine; start a controller for each other one".to_owned()
        );
    }
    let files = configure::given(options)?;
    let given = files.as_ref().map(|files| files.text().to_owned());
    let nodes = if options.rack.is_some() { options.nodes } else { options.nodes.or(Some(cells)) };
    let named = given.as_deref().map(Config::from_toml).transpose().map_err(|e| options.in_config(e))?;
    let nodes = if named.is_some_and(|config| !config.nodes.is_empty()) { options.nodes } else { nodes };
    let text = life::config_text(given.as_deref(), nodes, options.rack, None);
    let text = text.map_err(|e| options.in_config(e))?;
    let files = match files {
        Some(files) => files.with_text(text),
        None => ConfigFiles::beside(&place.config(), text).map_err(|e| e.to_string())?,
    };
    let config = files.check().map_err(|e| e.to_string())?.config;
    life::check_hardware(&config).map_err(|e| options.in_config(e))?;
    let parts = config.deal(cells).map_err(|e| options.in_config(e))?;
    let (draft, folder) = (place.dir().join("cells.tmp"), place.cells_folder());
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("cannot create {path}: {e}")
    };
    if draft.exists() {
        std::fs::remove_dir_all(&draft).map_err(failed(&draft))?;
    }
    for (number, part) in parts.iter().enumerate() {
        let cell = Place::at(&draft.join(number.to_string())).map_err(|e| e.to_string())?;
        std::fs::create_dir_all(cell.dir()).map_err(failed(cell.dir()))?;
        let head = "# A cell, written by `squall up --cells`. Restart the front after a change.\n";
        life::write_config(&cell, &format!("{head}{}", part.to_toml()?))?;
    }
    std::fs::rename(&draft, &folder).map_err(failed(&folder))?;
    std::fs::File::open(place.dir()).and_then(|dir| dir.sync_all()).map_err(failed(&folder))
}

/// Starts the front unless it runs, and waits until it answers.
fn start_front(place: &Place) -> Result<(), String> {
    let daemon = Daemon::Front;
    let (mut started, begin) = (None, Instant::now());
    while !up::is_answering(place) {
        daemon.ensure(place, &[], &mut started)?;
        if begin.elapsed() > CONTROLLER_TIME {
            return Err(format!("{daemon} does not answer; see {}", daemon.log_file(place).display()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Ends the front and all cells.
pub(super) fn down(place: &Place, keep_jobs: bool) -> Result<String, String> {
    let front = Daemon::Front;
    if let Some(process) = front.process(place).map_err(|e| format!("{front} can't be watched: {e}"))? {
        process.end(END_TIME).map_err(|e| format!("{front} does not end: {e}"))?;
    }
    // A front that was killed has left these files behind.
    drop(std::fs::remove_file(place.controller_socket()));
    drop(std::fs::remove_file(place.front_pid()));
    let cells = place.cells().map_err(|e| e.to_string())?;
    let texts: Vec<Result<String, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = cells.values().map(|cell| scope.spawn(move || down::down_one(cell, keep_jobs))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))).collect()
    });
    let mut said = String::new();
    for (number, text) in cells.keys().zip(texts) {
        let text = text.map_err(|e| format!("cell {number}: {e}"))?;
        text.lines().for_each(|line| {
            let _ = writeln!(said, "cell {number}: {line}");
        });
    }
    let cluster = cells.values().next().and_then(|cell| read_config(cell).ok()).map(|config| config.cluster);
    let _ = writeln!(said, "cluster {} is down", cluster.unwrap_or_default());
    Ok(said)
}
