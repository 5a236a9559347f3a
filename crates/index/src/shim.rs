//! Atomics, which are loom's models under `--cfg loom`, and waiting.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};

/// A waiting thread yields its processor after this many spins. A writer holds a bucket for much less.
#[cfg(not(loom))]
const SPINS_MAX: u32 = 64;

/// Waits briefly for another thread. `turns` counts the calls of one wait.
#[cold]
pub(crate) fn pause(turns: &mut u32) {
    #[cfg(loom)]
    {
        let _ = turns;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if *turns < SPINS_MAX {
        *turns += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Hints to the processor that the cache line at `at` will be read soon.
#[inline(always)]
pub(crate) fn prefetch_read<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it reads nothing a program can see and cannot fault, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
