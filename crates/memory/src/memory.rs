//! The memory as a whole: it hands out columns, takes them back, and maps and unmaps their slabs.
//!
//! Its parts are child files: `open_column` fills a column, `reader` and `guard` read, `item` and `chunk` are what
//! is read, `pin` keeps columns from being reused.
//!
//! Lock order: `retired`, then `pool`. The lock of the epochs is taken under `retired`, and the lock of the
//! colouring under `pool`; neither takes another. Reading or placing an item takes no lock.

use crate::arena::Arena;
use crate::column::{Column, ColumnId, ColumnState, SlabId};
use crate::column_table::ColumnTable;
use crate::epochs::Epochs;
use crate::first_touch::FirstTouch;
use crate::kept::KeptFile;
use crate::kept::head::Head;
use crate::machine;
use crate::memory_options::{
    COLUMN_BYTES_MAX, COLUMN_BYTES_MIN, Geometry, Left, MemoryError, MemoryOptions, PageKind, PagesWanted,
    SLAB_BYTES,
};
use crate::numa::{NodeId, NumaNodes, Stripes};
use crate::pool::Pool;
use larder_item::{Location, VALUE_LENGTH_MAX};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) mod chunk;
pub(crate) mod guard;
pub(crate) mod item;
pub(crate) mod open_column;
pub(crate) mod pin;
pub(crate) mod reader;
pub(crate) mod remains;

/// Bytes of the check word that a kept memory has before each record.
const CHECK_BYTES: u32 = 4;
/// Upper limit for the length of a chunk of a large value, in bytes.
const CHUNK_BYTES_MAX: u32 = (16 << 10) - 4;
/// The largest reservation, which is half of what a location can express.
pub const RESERVE_BYTES_MAX: u64 = 64 << 40;

/// The memory: the arena, its columns, and when they may be reused. The type is a handle, and clones refer to the
/// same memory.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

/// What the handles share.
struct Inner {
    arena: Arena,
    arena_bytes: u64,
    column_shift: u32,
    geometry: Geometry,
    columns: ColumnTable,
    epochs: Epochs,
    nodes: NumaNodes,
    stripes: Stripes,
    /// How many slabs were mapped that the kernel did not bind to their node.
    unbound_slabs: AtomicU32,
    pool: Mutex<Pool>,
    retired: Mutex<Vec<Retired>>,
    /// The length of `retired`, so that no thread locks it only to find it empty.
    retired_count: AtomicUsize,
    /// How many retired columns only a pin held back at the last [`Memory::recycle`].
    retired_pinned: AtomicUsize,
    /// Number of columns that have a pin.
    pinned_columns: AtomicUsize,
    limit_slabs: AtomicU32,
    /// The limit is no higher than this: the file system has no room for more slabs.
    slabs_max: AtomicU32,
    first_touch: FirstTouch,
    /// Bytes before each record: those of its check word, or 0 where the memory is not kept.
    check_bytes: u32,
    /// Every record has a word for an expiry.
    always_expiry_word: bool,
    /// The file that the memory lies in.
    kept: Option<Arc<KeptFile>>,
}

/// Which pages fresh slabs get from [`Memory::touch_ahead`], where the machine has transparent huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreshPages {
    /// Small ones, while there are few slabs or while huge ones hold up what is being written.
    InStep,
    /// Huge ones.
    Huge,
}

