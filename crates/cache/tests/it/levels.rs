//! Memory and flash: on which level an item is, and when.

use larder_cache::*;
use larder_flash::Recover;
use larder_flash::device::Device;
use larder_laboratory::{FaultyDevice, MemoryDevice};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The smallest limit, in bytes.
const LIMIT_BYTES: u64 = 8 << 20;
const VALUE_BYTES: usize = 2000;

struct Both {
    cache: Arc<Cache>,
    worker: Worker,
    flash: Arc<Flash>,
}

impl Both {
    fn open(
        device: impl Device + Clone + 'static,
        set: impl FnOnce(&mut FlashLevel, &mut CacheOptions),
    ) -> Both {
        let mut options = CacheOptions { limit_bytes: LIMIT_BYTES, workers: 1, ..CacheOptions::default() };
        let mut recover = Recover::Clean;
        // The tier has to know how it recovers before there is a level.
        let mut level = FlashLevel::from(crate::tier::open(&device, recover, None));
        set(&mut level, &mut options);
        if level.recover != recover {
            recover = level.recover;
            level.flash.close().expect("it is empty");
            level.flash = crate::tier::open(&device, recover, None);
        }
        let flash = level.flash.clone();
        let cache = Cache::with_flash(options, Some(level)).expect("a small cache can be made");
        Both { worker: cache.worker(), cache, flash }
    }

    fn new(set: impl FnOnce(&mut FlashLevel, &mut CacheOptions)) -> Both {
        // 256 MiB: nothing is dropped there.
        Both::open(MemoryDevice::new(256, 256), set)
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        self.cache.hash(key)
    }

    fn set_until(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let store = Store { flags: 7, expiry, ..Store::set(key, self.hash(key), value) };
        let outcome = self.worker.store(&store);
        assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
        self.worker.quiesce();
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.set_until(key, value, Expiry::NEVER);
    }

    fn delete(&mut self, key: &[u8]) -> DeleteOutcome {
        self.worker.delete(&Delete::of(key, self.hash(key)))
    }

    fn in_memory(&self, key: &[u8]) -> Option<Vec<u8>> {
        let hit = self.worker.peek(self.hash(key), key)?;
        let mut value = Vec::new();
        self.worker.copy_value(&hit, &mut value);
        Some(value)
    }

    /// The value that a server finds on flash, if memory has no entry of the key.
    fn on_flash(&mut self, key: &[u8], promote: bool) -> Option<Vec<u8>> {
        let hash = self.hash(key);
        if !self.worker.flash_may_hold(hash, key) {
            return None;
        }
        let found = crate::tier::fetch(&mut self.worker, hash, key)?;
        assert_eq!(found.flags, 7);
        Some(crate::tier::take_in(&mut self.worker, hash, key, &found, promote)?.0)
    }

    /// Stores `count` items, more than memory holds, no faster than the device writes.
    fn fill(&mut self, name: &str, count: usize) {
        // Columns in which nothing was stored for a minute are not kept open.
        (0..=60).for_each(|_| self.worker.tick());
        for number in 0..count {
            self.set(&key_of(name, number), &value_of(name, number));
            if number % 64 == 0 {
                self.settle();
            }
        }
        self.settle();
    }

    /// Waits until the pass and the tier have nothing left to do.
    fn settle(&mut self) {
        self.worker.quiesce();
        self.cache.tend();
        self.flash.tend();
        std::thread::sleep(Duration::from_millis(2));
    }

    /// Stores items until all present ones have left memory.
    fn push_out(&mut self, name: &str) {
        self.fill(name, 3 * LIMIT_BYTES as usize / VALUE_BYTES / 2);
    }

    /// As [`Both::push_out`], also of items that expire: the pass may have moved them to a column that it keeps open
    /// for a minute.
    fn push_out_all(&mut self, name: &str) {
        self.push_out(name);
        self.cache.clock().shift(100);
        self.push_out(&format!("{name} again"));
    }
}

fn key_of(name: &str, number: usize) -> Vec<u8> {
    format!("{name}-{number:06}").into_bytes()
}

fn value_of(name: &str, number: usize) -> Vec<u8> {
    let mut value = format!("{name}-{number}-").into_bytes().repeat(VALUE_BYTES);
    value.truncate(VALUE_BYTES);
    value
}

