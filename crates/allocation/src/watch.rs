//! The sampled keys whose reads are counted one by one.
//!
//! An index entry counts reads up to 3 only. For a sample of the keys, chosen by their digests, the keeper sees every
//! access record, so it can count exactly. The watch of a key begins when the pass judges its item. It ends when the
//! pass judges the key's item again, or, if the item was dropped, when the sweep has gone round once: so long would
//! the item have stayed. A dropped item that is stored again was missed: that is a hit that the cache did not have.

use crate::hits::Class;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Most keys that are watched at the same time. The sample has fewer items in the cache.
const WATCHED_MAX: usize = 3072;
/// Most dropped items that are watched at the same time. While there are 1,024, those that are dropped are not watched.
/// To end older watches early instead would count too few hits.
const DROPPED_MAX: usize = 1024;

/// An eighth of a round is soon.
const SOON_SHARE: u32 = 8;

/// What was decided about an item, and how it went on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Watched {
    /// The class in which the item was judged.
    pub(crate) class: Class,
    /// Number of the item's group.
    pub(crate) group: u8,
    /// How far the item's worth was from the margin, in doublings, 0 = next to it.
    pub(crate) distance: u8,
    /// Whether the item stayed.
    pub(crate) kept: bool,
    /// Whether the item was dropped and has been judged again since.
    pub(crate) returned: bool,
    /// Reads since then, or accesses if it was dropped.
    pub(crate) hits: u16,
    /// Bytes of the item.
    pub(crate) bytes: u32,
}

/// A watch, and when it began, in judged items modulo 2^32. A round has fewer than 2^31 items.
#[derive(Clone, Copy)]
struct Entry {
    watched: Watched,
    began: u32,
}

