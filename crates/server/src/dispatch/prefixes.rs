//! Counts per key prefix, for `stats detail`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most prefixes that are counted: about a megabyte. Keys with other prefixes are not counted.
const PREFIXES_MAX: usize = 8192;
/// The longest prefix that is counted, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

/// What is counted for one prefix.
#[derive(Default, Clone, Copy)]
pub(super) struct PrefixCount {
    pub(super) get: u64,
    pub(super) hit: u64,
    pub(super) set: u64,
    pub(super) del: u64,
}

/// Something that happened to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefixEvent {
    Hit,
    Miss,
    Set,
    Delete,
}

/// The counts of all prefixes, shared by all workers. A prefix is the part of a key before the delimiter (`-D`): the
/// prefix of `user:17` is `user`.
pub(super) struct PrefixCounts {
    is_on: AtomicBool,
    delimiter: u8,
    counts: Mutex<BTreeMap<Vec<u8>, PrefixCount>>,
}

impl PrefixCounts {
    pub(super) fn new(is_on: bool, delimiter: u8) -> PrefixCounts {
        PrefixCounts { is_on: AtomicBool::new(is_on), delimiter, counts: Mutex::default() }
    }

    /// Whether keys are counted now.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(super) fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Counts the key's prefix, if counting is on and the key has a prefix.
    #[inline]
    pub(super) fn note(&self, key: &[u8], event: PrefixEvent) {
        if self.is_on() {
            self.count(key, event);
        }
    }

    #[cold]
    fn count(&self, key: &[u8], event: PrefixEvent) {
        let Some(end) = key.iter().take(PREFIX_BYTES_MAX).position(|&byte| byte == self.delimiter) else {
            return;
        };
        let mut counts = self.counts.lock().expect("no panic under this lock");
        if counts.len() >= PREFIXES_MAX && !counts.contains_key(&key[..end]) {
            return;
        }
        let count = counts.entry(key[..end].to_vec()).or_default();
        match event {
            PrefixEvent::Hit => (count.get, count.hit) = (count.get + 1, count.hit + 1),
            PrefixEvent::Miss => count.get += 1,
            PrefixEvent::Set => count.set += 1,
            PrefixEvent::Delete => count.del += 1,
        }
    }

    pub(super) fn clear(&self) {
        self.counts.lock().expect("no panic under this lock").clear();
    }

    /// All prefixes with their counts, in the order of their bytes.
    pub(super) fn all(&self) -> Vec<(Vec<u8>, PrefixCount)> {
        let counts = self.counts.lock().expect("no panic under this lock");
        counts.iter().map(|(prefix, count)| (prefix.clone(), *count)).collect()
    }
}