/// A lookup that would need a third read is a miss: about one in some thousand.
fn is_nearly_all(found: u64, there: u64) -> bool {
    found <= there + there / 200 && there <= found + there / 200
}

#[test]
fn what_was_evicted_and_admitted_is_found_again() {
    const COUNT: usize = 10_000;
    let mut both = Both::new(|_, _| {});
    both.fill("item", COUNT);
    let totals = both.cache.totals();
    assert!(totals.demoted > 3000, "{totals:?}");
    assert_eq!(totals.evictions, totals.demoted + totals.demotions_shed);
    let (mut memory, mut flash) = (0, 0);
    for number in 0..COUNT {
        let key = key_of("item", number);
        let found = match both.in_memory(&key) {
            Some(value) => {
                memory += 1;
                value
            }
            None => match both.on_flash(&key, false) {
                Some(value) => {
                    flash += 1;
                    value
                }
                None => continue,
            },
        };
        assert!(found == value_of("item", number), "item {number} has another value");
    }
    assert!(memory > 100, "{memory}");
    assert!(
        is_nearly_all(flash, totals.demoted),
        "what flash took, flash has: {flash} of {}",
        totals.demoted
    );
    assert_eq!(both.cache.totals().flash_hits, flash);
}

/// Evicts an item, promotes it, and evicts it again by storing others.
fn there_and_back(exclusive: Exclusive) -> (Both, u64) {
    const COUNT: usize = 200;
    let mut both = Both::new(|level, _| level.exclusive = exclusive);
    // Items that are oldest on flash may be dropped soon, and are written again for that reason.
    both.push_out("older");
    both.push_out("old");
    both.fill("item", COUNT);
    both.push_out("first");
    let mut promoted = 0;
    for number in 0..COUNT {
        let key = key_of("item", number);
        let Some(value) = both.on_flash(&key, true) else { continue };
        assert!(value == value_of("item", number));
        assert!(both.in_memory(&key).is_some_and(|value| value == value_of("item", number)));
        promoted += 1;
        let hash = both.hash(&key);
        assert!(!both.worker.flash_may_hold(hash, &key), "memory has it, so flash is not asked");
    }
    assert!(promoted > COUNT as u64 / 2);
    assert_eq!(both.cache.totals().promoted, promoted);
    both.push_out("second");
    let found = (0..COUNT).filter(|number| both.on_flash(&key_of("item", *number), false).is_some()).count();
    assert!(found > COUNT / 2, "{found}");
    (both, promoted)
}

#[test]
fn what_comes_back_clean_is_not_written_again() {
    let (both, promoted) = there_and_back(Exclusive::Lazy);
    let elided = both.cache.totals().elided;
    assert!(elided * 2 > promoted && elided <= promoted, "{elided} of {promoted}");
}

#[test]
fn exclusive_levels_write_again() {
    let (both, _) = there_and_back(Exclusive::Strict);
    assert_eq!(both.cache.totals().elided, 0);
}

#[test]
fn a_change_after_promotion_is_what_is_found_later() {
    // First in, first out, so that a change does not keep an item in memory.
    let mut both = Both::new(|_, options| options.temperature = TemperatureKind::OFF);
    let far = Expiry::at_s(both.cache.clock().now_s() + 5000);
    for number in 0..50 {
        both.set_until(&key_of("item", number), b"old", far);
    }
    both.push_out_all("first");
    let later = Expiry::at_s(far.seconds() + 1000);
    let mut changed = Vec::new();
    for number in 0..50 {
        let key = key_of("item", number);
        if both.on_flash(&key, true).is_none() {
            continue;
        }
        let hash = both.hash(&key);
        match number % 3 {
            0 => assert_eq!(both.worker.touch(hash, &key, later), Touched::Done),
            1 => both.set_until(&key, b"new", far),
            _ => assert_eq!(both.delete(&key), DeleteOutcome::Deleted),
        }
        changed.push(number);
    }
    both.push_out_all("second");
    let mut found_again = 0;
    for number in changed {
        let key = key_of("item", number);
        let hash = both.hash(&key);
        if both.in_memory(&key).is_some() {
            continue;
        }
        let found = crate::tier::fetch(&mut both.worker, hash, &key);
        let started_s = both.cache.clock().started_unix_s();
        let told = found.map(|found| (found.value, i64::from(found.expires_unix_s) - started_s));
        let expected = match number % 3 {
            0 => Some((b"old".to_vec(), later.seconds().into())),
            1 => Some((b"new".to_vec(), far.seconds().into())),
            _ => None,
        };
        // Flash may have been behind. Then it has nothing of the key.
        assert!(told.is_none() || told == expected, "item {number}: {told:?}");
        found_again += usize::from(told.is_some());
    }
    assert!(found_again > 10, "{found_again}");
}

