//! Reading a record.
//!
//! The bytes of an [`Item`] do not change while its guard lives, except word 0, the expiry and the extension, which are
//! read and written atomically:
//!
//! * The bytes were written before the location was published, and the reader got the location through an Acquire
//!   load that pairs with that publication.
//! * They are written again only after the column was retired and every reader that was online at that time
//!   announced a quiescent point. The guard borrows its reader, and announcing takes the reader mutably.

use super::Inner;
use crate::column::Column;
use crate::memory_options::DICTIONARIES_MAX;
use crate::prefetch::prefetch_read;
use larder_item::{
    Expiry, Extension, HEADER_BYTES, HEADER_WORDS_BYTES, Header, Kind, Location, State, UNIT_BYTES,
    VALUE_LENGTH_MAX, ValueLayout, checksum,
};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// A last access younger than this many seconds is not rewritten.
pub const LAST_ACCESS_STALE_S: u32 = 60;

/// Words that the field of each value layout takes: inline, apart, chunked, chunk.
const LAYOUT_WORDS: [usize; 4] = [0, 1, 3, 1];

/// Offset of the key in a record, in bytes. The index is made of bits 23..=18 of header word 1 (layout, flags, CAS
/// form, extension) and, below them, bit 3 (expiry).
const KEY_OFFSETS: [u8; 128] = {
    let mut offsets = [0; 128];
    let mut bits = 0;
    while bits < 128 {
        // There is no fourth form of a CAS number.
        let cas = if bits >> 2 & 3 == 3 { 2 } else { bits >> 2 & 3 };
        // An extension stands behind an expiry only.
        let one_word_each = (bits & 1) + (bits & bits >> 1 & 1) + (bits >> 4 & 1);
        let fields = one_word_each + cas + LAYOUT_WORDS[bits >> 5];
        offsets[bits] = (HEADER_BYTES + 4 * fields) as u8;
        bits += 1;
    }
    offsets
};
/// In word 1: an expiry word follows; an extension follows it, or without an expiry word the value is compressed.
const EXPIRY_BIT: u32 = 1 << 3;
const EXTENSION_BIT: u32 = 1 << 18;
const EXTENSION_BITS: u32 = EXTENSION_BIT | EXPIRY_BIT;
/// In word 1: the layout of the value.
const LAYOUT_BITS: u32 = (ValueLayout::Chunk as u32) << 22;

/// Bytes of the last part of the header, right before the key.
const HEADER_LAST_BYTES: usize = HEADER_BYTES - HEADER_WORDS_BYTES;

/// How often a reader looks again at an expiry that is being changed. A writer needs a few nanoseconds between its two
/// stores, unless the machine takes its CPU away.
const LOOKS_MAX: u32 = 1000;

/// A record, readable for as long as a guard protects its bytes.
#[derive(Clone, Copy)]
pub struct Item<'g> {
    record: *const u8,
    /// Header word 1.
    word: u32,
    /// Offset of the key in the record, in bytes.
    key_at: u32,
    /// Offset of the record in its column, and the size of the column, in bytes.
    in_column: u32,
    column_bytes: u32,
    inner: &'g Inner,
    bytes: PhantomData<&'g [u8]>,
}

/// The value of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'g> {
    /// The whole value.
    Whole(&'g [u8]),
    /// What the whole value was compressed to.
    Compressed(Compressed<'g>),
    /// A chain of chunks.
    Chunked {
        /// Bytes of the whole value.
        total: u32,
        /// The location of the first chunk.
        first: Location,
    },
}

/// A value that is stored compressed. What this crate stores of it begins with three bytes:
///
/// ```text
///  23      16 15 14 13          0
/// +----------+-----+-------------+
/// |dictionary|  0  | plain bytes |   frame...
/// +----------+-----+-------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressed<'g> {
    /// Bytes of the value, at most [`VALUE_LENGTH_MAX`].
    pub plain_bytes: u32,
    /// The number of the dictionary, below [`DICTIONARIES_MAX`].
    pub dictionary: u8,
    /// All that is stored: the prefix, and what the compressor made of the value.
    pub stored: &'g [u8],
}