/// A column on its way to the free columns.
struct Retired {
    column: ColumnId,
    stamp: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Number of slabs that fit into `bytes`.
fn slabs_in(bytes: u64) -> u32 {
    u32::try_from(bytes / SLAB_BYTES as u64).unwrap_or(u32::MAX)
}

fn settle(options: &MemoryOptions) -> Result<Geometry, MemoryError> {
    let reserve_bytes = options.reserve_bytes.unwrap_or(0).max(options.limit_bytes);
    if options.limit_bytes < SLAB_BYTES as u64 || reserve_bytes > RESERVE_BYTES_MAX {
        return Err(MemoryError::Limit { bytes: reserve_bytes });
    }
    let column_bytes = match options.column_bytes {
        Some(bytes) => bytes,
        None => machine::choose_column_bytes(
            machine::cache_column_bytes(Path::new(machine::CACHES)),
            options.limit_bytes,
        ),
    };
    if !column_bytes.is_power_of_two() || !(COLUMN_BYTES_MIN..=COLUMN_BYTES_MAX).contains(&column_bytes) {
        return Err(MemoryError::ColumnBytes { bytes: column_bytes });
    }
    let columns_per_slab = SLAB_BYTES as u32 / column_bytes;
    let whole_value_bytes_max = (VALUE_LENGTH_MAX as u32).min(column_bytes / 4);
    Ok(Geometry {
        column_bytes,
        slab_bytes: SLAB_BYTES as u32,
        columns_per_slab,
        columns_max: slabs_in(reserve_bytes.next_multiple_of(SLAB_BYTES as u64)) * columns_per_slab,
        inline_value_bytes_max: options.inline_value_bytes_max.min(whole_value_bytes_max),
        whole_value_bytes_max,
        chunk_bytes_max: CHUNK_BYTES_MAX.min(column_bytes / 8),
    })
}

impl Memory {
    /// Reserves the address space and chooses the sizes and the kind of pages. Maps nothing yet.
    ///
    /// # Errors
    /// Impossible sizes, demanded pages that the machine does not have, or no address space.
    pub fn new(options: MemoryOptions) -> Result<Memory, MemoryError> {
        Memory::build(options, None)
    }

    /// The same in a file, so that the items outlive the process. The file decides about sizes and pages, if an earlier
    /// process has left in it what can be used: [`Memory::left`].
    ///
    /// # Errors
    /// As [`Memory::new`]; a file that cannot be used, that another process has, or that has no room for the limit.
    #[cfg(not(any(miri, loom)))]
    pub fn on_file(
        options: MemoryOptions,
        keep: &crate::memory_options::KeepOptions,
    ) -> Result<Memory, MemoryError> {
        let wanted = settle(&options)?;
        let reserve_bytes = options.reserve_bytes.unwrap_or(0).max(options.limit_bytes);
        let kept = KeptFile::open(
            keep,
            &crate::kept::Wanted {
                limit_bytes: options.limit_bytes,
                reserve_bytes,
                column_bytes: wanted.column_bytes,
                is_column_bytes_fixed: options.column_bytes.is_some(),
            },
        )?;
        let options = MemoryOptions {
            column_bytes: Some(kept.column_bytes()),
            reserve_bytes: Some(kept.reserve_bytes()),
            ..options
        };
        let memory = Memory::build(options, Some(kept))?;
        let taken_over = memory.take_over();
        taken_over.map_err(|error| MemoryError::Keep {
            path: keep.path.clone(),
            what: format!("its columns cannot be mapped ({error})"),
        })?;
        Ok(memory)
    }

    /// There are no files here.
    #[cfg(any(miri, loom))]
    pub fn on_file(
        _: MemoryOptions,
        keep: &crate::memory_options::KeepOptions,
    ) -> Result<Memory, MemoryError> {
        Err(MemoryError::Keep { path: keep.path.clone(), what: "there are no files here".to_owned() })
    }