#[test]
fn an_overwrite_leaves_no_tombstone_and_hides_what_flash_has() {
    const COUNT: usize = 500;
    let mut both = Both::new(|level, options| {
        options.temperature = TemperatureKind::OFF;
        level.admission.only_fetched = true;
    });
    both.fill("item", COUNT);
    for number in 0..COUNT {
        let key = key_of("item", number);
        assert!(both.worker.get(both.hash(&key), &key).is_some_and(|hit| {
            both.worker.note_fetch(&hit);
            true
        }));
    }
    both.push_out("first");
    let on_flash: Vec<usize> =
        (0..COUNT).filter(|number| both.on_flash(&key_of("item", *number), false).is_some()).collect();
    assert!(on_flash.len() > COUNT / 2, "{}", on_flash.len());
    let before = both.flash.stats().tombstones;
    for round in 0..3 {
        for &number in &on_flash {
            both.set(&key_of("item", number), format!("new {round}").as_bytes());
        }
    }
    assert_eq!(both.flash.stats().tombstones, before, "memory hides what flash has");
    both.push_out("second");
    for &number in &on_flash {
        let key = key_of("item", number);
        assert_eq!(both.in_memory(&key), None);
        assert!(both.on_flash(&key, false).is_none_or(|value| value == b"new 2"), "item {number} is old");
    }
}

#[test]
fn what_expired_or_was_flushed_on_both_levels_leaves_no_tombstone() {
    const COUNT: usize = 200;
    let mut both = Both::new(|_, options| options.temperature = TemperatureKind::OFF);
    let far = Expiry::at_s(both.cache.clock().now_s() + 5000);
    for number in 0..COUNT {
        both.set_until(&key_of("clean", number), b"old", far);
        both.set_until(&key_of("dirty", number), b"old", Expiry::at_s(far.seconds() + 5000));
    }
    both.push_out_all("first");
    let mut bring = |name: &str| -> Vec<Vec<u8>> {
        let keys = (0..COUNT).map(|number| key_of(name, number));
        keys.filter(|key| both.on_flash(key, true).is_some()).collect()
    };
    let (clean, dirty) = (bring("clean"), bring("dirty"));
    assert!(clean.len() > COUNT / 2 && dirty.len() > COUNT / 2);
    // A shorter life than that of the version on flash.
    dirty.iter().for_each(|key| both.set_until(key, b"new", far));
    let before = both.flash.stats().tombstones;
    both.cache.clock().shift(6000);
    both.push_out("second");
    for key in clean.iter().chain(&dirty) {
        assert_eq!((both.in_memory(key), both.on_flash(key, false)), (None, None));
    }
    let needed = both.flash.stats().tombstones - before;
    assert!((dirty.len() as u64..dirty.len() as u64 + 50).contains(&needed), "{needed} of {}", dirty.len());
    both.cache.flush(None);
    let before = both.flash.stats().tombstones;
    both.push_out("third");
    let needed = both.flash.stats().tombstones - before;
    assert!(needed < 50, "{needed}: the flush has removed what flash had");
}

