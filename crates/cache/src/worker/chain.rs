//! Chains of chunks, which hold large values: filled as the bytes arrive, and read as the socket takes them.

use super::Worker;
use super::open_columns::Place;
use super::read::Hit;
use crate::cache::Cache;
use crate::item_store::first_chunk;
use crate::transfers::Direction;
use larder_item::{Expiry, KeyHash, Kind, Location, State};
use larder_memory::{ChunkSpace, ColumnPin, Guard, Memory, NewChunked, NewItem, Value};
use std::collections::VecDeque;
use std::sync::Arc;

/// While more columns are pinned, in sixteenths of all columns, no more bytes are received or sent. An upload that is
/// the only one may go on for longer than others. A chunk pins its column as a whole: where chunks are spread among
/// other records, a few bytes can pin many columns.
const UPLOADS_PIN_SIXTEENTHS: u64 = 12;
const SOLE_PIN_SIXTEENTHS: u64 = 15;
const READS_PIN_SIXTEENTHS: u64 = 15;

/// A large value on its way in. Its columns are pinned until it is published or abandoned.
pub struct Upload {
    /// Hash of the key that the value is for.
    owner: KeyHash,
    /// The number that all chunks of the chain carry.
    chain: u64,
    total: u32,
    first: Location,
    /// The chunk that is being filled, and how many bytes of it are filled.
    open: Option<(ChunkSpace, usize)>,
    /// When the batch began in which the first bytes came, in microseconds; 0 = nobody said.
    came_us: u64,
    /// Pins of the columns of finished chunks.
    pins: Vec<ColumnPin>,
    /// Bytes for which no chunk is reserved yet.
    unplaced: usize,
    /// `None`: all bytes are here already, so no slow client holds the columns.
    quota: Option<Quota>,
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

    /// When the batch began in which the first bytes came, in microseconds; 0 = nobody said.
    pub(super) fn came_us(&self) -> u64 {
        self.came_us
    }

    /// Location of the first chunk.
    pub(super) fn first(&self) -> Location {
        self.first
    }

    /// The number that all chunks of the chain carry.
    pub(super) fn chain(&self) -> u64 {
        self.chain
    }

    /// Says which chunk follows the last one, which must still be open.
    pub(super) fn link(&mut self, next: Option<Location>) {
        self.open.as_mut().expect("the last chunk is open").0.set_next(next);
    }

    /// Finishes the open chunk: nothing more is written to it.
    pub(super) fn close_chunk(&mut self) {
        if let Some((space, _)) = self.open.take() {
            let pin = space.into_pin();
            if self.pins.last().is_none_or(|last| last.column() != pin.column()) {
                self.pins.push(pin);
            }
        }
    }
}

/// Bytes that one transfer counts as in transit, until dropped.
struct Quota {
    cache: Arc<Cache>,
    direction: Direction,
    bytes: u64,
}

impl Quota {
    fn new(cache: &Arc<Cache>, direction: Direction) -> Quota {
        Quota { cache: cache.clone(), direction, bytes: 0 }
    }

    /// Counts `more` bytes. Returns false if that would be too many.
    fn try_add(&mut self, more: u64) -> bool {
        let columns_bytes = self.cache.store.memory.limit_bytes();
        let is_added = self.cache.transfers.try_add(self.direction, more, self.bytes, columns_bytes);
        if is_added {
            self.bytes += more;
        }
        is_added
    }

    /// Whether there is no other transfer of the same direction.
    fn is_sole(&self) -> bool {
        self.cache.transfers.is_sole(self.direction, self.bytes)
    }

    /// Counts `bytes` no longer.
    fn remove(&mut self, bytes: u64) {
        self.cache.transfers.remove(self.direction, bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.cache.transfers.remove(self.direction, self.bytes);
    }
}

/// A chain of chunks that is being walked. It stays as it is, whatever becomes of the item.
pub(super) struct PinnedChain {
    next: Option<Location>,
    /// Pins of the columns of the chunks from `next` on, in the order of the chunks.
    pins: VecDeque<ColumnPin>,
}

impl PinnedChain {
    /// Pins the chain that begins at `first`. The location was looked up since the last quiescent point, or the chain
    /// is pinned already.
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

    /// Goes on to the chunk `next`, and unpins the column of the present chunk if no later chunk is in it.
    fn go_on(&mut self, memory: &Memory, next: Option<Location>) {
        self.next = next;
        if self.pins.front().map(ColumnPin::column) != next.map(|at| memory.column_of(at)) {
            self.pins.pop_front();
        }
    }
}

/// A large value on its way out. The chunks that are not sent yet are pinned, so the whole value is sent, whatever
/// becomes of the item.
pub struct LargeRead {
    chain: PinnedChain,
    /// Bytes of the present chunk that were sent.
    sent: usize,
    quota: Quota,
}

/// A copy of the value of an item that is to be written anew, or a pin on its chunks. It outlives the item.
pub(super) enum OldValue {
    Whole(Vec<u8>),
    Chunked {
        total: u32,
        first: Location,
        /// Keeps the chunks where they are.
        _pins: PinnedChain,
    },
}

impl OldValue {
    pub(super) fn length(&self) -> usize {
        match self {
            OldValue::Whole(value) => value.len(),
            OldValue::Chunked { total, .. } => *total as usize,
        }
    }

