//! Large values: chains of chunks, filled as the bytes arrive and read as the socket takes them.

use crate::engine::{Cache, Open, Worker};
use crate::read::Hit;
use crate::store::{Mode, Store, StoreOutcome};
use crate::write::{Expected, Published};
use larder_item::{KeyHash, Location, State};
use larder_memory::{ChunkSpace, ColumnPin, Guard, Item, Memory, NewChunked, Value};
use std::collections::VecDeque;
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
    /// `None`: the bytes are at hand, so nobody's slowness holds the columns.
    share: Option<Share>,
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

    /// Says what comes behind the last chunk, which must be open still.
    fn link(&mut self, next: Option<Location>) {
        self.open.as_mut().expect("the last chunk is open").0.set_next(next);
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

/// How long large values in transit may be together, as shares of the memory for columns: one half on their way in, one
/// quarter on their way out. What is pinned cannot be reclaimed, so slow clients must not be able to pin everything.
const UPLOADS_SHARE: u64 = 2;
const READS_SHARE: u64 = 4;
/// Where more columns are pinned, in sixteenths of all, no more is taken in or sent; an upload that is the only one may have more
/// than others. A chunk pins its column as a whole: where chunks lie between values that came and went, a few bytes hold much.
const UPLOADS_PIN_SIXTEENTHS: u64 = 12;
const SOLE_PIN_SIXTEENTHS: u64 = 15;
const READS_PIN_SIXTEENTHS: u64 = 15;

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

    /// Whether nobody else counts any.
    fn is_sole(&self) -> bool {
        self.counter().load(Ordering::Relaxed) == self.bytes
    }

    /// Counts `bytes` no longer.
    fn shrink(&mut self, bytes: u64) {
        self.counter().fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.counter().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A chain of chunks that stays as it is, whatever becomes of the item, for as long as it is walked.
pub(crate) struct PinnedChain {
    next: Option<Location>,
    /// The columns of the chunks from `next` on, in their order.
    pins: VecDeque<ColumnPin>,
}

impl PinnedChain {
    /// The location obeys the rule of locations, or somebody pins the chain already.
    fn new(guard: &Guard<'_>, first: Location) -> PinnedChain {
        let mut pins: VecDeque<ColumnPin> = VecDeque::new();
        let mut next = Some(first);
        while let Some(at) = next {
            let pin = guard.keep(at);
            if pins.back().is_none_or(|last| last.column() != pin.column()) {
                pins.push_back(pin);
            }
            next = guard.chunk(at).next;
        }
        PinnedChain { next: Some(first), pins }
    }

    /// Goes on to the chunk `next`, and lets go of a column that lies behind.
    fn go_on(&mut self, memory: &Memory, next: Option<Location>) {
        self.next = next;
        if self.pins.front().map(ColumnPin::column) != next.map(|at| memory.column_of(at)) {
            self.pins.pop_front();
        }
    }
}

/// A large value on its way out. What is not sent yet is pinned, so it is sent to its end whatever becomes of the item.
pub struct LargeRead {
    chain: PinnedChain,
    /// Bytes of the present chunk that were sent.
    sent: usize,
    share: Share,
}

/// The value of an item that is to be written anew. It outlives the item.
pub(crate) enum OldValue {
    Whole(Vec<u8>),
    Chunked {
        total: u32,
        first: Location,
        /// Holds the chunks where they are.
        _pins: PinnedChain,
    },
}

impl OldValue {
    pub(crate) fn length(&self) -> usize {
        match self {
            OldValue::Whole(value) => value.len(),
            OldValue::Chunked { total, .. } => *total as usize,
        }
    }

    pub(crate) fn piece(&self) -> Piece<'_> {
        match self {
            OldValue::Whole(value) => Piece::Bytes(value),
            OldValue::Chunked { total, first, .. } => Piece::Chain { total: *total, first: *first },
        }
    }
}

/// A part of a new value.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    /// Chunks that somebody pins. They are copied one by one: there may be no room for all of them beside the columns.
    Chain {
        total: u32,
        first: Location,
    },
}

impl Piece<'_> {
    /// Adds nothing.
    pub(crate) const NOTHING: Piece<'static> = Piece::Bytes(&[]);

    pub(crate) fn length(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Chain { total, .. } => *total as usize,
        }
    }
}

