//! Walks over the keys of all items.

use super::Executor;
use super::parts::has_head;
use crate::dispatch::item_key::{client_key, listed_key};
use crate::dispatch::operation::ItemKey;
use larder_cache::{CURSOR_BITS, Expiry, KeyHash, Kind, Seen, Tour, Toured, Watch, covers};
use std::time::Duration;

/// Up to this number of items are counted one by one, so that those that have expired do not count.
const COUNTED_MAX: u64 = 10_000;
/// They are counted one by one in an index of up to this number of buckets. One that has grown, and has few items now,
/// may have a million.
const COUNTED_BUCKETS_MAX: u64 = 8192;
/// Buckets that one call looks at, at most; and buckets that are looked at together for a key by chance.
const BUCKETS_AT_ONCE: usize = 4096;
/// Keys of flash that one call asks for, at most.
const KEYS_OF_FLASH_AT_ONCE: usize = 1000;
/// Bytes of keys that one call shows before it stops.
const BYTES_AT_ONCE: usize = 64 << 10;
/// One of this many keys is chosen by chance, or of all in the buckets that are looked at, if they are fewer.
const RANDOM_KEYS: usize = 16;
/// Buckets that are looked at for a key by chance, at most: a few milliseconds where nearly all are empty.
const RANDOM_BUCKETS_MAX: usize = 1 << 18;
/// Items that are looked at for one that is shown, at most: a fraction of a millisecond where nearly all are not.
const RANDOM_ITEMS_MAX: usize = 2048;
/// So long a turn waits for items of flash, which another thread reads, before other connections have theirs.
const FLASH_WAIT: Duration = Duration::from_micros(200);
/// So long, where no other connection can have its turn.
const FLASH_WAIT_ALONE: Duration = Duration::from_millis(100);
/// Buckets that are looked at to estimate how many items expire.
const SAMPLED_BUCKETS: usize = 1024;

/// How many items a database has.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::dispatch) struct ItemCount {
    pub(in crate::dispatch) database: usize,
    pub(in crate::dispatch) items: u64,
    /// Those that expire.
    pub(in crate::dispatch) expiring: u64,
    /// The mean of what is left of their lifetimes, in milliseconds.
    pub(in crate::dispatch) mean_ttl_ms: u64,
}

/// What is known of an item that a tour meets, beside its key.
pub(in crate::dispatch) struct Met {
    pub(in crate::dispatch) cas: u64,
    pub(in crate::dispatch) hash: KeyHash,
    pub(in crate::dispatch) kind: Kind,
}

impl Executor {
    /// Whether items are few enough, and the index small enough, to look at each item.
    fn are_countable(&self, items: u64) -> bool {
        items <= COUNTED_MAX && self.worker.cache().buckets() <= COUNTED_BUCKETS_MAX
    }

    /// About how many items are on flash alone.
    pub(in crate::dispatch) fn items_on_flash(&self) -> u64 {
        if self.fetches.is_none() {
            return 0;
        }
        self.worker.items_on_flash_alone(self.buckets_of_sample(self.worker.cache().items_not_flushed()))
    }

    /// How many items there are. In memory, among more than ten thousand, or in an index that was made for more, items
    /// that have expired count until the keeper has met them; those on flash are estimated.
    pub(in crate::dispatch) fn count_items(&self) -> u64 {
        self.count_items_in_memory() + self.items_on_flash()
    }

    fn count_items_in_memory(&self) -> u64 {
        let items = self.worker.cache().items_not_flushed();
        if !self.are_countable(items) {
            return items;
        }
        let mut live = 0;
        self.worker.walk(0, usize::MAX, &mut |_, _| {
            live += 1;
            true
        });
        live
    }

    /// How many buckets are looked at to count or estimate something of `items` items.
    fn buckets_of_sample(&self, items: u64) -> usize {
        match self.are_countable(items) {
            true => usize::MAX,
            // In a large index a few items are in a few buckets.
            false if items <= COUNTED_MAX => COUNTED_BUCKETS_MAX as usize,
            false => SAMPLED_BUCKETS,
        }
    }