#[test]
fn a_stalled_device_costs_no_other_items_and_serves_nothing_old() {
    const COUNT: usize = 2500;
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(256, 256)));
    let mut both = Both::open(device.clone(), |level, options| {
        options.temperature = TemperatureKind::OFF;
        level.recover = Recover::Clean;
    });
    both.fill("other", COUNT);
    both.fill("item", COUNT);
    both.push_out("first");
    let have = |both: &mut Both, name: &str| -> Vec<usize> {
        (0..COUNT).filter(|number| both.on_flash(&key_of(name, *number), false).is_some()).collect()
    };
    let (others, items) = (have(&mut both, "other"), have(&mut both, "item"));
    assert!(others.len() > COUNT / 2 && items.len() > COUNT / 2, "{} {}", others.len(), items.len());
    device.close_gate();
    for round in 0..8 {
        for &number in &items {
            both.set(&key_of("item", number), format!("{round:01000}").as_bytes());
        }
        both.cache.tend();
    }
    for number in 0..COUNT {
        let value = both.on_flash(&key_of("item", number), false);
        let is_new = |value: &Vec<u8>| value.ends_with(b"7");
        assert!(value.as_ref().is_none_or(is_new), "item {number} is old");
    }
    let stats = both.flash.stats();
    let totals = both.cache.totals();
    assert!(totals.demotions_shed > 1000, "the device takes nothing: {totals:?}");
    assert_eq!(stats.drops_of_all, 0);
    let still = have(&mut both, "other").len();
    assert!(still * 100 >= others.len() * 60, "{still} of {}: {stats:?}", others.len());
    device.open_gate();
    both.settle();
    both.flash.close().expect("the device works again");
}

#[test]
fn a_store_waits_for_flash_and_nothing_is_lost_until_it_waits_no_longer() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(256, 256)));
    let mut both = Both::open(device.clone(), |level, _| level.store_wait_max_ms = 60_000);
    let mut number = 0;
    let mut store_until_it_waits = |both: &mut Both| {
        for _ in 0..20_000 {
            if both.worker.waits_for_flash() {
                both.cache.tend();
                both.worker.quiesce();
                if both.worker.waits_for_flash() {
                    return;
                }
            }
            number += 1;
            both.set(&key_of("item", number), &value_of("item", number));
        }
        panic!("the buffers of flash have no end");
    };
    for _ in 0..3 {
        device.close_gate();
        store_until_it_waits(&mut both);
        assert!(both.flash.is_behind());
        device.open_gate();
        while both.worker.waits_for_flash() {
            both.settle();
        }
    }
    let totals = both.cache.totals();
    assert!(totals.demoted > 0 && totals.demotions_shed == 0, "{totals:?}");
    device.close_gate();
    store_until_it_waits(&mut both);
    // Each time the worker takes one more column. Some are left for those that do not wait.
    for _ in 0..200 {
        both.worker.wait_no_longer();
        assert!(!both.worker.waits_for_flash());
        store_until_it_waits(&mut both);
    }
    let totals = both.cache.totals();
    assert!(totals.demotions_shed > 0 && totals.store_no_memory == 0, "{totals:?}");
    device.open_gate();
}

#[test]
fn a_lower_limit_is_met_while_flash_is_behind() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(256, 256)));
    let mut both = Both::open(device.clone(), |level, options| {
        options.limit_bytes = 3 * LIMIT_BYTES;
        level.store_wait_max_ms = 600_000;
    });
    both.fill("item", 3 * LIMIT_BYTES as usize / VALUE_BYTES);
    device.close_gate();
    let mut number = 0;
    while !both.flash.is_behind() {
        both.set(&key_of("more", number), &value_of("more", number));
        both.cache.tend();
        number += 1;
        assert!(number < 20_000, "the buffers of flash have no end");
    }
    // The last slab is free but for the column that the worker fills, and that nobody can take from it.
    assert!(both.cache.set_limit(4 * LIMIT_BYTES));
    let full_bytes = both.cache.memory_use().columns_bytes;
    while both.cache.memory_use().columns_bytes == full_bytes {
        both.set(&key_of("more", number), &value_of("more", number));
        number += 1;
    }
    assert!(both.cache.set_limit(LIMIT_BYTES));
    let mut rounds = 0;
    while both.cache.memory_use().columns_bytes > LIMIT_BYTES {
        both.worker.quiesce();
        both.cache.tend();
        rounds += 1;
        assert!(rounds < 100, "{:?}", both.cache.memory_use());
    }
    device.open_gate();
}