impl Worker {
    /// Begins to take in a value of `total` bytes, more than one chunk's worth. `None`: no room.
    pub fn begin_upload(&mut self, owner: KeyHash, total: u32) -> Option<Upload> {
        let share = Share::of(&self.cache, false);
        let chain = self.cache.next_cas();
        self.begin_chain(owner, total, chain, Some(share))
    }

    /// Begins a chain of chunks for `total` bytes, at least one.
    fn begin_chain(
        &mut self,
        owner: KeyHash,
        total: u32,
        chain: u64,
        mut share: Option<Share>,
    ) -> Option<Upload> {
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
        share: &mut Option<Share>,
    ) -> Option<(ChunkSpace, usize)> {
        let length = wanted.min(self.cache.memory.chunk_bytes_max() as usize);
        if let Some(share) = share {
            let sixteenths = if share.is_sole() { SOLE_PIN_SIXTEENTHS } else { UPLOADS_PIN_SIXTEENTHS };
            if !self.cache.may_pin(sixteenths) || !share.grow(length as u64) {
                return None;
            }
        }
        let space =
            self.place_with(Open::Chunks, |open| open.place_chunk(owner, chain, None, length as u16))?;
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

    /// Takes in the whole of `piece`. Returns false if there is no room for it.
    fn fill_piece(&mut self, upload: &mut Upload, piece: Piece<'_>) -> bool {
        let first = match piece {
            Piece::Bytes(bytes) => return self.fill_upload(upload, bytes),
            Piece::Chain { first, .. } => first,
        };
        let mut bytes = Vec::with_capacity(self.cache.memory.chunk_bytes_max() as usize);
        let mut next = Some(first);
        while let Some(at) = next {
            bytes.clear();
            {
                let guard = self.reader.pin();
                let chunk = guard.chunk(at);
                bytes.extend_from_slice(chunk.bytes);
                next = chunk.next;
            }
            if !self.fill_upload(upload, &bytes) {
                return false;
            }
            // A long copy holds back no column that others retire.
            self.quiesce();
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
            // Others of the same chain may live: it would pass for one of them.
            guard.item(at).mark_dead();
            self.cache.memory.column(self.cache.memory.column_of(at)).died(chunk.held_bytes());
            next = chunk.next;
        }
    }

    /// Stores a complete upload under the terms of `store`, whose `value` is ignored.
    pub fn complete_upload(&mut self, mut upload: Upload, store: &Store<'_>) -> StoreOutcome {
        loop {
            let (expected, stale_of) = match self.admit(store) {
                Ok(admitted) => admitted,
                Err(outcome) => {
                    self.abandon_upload(upload);
                    return outcome;
                }
            };
            if let (true, Expected::Seen { at, .. }) = (store.joins(), expected) {
                match self.join_upload(&mut upload, store, at) {
                    StoreOutcome::Exists => continue,
                    outcome @ StoreOutcome::Stored { .. } => return outcome,
                    outcome => {
                        self.abandon_upload(upload);
                        return outcome;
                    }
                }
            }
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

    /// Appends a complete upload to the item at `at`, or prepends it: what was there is copied to chunks of the same chain.
    /// `Exists`: the item has changed, and nothing else has.
    fn join_upload(&mut self, upload: &mut Upload, store: &Store<'_>, at: Location) -> StoreOutcome {
        let expected = self.seen(at);
        let (old, of) = self.old_record(at);
        let total = old.length() as u64 + u64::from(upload.total);
        if !self.fits(store.key.len(), total) {
            return StoreOutcome::NotStored;
        }
        let RecordOf { flags, expiry, cas, state } = self.extended(of, store);
        let mut copy = None;
        if old.length() > 0 {
            let Some(begun) = self.begin_chain(store.hash, old.length() as u32, upload.chain, None) else {
                return StoreOutcome::NoRoom;
            };
            let filled = self.fill_piece(copy.insert(begun), old.piece());
            self.forget_old(old);
            if !filled {
                copy.into_iter().for_each(|copy| self.abandon_upload(copy));
                return StoreOutcome::NoRoom;
            }
        }
        let first = match &mut copy {
            None => upload.first,
            Some(copy) if store.mode == Mode::Append => {
                copy.link(Some(upload.first));
                copy.first
            }
            Some(copy) => {
                upload.link(Some(copy.first));
                upload.first
            }
        };
        let record = NewChunked { key: store.key, total: total as u32, first, flags, expiry, cas, state };
        let outcome = match self.place_chunked(&record) {
            None => StoreOutcome::NoRoom,
            Some(new) => match self.publish(store.hash, store.key, expected, new) {
                Published::Done => return StoreOutcome::Stored { cas, value_bytes: total as u32 },
                Published::Changed => StoreOutcome::Exists,
                Published::Full => StoreOutcome::NoRoom,
            },
        };
        upload.link(None);
        if let Some(mut copy) = copy {
            copy.link(None);
            self.abandon_upload(copy);
        }
        outcome
    }

    /// Places a long value that is here in one piece: its chunks, then their owner record. The upload that is
    /// returned pins the chunks until the record is published.
    pub(crate) fn place_long(
        &mut self,
        hash: KeyHash,
        parts: [Piece<'_>; 2],
        key: &[u8],
        of: &RecordOf,
    ) -> Option<(Location, Upload)> {
        let total: usize = parts.iter().map(Piece::length).sum();
        let chain = self.cache.next_cas();
        let mut upload = self.begin_chain(hash, total as u32, chain, None)?;
        if !parts.into_iter().all(|part| self.fill_piece(&mut upload, part)) {
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
        let is_only = self.cache.memory.pinned_columns() == 0;
        let chain = PinnedChain::new(&self.reader.pin(), first);
        (is_only || self.cache.may_pin(READS_PIN_SIXTEENTHS)).then_some(LargeRead { chain, sent: 0, share })
    }

    /// Appends up to `most` bytes of the value to `out`. Returns whether there are more.
    pub fn continue_large_read(&self, read: &mut LargeRead, most: usize, out: &mut Vec<u8>) -> bool {
        let guard = self.reader.pin();
        let mut left = most;
        while let Some(at) = read.chain.next {
            let chunk = guard.chunk(at);
            let taken = left.min(chunk.bytes.len() - read.sent);
            out.extend_from_slice(&chunk.bytes[read.sent..read.sent + taken]);
            left -= taken;
            read.sent += taken;
            if read.sent < chunk.bytes.len() {
                return true;
            }
            read.share.shrink(chunk.bytes.len() as u64);
            read.chain.go_on(&self.cache.memory, chunk.next);
            read.sent = 0;
        }
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
            Value::Chunked { first, .. } => {
                let guard = self.reader.pin();
                let mut next = Some(first);
                while let Some(at) = next {
                    let chunk = guard.chunk(at);
                    out.extend_from_slice(chunk.bytes);
                    next = chunk.next;
                }
            }
        }
    }

    /// The value of the item at `at`, to be given to [`Worker::forget_old`] afterwards, and the rest of its record, for a
    /// record that takes its place. The location obeys the rule of locations.
    pub(crate) fn old_record(&mut self, at: Location) -> (OldValue, RecordOf) {
        let guard = self.reader.pin();
        let item = guard.item(at);
        let value = match item.value() {
            Value::Whole(value) => {
                let mut copy = std::mem::take(&mut self.old_value);
                copy.clear();
                copy.extend_from_slice(value);
                OldValue::Whole(copy)
            }
            Value::Chunked { total, first } => {
                OldValue::Chunked { total, first, _pins: PinnedChain::new(&guard, first) }
            }
        };
        (value, RecordOf { flags: item.flags(), expiry: item.expiry(), cas: item.cas(), state: item.state() })
    }

    /// Keeps the memory of an old value for the next one.
    pub(crate) fn forget_old(&mut self, old: OldValue) {
        if let OldValue::Whole(value) = old {
            self.old_value = value;
        }
    }
}

impl Cache {
    /// Whether no more than so many sixteenths of the columns are pinned.
    fn may_pin(&self, sixteenths: u64) -> bool {
        let pinned_bytes = self.memory.pinned_columns() as u64 * u64::from(self.column_bytes());
        pinned_bytes * 16 <= self.memory.limit_bytes() * sixteenths
    }
}

/// What an owner record holds beside its chain.
pub(crate) struct RecordOf {
    pub(crate) flags: u32,
    pub(crate) expiry: larder_item::Expiry,
    pub(crate) cas: u64,
    pub(crate) state: State,
}
