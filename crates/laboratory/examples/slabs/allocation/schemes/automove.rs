//! memcached's slab automover (release 1.4.11), as PAMA, section II, describes it.

use crate::allocation::scheme::{Scheme, SlabAccess};
use crate::allocation::store::Store;

/// The number of consecutive windows that decide.
const WINDOWS: u32 = 3;

/// A class with the most misses in three consecutive windows gets a slab from a class that had no misses in them.
/// Among several such classes, the one with the most slabs gives; the description leaves this open. Then the count of
/// windows restarts.
pub(super) struct Automove {
    window: u64,
    elapsed: u64,
    misses: Vec<u64>,
    quiet_windows: Vec<u32>,
    worst: Option<usize>,
    worst_windows: u32,
}

impl Automove {
    /// For `groups` groups and a window in accesses.
    ///
    /// # Errors
    /// An empty window.
    pub(super) fn new(groups: usize, window: u64) -> Result<Automove, String> {
        if window == 0 {
            return Err("the window of automove has at least one access".to_owned());
        }
        Ok(Automove {
            window,
            elapsed: 0,
            misses: vec![0; groups],
            quiet_windows: vec![0; groups],
            worst: None,
            worst_windows: 0,
        })
    }

    /// Evaluates the window and starts the next.
    fn close_window(&mut self) {
        let most = (0..self.misses.len()).min_by_key(|&group| std::cmp::Reverse(self.misses[group]));
        let worst = most.filter(|&group| self.misses[group] > 0);
        self.worst_windows = if worst == self.worst { self.worst_windows + 1 } else { 1 };
        self.worst = worst;
        for (quiet, misses) in self.quiet_windows.iter_mut().zip(&mut self.misses) {
            *quiet = if *misses == 0 { *quiet + 1 } else { 0 };
            *misses = 0;
        }
    }
}

impl Scheme for Automove {
    fn on_access(&mut self, access: &SlabAccess, _: &Store) {
        self.elapsed += 1;
        self.misses[access.group] += u64::from(!access.hit);
    }

    fn donor(&mut self, _: usize, _: &Store) -> Option<usize> {
        None
    }

    fn due(&mut self, store: &Store) -> Option<(usize, usize)> {
        if self.elapsed < self.window {
            return None;
        }
        self.elapsed = 0;
        self.close_window();
        let to = self.worst.filter(|_| self.worst_windows >= WINDOWS && store.slabs_free() == 0)?;
        let quiet = |group: &usize| self.quiet_windows[*group] >= WINDOWS && store.slabs()[*group] > 1;
        let from =
            (0..store.groups()).filter(quiet).min_by_key(|&group| std::cmp::Reverse(store.slabs()[group]))?;
        self.worst_windows = 0;
        Some((from, to))
    }
}
