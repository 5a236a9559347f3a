//! The rooms joined: get, set and the rest, the keeper's pass, settings, counters.
//!
//! * [`Cache`] is shared by all threads: index, memory, clock, budget.
//! * [`Worker`] is one thread's hand in it: its epoch reader, its open column, its counters. Every request runs
//!   through a worker; nothing is handed between threads.
//! * The keeper ([`Cache::keep`]) is the background thread that reclaims columns. A request leaves at most a warmth bit;
//!   every decision about an item is taken in the pass.
//!
//! The cache knows nothing of sockets or of the protocol's words.
//!
//! # With flash behind memory
//!
//! [`Cache::with_flash`] gives evicted items a second place. What leaves memory is put there by the pass
//! ([`AdmissionOptions`] says what is worth it); what memory has an entry of, flash is never asked for. Every operation of a
//! [`Worker`] works **on memory alone**, and sees a key that only flash holds as absent. So whoever serves requests does this:
//!
//! * A **get** that misses asks [`Worker::flash_may_hold`], then [`Worker::fetch`]; what comes, at once or through
//!   [`Worker::poll_fetches`], is the answer, and is promoted if it is [warm](Found::warm).
//! * Whatever **depends on the present item** (add, replace, append, prepend, a store or delete that compares CAS numbers,
//!   marking as stale, arithmetic, touch) fetches the key first and promotes it, warm or not, by [`Worker::promote`]; then it
//!   runs, whether the promotion came about or not: if not, something newer is in memory, or the item is lost, as any item of
//!   a cache may be.
//! * A plain **set** or **delete** runs at once. A delete leaves nothing on flash, whatever it answers; who wants to answer
//!   whether there was anything on flash looks before.
//! * A value whose [`Found::value`] is shorter than [`Found::value_bytes`] goes on in parts: [`Worker::fetch_part`], and
//!   [`Worker::begin_promotion`] to bring it in.
//! * Replies to writes wait while [`Worker::take_commit`] names a commit that [`Worker::flash_committed`] has not reached.
//!   Only in mode `journal` there is one.
//! * At a graceful stop, when no worker runs any more, [`Cache::save_to_flash`] goes before the tier is closed.
//!
//! Why no stale value comes of it: `docs/concurrency.md`, "Two levels".
#![forbid(unsafe_code)]

mod admission;
mod batch;
mod budget;
mod clock;
mod counters;
mod demote;
mod engine;
mod keeper;
mod large;
mod level;
mod promote;
mod read;
mod references;
mod store;
mod temperature;
mod walk;
mod write;

pub use admission::{Admission, AdmissionOptions, Admitted, Offered, PenaltyHook};
pub use batch::GetBatch;
pub use budget::Budget;
pub use clock::Clock;
pub use counters::{Counter, Counters, Totals};
pub use demote::Saved;
pub use engine::{Cache, CacheError, CacheOptions, MemoryUse, WORKER_BUFFERS_BYTES, Worker};
pub use larder_flash::{Commit, Flash, Found, Stamp};
pub use larder_index::{BucketPlace, Peek, Seen, SubPlace};
pub use larder_item::{Expiry, KEY_BYTES_MAX, KeyHash, Location, State};
pub use larder_memory::{ColumnId, Item, PagesWanted, Value};
pub use large::{LargeRead, Upload};
pub use level::{Exclusive, FlashLevel};
pub use promote::{Fetch, Promotion};
pub use read::{Hit, Lookup};
pub use store::{Arith, ArithOutcome, Delete, DeleteOutcome, Mode, Store, StoreOutcome, Touched};
pub use temperature::{
    Candidate, ColumnStanding, CudaOptions, Fifo, HitmapMaker, Judged, Part, Patience, Published,
    PublishedPolicyOptions, Resident, Residents, Sweep, Temperature, TemperatureFacts, TemperatureKind,
    Verdict,
};
pub use walk::Listed;
