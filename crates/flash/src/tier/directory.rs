//! Which segment a number of the log table means, and which extents segment a page lies in.

use super::buffer::Buffer;
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::hit_bits::HitBits;
use crate::segment::{Kind, Run, SegmentFacts};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A segment on the device.
pub(crate) struct Segment {
    /// Its number in the log table; 0 for those that are not found through it.
    pub(crate) id: u16,
    /// What it holds.
    pub(crate) kind: Kind,
    /// Where its data pages are.
    pub(crate) run: Run,
    /// Pages from its head to the end of its foot.
    pub(crate) pages: u32,
    /// Tombstones in it.
    pub(crate) tombstones: u32,
    /// See [`crate::segment::Head`].
    pub(crate) sealed_sequence: u64,
    /// Bytes of its records.
    pub(crate) record_bytes: u64,
    /// Of them, those that something newer is known to replace; about.
    pub(crate) superseded_bytes: AtomicU64,
    /// Finds the page of a hash.
    pub(crate) fences: Fences,
    /// When its bytes expire.
    pub(crate) histogram: ExpiryHistogram,
    /// Whether some record of it says that extents are superseded.
    pub(crate) marks_extents: bool,
    /// Which records were read; missing where there is no memory for it.
    pub(crate) hits: Option<HitBits>,
}

impl Segment {
    /// From what is known of it.
    pub(crate) fn new(id: u16, facts: SegmentFacts, hits: Option<HitBits>) -> Segment {
        Segment {
            id,
            kind: facts.head.kind,
            run: Run::of(&facts),
            pages: facts.pages,
            tombstones: facts.tombstones,
            sealed_sequence: facts.head.sealed_sequence,
            record_bytes: facts.record_bytes,
            superseded_bytes: AtomicU64::new(0),
            marks_extents: !facts.superseded_extents.is_empty(),
            fences: facts.fences,
            histogram: facts.histogram,
            hits,
        }
    }

    /// Age.
    pub(crate) fn sequence(&self) -> u64 {
        self.run.sequence
    }

    /// Where it is.
    pub(crate) fn zone(&self) -> ZoneId {
        self.run.zone
    }

    /// Bytes of a record, on average.
    pub(crate) fn mean_bytes(&self) -> u64 {
        self.record_bytes / self.run.items.max(1) as u64
    }

    /// So many bytes more are not the newest any more.
    pub(crate) fn supersede(&self, bytes: u64) {
        self.superseded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that somebody may still want at a time, about.
    pub(crate) fn live_bytes(&self, now_unix_s: u32) -> u64 {
        let fresh = self.histogram.live_bytes(now_unix_s).min(self.record_bytes);
        let superseded = self.superseded_bytes.load(Ordering::Relaxed).min(self.record_bytes);
        // Superseded and expired fall on the same records as chance has it.
        (fresh as u128 * (self.record_bytes - superseded) as u128 / self.record_bytes.max(1) as u128) as u64
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of::<Segment>() - size_of::<Fences>() + self.fences.bytes()) as u64
    }
}

/// What a number means.
#[derive(Clone)]
pub(crate) enum Place {
    /// A segment in memory.
    Memory(Arc<Buffer>),
    /// A segment on the device.
    Flash(Arc<Segment>),
}

impl Place {
    /// Age.
    pub(crate) fn sequence(&self) -> u64 {
        match self {
            Place::Memory(buffer) => buffer.sequence,
            Place::Flash(segment) => segment.sequence(),
        }
    }
}

/// The directory.
pub(crate) struct Directory {
    places: Box<[ArcSwapOption<Place>]>,
    /// Goes up before anything is not where it was. See [`Directory::changes`].
    changes: AtomicU64,
    /// Extents segments in memory, and those on the device by zone and page.
    extents: ArcSwap<Extents>,
}

/// Extents segments.
#[derive(Clone, Default)]
pub(crate) struct Extents {
    /// In memory, oldest first.
    pub(crate) buffers: Vec<Arc<Buffer>>,
    /// On the device, by zone and first page.
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl Extents {
    /// The segment that has data in this page of a zone.
    pub(crate) fn at(&self, zone: ZoneId, page: u32) -> Option<&Arc<Segment>> {
        let after = self
            .segments
            .partition_point(|segment| (segment.zone(), segment.run.first_data_page) <= (zone, page));
        let segment = &self.segments[after.checked_sub(1)?];
        let run = &segment.run;
        (run.zone == zone && page - run.first_data_page < run.data_pages).then_some(segment)
    }
}

impl Directory {
    /// For numbers up to `id_max`.
    pub(crate) fn new(id_max: u16) -> Directory {
        Directory {
            places: (0..=id_max).map(|_| ArcSwapOption::empty()).collect(),
            changes: AtomicU64::new(0),
            extents: ArcSwap::default(),
        }
    }

    /// What a number means; `None` if it has lost its meaning.
    pub(crate) fn get(&self, id: u16) -> Option<Arc<Place>> {
        self.places.get(id as usize)?.load_full()
    }

    /// Gives a number a meaning.
    pub(crate) fn set(&self, id: u16, place: Place) {
        self.places[id as usize].store(Some(Arc::new(place)));
    }

    /// Takes it back.
    pub(crate) fn forget(&self, id: u16) {
        self.moves();
        self.places[id as usize].store(None);
    }

    /// Something goes: a number loses its meaning, or an extent leaves its buffer or the extent table. Called when whatever
    /// takes its place is there and before it goes.
    pub(crate) fn moves(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Who reads this, then the log table, then what the numbers mean, and then this again and finds it the same, has seen
    /// numbers that all meant what they did when they were put in: none was given to a newer segment in between, and
    /// nothing of an older one had moved on unseen. The same holds of extents, which are in a buffer or in the extent table: who
    /// found one in neither, and this the same before and after, would not have found it anywhere.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Extents segments.
    pub(crate) fn extents(&self) -> arc_swap::Guard<Arc<Extents>> {
        self.extents.load()
    }

    /// Changes them; under the append lock.
    pub(crate) fn change_extents(&self, change: impl FnOnce(&mut Extents)) {
        let mut extents = Extents::clone(&self.extents.load());
        change(&mut extents);
        extents.segments.sort_by_key(|segment| (segment.zone(), segment.run.first_data_page));
        self.extents.store(Arc::new(extents));
    }

    /// Bytes of memory of the directory itself.
    pub(crate) fn bytes(&self) -> u64 {
        Directory::bytes_for(self.places.len() as u64)
    }

    /// The same for so many numbers.
    pub(crate) fn bytes_for(ids: u64) -> u64 {
        ids * (size_of::<ArcSwapOption<Place>>() + size_of::<Place>() + 16) as u64
    }
}