    pub(super) fn piece(&self) -> Piece<'_> {
        match self {
            OldValue::Whole(value) => Piece::Bytes(value),
            OldValue::Chunked { total, first, .. } => Piece::Chain { total: *total, first: *first },
        }
    }
}

/// A piece of a new value.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Bytes(&'a [u8]),
    /// A pinned chain of chunks. The chunks are copied one by one, because a copy of the whole value might not fit on
    /// the heap beside the columns.
    Chain {
        total: u32,
        first: Location,
    },
}

impl Piece<'_> {
    /// An empty piece.
    pub(super) const NOTHING: Piece<'static> = Piece::Bytes(&[]);

    pub(super) fn length(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Chain { total, .. } => *total as usize,
        }
    }
}

impl Worker {
    /// Begins to receive a value of `total` bytes, more than one chunk holds. `None`: there is no room.
    pub fn begin_upload(&mut self, owner: KeyHash, total: u32) -> Option<Upload> {
        let quota = Quota::new(&self.cache, Direction::Upload);
        let chain = self.next_cas();
        self.begin_quoted_chain(owner, total, chain, Some(quota))
    }

    /// Begins a chain of chunks for `total` bytes, at least one, all of which are here already.
    pub(super) fn begin_chain(&mut self, owner: KeyHash, total: u32, chain: u64) -> Option<Upload> {
        self.begin_quoted_chain(owner, total, chain, None)
    }

    fn begin_quoted_chain(
        &mut self,
        owner: KeyHash,
        total: u32,
        chain: u64,
        mut quota: Option<Quota>,
    ) -> Option<Upload> {
        let (space, left) = self.reserve_chunk(owner, chain, total as usize, &mut quota)?;
        Some(Upload {
            owner,
            chain,
            total,
            first: space.location(),
            open: Some((space, 0)),
            came_us: self.batch_began_us(),
            pins: Vec::new(),
            unplaced: left,
            quota,
        })
    }

    /// Reserves the next chunk for a value of which `wanted` bytes have no chunk yet. Returns the chunk, and how many
    /// bytes have none now.
    fn reserve_chunk(
        &mut self,
        owner: KeyHash,
        chain: u64,
        wanted: usize,
        quota: &mut Option<Quota>,
    ) -> Option<(ChunkSpace, usize)> {
        let length = wanted.min(self.cache.store.memory.chunk_bytes_max() as usize);
        if let Some(quota) = quota {
            let sixteenths = if quota.is_sole() { SOLE_PIN_SIXTEENTHS } else { UPLOADS_PIN_SIXTEENTHS };
            if !self.may_pin(sixteenths) || !quota.try_add(length as u64) {
                return None;
            }
        }
        let space =
            self.place_with(Place::CHUNKS, None, |open| open.place_chunk(owner, chain, None, length as u16))?;
        Some((space, wanted - length))
    }

