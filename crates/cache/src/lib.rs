//! The rooms joined: get, set and the rest, the keeper's pass, settings, counters.
//!
//! * [`Cache`] is shared by all threads: index, memory, clock, budget.
//! * [`Worker`] is one thread's hand in it: its epoch reader, its open column, its counters. Every request runs
//!   through a worker; nothing is handed between threads.
//! * The keeper ([`Cache::keep`]) is the background thread that reclaims columns. A request leaves at most a warmth bit;
//!   every decision about an item is taken in the pass.
//!
//! The cache knows nothing of sockets or of the protocol's words.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod counters;
mod engine;
mod keeper;
mod large;
mod read;
mod references;
mod store;
mod temperature;
mod walk;
mod write;

pub use budget::Budget;
pub use clock::Clock;
pub use counters::{Counter, Counters, Totals};
pub use engine::{Cache, CacheError, CacheOptions, MemoryUse, Worker};
pub use larder_index::{BucketPlace, Peek, Seen, SubPlace};
pub use larder_item::{Expiry, KEY_BYTES_MAX, KeyHash, Location, State};
pub use larder_memory::{ColumnId, Item, PagesWanted, Value};
pub use large::{LargeRead, Upload};
pub use read::Hit;
pub use store::{Arith, ArithOutcome, Delete, DeleteOutcome, Mode, Store, StoreOutcome, Touched};
pub use temperature::{
    Candidate, ColumnStanding, CudaOptions, Fifo, HitmapMaker, Judged, Part, Patience, Published,
    PublishedPolicyOptions, Resident, Residents, Sweep, Temperature, TemperatureFacts, TemperatureKind,
    Verdict,
};
pub use walk::Listed;
