//! The prefetch instruction, which is the only unsafe code of this crate.

/// Hints to the processor that `words[index]` will be read soon. Any index is allowed.
#[inline(always)]
pub(crate) fn prefetch<T>(words: &[T], index: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it reads nothing a program can see and cannot fault, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(words.as_ptr().wrapping_add(index).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (words, index);
}
