//! The front's own connections to the cells, over which its courier forwards requests between cells.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use squall_engine::front::{Courier, Errands, News};
use squall_model::limits::CELLS_MAX;
use squall_model::wire::{Hello, Role};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::{ARRIVALS_MAX, Arrival, CellConnection, Front, OUTGOING_BYTES_MAX, talk};
use crate::link::Outgoing;

/// Pause before a lost connection to a cell is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The front's relay between cells (courier), with its connections to them.
struct Carrier {
    front: Rc<Front>,
    courier: Courier,
    links: BTreeMap<u32, CellConnection>,
    made: u64,
    tell: mpsc::Sender<(u32, u64, Arrival)>,
    /// Sender of the numbers of cells to which a new connection has to be made.
    call: mpsc::Sender<u32>,
}

/// Forwards requests between cells for as long as the front runs.
pub(super) async fn carry(front: Rc<Front>) {
    let (tell, mut arrivals) = mpsc::channel(ARRIVALS_MAX);
    // At most one entry per cell. Only timers wait for room in it, and nothing waits for the timers.
    let (call, mut calls) = mpsc::channel(CELLS_MAX as usize);
    let courier = Courier::new(Arc::clone(&front.cells));
    let cells: Vec<u32> = front.sockets.keys().copied().collect();
    let mut carrier = Carrier { front, courier, links: BTreeMap::new(), made: 0, tell, call };
    for cell in cells {
        carrier.meet(cell);
    }
    loop {
        tokio::select! {
            Some((cell, number, arrival)) = arrivals.recv() => carrier.hear(cell, number, arrival),
            Some(cell) = calls.recv() => carrier.meet(cell),
            else => return,
        }
    }
}

impl Carrier {
    /// Connects to a cell. Requests queued before it has answered are sent then, or lost with the connection.
    fn meet(&mut self, cell: u32) {
        let Some(socket) = self.front.sockets.get(&cell) else { return };
        self.made += 1;
        let (number, out) = (self.made, Outgoing::new(OUTGOING_BYTES_MAX));
        let role = Role::Client("front".to_owned());
        let cluster = self.front.cluster.clone();
        let hello = Hello { cluster, ..Hello::new(role) };
        let talk = talk(socket.clone(), hello, out.clone(), (cell, number), self.tell.clone());
        let task = spawn_local(talk).abort_handle();
        self.links.insert(cell, CellConnection { number, out, task });
        self.step(News::Met { cell });
    }

    fn hear(&mut self, cell: u32, number: u64, arrival: Arrival) {
        if self.links.get(&cell).is_none_or(|link| link.number != number) {
            return;
        }
        match arrival {
            Arrival::Answered(answer) => self.step(News::Told { cell, answer }),
            Arrival::Ended(_) => self.lose(cell),
        }
    }

    fn lose(&mut self, cell: u32) {
        let Some(link) = self.links.remove(&cell) else { return };
        link.task.abort();
        self.step(News::Lost { cell });
        let call = self.call.clone();
        spawn_local(async move {
            sleep(AGAIN).await;
            // Sending fails only if the courier has ended.
            call.send(cell).await.ok();
        });
    }

    fn step(&mut self, news: News) {
        let mut errands = Errands::default();
        self.courier.step(news, &mut errands);
        for (cell, request) in errands.sends {
            if let Some(link) = self.links.get(&cell)
                && let Err(e) = link.out.push(&request)
            {
                tracing::error!(cell, error = %e, "a question for a cell can't be sent: its connection is closed");
                link.out.close();
            }
        }
        for cell in errands.drops {
            self.lose(cell);
        }
    }
}
