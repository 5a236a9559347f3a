//! The synchronisation primitives of [`crate::epochs`], [`crate::expiring`] and [`crate::gate`]: those of the standard
//! library, or loom's under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};

/// Locks `mutex`, even if an earlier holder panicked: every critical section of this crate leaves its data
/// consistent at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Lets other threads go on. A thread that has looked in vain often sleeps between its looks; `looks` counts from 1.
#[cfg(not(loom))]
pub(crate) fn wait_a_little(looks: u32) {
    const YIELDS: u32 = 100;
    const SLEEP: std::time::Duration = std::time::Duration::from_micros(20);
    if looks > YIELDS { std::thread::sleep(SLEEP) } else { std::thread::yield_now() }
}

/// Lets other threads go on.
#[cfg(loom)]
pub(crate) fn wait_a_little(_: u32) {
    loom::thread::yield_now();
}
