//! Padding that keeps two atomics off one cache line.

/// A value on cache lines of its own: writing to it does not take a line away from readers of its neighbours.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
