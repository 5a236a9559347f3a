//! From the hash of a key to the location of its record.
//!
//! The index never reads an item's bytes. It keeps places, and asks their owner ([`HoldsKey`]) whether the key
//! is there.
//!
//! Goals: a lookup reads one cache line of the index, takes no lock and writes nothing, save a two-bit warmth
//! until it saturates; the table grows one bucket at a time, so no request ever waits for a doubling; a bucket
//! holds at most [`BUCKET_ENTRIES_MAX`] entries, so no set of keys, however chosen, makes a lookup long.
//! Non-goals: an exact length at every instant; giving memory back (the table never shrinks).
//!
//! Read in this order: `entry` (one word), `bucket` (one line), `pool` (where a full bucket overflows to),
//! `index` (readers), `guard` (writers), `grow` (linear hashing).
//!
//! # How threads meet
//!
//! Every bucket is a sequence lock whose readers are never turned away from a hit:
//!
//! * a writer sets the writer bit, changes entries, and unlocks with the version one higher;
//! * a reader believes what it *finds*, because the owner compares the key, and believes a *miss* only if the
//!   header was unlocked before the scan and is the same word after it, and the bucket is still the key's;
//! * records found through the index must stay readable while a reader holds their location. The owner sees to
//!   that (epochs); the index only promises that after [`BucketGuard::remove`] or [`BucketGuard::replace`] and the
//!   guard's drop, no reader that starts later finds the old location.
//!
//! Lock order: the bucket that splits, then the new bucket, then a list of the pool. Nobody else holds two.

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
pub use index::batch::{BucketPlace, Peek, Seen, Sight};
pub use index::guard::{BucketGuard, Found, Full};
pub use index::{BUCKETS_LOG2_MAX, Index, IndexOptions};
pub use sub_bucket::SubPlace;