#[test]
fn without_eviction_items_leave_memory_only_for_flash() {
    const COUNT: usize = 10_000;
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(256, 256)));
    let mut both = Both::open(device.clone(), |level, options| {
        options.evict = false;
        // Nobody reads the items: what is refused stays in memory.
        level.admission.only_fetched = true;
    });
    // More than twice as much as memory holds.
    both.fill("item", COUNT);
    let mut found = 0;
    for number in 0..COUNT {
        let key = key_of("item", number);
        let value = both.in_memory(&key).or_else(|| both.on_flash(&key, false));
        assert!(value.as_ref().is_none_or(|value| *value == value_of("item", number)));
        found += value.is_some() as u64;
    }
    assert!(is_nearly_all(found, COUNT as u64), "{found} of {COUNT}");
    // While flash takes nothing, a store is refused in the end, and no item is lost.
    device.close_gate();
    let mut stored = Vec::new();
    for number in 0..2 * COUNT {
        let key = key_of("more", number);
        let value = value_of("more", number);
        let store = Store { flags: 7, ..Store::set(&key, both.hash(&key), &value) };
        match both.worker.store(&store) {
            StoreOutcome::Stored { .. } => stored.push(number),
            outcome => {
                assert_eq!(outcome, StoreOutcome::NoRoom);
                break;
            }
        }
        both.worker.quiesce();
    }
    assert!(stored.len() < 2 * COUNT && both.cache.totals().demotions_shed < COUNT as u64);
    let there = |both: &mut Both, number: &usize| {
        let key = key_of("more", *number);
        both.in_memory(&key).or_else(|| both.on_flash(&key, false)).is_some()
    };
    let found = stored.iter().filter(|number| there(&mut both, number)).count();
    assert!(is_nearly_all(found as u64, stored.len() as u64), "{found} of {}", stored.len());
    device.open_gate();
    both.settle();
    both.set(b"again", b"there is room");
    both.flash.close().expect("the device works again");
}

#[test]
fn without_eviction_a_store_is_refused_when_the_device_takes_nothing() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(12, 64)));
    let mut both = Both::open(device.clone(), |_, options| options.evict = false);
    let value = [b'v'; 60];
    let mut store = |number: u32| {
        let key = format!("key-{number}");
        let hash = both.hash(key.as_bytes());
        both.worker.store(&Store::set(key.as_bytes(), hash, &value))
    };
    // Some of it is on flash, whose index then has no room for the rest.
    // A store that is refused has waited half a second.
    let next = (0..40_000).find(|number| store(*number) == StoreOutcome::NoRoom).unwrap_or(40_000);
    device.close_gate();
    let refused = (next..400_000).find(|number| store(*number) == StoreOutcome::NoRoom);
    assert!(refused.is_some());
    device.open_gate();
}

#[test]
fn only_items_that_were_read_were_active() {
    let mut both = Both::new(|_, options| options.temperature = TemperatureKind::OFF);
    for _ in 0..3 {
        (0..100).for_each(|number| both.set(&key_of("item", number), b"overwritten"));
    }
    both.push_out("first");
    assert_eq!(both.cache.totals().evicted_active, 0, "nobody has read anything");
    for number in 0..100 {
        let key = key_of("read", number);
        // With this policy only an overwrite makes an entry warmer.
        both.set(&key, b"once");
        both.set(&key, b"read");
        let hit = both.worker.get(both.hash(&key), &key).expect("just stored");
        both.worker.note_fetch(&hit);
    }
    both.push_out("second");
    assert_eq!(both.cache.totals().evicted_active, 100);
}

#[test]
fn long_values_go_and_come_in_parts() {
    let mut both = Both::new(|_, options| options.limit_bytes = 64 << 20);
    let part_bytes = both.flash.part_bytes_max();
    let lengths = [part_bytes - 1, part_bytes, part_bytes + 1, 2 * part_bytes, 3 * part_bytes + 5];
    let limit = both.cache.item_bytes_max() as usize - 1000;
    let value =
        |bytes: usize| -> Vec<u8> { (0..bytes).map(|n| ((n * n) >> 7) as u8 ^ bytes as u8).collect() };
    let long: Vec<(Vec<u8>, usize)> =
        lengths.iter().map(|bytes| (format!("long-{bytes}").into_bytes(), (*bytes).min(limit))).collect();
    for (key, bytes) in &long {
        both.set(key, &value(*bytes));
    }
    both.fill("filler", 60_000);
    let mut found = 0;
    for promote in [false, true] {
        for (key, bytes) in &long {
            assert_eq!(both.in_memory(key), None);
            let Some(came) = both.on_flash(key, promote) else { continue };
            assert!(came == value(*bytes), "{} bytes came back as others", bytes);
            found += 1;
            assert!(!promote || both.in_memory(key).is_some_and(|came| came == value(*bytes)));
        }
    }
    assert!(found > lengths.len(), "{found}");
}

