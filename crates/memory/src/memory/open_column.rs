//! Filling a column.
//!
//! ```text
//!  0            low                                  high                column_bytes
//!  | record | record |   ...free...                   | value 1 | value 0 |
//!    key rows grow upward, 4-byte units                 values grow downward, 4-byte units
//! ```
//!
//! In a kept memory each record has a check word before it, 4 bytes: [`Item::commit`] and [`Item::revoke`] say to a
//! later process whether the record counts.
//!
//! A record is written before any reader can know its location, and never afterwards: publishing the location, with a
//! Release store into the index, is the caller's last step. Placing a record therefore takes no lock, and no atomic
//! operation except on the two words that stay atomic and, for a record that expires, on one count of its column.

use super::Memory;
use super::chunk::CHUNK_KEY_BYTES;
use super::item::{Compressed, Item};
use super::pin::{ChunkSpace, put};
use crate::column::{Column, ColumnId};
use crate::expiring::{Lifetimes, unit_log2};
use crate::numa::NodeId;
use crate::prefetch::prefetch_write;
use larder_item::{
    CasForm, Expiry, Extension, FOLDED_KEY_BYTES, Header, KeyHash, Kind, Location, State, UNIT_BYTES,
    VALUE_LENGTH_MAX, ValueLayout,
};
use std::sync::atomic::{AtomicU32, Ordering};

const LINE_BYTES: u32 = 64;
/// The lines of a column are requested so far before they are written.
const WRITE_AHEAD_BYTES: u32 = 768;
/// The most lines that are requested at once. The processor's own prefetcher finds those of a longer record.
const LINES_AHEAD_MAX: u32 = 8;

/// An item whose value is placed in one piece.
#[derive(Clone, Copy, Debug)]
pub struct NewItem<'a> {
    /// The key, 1..=251 bytes.
    pub key: &'a [u8],
    /// The value in two parts, which are stored one behind the other. Append and prepend have two parts; other
    /// operations leave one empty. Both together are at most `VALUE_LENGTH_MAX` bytes.
    pub value: [&'a [u8]; 2],
    /// The client's flags. 0 takes no space.
    pub flags: u32,
    /// When the item expires. `NEVER` takes no space, unless every record has a word for it.
    pub expiry: Expiry,
    /// The CAS number. It takes space only if it is not within 2^19 above the base of the column.
    pub cas: u64,
    /// The state bits and the time of the last access.
    pub state: State,
    /// What the value is to clients of Redis. It takes space if it is no plain string.
    pub kind: Kind,
}

/// The owner record of a chain of chunks.
#[derive(Clone, Copy, Debug)]
pub struct NewChunked<'a> {
    /// The key, 1..=251 bytes.
    pub key: &'a [u8],
    /// Bytes of the whole value.
    pub total: u32,
    /// The first chunk of the chain.
    pub first: Location,
    /// As in [`NewItem`].
    pub flags: u32,
    /// When the item expires. It always takes its words, so that it can change in place.
    pub expiry: Expiry,
    /// As in [`NewItem`].
    pub cas: u64,
    /// As in [`NewItem`].
    pub state: State,
    /// As in [`NewItem`].
    pub kind: Kind,
}

/// The record placed last and the state before it, for [`OpenColumn::undo`].
struct LastPlaced {
    at: u32,
    low: u32,
    high: u32,
    placed_bytes: u32,
    expiry: Expiry,
}

/// What the optional fields of a record say, but for those of its value.
struct Fields {
    flags: u32,
    expiry: Expiry,
    cas: u64,
    kind: Kind,
    is_compressed: bool,
}

impl Fields {
    #[inline]
    fn extension(&self) -> Extension {
        Extension { early_ms: self.expiry.early_ms(), kind: self.kind, is_compressed: self.is_compressed }
    }
}

