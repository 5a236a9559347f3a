//! Every interleaving of a few threads, with buckets of two entries.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p larder-index --lib --test loom loom_`
#![cfg(loom)]

use larder_index::{BatchLookup, HoldsKey, Index, IndexOptions, LookupStage, TagMatch};
use larder_item::{KeyHash, Location};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::cell::Cell;

/// A memory of a few records. A record is the hash of its key, which is also the key. It is written Relaxed, so
/// only the index makes it visible, and it may be recycled while a reader has its location.
struct Records([AtomicU64; 8]);

impl Records {
    fn write(&self, record: usize, key: u64) -> Location {
        self.0[record].store(key, Ordering::Relaxed);
        at(record)
    }

    /// Release pairs with the Acquire in `key`: a reader that sees the record recycled also sees that its entry was
    /// removed before. A memory with epochs never shows a reader such a record.
    fn recycle(&self, record: usize, key: u64) {
        self.0[record].store(key, Ordering::Release);
    }

    fn key(&self, at: Location) -> u64 {
        self.0[at.offset() as usize / 4].load(Ordering::Acquire)
    }
}

impl HoldsKey for Records {
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.key(at).to_le_bytes() == key
    }

    fn hash_of(&self, at: Location) -> KeyHash {
        KeyHash(self.key(at))
    }

    fn prefetch(&self, _at: Location) {}
}

fn at(record: usize) -> Location {
    Location::from_offset(4 * record as u64)
}

/// A key of `bucket` whose sub-bucket direction is `direction`. `other` distinguishes keys.
fn key(bucket: u64, direction: u64, other: u64) -> u64 {
    bucket | (direction | other << 2) << 48
}

struct Shared {
    index: Index,
    records: Records,
}

impl Shared {
    /// An index of `1 << buckets_log2` buckets of two entries, with `keys` in the records 0, 1 and so on.
    fn new(buckets_log2: u32, keys: &[u64]) -> Arc<Shared> {
        let options = IndexOptions {
            buckets_log2,
            buckets_log2_max: 1,
            fill_target: 1,
            huge: false,
            marks: true,
            location_bits: LOCATION_BITS.get(),
        };
        let records = Records(std::array::from_fn(|_| AtomicU64::new(u64::MAX)));
        let shared = Shared { index: Index::new(options).unwrap(), records };
        keys.iter().enumerate().for_each(|(record, key)| shared.insert(record, *key));
        Arc::new(shared)
    }

    fn get(&self, key: u64) -> Option<Location> {
        let entry = self.index.get(KeyHash(key), &key.to_le_bytes(), &self.records);
        entry.map(|entry| entry.location)
    }

    fn insert(&self, record: usize, key: u64) {
        let at = self.records.write(record, key);
        self.index.lock(KeyHash(key)).insert(at, 0).unwrap();
    }

    fn replace(&self, record: usize, key: u64) {
        let at = self.records.write(record, key);
        let mut guard = self.index.lock(KeyHash(key));
        let found = guard.find(&key.to_le_bytes(), &self.records).unwrap();
        assert!(guard.replace(&found, at, 0));
    }

    fn remove(&self, key: u64) {
        let mut guard = self.index.lock(KeyHash(key));
        let found = guard.find(&key.to_le_bytes(), &self.records).unwrap();
        assert!(guard.remove(&found));
    }

    fn grow(&self) {
        assert_eq!(self.index.grow(&self.records, 1), 1);
    }

    /// Two buckets with `keys`, which [`Shared::shrink`] merges.
    fn grown(keys: &[u64]) -> Arc<Shared> {
        let shared = Shared::new(0, keys);
        shared.grow();
        shared
    }

    fn shrink(&self) {
        self.index.set_growth_limit(1);
        assert_eq!(self.index.shrink(1), 1);
    }

    /// The keys that a walk shows.
    fn walk(&self) -> Vec<u64> {
        let (mut keys, mut next) = (Vec::new(), Some(0));
        while let Some(cursor) = next {
            let mut shown = Vec::new();
            let walked = self.index.walk(cursor, &mut |entry| shown.push(self.records.key(entry.location)));
            shown.retain(|key| !(walked.has_repeats && self.index.is_before(KeyHash(*key), cursor)));
            keys.append(&mut shown);
            next = walked.next;
        }
        keys.sort_unstable();
        keys
    }
}

std::thread_local! {
    /// Bits of the locations of the index that [`Shared::new`] makes. Loom runs its threads on the test's own.
    static LOCATION_BITS: Cell<u32> = const { Cell::new(Location::BITS) };
}

