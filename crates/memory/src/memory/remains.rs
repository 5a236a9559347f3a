//! What an earlier process left in a kept memory: which columns hold records, and which of these count.
//!
//! A process that is killed has carried out its instructions up to some point. So a record that says that it counts has
//! all of its bytes, and what was revoked before it was answered for is revoked. The records are read as those of any
//! sealed column. Nothing that is read is trusted: lengths stay within the column, and checksums must fit.

use super::Memory;
use super::guard::{Guard, Record};
use super::item::Remains;
use crate::column::{ColumnId, ColumnState};
use larder_item::Location;
#[cfg(not(any(miri, loom)))]
use std::sync::atomic::Ordering::Relaxed;

impl Memory {
    /// Takes over what an earlier process left: slabs, columns, and the numbers of their births. Nothing reads or
    /// writes the memory yet.
    #[cfg(not(any(miri, loom)))]
    pub(super) fn take_over(&self) -> std::io::Result<()> {
        let Some(head) = self.head() else { return Ok(()) };
        let geometry = self.geometry();
        // Deleted prefixes are not known any more, so nothing counts that their items may be among.
        let prefix_floor = head.prefix_floor.load(Relaxed);
        let flush_floor = head.flush_floor.fetch_max(prefix_floor, Relaxed).max(prefix_floor);
        head.prefix_floor.store(0, Relaxed);
        if prefix_floor > 0 {
            tracing::warn!(
                "a delete by prefix had not ended when the process was killed: what was stored before it is not kept"
            );
        }
        let slabs_max = geometry.columns_max / geometry.columns_per_slab;
        let touched = head.slabs_mapped.load(Relaxed).min(slabs_max.into()) as u32;
        let mut last_birth = flush_floor.saturating_sub(1);
        let mut slabs = Vec::with_capacity(touched as usize);
        for slab in (0..touched).map(crate::column::SlabId) {
            let columns = || self.slab_columns(slab).map(|(id, _)| self.column(id));
            last_birth = columns().map(|column| column.birth()).fold(last_birth, u64::max);
            if columns().all(|column| column.state() == ColumnState::Absent) {
                slabs.push(None);
                continue;
            }
            let free = columns().enumerate().fold(0, |free, (nth, column)| {
                let is_free = !column.take_over(geometry.column_bytes, flush_floor);
                free | u64::from(is_free) << nth
            });
            // A slab without records may have been given back when the process was killed.
            let is_there = free.count_ones() < geometry.columns_per_slab;
            self.inner.arena.map_slab_of_file(slab, is_there)?;
            slabs.push(Some(free));
        }
        super::lock(&self.inner.pool).take_over(&slabs, last_birth);
        Ok(())
    }

    /// The highest birth number of a column so far; 0 = none yet.
    pub fn last_birth(&self) -> u64 {
        super::lock(&self.inner.pool).last_birth()
    }

    /// The columns that hold records of an earlier process, in the order of their births. Nothing else has been placed
    /// yet.
    pub fn remaining_columns(&self) -> Vec<ColumnId> {
        let all = (0..self.columns_mapped()).map(ColumnId);
        let mut found: Vec<ColumnId> =
            all.filter(|id| self.column(*id).state() == ColumnState::Sealed).collect();
        found.sort_unstable_by_key(|id| self.column(*id).birth());
        found
    }

    /// Walks the records of such a column, and counts their bytes as dead. Returns false if it is damaged: then what
    /// was met counts for nothing, and the column is to be given up.
    pub fn walk_remains<'g>(
        &self,
        guard: &Guard<'g>,
        id: ColumnId,
        mut meet: impl FnMut(Location, Record<'g>, Remains),
    ) -> bool {
        let mut records = guard.records(id);
        let mut placed_bytes = 0;
        for (at, record) in records.by_ref() {
            let item = if let Record::Item(item) = record { item } else { guard.item(at) };
            let remains = item.remains();
            if remains == Remains::Damaged {
                return false;
            }
            placed_bytes += item.bytes();
            meet(at, record, remains);
        }
        self.column(id).count_placed(placed_bytes);
        records.has_met_all()
    }

    /// Gives up a column of an earlier process that no entry leads to and nobody reads: it is free from now on.
    pub fn give_up_remains(&self, id: ColumnId) {
        let column = self.column(id);
        assert_eq!(column.state(), ColumnState::Sealed, "a column that holds records is given up");
        column.set_state(ColumnState::Free);
        super::lock(&self.inner.pool).put(id);
    }
}
