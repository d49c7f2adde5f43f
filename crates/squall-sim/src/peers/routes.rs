//! How nodes and users find the controller that leads.

use squall_model::time::Span;

use crate::world::World;

impl World {
    /// Returns the controller that a user finds to lead. None: the one that was tried does not; next time another is.
    pub(crate) fn find_leader(&mut self) -> Option<usize> {
        let of = self.clients.controller;
        if self.controllers[of].serves() && self.reaches_clients(of) {
            return Some(of);
        }
        self.clients.controller = self.controller_after(of, self.reaches_clients(of));
        None
    }

    /// Returns how long a user waits before it tries again to find a controller.
    pub(crate) fn pause_of_clients(&mut self) -> Span {
        let (low, high) = if self.controllers.len() > 1 { (10, 300) } else { (100, 1500) };
        self.seed.span(Span::from_millis(low), Span::from_millis(high))
    }

    /// Returns whether users and a controller reach each other.
    pub(crate) fn reaches_clients(&self, of: usize) -> bool {
        let (login, host) = (self.network.login(), self.network.controller(of));
        self.controllers.len() == 1 || (self.network.open(login, host) && self.network.open(host, login))
    }

    /// Returns the controller to be tried after one that does not lead. `heard`: it was reached, and names the leader if
    /// it knows.
    pub(crate) fn controller_after(&self, of: usize, heard: bool) -> usize {
        let told = self.controllers[of].peer.as_ref().filter(|_| heard).and_then(|peer| peer.leader);
        told.filter(|leader| *leader != of).unwrap_or((of + 1) % self.controllers.len())
    }

    /// Returns whether two controllers reach each other.
    pub(super) fn controllers_reach(&self, from: usize, to: usize) -> bool {
        let (from, to) = (self.network.controller(from), self.network.controller(to));
        self.network.open(from, to) && self.network.open(to, from)
    }
}