/// Explores with an index that splits by what records say, and with one that splits by what entries say.
fn explore(f: impl Fn() + Sync + Send + 'static) {
    let f = std::sync::Arc::new(f);
    for location_bits in [Location::BITS, 30] {
        LOCATION_BITS.set(location_bits);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        let f = f.clone();
        builder.check(move || f());
    }
}

fn spawn(shared: &Arc<Shared>, f: impl Fn(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || f(&shared))
}

/// Runs a reader in a thread of its own and a writer in this one. Loom remembers only the last access to each
/// atomic, so a reader that came first would be hidden by the writer's own loads. This way round loom explores both
/// orders.
fn race(shared: &Arc<Shared>, reader: impl Fn(&Shared) + 'static, writer: impl Fn(&Shared)) {
    let reader = spawn(shared, reader);
    writer(shared);
    reader.join().unwrap();
}

#[test]
fn loom_a_split_hides_neither_stayers_nor_movers() {
    explore(|| {
        let (stays, moves) = (key(0, 0, 1), key(1, 0, 1));
        let shared = Shared::new(0, &[stays, moves]);
        race(
            &shared,
            move |shared| {
                assert_eq!(shared.get(moves), Some(at(1)));
                assert_eq!(shared.get(stays), Some(at(0)));
            },
            Shared::grow,
        );
        assert_eq!(shared.index.buckets(), 2);
        assert_eq!(shared.get(moves), Some(at(1)));
    });
}

/// The first entry with the tag of `hash`.
fn tag_match(lookup: &BatchLookup<'_>, hash: KeyHash) -> Option<TagMatch> {
    match lookup.match_in_bucket(hash, lookup.prefetch(hash)) {
        LookupStage::InSubBucket(below) => lookup.match_in_sub_bucket(hash, below),
        found => found.tag_match(),
    }
}

/// Looks `key` up in stages: finds a tag match, then does a complete lookup, then confirms the match. A thread to
/// which the lookup returned the newer record must not be told that the older record is the key's.
fn never_confirms_the_older(shared: &Shared, key: u64, older: usize) {
    let hash = KeyHash(key);
    let lookup = shared.index.batch_lookup();
    let seen = tag_match(&lookup, hash);
    let shown = shared.get(key);
    if let Some(seen) = seen
        && lookup.confirm(hash, seen, |_| true)
    {
        assert!(
            lookup.location(seen) != at(older) || shown == Some(at(older)),
            "{seen:?} was confirmed after {shown:?}"
        );
    }
}

#[test]
fn loom_a_seen_entry_is_not_confirmed_after_a_newer_one_was_shown() {
    explore(|| {
        let k = key(0, 0, 1);
        let shared = Shared::new(0, &[k]);
        race(
            &shared,
            move |shared| never_confirms_the_older(shared, k, 0),
            move |shared| shared.replace(1, k),
        );
    });
}

#[test]
fn loom_a_seen_entry_that_moves_is_not_confirmed_after_a_newer_one_was_shown() {
    explore(|| {
        let (stays, moves) = (key(0, 0, 1), key(1, 0, 1));
        let shared = Shared::new(0, &[stays, moves]);
        race(
            &shared,
            move |shared| never_confirms_the_older(shared, moves, 1),
            move |shared| {
                shared.grow();
                shared.replace(2, moves);
            },
        );
    });
}

#[test]
fn loom_a_split_that_frees_a_sub_bucket_hides_nothing() {
    explore(|| {
        let keys = [key(1, 0, 1), key(0, 0, 1), key(0, 1, 1)];
        let shared = Shared::new(0, &keys);
        race(&shared, move |shared| assert_eq!(shared.get(keys[2]), Some(at(2))), Shared::grow);
        (0..3).for_each(|k| assert_eq!(shared.get(keys[k]), Some(at(k))));
    });
}

#[test]
fn loom_a_sub_bucket_divided_by_an_insert_hides_nothing() {
    explore(|| {
        let keys = [key(0, 0, 1), key(0, 1, 1), key(0, 0, 2), key(0, 3, 1)];
        let shared = Shared::new(0, &keys);
        race(
            &shared,
            move |shared| assert_eq!(shared.get(keys[3]), Some(at(3))),
            |shared| shared.insert(4, key(0, 3, 2)),
        );
        assert_eq!(shared.get(keys[2]), Some(at(2)));
        assert_eq!(shared.get(key(0, 3, 2)), Some(at(4)));
    });
}

#[test]
fn loom_a_sub_bucket_given_to_a_neighbour_leads_nobody_astray() {
    explore(|| {
        let keys = [key(0, 0, 1), key(0, 1, 1), key(0, 2, 1), key(1, 2, 1), key(1, 2, 2)];
        let shared = Shared::new(1, &keys);
        race(
            &shared,
            move |shared| assert_eq!(shared.get(keys[2]), Some(at(2))),
            |shared| {
                // Bucket 0 returns its sub-bucket, and its third key moves into the bucket's own line. Bucket 1
                // takes the sub-bucket.
                shared.remove(key(0, 0, 1));
                shared.insert(5, key(1, 2, 3));
            },
        );
        assert_eq!(shared.get(key(1, 2, 3)), Some(at(5)));
    });
}

