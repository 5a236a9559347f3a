//! The directory: which segment a number of the log table means, and which extents segment a page lies in.

use super::buffer::Buffer;
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::hit_bits::HitBits;
use crate::segment::{Kind, Run, SegmentSummary, listed};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A segment on the device.
pub(crate) struct Segment {
    /// Its number in the log table; 0 for a segment that is not found through the table.
    pub(crate) id: u16,
    /// What it holds.
    pub(crate) kind: Kind,
    /// Its data pages.
    pub(crate) run: Run,
    /// Pages from its head to the end of its foot.
    pub(crate) pages: u32,
    /// Tombstones in it.
    pub(crate) tombstones: u32,
    /// See [`crate::segment::Head`].
    pub(crate) sealed_sequence: u64,
    /// Length of its records, bytes.
    pub(crate) record_bytes: u64,
    /// Estimated length of its items that something newer replaced, bytes.
    superseded_bytes: AtomicU64,
    /// Length of its tombstones, bytes.
    tombstone_bytes: u32,
    /// How many of its tombstones something newer replaced.
    superseded_tombstones: AtomicU32,
    /// Finds the page of a hash.
    pub(crate) fences: Fences,
    /// When its records expire.
    pub(crate) histogram: ExpiryHistogram,
    /// Whether some record of it says that an extent is superseded.
    pub(crate) marks_extents: bool,
    /// Bits of its records; `None` if there was no memory for them.
    bits: Option<Box<RecordBits>>,
}

/// Bits of the records of a segment, by hash.
pub(crate) struct RecordBits {
    /// Which were read.
    pub(crate) hits: HitBits,
    /// Which may have been replaced since the segment was written, two bits a listed hash; `None` if there was no
    /// memory for it.
    pub(crate) superseded: Option<HitBits>,
}

impl RecordBits {
    /// Memory for bits of `records` records, with `superseded` more bits a record for those that were replaced, bytes.
    pub(crate) fn bytes_for(records: u64, superseded: u64) -> u64 {
        let superseded = if superseded == 0 { 0 } else { HitBits::bytes_for(records * superseded) };
        (size_of::<RecordBits>() - size_of::<HitBits>()) as u64 + HitBits::bytes_for(records) + superseded
    }

    /// Memory for the bits of those that may have been replaced, bytes.
    pub(crate) fn superseded_bytes(&self) -> u64 {
        self.superseded.as_ref().map_or(0, |bits| bits.bytes() as u64)
    }

    fn bytes(&self) -> u64 {
        let superseded = self.superseded.as_ref().map_or(0, |bits| bits.bytes());
        (size_of::<RecordBits>() - size_of::<HitBits>() + self.hits.bytes() + superseded) as u64
    }
}

/// Where the second bit of a hash is: a Bloom filter of two bits.
fn second(hash: u64) -> u64 {
    hash ^ 0x9E37_79B9_7F4A_7C15
}

impl Segment {
    /// A segment that was written, or was found by a restart.
    pub(crate) fn new(id: u16, facts: SegmentSummary, bits: Option<Box<RecordBits>>) -> Segment {
        Segment {
            id,
            kind: facts.head.kind,
            run: Run::of(&facts),
            pages: facts.pages,
            tombstones: facts.tombstones,
            sealed_sequence: facts.head.sealed_sequence,
            record_bytes: facts.record_bytes,
            superseded_bytes: AtomicU64::new(0),
            tombstone_bytes: facts.which_tombstones.bytes() as u32,
            superseded_tombstones: AtomicU32::new(0),
            marks_extents: !facts.superseded_extents.is_empty(),
            fences: facts.fences,
            histogram: facts.histogram,
            bits,
        }
    }

    /// Its age among all segments: a newer one has a higher sequence.
    pub(crate) fn sequence(&self) -> u64 {
        self.run.sequence
    }

    /// The zone that it is in.
    pub(crate) fn zone(&self) -> ZoneId {
        self.run.zone
    }

    /// Notes that something newer replaced one of its items, of average length.
    pub(crate) fn supersede_one(&self) {
        let (count, bytes) = self.items();
        self.superseded_bytes.fetch_add(bytes / count.max(1), Ordering::Relaxed);
    }

