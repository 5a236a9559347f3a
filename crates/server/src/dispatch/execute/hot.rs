//! Hot keys and large items: what is noted of them, and `stats hotkeys` and `stats largekeys`.

use super::Executor;
use crate::dispatch::outcome::StatRows;
use crate::keys::{SHOWN, share, shown_key};
use larder_cache::{HotKeysReport, KeyHash, LargeKey};

/// Stored values that a worker notes as large in a second, at most.
const LARGE_NOTES_PER_S: u32 = 500;

impl Executor {
    /// A key was asked for, and stands for `stands_for` keys. An empty key is none. `with_size` = look how large its
    /// item is.
    pub(in crate::dispatch) fn note_sampled(
        &self,
        hash: KeyHash,
        key: &[u8],
        stands_for: u64,
        with_size: bool,
    ) {
        if !key.is_empty() {
            self.cache().hot_keys().note(hash, key, stands_for);
            if with_size {
                self.note_size(hash, key);
            }
        }
    }

    /// A value was stored.
    #[inline(always)]
    pub(super) fn note_if_large(&self, hash: KeyHash, key: &[u8], value_bytes: u32) {
        if value_bytes > self.large_floor.get() {
            self.note_large(hash, key, value_bytes);
        }
    }

    /// A stored value is large. In a second a limited number is noted, however many are stored: the table of a cache of
    /// few large items would be looked through for each of them.
    #[cold]
    #[inline(never)]
    fn note_large(&self, hash: KeyHash, key: &[u8], value_bytes: u32) {
        self.cache().large_keys().note(hash, key, value_bytes);
        self.large_notes_left.set(self.large_notes_left.get().saturating_sub(1));
        self.look_for_floor();
    }

    /// Looks from which size on a stored value is large.
    fn look_for_floor(&self) {
        let may_note = self.large_notes_left.get() > 0;
        self.large_floor.set(if may_note { self.cache().large_keys().floor() } else { u32::MAX });
    }

    /// A second is over.
    pub(super) fn tick_of_keys(&self) {
        self.large_notes_left.set(LARGE_NOTES_PER_S);
        self.look_for_floor();
        if self.number == 0 {
            self.cache().hot_keys().tick();
            self.check_large();
        }
    }

    /// An item may be large.
    pub(super) fn note_size(&self, hash: KeyHash, key: &[u8]) {
        if let Some(hit) = self.worker.peek(hash, key)
            && hit.value_bytes() > self.cache().large_keys().floor()
        {
            self.cache().large_keys().note(hash, key, hit.value_bytes());
        }
    }

    /// Forgets large items that are gone.
    fn check_large(&self) {
        self.cache().large_keys().check(|item| self.size_now(item));
    }

    /// The length of the value of an item, if the item is still there.
    fn size_now(&self, item: &LargeKey) -> Option<u32> {
        let here = self.worker.peek(item.hash, &item.key).map(|hit| hit.value_bytes());
        let is_on_flash = || {
            !self.worker.has_entry(item.hash, &item.key)
                && self.cache().flash_tier().is_some_and(|flash| flash.may_hold(item.hash))
        };
        here.or_else(|| is_on_flash().then_some(item.value_bytes))
    }

    /// `stats hotkeys`, which memcached does not have.
    pub(super) fn stats_hot_keys(&self, rows: &mut StatRows) {
        let report = self.cache().hot_keys().report(SHOWN);
        let HotKeysReport { requests, seconds, sampled, .. } = report;
        rows.put("sampled", sampled);
        rows.put("requests", requests);
        rows.put("seconds", format!("{seconds:.1}"));
        for (rank, hot) in (1..).zip(&report.keys) {
            rows.put(format!("{rank}:key"), shown_key(&hot.key));
            rows.put(format!("{rank}:share"), format!("{:.4}", share(hot.requests, requests)));
            rows.put(format!("{rank}:requests"), hot.requests);
            rows.put(format!("{rank}:too_high_max"), hot.too_high_max);
            rows.put(format!("{rank}:sample_error"), hot.sample_error);
        }
    }

    /// `stats largekeys`, which memcached does not have.
    pub(super) fn stats_large_keys(&self, rows: &mut StatRows) {
        self.check_large();
        for (rank, large) in (1..).zip(self.cache().large_keys().largest(SHOWN)) {
            rows.put(format!("{rank}:key"), shown_key(&large.key));
            rows.put(format!("{rank}:bytes"), large.value_bytes);
        }
    }
}