#[test]
fn loom_a_replaced_key_is_found_whole_though_its_record_is_recycled() {
    explore(|| {
        let replaced = key(0, 0, 1);
        let shared = Shared::new(0, &[replaced]);
        race(
            &shared,
            move |shared| {
                let found = shared.get(replaced);
                assert!(found == Some(at(0)) || found == Some(at(1)));
            },
            move |shared| {
                shared.replace(1, replaced);
                shared.records.recycle(0, key(0, 0, 2));
            },
        );
        assert_eq!(shared.get(replaced), Some(at(1)));
    });
}

#[test]
fn loom_an_inserted_entry_shows_its_record() {
    explore(|| {
        let inserted = key(0, 0, 1);
        let shared = Shared::new(0, &[]);
        race(
            &shared,
            move |shared| {
                let lookup = shared.index.batch_lookup();
                if let Some(seen) = tag_match(&lookup, KeyHash(inserted)) {
                    assert_eq!(shared.records.key(lookup.location(seen)), inserted);
                }
                if let Some(seen) = shared.get(inserted) {
                    assert_eq!(shared.records.key(seen), inserted);
                }
            },
            move |shared| shared.insert(1, inserted),
        );
        let lookup = shared.index.batch_lookup();
        let seen = tag_match(&lookup, KeyHash(inserted)).unwrap();
        assert!(lookup.location(seen) == at(1) && lookup.confirm(KeyHash(inserted), seen, |_| true));
    });
}

#[test]
fn loom_a_mark_never_undoes_a_replacement() {
    explore(|| {
        let marked = key(0, 0, 1);
        let shared = Shared::new(0, &[marked]);
        race(
            &shared,
            move |shared| {
                let entry = shared.index.get_marking(KeyHash(marked), &marked.to_le_bytes(), &shared.records);
                assert!(entry.is_some());
                let lookup = shared.index.batch_lookup();
                if let Some(seen) = tag_match(&lookup, KeyHash(marked)) {
                    lookup.confirm(KeyHash(marked), seen, |_| true);
                }
            },
            move |shared| shared.replace(1, marked),
        );
        assert_eq!(shared.get(marked), Some(at(1)));
    });
}

#[test]
fn loom_a_removed_key_is_gone_for_all_after_the_unlock() {
    explore(|| {
        let (removed, moves) = (key(1, 0, 1), key(1, 0, 2));
        let shared = Shared::new(0, &[removed, moves]);
        let done = Arc::new(AtomicU64::new(0));
        let told = done.clone();
        let grower = spawn(&shared, |shared| {
            shared.index.grow(&shared.records, 1);
        });
        race(
            &shared,
            move |shared| {
                if told.load(Ordering::Acquire) == 1 {
                    assert_eq!(shared.get(removed), None);
                }
            },
            move |shared| {
                shared.remove(removed);
                done.store(1, Ordering::Release);
            },
        );
        grower.join().unwrap();
        assert_eq!((shared.get(removed), shared.get(moves)), (None, Some(at(1))));
        assert_eq!(shared.index.len(), 1);
    });
}

/// Otherwise the record could be recycled while a reader that came after the removal uses it.
#[test]
fn loom_a_removed_key_leaves_no_copy_in_the_bucket_it_was_split_from() {
    explore(|| {
        let (removed, same_tag) = (key(1, 0, 1), key(0, 0, 1));
        let shared = Shared::new(0, &[removed, key(1, 0, 2)]);
        race(
            &shared,
            move |shared| {
                shared.remove(removed);
                let lookup = shared.index.batch_lookup();
                let seen = tag_match(&lookup, KeyHash(same_tag));
                assert_ne!(seen.map(|seen| lookup.location(seen)), Some(at(0)));
            },
            |shared| {
                shared.index.grow(&shared.records, 1);
            },
        );
    });
}

#[test]
fn loom_two_writers_of_one_bucket_both_succeed() {
    explore(|| {
        let shared = Shared::new(0, &[key(0, 0, 1)]);
        let writer = spawn(&shared, |shared| shared.insert(1, key(0, 0, 2)));
        shared.insert(2, key(0, 1, 3));
        writer.join().unwrap();
        assert_eq!(shared.get(key(0, 0, 1)), Some(at(0)));
        assert_eq!(shared.get(key(0, 0, 2)), Some(at(1)));
        assert_eq!(shared.get(key(0, 1, 3)), Some(at(2)));
        assert_eq!(shared.index.len(), 3);
    });
}