/// A column that its one owner fills. Dropping it seals the column.
pub struct OpenColumn {
    memory: Memory,
    start: *mut u8,
    id: ColumnId,
    /// End of the key rows and start of the values, in bytes from `start`. `low` is a multiple of 4.
    low: u32,
    high: u32,
    placed_bytes: u32,
    /// End of the lines that were requested, in bytes from `start`.
    requested: u32,
    inline_value_bytes_max: u32,
    /// Shorter values are inline, and their records need no check word and no word that their fields do not ask for.
    /// 0 in a kept memory, and where every record has a word for an expiry.
    plain_inline_below: u32,
    /// Every record has a word for an expiry.
    always_expiry_word: bool,
    /// Bytes of the check word before each record. `low` is behind that of the next record.
    check_bytes: u32,
    cas_base: u64,
    last: Option<LastPlaced>,
}

// SAFETY: the holder of the value is the owner of the column, and the bytes it writes belong to this column alone.
unsafe impl Send for OpenColumn {}

impl Memory {
    /// Takes an empty column for the caller alone: a free one, otherwise a retired one that no reader reads any
    /// more, otherwise one of a newly mapped slab. `None` if the limit is reached and all columns are in use, or
    /// the kernel has no memory left, which is logged. CAS numbers of the column's items should be within
    /// 2^19 above `cas_base`. `now_s` is the server time.
    pub fn take_column(&self, cas_base: u64, now_s: u32) -> Option<OpenColumn> {
        self.take_column_on(NodeId::default(), cas_base, now_s)
    }

    /// The same, of a node: a column of another node is taken only if there is none of this one. The memory has the
    /// node.
    pub fn take_column_on(&self, node: NodeId, cas_base: u64, now_s: u32) -> Option<OpenColumn> {
        let (id, birth) = self.take_free(node)?;
        let unit_log2 = unit_log2(self.inner.geometry.column_bytes);
        self.inner.columns[id.0 as usize].open(birth, cas_base, now_s, unit_log2);
        Some(OpenColumn::new(self.clone(), id))
    }
}

impl OpenColumn {
    fn new(memory: Memory, id: ColumnId) -> OpenColumn {
        let geometry = memory.geometry();
        let (check_bytes, inline_max) = (memory.inner.check_bytes, geometry.inline_value_bytes_max);
        let always_expiry_word = memory.inner.always_expiry_word;
        let is_plain = check_bytes == 0 && !always_expiry_word;
        let start = memory.inner.arena.base().wrapping_add(id.0 as usize * geometry.column_bytes as usize);
        OpenColumn {
            start,
            id,
            low: check_bytes,
            high: geometry.column_bytes,
            placed_bytes: 0,
            requested: 0,
            inline_value_bytes_max: inline_max,
            plain_inline_below: if is_plain { inline_max + 1 } else { 0 },
            always_expiry_word,
            check_bytes,
            cas_base: memory.column(id).cas_base(),
            last: None,
            memory,
        }
    }

    fn column(&self) -> &Column {
        self.memory.column(self.id)
    }

    /// The number of the column.
    pub fn id(&self) -> ColumnId {
        self.id
    }

    /// The column's birth number.
    pub fn birth(&self) -> u64 {
        self.column().birth()
    }

    /// Says which lifetimes the items of the column will have, so that it is known more exactly when they expire.
    ///
    /// # Panics
    /// If something was placed in the column.
    pub fn expect_lifetimes(&mut self, lifetimes: Lifetimes) {
        assert_eq!(self.placed_bytes, 0, "the lifetimes of an empty column are said");
        self.column().set_lifetimes(lifetimes);
    }

    /// Bytes between the key rows and the values.
    pub fn free_bytes(&self) -> u32 {
        self.high - self.low
    }

    /// Places an item. `None` if it does not fit any more. A value above the inline limit goes to the high end of
    /// the column. The caller must either publish the location, once, or give it back with [`OpenColumn::undo`].
    ///
    /// # Panics
    /// If the key or the value is longer than a record can hold.
    #[inline]
    pub fn place(&mut self, item: &NewItem<'_>) -> Option<Location> {
        let value_bytes = item.value[0].len() + item.value[1].len();
        assert!(value_bytes <= VALUE_LENGTH_MAX, "a value of {value_bytes} bytes goes into chunks");
        if value_bytes < self.plain_inline_below as usize {
            self.place_in(item, value_bytes, true, 0, false, false)
        } else {
            self.place_unusual(item, value_bytes, false)
        }
    }

