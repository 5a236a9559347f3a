//! The atomics, or loom's model of them, and how to wait.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

/// Turns after which a waiting thread gives its processor away; a writer holds a bucket for far less.
#[cfg(not(loom))]
const SPINS_MAX: u32 = 64;

/// Waits a little for another thread; `turns` counts the calls.
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

/// A hint that the line at `at` is about to be read.
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
