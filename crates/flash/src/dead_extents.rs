//! Extents that lie on the device and are not the newest of their keys any more.
//!
//! The extent table forgets an extent that something newer replaced. The device does not: until its zone is erased, a
//! restart would find it again, were it not for the mark that what replaced it carries in its segment's foot
//! ([`crate::record::Record::supersedes_extent`]). What replaces *that* must carry the mark on, and a tombstone that carries it must
//! stay: this set says so. It is exact but for hashes whose 32 bits are the same; a mark too many costs eight bytes in a foot.
//!
//! Where it would outgrow its memory it forgets, and takes every hash to be in it until all segments that it forgot of are
//! gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Bytes that one takes: its place in the list of its segment, and in the table of counts at the load a hash map has at worst.
const EACH_BYTES: u64 = 8 + 18;

/// The set. Guarded by the append lock, as everything is that makes something the newest.
#[derive(Default)]
pub(crate) struct DeadExtents {
    /// How many dead extents have this hash.
    counts: HashMap<u32, u32>,
    /// Those of each extents segment, by its sequence.
    segments: HashMap<u64, Vec<u32>>,
    len: u64,
    bytes_max: u64,
    /// Newest segment that some were forgotten of.
    forgotten: Option<u64>,
    /// Whether there is any, for those who have not got the lock.
    any: Arc<AtomicBool>,
}

fn folded(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

impl DeadExtents {
    /// Of so many bytes.
    pub(crate) fn new(bytes_max: u64) -> DeadExtents {
        DeadExtents { bytes_max, ..DeadExtents::default() }
    }

    /// True while there is one: seen by whoever finds that the extent table has forgotten it.
    pub(crate) fn any(&self) -> Arc<AtomicBool> {
        self.any.clone()
    }

    /// An extent of this segment is dead.
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

    /// Whether an extent of this hash may lie dead on the device.
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.forgotten.is_some() || self.counts.contains_key(&folded(hash))
    }

    /// The segment is erased, and a restart will not find it. `oldest` is the oldest extents segment that is left.
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

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && self.forgotten.is_none()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.len * EACH_BYTES
    }
}

#[cfg(test)]
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
            }
            for segment in segments.clone() {
                segments.remove(&segment);
                dead.release(segment, segments.first().copied());
            }
            prop_assert!(!dead.contains(1) && dead.bytes() == 0);
        }
    }
}