    /// How many items have keys that a prefix [covers]. Among more than ten thousand in memory, or in an index that
    /// was made for more, that is estimated from a sample; on flash, as if it had as many of them as memory.
    pub(in crate::dispatch) fn count_items_of(&self, prefix: &[u8]) -> u64 {
        let all = self.worker.cache().items_not_flushed();
        let (mut seen, mut own) = (0u64, 0u64);
        self.worker.walk(0, self.buckets_of_sample(all), &mut |_, hit| {
            seen += 1;
            own += u64::from(covers(prefix, hit.item.key()));
            true
        });
        if seen == 0 && prefix.is_empty() {
            // Memory tells nothing, as after a restart: what flash has counts as that of database 0.
            return self.items_on_flash();
        }
        let share_of = |all: u64| (u128::from(own) * u128::from(all) / u128::from(seen.max(1))) as u64;
        let in_memory = if self.are_countable(all) { own } else { share_of(all) };
        in_memory + share_of(self.items_on_flash())
    }

    /// How many items each database has that has any, and how many of them expire. Among more than ten thousand in
    /// memory, or in an index that was made for more, that is estimated from a sample; flash has as many of each
    /// database, and that expire, as memory.
    pub(in crate::dispatch) fn describe_items(&self) -> Vec<ItemCount> {
        let cache = self.worker.cache();
        let all = cache.items_not_flushed();
        let is_counted = self.are_countable(all);
        let buckets = self.buckets_of_sample(all);
        let now_ms = self.clock().now_ms();
        // `mean_ttl_ms` has the sum at first.
        let mut counts: Vec<ItemCount> = Vec::new();
        let mut seen = 0u64;
        let order = self.databases().order().clone();
        self.worker.walk(0, buckets, &mut |_, hit| {
            seen += 1;
            let database = usize::from(order.database_of(hit.item.key()));
            let at = counts.iter().position(|count| count.database == database).unwrap_or_else(|| {
                counts.push(ItemCount { database, ..ItemCount::default() });
                counts.len() - 1
            });
            counts[at].items += 1;
            if let Some(at_ms) = hit.expiry().milliseconds() {
                counts[at].expiring += 1;
                counts[at].mean_ttl_ms += (at_ms - now_ms).max(0) as u64;
            }
            true
        });
        let items = if is_counted { seen } else { all } + self.items_on_flash();
        if counts.is_empty() && items > 0 {
            // The sample had none.
            counts.push(ItemCount { items, ..ItemCount::default() });
        }
        let scaled = |count: u64| (u128::from(count) * u128::from(items) / u128::from(seen.max(1))) as u64;
        for count in counts.iter_mut().filter(|_| seen > 0) {
            count.mean_ttl_ms /= count.expiring.max(1);
            (count.items, count.expiring) = (scaled(count.items), scaled(count.expiring));
        }
        counts.sort_by_key(|count| count.database);
        counts
    }

    /// How long a listing may wait for flash now: the first of a turn has the time of all.
    pub(super) fn flash_wait(&self) -> Duration {
        if self.turn.has_listed.replace(true) { Duration::ZERO } else { FLASH_WAIT }
    }

    /// A tour of all items: that of a cursor, or a new one for 0.
    pub(in crate::dispatch) fn tour_at(&self, cursor: u64) -> Tour {
        self.worker.tour_at(cursor)
    }

    /// Where to look for a key by chance: a place on flash, as often as items are there rather than in memory. `None` =
    /// in memory.
    pub(in crate::dispatch) fn tour_for_random_key(&self, random: u64) -> Option<Tour> {
        let on_flash = self.items_on_flash();
        let all = on_flash + self.worker.cache().items_not_flushed();
        let is_there = random.rotate_left(32) % all.max(1) < on_flash;
        is_there.then(|| self.worker.tour_from_anywhere(random))?
    }

    /// The cursor of a tour; 0 = it is at its end.
    pub(in crate::dispatch) fn cursor_of(&self, tour: &Tour) -> u64 {
        self.worker.cursor_of(tour)
    }