    /// Receives the next bytes, at most as many as are missing. Returns false if there is no room for them.
    pub fn fill_upload(&mut self, upload: &mut Upload, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Some((space, filled)) = &mut upload.open else { return false };
            let room = space.length() as usize - *filled;
            if room == 0 {
                let (owner, chain, unplaced) = (upload.owner, upload.chain, upload.unplaced);
                let Some((next, left)) = self.reserve_chunk(owner, chain, unplaced, &mut upload.quota) else {
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

    /// Writes the whole of `piece` to the chain. Returns false if there is no room for it.
    pub(super) fn fill_piece(&mut self, upload: &mut Upload, piece: Piece<'_>) -> bool {
        let first = match piece {
            Piece::Bytes(bytes) => return self.fill_upload(upload, bytes),
            Piece::Chain { first, .. } => first,
        };
        let mut bytes = Vec::with_capacity(self.cache.store.memory.chunk_bytes_max() as usize);
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
            // A long copy must not hold back columns that were retired meanwhile.
            self.quiesce();
        }
        true
    }

    /// Gives up an upload. Its chunks are dead.
    pub fn abandon_upload(&self, mut upload: Upload) {
        upload.close_chunk();
        self.chain_died(upload.first);
    }

    /// Counts every chunk from `first` on as dead. The chain was never published, so its bytes were never counted as
    /// stored.
    pub(super) fn chain_died(&self, first: Location) {
        let guard = self.reader.pin();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(at) = next {
            let chunk = guard.chunk(at);
            // A published item may have chunks with the same chain number, for example after an append was done over.
            // Without the mark, the pass would take this chunk for one of them.
            bytes += u64::from(guard.item(at).die());
            next = chunk.next;
        }
        self.counters().bytes_given_up.add(bytes);
    }

    /// Places a long value that is here already: its chunks, then their owner record. The upload that is returned pins
    /// the chunks until the record is published.
    pub(super) fn place_long(
        &mut self,
        hash: KeyHash,
        parts: [Piece<'_>; 2],
        key: &[u8],
        of: &RecordFields,
    ) -> Option<(Location, Upload)> {
        let total: usize = parts.iter().map(Piece::length).sum();
        let chain = self.next_cas();
        let mut upload = self.begin_chain(hash, total as u32, chain)?;
        if !parts.into_iter().all(|part| self.fill_piece(&mut upload, part)) {
            self.abandon_upload(upload);
            return None;
        }
        upload.close_chunk();
        let record = of.chunked(key, upload.total, upload.first);
        match self.place_chunked(&record) {
            Some(at) => Some((at, upload)),
            None => {
                self.chain_died(upload.first);
                None
            }
        }
    }

    /// Begins to send a large value. `None`: too many bytes are being sent to slow clients already.
    ///
    /// # Panics
    /// If the value is not large.
    pub fn begin_large_read(&self, hit: &Hit<'_>) -> Option<LargeRead> {
        let first = first_chunk(&hit.item).expect("only a chunked value is read in pieces");
        let mut quota = Quota::new(&self.cache, Direction::Read);
        if !quota.try_add(hit.value_bytes().into()) {
            return None;
        }
        let is_only = self.cache.store.memory.pinned_columns() == 0;
        let chain = PinnedChain::new(&self.reader.pin(), first);
        (is_only || self.may_pin(READS_PIN_SIXTEENTHS)).then_some(LargeRead { chain, sent: 0, quota })
    }

    /// Appends up to `most` bytes of the value to `out`. Returns whether there are more to come.
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
            read.quota.remove(chunk.bytes.len() as u64);
            read.chain.go_on(&self.cache.store.memory, chunk.next);
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
            Value::Compressed(stored) => out.extend_from_slice(&self.expanded(stored)),
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

    /// The value and the other fields of the item at `at`, for a record that replaces it. The caller hands the value to
    /// [`Worker::recycle_old_value`] afterwards. The location was looked up since the last quiescent point.
    pub(super) fn old_record(&mut self, at: Location) -> (OldValue, RecordFields) {
        let guard = self.reader.pin();
        let item = guard.item(at);
        let value = match item.value() {
            Value::Whole(value) => {
                let mut copy = std::mem::take(&mut self.spare.old);
                copy.clear();
                copy.extend_from_slice(value);
                OldValue::Whole(copy)
            }
            Value::Compressed(stored) => OldValue::Whole(self.expanded(stored).to_vec()),
            Value::Chunked { total, first } => {
                OldValue::Chunked { total, first, _pins: PinnedChain::new(&guard, first) }
            }
        };
        (
            value,
            RecordFields {
                flags: item.flags(),
                expiry: item.expiry(),
                cas: item.cas(),
                state: item.state(),
                kind: item.kind(),
            },
        )
    }

    /// Whether no more than `sixteenths` sixteenths of the columns are pinned.
    fn may_pin(&self, sixteenths: u64) -> bool {
        let memory = &self.cache.store.memory;
        let pinned_bytes = memory.pinned_columns() as u64 * self.cache.store.column_bytes();
        pinned_bytes * 16 <= memory.limit_bytes() * sixteenths
    }

    /// Keeps the heap memory of an old value for the next one.
    pub(super) fn recycle_old_value(&mut self, old: OldValue) {
        if let OldValue::Whole(value) = old {
            self.spare.old = value;
        }
    }
}

/// What a record holds beside key and value.
#[derive(Clone, Copy)]
pub(super) struct RecordFields {
    pub(super) flags: u32,
    pub(super) expiry: Expiry,
    pub(super) cas: u64,
    pub(super) state: State,
    pub(super) kind: Kind,
}

impl RecordFields {
    /// The item with a value in one piece.
    #[inline]
    pub(super) fn item<'a>(&self, key: &'a [u8], value: [&'a [u8]; 2]) -> NewItem<'a> {
        let RecordFields { flags, expiry, cas, state, kind } = *self;
        NewItem { key, value, flags, expiry, cas, state, kind }
    }

    /// The owner record of a chain of chunks.
    pub(super) fn chunked<'a>(&self, key: &'a [u8], total: u32, first: Location) -> NewChunked<'a> {
        let RecordFields { flags, expiry, cas, state, kind } = *self;
        NewChunked { key, total, first, flags, expiry, cas, state, kind }
    }
}
