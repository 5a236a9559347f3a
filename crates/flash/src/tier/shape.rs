//! How the memory of the tier is divided among its parts, and how long a segment is.

use super::buffer::BufferShape;
use super::directory::{Directory, Segment};
use crate::device::{Geometry, PAGE_BYTES};
use crate::error::FlashError;
use crate::fence::Fences;
use crate::meta::RangeFloors;
use crate::options::FlashOptions;
use crate::segment::Writer;

/// The share of all zones, percent, that one merge reads of the log at most.
pub(crate) const MERGE_PERCENT: u8 = 8;
/// Pages that are written or read at a time when segments are written or scanned.
const CHUNK_PAGES: usize = 64;
/// Length of the longest segment, unless the options ask for a longer one, bytes.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Length of the shortest segment, pages.
const SEGMENT_PAGES_MIN: u64 = 8;
/// Length of the longest value, or part of one, bytes.
const PART_BYTES_MAX: usize = 1 << 20;
/// A record is an extent if its key and value are longer together, bytes.
pub(crate) const EXTENT_BYTES: usize = 2048;
/// How many buffers there are at least, and at most.
const BUFFERS_MIN: u64 = 3;
const BUFFERS_MAX: u64 = 8;
/// Numbers of segments that the widest log table has.
const WIDE_IDS: u64 = 2047;

/// Sizes and budgets of the tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Length of a zone, pages.
    pub(crate) zone_pages: u32,
    /// The size of a buffer.
    pub(crate) buffer: BufferShape,
    /// How many buffers there are.
    pub(crate) buffers: u32,
    /// Length of the longest value, or part of one, bytes.
    pub(crate) part_bytes_max: usize,
    /// Pages that are written or read at a time.
    pub(crate) chunk_pages: usize,
    /// Numbers of segments that the log table needs.
    pub(crate) log_ids: u64,
    /// The memory of each part.
    pub(crate) budget: Budgets,
}

/// Memory of the parts of the tier, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budgets {
    /// The log table.
    pub(crate) log_table: u64,
    /// The extent table.
    pub(crate) extent_table: u64,
    /// The hit bits of segments.
    pub(crate) hit_bits: u64,
    /// The filters of generations.
    pub(crate) filters: u64,
    /// The cache of address pages.
    pub(crate) address_cache: u64,
    /// The hit bits of generations.
    pub(crate) generation_hits: u64,
    /// The buffers that merges read into.
    pub(crate) merge_reads: u64,
    /// The stamps.
    pub(crate) stamps: u64,
    /// The tombstones that wait for a buffer.
    pub(crate) waiting_tombstones: u64,
    /// The buffers of readers.
    pub(crate) reads: u64,
    /// The buffers for writing, scanning and merging segments.
    pub(crate) work: u64,
    /// The set of dead extents.
    pub(crate) dead_extents: u64,
}

impl Shape {
    /// The sizes and budgets for a device. Its first `meta` zones hold no segments.
    ///
    /// # Errors
    /// The device has too few or too short zones, or there is too little memory for it.
    pub(crate) fn new(geometry: &Geometry, meta: u32, options: &FlashOptions) -> Result<Shape, FlashError> {
        let zone_pages = geometry.zone_bytes / PAGE_BYTES as u64;
        let zones = geometry.zones.saturating_sub(meta) as u64;
        if zones < 4 || zone_pages < SEGMENT_PAGES_MIN || zone_pages > u32::MAX as u64 {
            return Err(FlashError(format!(
                "the flash device has {} zones of {zone_pages} pages of 4 KiB; at least {} zones of \
                 {SEGMENT_PAGES_MIN} are needed",
                geometry.zones,
                meta + 4,
            )));
        }
        let asked = options.segment_bytes.unwrap_or(SEGMENT_BYTES_MAX.min(geometry.zone_bytes));
        let mut pages = (asked / PAGE_BYTES as u64).clamp(SEGMENT_PAGES_MIN, zone_pages);
        let quarter = options.memory_bytes / 4;
        while pages > SEGMENT_PAGES_MIN && 3 * buffer(pages).bytes() > quarter {
            pages /= 2;
        }
        // As many segments as fit into a zone share it evenly.
        let pages = zone_pages / (zone_pages / pages.max(SEGMENT_PAGES_MIN));
        let shape = Shape::share_out(options.memory_bytes, zone_pages, zones, pages, options);
        shape.ok_or_else(|| {
            let enough = (1..44).map(|log2| 1u64 << log2).find(|memory| {
                Shape::share_out(*memory, zone_pages, zones, pages, options).is_some()
            });
            FlashError(format!(
                "{} KiB of memory for flash are too few for {zones} zones of {} MiB: {} KiB would do, or larger zones",
                options.memory_bytes >> 10,
                geometry.zone_bytes >> 20,
                enough.unwrap_or(u64::MAX) >> 10,
            ))
        })
    }

    /// More buffers hold more of what is evicted while the writer waits for the device or for its turn. They may cost
    /// the log table a third, and a 64th of all zones, which are kept erased for them.
    fn share_out(
        memory: u64,
        zone_pages: u64,
        zones: u64,
        segment_pages: u64,
        options: &FlashOptions,
    ) -> Option<Shape> {
        let most = memory * 9 / 32 / buffer(segment_pages).bytes();
        let kept_erased = (zones * zone_pages / segment_pages / 64).max(BUFFERS_MIN + 1);
        let most = most.min(kept_erased).clamp(BUFFERS_MIN, BUFFERS_MAX);
        let with = |buffers| Shape::with_buffers(buffers, memory, zone_pages, zones, segment_pages, options);
        let fewest = with(BUFFERS_MIN)?;
        let has_table = |shape: &Shape| shape.budget.log_table * 3 >= fewest.budget.log_table * 2;
        (BUFFERS_MIN..=most).rev().filter_map(with).find(has_table)
    }