    /// Places an item whose value is compressed. The value of `item` is not looked at. Otherwise as
    /// [`OpenColumn::place`].
    ///
    /// # Panics
    /// If the key, or what is stored of the value, is longer than a record can hold.
    pub fn place_compressed(&mut self, item: &NewItem<'_>, value: &Compressed<'_>) -> Option<Location> {
        let stored_bytes = value.stored.len();
        assert!(stored_bytes <= VALUE_LENGTH_MAX, "a value of {stored_bytes} bytes goes into chunks");
        self.column().needs_dictionary(value.dictionary);
        self.place_unusual(&NewItem { value: [value.stored, &[]], ..*item }, stored_bytes, true)
    }

    /// Places an item with a long value, or in a kept memory, or with a compressed value.
    #[inline(never)]
    fn place_unusual(
        &mut self,
        item: &NewItem<'_>,
        value_bytes: usize,
        is_compressed: bool,
    ) -> Option<Location> {
        let inline = value_bytes <= self.inline_value_bytes_max as usize;
        let (check_bytes, with_expiry) = (self.check_bytes, self.always_expiry_word);
        let at = self.place_in(item, value_bytes, inline, check_bytes, with_expiry, is_compressed)?;
        self.note_filled(Some(at));
        Some(at)
    }

    /// Places an item, with a word for an expiry if it has one or `with_expiry`, and leaves `check_bytes` behind it for
    /// the check word of the next record.
    #[inline(always)]
    fn place_in(
        &mut self,
        item: &NewItem<'_>,
        value_bytes: usize,
        inline: bool,
        check_bytes: u32,
        with_expiry: bool,
        is_compressed: bool,
    ) -> Option<Location> {
        let layout = if inline { ValueLayout::Inline } else { ValueLayout::Apart };
        let NewItem { flags, expiry, cas, kind, .. } = *item;
        let fields = Fields { flags, expiry, cas, kind, is_compressed };
        let mut header = self.header(item.key, layout, value_bytes, &fields);
        header.has_expiry |= with_expiry;
        let at = self.claim(&header, if inline { 0 } else { value_bytes }, item.expiry, check_bytes)?;
        // SAFETY: `claim` gave us the bytes of the record and of the value. `inline` says which of the two
        // sequences of fields below the header counted.
        unsafe {
            let (mut write, last) = self.begin(at, &header, item.state, &fields);
            let mut value = self.start.add(self.high as usize);
            if !inline {
                write = put(write, &self.high.to_ne_bytes());
            }
            write = put(put(write, &last.to_ne_bytes()), item.key);
            if inline {
                value = write;
            }
            put(put(value, item.value[0]), item.value[1]);
        }
        Some(self.location(at))
    }

    /// Places the owner record of a chain. `None` if it does not fit any more.
    ///
    /// # Panics
    /// If the key is longer than a record can hold.
    pub fn place_chunked(&mut self, item: &NewChunked<'_>) -> Option<Location> {
        let NewChunked { flags, expiry, cas, kind, .. } = *item;
        let fields = Fields { flags, expiry, cas, kind, is_compressed: false };
        let header = self.header(item.key, ValueLayout::Chunked, 0, &fields);
        let at = self.claim(&header, 0, item.expiry, self.check_bytes)?;
        // SAFETY: `claim` gave us the bytes of the record, counted for the fields of a chunked item.
        unsafe {
            let (write, last) = self.begin(at, &header, item.state, &fields);
            let write = put(write, &item.total.to_ne_bytes());
            let write = put(write, &item.first.bits().to_ne_bytes());
            put(put(write, &last.to_ne_bytes()), item.key);
        }
        let at = self.location(at);
        self.note_filled(Some(at));
        Some(at)
    }

