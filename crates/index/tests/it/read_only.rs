//! A hit of a warm key writes nothing: the index is read-only while it is looked up.
#![cfg(not(any(loom, miri)))]

use crate::common::{Records, tag_match};
use larder_index::{HoldsKey, Index, IndexOptions, WARMTH_MAX};
use larder_item::{KeyHash, Location};
use rustix::mm::{MprotectFlags, mprotect};

fn protect(index: &Index, access: MprotectFlags) {
    for (first, bytes) in index.regions() {
        // SAFETY: the ranges are the index's own mappings. It is only read while they are read-only, or the test ends
        // with a signal, which is what it is for.
        unsafe { mprotect(first.cast_mut().cast(), bytes, access) }.expect("the range is mapped");
    }
}

/// Records of which no read counts.
struct Uncounted<'r>(&'r Records);

impl HoldsKey for Uncounted<'_> {
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.0.holds(at, key)
    }

    fn hash_of(&self, at: Location) -> KeyHash {
        self.0.hash_of(at)
    }

    fn reads_count(&self, _at: Location) -> bool {
        false
    }

    fn prefetch(&self, _at: Location) {}
}

/// Looks up 150 keys whose entries have this warmth, while the index may not be written to.
fn look_up_read_only(records: &Records, owner: &impl HoldsKey, warmth: u8) {
    let options = IndexOptions { buckets_log2: 4, buckets_log2_max: 12, ..IndexOptions::default() };
    let index = Index::new(options).unwrap();
    // Some of them are in sub-buckets.
    for key in 0..150u64 {
        index.lock(records.hash(key)).insert(records.make(key), warmth).unwrap();
    }
    protect(&index, MprotectFlags::READ);
    for key in 0..150u64 {
        let hash = records.hash(key);
        assert!(index.get_marking(hash, &key.to_le_bytes(), owner).is_some());
        let seen = tag_match(&index, hash).expect("the key is there");
        assert!(index.batch_lookup().confirm(hash, seen, |at| owner.reads_count(at)));
        index.batch_lookup().mark(seen, |at| owner.reads_count(at));
    }
    protect(&index, MprotectFlags::READ | MprotectFlags::WRITE);
}

#[test]
fn a_hit_of_a_warm_key_writes_nothing() {
    let records = Records::new(0);
    look_up_read_only(&records, &records, WARMTH_MAX);
}

#[test]
fn a_hit_that_does_not_count_writes_nothing() {
    let records = Records::new(0);
    look_up_read_only(&records, &Uncounted(&records), 0);
}
