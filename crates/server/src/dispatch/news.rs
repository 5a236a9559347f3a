//! Connections for which other threads have something: their workers are told, and wake them.

use crate::io::{Bells, ConnectionId};
use std::sync::Mutex;

/// The connections of each worker for which there is something.
pub(super) struct News {
    of_workers: Box<[Mutex<Vec<ConnectionId>>]>,
    bells: Option<Bells>,
}

impl News {
    pub(super) fn new(workers: usize, bells: Option<Bells>) -> News {
        News { of_workers: (0..workers).map(|_| Mutex::default()).collect(), bells }
    }

    /// Wakes a connection of a worker.
    pub(super) fn tell(&self, worker: usize, id: ConnectionId) {
        let mut connections = self.of_workers[worker].lock().expect("no panic under this lock");
        // If there are some, the bell was rung for the first of them, or is about to be.
        let is_first = connections.is_empty();
        connections.push(id);
        drop(connections);
        if is_first && let Some(bells) = &self.bells {
            bells.ring(worker);
        }
    }

    /// The connections of a worker that are to be woken.
    pub(super) fn take(&self, worker: usize, into: &mut Vec<ConnectionId>) {
        into.append(&mut self.of_workers[worker].lock().expect("no panic under this lock"));
    }
}