#[test]
fn a_restart_keeps_what_was_in_memory_and_on_flash() {
    const COUNT: usize = 6000;
    let device = MemoryDevice::new(256, 256);
    let mut both = Both::open(device.clone(), |_, _| {});
    both.fill("item", COUNT);
    let gone = key_of("item", 5);
    both.delete(&gone);
    let far = Expiry::at_s(both.cache.clock().now_s() + 10_000);
    both.set_until(b"expiring", b"soon", far);
    both.set_until(b"expired", b"over", Expiry::at_s(both.cache.clock().now_s()));
    let cas = both.worker.peek(both.hash(b"expiring"), b"expiring").expect("just stored").cas();
    let (in_memory, shed) = (both.cache.items(), both.cache.totals().demotions_shed);
    let saved = both.cache.save_to_flash();
    assert_eq!((saved.written + saved.clean, saved.lost), (in_memory - 1, 0), "{saved:?}");
    let again = both.cache.save_to_flash();
    assert_eq!(again.written + again.clean, in_memory - 1);
    both.flash.close().expect("a device of memory does not fail");
    let expires_unix_s = i64::from(far.seconds()) + both.cache.clock().started_unix_s();
    drop(both);

    let mut both = Both::open(device, |_, _| {});
    // During recovery the tier answers with what it knows already, and may miss the rest.
    let until = Instant::now() + Duration::from_secs(60);
    while both.flash.stats().is_recovering {
        both.settle();
        assert!(Instant::now() < until, "it never came to the end of its recovery");
    }
    let missing = (0..COUNT).filter(|number| {
        let value = both.on_flash(&key_of("item", *number), false);
        assert!(value.as_ref().is_none_or(|value| *value == value_of("item", *number)));
        value.is_none()
    });
    let missing = missing.count() as u64;
    let expected = COUNT as u64 - shed - 1;
    assert!(is_nearly_all(COUNT as u64 - missing, expected), "{missing} missing, {shed} shed");
    assert_eq!(both.on_flash(&gone, false), None, "it was deleted");
    assert_eq!(both.on_flash(b"expired", false), None);
    assert_eq!(both.on_flash(b"expiring", true).as_deref(), Some(&b"soon"[..]));
    let hit = both.worker.peek(both.hash(b"expiring"), b"expiring").expect("it was promoted");
    assert_eq!(hit.cas(), cas);
    let now_at = i64::from(hit.expiry().seconds()) + both.cache.clock().started_unix_s();
    assert_eq!(now_at, expires_unix_s);
    both.set(b"fresh", b"new");
    let fresh = both.worker.peek(both.hash(b"fresh"), b"fresh").expect("just stored").cas();
    assert!(fresh > cas, "CAS numbers go on: {fresh} after {cas}");
}

#[test]
fn in_mode_journal_what_replaces_something_on_flash_has_to_be_committed() {
    for recover in [Recover::Clean, Recover::Journal] {
        let mut both = Both::new(|level, _| level.recover = recover);
        both.fill("item", 100);
        both.push_out("first");
        both.worker.take_commit();
        let mut commits = Vec::new();
        for number in 0..100 {
            let key = key_of("item", number);
            let hash = both.hash(&key);
            if crate::tier::fetch(&mut both.worker, hash, &key).is_none() {
                continue;
            }
            match number % 3 {
                0 => both.set(&key, b"new"),
                1 => assert_eq!(both.delete(&key), DeleteOutcome::NotFound),
                _ => {
                    assert!(both.on_flash(&key, true).is_some());
                    let now_s = both.cache.clock().now_s();
                    assert_eq!(both.worker.touch(hash, &key, Expiry::NEVER), Touched::Done);
                    assert_eq!(both.worker.take_commit(), None, "nothing was changed");
                    both.worker.touch(hash, &key, Expiry::at_s(now_s + 100));
                }
            }
            commits.push(both.worker.take_commit());
            assert_eq!(both.worker.take_commit(), None, "it is told once");
        }
        assert!(commits.len() > 50);
        match recover {
            Recover::Journal => assert!(commits.iter().all(Option::is_some), "{commits:?}"),
            _ => continue,
        }
        let last = commits.into_iter().max().flatten().expect("there are some");
        let until = Instant::now() + Duration::from_secs(60);
        while both.worker.flash_committed() < last {
            both.settle();
            assert!(Instant::now() < until, "the journal never got there");
        }
    }
}

