//! The prefetch instruction.

/// Hints to the processor that the cache line at `at` will be read soon. The call never faults, whatever the
/// address, and does nothing on processors without such a hint.
#[inline(always)]
pub fn prefetch_read(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing as far as the language is concerned, and every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM neither faults nor changes anything that the language can see.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = at;
}

/// Hints to the processor that the cache line at `at` will be written soon. Like [`prefetch_read`] otherwise.
#[inline(always)]
pub(crate) fn prefetch_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `prefetch_read`. Processors without the instruction take it for none.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    prefetch_read(at);
}