    /// Its records that are no tombstones, and their length, bytes.
    pub(crate) fn items(&self) -> (u64, u64) {
        // The length of tombstones is not known in a segment that an earlier server wrote.
        let tombstones = if self.tombstone_bytes > 0 { self.tombstones } else { 0 };
        let count = self.run.items.saturating_sub(tombstones) as u64;
        (count, self.record_bytes.saturating_sub(self.tombstone_bytes as u64))
    }

    /// Its records that are no tombstones, and the estimated length of those that nothing newer has replaced, bytes.
    pub(crate) fn live_items(&self) -> (u64, u64) {
        let (count, bytes) = self.items();
        (count, bytes.saturating_sub(self.superseded_bytes.load(Ordering::Relaxed)))
    }

    /// Notes that something newer replaced one of its tombstones. False if none is left that could be meant.
    pub(crate) fn supersede_tombstone(&self) -> bool {
        let one_more = |count| (count < self.tombstones).then_some(count + 1);
        self.superseded_tombstones.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Length of its tombstones that something newer replaced, bytes.
    fn superseded_tombstone_bytes(&self) -> u64 {
        let superseded = self.superseded_tombstones.load(Ordering::Relaxed) as u64;
        self.tombstone_bytes as u64 * superseded / self.tombstones.max(1) as u64
    }

    /// Which of its records were read; `None` if there was no memory for it.
    pub(crate) fn hits(&self) -> Option<&HitBits> {
        self.bits.as_ref().map(|bits| &bits.hits)
    }

    /// Notes that a record of a hash, if it has one, was replaced. `listed` is what the foot lists of the hash.
    pub(crate) fn supersede(&self, listed: u64) {
        if let Some(bits) = self.bits.as_ref().and_then(|bits| bits.superseded.as_ref()) {
            bits.mark(listed);
            bits.mark(second(listed));
        }
    }

    /// Whether a record of this hash may have been replaced. Most that were not are told apart, if there was memory for
    /// it.
    pub(crate) fn may_be_superseded(&self, hash: u64) -> bool {
        let superseded = self.bits.as_ref().and_then(|bits| bits.superseded.as_ref());
        let listed = listed(hash);
        superseded.is_none_or(|bits| bits.is_hit(listed) && bits.is_hit(second(listed)))
    }

    /// Memory for the bits of its records, and for those of them that say which may have been replaced, bytes.
    pub(crate) fn bits_bytes(&self) -> (u64, u64) {
        self.bits.as_ref().map_or((0, 0), |bits| (bits.bytes(), bits.superseded_bytes()))
    }

    /// Estimated length of its records that are neither superseded nor expired at a time, bytes.
    pub(crate) fn live_bytes(&self, now_unix_s: u32) -> u64 {
        let fresh = self.histogram.live_bytes(now_unix_s).min(self.record_bytes);
        let superseded = self.superseded_bytes.load(Ordering::Relaxed) + self.superseded_tombstone_bytes();
        let superseded = superseded.min(self.record_bytes);
        // As if expired and superseded records were independent of each other.
        (fresh as u128 * (self.record_bytes - superseded) as u128 / self.record_bytes.max(1) as u128) as u64
    }

    /// Pages in which every record of this hash begins.
    pub(crate) fn pages_of(&self, hash: u64) -> Option<PageRun> {
        let pages = self.fences.page(hash);
        let first = self.run.first_data_page + pages.first;
        (pages.count > 0).then(|| PageRun { zone: self.zone(), first, count: pages.count })
    }

    /// Memory taken, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of::<Segment>() - size_of::<Fences>() + self.fences.bytes()) as u64
    }
}

/// Pages of one zone, to be read together.
#[derive(Clone, Debug)]
pub(crate) struct PageRun {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// Number of the first page in the zone.
    pub(crate) first: u32,
    /// How many pages.
    pub(crate) count: u32,
}

/// A segment of the log, in memory or on the device: what a number of the log table means.
#[derive(Clone)]
pub(crate) enum LogSegment {
    /// Not durable yet.
    Memory(Arc<Buffer>),
    /// On the device.
    Flash(Arc<Segment>),
}

impl LogSegment {
    /// Its age among all segments: a newer one has a higher sequence.
    pub(crate) fn sequence(&self) -> u64 {
        match self {
            LogSegment::Memory(buffer) => buffer.sequence,
            LogSegment::Flash(segment) => segment.sequence(),
        }
    }
}

