//! The memory: from a location to the bytes of its record. The crate has the arena with its slabs and columns, and
//! decides when a column may be reused.
//!
//! Goal: reading a record takes one addition to find it, placing a record moves two offsets, and neither takes a
//! lock or changes a counter that threads share. Non-goal: deciding which items deserve space. The memory hands out
//! empty columns and takes retired columns back; its caller decides what a column holds and which column goes next.
//!
//! ```text
//!  Memory ── take_column ──> OpenColumn ── place, place_chunk ──> Location      (one owner, no locks)
//!    ^                           │ seal
//!    │ recycle, once every       v
//!    │ reader has moved on    sealed column ── records ──> the keeper's walk
//!    └────── retire <────────────┘
//!  Reader ── pin ──> Guard ── item(Location) ──> Item<'g>: key, value, header   (any thread, no writes)
//! ```
//!
//! [`Guard`] states the one rule that callers must keep. `memory/item.rs` explains why the bytes of an item do not
//! change under that rule, and `epochs.rs` has the memory orderings.

#[cfg(not(any(miri, loom)))]
mod arena;
#[cfg(any(miri, loom))]
#[path = "arena_heap.rs"]
mod arena;
#[cfg(not(any(miri, loom)))]
mod coloured;
mod column;
#[cfg(not(any(miri, loom)))]
mod column_table;
#[cfg(any(miri, loom))]
#[path = "column_table_heap.rs"]
mod column_table;
mod epochs;
mod expiring;
mod first_touch;
mod gate;
#[cfg(not(any(miri, loom)))]
mod kept;
#[cfg(any(miri, loom))]
#[path = "kept_none.rs"]
mod kept;
mod machine;
mod memory;
mod memory_options;
mod numa;
mod pool;
mod prefetch;
mod shim;

pub use column::{Column, ColumnId, ColumnState, SlabId};
pub use expiring::Lifetimes;
pub use gate::{Alone, Gate};
#[cfg(not(any(miri, loom)))]
pub use kept::check_keep_path;
pub use kept::head::{Head, NOTE_BYTES_MAX};
pub use memory::chunk::Chunk;
pub use memory::guard::{Guard, Record, Records};
pub use memory::item::{Compressed, Item, LAST_ACCESS_STALE_S, Remains, Value};
pub use memory::open_column::{NewChunked, NewItem, OpenColumn};
pub use memory::pin::{ChunkSpace, ColumnPin};
pub use memory::reader::Reader;
pub use memory::{FreshPages, Memory, RESERVE_BYTES_MAX};
pub use memory_options::{
    COLUMN_BYTES_DEFAULT, COLUMN_BYTES_MAX, COLUMN_BYTES_MIN, COLUMNS_WANTED_MIN, DICTIONARIES_MAX,
    DICTIONARY_BYTES_MAX, Geometry, INLINE_VALUE_BYTES_MAX_DEFAULT, KeepOptions, Left, MemoryError,
    MemoryOptions, PageKind, PagesWanted, SLAB_BYTES,
};
pub use numa::{NodeId, NumaNodes};
pub use prefetch::prefetch_read;