    fn build(options: MemoryOptions, kept: Option<KeptFile>) -> Result<Memory, MemoryError> {
        let kept = kept.map(Arc::new);
        let geometry = settle(&options)?;
        let slabs = geometry.columns_max / geometry.columns_per_slab;
        let limit_slabs = slabs_in(options.limit_bytes);
        let column_bytes = geometry.column_bytes as usize;
        let arena = Arena::reserve(slabs, limit_slabs, options.pages, column_bytes, kept.clone())?;
        // A file, and pages that are sorted by colour, lie where they lie.
        let is_placed = kept.is_none() && options.pages != PagesWanted::Coloured;
        let nodes = if is_placed { options.nodes } else { NumaNodes::default() };
        let stripes = Stripes::new(nodes.count(), slabs);
        let columns_max = geometry.columns_max as usize;
        let columns = match &kept {
            None => ColumnTable::new(columns_max)?,
            Some(kept) => ColumnTable::on_file(kept, columns_max)?,
        };
        let inner = Inner {
            arena,
            arena_bytes: u64::from(slabs) * SLAB_BYTES as u64,
            column_shift: geometry.column_bytes.trailing_zeros(),
            geometry,
            columns,
            epochs: Epochs::new(),
            nodes,
            stripes,
            unbound_slabs: AtomicU32::new(0),
            pool: Mutex::new(Pool::new(slabs, geometry.columns_per_slab, stripes, limit_slabs)),
            retired: Mutex::new(Vec::new()),
            retired_count: AtomicUsize::new(0),
            retired_pinned: AtomicUsize::new(0),
            pinned_columns: AtomicUsize::new(0),
            limit_slabs: AtomicU32::new(limit_slabs),
            slabs_max: AtomicU32::new(slabs),
            first_touch: FirstTouch::default(),
            check_bytes: if kept.is_some() { CHECK_BYTES } else { 0 },
            always_expiry_word: options.always_expiry_word,
            kept,
        };
        let memory = Memory { inner: Arc::new(inner) };
        if options.pages == PagesWanted::Coloured && !matches!(memory.pages(), PageKind::Coloured { .. }) {
            tracing::warn!("no coloured pages: {}", memory.pages_description());
        }
        tracing::info!(column_bytes, limit_slabs, pages = memory.pages_description(), "memory reserved");
        Ok(memory)
    }

    /// Where the memory is kept in a file: what a later process is told.
    #[inline]
    pub fn head(&self) -> Option<&Head> {
        self.inner.kept.as_ref().map(|kept| kept.head())
    }

    /// Where the memory is kept in a file: what an earlier process left in it.
    pub fn left(&self) -> Option<&Left> {
        self.inner.kept.as_ref().map(|kept| kept.left())
    }

    /// Writes dictionary `number`, 1 to [`DICTIONARIES_MAX`] - 1, with a word that says whose it is, to the file where
    /// the memory is kept in one. Durable when this returns. No record needs another dictionary of this number.
    ///
    /// # Errors
    /// The file system has no memory left.
    ///
    /// [`DICTIONARIES_MAX`]: crate::DICTIONARIES_MAX
    pub fn keep_dictionary(&self, number: u8, owner: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.inner.kept.as_ref().map_or(Ok(()), |kept| kept.keep_dictionary(number, owner, bytes))
    }

    /// Where the memory is kept in a file: dictionary `number`, 1 to [`DICTIONARIES_MAX`] - 1, as an earlier process
    /// wrote it, after the word that says whose it is. `None` = there is none, or it is damaged.
    ///
    /// [`DICTIONARIES_MAX`]: crate::DICTIONARIES_MAX
    pub fn kept_dictionary(&self, number: u8) -> Option<(u64, Vec<u8>)> {
        self.inner.kept.as_ref()?.dictionary(number)
    }

    /// Where the memory is kept in a file: the seed of the hash of the keys.
    pub fn kept_seed(&self) -> Option<u64> {
        self.inner.kept.as_ref().map(|kept| kept.seed())
    }

    /// The sizes that were chosen.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    /// Longest chunk of a large value, in bytes.
    pub fn chunk_bytes_max(&self) -> u32 {
        self.inner.geometry.chunk_bytes_max
    }

    /// The kind of pages of the arena.
    pub fn pages(&self) -> PageKind {
        self.inner.arena.kind()
    }

    /// The kind of pages in a sentence for people, with the reason if the wanted pages could not be had.
    pub fn pages_description(&self) -> String {
        self.inner.arena.description()
    }

    /// The nodes that columns are taken from: those of the options, or one.
    pub fn nodes(&self) -> &NumaNodes {
        &self.inner.nodes
    }