    fn with_buffers(
        buffers: u64,
        memory: u64,
        zone_pages: u64,
        zones: u64,
        segment_pages: u64,
        options: &FlashOptions,
    ) -> Option<Shape> {
        let generations = options.generations;
        let shape = buffer(segment_pages);
        let segments_max = zones * (zone_pages / segment_pages);
        let part = zones * options.log_percent.min(100) as u64 / 100;
        let log_zones = if options.generations { (part + 4).min(zones) } else { zones };
        let log_segments = log_zones * (zone_pages / segment_pages);
        // Some zones are always erased, but buffers have numbers too. Where few are free, the log is merged, and the
        // log table swept for each zone.
        let log_ids = (log_segments + log_segments / 16 + 4).min(WIDE_IDS);
        let chunk_pages = CHUNK_PAGES.min(segment_pages as usize);
        let items = shape.entries() as u64;
        let writer = Writer::bytes_for(chunk_pages, segment_pages, items, false) + 4 * items;
        // A scan keeps a chunk, its payload, and the rest of the chunk before.
        let scan =
            3 * (chunk_pages * PAGE_BYTES) as u64 + 2 * PART_BYTES_MAX.min(shape.record_bytes_max()) as u64;
        let merge_reads = if generations { (memory / 8).clamp(256 << 10, 32 << 20) } else { 0 };
        let merge_writers = 2 * Writer::bytes_for(chunk_pages, segment_pages, items, true);
        let merge = if generations { merge_reads + merge_writers } else { 0 };
        // One thread scans zones and merges, never both at a time.
        let work = writer + scan.max(merge);
        let stamps = (memory / 64).clamp(64, 4 << 16);
        let waiting_tombstones = (memory / 128).clamp(4 << 10, 4 << 20);
        let dead_extents = (memory / 64).clamp(4 << 10, 32 << 20);
        let journal = (memory / 64).clamp(4 << 10, 16 << 20);
        let reads = (memory / 16).clamp(16 * 8192, 16 << 20);
        let ids = log_segments.min(WIDE_IDS);
        let segments = Directory::bytes_for(ids + 1)
            + segments_max * (size_of::<Segment>() as u64 + 64 + Fences::bytes_for(segment_pages));
        let fixed = buffers * shape.bytes()
            + RangeFloors::bytes_for(zone_pages * PAGE_BYTES as u64)
            + work
            + stamps
            + waiting_tombstones
            + dead_extents
            + journal
            + reads
            + segments;
        let left = memory.checked_sub(fixed).filter(|left| *left >= 8 << 10)?;
        let capacity = zones * zone_pages * PAGE_BYTES as u64;
        let extent_table = (capacity / EXTENT_BYTES as u64 * 9).min(left / 4);
        let generation_hits = if generations { (memory / 256).min(1 << 20) } else { 0 };
        let left = left.checked_sub(extent_table + generation_hits)?;
        // A little more than two bytes for each record of an item of 100 bytes; an eleventh of it is for bits of
        // records. With smaller items the table is full before the log is: then the log is merged sooner, or its oldest
        // zone dropped.
        let per_record = if generations { 43 } else { 41 };
        // A log table that is too small makes small generations, and their number is limited: it is more important than
        // filters.
        let share = if generations { left / 2 } else { left };
        let log_table =
            (log_zones * zone_pages * PAGE_BYTES as u64 / 108 * per_record / 20).min(share / 11 * 10);
        let hit_bits = (log_table / 10).min(share - log_table);
        let left = left - log_table - hit_bits;
        let address_cache = if generations { left / 16 } else { 0 };
        let filters = if generations { left - address_cache } else { 0 };
        Some(Shape {
            zone_pages: zone_pages as u32,
            buffer: shape,
            buffers: buffers as u32,
            part_bytes_max: PART_BYTES_MAX.min(shape.record_bytes_max() / 2).max(1),
            chunk_pages,
            log_ids,
            budget: Budgets {
                log_table,
                extent_table,
                hit_bits,
                filters,
                address_cache,
                generation_hits,
                merge_reads,
                stamps,
                waiting_tombstones,
                reads,
                work,
                dead_extents,
            },
        })
    }
}

impl Shape {
    /// Zones that the segments in memory fill, at most.
    pub(crate) fn buffered_zones(&self) -> u32 {
        let pages = self.buffers as u64 * self.buffer.segment_pages as u64;
        pages.div_ceil(self.zone_pages as u64) as u32
    }
}

fn buffer(pages: u64) -> BufferShape {
    BufferShape { segment_pages: pages as u32 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log_table::LogTable;
    use crate::tier::tests::options;

    #[test]
    fn buffers_have_numbers_beside_all_segments() {
        let options = FlashOptions {
            memory_bytes: 16 << 20,
            generations: true,
            log_percent: 100,
            ..options(&Default::default())
        };
        for zones in [122, 128, 130, 240, 256, 272, 400] {
            let geometry = Geometry { zones, zone_bytes: 1 << 20, channels: 1, open_zones_max: 8 };
            let shape = Shape::new(&geometry, 2, &options).expect("the memory suffices");
            let segments = (zones - 2) * (shape.zone_pages / shape.buffer.segment_pages);
            let id_max = u32::from(LogTable::new(shape.budget.log_table, shape.log_ids).id_max());
            assert!(id_max >= segments + shape.buffers, "{segments} segments, {id_max} numbers");
        }
    }
}
