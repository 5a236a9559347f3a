//! What an item is, and how its location is written down.
//!
//! The words of the whole project are defined here; `docs/internals/layout.md` has the drawings.
//!
//! * an **item** is a key, its value and its header. A published item is immutable, except for its expiry, the
//!   time of its last access and a few state bits, which are atomic;
//! * a **record** is what a column holds of an item: the header, the key, and the value if it is small;
//! * an **entry** is one 64-bit word in the index: tag, location, warmth;
//! * a **location** is where a record begins: column and offset, or the mark "on flash";
//! * a **column** is a slice of memory, a **zone** is the erase unit of flash, and a **page** is 4 KiB of
//!   either.
//!
//! This crate knows nothing of threads or memory: it packs and unpacks words.
#![forbid(unsafe_code)]

mod checksum;
mod hash;
mod header;
mod location;
mod prefix;
mod time;

pub use checksum::checksum;
pub use hash::{KeyHash, KeyHasher};
pub use header::{
    CAS_DELTA_BITS, CasForm, Extension, FlashState, HEADER_BYTES, HEADER_WORDS_BYTES, Header, Kind,
    LAST_ACCESS_MASK, State, VALUE_LENGTH_MAX, ValueLayout, word_count,
};
pub use location::{Location, UNIT_BYTES};
pub use prefix::{
    DATABASE_MARK, PREFIX_TABLE_BYTES_MAX, PREFIXES_MAX, PrefixFloors, PrefixesFull, ROW_BYTES, covers,
};
pub use time::{Expiry, RELATIVE_EXPTIME_MAX_S};

/// Longest key of memcached's clients in bytes. The limit is memcached's (`memcached.h`, `KEY_MAX_LENGTH`).
pub const KEY_BYTES_MAX: usize = 250;
/// Length in bytes of the key of an item whose client's key is longer, or empty: the beginning of that key and a
/// digest of it. No other key has this length.
pub const FOLDED_KEY_BYTES: usize = KEY_BYTES_MAX + 1;
