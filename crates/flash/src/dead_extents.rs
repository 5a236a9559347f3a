//! Dead extents: extents on the device that are not the newest version of their key any more.
//!
//! When something newer replaces an extent, the extent table drops its entry. The device still has the extent until its
//! zone is erased, and a restart would find it. Therefore the record that replaced it carries a mark in the foot of its
//! segment ([`crate::record::Record::supersedes_extent`]). A record that replaces the marked one must carry the mark
//! too, and a tombstone with the mark must be kept. This set says for which hashes that is so.
//!
//! Example: a value of 8 KB is stored under key `a` (an extent), then a value of 10 bytes. The second record carries
//! the mark. If `a` is deleted before the extent's zone is erased, the tombstone carries the mark as well.
//!
//! The set keeps 32 bits of a hash, so it may name a hash too many; a needless mark costs eight bytes in a foot. If the
//! set would outgrow its memory, it forgets an extent, and from then on names every hash until the segments of all
//! forgotten extents are erased.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Memory for one extent, bytes: its entry in the list of its segment, and in the map of counts at the map's lowest
/// load.
const EACH_BYTES: u64 = 8 + 18;

/// The set. The append lock guards it.
#[derive(Default)]
pub(crate) struct DeadExtents {
    /// How many dead extents have this hash.
    counts: HashMap<u32, u32>,
    /// The dead extents of each extents segment, by its sequence.
    segments: HashMap<u64, Vec<u32>>,
    len: u64,
    bytes_max: u64,
    /// The newest segment of which dead extents were forgotten.
    forgotten: Option<u64>,
    /// Whether the set has any hash: to be read without the lock.
    any: Arc<AtomicBool>,
}

fn folded(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

impl DeadExtents {
    /// An empty set that takes at most `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> DeadExtents {
        DeadExtents { bytes_max, ..DeadExtents::default() }
    }

    /// True while the set has any hash. A thread that does not find an extent in the table any more, because it died,
    /// sees true.
    pub(crate) fn any(&self) -> Arc<AtomicBool> {
        self.any.clone()
    }

    /// Adds an extent of a segment.
    pub(crate) fn add(&mut self, hash: u64, segment: u64) {
        self.any.store(true, SeqCst);
        if (self.len + 1) * EACH_BYTES > self.bytes_max {
            self.forgotten = self.forgotten.max(Some(segment));
            return;
        }
        self.segments.entry(segment).or_default().push(folded(hash));
        *self.counts.entry(folded(hash)).or_default() += 1;
        self.len += 1;
    }

    /// Whether an extent of this hash may be dead on the device.
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.forgotten.is_some() || self.counts.contains_key(&folded(hash))
    }

    /// Removes the extents of a segment that no restart finds any more. `oldest` is the oldest extents segment that is
    /// left.
    pub(crate) fn release(&mut self, segment: u64, oldest: Option<u64>) {
        let dead = self.segments.remove(&segment).unwrap_or_default();
        self.len -= dead.len() as u64;
        for hash in dead {
            if let Some(count) = self.counts.get_mut(&hash) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&hash);
                }
            }
        }
        if oldest.is_none_or(|oldest| self.forgotten.is_some_and(|forgotten| forgotten < oldest)) {
            self.forgotten = None;
        }
        if self.counts.capacity() > 64 && self.counts.len() < self.counts.capacity() / 4 {
            self.counts.shrink_to_fit();
        }
        self.any.store(!self.is_empty(), SeqCst);
    }

    /// Whether the set names no hash.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && self.forgotten.is_none()
    }

    /// The oldest segment that has dead extents; 0 if some were forgotten, and `u64::MAX` if there is none.
    pub(crate) fn oldest(&self) -> u64 {
        match self.forgotten {
            Some(_) => 0,
            None => self.segments.keys().copied().min().unwrap_or(u64::MAX),
        }
    }

    /// Memory taken, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.len * EACH_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_dead_is_known_until_its_segment_is_erased(
            acts in proptest::collection::vec((any::<bool>(), 0..30u64, 1..8u64), 1..200), room in 1..40u64,
        ) {
            let mut dead = DeadExtents::new(room * EACH_BYTES);
            let mut twin: BTreeSet<(u64, u64)> = BTreeSet::new();
            let mut segments: BTreeSet<u64> = (1..8).collect();
            for (add, hash, segment) in acts {
                if add && segments.contains(&segment) && twin.insert((segment, hash)) {
                    dead.add(hash, segment);
                } else if !add && segments.remove(&segment) {
                    twin.retain(|(of, _)| *of != segment);
                    dead.release(segment, segments.first().copied());
                }
                for hash in 0..30 {
                    let known = twin.iter().any(|(_, of)| *of == hash);
                    prop_assert!(dead.contains(hash) >= known);
                    prop_assert!(dead.forgotten.is_some() || dead.contains(hash) == known);
                }
                prop_assert!(dead.bytes() <= room * EACH_BYTES);
                let oldest = twin.first().map_or(u64::MAX, |(segment, _)| *segment);
                prop_assert_eq!(dead.oldest(), if dead.forgotten.is_some() { 0 } else { oldest });
            }
            for segment in segments.clone() {
                segments.remove(&segment);
                dead.release(segment, segments.first().copied());
            }
            prop_assert!(!dead.contains(1) && dead.bytes() == 0);
        }
    }
}
