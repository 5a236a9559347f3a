//! Where nothing may be evicted: live items are moved together, so that dead bytes become room for writers again.
//!
//! The columns with the most to gain are emptied first, into one column for items of all lifetimes. When all columns
//! with something to gain were emptied, all live items stand together, but for what is left over at the ends of
//! columns. So a write is refused only when less is dead than [`needed_bytes`].

use crate::item_store::ItemStore;
use crate::ranking::Candidate;
use crate::selector::movable;
use larder_memory::ColumnId;
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// A writer that waits has columns packed together while this share of the used bytes can be gained, or a column and a
/// quarter if that is more. To gain one column, 512 are emptied at most.
const WAITED_FOR_SHARE: u64 = 512;
/// The keeper packs columns together before a writer waits, while this share can be gained.
const AHEAD_SHARE: u64 = 16;
/// A column that was sealed with more than an eighth of it free, and more than the longest chunk of a large value takes
/// with its row, had more room than a record takes.
const LEFT_OVER_SHARE: u64 = 8;
const CHUNK_ROW_BYTES_MAX: u64 = 64;
/// A look at all columns that takes longer than 100 microseconds is repeated after 20 times as long, or at once when
/// half a column's worth has died.
const QUICK_LOOK: Duration = Duration::from_micros(100);
const LOOK_TIMES: u32 = 20;

/// For whom columns are packed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PackedFor {
    /// A writer that found no column.
    Writer,
    /// Writers to come.
    Later,
}

/// Which columns are packed together next.
#[derive(Default)]
pub(super) struct Packing {
    /// The columns, with their births and what can be gained of them; the one with the most is last.
    next: Vec<(u64, ColumnId, u64)>,
    /// What could be gained of all columns at the last look.
    gain_bytes: u64,
    looked: Option<Look>,
}

/// The last look at all columns.
struct Look {
    at: Instant,
    /// The second of the server's clock: items expire with the next one.
    now_s: u32,
    took: Duration,
    /// Bytes that had died or expired by then.
    gone_bytes: u64,
}

/// What has to be gained at least, of columns of which so much can be gained, so that emptying them pays.
fn needed_bytes(store: &ItemStore, wanted: PackedFor) -> u64 {
    let column_bytes = store.column_bytes();
    let kept_columns = store.columns_for_replacing() as u64;
    let share = match wanted {
        // What is kept for items that take the place of others must not run out before it pays.
        PackedFor::Writer => (store.used_bytes() / WAITED_FOR_SHARE).min(kept_columns * column_bytes),
        PackedFor::Later => store.used_bytes() / AHEAD_SHARE,
    };
    share.max(column_bytes + column_bytes / 4)
}

/// What emptying a column would gain, if it can be emptied.
fn gain(store: &ItemStore, column: ColumnId) -> Option<u64> {
    let Candidate::Ready(found) = movable(store, column) else { return None };
    let used_bytes = u64::from(store.memory.column(column).used_bytes());
    let left_over = found.column_bytes.saturating_sub(used_bytes);
    let record_bytes_max = u64::from(store.memory.chunk_bytes_max()) + CHUNK_ROW_BYTES_MAX;
    let had_room = left_over > (found.column_bytes / LEFT_OVER_SHARE).max(record_bytes_max);
    let free_bytes = if had_room { left_over } else { 0 };
    Some(used_bytes.saturating_sub(found.live_bytes) + free_bytes).filter(|gain| *gain > 0)
}

impl Packing {
    /// Whether enough can be gained, where `open_bytes` are free in the column that is being filled.
    pub(super) fn pays(&mut self, store: &ItemStore, wanted: PackedFor, open_bytes: u64) -> bool {
        let needed = needed_bytes(store, wanted);
        self.forget_gone(store);
        if self.gain_bytes + open_bytes < needed {
            self.look(store);
        }
        self.gain_bytes + open_bytes >= needed
    }

