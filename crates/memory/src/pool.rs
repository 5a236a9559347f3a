//! Which slabs are mapped and which columns are free: plain data behind one lock, which is taken once per column.

use crate::column::{ColumnId, SlabId};

#[derive(Clone, Copy, Default)]
struct Slab {
    /// The free columns of the slab, one bit per column.
    free: u64,
    mapped: bool,
    /// The slab was chosen to be given back: its free columns are not handed out.
    releasing: bool,
    /// The slab is in `Pool::with_free`.
    listed: bool,
}

/// The slabs and their free columns.
pub(crate) struct Pool {
    slabs: Vec<Slab>,
    columns_per_slab: u32,
    /// Slabs with free columns. The last one is used next. The list may contain slabs that have no free column any
    /// more.
    with_free: Vec<SlabId>,
    /// Slabs that were mapped once and given back.
    given_back: Vec<SlabId>,
    /// This slab and those after it were never mapped.
    fresh: u32,
    mapped: u32,
    /// Number of free columns in slabs that are not being released.
    free_columns: usize,
    /// The slab at which the next `choose_release` begins.
    release_cursor: u32,
    next_birth: u64,
}

/// Slabs with equally many free columns whose live bytes one `choose_release` compares.
const RELEASE_CANDIDATES_MAX: usize = 64;

