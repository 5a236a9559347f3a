//! A segment while it is filled in memory, and until it is durable (the sources' mslab).
//!
//! ```text
//!  Buffer    id, sequence, kind ...        fixed when the buffer is opened
//!            content: RwLock<Option<..>>   None once the segment is durable or dropped
//!
//!  Content   bytes     | record | record | record | ...                 in order of arrival
//!            entries   | hash, offset, next | hash, offset, next | ...  one for each record
//!            heads     first entry of each hash chain
//! ```
//!
//! Lock: `content`. Written under the append lock, which comes before it; read by every lookup. The writer of
//! segments holds a read lock on a sealed buffer while it takes the append lock. That is safe, because only the
//! writer itself takes the write lock of a sealed buffer.

use crate::page::PAYLOAD_BYTES;
use crate::record::{Decoded, Record};
use crate::segment::{Kind, foot_pages_max};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// A bit beside an entry's offset: the record is not the newest version of its key any more.
const DEAD: u32 = 1 << 31;
/// There is one entry for 48 bytes of records.
const BYTES_PER_ENTRY: usize = 48;

struct Entry {
    hash: u64,
    /// Offset of the record in `bytes`, and [`DEAD`], which may be set while the segment is being written.
    at: AtomicU32,
    /// The next older entry of the chain.
    next: u32,
}

/// The size of a buffer. All buffers have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferShape {
    /// Pages that the segment takes on the device at most, head and foot included.
    pub(crate) segment_pages: u32,
}

impl BufferShape {
    /// Bytes of records that fit at most.
    pub(crate) fn record_bytes(self) -> usize {
        (self.segment_pages as usize).saturating_sub(2) * PAYLOAD_BYTES
    }

    /// How many records fit at most.
    pub(crate) fn entries(self) -> usize {
        (self.record_bytes() / BYTES_PER_ENTRY).max(16)
    }

    fn chains(self) -> usize {
        (self.entries() / 2).next_power_of_two()
    }

    /// Memory of one buffer, bytes.
    pub(crate) fn bytes(self) -> u64 {
        (self.record_bytes() + self.entries() * size_of::<Entry>() + self.chains() * 4) as u64
    }

    /// Whether an extent of this length fits into an empty buffer.
    pub(crate) fn takes_extent(self, bytes: usize) -> bool {
        let data_pages = bytes.div_ceil(PAYLOAD_BYTES) as u32;
        let pages = 1 + data_pages + foot_pages_max(data_pages, 0, 0, 1);
        bytes <= self.record_bytes() && pages <= self.segment_pages
    }

    /// Length of records that fit into an empty buffer in any case, bytes.
    pub(crate) fn record_bytes_max(self) -> usize {
        self.record_bytes() / 2
    }
}

/// The memory of a buffer. It is allocated once, and never grows.
pub(crate) struct Content {
    shape: BufferShape,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// First entry of each chain.
    heads: Box<[u32]>,
    /// Records that say that they supersede an extent.
    superseding: u32,
    dead: AtomicU32,
    /// Live records that are tombstones, or later parts of long values.
    others: AtomicU32,
}

/// Whether a record is no item: a tombstone, or a later part of a long value.
fn is_other(record: &Record<'_>) -> bool {
    record.tombstone || record.part.is_some_and(|part| part.number > 0)
}

impl Entry {
    fn is_live(&self) -> bool {
        self.at.load(Ordering::SeqCst) & DEAD == 0
    }
}

/// The outcome of [`Content::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// The buffer had no version of the key.
    New,
    /// The record replaced an older version in the buffer.
    Replaced,
    /// There is no room for the record.
    Full,
}

/// What a lookup looks for: a version of a key, or one part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// The hash that the record is found under.
    pub(crate) hash: u64,
    /// The key.
    pub(crate) key: &'a [u8],
    /// CAS number of the version. It counts only for parts from 1 on.
    pub(crate) cas: u64,
    /// Number of the part; 0 is the item itself.
    pub(crate) part: u32,
}

impl<'a> Query<'a> {
    /// The query that finds a record.
    pub(crate) fn of(hash: u64, record: &Record<'a>) -> Query<'a> {
        Query { hash, key: record.key, cas: record.cas, part: record.part.map_or(0, |part| part.number) }
    }
}

impl Content {
    /// Memory for a segment, empty.
    pub(crate) fn new(shape: BufferShape) -> Content {
        Content {
            shape,
            bytes: Vec::with_capacity(shape.record_bytes()),
            entries: Vec::with_capacity(shape.entries()),
            heads: vec![NONE; shape.chains()].into(),
            superseding: 0,
            dead: AtomicU32::new(0),
            others: AtomicU32::new(0),
        }
    }