    /// The node that a column belongs to.
    #[inline]
    pub fn node_of(&self, id: ColumnId) -> NodeId {
        self.inner.stripes.node_of(SlabId(id.0 / self.inner.geometry.columns_per_slab))
    }

    /// How often a slab was mapped that the kernel did not bind to its node. Such a slab lies on the node of the thread
    /// that touches it first. 0 where there is one node.
    pub fn unbound_slabs(&self) -> u32 {
        self.inner.unbound_slabs.load(Ordering::Relaxed)
    }

    fn take_free(&self, node: NodeId) -> Option<(ColumnId, u64)> {
        let mut pool = lock(&self.inner.pool);
        if pool.free_columns_of(node) == 0 && self.inner.retired_count.load(Ordering::Relaxed) > 0 {
            drop(pool);
            self.recycle();
            pool = lock(&self.inner.pool);
        }
        if pool.free_columns_of(node) == 0
            && self.map_one(&mut pool, node, FreshPages::InStep).is_none()
            && pool.free_columns() == 0
        {
            let mut others = pool.nodes_from(node).skip(1);
            others.find_map(|other| self.map_one(&mut pool, other, FreshPages::InStep));
        }
        let id = pool.take(node)?;
        Some((id, pool.birth()))
    }

    /// Whether the limit allows another slab.
    fn may_map(&self, pool: &Pool) -> bool {
        pool.mapped() < self.inner.limit_slabs.load(Ordering::Relaxed)
    }

    /// Maps one more slab of the node if the limit allows it.
    fn map_one(&self, pool: &mut Pool, node: NodeId, pages: FreshPages) -> Option<SlabId> {
        if !self.may_map(pool) {
            return None;
        }
        let slab = pool.next_unmapped(node)?;
        if self.inner.nodes.count() > 1 {
            self.bind(slab, node);
        }
        let wants_huge = pages == FreshPages::Huge || self.inner.first_touch.wants_huge(pool.mapped());
        let pages = match self.inner.arena.map_slab(slab, wants_huge) {
            Ok(pages) => pages,
            Err(error) => {
                tracing::error!(%error, slab = slab.0, "the kernel refused a slab");
                if self.inner.kept.is_some() {
                    // What the file system had free at the start has gone to others. Writers are not to wait for more.
                    self.inner.slabs_max.store(pool.mapped().max(1), Ordering::Relaxed);
                    self.set_limit(self.limit_bytes());
                }
                return None;
            }
        };
        pool.mapped_now(slab, pages);
        for column in pool.columns(slab) {
            self.inner.columns[column as usize].set_state(ColumnState::Free);
        }
        Some(slab)
    }

    /// Tells the kernel on which node the memory of a slab should lie.
    fn bind(&self, slab: SlabId, node: NodeId) {
        let number = self.inner.nodes.number(node);
        if let Err(error) = self.inner.arena.bind(slab, number)
            && self.inner.unbound_slabs.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!(
                %error,
                "the kernel does not bind memory to node {number}: it lies where it is touched first"
            );
        }
    }

    /// Takes memory from the kernel now, until `ready_wanted` free columns are ready, and of each node its part of
    /// them, or the limit is reached. A background thread that calls it saves a SET from waiting for the kernel.
    /// Returns the number of free columns that are ready.
    pub fn touch_ahead(&self, ready_wanted: usize, pages: FreshPages) -> usize {
        loop {
            let mut pool = lock(&self.inner.pool);
            let (ready, may_map) = (pool.ready_columns(), self.may_map(&pool));
            let of_node = ready_wanted / self.inner.nodes.count() as usize;
            let Some(node) = pool.least_ready(may_map) else { return ready };
            if ready >= ready_wanted && pool.ready_columns_of(node) >= of_node {
                return ready;
            }
            let touched = match pool.next_to_touch(node) {
                Some(touched) => touched,
                None if self.map_one(&mut pool, node, pages).is_some() => continue,
                None => return ready,
            };
            // Populating is no write: it may race with a thread that already fills the column.
            drop(pool);
            let columns = touched.len() as u64;
            let began_ns = machine::thread_cpu_ns();
            let offset = u64::from(touched.start) << self.inner.column_shift;
            self.inner.arena.populate(offset, (columns << self.inner.column_shift) as usize);
            let of_slab = u64::from(self.inner.geometry.columns_per_slab) / columns;
            self.inner.first_touch.note(of_slab == 1, (machine::thread_cpu_ns() - began_ns) * of_slab);
        }
    }

