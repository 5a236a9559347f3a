//! A segment while it fills, and until it is durable (the sources' mslab).

use crate::page::PAYLOAD_BYTES;
use crate::record::{Decoded, Record};
use crate::segment::{Kind, foot_pages_max};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A chain's end.
const NONE: u32 = u32::MAX;
/// In an entry's place: a newer version of the key, or its tombstone, is behind it.
const DEAD: u32 = 1 << 31;
/// An entry is provided for every so many bytes of records.
const BYTES_PER_ENTRY: usize = 48;

struct Entry {
    hash: u64,
    /// Where the record begins, and [`DEAD`], which may come while the segment is being written.
    at: AtomicU32,
    /// The next older entry of the chain.
    next: u32,
}

/// How large buffers are. The same for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferShape {
    /// Pages that the segment may take on the device, head and foot included.
    pub(crate) segment_pages: u32,
}

impl BufferShape {
    fn record_bytes(self) -> usize {
        (self.segment_pages as usize).saturating_sub(2) * PAYLOAD_BYTES
    }

    /// Records that it takes at most.
    pub(crate) fn entries(self) -> usize {
        (self.record_bytes() / BYTES_PER_ENTRY).max(16)
    }

    fn chains(self) -> usize {
        (self.entries() / 2).next_power_of_two()
    }

    /// Bytes of memory of one buffer.
    pub(crate) fn bytes(self) -> u64 {
        (self.record_bytes() + self.entries() * size_of::<Entry>() + self.chains() * 4) as u64
    }

    /// Bytes of records that are sure to fit, whatever they are.
    pub(crate) fn record_bytes_max(self) -> usize {
        self.record_bytes() / 2
    }
}

/// The memory of a buffer. It never grows: all of it is there from the beginning.
pub(crate) struct Content {
    shape: BufferShape,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// First entry of each chain.
    heads: Box<[u32]>,
    superseding: u32,
    dead: AtomicU32,
}

impl Entry {
    fn is_live(&self) -> bool {
        self.at.load(Ordering::SeqCst) & DEAD == 0
    }
}

/// What came of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// Nothing of the key was here.
    New,
    /// It replaced an older version.
    Replaced,
    /// There is no room.
    Full,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// What it is found under.
    pub(crate) hash: u64,
    /// The key.
    pub(crate) key: &'a [u8],
    /// CAS number of the version, for parts from 1.
    pub(crate) cas: u64,
    /// Which part; 0 is the item.
    pub(crate) part: u32,
}