#[test]
fn loom_two_neighbours_take_different_sub_buckets() {
    explore(|| {
        let keys = [key(0, 0, 1), key(0, 0, 2), key(1, 0, 1), key(1, 0, 2)];
        let shared = Shared::new(1, &keys);
        let writer = spawn(&shared, |shared| shared.insert(4, key(0, 0, 3)));
        shared.insert(5, key(1, 0, 3));
        writer.join().unwrap();
        assert_eq!(shared.get(key(0, 0, 3)), Some(at(4)));
        assert_eq!(shared.get(key(1, 0, 3)), Some(at(5)));
    });
}

#[test]
fn loom_a_writer_follows_its_bucket_through_a_split() {
    explore(|| {
        let shared = Shared::new(0, &[key(0, 0, 1), key(1, 0, 1)]);
        let grower = spawn(&shared, Shared::grow);
        shared.insert(2, key(1, 0, 2));
        assert_eq!(shared.get(key(1, 0, 2)), Some(at(2)));
        grower.join().unwrap();
        assert_eq!(shared.get(key(1, 0, 2)), Some(at(2)));
        assert_eq!(shared.get(key(1, 0, 1)), Some(at(1)));
    });
}

#[test]
fn loom_a_merge_hides_neither_stayers_nor_movers() {
    explore(|| {
        let (stays, moves) = (key(0, 0, 1), key(1, 0, 1));
        let shared = Shared::grown(&[stays, moves]);
        race(
            &shared,
            move |shared| {
                assert_eq!(shared.get(moves), Some(at(1)));
                assert_eq!(shared.get(stays), Some(at(0)));
            },
            Shared::shrink,
        );
        assert_eq!(shared.index.buckets(), 1);
        assert_eq!((shared.get(stays), shared.get(moves)), (Some(at(0)), Some(at(1))));
    });
}

#[test]
fn loom_a_merge_into_a_sub_bucket_hides_nothing() {
    explore(|| {
        let keys = [key(0, 0, 1), key(0, 1, 1), key(1, 2, 1)];
        let shared = Shared::grown(&keys);
        race(&shared, move |shared| assert_eq!(shared.get(keys[2]), Some(at(2))), Shared::shrink);
        (0..3).for_each(|k| assert_eq!(shared.get(keys[k]), Some(at(k))));
    });
}

#[test]
fn loom_a_bucket_that_is_merged_and_split_again_hides_nothing() {
    explore(|| {
        let moves = key(1, 0, 1);
        let shared = Shared::grown(&[key(0, 0, 1), moves]);
        race(
            &shared,
            move |shared| assert_eq!(shared.get(moves), Some(at(1))),
            |shared| {
                shared.shrink();
                shared.index.set_growth_limit(2);
                shared.grow();
            },
        );
        assert_eq!(shared.get(moves), Some(at(1)));
    });
}

#[test]
fn loom_a_key_removed_during_a_merge_is_gone_for_all() {
    explore(|| {
        let (removed, moves) = (key(1, 0, 1), key(1, 0, 2));
        let shared = Shared::grown(&[removed, moves]);
        race(&shared, move |shared| shared.remove(removed), Shared::shrink);
        assert_eq!((shared.get(removed), shared.get(moves)), (None, Some(at(1))));
        assert_eq!(shared.index.len(), 1);
    });
}

#[test]
fn loom_a_writer_follows_its_bucket_through_a_merge() {
    explore(|| {
        let shared = Shared::grown(&[key(0, 0, 1), key(1, 0, 1)]);
        let shrinker = spawn(&shared, Shared::shrink);
        shared.insert(2, key(1, 0, 2));
        assert_eq!(shared.get(key(1, 0, 2)), Some(at(2)));
        shrinker.join().unwrap();
        assert_eq!(shared.get(key(1, 0, 2)), Some(at(2)));
        assert_eq!(shared.get(key(1, 0, 1)), Some(at(1)));
    });
}

#[test]
fn loom_a_walk_shows_each_key_once_during_a_split() {
    explore(|| {
        let keys = [key(0, 0, 1), key(1, 0, 1)];
        let shared = Shared::new(0, &keys);
        race(&shared, move |shared| assert_eq!(shared.walk(), keys), Shared::grow);
    });
}

#[test]
fn loom_a_walk_shows_each_key_once_during_a_merge() {
    explore(|| {
        let keys = [key(0, 0, 1), key(1, 0, 1)];
        let shared = Shared::grown(&keys);
        race(&shared, move |shared| assert_eq!(shared.walk(), keys), Shared::shrink);
    });
}
