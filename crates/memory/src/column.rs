//! The bookkeeping of a column, kept outside the column: two cache lines per column. The second one is a histogram of
//! when the live bytes of the column expire.

use crate::expiring::{Expiring, Lifetimes, Scale};
use crate::shim;
use larder_item::Expiry;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The number of a column: its position in the arena, counted in columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnId(pub u32);

/// The number of a slab: its position in the arena, counted in slabs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlabId(pub u32);

/// What a column is used for at the moment. Columns go from free to open, sealed, retired, and back to free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ColumnState {
    /// The slab of the column is not mapped.
    Absent = 0,
    /// The column is mapped and has no owner.
    Free = 1,
    /// Its one [`OpenColumn`](crate::OpenColumn) fills the column.
    Open = 2,
    /// The column is full or was set aside. Its records do not move and can be walked.
    Sealed = 3,
    /// No index entry leads to the records any more, but readers that found a record earlier may still read it.
    Retired = 4,
}

impl ColumnState {
    fn from_u8(byte: u8) -> ColumnState {
        match byte {
            1 => ColumnState::Free,
            2 => ColumnState::Open,
            3 => ColumnState::Sealed,
            4 => ColumnState::Retired,
            _ => ColumnState::Absent,
        }
    }
}

/// The bookkeeping of one column.
#[repr(C, align(64))]
pub struct Column {
    birth: AtomicU64,
    cas_base: AtomicU64,
    /// Bytes of all records placed since birth. Only the owner of the open column writes the number.
    placed_bytes: AtomicU32,
    /// Bytes reported by [`Column::died`] since birth.
    dead_bytes: AtomicU32,
    /// Where the key rows end, in bytes from the start of the column. Written when the column is sealed.
    keys_end: AtomicU32,
    pins: AtomicU32,
    opened_s: AtomicU32,
    sealed_s: AtomicU32,
    /// The group whose items the column holds. Zero at birth.
    pub group: AtomicU16,
    state: AtomicU8,
    /// Which lifetimes `expiring` distinguishes: a [`Lifetimes`].
    lifetimes: AtomicU8,
    /// Log2 of the bytes that `expiring` counts as one.
    unit_log2: AtomicU8,
    /// The latest expiry in the last bucket of `expiring`, on the server's clock.
    latest_s: shim::AtomicU32,
    /// A bit for each dictionary that records placed since birth were compressed with.
    dictionaries: AtomicU64,
    expiring: Expiring,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Column>() == 128 && std::mem::offset_of!(Column, expiring) == 64);

