//! What is known of a column, kept out of band: one cache line per column.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The number of a column: its place in the arena, counted in columns from the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnId(pub u32);

/// The number of a slab: its place in the arena, counted in slabs from the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlabId(pub u32);

/// What a column is doing. It goes round: free, open, sealed, retired, free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ColumnState {
    /// Its slab is not mapped.
    Absent = 0,
    /// Mapped, and nobody's.
    Free = 1,
    /// Being filled by its one [`OpenColumn`](crate::OpenColumn).
    Open = 2,
    /// Full, or put aside: its records stand still and can be walked.
    Sealed = 3,
    /// Nobody can find its records any more; readers from before may still be reading them.
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

/// The book-keeping of one column.
#[repr(C, align(64))]
pub struct Column {
    birth: AtomicU64,
    cas_base: AtomicU64,
    /// Bytes of all records placed since birth; written by the open column's owner alone.
    placed_bytes: AtomicU32,
    /// Bytes reported by `died` since birth.
    dead_bytes: AtomicU32,
    /// Where the key rows end, in bytes from the column's start. Written at seal.
    keys_end: AtomicU32,
    pins: AtomicU32,
    opened_s: AtomicU32,
    sealed_s: AtomicU32,
    /// Hits on items of this column, or whatever its user wants to count here. Zeroed at birth.
    pub hits: AtomicU32,
    /// The group whose items it holds. Zeroed at birth.
    pub group: AtomicU16,
    state: AtomicU8,
}

const _: () = assert!(size_of::<Column>() == 64);

impl Column {
    /// What the column is doing.
    #[inline]
    pub fn state(&self) -> ColumnState {
        // Acquire pairs with the Release in `set_state`: whoever sees Sealed sees every record and `keys_end`.
        ColumnState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Which use of which column this is: unique over the life of the server, ever growing, from 1. It changes
    /// each time the column is taken again; 0 = never used.
    #[inline]
    pub fn birth(&self) -> u64 {
        self.birth.load(Ordering::Relaxed)
    }

    /// What the CAS deltas of the column's records are added to.
    #[inline]
    pub fn cas_base(&self) -> u64 {
        self.cas_base.load(Ordering::Relaxed)
    }

    /// Bytes of records and values still alive, as far as [`Column::died`] was told. May lag behind other
    /// threads by what they are doing this moment.
    pub fn live_bytes(&self) -> u32 {
        let dead_bytes = self.dead_bytes.load(Ordering::Relaxed);
        self.placed_bytes.load(Ordering::Relaxed).saturating_sub(dead_bytes)
    }

    /// Bytes ever placed since birth, dead or alive.
    pub fn used_bytes(&self) -> u32 {
        self.placed_bytes.load(Ordering::Relaxed)
    }

    /// A record of this column was replaced, deleted or moved away: `bytes` is its `Item::bytes()` (or
    /// `Chunk::held_bytes()`), reported exactly once.
    #[inline]
    pub fn died(&self, bytes: u32) {
        self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Where the key rows end, in bytes from the column's start. 0 until sealed.
    pub fn keys_end(&self) -> u32 {
        self.keys_end.load(Ordering::Relaxed)
    }

    /// Server time, in seconds, at which the column was taken.
    pub fn opened_s(&self) -> u32 {
        self.opened_s.load(Ordering::Relaxed)
    }

    /// Server time, in seconds, at which the column was sealed (when it was taken, if the sealer did not say).
    pub fn sealed_s(&self) -> u32 {
        self.sealed_s.load(Ordering::Relaxed)
    }

    /// Counts one more pin, for [`Memory::pin`](crate::Memory). Returns whether it is the only one.
    #[inline]
    pub(crate) fn pin(&self) -> bool {
        // Relaxed: whatever kept the column until now orders this addition before the scan in `recycle`.
        self.pins.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Undoes one [`Column::pin`]. Returns whether none is left.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn unpin(&self) -> bool {
        // Release pairs with the Acquire in `is_pinned`: what was done under the pin happens before reuse. Acquire: the
        // first pin was counted in `pinned_columns` before the last one is taken from it.
        let before = self.pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a column was unpinned more often than pinned");
        before == 1
    }

    /// Whether somebody holds a pin.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_state(&self, state: ColumnState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Sealed to Retired, or the state that forbids it.
    pub(crate) fn try_retire(&self) -> Result<(), ColumnState> {
        let (from, to) = (ColumnState::Sealed as u8, ColumnState::Retired as u8);
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(ColumnState::from_u8)
    }

    /// Begins a new life. The caller holds the column alone.
    pub(crate) fn open(&self, birth: u64, cas_base: u64, now_s: u32) {
        self.birth.store(birth, Ordering::Relaxed);
        self.cas_base.store(cas_base, Ordering::Relaxed);
        for word in [&self.placed_bytes, &self.dead_bytes, &self.keys_end, &self.hits] {
            word.store(0, Ordering::Relaxed);
        }
        self.opened_s.store(now_s, Ordering::Relaxed);
        self.sealed_s.store(now_s, Ordering::Relaxed);
        self.group.store(0, Ordering::Relaxed);
        self.set_state(ColumnState::Open);
    }

    #[inline]
    pub(crate) fn set_placed_bytes(&self, bytes: u32) {
        self.placed_bytes.store(bytes, Ordering::Relaxed);
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
