//! Large values: chains of chunks, filled as the bytes arrive and read as the socket takes them.

use crate::engine::{Cache, Worker};
use crate::read::Hit;
use crate::store::{Mode, Store, StoreOutcome};
use crate::write::Published;
use larder_item::{KeyHash, Location, State};
use larder_memory::{ChunkSpace, ColumnPin, Item, NewChunked, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first chunk of a chunked item, if it is one.
#[inline]
pub(crate) fn first_chunk(item: &Item<'_>) -> Option<Location> {
    match item.value() {
        Value::Chunked { first, .. } => Some(first),
        Value::Whole(_) => None,
    }
}

/// A large value on its way in. Its columns are pinned until it is published or abandoned.
pub struct Upload {
    owner: KeyHash,
    chain: u64,
    total: u32,
    first: Location,
    /// The chunk being filled, and how far it is.
    open: Option<(ChunkSpace, usize)>,
    pins: Vec<ColumnPin>,
    /// Bytes for which no chunk was reserved yet.
    unplaced: usize,
    share: Share,
}

impl Upload {
    /// Bytes of the whole value.
    pub fn total_bytes(&self) -> u32 {
        self.total
    }

    /// Bytes still to come.
    pub fn missing_bytes(&self) -> usize {
        self.unplaced + self.open.as_ref().map_or(0, |(space, filled)| space.length() as usize - filled)
    }

    /// Where the chain begins.
    pub(crate) fn first(&self) -> Location {
        self.first
    }

    /// Puts the present chunk behind the others: nothing more is written to it.
    pub(crate) fn close_chunk(&mut self) {
        if let Some((space, _)) = self.open.take() {
            let pin = space.into_pin();
            if self.pins.last().is_none_or(|last| last.column() != pin.column()) {
                self.pins.push(pin);
            }
        }
    }
}

/// What large values in transit may pin together, as shares of the memory for columns: one half on their way in, one
/// quarter on their way out. What is pinned cannot be reclaimed, so slow clients must not be able to pin everything.
const UPLOADS_SHARE: u64 = 2;
const READS_SHARE: u64 = 4;

/// Bytes counted as pinned by transfers of one kind, until dropped.
pub(crate) struct Share {
    cache: Arc<Cache>,
    reading: bool,
    bytes: u64,
}

impl Share {
    fn of(cache: &Arc<Cache>, reading: bool) -> Share {
        Share { cache: cache.clone(), reading, bytes: 0 }
    }

    fn counter(&self) -> &AtomicU64 {
        if self.reading { &self.cache.pinned_by_reads } else { &self.cache.pinned_by_uploads }
    }

    /// Counts `more` bytes, or returns false if that would be too many.
    fn grow(&mut self, more: u64) -> bool {
        let most = self.cache.memory.limit_bytes() / if self.reading { READS_SHARE } else { UPLOADS_SHARE };
        let before = self.counter().fetch_add(more, Ordering::Relaxed);
        // A single transfer is always let through: `-I` has bounded it already.
        if before > self.bytes && before + more > most {
            self.counter().fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.counter().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A large value on its way out. Its columns are pinned, so it is sent to its end whatever becomes of the item.
pub struct LargeRead {
    next: Option<Location>,
    /// Bytes of the present chunk that were sent.
    sent: usize,
    pins: Vec<ColumnPin>,
    _share: Share,
}

impl Worker {
    /// Begins to take in a value of `total` bytes, more than one chunk's worth. `None`: no room.
    pub fn begin_upload(&mut self, owner: KeyHash, total: u32) -> Option<Upload> {
        let chain = self.cache.next_cas();
        let mut share = Share::of(&self.cache, false);
        let (space, left) = self.reserve_chunk(owner, chain, total as usize, &mut share)?;
        Some(Upload {
            owner,
            chain,
            total,
            first: space.location(),
            open: Some((space, 0)),
            pins: Vec::new(),
            unplaced: left,
            share,
        })
    }

    fn reserve_chunk(
        &mut self,
        owner: KeyHash,
        chain: u64,
        wanted: usize,
        share: &mut Share,
    ) -> Option<(ChunkSpace, usize)> {
        let length = wanted.min(self.cache.memory.chunk_bytes_max() as usize);
        if !share.grow(length as u64) {
            return None;
        }
        let space = self.place_with(|open| open.place_chunk(owner, chain, None, length as u16))?;
        Some((space, wanted - length))
    }

    /// Takes in the next bytes, at most as many as are missing. Returns false if there is no room for them.
    pub fn fill_upload(&mut self, upload: &mut Upload, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Some((space, filled)) = &mut upload.open else { return false };
            let room = space.length() as usize - *filled;
            if room == 0 {
                let (owner, chain, unplaced) = (upload.owner, upload.chain, upload.unplaced);
                let Some((next, left)) = self.reserve_chunk(owner, chain, unplaced, &mut upload.share) else {
                    return false;
                };
                space.set_next(Some(next.location()));
                upload.close_chunk();
                upload.open = Some((next, 0));
                upload.unplaced = left;
                continue;
            }
            let taken = room.min(bytes.len());
            space.write(*filled, &bytes[..taken]);
            *filled += taken;
            bytes = &bytes[taken..];
        }
        true
    }

    /// Gives up an upload: its chunks are dead.
    pub fn abandon_upload(&self, mut upload: Upload) {
        upload.close_chunk();
        self.bury_chain(upload.first);
    }

    /// Reports every chunk from `first` on as dead. The chain was never published, so its bytes were never counted
    /// as stored.
    pub(crate) fn bury_chain(&self, first: Location) {
        let guard = self.reader.pin();
        let mut next = Some(first);
        while let Some(at) = next {
            let chunk = guard.chunk(at);
            self.cache.memory.column(self.cache.memory.column_of(at)).died(chunk.held_bytes());
            next = chunk.next;
        }
    }

    /// Stores a complete upload under the terms of `store`, whose `value` is ignored.
    pub fn complete_upload(&mut self, mut upload: Upload, store: &Store<'_>) -> StoreOutcome {
        upload.close_chunk();
        if matches!(store.mode, Mode::Append | Mode::Prepend) {
            let value = self.chain_to_vec(upload.first, upload.total as usize);
            self.bury_chain(upload.first);
            drop(upload);
            return self.store(&Store { value: &value, ..*store });
        }
        loop {
            let (expected, stale_of) = match self.admit(store) {
                Ok(admitted) => admitted,
                Err(outcome) => {
                    self.bury_chain(upload.first);
                    return outcome;
                }
            };
            let (state, expiry) = self.new_state(store, stale_of);
            let cas = store.explicit_cas.unwrap_or_else(|| self.cache.next_cas());
            let record = NewChunked {
                key: store.key,
                total: upload.total,
                first: upload.first,
                flags: store.flags,
                expiry,
                cas,
                state,
            };
            let Some(new) = self.place_chunked(&record) else {
                self.bury_chain(upload.first);
                return StoreOutcome::NoRoom;
            };
            match self.publish(store.hash, store.key, expected, new) {
                Published::Done => return StoreOutcome::Stored { cas, value_bytes: upload.total },
                Published::Changed => {}
                Published::Full => {
                    self.bury_chain(upload.first);
                    return StoreOutcome::NoRoom;
                }
            }
        }
    }

    /// Places a long value that is here in one piece: its chunks, then their owner record. The upload that is
    /// returned pins the chunks until the record is published.
    pub(crate) fn place_long(
        &mut self,
        hash: KeyHash,
        parts: &[&[u8]],
        key: &[u8],
        of: &RecordOf,
    ) -> Option<(Location, Upload)> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut upload = self.begin_upload(hash, total as u32)?;
        if !parts.iter().all(|part| self.fill_upload(&mut upload, part)) {
            self.abandon_upload(upload);
            return None;
        }
        upload.close_chunk();
        let RecordOf { flags, expiry, cas, state } = *of;
        let record = NewChunked { key, total: upload.total, first: upload.first, flags, expiry, cas, state };
        match self.place_chunked(&record) {
            Some(at) => Some((at, upload)),
            None => {
                self.bury_chain(upload.first);
                None
            }
        }
    }

    /// Begins to send a large value. `None`: too much is being sent to slow clients already.
    ///
    /// # Panics
    /// If the value is not large.
    pub fn begin_large_read(&self, hit: &Hit<'_>) -> Option<LargeRead> {
        let first = first_chunk(&hit.item).expect("only a chunked value is read in pieces");
        let mut share = Share::of(&self.cache, true);
        if !share.grow(hit.value_bytes().into()) {
            return None;
        }
        let guard = self.reader.pin();
        let mut pins: Vec<ColumnPin> = Vec::new();
        let mut next = Some(first);
        while let Some(at) = next {
            let pin = guard.keep(at);
            if pins.last().is_none_or(|last| last.column() != pin.column()) {
                pins.push(pin);
            }
            next = guard.chunk(at).next;
        }
        Some(LargeRead { next: Some(first), sent: 0, pins, _share: share })
    }

    /// Appends up to `most` bytes of the value to `out`. Returns whether there are more.
    pub fn continue_large_read(&self, read: &mut LargeRead, most: usize, out: &mut Vec<u8>) -> bool {
        let guard = self.reader.pin();
        let mut left = most;
        while let Some(at) = read.next {
            let chunk = guard.chunk(at);
            let taken = left.min(chunk.bytes.len() - read.sent);
            out.extend_from_slice(&chunk.bytes[read.sent..read.sent + taken]);
            left -= taken;
            read.sent += taken;
            if read.sent < chunk.bytes.len() {
                return true;
            }
            read.next = chunk.next;
            read.sent = 0;
        }
        read.pins.clear();
        false
    }

    /// Ends a large read, finished or not.
    pub fn end_large_read(&self, read: LargeRead) {
        drop(read);
    }

    /// Appends the whole value to `out`, however large.
    pub fn copy_value(&self, hit: &Hit<'_>, out: &mut Vec<u8>) {
        match hit.value() {
            Value::Whole(value) => out.extend_from_slice(value),
            Value::Chunked { first, total } => {
                out.extend_from_slice(&self.chain_to_vec(first, total as usize))
            }
        }
    }

    pub(crate) fn value_to_vec(&self, item: &Item<'_>) -> Vec<u8> {
        match item.value() {
            Value::Whole(value) => value.to_vec(),
            Value::Chunked { first, total } => self.chain_to_vec(first, total as usize),
        }
    }

    fn chain_to_vec(&self, first: Location, total: usize) -> Vec<u8> {
        let guard = self.reader.pin();
        let mut value = Vec::with_capacity(total);
        let mut next = Some(first);
        while let Some(at) = next {
            let chunk = guard.chunk(at);
            value.extend_from_slice(chunk.bytes);
            next = chunk.next;
        }
        value
    }
}

/// What an owner record holds beside its chain.
pub(crate) struct RecordOf {
    pub(crate) flags: u32,
    pub(crate) expiry: larder_item::Expiry,
    pub(crate) cas: u64,
    pub(crate) state: State,
}