    /// Shows the next keys of a tour. In memory it ends when `show` has said of
    /// `least` of them that they count, after 64 KiB and the keys of a bucket, or after a few thousand buckets; on
    /// flash, after about `least` keys. `is_alone`: no other connection can have its turn meanwhile.
    pub(in crate::dispatch) fn find_keys(
        &self,
        tour: &mut Tour,
        least: usize,
        is_alone: bool,
        show: &mut dyn FnMut(&[u8], &Met) -> bool,
    ) -> Toured {
        let (mut counted, mut bytes) = (0, 0);
        let wait = if is_alone { FLASH_WAIT_ALONE } else { self.flash_wait() };
        self.worker.tour(tour, (BUCKETS_AT_ONCE, least.min(KEYS_OF_FLASH_AT_ONCE)), wait, &mut |seen| {
            let (key, met) = match seen {
                Seen::InMemory(worker, hit) => {
                    let (cas, hash, kind) = (hit.cas(), self.hash(hit.item.key()), hit.item.kind());
                    (client_key(worker, hit), Met { cas, hash, kind })
                }
                Seen::OnFlash(item) => {
                    let (cas, hash, kind) = (item.cas, item.hash, item.state.extension().kind);
                    (listed_key(item), Met { cas, hash, kind })
                }
            };
            counted += usize::from(show(&key, &met));
            bytes += key.len();
            counted < least && bytes < BYTES_AT_ONCE
        })
    }

    /// The key of some item that is `shown`, which is asked for a key and its CAS number. `None` = there is none, or
    /// they are very few in a large index or among many other items.
    ///
    /// It is chosen among the first keys from a random place on. The first one alone would not do: it is drawn as often
    /// as the gap before it is wide, so a key that stands right behind another would hardly ever be drawn.
    pub(in crate::dispatch) fn random_key(
        &self,
        random: u64,
        shown: impl Fn(&[u8], u64) -> bool,
    ) -> Option<Vec<u8>> {
        let start = random >> (u64::BITS - CURSOR_BITS);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let (mut cursor, mut buckets, mut seen) = (start, 0, 0);
        let mut from_the_beginning = false;
        loop {
            // What is left of a stretch of buckets at the end of the index is at its beginning.
            let left = BUCKETS_AT_ONCE - buckets % BUCKETS_AT_ONCE;
            let walk = self.worker.walk(cursor, left, &mut |worker, hit| {
                let key = client_key(worker, hit);
                seen += 1;
                // The last stretch of a round may go beyond the place where the round began.
                if shown(&key, hit.cas()) && !keys.iter().any(|other| *other == *key) {
                    keys.push(key.into_owned());
                }
                keys.len() < RANDOM_KEYS && seen < RANDOM_ITEMS_MAX
            });
            buckets += walk.buckets;
            if keys.len() >= RANDOM_KEYS || seen >= RANDOM_ITEMS_MAX || buckets >= RANDOM_BUCKETS_MAX {
                break;
            }
            match walk.next {
                Some(next) if !keys.is_empty() || (from_the_beginning && next >= start) => break,
                Some(next) => cursor = next,
                None if from_the_beginning => break,
                None => (cursor, from_the_beginning) = (0, true),
            }
        }
        match keys.len() as u64 {
            0 => None,
            count => Some(keys.swap_remove((random % count) as usize)),
        }
    }

    /// Which version of a key's item there is: its CAS number and its expiry. `None` = there is no item.
    pub(in crate::dispatch) fn version_of(&self, key: &ItemKey<'_>) -> Option<(u64, Expiry)> {
        let hit = self.worker.peek(key.hash, key.key).filter(|hit| has_head(&self.worker, hit, key.head))?;
        Some((hit.cas(), hit.expiry()))
    }

    /// When the item of a key expires, as of all changes that were begun before; `None` = memory has none.
    pub(in crate::dispatch) fn expiry_after_changes(&self, key: &ItemKey<'_>) -> Option<Expiry> {
        self.worker.expiry_after_changes(key.hash, key.key)
    }

    /// Watches a key whose item, if there is one, is in memory.
    pub(in crate::dispatch) fn watch_key(&self, key: &ItemKey<'_>) -> Watch {
        self.worker.watch(key.hash, key.key, |hit| has_head(&self.worker, hit, key.head))
    }
}
