//! After a delete by prefix: removes the entries of the items that were deleted, and then forgets the prefix.
//!
//! A delete by prefix is answered before any of its items is looked at. Until they are gone every look at an old item
//! asks a table (`larder_item::PrefixFloors`), and the table is small. So the keeper walks over the index once, whether
//! there is room or not, a bounded number of buckets at a time:
//!
//! 1. It waits until no column is open that was born before the floor. A writer may have placed a record in such a
//!    column before the floor was there, and publish it after its bucket was walked over. Workers seal such columns
//!    once a second; the pass seals its own here.
//! 2. It removes each entry that leads to a deleted item. No such entry can come: writers put what has a deleted prefix
//!    into younger columns, and the pass moves no flushed item. What was removed is dead bytes in its column.
//! 3. It waits until every reader has passed a quiescent point: one that found an entry before it was removed may be
//!    about to ask whether its item was flushed.
//!
//! Then no look can meet an item that a row of the walk's beginning concerns, and those rows go. Rows that were added
//! meanwhile are for the next walk, be their floors higher or, where no column was taken in between, the same.

use super::pass::Pass;
use crate::demoter::Levels;
use crate::item_store::{ItemStore, Life};
use crate::selector::Selector;
use larder_item::{Location, PrefixFloors};
use larder_memory::{ColumnId, ColumnState};
use std::sync::Arc;

/// Buckets between two looks at the time, and at whether another thread wants the keeper.
const BUCKETS_AT_ONCE: u64 = 128;
/// How far ahead buckets are prefetched.
const PREFETCHED: u64 = 8;

/// How far the entries of deleted prefixes are removed.
#[derive(Default)]
pub(super) struct PrefixSweep {
    stage: Stage,
    /// The table when the walk began.
    table: Arc<PrefixFloors>,
    /// Its highest floor.
    floor: u64,
    seen: Vec<Location>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// No walk is under way.
    #[default]
    Idle,
    /// Columns from before the floor are open.
    OpenColumns,
    /// This bucket is next.
    Buckets(u64),
    /// Readers have to pass a quiescent point after this stamp.
    Readers(u64),
}

impl PrefixSweep {
    /// Does a bounded part of the work. Returns whether there is more to do now.
    pub(super) fn go_on(&mut self, levels: Levels<'_>, selector: &mut Selector, pass: &mut Pass) -> bool {
        let store = levels.store;
        let prefixes = store.floors.prefixes();
        if prefixes.is_empty() {
            self.stage = Stage::Idle;
            return false;
        }
        match self.stage {
            Stage::Idle => {
                (self.stage, self.floor) = (Stage::OpenColumns, prefixes.highest());
                self.table = prefixes;
                true
            }
            Stage::OpenColumns => {
                pass.seal_below(store, selector, self.floor);
                if has_open_below(store, self.floor) {
                    return false;
                }
                self.stage = Stage::Buckets(0);
                true
            }
            Stage::Buckets(first) => {
                self.stage = match self.walk(store, pass, first) {
                    Some(next) => Stage::Buckets(next),
                    None => Stage::Readers(store.memory.stamp()),
                };
                true
            }
            Stage::Readers(stamp) => {
                if !store.memory.has_passed(stamp) {
                    return false;
                }
                store.forget_prefixes(&self.table);
                self.stage = Stage::Idle;
                true
            }
        }
    }

    /// Removes what is deleted of the buckets from the cursor `first` on. Returns the cursor behind them, if there are
    /// more.
    fn walk(&mut self, store: &ItemStore, pass: &mut Pass, first: u64) -> Option<u64> {
        let (floor, prefixes, seen) = (self.floor, store.floors.prefixes(), &mut self.seen);
        let counters = store.counters.keeper();
        pass.with_guard(|guard| {
            seen.clear();
            let mut next = Some(first);
            for _ in 0..BUCKETS_AT_ONCE {
                let Some(cursor) = next else { break };
                store.index.prefetch_walk(cursor, PREFETCHED);
                let walked = store.index.walk(cursor, &mut |entry| {
                    if store.birth_of(entry.location) < floor {
                        guard.prefetch(entry.location);
                        seen.push(entry.location);
                    }
                });
                next = walked.next;
            }
            for at in seen.drain(..) {
                let item = guard.item(at);
                if store.birth_of(at) >= prefixes.floor_of(item.key()) {
                    continue;
                }
                let mut bucket = store.index.lock(store.hasher.hash(item.key()));
                let Some(found) = bucket.find_at(at) else { continue };
                // Flash has dropped the prefix as well: there is nothing to invalidate.
                guard.revoke(at);
                bucket.remove(&found);
                drop(bucket);
                store.count_removal(&guard, at, Life::Flushed, found.entry.warmth, counters);
            }
            next
        })
    }
}

/// Whether a column is being filled that was born before `floor`.
fn has_open_below(store: &ItemStore, floor: u64) -> bool {
    (0..store.memory.columns_mapped())
        .map(|id| store.memory.column(ColumnId(id)))
        .any(|column| column.state() == ColumnState::Open && column.birth() < floor)
}