/// The directory. Lookups read it without a lock; it is changed under the append lock.
pub(crate) struct Directory {
    segments: Box<[ArcSwapOption<LogSegment>]>,
    /// See [`Directory::changes`].
    changes: AtomicU64,
    extents: ArcSwap<ExtentsSegments>,
}

/// All extents segments.
#[derive(Clone, Default)]
pub(crate) struct ExtentsSegments {
    /// In memory, oldest first.
    pub(crate) buffers: Vec<Arc<Buffer>>,
    /// On the device, by zone and first page.
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl ExtentsSegments {
    /// The segment that has data in this page of a zone.
    pub(crate) fn at(&self, zone: ZoneId, page: u32) -> Option<&Arc<Segment>> {
        let after = self
            .segments
            .partition_point(|segment| (segment.zone(), segment.run.first_data_page) <= (zone, page));
        let segment = &self.segments[after.checked_sub(1)?];
        let run = &segment.run;
        (run.zone == zone && page - run.first_data_page < run.data_pages).then_some(segment)
    }

    /// Sequence of the oldest one on the device.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.segments.iter().map(|segment| segment.sequence()).min()
    }
}

impl Directory {
    /// A directory of the numbers up to `id_max`. None has a meaning yet.
    pub(crate) fn new(id_max: u16) -> Directory {
        Directory {
            segments: (0..=id_max).map(|_| ArcSwapOption::empty()).collect(),
            changes: AtomicU64::new(0),
            extents: ArcSwap::default(),
        }
    }

    /// The segment that a number means; `None` if the number has no meaning now.
    pub(crate) fn get(&self, id: u16) -> Option<Arc<LogSegment>> {
        self.segments.get(id as usize)?.load_full()
    }

    /// Loads what a search for the hash in the fences of this number looks at. The result means nothing.
    #[inline]
    pub(crate) fn touch_fences(&self, id: u16, hash: u64) -> u64 {
        match self.segments.get(id as usize).map(ArcSwapOption::load).as_deref() {
            Some(Some(segment)) => match &**segment {
                LogSegment::Flash(segment) => segment.fences.touch(hash),
                LogSegment::Memory(_) => 0,
            },
            Some(None) | None => 0,
        }
    }

    /// All segments of the log.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<LogSegment>> + '_ {
        self.segments.iter().filter_map(ArcSwapOption::load_full)
    }

    /// Gives a number its meaning.
    pub(crate) fn set(&self, id: u16, segment: LogSegment) {
        self.segments[id as usize].store(Some(Arc::new(segment)));
    }

    /// Takes the meaning of a number away.
    pub(crate) fn forget(&self, id: u16) {
        self.count_change();
        self.segments[id as usize].store(None);
    }

    /// Counts a change. To be called when a number loses its meaning, or an extent leaves its buffer or the extent
    /// table: after the replacement is in place, and before the old one goes.
    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// How many changes there were. A lookup that reads this, then the log table, then the meaning of the numbers, and
    /// then this again with the same result, has seen numbers with the meaning that they had when they were inserted:
    /// none was given to a newer segment in between. The same holds of an extent, which is in a buffer or in the extent
    /// table: a lookup that finds it in neither, between two equal results, would not have found it anywhere.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// The extents segments of this moment.
    pub(crate) fn extents(&self) -> arc_swap::Guard<Arc<ExtentsSegments>> {
        self.extents.load()
    }

    /// Replaces the extents segments by a changed copy. The caller holds the append lock.
    pub(crate) fn change_extents(&self, change: impl FnOnce(&mut ExtentsSegments)) {
        let mut extents = ExtentsSegments::clone(&self.extents.load());
        change(&mut extents);
        extents.segments.sort_by_key(|segment| (segment.zone(), segment.run.first_data_page));
        self.extents.store(Arc::new(extents));
    }

    /// Memory taken by the directory itself, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        Directory::bytes_for(self.segments.len() as u64)
    }

    /// Memory taken by a directory of `ids` numbers, bytes.
    pub(crate) fn bytes_for(ids: u64) -> u64 {
        ids * (size_of::<ArcSwapOption<LogSegment>>() + size_of::<LogSegment>() + 16) as u64
    }
}
