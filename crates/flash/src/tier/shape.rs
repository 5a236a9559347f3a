//! How the memory of the tier is shared out, and what follows from it: the size of a segment.

use super::buffer::BufferShape;
use super::directory::{Directory, Segment};
use crate::device::{Geometry, PAGE_BYTES};
use crate::error::FlashError;
use crate::fence::Fences;
use crate::options::FlashOptions;
use crate::segment::Writer;

/// Zones of the log, percent of all that hold segments, at which they are merged into a generation.
pub(crate) const LOG_PERCENT: u32 = 8;
/// Pages that go to the device, or come from it, in one piece when segments are written and scanned.
pub(crate) const CHUNK_PAGES: usize = 64;
/// Longest segment unless it is asked for, bytes.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Shortest, pages.
const SEGMENT_PAGES_MIN: u64 = 8;
/// Longest value or part, bytes.
const PART_BYTES_MAX: usize = 1 << 20;
/// Records whose key and value are longer go to extents.
pub(crate) const EXTENT_BYTES: usize = 2048;
/// Numbers that the widest log table tells apart.
const WIDE_IDS: u64 = 2047;

/// Sizes and budgets. Bytes of memory, where nothing else is said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Pages of a zone.
    pub(crate) zone_pages: u32,
    /// How large buffers are.
    pub(crate) buffer: BufferShape,
    /// How many there are.
    pub(crate) buffers: u32,
    /// Longest value, or part of one.
    pub(crate) part_bytes_max: usize,
    /// Pages a chunk has.
    pub(crate) chunk_pages: usize,
    /// Numbers that the log table tells apart.
    pub(crate) log_ids: u64,
    /// For the log table.
    pub(crate) log_table: u64,
    /// For the extent table.
    pub(crate) extent_table: u64,
    /// For hit bits.
    pub(crate) hit_bits: u64,
    /// For filters of generations.
    pub(crate) filters: u64,
    /// For address pages that were read.
    pub(crate) address_cache: u64,
    /// For which items of generations were read.
    pub(crate) generation_hits: u64,
    /// For reading what is merged.
    pub(crate) merge_reads: u64,
    /// For stamps.
    pub(crate) stamps: u64,
    /// For tombstones that wait for a buffer.
    pub(crate) waiting_tombstones: u64,
    /// For reading: fetchers' buffers.
    pub(crate) reads: u64,
    /// For writing a segment and scanning others.
    pub(crate) work: u64,
    /// For the extents that lie dead on the device.
    pub(crate) dead_extents: u64,
}

impl Shape {
    /// For a device, of whose zones the first `meta` hold no segments.
    ///
    /// # Errors
    /// The device has too few zones, or too small ones; or the memory is too small for it.
    pub(crate) fn new(geometry: &Geometry, meta: u32, options: &FlashOptions) -> Result<Shape, FlashError> {
        let zone_pages = geometry.zone_bytes / PAGE_BYTES as u64;
        let zones = geometry.zones.saturating_sub(meta) as u64;
        if zones < 4 || zone_pages < SEGMENT_PAGES_MIN || zone_pages > u32::MAX as u64 {
            return Err(FlashError(format!(
                "the flash device has {} zones of {zone_pages} pages of 4 KiB; at least {} zones of {SEGMENT_PAGES_MIN} are needed",
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
        // As many to a zone as fit, and nothing left over.
        let pages = zone_pages / (zone_pages / pages.max(SEGMENT_PAGES_MIN));
        let shape = Shape::share_out(options.memory_bytes, zone_pages, zones, pages, options.generations);
        shape.ok_or_else(|| {
            let enough = (1..44).map(|log2| 1u64 << log2).find(|memory| {
                Shape::share_out(*memory, zone_pages, zones, pages, options.generations).is_some()
            });
            FlashError(format!(
                "{} KiB of memory for flash are too few for {zones} zones of {} MiB: {} KiB would do, or larger zones",
                options.memory_bytes >> 10,
                geometry.zone_bytes >> 20,
                enough.unwrap_or(u64::MAX) >> 10,
            ))
        })
    }

    fn share_out(
        memory: u64,
        zone_pages: u64,
        zones: u64,
        segment_pages: u64,
        generations: bool,
    ) -> Option<Shape> {
        let shape = buffer(segment_pages);
        let segments_max = zones * (zone_pages / segment_pages);
        // With generations the log is never more than a part of it.
        let log_zones = if generations { (zones * LOG_PERCENT as u64 / 100 + 4).min(zones) } else { zones };
        let log_segments = log_zones * (zone_pages / segment_pages);
        // Some zones are always erased; where numbers run out nevertheless, the oldest zone goes.
        let log_ids = (log_segments - log_segments / 64 + 4).min(WIDE_IDS);
        let buffers = (memory / 4 / shape.bytes()).clamp(3, 4);
        let chunk_pages = CHUNK_PAGES.min(segment_pages as usize);
        let items = shape.entries() as u64;
        let writer = Writer::bytes_for(chunk_pages, segment_pages, items, false) + 4 * items;
        // A scan has a chunk, its payload, and what is left over of the one before.
        let scan =
            3 * (chunk_pages * PAGE_BYTES) as u64 + 2 * PART_BYTES_MAX.min(shape.record_bytes_max()) as u64;
        let (merge_reads, merge) = match generations {
            true => {
                let reads = (memory / 32).clamp(256 << 10, 32 << 20);
                (reads, reads + 2 * Writer::bytes_for(chunk_pages, segment_pages, items, true))
            }
            false => (0, 0),
        };
        let work = writer + scan + merge;
        let stamps = (memory / 64).clamp(64, 4 << 16);
        let waiting_tombstones = (memory / 128).clamp(4 << 10, 4 << 20);
        let dead_extents = (memory / 128).clamp(4 << 10, 16 << 20);
        let journal = (memory / 64).clamp(4 << 10, 16 << 20);
        let reads = (memory / 16).clamp(16 * 8192, 16 << 20);
        let ids = log_segments.min(WIDE_IDS);
        let segments = Directory::bytes_for(ids + 1)
            + segments_max * (size_of::<Segment>() as u64 + 64 + Fences::bytes_for(segment_pages));
        let fixed = buffers * shape.bytes()
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
        // A little more than two bytes for each record of an item of 100 bytes; an eighteenth of it is for the bits. With
        // smaller items the table is full before the log is: they are merged sooner, or the oldest go.
        let per_record = if generations { 43 } else { 41 };
        let log_capacity = log_zones * zone_pages * PAGE_BYTES as u64;
        // A log table that is too small makes small generations, and of those only so many: it comes before filters.
        let share = if generations { left / 2 } else { left };
        let log_table = (log_capacity / 108 * per_record / 20).min(share / 18 * 17);
        let hit_bits = (log_table / 16).min(share - log_table);
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
        })
    }
}

fn buffer(pages: u64) -> BufferShape {
    BufferShape { segment_pages: pages as u32 }
}
