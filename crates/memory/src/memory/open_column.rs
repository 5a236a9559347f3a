//! Filling a column.
//!
//! ```text
//!  0            low                                  high                column_bytes
//!  | record | record |   ...free...                   | value 1 | value 0 |
//!    key rows grow upward, 4-byte units                 values grow downward, any byte
//! ```
//!
//! A record is written before anybody knows its location, and never after: publishing the location (a Release
//! store into the index) is the caller's last step. That is why placing takes no lock and no atomic but the two
//! words that stay atomic for life.

use super::Memory;
use super::chunk::CHUNK_KEY_BYTES;
use super::pin::{ChunkSpace, put};
use crate::column::{Column, ColumnId};
use larder_item::{
    CAS_DELTA_BITS, Expiry, Header, KEY_BYTES_MAX, KeyHash, Location, State, UNIT_BYTES, VALUE_LENGTH_MAX,
    ValueLayout,
};
use std::sync::atomic::{AtomicU32, Ordering};

/// An item to be placed whole.
#[derive(Clone, Copy, Debug)]
pub struct NewItem<'a> {
    /// 1..=250 bytes.
    pub key: &'a [u8],
    /// The value in two pieces, placed one behind the other (append and prepend have two, others leave one empty).
    /// Together at most `VALUE_LENGTH_MAX`.
    pub value: [&'a [u8]; 2],
    /// The client's flags; 0 takes no room.
    pub flags: u32,
    /// When it stops being served; `NEVER` takes no room.
    pub expiry: Expiry,
    /// Its CAS number; takes room only if not within 2^36 above the column's base.
    pub cas: u64,
    /// The first word.
    pub state: State,
}

/// The owner record of a chain of chunks.
#[derive(Clone, Copy, Debug)]
pub struct NewChunked<'a> {
    /// 1..=250 bytes.
    pub key: &'a [u8],
    /// Bytes of the whole value.
    pub total: u32,
    /// The chain's first chunk.
    pub first: Location,
    /// As in [`NewItem`].
    pub flags: u32,
    /// When it stops being served; always takes a word, so that it can change in place.
    pub expiry: Expiry,
    /// As in [`NewItem`].
    pub cas: u64,
    /// As in [`NewItem`].
    pub state: State,
}

/// The last record placed, so that it can be undone.
struct LastPlaced {
    at: u32,
    low: u32,
    high: u32,
    placed_bytes: u32,
}

/// A column being filled, by its one owner. Dropping it seals it.
pub struct OpenColumn {
    memory: Memory,
    start: *mut u8,
    id: ColumnId,
    /// End of the key rows and start of the values, in bytes from `start`. `low` is a multiple of 4.
    low: u32,
    high: u32,
    placed_bytes: u32,
    inline_value_bytes_max: u32,
    cas_base: u64,
    last: Option<LastPlaced>,
}

// SAFETY: the owner is whoever holds the value; the bytes it writes belong to this column alone.
unsafe impl Send for OpenColumn {}

impl Memory {
    /// An empty column for the caller alone: a free one, else a retired one that nobody reads any more, else one
    /// of a newly mapped slab. `None` = the limit is reached and all columns are in use (or the kernel has no
    /// memory left, which is logged). CAS numbers of its items are best taken from `cas_base` up; `now_s` is the
    /// server's time.
    pub fn take_column(&self, cas_base: u64, now_s: u32) -> Option<OpenColumn> {
        let (id, birth) = self.take_free()?;
        self.inner.columns[id.0 as usize].open(birth, cas_base, now_s);
        Some(OpenColumn::new(self.clone(), id))
    }
}

impl OpenColumn {
    fn new(memory: Memory, id: ColumnId) -> OpenColumn {
        let geometry = memory.geometry();
        let start = memory.inner.arena.base().wrapping_add(id.0 as usize * geometry.column_bytes as usize);
        OpenColumn {
            start,
            id,
            low: 0,
            high: geometry.column_bytes,
            placed_bytes: 0,
            inline_value_bytes_max: geometry.inline_value_bytes_max,
            cas_base: memory.column(id).cas_base(),
            last: None,
            memory,
        }
    }

    fn column(&self) -> &Column {
        self.memory.column(self.id)
    }

    /// Which column this is.
    pub fn id(&self) -> ColumnId {
        self.id
    }

    /// The column's birth number.
    pub fn birth(&self) -> u64 {
        self.column().birth()
    }

    /// Bytes between the key rows and the values.
    pub fn free_bytes(&self) -> u32 {
        self.high - self.low
    }

    /// Places an item; `None` if it does not fit any more. Values above the inline limit go to the column's high
    /// end. The location is the caller's to publish, once, or to give back with [`OpenColumn::undo`].
    ///
    /// # Panics
    /// If the key or the value is longer than a record can say.
    #[inline]
    pub fn place(&mut self, item: &NewItem<'_>) -> Option<Location> {
        let value_bytes = item.value[0].len() + item.value[1].len();
        assert!(value_bytes <= VALUE_LENGTH_MAX, "a value of {value_bytes} bytes goes into chunks");
        let inline = value_bytes <= self.inline_value_bytes_max as usize;
        let layout = if inline { ValueLayout::Inline } else { ValueLayout::Apart };
        let header = self.header(item.key, layout, value_bytes, item.flags, item.expiry, item.cas);
        let at = self.claim(&header, if inline { 0 } else { value_bytes })?;
        // SAFETY: `claim` gave us the record's bytes and the value's; `place` says which of the two sequences of
        // fields below the header counted.
        unsafe {
            let mut write = self.begin(at, &header, item.state, item.flags, item.expiry, item.cas);
            let mut value = self.start.add(self.high as usize);
            if !inline {
                write = put(write, &self.high.to_ne_bytes());
            }
            write = put(write, item.key);
            if inline {
                value = write;
            }
            put(put(value, item.value[0]), item.value[1]);
        }
        Some(self.location(at))
    }