impl<'a> Wanted<'a> {
    /// The one that a record is a version of.
    pub(crate) fn of(hash: u64, record: &Record<'a>) -> Wanted<'a> {
        Wanted { hash, key: record.key, cas: record.cas, part: record.part.map_or(0, |part| part.number) }
    }
}

impl Content {
    /// An empty one.
    pub(crate) fn new(shape: BufferShape) -> Content {
        Content {
            shape,
            bytes: Vec::with_capacity(shape.record_bytes()),
            entries: Vec::with_capacity(shape.entries()),
            heads: vec![NONE; shape.chains()].into(),
            superseding: 0,
            dead: AtomicU32::new(0),
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.heads.fill(NONE);
        (self.superseding, self.dead) = (0, AtomicU32::new(0));
    }

    fn chain(&self, hash: u64) -> usize {
        (hash >> 7) as usize & (self.heads.len() - 1)
    }

    fn position(&self, wanted: &Wanted<'_>, cas_base: u64) -> Option<usize> {
        let mut index = self.heads[self.chain(wanted.hash)];
        while index != NONE {
            let entry = &self.entries[index as usize];
            if entry.hash == wanted.hash
                && entry.is_live()
                && self
                    .record(entry, cas_base)
                    .is_some_and(|record| record.is(wanted.key, wanted.cas, wanted.part))
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

    /// The newest version.
    pub(crate) fn find(&self, wanted: &Wanted<'_>, cas_base: u64) -> Option<Record<'_>> {
        self.record(&self.entries[self.position(wanted, cas_base)?], cas_base)
    }

    /// Whether something under this hash is newest.
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

    /// The newest version is none any more; false if there was none.
    pub(crate) fn kill(&self, wanted: &Wanted<'_>, cas_base: u64) -> bool {
        match self.position(wanted, cas_base) {
            Some(index) => {
                self.entries[index].at.fetch_or(DEAD, Ordering::SeqCst);
                self.dead.fetch_add(1, Ordering::SeqCst);
                true
            }
            None => false,
        }
    }

    /// Whether one more record fits. A sixteenth of the room is for tombstones only, unless `all` says otherwise.
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
        let replaced = self.kill(&Wanted::of(hash, record), cas_base);
        let at = self.bytes.len() as u32;
        record.encode(cas_base, &mut self.bytes);
        let chain = self.chain(hash);
        let next = std::mem::replace(&mut self.heads[chain], self.entries.len() as u32);
        self.entries.push(Entry { hash, at: AtomicU32::new(at), next });
        self.superseding += record.supersedes_extent as u32;
        if replaced { Pushed::Replaced } else { Pushed::New }
    }

    /// Whether nothing was pushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records that are newest versions.
    pub(crate) fn live(&self) -> u32 {
        self.entries.len() as u32 - self.dead.load(Ordering::SeqCst)
    }

    /// Live records in the order in which a segment of this kind has them. Takes four bytes a record.
    pub(crate) fn order(&self, kind: Kind) -> Vec<u32> {
        let mut order: Vec<u32> = Vec::with_capacity(self.live() as usize);
        order.extend((0..self.entries.len() as u32).filter(|index| self.is_live(*index)));
        if kind != Kind::Extents {
            order.sort_unstable_by_key(|index| self.entries[*index as usize].hash);
        }
        order
    }

    /// Whether a record is the newest version of its key.
    pub(crate) fn is_live(&self, index: u32) -> bool {
        self.entries[index as usize].is_live()
    }

    /// A record, and what it is found under.
    pub(crate) fn at(&self, index: u32, cas_base: u64) -> Option<(u64, Record<'_>)> {
        let entry = &self.entries[index as usize];
        Some((entry.hash, self.record(entry, cas_base)?))
    }

    /// Pages that the segment takes, at most.
    pub(crate) fn segment_pages(&self, kind: Kind) -> u32 {
        let data_pages = self.bytes.len().div_ceil(PAYLOAD_BYTES) as u32;
        let count = self.entries.len() as u32;
        let (hashes, extents) = if kind == Kind::Extents { (0, count) } else { (count, 0) };
        1 + data_pages + foot_pages_max(data_pages, hashes, self.superseding, extents)
    }
}

/// A segment in memory.
pub(crate) struct Buffer {
    /// Its number in the log table; 0 for extents.
    pub(crate) id: u16,
    /// When it was opened.
    pub(crate) sequence: u64,
    /// What it holds.
    pub(crate) kind: Kind,
    /// What its CAS numbers count from.
    pub(crate) cas_base: u64,
    /// When it was opened, unix seconds.
    pub(crate) begun_unix_s: u32,
    /// See [`crate::segment::Head`]; `u64::MAX` while it is open.
    sealed_sequence: AtomicU64,
    /// `None` once the segment is durable, or dropped: look again.
    content: RwLock<Option<Content>>,
}

impl Buffer {
    /// Empty.
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
        Buffer { id, sequence, kind, cas_base, begun_unix_s, sealed_sequence, content }
    }

    /// It takes no more; the next segment that is opened has this sequence or a higher one.
    pub(crate) fn seal(&self, sealed_sequence: u64) {
        self.sealed_sequence.store(sealed_sequence, Ordering::SeqCst);
    }

    /// See [`Buffer::seal`].
    pub(crate) fn sealed_sequence(&self) -> u64 {
        self.sealed_sequence.load(Ordering::SeqCst)
    }

    /// To read.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Option<Content>> {
        self.content.read().expect("no panic under this lock")
    }

    /// To push, under the append lock, while it is open; to take the memory back once it is written.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Option<Content>> {
        self.content.write().expect("no panic under this lock")
    }
}
