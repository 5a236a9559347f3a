//! Counts per key, and the working set over time.

use super::super::sample::spread;
use crate::mix::KeyMap;

/// So many keys are counted one by one; beyond them a share of the keys stands for all.
pub const KEYS_EXACT_MAX: usize = 3_500_000;

/// How many windows of time there are at most.
pub(super) const WINDOWS_MAX: usize = 64;

/// The seed by which keys are chosen to stand for all.
const SEED: u64 = 0x5eed;

/// What is kept of a key: 16 octets.
#[derive(Clone, Copy)]
struct Seen {
    /// One bit per window in which the key was asked for.
    windows: u64,
    requests: u32,
    item_bytes: u32,
}

/// Counts per key. Windows of time begin with a length of one (a second, or a request where there is no
/// time) and double whenever there are more than [`WINDOWS_MAX`]; what is known of them stays exact. Where
/// there are too many keys, those whose hash lies in the upper half of what is left go, as in fixed-size
/// SHARDS (Waldspurger et al., FAST'15, section 3.3).
pub(super) struct KeyTable {
    seen: KeyMap<Seen>,
    keys_max: usize,
    halvings: u32,
    window_length: u64,
    requests_by_window: [u64; WINDOWS_MAX],
    windows: usize,
}

/// One window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    /// Requests in it.
    pub(super) requests: u64,
    /// Keys asked for in it.
    pub(super) keys: f64,
    /// Octets of these keys' items.
    pub(super) bytes: f64,
    /// Keys asked for in it or before.
    pub(super) keys_so_far: f64,
}

impl KeyTable {
    pub(super) fn new(keys_max: usize) -> KeyTable {
        KeyTable {
            seen: KeyMap::default(),
            keys_max,
            halvings: 0,
            window_length: 1,
            requests_by_window: [0; WINDOWS_MAX],
            windows: 0,
        }
    }

    /// Counts a request at this time (which never falls).
    #[inline]
    pub(super) fn add(&mut self, key: u64, item_bytes: u64, at: u64) {
        while at / self.window_length >= WINDOWS_MAX as u64 {
            self.double_windows();
        }
        let window = (at / self.window_length) as usize;
        self.windows = self.windows.max(window + 1);
        self.requests_by_window[window] += 1;
        if self.halvings > 0 && !self.stays(key) {
            return;
        }
        let seen = self.seen.entry(key).or_insert(Seen { windows: 0, requests: 0, item_bytes: 0 });
        seen.windows |= 1 << window;
        seen.requests = seen.requests.saturating_add(1);
        if item_bytes > 0 {
            seen.item_bytes = u32::try_from(item_bytes).unwrap_or(u32::MAX);
        }
        if self.seen.len() > self.keys_max {
            self.halve_keys();
        }
    }

    #[inline]
    fn stays(&self, key: u64) -> bool {
        spread(key, SEED) >> (64 - self.halvings) == 0
    }

    #[cold]
    fn halve_keys(&mut self) {
        while self.seen.len() > self.keys_max && self.halvings < 63 {
            self.halvings += 1;
            let halvings = self.halvings;
            self.seen.retain(|&key, _| spread(key, SEED) >> (64 - halvings) == 0);
        }
    }

    #[cold]
    fn double_windows(&mut self) {
        self.window_length *= 2;
        self.windows = self.windows.div_ceil(2);
        for window in 0..WINDOWS_MAX / 2 {
            self.requests_by_window[window] =
                self.requests_by_window[2 * window] + self.requests_by_window[2 * window + 1];
        }
        self.requests_by_window[WINDOWS_MAX / 2..].fill(0);
        self.seen.values_mut().for_each(|seen| seen.windows = joined_in_pairs(seen.windows));
    }

    /// Whether all keys are counted.
    pub(super) fn is_exact(&self) -> bool {
        self.halvings == 0
    }

    /// For how many keys each key stands that is counted.
    pub(super) fn scale(&self) -> f64 {
        (1u64 << self.halvings) as f64
    }

    /// Seconds or requests.
    pub(super) fn window_length(&self) -> u64 {
        self.window_length
    }

    /// Requests per key, the largest first.
    pub(super) fn counts_falling(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.seen.values().map(|seen| seen.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    /// Octets of all items that are counted.
    pub(super) fn footprint_bytes(&self) -> u64 {
        self.seen.values().map(|seen| u64::from(seen.item_bytes)).sum()
    }

    /// The windows, in order; keys and octets are scaled to all keys.
    pub(super) fn windows(&self) -> Vec<Window> {
        let mut keys = [0u64; WINDOWS_MAX];
        let mut bytes = [0u64; WINDOWS_MAX];
        let mut first = [0u64; WINDOWS_MAX];
        for seen in self.seen.values() {
            first[seen.windows.trailing_zeros() as usize % WINDOWS_MAX] += 1;
            let mut left = seen.windows;
            while left != 0 {
                let window = left.trailing_zeros() as usize;
                keys[window] += 1;
                bytes[window] += u64::from(seen.item_bytes);
                left &= left - 1;
            }
        }
        let mut so_far = 0;
        (0..self.windows)
            .map(|at| {
                so_far += first[at];
                Window {
                    requests: self.requests_by_window[at],
                    keys: keys[at] as f64 * self.scale(),
                    bytes: bytes[at] as f64 * self.scale(),
                    keys_so_far: so_far as f64 * self.scale(),
                }
            })
            .collect()
    }
}

/// Bit n of the answer is set if bit 2n or 2n + 1 is.
fn joined_in_pairs(bits: u64) -> u64 {
    let mut joined = (bits | bits >> 1) & 0x5555_5555_5555_5555;
    joined = (joined | joined >> 1) & 0x3333_3333_3333_3333;
    joined = (joined | joined >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    joined = (joined | joined >> 4) & 0x00ff_00ff_00ff_00ff;
    joined = (joined | joined >> 8) & 0x0000_ffff_0000_ffff;
    (joined | joined >> 16) & 0xffff_ffff
}