impl<'g> Compressed<'g> {
    /// Bytes before the frame.
    pub const PREFIX_BYTES: usize = 3;

    /// What stands before the frame of a value of at most [`VALUE_LENGTH_MAX`] bytes.
    pub fn prefix(plain_bytes: usize, dictionary: u8) -> [u8; 3] {
        let [low, high, ..] = plain_bytes.to_le_bytes();
        [low, high, dictionary]
    }

    /// What is stored, read. If it is shorter than a prefix, nobody wrote it, and it is the empty value.
    pub fn read(stored: &'g [u8]) -> Compressed<'g> {
        let [low, high, dictionary] = stored.first_chunk().copied().unwrap_or_default();
        let plain_bytes = u32::from_le_bytes([low, high, 0, 0]) & VALUE_LENGTH_MAX as u32;
        Compressed { plain_bytes, dictionary: dictionary & (DICTIONARIES_MAX - 1), stored }
    }

    /// What the compressor made of the value.
    pub fn frame(&self) -> &'g [u8] {
        self.stored.get(Self::PREFIX_BYTES..).unwrap_or_default()
    }
}

/// What an earlier process left of a record in a kept memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remains {
    /// It counts, and its bytes are as they were written.
    Whole,
    /// It does not count: it was replaced, deleted or moved, or was not ready.
    Over,
    /// Its bytes are not those that were written.
    Damaged,
}