    /// Number of free columns whose memory is there, so that writing to them does not wait for the kernel.
    pub fn ready_columns(&self) -> usize {
        lock(&self.inner.pool).ready_columns()
    }

    /// How many columns of fresh memory were taken since the start. A column whose memory was given back in between
    /// counts again.
    pub fn fresh_columns_taken(&self) -> u64 {
        lock(&self.inner.pool).fresh_taken()
    }

    /// Says whether so much is being written that the first touch of memory should be as cheap as it can be.
    pub fn set_hurried(&self, is_hurried: bool) {
        self.inner.first_touch.set_hurried(is_hurried);
    }

    /// Puts a huge page in place of the small ones of one slab, nearly all of which are used. The kernel copies the
    /// slab, which takes some hundred microseconds or more; threads that read or write it wait only for the exchange.
    /// Returns whether there was such a slab.
    pub fn collapse_some(&self) -> bool {
        let Some(slab) = lock(&self.inner.pool).take_complete() else { return false };
        self.inner.arena.collapse(slab);
        true
    }

    /// Gives memory of free columns back to the kernel: that of one slab, or of one column on small pages. Returns
    /// whether it did. One thread at a time calls this or releases slabs.
    pub fn give_idle_back(&self) -> bool {
        let mut pool = lock(&self.inner.pool);
        if let Some(slab) = pool.idle_slab() {
            pool.begin_release(slab);
            let is_unmapped = self.unmap(&mut pool, slab);
            if !is_unmapped {
                pool.cancel_release(slab);
            }
            return is_unmapped;
        }
        let Some(column) = pool.take_idle() else { return false };
        drop(pool);
        let offset = u64::from(column.0) << self.inner.column_shift;
        self.inner.arena.give_column_back(offset, self.inner.geometry.column_bytes as usize);
        lock(&self.inner.pool).put_untouched(column);
        true
    }

    /// Sets how many bytes of columns may be mapped: rounded down to slabs, at least one slab, at most the
    /// reservation. A limit below what is mapped takes effect as slabs are released.
    pub fn set_limit(&self, bytes: u64) {
        let slabs_max = self.inner.slabs_max.load(Ordering::Relaxed);
        self.inner.limit_slabs.store(slabs_in(bytes).clamp(1, slabs_max), Ordering::Relaxed);
    }

