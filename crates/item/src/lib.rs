//! What one item is, and how its place is written down.
//!
//! The words of the whole project are fixed here; see `docs/layout.md` for the drawings.
//!
//! * an **item** is a key, its value and its header; immutable once published, save for the expiry
//!   and a few state bits, which are atomic;
//! * a **record** is what a column holds of an item: header, key, and the value if it is small;
//! * an **entry** is one 64-bit word in the index: tag, location, warmth;
//! * a **location** is where a record begins: column and offset, or the mark "on flash";
//! * a **column** is memory, a **zone** is flash, a **page** is only the operating system's.
//!
//! This crate knows nothing of threads or of memory: it packs and unpacks words.
#![forbid(unsafe_code)]

mod hash;
mod header;
mod location;
mod time;

pub use hash::{KeyHash, KeyHasher};
pub use header::{
    CAS_DELTA_BITS, HEADER_BYTES, Header, LAST_ACCESS_MASK, State, VALUE_LENGTH_MAX, ValuePlace, word_count,
};
pub use location::{Location, UNIT_BYTES};
pub use time::{Expiry, RELATIVE_EXPTIME_MAX_S};

/// Longest key in bytes; memcached's own limit (`memcached.h`, `KEY_MAX_LENGTH`).
pub const KEY_BYTES_MAX: usize = 250;