/// Digests are random already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("digests are hashed as u32");
    }

    fn write_u32(&mut self, digest: u32) {
        // The digests of a sample have their high bits in common; the table takes its position from the low ones and
        // its tag from the high ones.
        self.0 = u64::from(digest).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// All watched keys.
#[derive(Default)]
pub(crate) struct Watch {
    keys: HashMap<u32, Entry, BuildHasherDefault<AsItIs>>,
    /// Digests in the order in which their watches began, each with its begin. A watch that began anew has more than
    /// one place; only the last counts.
    order: VecDeque<(u32, u32)>,
    /// How many of the keys are those of dropped items.
    dropped: usize,
}

impl Watch {
    /// The key with this digest was read, or stored.
    #[inline]
    pub(crate) fn refer(&mut self, digest: u32, is_store: bool) {
        if let Some(Entry { watched, .. }) = self.keys.get_mut(&digest)
            && (!watched.kept || !is_store)
        {
            watched.hits = watched.hits.saturating_add(1);
        }
    }

    /// An item of this key is about to be judged. Returns the number of the group that the item had when it was
    /// dropped, if it was, and if this is the first time that it is judged since.
    pub(crate) fn returned(&mut self, digest: u32) -> Option<u8> {
        let watched = &mut self.keys.get_mut(&digest)?.watched;
        let first = !watched.kept && !watched.returned;
        watched.returned = true;
        first.then_some(watched.group)
    }

    /// An item of a watched key is about to be judged, when `now` items of the main queue were judged: its watch ends.
    /// The watch of a dropped item goes on for a round, which is `round` judged items. That of a kept item goes
    /// on if the item is judged again soon, because its column could not be emptied the first time.
    pub(crate) fn meet(&mut self, digest: u32, now: u32, round: u32) -> Meeting {
        let goes_on_for = |watched: &Watched| if watched.kept { round / SOON_SHARE } else { round };
        match self.keys.get(&digest) {
            None => Meeting::New,
            Some(entry) if now.wrapping_sub(entry.began) < goes_on_for(&entry.watched) => Meeting::GoesOn,
            Some(_) => self.end(digest).map_or(Meeting::New, Meeting::Ended),
        }
    }

    /// Ends the watch of a key.
    fn end(&mut self, digest: u32) -> Option<Watched> {
        let ended = self.keys.remove(&digest)?.watched;
        self.dropped -= usize::from(!ended.kept);
        Some(ended)
    }

    /// Begins the watch of a key that is not watched.
    pub(crate) fn begin(&mut self, digest: u32, now: u32, watched: Watched) {
        if !watched.kept && self.dropped >= DROPPED_MAX {
            return;
        }
        self.dropped += usize::from(!watched.kept);
        self.keys.insert(digest, Entry { watched, began: now });
        self.order.push_back((digest, now));
    }

    /// The next dropped item whose round is over, if there is one. Kept items that the pass has not met for two rounds
    /// were deleted or have expired: they are forgotten.
    pub(crate) fn next_ended(&mut self, now: u32, round: u32) -> Option<Watched> {
        while let Some(&(digest, began)) = self.order.front() {
            let is_crowded = self.order.len() > 2 * WATCHED_MAX || self.keys.len() > WATCHED_MAX;
            let entry = self.keys.get(&digest).filter(|entry| entry.began == began);
            let rounds = if entry.is_some_and(|entry| entry.watched.kept) { 2 } else { 1 };
            if entry.is_some() && !is_crowded && now.wrapping_sub(began) < rounds * round {
                return None;
            }
            let is_watched = entry.is_some();
            self.order.pop_front();
            if is_watched && let Some(ended) = self.end(digest).filter(|ended| !ended.kept && !is_crowded) {
                return Some(ended);
            }
        }
        None
    }

    /// About how many bytes of memory the watch takes.
    pub(crate) fn bytes(&self) -> u64 {
        let entry = size_of::<(u32, Entry)>() + 1;
        // A table is at most 7/8 full.
        (self.keys.capacity() * 8 / 7 * entry + self.order.capacity() * size_of::<(u32, u32)>()) as u64
    }
}

/// What the watch knows of a key whose item is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Meeting {
    /// The key was not watched.
    New,
    /// The watch of the key goes on.
    GoesOn,
    /// The watch has ended with this.
    Ended(Watched),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hits::{MetIn, Warmth};
    use crate::{Group, Subclass};

    fn watched(kept: bool) -> Watched {
        let warmth = Warmth { met_in: MetIn::Main, level: 0, stays: false };
        let group = Group::of(100, Subclass::UNKNOWN);
        let class = Class::of(warmth, group);
        Watched {
            class,
            group: group.number() as u8,
            distance: 0,
            kept,
            returned: false,
            hits: 0,
            bytes: 100,
        }
    }

    #[test]
    fn a_kept_item_counts_reads_until_it_is_judged_again() {
        let mut watch = Watch::default();
        watch.begin(7, 10, watched(true));
        watch.refer(7, false);
        watch.refer(7, true);
        watch.refer(7, false);
        watch.refer(8, false);
        assert_eq!(watch.meet(8, 11, 100), Meeting::New);
        assert_eq!(watch.meet(7, 11, 100), Meeting::GoesOn, "its column was not emptied");
        assert_eq!(watch.meet(7, 30, 100), Meeting::Ended(Watched { hits: 2, ..watched(true) }));
        assert_eq!(watch.meet(7, 30, 100), Meeting::New);
        assert_eq!(watch.next_ended(1000, 100), None);
        assert!(watch.order.is_empty());
    }

    #[test]
    fn a_dropped_item_is_watched_for_one_round() {
        let mut watch = Watch::default();
        watch.begin(7, 10, watched(false));
        watch.refer(7, true);
        watch.refer(7, false);
        assert_eq!(watch.meet(7, 50, 100), Meeting::GoesOn);
        assert_eq!(watch.next_ended(109, 100), None);
        assert_eq!(watch.next_ended(110, 100), Some(Watched { hits: 2, ..watched(false) }));
        assert_eq!(watch.next_ended(110, 100), None);
    }

    #[test]
    fn a_kept_item_that_is_never_met_again_is_forgotten() {
        let mut watch = Watch::default();
        watch.begin(7, 0, watched(true));
        assert_eq!(watch.next_ended(199, 100), None);
        assert_eq!(watch.keys.len(), 1);
        assert_eq!(watch.next_ended(200, 100), None);
        assert!(watch.keys.is_empty());
    }

    #[test]
    fn the_watch_has_a_bound() {
        let mut watch = Watch::default();
        for n in 0..100_000u32 {
            watch.begin(n, n, watched(n % 2 == 0));
            while watch.next_ended(n, 1 << 30).is_some() {}
        }
        assert!(watch.keys.len() <= WATCHED_MAX && watch.order.len() <= 2 * WATCHED_MAX);
        assert_eq!(watch.keys.values().filter(|entry| !entry.watched.kept).count(), watch.dropped);
        assert!(watch.bytes() <= 200 << 10, "{}", watch.bytes());
    }
}