    /// Reserves a chunk of `length` bytes. `None` if it does not fit any more. `chain` is a number that
    /// distinguishes this chain from others of the same owner.
    ///
    /// # Panics
    /// If the chunk is longer than [`Memory::chunk_bytes_max`].
    pub fn place_chunk(
        &mut self,
        owner: KeyHash,
        chain: u64,
        next: Option<Location>,
        length: u16,
    ) -> Option<ChunkSpace> {
        assert!(u32::from(length) <= self.memory.chunk_bytes_max(), "a chunk of {length} bytes is too long");
        let header = Header {
            key_length: CHUNK_KEY_BYTES as u8,
            layout: ValueLayout::Chunk,
            value_length: length,
            // A chunk expires with its owner, which is placed later.
            has_expiry: true,
            has_flags: false,
            has_extension: false,
            cas: CasForm::Near(0),
        };
        let fields = Fields {
            flags: 0,
            expiry: Expiry::NEVER,
            cas: self.cas_base,
            kind: Kind::Text,
            is_compressed: false,
        };
        let at = self.claim(&header, length.into(), Expiry::NEVER, self.check_bytes)?;
        // A chunk may be written long after this call, so it cannot be undone.
        self.last = None;
        // SAFETY: `claim` gave us the bytes of the record, counted for the fields of a chunk.
        let next_field = unsafe {
            let (write, last) = self.begin(at, &header, State(0), &fields);
            let write = put(write, &self.high.to_ne_bytes());
            let key = put(write, &last.to_ne_bytes());
            put(put(key, &owner.0.to_ne_bytes()), &chain.to_ne_bytes())
        };
        let value = self.start.wrapping_add(self.high as usize);
        let mut space = ChunkSpace::new(self.memory.clone(), self.location(at), next_field, value, length);
        space.set_next(next);
        self.note_filled(Some(space.location()));
        Some(space)
    }

    /// Takes the record placed last back. The next record reuses its bytes. The location must not have been
    /// published, because a reader that found it would see the bytes change.
    ///
    /// # Panics
    /// If `at` is not the record placed last, or is a chunk.
    pub fn undo(&mut self, at: Location) {
        let last = self.last.take().filter(|last| self.location(last.at) == at);
        let last = last.unwrap_or_else(|| panic!("{at:?} is not the last record placed"));
        self.column().expires_no_more(last.expiry, self.placed_bytes - last.placed_bytes);
        (self.low, self.high, self.placed_bytes) = (last.low, last.high, last.placed_bytes);
        self.column().set_placed_bytes(self.placed_bytes);
        self.note_filled(None);
    }

    /// In a kept memory: writes the check word of the record at `placed`, whose bytes were written, and says how far
    /// the column is filled.
    #[inline]
    fn note_filled(&self, placed: Option<Location>) {
        if self.check_bytes != 0 {
            if let Some(placed) = placed {
                self.prepare_check(placed);
            }
            self.column().set_filled(self.low);
        }
    }

    fn prepare_check(&self, placed: Location) {
        let column_bytes = self.memory.geometry().column_bytes;
        let in_column = placed.offset() as u32 & (column_bytes - 1);
        // SAFETY: the record lies in this column, where `claim` found room for it, and its bytes were written. Only the
        // owner of the column, who is here, could write to them; a chunk's bytes are not read here.
        let item = unsafe {
            Item::new(self.start.add(in_column as usize), in_column, column_bytes, &self.memory.inner)
        };
        item.prepare_check();
    }

    /// Seals the column. The recorded time of sealing is the time of opening.
    pub fn seal(self) -> ColumnId {
        self.id
    }

    /// Seals the column at server time `now_s`.
    pub fn seal_at(self, now_s: u32) -> ColumnId {
        self.column().set_sealed_s(now_s);
        self.id
    }

    #[inline]
    fn header(&self, key: &[u8], layout: ValueLayout, value_bytes: usize, fields: &Fields) -> Header {
        assert!(key.len() <= FOLDED_KEY_BYTES, "a key of {} bytes is too long", key.len());
        // The owner of a chain always has both words: without them, setting an expiry would copy the whole value.
        let has_extension = fields.extension().is_needed() || layout == ValueLayout::Chunked;
        Header {
            key_length: key.len() as u8,
            layout,
            value_length: value_bytes as u16,
            has_expiry: fields.expiry != Expiry::NEVER || has_extension,
            has_flags: fields.flags != 0,
            has_extension: has_extension || fields.is_compressed,
            cas: CasForm::of(fields.cas, self.cas_base),
        }
    }

