//! What the tier counts, and the figures that it shows.

use crate::device::DeviceCounters;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the tier. Every component adds to them.
        #[derive(Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        /// The figures of the tier. Counters count since the tier was opened.
        #[derive(Clone, PartialEq, Debug, Default)]
        pub struct FlashStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Items that can be found, superseded versions and tombstones included.
            pub items: u64,
            /// Extents: records longer than half a page, found through the extent table.
            pub extents: u64,
            /// Generations.
            pub generations: u64,
            /// Items in generations.
            pub generation_items: u64,
            /// Tombstones in segments of the log.
            pub tombstones_kept: u64,
            /// Tombstones that wait for room in a buffer.
            pub tombstones_waiting: u64,
            /// Full segments in memory that are not on the device yet, the one being written included.
            pub segments_waiting: u64,
            /// Estimated length of records on the device that are neither superseded nor expired, bytes.
            pub live_bytes: u64,
            /// Estimated length of records on the device that are superseded or expired, bytes.
            pub dead_bytes: u64,
            /// Segments on the device.
            pub segments: u64,
            /// Zones by their use.
            pub zones: ZoneCounts,
            /// The low watermark: with fewer erased zones, zones with little garbage are reclaimed.
            pub zones_low: u32,
            /// The high watermark: with as many erased zones, only zones that are nearly all garbage are reclaimed.
            pub zones_high: u32,
            /// Zones written per second, lately.
            pub zones_per_s: f64,
            /// What the device counted.
            pub device: DeviceCounters,
            /// DRAM by purpose.
            pub memory: MemoryUse,
            /// The limit of that DRAM, bytes.
            pub memory_cap: u64,
            /// Whether the tier works. If not, it has failed, and everything is a miss.
            pub is_on: bool,
            /// Whether segments of an earlier run are still being taken in.
            pub is_recovering: bool,
        }

        impl Counters {
            /// The counters of this moment, in figures that are otherwise empty.
            pub(crate) fn snapshot(&self) -> FlashStats {
                FlashStats { $($name: self.$name.load(Relaxed),)* ..FlashStats::default() }
            }
        }
    };
}

counters! {
    /// Items and parts that were stored.
    puts,
    /// Items and parts that were not stored, because the device was behind or has failed.
    shed,
    /// Length of keys and values that were stored, bytes.
    admitted_bytes,
    /// Tombstones for invalidated keys.
    tombstones,
    /// Tombstones that found no room in a buffer at first.
    tombstones_waited,
    /// How often everything on flash was dropped because a segment had waited too long for a zone. What a start drops
    /// is not counted.
    drops_of_all,
    /// How often too many tombstones waited, so that a range of hashes was dropped.
    range_drops,
    /// Bytes appended to the device in segments.
    appended_bytes,
    /// Segments written.
    segments_written,
    /// Lookups that found their item.
    hits,
    /// Lookups that found their item in a buffer, without a read; those of reclaim too.
    hits_in_buffers,
    /// Lookups that found nothing.
    misses,
    /// Lookups that ended without an answer because they had used up their reads, or because there is too little memory
    /// for their read.
    misses_for_reads,
    /// Lookups that ended without an answer because the pages were damaged or gone.
    misses_for_damage,
    /// Reads for lookups that found their item.
    reads_for_hits,
    /// Reads for lookups that found nothing.
    reads_for_misses,
    /// Reads that did not show the key.
    false_reads,
    /// How often a table had no room for an entry.
    table_full,
    /// Zones reclaimed greedily: their survivors were appended again.
    reclaims,
    /// Records that reclaims appended again.
    survivors,
    /// Length of the keys and values of those records, bytes.
    survivor_bytes,
    /// Records worth keeping that found no room, or changed meanwhile.
    survivors_lost,
    /// Reads of reclaims to find out whether a record was replaced.
    reclaim_reads,
    /// Reads of listings.
    list_reads,
    /// Zones dropped unread.
    quick_drops,
    /// Zones that the writer dropped because no zone was erased.
    drops_forced,
    /// Merges of the log into a generation.
    merges,
    /// Merges that were given up.
    merges_given_up,
    /// Records that merges wrote.
    merged_records,
    /// Length of the records that merges wrote, bytes.
    merged_bytes,
    /// Records that merges dropped: cold, expired or superseded.
    merge_dropped,
    /// Zones of generations that merges have collected.
    zones_collected,
    /// Errors of the device.
    device_errors,
    /// Devices that have failed for good.
    devices_failed,
    /// Pages that were read and are damaged.
    damaged_pages,
    /// Memory taken by hit bits of segments, bytes.
    hit_bits_bytes,
    /// Memory taken by buffers for reading, bytes.
    read_bytes,
    /// Flushes.
    flushes,
}

