//! The synchronisation primitives of [`crate::epochs`] and [`crate::expiring`]: those of the standard library, or
//! loom's under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};

/// Locks `mutex`, even if an earlier holder panicked: every critical section of this crate leaves its data
/// consistent at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