impl Pool {
    pub(crate) fn new(slabs: u32, columns_per_slab: u32) -> Pool {
        assert!((1..=64).contains(&columns_per_slab), "a slab's columns fit one word");
        Pool {
            slabs: vec![Slab::default(); slabs as usize],
            columns_per_slab,
            with_free: Vec::new(),
            given_back: Vec::new(),
            fresh: 0,
            mapped: 0,
            free_columns: 0,
            release_cursor: 0,
            next_birth: 1,
        }
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.columns_per_slab)
    }

    pub(crate) fn slab_of(&self, column: ColumnId) -> SlabId {
        SlabId(column.0 / self.columns_per_slab)
    }

    pub(crate) fn columns(&self, slab: SlabId) -> std::ops::Range<u32> {
        slab.0 * self.columns_per_slab..(slab.0 + 1) * self.columns_per_slab
    }

    pub(crate) fn mapped(&self) -> u32 {
        self.mapped
    }

    pub(crate) fn free_columns(&self) -> usize {
        self.free_columns
    }

    /// Number of slabs that were ever mapped. They come first in the arena.
    pub(crate) fn slabs_touched(&self) -> u32 {
        self.fresh
    }

    /// A new birth number.
    pub(crate) fn birth(&mut self) -> u64 {
        self.next_birth += 1;
        self.next_birth - 1
    }

    /// Takes a free column.
    pub(crate) fn take(&mut self) -> Option<ColumnId> {
        while let Some(&id) = self.with_free.last() {
            let slab = &mut self.slabs[id.0 as usize];
            if slab.free == 0 || slab.releasing {
                slab.listed = false;
                self.with_free.pop();
                continue;
            }
            let column = slab.free.trailing_zeros();
            slab.free &= slab.free - 1;
            self.free_columns -= 1;
            return Some(ColumnId(id.0 * self.columns_per_slab + column));
        }
        None
    }

    /// Puts a column back.
    ///
    /// # Panics
    /// If the column is free already.
    pub(crate) fn put(&mut self, column: ColumnId) {
        let id = self.slab_of(column);
        let bit = 1 << (column.0 % self.columns_per_slab);
        let slab = &mut self.slabs[id.0 as usize];
        assert!(slab.mapped && slab.free & bit == 0, "{column:?} was freed twice");
        slab.free |= bit;
        if !slab.releasing {
            self.free_columns += 1;
        }
        self.list(id);
    }

    fn list(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id.0 as usize];
        if !slab.listed && !slab.releasing && slab.free != 0 {
            slab.listed = true;
            self.with_free.push(id);
        }
    }

    /// The slab to map next, if there is one.
    pub(crate) fn next_unmapped(&self) -> Option<SlabId> {
        let fresh = (self.fresh < self.slabs.len() as u32).then_some(SlabId(self.fresh));
        self.given_back.last().copied().or(fresh)
    }

    /// Records that the slab from `next_unmapped` was mapped. All its columns are free.
    pub(crate) fn mapped_now(&mut self, id: SlabId) {
        if self.given_back.last() == Some(&id) {
            self.given_back.pop();
        } else {
            assert_eq!(id.0, self.fresh);
            self.fresh += 1;
        }
        let free = self.all();
        let slab = &mut self.slabs[id.0 as usize];
        slab.mapped = true;
        slab.free = free;
        self.mapped += 1;
        self.free_columns += self.columns_per_slab as usize;
        self.list(id);
    }

    /// The mapped slab that is cheapest to empty: the one with the most free columns, and among equals the one with
    /// the least `cost`.
    pub(crate) fn choose_release(&mut self, cost: impl Fn(std::ops::Range<u32>) -> u64) -> Option<SlabId> {
        let candidate = |slab: &&Slab| slab.mapped && !slab.releasing;
        let free_most = self.slabs.iter().filter(candidate).map(|slab| slab.free.count_ones()).max()?;
        let count = self.fresh;
        let found = (0..count)
            .map(|n| SlabId((self.release_cursor + n) % count))
            .filter(|id| {
                let slab = &self.slabs[id.0 as usize];
                candidate(&slab) && slab.free.count_ones() == free_most
            })
            .take(RELEASE_CANDIDATES_MAX)
            .min_by_key(|&id| cost(self.columns(id)))?;
        self.release_cursor = (found.0 + 1) % count;
        Some(found)
    }

    /// Stops handing out the columns of the slab.
    pub(crate) fn begin_release(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id.0 as usize];
        assert!(slab.mapped && !slab.releasing);
        slab.releasing = true;
        self.free_columns -= slab.free.count_ones() as usize;
    }

    /// Hands out the columns of the slab again.
    ///
    /// # Panics
    /// If the slab is not being released.
    pub(crate) fn cancel_release(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id.0 as usize];
        assert!(slab.releasing, "{id:?} is not being released");
        slab.releasing = false;
        self.free_columns += slab.free.count_ones() as usize;
        self.list(id);
    }

    pub(crate) fn is_releasing(&self, id: SlabId) -> bool {
        self.slabs[id.0 as usize].releasing
    }

    /// Whether every column of the slab is free.
    pub(crate) fn is_all_free(&self, id: SlabId) -> bool {
        self.slabs[id.0 as usize].free == self.all()
    }

    /// Records that a slab was unmapped. It was being released, and all its columns are free.
    pub(crate) fn unmapped_now(&mut self, id: SlabId) {
        assert!(self.is_all_free(id) && self.is_releasing(id));
        let slab = &mut self.slabs[id.0 as usize];
        let listed = slab.listed;
        *slab = Slab { listed, ..Slab::default() };
        self.mapped -= 1;
        self.given_back.push(id);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..Default::default() })]
        /// Columns are never handed out twice and never from a slab that is being released, and the number of free
        /// columns is right.
        #[test]
        fn free_columns_are_counted_and_handed_out_once(steps in prop::collection::vec((0u8..5, any::<u32>()), 1..200)) {
            let mut pool = Pool::new(4, 4);
            let mut taken: Vec<ColumnId> = Vec::new();
            let mut releasing: HashSet<SlabId> = HashSet::new();
            for (step, number) in steps {
                match step {
                    0 => if let Some(slab) = pool.next_unmapped() { pool.mapped_now(slab) },
                    1 => if let Some(column) = pool.take() {
                        prop_assert!(!taken.contains(&column) && !releasing.contains(&pool.slab_of(column)));
                        taken.push(column);
                    },
                    2 => if !taken.is_empty() { pool.put(taken.swap_remove(number as usize % taken.len())) },
                    3 => if let Some(slab) = pool.choose_release(|columns| columns.start.into()) {
                        pool.begin_release(slab);
                        releasing.insert(slab);
                    },
                    _ => if let Some(&slab) = releasing.iter().next() {
                        releasing.remove(&slab);
                        if pool.is_all_free(slab) { pool.unmapped_now(slab) } else { pool.cancel_release(slab) }
                    },
                }
                let held = taken.iter().filter(|&&column| !releasing.contains(&pool.slab_of(column))).count();
                let usable = (pool.mapped() as usize - releasing.len()) * 4;
                prop_assert_eq!(pool.free_columns(), usable - held);
            }
        }
    }
}
