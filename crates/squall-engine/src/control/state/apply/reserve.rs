//! Events of reservations.

use squall_model::reservation::Reservation;

use crate::control::state::State;

impl State {
    pub(super) fn reservation_set(&mut self, reservation: &Reservation) {
        self.reservations.insert(reservation.name.clone(), reservation.clone());
    }

    pub(super) fn reservation_gone(&mut self, name: &str) {
        self.reservations.remove(name);
    }
}
