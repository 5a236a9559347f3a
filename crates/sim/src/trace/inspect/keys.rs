//! Counts per key, and the working set over time.

use super::super::sample::spread;
use crate::mix::KeyMap;

/// Up to this number of keys, every key is counted. Beyond it a share of the keys stands for all.
pub const KEYS_EXACT_MAX: usize = 3_500_000;

/// Maximum number of windows of time.
pub(super) const WINDOWS_MAX: usize = 64;

/// The seed by which the share of the keys is selected.
const SEED: u64 = 0x5eed;

/// The statistics of one key, in 16 bytes.
#[derive(Clone, Copy)]
struct KeyUse {
    /// One bit for each window with a request to the key.
    windows: u64,
    requests: u32,
    item_bytes: u32,
}

/// Counts per key. A window of time initially lasts one second, or one request where the trace has no times. Its
/// length doubles whenever there would be more than [`WINDOWS_MAX`] windows; the counts stay exact. Where there are
/// too many keys, those whose hash lies in the upper half of the remaining range are dropped, as in fixed-size SHARDS
/// (Waldspurger et al., FAST'15, section 3.3).
pub(super) struct KeyTable {
    uses: KeyMap<KeyUse>,
    keys_max: usize,
    halvings: u32,
    window_length: u64,
    requests_by_window: [u64; WINDOWS_MAX],
    windows: usize,
}

/// One window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    /// Requests in the window.
    pub(super) requests: u64,
    /// Distinct keys requested in the window.
    pub(super) keys: f64,
    /// Bytes of these keys' items.
    pub(super) bytes: f64,
    /// Distinct keys requested in the window or earlier.
    pub(super) keys_so_far: f64,
}

impl KeyTable {
    pub(super) fn new(keys_max: usize) -> KeyTable {
        KeyTable {
            uses: KeyMap::default(),
            keys_max,
            halvings: 0,
            window_length: 1,
            requests_by_window: [0; WINDOWS_MAX],
            windows: 0,
        }
    }

    /// Counts a request at time `at`, which never decreases.
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
        let use_of_key = self.uses.entry(key).or_insert(KeyUse { windows: 0, requests: 0, item_bytes: 0 });
        use_of_key.windows |= 1 << window;
        use_of_key.requests = use_of_key.requests.saturating_add(1);
        if item_bytes > 0 {
            use_of_key.item_bytes = u32::try_from(item_bytes).unwrap_or(u32::MAX);
        }
        if self.uses.len() > self.keys_max {
            self.halve_keys();
        }
    }

    #[inline]
    fn stays(&self, key: u64) -> bool {
        spread(key, SEED) >> (64 - self.halvings) == 0
    }

    #[cold]
    fn halve_keys(&mut self) {
        while self.uses.len() > self.keys_max && self.halvings < 63 {
            self.halvings += 1;
            let halvings = self.halvings;
            self.uses.retain(|&key, _| spread(key, SEED) >> (64 - halvings) == 0);
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
        self.uses
            .values_mut()
            .for_each(|use_of_key| use_of_key.windows = joined_in_pairs(use_of_key.windows));
    }

    /// Whether every key is counted.
    pub(super) fn is_exact(&self) -> bool {
        self.halvings == 0
    }

    /// The number of keys for which each counted key stands.
    pub(super) fn scale(&self) -> f64 {
        (1u64 << self.halvings) as f64
    }

    /// Length of a window in seconds or requests.
    pub(super) fn window_length(&self) -> u64 {
        self.window_length
    }

    /// Requests per key, the largest first.
    pub(super) fn counts_falling(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.uses.values().map(|use_of_key| use_of_key.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    /// Bytes of the items of all counted keys.
    pub(super) fn footprint_bytes(&self) -> u64 {
        self.uses.values().map(|use_of_key| u64::from(use_of_key.item_bytes)).sum()
    }

    /// The windows, in order. Keys and bytes are scaled to all keys.
    pub(super) fn windows(&self) -> Vec<Window> {
        let mut keys = [0u64; WINDOWS_MAX];
        let mut bytes = [0u64; WINDOWS_MAX];
        let mut first = [0u64; WINDOWS_MAX];
        for use_of_key in self.uses.values() {
            first[use_of_key.windows.trailing_zeros() as usize % WINDOWS_MAX] += 1;
            let mut left = use_of_key.windows;
            while left != 0 {
                let window = left.trailing_zeros() as usize;
                keys[window] += 1;
                bytes[window] += u64::from(use_of_key.item_bytes);
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

/// Bit n of the result is set if bit 2n or bit 2n + 1 is set.
fn joined_in_pairs(bits: u64) -> u64 {
    let mut joined = (bits | bits >> 1) & 0x5555_5555_5555_5555;
    joined = (joined | joined >> 1) & 0x3333_3333_3333_3333;
    joined = (joined | joined >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    joined = (joined | joined >> 4) & 0x00ff_00ff_00ff_00ff;
    joined = (joined | joined >> 8) & 0x0000_ffff_0000_ffff;
    (joined | joined >> 16) & 0xffff_ffff
}