/// How many zones have which use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneCounts {
    /// Superblocks and journal.
    pub meta: u32,
    /// Erased, or to be erased before they are written.
    pub free: u32,
    /// Being filled.
    pub open: u32,
    /// Full, with segments of the log or of extents.
    pub full: u32,
    /// Zones of generations, or being written by a merge.
    pub generations: u32,
    /// Reclaimed, but not erased yet: the copies of their survivors are not durable yet.
    pub draining: u32,
    /// Broken.
    pub retired: u32,
}

/// Memory of the tier by purpose, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Segments in memory.
    pub buffers: u64,
    /// The log table.
    pub log_table: u64,
    /// The extent table.
    pub extent_table: u64,
    /// The directory, and what is kept of each segment: fences, histograms.
    pub segments: u64,
    /// Filters of generations.
    pub filters: u64,
    /// Address pages that were read lately.
    pub address_cache: u64,
    /// Bits that say which items were read.
    pub hit_bits: u64,
    /// Stamps.
    pub stamps: u64,
    /// Buffers for reads.
    pub reads: u64,
    /// Buffers for writing, scanning and merging segments; the most that they take.
    pub work: u64,
    /// Tombstones that wait for a buffer; the most that they take.
    pub tombstones: u64,
    /// The set of extents that are dead and not erased.
    pub dead_extents: u64,
    /// The journal.
    pub journal: u64,
}

impl MemoryUse {
    /// The sum of all purposes, bytes.
    pub fn total(&self) -> u64 {
        let tables = self.log_table
            + self.extent_table
            + self.segments
            + self.filters
            + self.address_cache
            + self.hit_bits
            + self.stamps;
        tables + self.buffers + self.reads + self.work + self.tombstones + self.dead_extents + self.journal
    }
}

/// A ratio; 0 where it would be one to nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl FlashStats {
    /// Application-level write amplification: bytes appended to the device for each byte stored.
    pub fn alwa(&self) -> f64 {
        ratio(self.appended_bytes, self.admitted_bytes)
    }

    /// Device-level write amplification: bytes written to the medium for each byte appended. `None` if the device does
    /// not tell.
    pub fn dlwa(&self) -> Option<f64> {
        self.device.media_bytes.map(|media| ratio(media, self.device.append_bytes))
    }

    /// Mean reads of a lookup that found its item on the device.
    pub fn reads_per_hit(&self) -> f64 {
        ratio(self.reads_for_hits, self.hits.saturating_sub(self.hits_in_buffers))
    }

    /// Mean reads of a lookup that found nothing.
    pub fn reads_per_miss(&self) -> f64 {
        ratio(self.reads_for_misses, self.misses)
    }

    /// Memory of the index for one item, bytes; 0 without items. Left out is what does not grow with the number of
    /// items, such as buffers.
    pub fn index_bytes_per_item(&self) -> f64 {
        let index = self.memory.log_table + self.memory.segments + self.memory.filters + self.memory.hit_bits;
        ratio(index, self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_counters_that_are_read_between_two_events_are_numbers() {
        // The counters are read one after the other: a hit in a buffer may show in only one of the two.
        let memory = MemoryUse { log_table: 1 << 20, ..MemoryUse::default() };
        let nothing = FlashStats { memory, appended_bytes: 4096, ..FlashStats::default() };
        assert_eq!((nothing.index_bytes_per_item(), nothing.alwa()), (0.0, 0.0));
        let stats = FlashStats { hits: 3, hits_in_buffers: 4, reads_for_hits: 2, ..FlashStats::default() };
        assert_eq!(stats.reads_per_hit(), 0.0);
        let stats = FlashStats { hits: 9, hits_in_buffers: 4, reads_for_hits: 10, ..stats };
        assert_eq!(stats.reads_per_hit(), 2.0);
        for ratio in [FlashStats::default().alwa(), FlashStats::default().reads_per_miss()] {
            assert_eq!(ratio, 0.0);
        }
    }
}