#[test]
fn with_a_journal_what_was_changed_in_memory_is_invalidated_once() {
    let mut both = Both::new(|level, _| level.recover = Recover::Journal);
    both.fill("item", 100);
    both.push_out("first");
    let mut keys = (0..100).map(|number| key_of("item", number));
    let key = keys.find(|key| both.on_flash(key, false).is_some()).expect("some are on flash");
    let hash = both.hash(&key);
    both.worker.take_commit();
    let before = both.flash.stats().tombstones;
    both.set(&key, b"new");
    let first = both.worker.take_commit().expect("flash has an older version");
    assert_eq!(both.flash.stats().tombstones, before + 1);
    for _ in 0..10 {
        both.set(&key, b"newer");
        let until = both.worker.take_commit();
        assert!(until.is_some_and(|until| until >= first) || both.worker.flash_committed() >= first);
    }
    both.delete(&key);
    assert_eq!(both.flash.stats().tombstones, before + 1, "nothing of the key was on flash any more");
    assert!(crate::tier::fetch(&mut both.worker, hash, &key).is_none());
    // An item that came from flash is there still.
    let key = keys.find(|key| both.on_flash(key, true).is_some()).expect("others are on flash");
    let hash = both.hash(&key);
    both.worker.take_commit();
    assert!(both.worker.claim_token(hash, &key));
    assert!(both.worker.take_commit().is_some(), "the token goes with the version in memory");
    assert_eq!(both.flash.stats().tombstones, before + 2);
}

#[test]
fn a_worker_without_memory_for_reading_hears_of_commits() {
    let mut both = Both::new(|level, options| {
        level.recover = Recover::Journal;
        options.workers = 2;
    });
    both.fill("item", 100);
    both.push_out("first");
    // They take all the memory for reading that there is.
    let readers: Vec<_> = std::iter::from_fn(|| both.flash.fetcher().ok()).collect();
    let mut starved = both.cache.worker();
    assert_eq!(starved.fetch_depth(), 0, "{} readers leave memory for another one", readers.len());
    assert!(starved.fetch_fd().is_some(), "nothing tells it that its replies may leave");
    let commit = (0..100).find_map(|number| {
        let key = key_of("item", number);
        starved.delete(&Delete::of(&key, both.hash(&key)));
        starved.take_commit()
    });
    let commit = commit.expect("some of the items are on flash");
    let until = Instant::now() + Duration::from_secs(60);
    while starved.flash_committed() < commit {
        starved.poll_fetches(&mut |_, _| panic!("it reads nothing"));
        both.settle();
        assert!(Instant::now() < until, "the journal never got there");
    }
}

#[test]
fn what_has_expired_in_memory_does_not_come_back_younger() {
    let mut both = Both::new(|_, _| {});
    both.cache.clock().hold();
    both.fill("item", 50);
    both.push_out("first");
    let on_flash: Vec<usize> =
        (0..50).filter(|number| both.on_flash(&key_of("item", *number), false).is_some()).collect();
    assert!(on_flash.len() > 25);
    let soon = Expiry::at_s(both.cache.clock().now_s() + 5);
    for number in &on_flash {
        both.set_until(&key_of("item", *number), b"short-lived", soon);
    }
    both.cache.clock().shift(10);
    both.cache.tick();
    for number in &on_flash {
        let (key, hash) = (key_of("item", *number), both.hash(&key_of("item", *number)));
        assert!(both.worker.get(hash, &key).is_none());
        assert!(!both.worker.flash_may_hold(hash, &key), "what flash has is older");
    }
    both.push_out("second");
    for number in &on_flash {
        assert_eq!(both.on_flash(&key_of("item", *number), false), None, "item {number}");
    }
}

