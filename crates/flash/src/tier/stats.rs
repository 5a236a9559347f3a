//! What the tier counts, and how it stands.

use super::directory::Segment;
use super::zones::Use;
use crate::device::DeviceCounters;
use crate::flash::Flash;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the tier.
        #[derive(Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        /// How the tier stands. Counters count since it was opened; bytes are bytes.
        #[derive(Clone, PartialEq, Debug, Default)]
        pub struct FlashStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Items that can be found, superseded versions and tombstones included.
            pub items: u64,
            /// Records longer than a page's half, found through the extent table.
            pub extents: u64,
            /// Generations.
            pub generations: u64,
            /// Items in them.
            pub generation_items: u64,
            /// Tombstones in the log's segments.
            pub tombstones_kept: u64,
            /// Tombstones that wait for a buffer.
            pub tombstones_waiting: u64,
            /// Full segments in memory that are not on the device yet, the one being written included.
            pub segments_waiting: u64,
            /// Bytes of records on the device that may still be wanted, about.
            pub live_bytes: u64,
            /// Bytes of records on the device that are superseded or expired, about.
            pub dead_bytes: u64,
            /// Segments on the device.
            pub segments: u64,
            /// Zones by what they are used for.
            pub zones: ZoneCounts,
            /// Below so many erased zones, reclaim is quick.
            pub zones_low: u32,
            /// With so many erased zones, nothing is reclaimed.
            pub zones_high: u32,
            /// Zones written per second, lately.
            pub zones_per_s: f64,
            /// What the device counted.
            pub device: DeviceCounters,
            /// DRAM by purpose.
            pub memory: MemoryUse,
            /// The cap on it.
            pub memory_cap: u64,
            /// Whether the tier works; if not, it failed, and everything is a miss.
            pub is_on: bool,
            /// Whether it still finds out what the device holds.
            pub is_recovering: bool,
        }

        impl Counters {
            fn snapshot(&self) -> FlashStats {
                FlashStats { $($name: self.$name.load(Relaxed),)* ..FlashStats::default() }
            }
        }
    };
}

counters! {
    /// Items and parts that were put.
    puts,
    /// Those that were not, because the device was behind or failed.
    shed,
    /// Bytes of keys and values that were put.
    admitted_bytes,
    /// Tombstones for invalidated keys.
    tombstones,
    /// Of them, those that found no buffer at first.
    tombstones_waited,
    /// Times when too many of them did, and everything was dropped.
    drops_of_all,
    /// Bytes appended to the device in segments.
    appended_bytes,
    /// Segments written.
    segments_written,
    /// Lookups that found their item.
    hits,
    /// Of them, in a buffer, without a read.
    hits_in_buffers,
    /// Lookups that found nothing.
    misses,
    /// Of them, those that would have needed a third read.
    misses_for_reads,
    /// Of them, those where what was read was damaged, or gone.
    misses_for_damage,
    /// Reads for lookups that found their item.
    reads_for_hits,
    /// Reads for lookups that found nothing.
    reads_for_misses,
    /// Reads that did not show the key.
    false_reads,
    /// Times a table was full.
    table_full,
    /// Zones reclaimed with their survivors.
    reclaims,
    /// Records put again by reclaims.
    survivors,
    /// Bytes of their keys and values.
    survivor_bytes,
    /// Records that were worth it but found no room, or changed meanwhile.
    survivors_lost,
    /// Reads to find out whether a record was replaced.
    reclaim_reads,
    /// Zones dropped whole.
    quick_drops,
    /// Of them, by the writer itself, because there was no zone.
    drops_forced,
    /// Merges of the log into a generation.
    merges,
    /// Of them, those that came to no end.
    merges_given_up,
    /// Records that merges wrote.
    merged_records,
    /// Bytes of them.
    merged_bytes,
    /// Records that merges dropped: cold, expired, superseded.
    merge_dropped,
    /// Errors of the device.
    device_errors,
    /// Pages that were not what was written.
    damaged_pages,
    /// Memory of hit bits.
    hit_bits_bytes,
    /// Memory of fetchers' buffers.
    read_bytes,
    /// Flushes.
    flushes,
}

/// Zones by what they are used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneCounts {
    /// Superblocks and journal.
    pub meta: u32,
    /// Erased, or to be erased before they are written.
    pub free: u32,
    /// Being filled.
    pub open: u32,
    /// Full, of the log or of extents.
    pub full: u32,
    /// Of generations, or being written by a merge.
    pub generations: u32,
    /// Reclaimed, but for what must become durable first.
    pub draining: u32,
    /// Broken.
    pub retired: u32,
}