    /// Removes all records.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.heads.fill(NONE);
        (self.superseding, self.dead, self.others) = (0, AtomicU32::new(0), AtomicU32::new(0));
    }

    fn chain(&self, hash: u64) -> usize {
        (hash >> 7) as usize & (self.heads.len() - 1)
    }

    /// The number of the entry that a query finds.
    fn position(&self, query: &Query<'_>, cas_base: u64) -> Option<usize> {
        let mut index = self.heads[self.chain(query.hash)];
        while index != NONE {
            let entry = &self.entries[index as usize];
            if entry.hash == query.hash
                && entry.is_live()
                && self
                    .record(entry, cas_base)
                    .is_some_and(|record| record.is(query.key, query.cas, query.part))
            {
                return Some(index as usize);
            }
            index = entry.next;
        }
        None
    }

    fn record(&self, entry: &Entry, cas_base: u64) -> Option<Record<'_>> {
        match Record::decode(self.bytes.get((entry.at.load(Ordering::SeqCst) & !DEAD) as usize..)?, cas_base)
        {
            Decoded::Whole(record, _) => Some(record),
            Decoded::Short => None,
        }
    }

    /// The newest version of a key.
    pub(crate) fn find(&self, query: &Query<'_>, cas_base: u64) -> Option<Record<'_>> {
        self.record(&self.entries[self.position(query, cas_base)?], cas_base)
    }

    /// Whether the newest version of some key is here under this hash.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let mut index = self.heads[self.chain(hash)];
        while index != NONE {
            let entry = &self.entries[index as usize];
            if entry.hash == hash && entry.is_live() {
                return true;
            }
            index = entry.next;
        }
        false
    }

    /// Marks the newest version of a key as dead; `false` if there is none here.
    pub(crate) fn kill(&self, query: &Query<'_>, cas_base: u64) -> bool {
        match self.position(query, cas_base) {
            Some(index) => {
                let is_other =
                    self.record(&self.entries[index], cas_base).is_some_and(|record| is_other(&record));
                self.others.fetch_sub(is_other.into(), Ordering::SeqCst);
                self.entries[index].at.fetch_or(DEAD, Ordering::SeqCst);
                self.dead.fetch_add(1, Ordering::SeqCst);
                true
            }
            None => false,
        }
    }

    /// Whether one more record fits. The last sixteenth is kept for tombstones; `all` allows it to any record.
    fn has_room(&self, kind: Kind, bytes: usize, supersedes: bool, all: bool) -> bool {
        let count = self.entries.len() + 1;
        let bytes = self.bytes.len() + bytes;
        if count > self.shape.entries() || bytes > self.shape.record_bytes() {
            return false;
        }
        let data_pages = bytes.div_ceil(PAYLOAD_BYTES) as u32;
        let (hashes, extents) = if kind == Kind::Extents { (0, count) } else { (count, 0) };
        let superseding = self.superseding + supersedes as u32;
        let foot = foot_pages_max(data_pages, hashes as u32, superseding, extents as u32);
        let spare = |of: usize| if all { 0 } else { of / 16 };
        1 + data_pages + foot + spare(self.shape.segment_pages as usize) as u32 <= self.shape.segment_pages
            && count + spare(self.shape.entries()) <= self.shape.entries()
    }

    /// Makes a record the newest version of its key.
    pub(crate) fn push(
        &mut self,
        kind: Kind,
        hash: u64,
        record: &Record<'_>,
        cas_base: u64,
        all: bool,
    ) -> Pushed {
        if !self.has_room(kind, record.encoded_bytes(cas_base), record.supersedes_extent, all) {
            return Pushed::Full;
        }
        let replaced = self.kill(&Query::of(hash, record), cas_base);
        let at = self.bytes.len() as u32;
        record.encode(cas_base, &mut self.bytes);
        let chain = self.chain(hash);
        let next = std::mem::replace(&mut self.heads[chain], self.entries.len() as u32);
        self.entries.push(Entry { hash, at: AtomicU32::new(at), next });
        self.superseding += record.supersedes_extent as u32;
        *self.others.get_mut() += u32::from(is_other(record));
        if replaced { Pushed::Replaced } else { Pushed::New }
    }

    /// Bytes of records that fit, but for the part that is kept for tombstones.
    pub(crate) fn bytes_left(&self) -> u64 {
        let most = self.shape.record_bytes();
        (most - most / 16).saturating_sub(self.bytes.len()) as u64
    }

    /// Whether there is no record, not even a dead one.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many live records are items.
    pub(crate) fn live_items(&self) -> u32 {
        self.live().saturating_sub(self.others.load(Ordering::SeqCst))
    }

    /// How many records there are, dead ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many records are the newest version of their key.
    pub(crate) fn live(&self) -> u32 {
        self.entries.len() as u32 - self.dead.load(Ordering::SeqCst)
    }

    /// Numbers of the live records, in the order in which a segment of this kind has them. Takes four bytes a record.
    pub(crate) fn order(&self, kind: Kind) -> Vec<u32> {
        let mut order: Vec<u32> = Vec::with_capacity(self.live() as usize);
        order.extend((0..self.entries.len() as u32).filter(|index| self.is_live(*index)));
        if kind != Kind::Extents {
            order.sort_unstable_by_key(|index| self.entries[*index as usize].hash);
        }
        order
    }

    /// Whether the record of this number is the newest version of its key.
    pub(crate) fn is_live(&self, index: u32) -> bool {
        self.entries[index as usize].is_live()
    }

    /// The record of this number, and the hash that it is found under.
    pub(crate) fn at(&self, index: u32, cas_base: u64) -> Option<(u64, Record<'_>)> {
        let entry = &self.entries[index as usize];
        Some((entry.hash, self.record(entry, cas_base)?))
    }

    /// Pages that the segment takes on the device at most.
    pub(crate) fn segment_pages(&self, kind: Kind) -> u32 {
        let data_pages = self.bytes.len().div_ceil(PAYLOAD_BYTES) as u32;
        let count = self.entries.len() as u32;
        let (hashes, extents) = if kind == Kind::Extents { (0, count) } else { (count, 0) };
        1 + data_pages + foot_pages_max(data_pages, hashes, self.superseding, extents)
    }
}