#[test]
fn a_limit_of_lifetimes_is_for_what_is_stored_and_not_for_what_comes_back() {
    let mut both = Both::new(|_, _| {});
    both.cache.clock().hold();
    both.fill("item", 50);
    both.push_out("first");
    let limited = Namespace { name: "item".to_owned(), least_percent: 0, most_percent: 100, ttl_max_s: 5 };
    both.cache.set_namespaces(&[limited], b'-').unwrap();
    let key = |number| key_of("item", number);
    let promoted: Vec<usize> =
        (0..50).filter(|number| both.on_flash(&key(*number), true).is_some()).collect();
    assert!(promoted.len() > 25);
    both.cache.clock().shift(10);
    // Its copy on flash has not expired either: gone here, it would come back from there.
    assert!(promoted.iter().all(|number| both.in_memory(&key(*number)).is_some()));
    both.set(&key(50), b"stored now");
    both.cache.clock().shift(10);
    assert_eq!(both.in_memory(&key(50)), None);
}

#[test]
fn what_has_expired_is_not_written_to_flash() {
    let mut both = Both::new(|_, _| {});
    both.cache.clock().hold();
    let soon = Expiry::at_s(both.cache.clock().now_s() + 5);
    for number in 0..600 {
        both.set_until(&key_of("short", number), &value_of("short", number), soon);
    }
    both.cache.clock().shift(10);
    both.fill("item", 600);
    let totals = both.cache.totals();
    assert_eq!((totals.demoted, totals.evictions), (0, 0), "{totals:?}");
    assert!(totals.reclaimed > 300, "{totals:?}");
}

#[test]
fn the_write_budget_bounds_what_goes_to_flash() {
    let mut both = Both::new(|level, _| level.admission.write_bytes_per_day = Some(24_000_000));
    both.fill("item", 10_000);
    let totals = both.cache.totals();
    assert!(totals.admission_rejected > 1000, "{totals:?}");
    // The budget of one hour is there at the start.
    assert!(totals.demoted * (VALUE_BYTES as u64) < 1_100_000, "{totals:?}");
    assert!(totals.demoted > 100, "{totals:?}");
}

/// The mean time in milliseconds that clients wait for the items that were pushed out of memory, with a tenth of their
/// bytes on flash.
fn wait_ms(mode: WorthMode) -> f64 {
    const ITEMS: u32 = 40_000;
    let mut both = Both::new(|level, options| {
        level.admission.write_bytes_per_day = Some(24 * u64::from(ITEMS) * VALUE_BYTES as u64 / 10);
        options.worth.mode = mode;
        // What stays in memory does not depend on the mode.
        options.temperature = TemperatureKind::OFF;
    });
    both.cache.clock().hold();
    let penalty = |number: u32| Subclass::from_number((number % 5) as u8);
    // An hour of stores, so that the bytes that are saved up at the start are a small part of all.
    for round in 0..60 {
        for number in 0..ITEMS / 60 {
            let number = round * (ITEMS / 60) + number;
            let key = key_of("item", number as usize);
            let store = Store::set(&key, both.hash(&key), &[7; VALUE_BYTES]);
            both.worker.store(&Store { flags: 7, penalty: penalty(number), ..store });
            both.worker.quiesce();
        }
        both.settle();
        both.cache.clock().shift(60);
        both.cache.tick();
    }
    let (mut waited_us, mut asked) = (0.0, 0);
    for number in ITEMS / 4..ITEMS {
        let key = key_of("item", number as usize);
        if both.worker.get(both.hash(&key), &key).is_none() {
            let is_on_flash = both.on_flash(&key, false).is_some();
            let miss_us = penalty(number).expect("there are five").typical_us();
            waited_us += if is_on_flash { 100.0 } else { f64::from(miss_us) };
            asked += 1;
        }
    }
    waited_us / f64::from(asked) / 1000.0
}

#[test]
fn with_the_same_budget_of_writes_clients_wait_less_where_worth_ranks_items() {
    let (chance_ms, ranked_ms) = (wait_ms(WorthMode::Static), wait_ms(WorthMode::Penalty));
    println!("waiting for items that left memory: {ranked_ms:.1} ms ranked, {chance_ms:.1} ms by chance");
    assert!(ranked_ms < 0.8 * chance_ms, "{ranked_ms} ms, {chance_ms} ms by chance");
}
