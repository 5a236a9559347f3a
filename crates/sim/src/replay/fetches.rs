//! The fetches of one worker that are in progress.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::connection::Command;
use crate::mix::KeyMap;

/// The command that stores the fetched value, and its connection.
struct Fetch {
    connection: usize,
    command: Command,
}

/// Fetches by the time at which they are done, and the keys being fetched.
#[derive(Default)]
pub(super) struct Fetches {
    /// (time, number). Fetches that are done at the same time end in the order in which they started.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    under_way: HashMap<u64, Fetch>,
    begun: u64,
    keys: KeyMap<u64>,
}

impl Fetches {
    /// The number of fetches in progress.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether no fetch is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The time at which the key's fetch is done, if the key is being fetched or about to be stored.
    pub(super) fn of_key(&self, identity: u64) -> Option<u64> {
        self.keys.get(&identity).copied()
    }

    /// Starts a fetch that is done at `done_ns`.
    pub(super) fn begin(&mut self, done_ns: u64, connection: usize, command: Command) {
        self.begun += 1;
        self.due.push(Reverse((done_ns, self.begun)));
        self.keys.insert(command.identity, done_ns);
        self.under_way.insert(self.begun, Fetch { connection, command });
    }

    /// The next fetch that is done by now: the connection, and the command that stores the value.
    pub(super) fn next_done(&mut self, now_ns: u64) -> Option<(usize, Command)> {
        self.due.peek().filter(|Reverse((done_ns, _))| *done_ns <= now_ns)?;
        let Reverse((_, number)) = self.due.pop()?;
        self.under_way.remove(&number).map(|fetch| (fetch.connection, fetch.command))
    }

    /// The time at which the next fetch is done.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((done_ns, _))| *done_ns)
    }

    /// The fetched value is being stored: another miss starts a new fetch.
    pub(super) fn stored(&mut self, identity: u64) {
        self.keys.remove(&identity);
    }

    /// Drops all fetches.
    pub(super) fn clear(&mut self) {
        *self = Fetches { begun: self.begun, ..Fetches::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tally::Kind;
    use crate::replay::wire::Verb;

    fn command(identity: u64) -> Command {
        Command {
            verb: Verb::Set,
            kind: Kind::Fill,
            counted: true,
            key: identity,
            key_length: 1,
            identity,
            value_bytes: 0,
            ttl_s: 0,
            penalty_us: 0,
            began_ns: 0,
        }
    }

    #[test]
    fn fetches_end_in_the_order_of_their_times() {
        let mut fetches = Fetches::default();
        for (done_ns, key) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            fetches.begin(done_ns, 7, command(key));
        }
        assert_eq!((fetches.len(), fetches.next_ns(), fetches.of_key(3)), (4, Some(10), Some(20)));
        let mut ended = |now_ns| {
            std::iter::from_fn(|| fetches.next_done(now_ns))
                .map(|(_, command)| command.key)
                .collect::<Vec<_>>()
        };
        assert_eq!((ended(9), ended(20), ended(100)), (vec![], vec![2, 4, 3], vec![1]));
        assert_eq!(fetches.of_key(3), Some(20));
        fetches.stored(3);
        assert_eq!(fetches.of_key(3), None);
    }
}
