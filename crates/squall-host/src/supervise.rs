//! The supervisor of `squall up --keep`: starts daemons of a cluster that have died, until `squall down`.

use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_model::config::Config;
use tracing::{error, warn};

use crate::controld::read_config;
use crate::front;
use crate::gone;
use crate::life::{self, Daemon, StartedDaemon};
use crate::trust::Trust;

/// Interval at which the daemons are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which the configuration is read again, for nodes that have come or gone.
const READ_EVERY: Duration = Duration::from_secs(10);
/// First and longest pause between two starts of a daemon.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Time after which a daemon that runs counts as sound: its next death is the first one again.
const SOUND: Duration = Duration::from_mins(1);

/// Supervises all daemons that the cluster has on this machine. Never returns.
pub fn run(place: &Place) -> ! {
    gone::end_with(place, "the supervisor", || {});
    let mut supervised: Vec<SupervisedDaemon> = Vec::new();
    let mut read_at = Instant::now();
    loop {
        let now = Instant::now();
        if read_at <= now {
            read_at = now + READ_EVERY;
            match daemons(place) {
                Ok(wanted) => update(&mut supervised, wanted),
                Err(e) => warn!(error = %e, "going on with the daemons known so far"),
            }
        }
        for one in &mut supervised {
            one.look(now);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns all daemons that the cluster has on this machine, each with its state folder.
fn daemons(place: &Place) -> Result<Vec<(Daemon, Place)>, String> {
    if let Some(joined) = Trust::of(place).joined().map_err(|e| e.to_string())? {
        return Ok(vec![(Daemon::of(&joined), place.clone())]);
    }
    let mut all = Vec::new();
    let mut add = |place: &Place, config: &Config| {
        let nodes = life::daemons(config)?;
        let rest = config.rest.0.is_on().then_some(Daemon::Rest);
        let mail = config.tells_of_jobs().then_some(Daemon::Mail);
        let login = config.has_standbys().then_some(Daemon::Login);
        let daemons = [Daemon::Controller].into_iter().chain(login).chain(rest).chain(mail).chain(nodes);
        all.extend(daemons.map(|daemon| (daemon, place.clone())));
        Ok::<(), String>(())
    };
    if place.cells().map_err(|e| e.to_string())?.is_empty() {
        add(place, &read_config(place).map_err(|e| e.to_string())?)?;
        return Ok(all);
    }
    for (cell, config) in front::cells(place).map_err(|e| e.to_string())? {
        add(&cell, &config)?;
    }
    all.push((Daemon::Front, place.clone()));
    Ok(all)
}

/// Changes the list of supervised daemons to those in `wanted`.
fn update(supervised: &mut Vec<SupervisedDaemon>, wanted: Vec<(Daemon, Place)>) {
    supervised.retain(|one| wanted.contains(&one.what));
    for what in wanted {
        if !supervised.iter().any(|one| one.what == what) {
            supervised.push(SupervisedDaemon {
                what,
                started: None,
                due: Instant::now(),
                pause: PAUSES.0,
                up_since: None,
            });
        }
    }
}

/// A daemon under supervision.
struct SupervisedDaemon {
    what: (Daemon, Place),
    /// The process that was last started. None: the supervisor has started none.
    started: Option<StartedDaemon>,
    /// When the daemon may be started next.
    due: Instant,
    /// Pause after the next start.
    pause: Duration,
    /// Since when the daemon has been seen to run. None: it does not run.
    up_since: Option<Instant>,
}

impl SupervisedDaemon {
    /// Starts the daemon if it does not run and its pause is over.
    fn look(&mut self, now: Instant) {
        let (daemon, place) = &self.what;
        if daemon.pid(place).is_some() {
            let since = *self.up_since.get_or_insert(now);
            if now - since >= SOUND {
                self.pause = PAUSES.0;
            }
            return;
        }
        self.up_since = None;
        // A process that was just started may not have written its pid file yet.
        let is_starting = self.started.as_mut().is_some_and(|started| started.failure().is_none());
        if is_starting || now < self.due {
            return;
        }
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSES.1);
        match daemon.start(place, &[]) {
            Ok(started) => {
                warn!(%daemon, log = %daemon.log_file(place).display(), "a daemon did not run, and is started");
                self.started = Some(started);
            }
            Err(e) => error!(%daemon, error = %e, "a daemon does not run, and can't be started"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{PAUSES, SupervisedDaemon, daemons, update};
    use crate::life::Daemon;
    use crate::trust::{Joined, Trust};
    use squall_files::place::Place;

    #[test]
    fn a_machine_that_has_joined_has_one_daemon() {
        let dir = std::env::temp_dir().join(format!("squall-supervise-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        crate::life::make_folders(&place).unwrap();
        for (login, daemon) in [(false, Daemon::Node("far".to_owned())), (true, Daemon::Login)] {
            let joined = Joined { name: "far".to_owned(), controllers: vec!["head:1".to_owned()], key: [7; 32], login };
            Trust::of(&place).note_joined(&joined).unwrap();
            assert_eq!(daemons(&place).unwrap(), [(daemon, place.clone())]);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn daemons_come_and_go_with_the_configuration_and_keep_their_pauses() {
        let place = Place::at(std::path::Path::new("/nonexistent")).unwrap();
        let node = |name: &str| (Daemon::Node(name.to_owned()), place.clone());
        let mut supervised: Vec<SupervisedDaemon> = Vec::new();
        update(&mut supervised, vec![node("a"), node("b")]);
        supervised[1].pause = Duration::from_secs(8);
        update(&mut supervised, vec![node("b"), node("c")]);
        let pauses: Vec<_> = supervised.iter().map(|one| (one.what.clone(), one.pause)).collect();
        assert_eq!(pauses, [(node("b"), Duration::from_secs(8)), (node("c"), PAUSES.0)]);
    }

    #[test]
    fn a_daemon_that_cant_start_is_tried_ever_more_seldom() {
        let place = Place::at(std::path::Path::new("/nonexistent")).unwrap();
        let mut supervised = Vec::new();
        update(&mut supervised, vec![(Daemon::Node("a".to_owned()), place)]);
        let begin = Instant::now() + Duration::from_secs(1);
        let mut tries = Vec::new();
        for second in 0..200 {
            let due = supervised[0].due;
            supervised[0].look(begin + Duration::from_secs(second));
            if supervised[0].due != due {
                tries.push(second);
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    }
}
