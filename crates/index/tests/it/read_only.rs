//! A hit of a warm key writes nothing: the index is read-only while it is looked up.
#![cfg(not(any(loom, miri)))]

use crate::common::{Records, tag_match};
use larder_index::{Index, IndexOptions, WARMTH_MAX};
use rustix::mm::{MprotectFlags, mprotect};

fn protect(index: &Index, access: MprotectFlags) {
    for (first, bytes) in index.regions() {
        // SAFETY: the ranges are the index's own mappings. It is only read while they are read-only, or the test ends
        // with a signal, which is what it is for.
        unsafe { mprotect(first.cast_mut().cast(), bytes, access) }.expect("the range is mapped");
    }
}

#[test]
fn a_hit_of_a_warm_key_writes_nothing() {
    let options = IndexOptions { buckets_log2: 4, buckets_log2_max: 12, ..IndexOptions::default() };
    let (index, records) = (Index::new(options).unwrap(), Records::new(0));
    // Some of them are in sub-buckets.
    for key in 0..150u64 {
        index.lock(records.hash(key)).insert(records.make(key), WARMTH_MAX).unwrap();
    }
    protect(&index, MprotectFlags::READ);
    for key in 0..150u64 {
        let hash = records.hash(key);
        assert!(index.get_marking(hash, &key.to_le_bytes(), &records).is_some());
        let seen = tag_match(&index, hash).expect("the key is there");
        assert!(index.batch_lookup().confirm(hash, seen, &records));
        index.batch_lookup().mark(seen, &records);
    }
    protect(&index, MprotectFlags::READ | MprotectFlags::WRITE);
}