    /// Looks at all columns, unless that was done a moment ago and little has died since.
    fn look(&mut self, store: &ItemStore) {
        let gone_bytes = store.counters.died_bytes() + store.over_bytes();
        let now_s = store.clock.now_s();
        let is_known = self.looked.as_ref().is_some_and(|look| {
            look.took > QUICK_LOOK
                && look.now_s == now_s
                && look.at.elapsed() < LOOK_TIMES * look.took
                && gone_bytes.saturating_sub(look.gone_bytes) < store.column_bytes() / 2
        });
        if is_known {
            return;
        }
        let at = Instant::now();
        self.next.clear();
        for column in (0..store.memory.columns_mapped()).map(ColumnId) {
            if let Some(gain) = gain(store, column) {
                self.next.push((gain, column, store.memory.column(column).birth()));
            }
        }
        // Of equal ones the first goes first.
        self.next.sort_unstable_by_key(|&(gain, column, _)| (gain, Reverse(column)));
        self.gain_bytes = self.next.iter().map(|(gain, ..)| gain).sum();
        self.looked = Some(Look { at, now_s, took: at.elapsed(), gone_bytes });
    }

    /// The next column. The caller empties it, or gives it back.
    pub(super) fn next(&mut self, store: &ItemStore) -> Option<ColumnId> {
        self.forget_gone(store);
        let (gain_before, column, _) = self.next.pop()?;
        self.gain_bytes = self.gain_bytes.saturating_sub(gain_before);
        Some(column)
    }

    /// Forgets columns that were taken anew since the last look, until the next one can be emptied. Otherwise what was
    /// known would seem to be enough, and none of it be there.
    fn forget_gone(&mut self, store: &ItemStore) {
        while let Some(&(gain_before, column, birth)) = self.next.last()
            && (store.memory.column(column).birth() != birth || gain(store, column).is_none())
        {
            self.next.pop();
            self.gain_bytes = self.gain_bytes.saturating_sub(gain_before);
        }
    }

    /// More can be gained of a column than at the last look.
    pub(super) fn note(&mut self, store: &ItemStore, column: ColumnId) {
        let Some(gain) = gain(store, column) else { return };
        if let Some(known) = self.next.iter().position(|(_, known, _)| *known == column) {
            self.gain_bytes = self.gain_bytes.saturating_sub(self.next.remove(known).0);
        }
        let at = self.next.partition_point(|(before, ..)| *before <= gain);
        self.next.insert(at, (gain, column, store.memory.column(column).birth()));
        self.gain_bytes += gain;
    }

    /// A column could not be emptied now, for there was no column to move its items to.
    pub(super) fn give_back(&mut self, store: &ItemStore, column: ColumnId) {
        if let Some(gain) = gain(store, column) {
            self.next.push((gain, column, store.memory.column(column).birth()));
            self.gain_bytes += gain;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::time_slice::{Pace, TimeSlice};
    use crate::{Cache, CacheOptions, Upload, Worker};
    use std::sync::Arc;

    fn cache() -> Arc<Cache> {
        let options =
            CacheOptions { limit_bytes: 16 << 20, workers: 1, evict: false, ..CacheOptions::default() };
        Cache::new(options).expect("a small cache can be made")
    }

    /// A long value that is not stored yet.
    fn upload(cache: &Cache, worker: &mut Worker) -> Upload {
        let value = vec![1; 2 << 20];
        let upload = worker.begin_upload(cache.hash(b"key"), value.len() as u32);
        let mut upload = upload.expect("room for a value");
        assert!(worker.fill_upload(&mut upload, &value));
        upload
    }

    #[test]
    fn a_value_that_was_given_up_is_gained_at_once_however_long_the_last_look_took() {
        let (cache, mut packing) = (cache(), Packing::default());
        let mut worker = cache.worker();
        let upload = upload(&cache, &mut worker);
        assert!(!packing.pays(&cache.store, PackedFor::Writer, 0));
        packing.looked.as_mut().expect("it looked").took = Duration::from_secs(3600);
        worker.abandon_upload(upload);
        assert!(packing.pays(&cache.store, PackedFor::Writer, 0));
    }

    #[test]
    fn what_pays_is_there_although_the_columns_of_the_last_look_were_taken_anew() {
        let (cache, mut packing) = (cache(), Packing::default());
        let mut worker = cache.worker();
        let given_up = upload(&cache, &mut worker);
        worker.abandon_upload(given_up);
        assert!(packing.pays(&cache.store, PackedFor::Writer, 0));
        {
            let mut keeper = cache.keeper.lock();
            assert!(keeper.can_pack(&cache.store, PackedFor::Writer));
            while keeper.pack(cache.levels(), &mut TimeSlice::begin(Pace::Hurried)) {}
        }
        let given_up = upload(&cache, &mut worker);
        worker.abandon_upload(given_up);
        assert!(packing.pays(&cache.store, PackedFor::Writer, 0));
        assert!(packing.next(&cache.store).is_some());
    }
}