impl Column {
    /// What the column is used for at the moment.
    #[inline]
    pub fn state(&self) -> ColumnState {
        // Acquire pairs with the Release in `set_state`: a thread that sees Sealed sees every record and
        // `keys_end`.
        ColumnState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// A number for this use of this column. It is unique over the life of the server and rises from 1. It changes
    /// each time the column is taken again; 0 means never used.
    #[inline]
    pub fn birth(&self) -> u64 {
        self.birth.load(Ordering::Relaxed)
    }

    /// The number that is added to the CAS deltas of the column's records.
    #[inline]
    pub fn cas_base(&self) -> u64 {
        self.cas_base.load(Ordering::Relaxed)
    }

    /// Bytes of live records and values, as far as [`Column::died`] was told. The number may lag behind what other
    /// threads are doing at this moment.
    pub fn live_bytes(&self) -> u32 {
        let dead_bytes = self.dead_bytes.load(Ordering::Relaxed);
        self.placed_bytes.load(Ordering::Relaxed).saturating_sub(dead_bytes)
    }

    /// Bytes placed since birth, live or dead.
    pub fn used_bytes(&self) -> u32 {
        self.placed_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of live records and values that have expired at `now_s`, on the server's clock. The number may be too low,
    /// because an expiry is known by its bucket only ([`Lifetimes`]), and is never too high.
    pub fn expired_bytes(&self, now_s: u32) -> u32 {
        self.expiring.expired_bytes(self.scale(), &self.latest_s, now_s).min(self.live_bytes())
    }

    /// A bit for each dictionary that records placed since birth need, and perhaps others.
    pub fn dictionaries(&self) -> u64 {
        self.dictionaries.load(Ordering::Relaxed)
    }

    /// A record is about to be placed that was compressed with dictionary `number`. Only the owner of the open column
    /// says so.
    pub(crate) fn needs_dictionary(&self, number: u8) {
        self.dictionaries.store(self.dictionaries() | 1 << number, Ordering::Relaxed);
    }

    /// Which lifetimes [`Column::expired_bytes`] distinguishes.
    pub fn lifetimes(&self) -> Lifetimes {
        Lifetimes::from_u8(self.lifetimes.load(Ordering::Relaxed))
    }

    /// Reports that a record of this column was replaced, deleted or moved away. `bytes` and `expiry` are those of its
    /// `Item`. Each record is reported exactly once, after its last change of expiry.
    #[inline]
    pub fn died(&self, bytes: u32, expiry: Expiry) {
        self.expires_no_more(expiry, bytes);
        self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` of a record that expires at `expiry`.
    #[inline]
    pub(crate) fn expires(&self, expiry: Expiry, bytes: u32) {
        if expiry != Expiry::NEVER {
            self.expiring.add(self.scale(), &self.latest_s, expiry, bytes);
        }
    }

    /// Counts `bytes` of a record that expires at `expiry` no longer.
    #[inline]
    pub(crate) fn expires_no_more(&self, expiry: Expiry, bytes: u32) {
        if expiry != Expiry::NEVER {
            self.expiring.remove(self.scale(), expiry, bytes);
        }
    }

    fn scale(&self) -> Scale {
        Scale {
            opened_s: self.opened_s(),
            lifetimes: self.lifetimes(),
            unit_log2: self.unit_log2.load(Ordering::Relaxed),
        }
    }

    /// Where the key rows end, in bytes from the start of the column. 0 until the column is sealed.
    pub fn keys_end(&self) -> u32 {
        self.keys_end.load(Ordering::Relaxed)
    }

    /// Server time at which the column was taken, in seconds.
    pub fn opened_s(&self) -> u32 {
        self.opened_s.load(Ordering::Relaxed)
    }

    /// Server time at which the column was sealed, in seconds. If the sealer gave no time, it is the time at which
    /// the column was taken.
    pub fn sealed_s(&self) -> u32 {
        self.sealed_s.load(Ordering::Relaxed)
    }

    /// Adds a pin. Returns whether it is the only one.
    #[inline]
    pub(crate) fn pin(&self) -> bool {
        // Relaxed: the guard or pin that kept the column until now orders this addition before the scan in
        // `recycle`.
        self.pins.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Removes a pin. Returns whether none is left.
    ///
    /// # Panics
    /// If the column has no pin.
    #[inline]
    pub(crate) fn unpin(&self) -> bool {
        // Release pairs with the Acquire in `is_pinned`: what was done under the pin happens before reuse. Acquire:
        // the first pin was counted in `pinned_columns` before the last one is subtracted from it.
        let before = self.pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a column was unpinned more often than pinned");
        before == 1
    }

    /// Whether the column has a pin.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_state(&self, state: ColumnState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Changes the state from Sealed to Retired. The error is the state that forbids it.
    pub(crate) fn try_retire(&self) -> Result<(), ColumnState> {
        let (from, to) = (ColumnState::Sealed as u8, ColumnState::Retired as u8);
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(ColumnState::from_u8)
    }

    /// Begins a new use of the column, which the caller holds alone.
    pub(crate) fn open(&self, birth: u64, cas_base: u64, now_s: u32, unit_log2: u8) {
        self.birth.store(birth, Ordering::Relaxed);
        self.cas_base.store(cas_base, Ordering::Relaxed);
        for word in [&self.placed_bytes, &self.dead_bytes, &self.keys_end] {
            word.store(0, Ordering::Relaxed);
        }
        self.opened_s.store(now_s, Ordering::Relaxed);
        self.sealed_s.store(now_s, Ordering::Relaxed);
        self.group.store(0, Ordering::Relaxed);
        self.dictionaries.store(0, Ordering::Relaxed);
        self.unit_log2.store(unit_log2, Ordering::Relaxed);
        self.set_lifetimes(Lifetimes::ANY);
        self.latest_s.store(0, Ordering::Relaxed);
        self.expiring.clear();
        self.set_state(ColumnState::Open);
    }

    /// Says which lifetimes the histogram distinguishes, before anything is counted in it.
    pub(crate) fn set_lifetimes(&self, lifetimes: Lifetimes) {
        self.lifetimes.store(lifetimes.to_u8(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_placed_bytes(&self, bytes: u32) {
        self.placed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says how far the key rows are filled, for a later process: every record before has its header.
    #[inline]
    pub(crate) fn set_filled(&self, keys_end: u32) {
        // Release: the records are written before.
        self.keys_end.store(keys_end, Ordering::Release);
    }

    /// Takes the column over from an earlier process, as sealed if it holds records that were not flushed, and as free
    /// otherwise. Returns whether it holds any. What its records take is to be counted anew.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn take_over(&self, column_bytes: u32, flush_floor: u64) -> bool {
        let (birth, keys_end) = (self.birth(), self.keys_end());
        let is_filled = matches!(self.state(), ColumnState::Open | ColumnState::Sealed)
            && (1..=column_bytes).contains(&keys_end)
            && keys_end.is_multiple_of(4)
            && birth >= flush_floor.max(1)
            && usize::from(self.unit_log2.load(Ordering::Relaxed)) < u32::BITS as usize;
        self.pins.store(0, Ordering::Relaxed);
        self.placed_bytes.store(0, Ordering::Relaxed);
        self.dead_bytes.store(0, Ordering::Relaxed);
        self.latest_s.store(0, Ordering::Relaxed);
        self.expiring.clear();
        self.set_state(if is_filled { ColumnState::Sealed } else { ColumnState::Free });
        is_filled
    }

    /// Counts the bytes of all records that an earlier process placed. Until [`Column::live_again`] they are dead.
    pub(crate) fn count_placed(&self, bytes: u32) {
        self.placed_bytes.store(bytes, Ordering::Relaxed);
        self.dead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` as live that were counted as dead.
    pub(crate) fn live_again(&self, bytes: u32, expiry: Expiry) {
        self.dead_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.expires(expiry, bytes);
    }

    pub(crate) fn set_sealed_s(&self, now_s: u32) {
        self.sealed_s.store(now_s, Ordering::Relaxed);
    }

    pub(crate) fn seal(&self, keys_end: u32) {
        self.keys_end.store(keys_end, Ordering::Relaxed);
        self.set_state(ColumnState::Sealed);
    }
}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Column")
            .field("state", &self.state())
            .field("birth", &self.birth())
            .field("live_bytes", &self.live_bytes())
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}
