//! The tier: segments that fill in memory, are written, found, and reclaimed.
//!
//! What is newer is found first: a segment's sequence is its age, an extent is newer than anything of the log, and whatever
//! would make that untrue (a put, an invalidation, a survivor of a reclaim) happens under one lock, the append lock.
//!
//! Order of locks: `writing`, then `reclaiming`, then `releasing`, then `append`, then `zones`; a buffer's own lock, and those of
//! the meta log, last. Whoever chooses a zone to be released holds `releasing` until it is erased.

pub(crate) mod append;
pub(crate) mod buffer;
pub(crate) mod directory;
pub(crate) mod fallback;
pub(crate) mod lookup;
pub(crate) mod merging;
pub(crate) mod open;
pub(crate) mod picture;
pub(crate) mod reclaim;
pub(crate) mod recover;
pub(crate) mod shape;
pub(crate) mod stamps;
pub(crate) mod stats;
pub(crate) mod survivors;
pub(crate) mod threads;
pub(crate) mod write;
pub(crate) mod zones;

#[cfg(test)]
mod tests;
