//! The atomics and the lock of the index structures: those of the standard library, or loom's model of them, with which
//! tests try all interleavings of threads.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};
