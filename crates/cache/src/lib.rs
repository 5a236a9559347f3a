//! The cache: items in memory, items on flash, and the rules that decide which items stay.
//!
//! * [`Cache`] is shared by all threads. It is a facade over the store of items, the keeper and the demoter.
//! * [`Worker`] is one thread's handle: its epoch reader, its open columns, its counters. Every request runs through a
//!   worker, and no request is handed to another thread.
//! * The keeper ([`Cache::keep`]) is the background thread that reclaims columns. A request leaves at most a trace of
//!   warmth. Every decision about an item is taken in the keeper's pass.
//!
//! The cache knows nothing of sockets or of the words of a protocol.
//!
//! # The parts, from the bottom up
//!
//! ```text
//!  worker ------------.         keeper (behind one lock; workers see KeeperHandle)
//!    |      |          \        /     \
//!    |      |           v      v       v
//!    |      |           demoter       selector ---> policy (temperature), ranking
//!    |      |           /     \          |
//!    |      v          v       v         v
//!    |    flash <-----'      item_store (columns, index, clock, counters)
//!    '-------------------------^
//! ```
//!
//! # With flash behind memory
//!
//! [`Cache::with_flash`] gives evicted items a second level. The pass puts items that leave memory on flash, if they
//! are worth it ([`AdmissionOptions`]). If memory has an entry of a key, flash is never asked for the key. Every
//! operation of a [`Worker`] works **on memory alone**, and sees a key that only flash holds as absent. So the caller
//! that serves requests does this:
//!
//! * A **get** that misses asks [`Worker::flash_may_hold`], then [`Worker::fetch`]. The item comes at once or through
//!   [`Worker::poll_fetches`]. It is the answer. The caller promotes it if it expects more reads of the key soon.
//! * A command that **depends on the present item** (add, replace, append, prepend, a store or delete that compares CAS
//!   numbers, marking as stale, arithmetic, touch) fetches the key first and promotes the item by
//!   [`Worker::promote`]. Then the command runs, whether the promotion came about or not: if not, something newer is in
//!   memory, or the item is lost, as any item of a cache may be.
//! * A plain **set** or **delete** runs at once. A delete leaves nothing on flash, whatever it answers. If the answer
//!   has to say whether flash had the item, the caller fetches the key before.
//! * A value whose [`Found::value`] is shorter than [`Found::value_bytes`] goes on in parts: [`Worker::fetch_part`]
//!   fetches them, and [`Worker::begin_promotion`] brings them into memory.
//! * Replies to writes wait while [`Worker::take_commit`] names a commit that [`Worker::flash_committed`] has not
//!   reached, which [`Worker::want_commit`] asks for. That happens only in mode `journal`.
//! * At a graceful stop, when no worker runs any more, [`Cache::save_to_flash`] is called before the tier is closed.
//!
//! `docs/internals/concurrency.md`, "Two levels", explains why no stale value comes of it.
#![forbid(unsafe_code)]

mod admission;
mod budget;
mod cache;
mod clock;
mod column_bytes;
mod column_group;
mod commands;
mod compression;
mod compression_sample;
mod counters;
mod demoter;

mod cache_options;
mod expired_columns;
mod flash_level;
mod flash_note;
mod hot_keys;
mod index_sampler;
mod item_store;
mod keeper;
mod large_keys;
mod lifetime_class;
mod namespaces;
mod note;
mod padded;
mod penalties;
mod placement;
mod random;
mod ranking;
mod recent_reads;
mod recovery;
mod references;
mod save;
mod selector;
mod sizing;
mod temperature;
mod transfers;
mod watches;
mod worker;
mod worth;

pub use admission::AdmissionOptions;
pub use budget::LIMIT_BYTES_MIN;
pub use cache::Cache;
pub use cache_options::{CacheError, CacheOptions, MemoryUse};
pub use clock::Clock;
pub use column_bytes::ColumnBytes;
pub use commands::{Arith, ArithOutcome, Delete, DeleteOutcome, Mode, Store, StoreOutcome, Touched};
pub use compression::{Compress, CompressionStats, DictionaryStats, check_compress};
pub use counters::{Counter, Counters, Totals};
pub use flash_level::{Exclusive, FlashLevel, STORE_WAIT_MAX_MS};
pub use hot_keys::{HotKey, HotKeys, HotKeysReport};
pub use item_store::{Departure, Destination, Hearer};
pub use larder_allocation::{
    ColumnBounds, CostEvidence, Group, GroupStats, MoveReason, Objective, SizeClass, Subclass, WorthMode,
    WorthOptions,
};
pub use larder_curve::{Point as CurvePoint, SampledCurve};
pub use larder_flash::{Commit, Flash, Found, Listed as ListedOnFlash, Stamp};
pub use larder_index::{BucketPosition, CURSOR_BITS, LookupStage, SubBucketPosition, TagMatch};
pub use larder_item::{
    DATABASE_MARK, Expiry, FOLDED_KEY_BYTES, KEY_BYTES_MAX, KeyHash, Kind, Location, PrefixesFull, State,
    covers,
};
#[cfg(not(any(miri, loom)))]
pub use larder_memory::check_keep_path;
pub use larder_memory::{Alone, ColumnId, Gate, Item, Left, NodeId, NumaNodes, PagesWanted, Value};
pub use large_keys::{LargeKey, LargeKeys};
pub use namespaces::{NAMESPACE_BYTES_MAX, NAMESPACES_MAX, Namespace, NamespaceStats, check_namespaces};
pub use placement::Placement;
pub use ranking::{Candidate, ColumnStatus};
pub use recent_reads::RecentReads;
pub use recovery::Recovered;
pub use save::Saved;
pub use sizing::{NoCurve, Sizing};
pub use temperature::{
    Device, Fifo, Judged, KeepLimit, NewColumns, Queue, Resident, Residents, Sweep, Temperature,
    TemperatureKind, TemperatureStats, Verdict, WarmthRecord, hitmap,
};
pub use watches::Change;
pub use worker::{
    Absence, Copied, CopyTo, Edit, Edited, Expanded, Fetch, GetBatch, Hit, LargeRead, Listed, Lookup, Made,
    Promotion, Seen, Tour, Toured, Upload, Walk, Watch, Worker,
};
