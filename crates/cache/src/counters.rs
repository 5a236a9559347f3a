//! Counters of events, one block for each worker, without contention.
//!
//! A worker writes only its own block, with a plain load and store. A reader adds the blocks up. A sum that is taken
//! while workers run may be a few events behind, but no event is lost.

use larder_allocation::Subclass;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// A counter with one writer.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owner of the block may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:expr])* $name:ident,)*) => {
        /// One worker's counters, on cache lines of its own.
        #[derive(Default)]
        #[repr(align(128))]
        pub struct Counters { $($(#[doc = $doc])* pub $name: Counter,)* }

        /// The sum of several blocks.
        #[derive(Default, Clone, Debug)]
        pub struct Totals { $($(#[doc = $doc])* pub $name: u64,)* }

        impl Totals {
            /// Adds one block.
            pub fn add(&mut self, block: &Counters) { $(self.$name = self.$name.wrapping_add(block.$name.get());)* }

            /// Subtracts an earlier sum: what happened since (`stats reset`). Nothing happened since a later one.
            pub fn since(&self, earlier: &Totals) -> Totals {
                Totals { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }

            /// Name, meaning and value of each, in the order of declaration.
            pub fn rows(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),*).trim_ascii(), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Keys asked for by get commands.
    cmd_get,
    /// Storage commands that clients sent.
    cmd_set,
    /// Commands flush_all that clients sent.
    cmd_flush,
    /// Commands flush_prefix, mf and FLUSHPREFIX that deleted a prefix.
    cmd_flush_prefix,
    /// Commands that touch an item.
    cmd_touch,
    /// Meta commands that clients sent.
    cmd_meta,
    /// Keys that were found.
    get_hits,
    /// Keys that were not found.
    get_misses,
    /// Keys that were found but had expired.
    get_expired,
    /// Keys that were found but had been flushed.
    get_flushed,
    /// Deletes of an absent key.
    delete_misses,
    /// Deletes that removed an item.
    delete_hits,
    /// Commands incr that found no item.
    incr_misses,
    /// Commands incr that found or created an item.
    incr_hits,
    /// Commands decr that found no item.
    decr_misses,
    /// Commands decr that found or created an item.
    decr_hits,
    /// Compare-and-swap of an absent key.
    cas_misses,
    /// Compare-and-swap with the right CAS number.
    cas_hits,
    /// Compare-and-swap with another CAS number.
    cas_badval,
    /// Touches of a present key.
    touch_hits,
    /// Touches of an absent key.
    touch_misses,
    /// Uses of an item that are not counted as a get: touches, retrievals that touch, and adds that are refused.
    uses_beside_gets,
    /// Values refused because of the item size limit.
    store_too_large,
    /// Values refused because there was no memory.
    store_no_memory,
    /// Attempts of clients to log in.
    auth_cmds,
    /// Attempts to log in that failed.
    auth_errors,
    /// Items stored since the start.
    total_items,
    /// Bytes of items that were stored, headers included.
    bytes_stored,
    /// Bytes of items that were deleted, replaced, evicted or expired.
    bytes_died,
    /// Bytes of values that were given up before they were stored, and of copies that came too late.
    bytes_given_up,
    /// Items evicted to make room.
    evictions,
    /// Evicted items that were never read.
    evicted_unfetched,
    /// Evicted items that had been read since they were stored, and whose warmth was not zero.
    evicted_active,
    /// Evicted items that had an expiry time.
    evicted_nonzero,
    /// Sum over all evicted items of the time since their last use; divided by evictions, the mean idle time at
    /// eviction.
    evicted_idle_s,
    /// Items that the keeper stored compressed.
    compressed,
    /// Items that the keeper tried to compress and that did not shrink by a quarter.
    compress_refused,
    /// Items that would have been compressed, had writers not been short of room.
    compress_skipped,
    /// Compressed items that were hot and were stored plain again.
    expanded,
    /// Time that the keeper has spent on compressing.
    compress_ns,
    /// Values that were expanded for a client.
    expansions,
    /// Items whose memory was taken back because they had expired or were flushed.
    reclaimed,
    /// Items whose memory was taken back because they had expired, and that were never read.
    expired_unfetched,
    /// Items the pass moved to another column, because they were warm or their column was sparse.
    moved,
    /// Items that were moved to the columns of hot items (`--placement`).
    moved_up,
    /// Items that had cooled and were moved out of the columns of hot items.
    moved_down,
    /// How often the index was searched for hot items.
    hot_searches,
    /// Columns that the pass emptied.
    columns_reclaimed,
    /// Time spent in the pass over columns.
    pass_ns,
    /// Time that the keeper spent on reading references.
    note_ns,
    /// Columns that were taken from the NUMA node of the worker, or of the items that are moved; 0 with one node.
    numa_local_columns,
    /// Columns that were taken from another NUMA node, because there was none of the own one; 0 with one node.
    numa_remote_columns,
    /// Writers that found no free column and helped the pass.
    starved,
    /// Evicted items that were written to flash.
    demoted,
    /// Evicted items that flash did not take because it was behind.
    demotions_shed,
    /// Stores that waited for a moment because memory was full and flash was behind.
    store_waits,
    /// Evicted items that flash did not take because too few of its zones are erased.
    shed_for_space,
    /// Evicted items that flash did not take because its index is full.
    shed_for_index,
    /// How often a thread waited because too many invalidations waited for the flash device.
    invalidation_waits,
    /// Evicted items that had been read, and that flash did not take because it was behind.
    shed_read,
    /// Evicted items that were never read, and that flash did not take because it was behind.
    shed_unread,
    /// Evicted items that admission did not find worth a write to flash.
    admission_rejected,
    /// Evicted items that flash held already, so that nothing was written.
    elided,
    /// Items that were brought from flash into memory.
    promoted,
    /// Items found on flash.
    flash_hits,
    /// Items looked for on flash and not found.
    flash_misses,
    /// Items from flash that were not promoted because they had changed meanwhile, or because there was no room.
    promotion_lost,
    /// Penalties that were measured: stores that followed a miss of their key within 5 seconds.
    penalties_measured,
    /// Sum of all measured penalties: the time from a miss to the store that followed.
    penalties_measured_us,
    /// Stores whose client stated the penalty of a miss (flag G of ms).
    penalties_stated,
    /// Stores that followed a miss of their key after more than 5 seconds, so that no penalty was measured.
    penalties_discarded,
    /// Misses that were not remembered until the store, because too many others were outstanding.
    misses_forgotten,
    /// Penalties, measured or stated, of at most 1 ms.
    penalties_to_1_ms,
    /// Penalties, measured or stated, of more than 1 ms and at most 10 ms.
    penalties_to_10_ms,
    /// Penalties, measured or stated, of more than 10 ms and at most 100 ms.
    penalties_to_100_ms,
    /// Penalties, measured or stated, of more than 100 ms and at most 1 s.
    penalties_to_1_s,
    /// Penalties, measured or stated, of more than 1 s. A measured one is at most 5 s.
    penalties_to_5_s,
}

impl Counters {
    /// How many penalties were measured or stated, by subclass.
    pub(crate) fn penalties(&self) -> [&Counter; Subclass::COUNT] {
        [
            &self.penalties_to_1_ms,
            &self.penalties_to_10_ms,
            &self.penalties_to_100_ms,
            &self.penalties_to_1_s,
            &self.penalties_to_5_s,
        ]
    }
}

/// The blocks of all threads: one for each worker, and the last one for the keeper.
pub(crate) struct CounterBlocks {
    blocks: Box<[Counters]>,
    /// Number of the subclass that items of unknown penalty are judged by.
    unknown_penalty: AtomicU8,
}

impl CounterBlocks {
    /// Blocks of zeros.
    pub(crate) fn new(workers: usize) -> CounterBlocks {
        CounterBlocks {
            blocks: (0..=workers).map(|_| Counters::default()).collect(),
            unknown_penalty: AtomicU8::new(Subclass::UNKNOWN.number() as u8),
        }
    }

    /// The block of the worker with this number.
    #[inline]
    pub(crate) fn worker(&self, number: usize) -> &Counters {
        &self.blocks[number]
    }

    /// How many workers there are blocks for.
    pub(crate) fn workers_max(&self) -> usize {
        self.blocks.len() - 1
    }

    /// The keeper's block. Only a thread that holds the keeper's lock adds to it, except to `note_ns`: the thread that
    /// runs the round adds to that one.
    pub(crate) fn keeper(&self) -> &Counters {
        &self.blocks[self.blocks.len() - 1]
    }

    /// The subclass that items of unknown penalty are judged by.
    pub(crate) fn unknown_penalty(&self) -> Subclass {
        Subclass::from_number(self.unknown_penalty.load(Relaxed)).unwrap_or_default()
    }

    /// Takes the median of the penalties that were measured or stated so far for items whose penalty is unknown.
    /// PAMA takes 100 ms, the mean of its workloads (section IV). Behind a back end that answers within a millisecond,
    /// items that were stored without a miss would then outrank all others.
    pub(crate) fn learn_unknown_penalty(&self) {
        let mut counts = [0; Subclass::COUNT];
        for block in &self.blocks {
            for (sum, counter) in counts.iter_mut().zip(block.penalties()) {
                *sum += counter.get();
            }
        }
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let median = counts.iter().position(|count| {
            below += count;
            all > 0 && 2 * below >= all
        });
        let number = median.unwrap_or(Subclass::UNKNOWN.number());
        self.unknown_penalty.store(number as u8, Relaxed);
    }

    /// The sum of all counters.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for block in &self.blocks {
            totals.add(block);
        }
        totals
    }

    /// Bytes of all items that have an entry, those that have expired or were flushed included.
    pub(crate) fn live_bytes(&self) -> u64 {
        let (mut stored, mut died) = (0u64, 0u64);
        for block in &self.blocks {
            stored = stored.wrapping_add(block.bytes_stored.get());
            died = died.wrapping_add(block.bytes_died.get());
        }
        stored.saturating_sub(died)
    }

    /// Bytes of all records that have died, whether an entry ever led to them or not.
    pub(crate) fn died_bytes(&self) -> u64 {
        self.blocks.iter().fold(0, |died, block| {
            died.wrapping_add(block.bytes_died.get()).wrapping_add(block.bytes_given_up.get())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_blocks_and_subtract_a_reset() {
        let (a, b) = (Counters::default(), Counters::default());
        a.cmd_get.add(3);
        b.cmd_get.add(4);
        let mut totals = Totals::default();
        totals.add(&a);
        totals.add(&b);
        assert_eq!(totals.cmd_get, 7);
        let before = totals.clone();
        b.cmd_get.add(1);
        let mut after = Totals::default();
        after.add(&a);
        after.add(&b);
        assert_eq!(after.since(&before).cmd_get, 1);
        assert_eq!(before.since(&after).cmd_get, 0);
        assert!(after.rows().iter().any(|row| row.0 == "cmd_get" && row.2 == 8));
    }
}
