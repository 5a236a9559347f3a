//! The index: from the hash of a key to the location of its record.
//!
//! The index never reads the bytes of an item. It keeps locations, and asks their owner through [`HoldsKey`]
//! whether a location holds a key.
//!
//! Goals: a lookup reads one cache line of the index, takes no lock, and writes nothing except a two-bit warmth
//! until it saturates. The table grows and shrinks by one bucket at a time, so no request waits for a doubling. A
//! bucket holds at most [`BUCKET_ENTRIES_MAX`] entries, so no choice of keys makes a lookup long. Non-goal: an exact
//! length at every moment.
//!
//! The files, from the smallest part to the whole: `entry` (one word), `bucket` and `sub_bucket` (one cache line
//! each), `pool` (the sub-buckets of full buckets), `index` (the table and its readers), `index/batch` (lookups in
//! stages), `index/walk` (all entries), `index/guard` (writers), `index/grow` and `index/shrink` (linear hashing).
//!
//! # How threads meet
//!
//! Every bucket is a sequence lock that never turns a reader away from a hit:
//!
//! * A writer sets the writer bit, changes entries, and unlocks with a version that is higher by one.
//! * A reader trusts what it *finds*, because the owner compares the key. It trusts a *miss* only if the header was
//!   unlocked before the scan, is the same word after the scan, and the bucket is still the bucket of the key.
//! * A record found through the index must stay readable while a reader holds its location. The owner guarantees
//!   that with epochs. The index guarantees only this: once a guard that called [`BucketGuard::remove`] or
//!   [`BucketGuard::replace`] is dropped, no reader that starts later finds the old location.
//!
//! Lock order: the bucket that splits, then the new bucket, then a list of the pool. A merge takes the same two in the
//! same order. No one else holds two buckets.

mod bucket;
mod count;
mod entry;
mod holds_key;
mod index;
mod pool;
mod region;
mod shim;
mod snapshot;
mod sub_bucket;

pub use bucket::BUCKET_ENTRIES_MAX;
pub use entry::{Entry, WARMTH_MAX};
pub use holds_key::HoldsKey;
pub use index::batch::{BatchLookup, BucketPosition, LookupStage, TagMatch};
pub use index::guard::{BucketGuard, Found, Full};
pub use index::shrink::SpareBuckets;
pub use index::walk::{CURSOR_BITS, Walked};
pub use index::{BUCKETS_LOG2_MAX, Index, IndexOptions};
pub use sub_bucket::SubBucketPosition;