/// Memory by purpose, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Segments in memory.
    pub buffers: u64,
    /// The log table.
    pub log_table: u64,
    /// The extent table.
    pub extent_table: u64,
    /// The directory, and what is known of each segment: fences, histograms.
    pub segments: u64,
    /// Filters of generations.
    pub filters: u64,
    /// Address pages read lately.
    pub address_cache: u64,
    /// Which items were read.
    pub hit_bits: u64,
    /// Stamps.
    pub stamps: u64,
    /// Buffers for reads.
    pub reads: u64,
    /// Buffers for writing segments and scanning them: the most it takes.
    pub work: u64,
    /// Tombstones without a buffer: the most it takes.
    pub tombstones: u64,
    /// Extents that are dead and not erased.
    pub dead_extents: u64,
    /// The journal.
    pub journal: u64,
}

impl MemoryUse {
    /// All of it.
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

impl FlashStats {
    /// Application-level write amplification: bytes appended for every byte admitted.
    pub fn alwa(&self) -> f64 {
        self.appended_bytes as f64 / self.admitted_bytes.max(1) as f64
    }

    /// Device-level write amplification, where the device tells.
    pub fn dlwa(&self) -> Option<f64> {
        self.device.media_bytes.map(|media| media as f64 / self.device.append_bytes.max(1) as f64)
    }

    /// Reads of a lookup that found its item on the device, on average.
    pub fn reads_per_hit(&self) -> f64 {
        self.reads_for_hits as f64 / (self.hits - self.hits_in_buffers.min(self.hits)).max(1) as f64
    }

    /// Reads of a lookup that found nothing, on average.
    pub fn reads_per_miss(&self) -> f64 {
        self.reads_for_misses as f64 / self.misses.max(1) as f64
    }

    /// Bytes of memory for an item, without the buffers and what does not depend on the number of items.
    pub fn index_bytes_per_item(&self) -> f64 {
        let index = self.memory.log_table + self.memory.segments + self.memory.filters + self.memory.hit_bits;
        index as f64 / self.items.max(1) as f64
    }
}

impl Flash {
    /// How the tier stands. Looks at every zone and segment: for a person or a monitor, not for every request.
    pub fn stats(&self) -> FlashStats {
        let now = self.now();
        let mut stats = self.counters.snapshot();
        stats.items = self.table.len() + self.extents.len();
        stats.extents = self.extents.len();
        let generations = self.generations.list();
        let items = generations.newest_first().iter().map(|generation| generation.items());
        stats.generation_items = items.sum();
        stats.items += stats.generation_items;
        stats.generations = generations.newest_first().len() as u64;
        for chunk in generations.newest_first().iter().flat_map(|generation| generation.chunks()) {
            let live = chunk.histogram.live_bytes(now).min(chunk.record_bytes);
            stats.segments += 1;
            stats.live_bytes += live;
            stats.dead_bytes += chunk.record_bytes - live;
        }
        stats.memory.filters = self.generations.filter_bytes();
        stats.memory.address_cache = self.generations.cache_bytes();
        // Each of the three looks for itself, and a flush may come in between.
        let others = stats.memory.filters + stats.memory.address_cache;
        stats.memory.segments = self.generations.bytes().saturating_sub(others);
        stats.tombstones_waiting = self.fallback.len() as u64;
        {
            let zones = self.zones();
            for zone in &zones.zones {
                let counts = &mut stats.zones;
                *match zone.used {
                    Use::Meta => &mut counts.meta,
                    Use::Free { .. } => &mut counts.free,
                    Use::Open => &mut counts.open,
                    Use::Full => &mut counts.full,
                    Use::Merging(_) | Use::Generation(_) => &mut counts.generations,
                    Use::Draining(_) => &mut counts.draining,
                    Use::Retired => &mut counts.retired,
                } += 1;
                for segment in &zone.segments {
                    let live = segment.live_bytes(now);
                    stats.segments += 1;
                    stats.tombstones_kept += segment.tombstones as u64;
                    stats.live_bytes += live;
                    stats.dead_bytes += segment.record_bytes.saturating_sub(live);
                    stats.memory.segments += Segment::bytes(segment);
                }
            }
            (stats.zones_low, stats.zones_high) = (zones.marks.low(), zones.marks.high());
            stats.zones_per_s = zones.meter.rates().taken_per_s;
        }
        stats.device = self.device.counters();
        stats.memory.segments += self.directory.bytes();
        stats.memory.buffers = self.shape.buffers as u64 * self.shape.buffer.bytes();
        stats.memory.log_table = self.table.bytes() as u64;
        stats.memory.extent_table = self.extents.bytes() as u64;
        stats.memory.hit_bits = stats.hit_bits_bytes + self.generation_hits.load().bytes() as u64;
        stats.memory.stamps = self.stamps.bytes();
        stats.memory.reads = stats.read_bytes;
        stats.memory.work = self.shape.work;
        stats.memory.tombstones = self.shape.fallback;
        {
            let append = self.append();
            stats.segments_waiting = append.sealed.len() as u64;
            stats.memory.dead_extents = append.dead.bytes();
        }
        stats.memory.journal = self.meta.bytes();
        stats.memory_cap = self.options.memory_bytes;
        stats.is_on = self.is_on();
        stats.is_recovering = self.recovering.load(Relaxed);
        stats
    }
}
