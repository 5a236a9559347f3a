//! A memory that is full and may evict nothing: what was deleted is room again, an item can always be given an expiry,
//! and what takes the place of an item always finds room.

use larder_cache::*;
use std::sync::Arc;

const LIMIT_BYTES: u64 = 24 << 20;

struct Full {
    cache: Arc<Cache>,
    worker: Worker,
    stored: u32,
    value_bytes: usize,
}

impl Full {
    /// Stores values of `value_bytes` until the first is refused.
    fn of(value_bytes: usize) -> Full {
        let options =
            CacheOptions { limit_bytes: LIMIT_BYTES, evict: false, seed: Some(1), ..CacheOptions::default() };
        let cache = Cache::new(options).expect("a small cache can be made");
        let worker = cache.worker();
        let mut full = Full { cache, worker, stored: 0, value_bytes };
        while full.store(full.stored) {
            full.stored += 1;
        }
        full
    }

    fn key(number: u32) -> Vec<u8> {
        format!("key {number:07}").into_bytes()
    }

    /// The value of an item, in which each four bytes differ.
    fn value(&self, number: u32) -> Vec<u8> {
        let words = (0..self.value_bytes.div_ceil(4) as u32).flat_map(|at| (number << 16 ^ at).to_le_bytes());
        words.take(self.value_bytes).collect()
    }

    fn store(&mut self, number: u32) -> bool {
        let (key, value) = (Full::key(number), self.value(number));
        let outcome = self.worker.store(&Store::set(&key, self.cache.hash(&key), &value));
        self.worker.quiesce();
        matches!(outcome, StoreOutcome::Stored { .. })
    }

    fn delete(&mut self, number: u32) {
        let key = Full::key(number);
        assert_eq!(self.worker.delete(&Delete::of(&key, self.cache.hash(&key))), DeleteOutcome::Deleted);
        self.worker.quiesce();
    }

    fn has(&self, number: u32) -> bool {
        let (key, mut found) = (Full::key(number), Vec::new());
        let Some(hit) = self.worker.peek(self.cache.hash(&key), &key) else { return false };
        self.worker.copy_value(&hit, &mut found);
        found.is_empty() || found == self.value(number)
    }

    /// Items that a column holds.
    fn column_items(&self) -> u32 {
        self.cache.column_bytes() / self.value_bytes as u32
    }
}

/// Numbers in an order that looks random, each once.
fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut lot = 1u64;
    for at in (1..numbers.len()).rev() {
        lot = lot.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        numbers.swap(at, (lot >> 33) as usize % (at + 1));
    }
    numbers
}

#[test]
fn what_was_deleted_at_random_is_room_again_but_for_two_columns() {
    for value_bytes in [100, 2000, 20_000, 100_000] {
        let mut full = Full::of(value_bytes);
        let deleted = full.stored / 5;
        let order = shuffled(full.stored);
        order[..deleted as usize].iter().for_each(|number| full.delete(*number));
        let mut again = 0;
        while again < deleted && full.store(full.stored + again) {
            again += 1;
        }
        let lost = deleted - again;
        assert!(
            lost <= (2 * full.column_items()).max(1),
            "{value_bytes} bytes: {lost} of {deleted} found no room"
        );
        assert!(order[deleted as usize..].iter().all(|number| full.has(*number)), "nothing is lost");
        assert!((0..again).all(|number| full.has(full.stored + number)));
    }
}

#[test]
fn each_item_that_is_deleted_makes_room_for_one() {
    let mut full = Full::of(1000);
    let order = shuffled(full.stored);
    let (ahead, rest) = order.split_at(2 * full.column_items() as usize);
    ahead.iter().for_each(|number| full.delete(*number));
    for (nth, number) in rest.iter().take(3000).enumerate() {
        full.delete(*number);
        assert!(full.store(full.stored + nth as u32), "after {nth}");
    }
}

#[test]
fn an_item_of_a_full_memory_can_be_given_any_expiry() {
    for value_bytes in [2000, 20_000, 200_000] {
        gives_each_item_an_expiry(Full::of(value_bytes));
    }
}

fn gives_each_item_an_expiry(mut full: Full) {
    full.cache.clock().hold();
    let now_s = full.cache.clock().now_s();
    let in_ms = Expiry::at_ms(i64::from(now_s) * 1000 + 5500);
    for number in 0..full.stored {
        let key = Full::key(number);
        let hash = full.cache.hash(&key);
        let expiry = if number % 2 == 0 { Expiry::at_s(now_s + 100) } else { in_ms };
        assert_eq!(full.worker.touch(hash, &key, expiry), Touched::Done, "item {number}");
        let found = full.worker.peek(hash, &key).expect("it is there").expiry();
        // Where there is no word for milliseconds, and no room for one, it is the next whole second.
        assert!(found == expiry || found == Expiry::at_s(now_s + 6), "item {number}: {found:?}");
        full.worker.quiesce();
    }
    let (key, past) = (Full::key(1), Expiry::at_s(now_s));
    assert_eq!(full.worker.touch(full.cache.hash(&key), &key, past), Touched::Done);
    assert!(!full.has(1));
}

#[test]
fn a_large_item_of_a_full_memory_can_be_marked_stale_and_emptied() {
    let mut full = Full::of(20_000);
    for number in 0..full.stored {
        let key = Full::key(number);
        let hash = full.cache.hash(&key);
        let change = match number % 2 {
            0 => Delete { invalidate: true, ..Delete::of(&key, hash) },
            _ => Delete { drop_value: true, ..Delete::of(&key, hash) },
        };
        assert_eq!(full.worker.delete(&change), DeleteOutcome::Deleted, "item {number}");
        full.worker.quiesce();
        assert!(full.has(number));
    }
}

#[test]
fn what_takes_the_place_of_an_item_of_a_full_memory_finds_room() {
    let mut full = Full::of(2000);
    let cache = full.cache.clone();
    for number in 0..full.stored {
        let (key, other) = (Full::key(number), format!("new {number:07}").into_bytes());
        let (hash, of_other) = (cache.hash(&key), cache.hash(&other));
        match number % 4 {
            0 => assert!(full.store(number), "item {number}: another value of the same length"),
            1 => {
                let stale = Delete { invalidate: true, ..Delete::of(&key, hash) };
                assert_eq!(full.worker.delete(&stale), DeleteOutcome::Deleted, "item {number}");
            }
            2 => {
                let to =
                    CopyTo { key: &other, hash: of_other, skip: 0, head: &[], replaces: true, moves: true };
                assert_eq!(full.worker.copy(hash, &key, &to), Copied::Done, "item {number}");
                full.worker.delete(&Delete::of(&key, hash));
            }
            _ => {
                let empty = Delete { drop_value: true, ..Delete::of(&key, hash) };
                assert_eq!(full.worker.delete(&empty), DeleteOutcome::Deleted, "item {number}");
            }
        }
        full.worker.quiesce();
    }
    assert!((0..full.stored).filter(|number| number % 4 != 2).all(|number| full.has(number)));
}

/// A memory in which nothing is dead refuses at once, however often it is asked.
#[test]
fn a_full_memory_refuses_without_a_search() {
    for (value_bytes, times) in [(100, 20_000), (20_000, 1000)] {
        let mut full = Full::of(value_bytes);
        let passes = full.cache.totals().columns_reclaimed;
        assert!((0..times).all(|number| !full.store(full.stored + number)));
        assert_eq!(full.cache.totals().columns_reclaimed, passes, "no column is emptied");
    }
}