/// A segment in memory.
pub(crate) struct Buffer {
    /// The segment's number in the log table; 0 for extents.
    pub(crate) id: u16,
    /// The segment's sequence: its age among all segments.
    pub(crate) sequence: u64,
    /// What the segment holds.
    pub(crate) kind: Kind,
    /// The number that the CAS numbers of its records count from.
    pub(crate) cas_base: u64,
    /// When the buffer was opened, unix seconds.
    pub(crate) begun_unix_s: u32,
    /// Items in it, and tombstones, that records in younger segments have replaced.
    superseded: [AtomicU32; 2],
    /// See [`crate::segment::Head`]; `u64::MAX` while the buffer is open.
    sealed_sequence: AtomicU64,
    /// `None` once the segment is durable or dropped: a lookup then looks for it elsewhere.
    content: RwLock<Option<Content>>,
}

impl Buffer {
    /// An empty buffer in the memory of `content`.
    pub(crate) fn new(
        id: u16,
        sequence: u64,
        kind: Kind,
        cas_base: u64,
        begun_unix_s: u32,
        content: Content,
    ) -> Buffer {
        debug_assert!(content.is_empty());
        let content = RwLock::new(Some(content));
        let sealed_sequence = AtomicU64::new(u64::MAX);
        let superseded = [AtomicU32::new(0), AtomicU32::new(0)];
        Buffer { id, sequence, kind, cas_base, begun_unix_s, superseded, sealed_sequence, content }
    }

    /// A record in a younger segment has replaced one in this. The caller holds the append lock.
    pub(crate) fn supersede_one(&self, is_tombstone: bool) {
        self.superseded[is_tombstone as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many items in it, and how many tombstones, records in younger segments have replaced.
    pub(crate) fn superseded(&self) -> (u32, u32) {
        let [items, tombstones] = &self.superseded;
        (items.load(Ordering::Relaxed), tombstones.load(Ordering::Relaxed))
    }

    /// No more records are appended. The next segment has this sequence or a higher one.
    pub(crate) fn seal(&self, sealed_sequence: u64) {
        self.sealed_sequence.store(sealed_sequence, Ordering::SeqCst);
    }

    /// See [`Buffer::seal`].
    pub(crate) fn sealed_sequence(&self) -> u64 {
        self.sealed_sequence.load(Ordering::SeqCst)
    }

    /// Whether no more records are appended.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed_sequence() != u64::MAX
    }

    /// The content, to look for records.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Option<Content>> {
        self.content.read().expect("no panic under this lock")
    }

    /// The content, to append records while the buffer is open, or to take the memory back when it is written. The
    /// caller holds the append lock.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Option<Content>> {
        self.content.write().expect("no panic under this lock")
    }
}