    /// The current limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        u64::from(self.inner.limit_slabs.load(Ordering::Relaxed)) * SLAB_BYTES as u64
    }

    /// How many slabs must be released to comply with the limit.
    pub fn over_limit_slabs(&self) -> usize {
        let mapped = lock(&self.inner.pool).mapped();
        mapped.saturating_sub(self.inner.limit_slabs.load(Ordering::Relaxed)) as usize
    }

    /// Takes a sealed column out of use. The caller has removed or moved every index entry that led to its records,
    /// so no reader can find them any more. The bytes stay unchanged until every reader that is online now has
    /// passed a quiescent point.
    ///
    /// # Panics
    /// If the column is not sealed, because a column that is retired twice would be handed to two owners.
    pub fn retire(&self, id: ColumnId) {
        if let Err(state) = self.column(id).try_retire() {
            panic!("{id:?} cannot be retired: it is {state:?}");
        }
        let mut retired = lock(&self.inner.retired);
        retired.push(Retired { column: id, stamp: self.inner.epochs.retire() });
        self.inner.retired_count.store(retired.len(), Ordering::Relaxed);
    }

    /// Frees the retired columns that no reader can be reading and that have no pin. Returns their number.
    pub fn recycle(&self) -> usize {
        let mut retired = lock(&self.inner.retired);
        if retired.is_empty() {
            return 0;
        }
        let before = self.inner.epochs.reusable_before();
        let mut pool = lock(&self.inner.pool);
        let (length, mut pinned) = (retired.len(), 0);
        retired.retain(|entry| {
            let column = self.column(entry.column);
            // The pins are checked after the epochs: a reader that pinned under its guard did so before the
            // announcement that the scan saw.
            let is_pinned = entry.stamp < before && column.is_pinned();
            pinned += usize::from(is_pinned);
            if entry.stamp >= before || is_pinned {
                return true;
            }
            column.set_state(ColumnState::Free);
            pool.put(entry.column);
            false
        });
        self.inner.retired_count.store(retired.len(), Ordering::Relaxed);
        self.inner.retired_pinned.store(pinned, Ordering::Relaxed);
        length - retired.len()
    }

    /// A stamp for what the caller has made unreachable, as [`Memory::retire`] gives one to a column: see
    /// [`Memory::has_passed`].
    pub fn stamp(&self) -> u64 {
        self.inner.epochs.retire()
    }

    /// Whether every reader that was online when `stamp` was made has passed a quiescent point since.
    pub fn has_passed(&self, stamp: u64) -> bool {
        stamp < self.inner.epochs.reusable_before()
    }

    /// Number of columns that are retired and not yet free.
    pub fn retired_columns(&self) -> usize {
        self.inner.retired_count.load(Ordering::Relaxed)
    }

    /// Number of retired columns that only wait for readers to pass a quiescent point, as of the last
    /// [`Memory::recycle`]. The other retired columns are pinned for the duration of a transfer.
    pub fn returning_columns(&self) -> usize {
        self.retired_columns().saturating_sub(self.inner.retired_pinned.load(Ordering::Relaxed))
    }

    /// Number of columns that transfers pin ([`ChunkSpace`](crate::ChunkSpace), [`ColumnPin`](crate::ColumnPin)). A
    /// column with several pins counts once.
    pub fn pinned_columns(&self) -> usize {
        self.inner.pinned_columns.load(Ordering::Relaxed)
    }

    /// How many slabs are being released: what of their columns cannot be emptied may come back.
    pub fn releasing_slabs(&self) -> usize {
        lock(&self.inner.pool).releasing_slabs()
    }

    /// Chooses the slab that is cheapest to empty and stops handing out its columns. The caller then moves or drops
    /// the items of its sealed columns, seals its open ones, retires all of them, and calls
    /// [`Memory::finish_release`] until that succeeds. `None` if no mapped slab is left to choose.
    pub fn begin_release_slab(&self) -> Option<SlabId> {
        let mut pool = lock(&self.inner.pool);
        let columns = &self.inner.columns;
        let of = |range: std::ops::Range<u32>| columns[range.start as usize..range.end as usize].iter();
        let cost = |column: &Column| match column.state() {
            ColumnState::Sealed => u64::from(column.live_bytes()),
            // Emptying an open column means waiting for its owner.
            ColumnState::Open => 4 * u64::from(self.inner.geometry.column_bytes),
            _ => 0,
        };
        let is_held_up = |column: &Column| column.state() == ColumnState::Open || column.is_pinned();
        let slab =
            pool.choose_release(|range| of(range).map(cost).sum(), |range| of(range).any(is_held_up))?;
        pool.begin_release(slab);
        Some(slab)
    }

    /// The columns of a slab and their states.
    pub fn slab_columns(&self, slab: SlabId) -> impl Iterator<Item = (ColumnId, ColumnState)> {
        let per_slab = self.inner.geometry.columns_per_slab;
        (slab.0 * per_slab..(slab.0 + 1) * per_slab)
            .map(|id| (ColumnId(id), self.column(ColumnId(id)).state()))
    }

    /// Gives the slab back to the kernel if all of its columns are free by now. Returns whether it did. If it did not,
    /// the slab is still being released.
    ///
    /// # Panics
    /// If the slab is not being released.
    pub fn finish_release(&self, slab: SlabId) -> bool {
        self.recycle();
        let mut pool = lock(&self.inner.pool);
        assert!(pool.is_releasing(slab), "{slab:?} is not being released");
        pool.is_all_free(slab) && self.unmap(&mut pool, slab)
    }

    /// Ends a release that [`Memory::begin_release_slab`] began: the columns of the slab are handed out again.
    ///
    /// # Panics
    /// If the slab is not being released.
    pub fn cancel_release(&self, slab: SlabId) {
        lock(&self.inner.pool).cancel_release(slab);
    }

    /// The same where the slab cannot be emptied. While one of its columns is open or pinned,
    /// [`Memory::begin_release_slab`] chooses the other slabs first: else it would choose this one, which has the most
    /// free columns, again and again.
    ///
    /// # Panics
    /// If the slab is not being released.
    pub fn put_off_release(&self, slab: SlabId) {
        lock(&self.inner.pool).put_off_release(slab);
    }

    fn unmap(&self, pool: &mut Pool, slab: SlabId) -> bool {
        if let Err(error) = self.inner.arena.give_back(slab) {
            tracing::warn!(%error, slab = slab.0, "the kernel did not take a slab back");
            return false;
        }
        pool.unmapped_now(slab);
        for column in pool.columns(slab) {
            self.inner.columns[column as usize].set_state(ColumnState::Absent);
        }
        true
    }

    /// The bookkeeping of a column.
    ///
    /// # Panics
    /// If there is no such column.
    #[inline]
    pub fn column(&self, id: ColumnId) -> &Column {
        &self.inner.columns[id.0 as usize]
    }

    /// Only columns with numbers below this one were ever mapped. Columns of slabs that were given back are Absent
    /// now.
    pub fn columns_mapped(&self) -> u32 {
        lock(&self.inner.pool).slabs_touched() * self.inner.geometry.columns_per_slab
    }

    /// The column of a location in memory.
    #[inline]
    pub fn column_of(&self, at: Location) -> ColumnId {
        debug_assert!(!at.is_on_flash());
        ColumnId((at.offset() >> self.inner.column_shift) as u32)
    }

    /// Number of columns that can be taken without mapping a slab and without waiting.
    pub fn free_columns(&self) -> usize {
        lock(&self.inner.pool).free_columns()
    }

    /// Number of columns that can be taken without waiting: the free ones, and those of slabs that may still be
    /// mapped.
    pub fn available_columns(&self) -> usize {
        let pool = lock(&self.inner.pool);
        let unmapped = self.inner.limit_slabs.load(Ordering::Relaxed).saturating_sub(pool.mapped());
        pool.free_columns() + (unmapped * self.inner.geometry.columns_per_slab) as usize
    }

    /// Bytes of the mapped slabs.
    pub fn mapped_bytes(&self) -> u64 {
        u64::from(lock(&self.inner.pool).mapped()) * SLAB_BYTES as u64
    }

    /// Bytes of the whole reservation. Every record begins below that.
    pub fn reserve_bytes(&self) -> u64 {
        self.inner.arena_bytes
    }

    /// Bytes held beside the slabs: the bookkeeping of the columns used so far, and spare coloured pages.
    pub fn overhead_bytes(&self) -> u64 {
        let table = u64::from(self.columns_mapped()) * size_of::<Column>() as u64;
        table + self.inner.arena.spare_bytes()
    }

    /// The first byte of the arena, for tests that ask the kernel about its pages.
    #[doc(hidden)]
    pub fn base(&self) -> *const u8 {
        self.inner.arena.base()
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("geometry", &self.inner.geometry).finish_non_exhaustive()
    }
}
