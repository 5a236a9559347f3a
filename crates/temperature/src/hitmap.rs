//! What all hitmaps can do, wherever their bits are.

use crate::reference::{Digest, Reference};

/// How often keys were accessed lately, in levels of hash counters (Catalyst, section 3.1).
///
/// * **Batches.** The references of one [`Hitmap::mark`] are judged against the map as it was before the call, so the
///   outcome does not depend on their order, and a processor with thousands of threads gives the same bits as one
///   without. A key that stands in a batch twice climbs one level. A batch of one is Catalyst's Algorithm 2.
/// * **No false negatives.** Between two agings a key that was marked `n` times, in `n` batches, is at least in zone
///   `min(n, levels)`; each aging lowers what is promised by one. Where it is
///   done piece by piece, it lowers some of the marks made meanwhile too. More is possible: keys share bits.
pub trait Hitmap: Send {
    /// Marks the keys of a batch, each in the lowest level where it is not marked yet. A map with a set counter marks
    /// there too what was stored and was in no level.
    fn mark(&mut self, references: &[Reference]);

    /// Appends the zone of each key, in order: 0 = cold, up to [`Hitmap::levels`] = hot.
    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>);

    /// Begins an aging (rolling compaction, Catalyst, Algorithm 1): every key goes one zone down. Where it is done piece
    /// by piece, [`Hitmap::age_some`] does the rest; a call while one is going on changes nothing.
    fn age(&mut self);

    /// Does some of the aging that is going on, at most `bytes` bytes of the map. Returns whether more is left.
    fn age_some(&mut self, bytes: usize) -> bool;

    /// Grows the map, by doublings, until it is made for `items` items. Nothing is forgotten. It never shrinks.
    fn grow(&mut self, items: u64);

    /// Bytes of memory the map would take if it were grown for `items` items; what it takes now is `bytes_for(0)`.
    fn bytes_for(&self, items: u64) -> u64;

    /// The number of levels; zones go from 0 to this.
    fn levels(&self) -> u8;

    /// Where the work is done, in a few words for a log line: `the CPU`, or the name of a device.
    fn place(&self) -> String;
}