    /// Places the owner record of a chain; `None` if it does not fit any more.
    ///
    /// # Panics
    /// If the key is longer than a record can say.
    pub fn place_chunked(&mut self, item: &NewChunked<'_>) -> Option<Location> {
        let header = self.header(item.key, ValueLayout::Chunked, 0, item.flags, item.expiry, item.cas);
        let at = self.claim(&header, 0)?;
        // SAFETY: `claim` gave us the record's bytes, counted for the fields of a chunked item.
        unsafe {
            let write = self.begin(at, &header, item.state, item.flags, item.expiry, item.cas);
            let write = put(write, &item.total.to_ne_bytes());
            let write = put(write, &item.first.bits().to_ne_bytes());
            put(write, item.key);
        }
        Some(self.location(at))
    }

    /// Reserves a chunk of `length` bytes; `None` if it does not fit any more. `chain` is any number that tells
    /// this chain from others of the same owner.
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
            has_expiry: false,
            has_flags: false,
            has_wide_cas: false,
            cas_delta: 0,
        };
        let at = self.claim(&header, length.into())?;
        // A chunk may be written long after this call, so it cannot be undone.
        self.last = None;
        // SAFETY: `claim` gave us the record's bytes, counted for the fields of a chunk.
        let next_field = unsafe {
            let write = self.begin(at, &header, State(0), 0, Expiry::NEVER, self.cas_base);
            let key = put(write, &self.high.to_ne_bytes());
            put(put(key, &owner.0.to_ne_bytes()), &chain.to_ne_bytes())
        };
        let value = self.start.wrapping_add(self.high as usize);
        let mut space = ChunkSpace::new(self.memory.clone(), self.location(at), next_field, value, length);
        space.set_next(next);
        Some(space)
    }

    /// Takes the last record placed back; its bytes are used for the next one. The location must not have been
    /// published: a reader that found it would see the bytes change.
    ///
    /// # Panics
    /// If `at` is not the last record placed, or is a chunk.
    pub fn undo(&mut self, at: Location) {
        let last = self.last.take().filter(|last| self.location(last.at) == at);
        let last = last.unwrap_or_else(|| panic!("{at:?} is not the last record placed"));
        (self.low, self.high, self.placed_bytes) = (last.low, last.high, last.placed_bytes);
        self.column().set_placed_bytes(self.placed_bytes);
    }

    /// Ends the filling. The time of sealing is recorded as the time of opening.
    pub fn seal(self) -> ColumnId {
        self.id
    }

    /// Ends the filling, at server time `now_s`.
    pub fn seal_at(self, now_s: u32) -> ColumnId {
        self.column().set_sealed_s(now_s);
        self.id
    }

    #[inline]
    fn header(
        &self,
        key: &[u8],
        layout: ValueLayout,
        value_bytes: usize,
        flags: u32,
        expiry: Expiry,
        cas: u64,
    ) -> Header {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes is too long", key.len());
        let cas_delta = cas.wrapping_sub(self.cas_base);
        let has_wide_cas = cas_delta >> CAS_DELTA_BITS != 0;
        Header {
            key_length: key.len() as u8,
            layout,
            value_length: value_bytes as u16,
            // The owner of a chain always has the word: writing it anew for an expiry would copy the whole value.
            has_expiry: expiry != Expiry::NEVER || layout == ValueLayout::Chunked,
            has_flags: flags != 0,
            has_wide_cas,
            cas_delta: if has_wide_cas { 0 } else { cas_delta },
        }
    }

    /// Moves both ends towards each other; the answer is where the record begins, the value apart at `high`.
    #[inline]
    fn claim(&mut self, header: &Header, apart_bytes: usize) -> Option<u32> {
        let (record_bytes, apart_bytes) = (header.record_bytes() as u32, apart_bytes as u32);
        if record_bytes + apart_bytes > self.high - self.low {
            return None;
        }
        let at = self.low;
        self.last = Some(LastPlaced { at, low: at, high: self.high, placed_bytes: self.placed_bytes });
        self.low += record_bytes;
        self.high -= apart_bytes;
        self.placed_bytes += record_bytes + apart_bytes;
        self.column().set_placed_bytes(self.placed_bytes);
        Some(at)
    }

    /// Writes the header and the fields that do not depend on the value's place; returns where the others go.
    ///
    /// # Safety
    /// `at` was claimed for `header`.
    #[inline]
    unsafe fn begin(
        &mut self,
        at: u32,
        header: &Header,
        state: State,
        flags: u32,
        expiry: Expiry,
        cas: u64,
    ) -> *mut u8 {
        // SAFETY: the claimed bytes are inside the column and unknown to every reader; they begin on a multiple
        // of 4, and `header` counts one word for each one written.
        unsafe {
            let mut word = self.start.add(at as usize).cast::<u32>();
            // Whoever copies the state of a record may have seen it die; the copy lives.
            AtomicU32::from_ptr(word).store(state.0 & !State::DEAD, Ordering::Relaxed);
            let [one, two] = header.pack();
            word.add(1).write(one);
            word.add(2).write(two);
            word = word.add(3);
            if header.has_expiry {
                AtomicU32::from_ptr(word).store(expiry.0, Ordering::Relaxed);
                word = word.add(1);
            }
            if header.has_flags {
                word.write(flags);
                word = word.add(1);
            }
            if header.has_wide_cas {
                word.cast::<u64>().write_unaligned(cas);
                word = word.add(2);
            }
            word.cast()
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
