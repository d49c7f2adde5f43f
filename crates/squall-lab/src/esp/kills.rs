//! Kills collectors (relays that aggregate messages) while a workload runs.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use squall_files::place::Place;
use squall_host::life::{self, Daemon, Process};

/// A thread that makes the daemons of emulated nodes, one after the other, kill one of their collectors.
pub(crate) struct Kills {
    racks: Vec<Daemon>,
    place: Place,
    thread: JoinHandle<()>,
    stop: SyncSender<()>,
}

impl Kills {
    /// Starts the thread, which makes `count` kills, one after each interval `every`.
    pub(crate) fn start(place: &Place, nodes: u32, every: Duration, count: u32) -> Result<Self, String> {
        let racks = life::racks(nodes as usize);
        let process = |rack: &Daemon| match rack.process(place) {
            Ok(Some(process)) => Ok(process),
            Ok(None) => Err(format!("{rack} does not run")),
            Err(e) => Err(format!("{rack}: {e}")),
        };
        let processes: Vec<Process> = racks.iter().map(process).collect::<Result<_, _>>()?;
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            for rack in processes.iter().cycle().take(count as usize) {
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) || rack.signal(Signal::USR1).is_err() {
                    return;
                }
            }
        });
        Ok(Self { racks, place: place.clone(), thread, stop })
    }

    /// Stops the thread; returns how many collectors were killed, from the daemons' logs.
    pub(crate) fn end(self) -> Result<usize, String> {
        drop(self.stop);
        self.thread.join().map_err(|_| "the thread that kills has panicked")?;
        let mut killed = 0;
        for rack in &self.racks {
            let path = rack.log_file(&self.place);
            let log = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            killed += log.lines().filter(|line| line.contains(" node is killed ")).count();
        }
        Ok(killed)
    }
}