impl<'g> Item<'g> {
    /// # Safety
    /// `record` lies in the arena of `inner`, whose columns have `column_bytes` bytes. It is `in_column` bytes
    /// after the start of its column, at least [`HEADER_BYTES`] before its end, and on a multiple of 4. No byte of
    /// the record and its value is written during `'g`, except atomically.
    #[inline(always)]
    pub(super) unsafe fn new(
        record: *const u8,
        in_column: u32,
        column_bytes: u32,
        inner: &'g Inner,
    ) -> Item<'g> {
        // SAFETY: the header lies inside the column, aligned, and is not written during 'g.
        let word = unsafe { record.cast::<u32>().add(1).read() };
        let key_at = KEY_OFFSETS[(word >> 17 & 0b111_1110 | word >> 3 & 1) as usize].into();
        Item { record, word, key_at, in_column, column_bytes, inner, bytes: PhantomData }
    }

    #[inline(always)]
    fn key_length(&self) -> usize {
        (self.word >> 24) as usize
    }

    #[inline(always)]
    fn value_length(&self) -> usize {
        (self.word >> 4) as usize & VALUE_LENGTH_MAX
    }

    #[inline(always)]
    fn has_expiry(&self) -> bool {
        self.word & EXPIRY_BIT != 0
    }

    /// Whether the record has an extension word. The bit of a record without an expiry word means another thing.
    #[inline(always)]
    fn has_extension(&self) -> bool {
        self.word & EXTENSION_BITS == EXTENSION_BITS
    }

    /// Whether the value is stored compressed.
    #[inline(always)]
    pub fn is_compressed(&self) -> bool {
        match self.word & EXTENSION_BITS {
            0 | EXPIRY_BIT => false,
            EXTENSION_BIT => true,
            _ => self.lasting_extension().is_compressed,
        }
    }

    /// What the extension says of the value, if there is one.
    fn lasting_extension(&self) -> Extension {
        let word = self.extension_word().map_or(0, |word| word.load(Ordering::Relaxed));
        Extension::unpack_lasting(word)
    }

    #[inline(always)]
    fn has_flags(&self) -> bool {
        self.word >> 21 & 1 != 0
    }

    /// Whether the value is stored behind the key.
    #[inline(always)]
    fn is_inline(&self) -> bool {
        self.word & LAYOUT_BITS == 0
    }

    /// Where the value is stored.
    #[inline(always)]
    pub fn value_layout(&self) -> ValueLayout {
        match self.word >> 22 & 3 {
            0 => ValueLayout::Inline,
            1 => ValueLayout::Apart,
            2 => ValueLayout::Chunked,
            _ => ValueLayout::Chunk,
        }
    }

    #[inline(always)]
    fn key_offset(&self) -> usize {
        self.key_at as usize
    }

    /// `length` bytes of the record from `offset`. `None` if they would leave the column.
    #[inline(always)]
    fn bytes_at(&self, offset: usize, length: usize) -> Option<&'g [u8]> {
        if self.in_column as usize + offset + length > self.column_bytes as usize {
            return None;
        }
        // SAFETY: inside the column by the comparison. Not written during 'g, by the promise of `new`.
        Some(unsafe { std::slice::from_raw_parts(self.record.add(offset), length) })
    }

    /// `length` bytes of the record from `offset`. Empty if they would leave the column.
    #[inline(always)]
    fn slice(&self, offset: usize, length: usize) -> &'g [u8] {
        self.bytes_at(offset, length).unwrap_or_default()
    }

    /// `length` bytes of the column from `start`. Empty if they would leave the column.
    #[inline(always)]
    fn slice_apart(&self, start: u32, length: usize) -> &'g [u8] {
        if start as usize + length > self.column_bytes as usize {
            return &[];
        }
        let column = self.record.wrapping_sub(self.in_column as usize);
        // SAFETY: inside the column by the comparison. Not written during 'g, by the promise of `new`.
        unsafe { std::slice::from_raw_parts(column.add(start as usize), length) }
    }

    /// The 32-bit field `word` words into the record. 0 if it would leave the column.
    #[inline(always)]
    fn word_at(&self, word: usize) -> u32 {
        self.slice(4 * word, 4).try_into().map_or(0, u32::from_ne_bytes)
    }

    #[inline(always)]
    fn long_word_at(&self, word: usize) -> u64 {
        self.slice(4 * word, 8).try_into().map_or(0, u64::from_ne_bytes)
    }

    /// Number of words before the last 16 bits of the header. The last of them are the fields of the value layout.
    #[inline(always)]
    fn words_before_key(&self) -> usize {
        (self.key_offset() - HEADER_LAST_BYTES) / 4
    }

    /// The check word of a record in a kept memory, which is before the record.
    #[inline]
    fn check_word(&self) -> Option<&'g AtomicU32> {
        if self.in_column < self.inner.check_bytes || self.inner.check_bytes == 0 {
            return None;
        }
        // SAFETY: the word is inside the column by the comparison, aligned as the record is, and accessed only
        // atomically: a column of a kept memory has a check word before each record.
        Some(unsafe { AtomicU32::from_ptr(self.record.cast_mut().sub(4).cast()) })
    }

    /// The checksum of what does not change of the record and its value, and of the use of its column: what an earlier
    /// use of the column left is not taken for a record.
    fn checksum(&self) -> u32 {
        let fixed = HEADER_WORDS_BYTES + 4 * (self.has_expiry() as usize + self.has_extension() as usize);
        let inline = if self.is_inline() { self.value_length() } else { 0 };
        let row = self.slice(fixed, self.key_offset() + self.key_length() + inline - fixed);
        let apart = match self.value_layout() {
            ValueLayout::Apart | ValueLayout::Chunk => self.stored_apart(),
            _ => &[],
        };
        // The extension itself may change.
        let form = u64::from(self.is_compressed());
        checksum(self.column().birth() ^ u64::from(self.word).rotate_left(32) ^ form << 63, [row, apart])
    }

    /// Writes the check word of a record that was placed a moment ago, which does not count yet.
    pub(super) fn prepare_check(&self) {
        if let Some(word) = self.check_word() {
            // The sum of a chunk is not known before its bytes are there.
            let is_chunk = self.value_layout() == ValueLayout::Chunk;
            word.store(if is_chunk { 0 } else { !self.checksum() }, Ordering::Relaxed);
        }
    }

    /// In a kept memory: the record counts from now on, also for a later process. The caller holds the writer bit of
    /// its bucket, and then takes the record that it replaces back by [`Item::revoke`]; or the record is a chunk that
    /// is complete. In other memory nothing happens.
    #[inline]
    pub fn commit(&self) {
        if let Some(word) = self.check_word() {
            let is_chunk = self.value_layout() == ValueLayout::Chunk;
            let sum = if is_chunk { self.checksum() } else { !word.load(Ordering::Relaxed) };
            // Release: a process that is killed has written the record if it has written this.
            word.store(sum, Ordering::Release);
        }
    }

    /// In a kept memory: the record does not count any more, also for a later process. The caller holds the writer bit
    /// of its bucket, and its entry is about to go. In other memory nothing happens.
    #[inline]
    pub fn revoke(&self) {
        if let Some(word) = self.check_word() {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// What an earlier process left of the record.
    pub fn remains(&self) -> Remains {
        let found = self.check_word().map_or(0, |word| word.load(Ordering::Acquire));
        match found {
            // Each record has a key.
            _ if self.key_length() == 0 => Remains::Damaged,
            0 => Remains::Over,
            _ => match self.checksum() {
                sum if sum == found => Remains::Whole,
                sum if sum == !found => Remains::Over,
                // A chunk is told from its chain.
                _ if self.value_layout() == ValueLayout::Chunk => Remains::Over,
                _ => Remains::Damaged,
            },
        }
    }

    /// Says whether the record of an earlier process lives. Most records say so already, and are not written to.
    pub fn set_alive(&self, lives: bool) {
        match (lives, self.state().has(State::DEAD)) {
            (true, true) => drop(self.clear_state_bits(State::DEAD)),
            (false, false) => drop(self.set_state_bits(State::DEAD)),
            _ => {}
        }
    }

    /// Says that the record of an earlier process lives, where its column counts it as dead. Returns its bytes.
    pub fn live_again(&self) -> u32 {
        self.set_alive(true);
        let bytes = self.bytes();
        self.column().live_again(bytes, self.expiry());
        bytes
    }

    /// The key. For a chunk, its bookkeeping.
    #[inline]
    pub fn key(&self) -> &'g [u8] {
        self.slice(self.key_offset(), self.key_length())
    }

    /// Whether this is the record of `key`. A chunk is the record of no key.
    #[inline(always)]
    pub fn key_matches(&self, key: &[u8]) -> bool {
        if self.key_length() != key.len() || self.value_layout() == ValueLayout::Chunk {
            return false;
        }
        self.bytes_at(self.key_offset(), key.len()).is_some_and(|own| bytes_equal(own, key))
    }

    /// The value.
    #[inline(always)]
    pub fn value(&self) -> Value<'g> {
        self.plain_value().map_or_else(|| self.unusual_value(), Value::Whole)
    }

    /// The value of the most frequent kind of item: it stands behind its key, and the record has no extension.
    #[inline(always)]
    pub fn plain_value(&self) -> Option<&'g [u8]> {
        match self.word & (LAYOUT_BITS | EXTENSION_BIT) {
            0 => Some(self.stored_inline()),
            _ => None,
        }
    }

    #[inline(always)]
    fn stored_inline(&self) -> &'g [u8] {
        self.slice(self.key_offset() + self.key_length(), self.value_length())
    }

    fn stored_apart(&self) -> &'g [u8] {
        self.slice_apart(self.word_at(self.words_before_key() - 1), self.value_length())
    }

    #[inline(never)]
    fn unusual_value(&self) -> Value<'g> {
        let stored = match self.value_layout() {
            ValueLayout::Inline => self.stored_inline(),
            ValueLayout::Apart | ValueLayout::Chunk => self.stored_apart(),
            ValueLayout::Chunked => {
                let field = self.words_before_key() - 3;
                let first = Location::from_bits(self.long_word_at(field + 1));
                return Value::Chunked { total: self.word_at(field), first };
            }
        };
        if self.is_compressed() { Value::Compressed(Compressed::read(stored)) } else { Value::Whole(stored) }
    }

    /// Bytes of the whole value, wherever and however it is stored.
    #[inline]
    pub fn value_bytes(&self) -> u32 {
        if self.word & (LAYOUT_BITS | EXTENSION_BIT) == 0 {
            return self.value_length() as u32;
        }
        match self.unusual_value() {
            Value::Whole(value) => value.len() as u32,
            Value::Compressed(compressed) => compressed.plain_bytes,
            Value::Chunked { total, .. } => total,
        }
    }

    /// Prefetches the cache lines of the value behind the first two lines of the record, or the first four lines of
    /// a value apart. If the key is longer than 36 bytes, the last line of a value shorter than 64 bytes may not be
    /// prefetched.
    #[inline(always)]
    pub fn prefetch_value(&self) {
        const NOT_SHORT: u32 = (ValueLayout::Chunk as u32) << 22
            | (VALUE_LENGTH_MAX as u32 & !63) << 4
            | (u8::MAX as u32 & !63) << 24;
        if self.word & NOT_SHORT != 0 {
            self.prefetch_more();
        }
    }

    fn prefetch_more(&self) {
        let (start, end) = match self.value_layout() {
            ValueLayout::Inline => {
                let end = self.key_offset() + self.key_length() + self.value_length();
                (self.record.wrapping_add(128), end.saturating_sub(128))
            }
            ValueLayout::Apart | ValueLayout::Chunk => {
                let start = self.word_at(self.words_before_key() - 1) as usize;
                (self.record.wrapping_sub(self.in_column as usize).wrapping_add(start), self.value_length())
            }
            ValueLayout::Chunked => return,
        };
        for line in 0..end.div_ceil(64).min(4) {
            prefetch_read(start.wrapping_add(64 * line));
        }
    }

    /// The header, unpacked.
    #[inline]
    pub fn header(&self) -> Header {
        let last = self.slice(self.key_offset() - HEADER_LAST_BYTES, HEADER_LAST_BYTES);
        let last = last.try_into().map_or(0, u16::from_ne_bytes);
        Header::unpack(self.word, last, || self.word_at(self.words_before_cas()))
    }

    /// Number of words before the client's flags.
    #[inline]
    fn words_before_flags(&self) -> usize {
        HEADER_WORDS_BYTES / 4 + self.has_expiry() as usize + self.has_extension() as usize
    }

    /// Number of words before those of the CAS number.
    #[inline]
    fn words_before_cas(&self) -> usize {
        self.words_before_flags() + self.has_flags() as usize
    }

    /// Where the record begins.
    #[inline]
    pub fn location(&self) -> Location {
        Location::from_offset((self.record as usize - self.inner.arena.base() as usize) as u64)
    }

    /// The client's flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        if self.has_flags() { self.word_at(self.words_before_flags()) } else { 0 }
    }

    /// The CAS number.
    #[inline]
    pub fn cas(&self) -> u64 {
        let whole = || self.long_word_at(self.words_before_cas());
        self.header().cas.cas(self.column().cas_base(), whole)
    }

    /// The bookkeeping of the item's column.
    #[inline]
    fn column(&self) -> &'g Column {
        &self.inner.columns[(self.location().offset() >> self.inner.column_shift) as usize]
    }

    /// Bytes that the record and its value take in the column, a multiple of 4. The check word that a record has in a
    /// kept memory does not count.
    #[inline]
    pub fn bytes(&self) -> u32 {
        let unit = UNIT_BYTES as usize;
        let (row, value) = (self.key_offset() + self.key_length(), self.value_length());
        let bytes = match self.value_layout() {
            ValueLayout::Inline => (row + value).next_multiple_of(unit),
            ValueLayout::Chunked => row.next_multiple_of(unit),
            ValueLayout::Apart | ValueLayout::Chunk => {
                row.next_multiple_of(unit) + value.next_multiple_of(unit)
            }
        };
        bytes as u32
    }

    #[inline(always)]
    fn state_word(&self) -> &'g AtomicU32 {
        // SAFETY: word 0 is inside the column and aligned, is accessed only atomically once it is published, and
        // lives as long as the arena, which outlives 'g.
        unsafe { AtomicU32::from_ptr(self.record.cast_mut().cast()) }
    }

    #[inline(always)]
    fn expiry_word(&self) -> Option<&'g AtomicU32> {
        if !self.has_expiry() || self.in_column as usize + HEADER_WORDS_BYTES + 4 > self.column_bytes as usize
        {
            return None;
        }
        // SAFETY: as for word 0. The header says that the word behind it is the expiry.
        Some(unsafe { AtomicU32::from_ptr(self.record.cast_mut().add(HEADER_WORDS_BYTES).cast()) })
    }

    #[inline]
    fn extension_word(&self) -> Option<&'g AtomicU32> {
        if !self.has_extension()
            || self.in_column as usize + HEADER_WORDS_BYTES + 8 > self.column_bytes as usize
        {
            return None;
        }
        // SAFETY: as for word 0. The header says that the word behind the expiry is the extension.
        Some(unsafe { AtomicU32::from_ptr(self.record.cast_mut().add(HEADER_WORDS_BYTES + 4).cast()) })
    }

    /// Whether the item may have expired at `now_s`, a reading of the server's clock that is at most a second old. A no
    /// is never wrong; where the answer is yes, [`Item::expiry`] says more.
    #[inline(always)]
    pub fn may_have_expired(&self, now_s: u32) -> bool {
        // 0 is never, and wraps around to a number that no clock reads.
        self.expiry_word().is_some_and(|word| word.load(Ordering::Relaxed).wrapping_sub(2) <= now_s)
    }

    /// When the item expires.
    #[inline]
    pub fn expiry(&self) -> Expiry {
        let Some(word) = self.expiry_word() else { return Expiry::NEVER };
        match self.extension_word() {
            None => Expiry::from_parts(word.load(Ordering::Relaxed), 0),
            Some(extension) => exact_expiry(word, extension),
        }
    }

    /// What the value is to clients of Redis.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.lasting_extension().kind
    }

    /// Changes the expiry in place, and counts the item's bytes by the new one in its column. Returns `false` if the
    /// record has no words for it. The caller then has to write the item anew. The caller sees to it that the item does
    /// not die meanwhile, and that nobody else changes the expiry. A chunk has no milliseconds: its owner has them.
    #[inline]
    pub fn set_expiry(&self, expiry: Expiry) -> bool {
        let Some(word) = self.expiry_word() else { return expiry == Expiry::NEVER };
        let (new_s, early_ms) = (expiry.seconds(), expiry.early_ms());
        let extension = self.extension_word();
        if early_ms != 0 && extension.is_none() && self.value_layout() != ValueLayout::Chunk {
            return false;
        }
        let old_s = word.swap(new_s, Ordering::Relaxed);
        if let Some(extension) = extension {
            let lasting = Extension::unpack_lasting(extension.load(Ordering::Relaxed));
            // Release pairs with the Acquire in `exact_expiry`: who sees this word sees the expiry word before it.
            extension.store(Extension { early_ms, ..lasting }.pack(new_s), Ordering::Release);
        }
        if old_s != new_s {
            let (column, bytes) = (self.column(), self.bytes());
            // In this order: bytes that are counted twice for a moment might be called expired.
            column.expires_no_more(Expiry::from_parts(old_s, 0), bytes);
            column.expires(Expiry::from_parts(new_s, 0), bytes);
        }
        true
    }

    /// The state bits and the time of the last access.
    #[inline]
    pub fn state(&self) -> State {
        State(self.state_word().load(Ordering::Relaxed))
    }

    /// Replaces the whole state of a record to which no index entry leads yet. Where other threads know the record, a
    /// change of theirs would be lost.
    #[inline]
    pub fn replace_state(&self, state: State) {
        self.state_word().store(state.0, Ordering::Relaxed);
    }

    /// Sets state bits and returns the state before. A caller that finds its bit clear in the result was the first
    /// to set it.
    #[inline]
    pub fn set_state_bits(&self, bits: u32) -> State {
        State(self.state_word().fetch_or(State(bits).bits(), Ordering::Relaxed))
    }

    /// Clears state bits and returns the state before.
    #[inline]
    pub fn clear_state_bits(&self, bits: u32) -> State {
        State(self.state_word().fetch_and(!State(bits).bits(), Ordering::Relaxed))
    }

    /// Records an access at `now_s`, unless the recorded one is younger than [`LAST_ACCESS_STALE_S`]. A hot item is
    /// therefore written once a minute. The update may be lost if it races with another access or a state bit,
    /// which is harmless.
    #[inline]
    pub fn touch_last_access(&self, now_s: u32) {
        let state = self.state();
        if state.idle_s(now_s) >= LAST_ACCESS_STALE_S {
            let new = State::at(now_s, state.bits()).0;
            // Only if the word is still what was read: a plain store could undo a state bit set in between.
            let _ = self.state_word().compare_exchange(state.0, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Records that the item was read. Only the first call writes.
    #[inline]
    pub fn mark_fetched(&self) {
        if !self.state().has(State::FETCHED) {
            self.set_state_bits(State::FETCHED);
        }
    }

    /// Records that no index entry leads to the record any more, and reports its death to its column. Returns its
    /// bytes. Each record dies exactly once. A change made by a reader at the same moment may be lost; nothing reads
    /// it any more.
    #[inline]
    pub fn die(&self) -> u32 {
        self.state_word().store(self.state().0 | State::DEAD, Ordering::Relaxed);
        let bytes = self.bytes();
        self.column().died(bytes, self.expiry());
        bytes
    }

    /// Copies expiry and state from `other`, of which this item is a copy that was made under the writer bit which the
    /// caller still holds: so the record has the words that the expiry needs.
    pub fn copy_state_from(&self, other: &Item<'_>) {
        self.state_word().store(other.state().0, Ordering::Relaxed);
        self.set_expiry(other.expiry());
    }
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item")
            .field("at", &self.location())
            .field("header", &self.header())
            .finish_non_exhaustive()
    }
}

/// The expiry of a record with an extension. A writer changes the expiry word and then the extension, which repeats
/// bits of the expiry: until they fit together the reader looks again. A writer that is interrupted between its two
/// stores for long makes its reader take the new second as it stands.
#[cold]
fn exact_expiry(expiry: &AtomicU32, extension: &AtomicU32) -> Expiry {
    for _ in 0..LOOKS_MAX {
        let word = extension.load(Ordering::Acquire);
        let at_s = expiry.load(Ordering::Relaxed);
        if at_s == 0 {
            return Expiry::NEVER;
        }
        if let Some(extension) = Extension::unpack(word, at_s) {
            return Expiry::from_parts(at_s, extension.early_ms);
        }
        std::hint::spin_loop();
    }
    Expiry::from_parts(expiry.load(Ordering::Relaxed), 0)
}

/// Compares two slices of the same length, most of which are 8 to 64 bytes long.
#[inline(always)]
fn bytes_equal(a: &[u8], b: &[u8]) -> bool {
    let long =
        |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let differ = |at: usize| long(a, at) ^ long(b, at);
    let length = a.len().min(b.len());
    // The words overlap if the length is not a multiple of theirs, so that no remainder needs a loop.
    match length {
        16..=32 => differ(0) | differ(8) | differ(length - 16) | differ(length - 8) == 0,
        0..8 => a == b,
        8..16 => differ(0) | differ(length - 8) == 0,
        _ => {
            let last = length - 8;
            (0..last).step_by(8).fold(differ(last), |difference, at| difference | differ(at)) == 0
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_begin_where_the_item_room_says() {
        for bits in 0..128u32 {
            let word = bits >> 1 << 18 | (bits & 1) << 3;
            let header = Header::unpack(word, 0, || 0);
            let offset = HEADER_BYTES + 4 * larder_item::word_count(&header);
            assert_eq!(usize::from(KEY_OFFSETS[bits as usize]), offset, "{header:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 1024 },
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn slices_compare_as_the_standard_library_says(
            a in prop::collection::vec(any::<u8>(), 0..80),
            at: usize,
            flip: u8,
        ) {
            let mut b = a.clone();
            prop_assert!(bytes_equal(&a, &b));
            if let Some(byte) = (!a.is_empty()).then(|| &mut b[at % a.len()]) {
                *byte ^= flip;
            }
            prop_assert_eq!(bytes_equal(&a, &b), a == b);
        }
    }
}