    /// Claims the bytes of a record, and of a value apart if `apart_bytes` is not 0, and `check_bytes` behind the
    /// record. Returns the offset of the record. The value apart begins at `high`.
    #[inline(always)]
    fn claim(
        &mut self,
        header: &Header,
        apart_bytes: usize,
        expiry: Expiry,
        check_bytes: u32,
    ) -> Option<u32> {
        let record_bytes = header.record_bytes() as u32;
        let apart_bytes = (apart_bytes as u32).next_multiple_of(UNIT_BYTES as u32);
        if record_bytes + check_bytes + apart_bytes > self.high - self.low {
            return None;
        }
        let at = self.low;
        self.last =
            Some(LastPlaced { at, low: at, high: self.high, placed_bytes: self.placed_bytes, expiry });
        self.low += record_bytes + check_bytes;
        self.high -= apart_bytes;
        self.placed_bytes += record_bytes + apart_bytes;
        self.prefetch_ahead();
        let column = self.column();
        column.set_placed_bytes(self.placed_bytes);
        column.expires(expiry, record_bytes + apart_bytes);
        Some(at)
    }

    /// Requests the lines that later records of like size will be written to. Other processors may have them, or
    /// none: the kernel has filled them with zeros a while ago, or they held other records.
    #[inline(always)]
    fn prefetch_ahead(&mut self) {
        let end = self.low + WRITE_AHEAD_BYTES;
        self.requested = self.requested.max(end.saturating_sub(LINES_AHEAD_MAX * LINE_BYTES));
        while self.requested < end {
            prefetch_write(self.start.wrapping_add(self.requested as usize));
            self.requested += LINE_BYTES;
        }
    }

    /// Writes the two words of the header and the fields that do not depend on the value layout. Returns the address
    /// of the next field, and the last 16 bits of the header, which the caller writes behind the fields of the layout.
    ///
    /// # Safety
    /// `at` was claimed for `header`.
    #[inline]
    unsafe fn begin(&mut self, at: u32, header: &Header, state: State, fields: &Fields) -> (*mut u8, u16) {
        // SAFETY: the claimed bytes are inside the column and unknown to every reader. They begin on a multiple of
        // 4, and `header` counts one word for each word written here.
        unsafe {
            let mut word = self.start.add(at as usize).cast::<u32>();
            // A caller that copies the state of a record may have seen the record die. The copy is live.
            AtomicU32::from_ptr(word).store(state.0 & !State::DEAD, Ordering::Relaxed);
            let (one, last, far) = header.pack();
            word.add(1).write(one);
            word = word.add(2);
            if header.has_expiry {
                let at_s = fields.expiry.seconds();
                AtomicU32::from_ptr(word).store(at_s, Ordering::Relaxed);
                word = word.add(1);
                if header.has_extension {
                    AtomicU32::from_ptr(word).store(fields.extension().pack(at_s), Ordering::Relaxed);
                    word = word.add(1);
                }
            }
            if header.has_flags {
                word.write(fields.flags);
                word = word.add(1);
            }
            match header.cas {
                CasForm::Near(_) => {}
                CasForm::Far(_) => word.write(far),
                CasForm::Whole => word.cast::<u64>().write_unaligned(fields.cas),
            }
            (word.add(header.cas.words()).cast(), last)
        }
    }

    fn location(&self, at: u32) -> Location {
        let column_start = u64::from(self.id.0) << self.memory.inner.column_shift;
        debug_assert!(u64::from(at).is_multiple_of(UNIT_BYTES));
        Location::from_offset(column_start + u64::from(at))
    }
}

impl Drop for OpenColumn {
    fn drop(&mut self) {
        self.column().seal(self.low);
    }
}

impl std::fmt::Debug for OpenColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenColumn")
            .field("id", &self.id)
            .field("free_bytes", &self.free_bytes())
            .finish_non_exhaustive()
    }
}
