//! A long array of zeros, of which only the used part costs memory.
//!
//! The array is one private anonymous mapping that is reserved without commitment: the kernel provides a small page at
//! the first write to it. The array is aligned to 2 MiB, and [`Region::collapse`] puts huge pages in place of small
//! ones. Loom and Miri have no mapping;
//! there the array is a boxed slice. Keep it short under Miri, which looks at the whole array at every access.

use std::io;

/// Bytes of a huge page. Regions begin at a multiple of it.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Bytes of a small page.
pub(crate) const SMALL_PAGE_BYTES: u64 = 4 << 10;

/// A type for which all-zero bytes are a valid value, the blank one.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and `blank` must return that value (under loom, its model).
/// The type must need no drop.
#[cfg_attr(not(any(loom, miri)), allow(dead_code, reason = "only a bound there"))]
pub(crate) unsafe trait Blank: Sized {
    /// The value that all-zero bytes represent.
    #[cfg(loom)]
    fn blank() -> Self;
}

#[cfg(not(any(loom, miri)))]
pub(crate) use mapped::Region;

#[cfg(not(any(loom, miri)))]
mod mapped {
    use super::{Blank, HUGE_PAGE_BYTES, SMALL_PAGE_BYTES, io};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::{ffi::c_void, ops::Deref, ptr, slice};

    /// `len` elements of zeros, reserved but not yet resident.
    pub(crate) struct Region<T> {
        mapping: *mut c_void,
        mapping_bytes: usize,
        first: *const T,
        len: usize,
    }

    // SAFETY: a region owns its mapping and gives out only `&T`; it moves and is shared as `[T]` is.
    unsafe impl<T: Send> Send for Region<T> {}
    // SAFETY: as above.
    unsafe impl<T: Sync> Sync for Region<T> {}

    impl<T: Blank> Region<T> {
        /// Reserves `len` elements, on small pages.
        ///
        /// # Errors
        /// The kernel refuses, usually because the address space or the overcommit limit is exhausted.
        pub(crate) fn reserve(len: usize) -> io::Result<Region<T>> {
            let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the index is longer than memory");
            let bytes = len.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
            let align = HUGE_PAGE_BYTES as usize;
            let bytes = bytes.checked_next_multiple_of(align).ok_or_else(too_long)?;
            let mapping_bytes =
                bytes.checked_add(align).filter(|b| *b < isize::MAX as usize).ok_or_else(too_long)?;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
            let mapping = unsafe {
                mmap_anonymous(ptr::null_mut(), mapping_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            }?;
            let skip = mapping.cast::<u8>().align_offset(align);
            // SAFETY: the mapping is one alignment longer than `bytes`, so `skip + bytes` lies inside it.
            let first = unsafe { mapping.cast::<u8>().add(skip) };
            // SAFETY: the range is inside our own mapping, and this advice changes no byte of it. A kernel without
            // huge pages refuses the advice and provides small pages, which is all it has.
            let _ = unsafe { madvise(first.cast(), bytes, Advice::LinuxNoHugepage) };
            Ok(Region { mapping, mapping_bytes, first: first.cast(), len })
        }

        /// Bytes of the whole array.
        pub(crate) fn bytes_max(&self) -> usize {
            self.len * size_of::<T>()
        }

        /// Puts a huge page in place of the small ones of block `block` of 2 MiB, if the kernel has one. A kernel
        /// that cannot do it at once (before 6.1) may do it later.
        pub(crate) fn collapse(&self, block: usize) {
            let bytes = HUGE_PAGE_BYTES as usize;
            assert!((block + 1) * bytes <= self.bytes_max(), "the block is part of the array");
            let first = self.first.cast::<c_void>().wrapping_byte_add(block * bytes).cast_mut();
            // SAFETY: the range is inside our own mapping, and neither advice changes a byte of it.
            unsafe {
                let _ = madvise(first, bytes, Advice::LinuxHugepage);
                libc::madvise(first, bytes, libc::MADV_COLLAPSE);
            }
        }
    }

    impl<T: Blank> Region<T> {
        /// Takes memory for block `block` of 2 MiB, of which nothing was touched so far: a huge page, if the kernel has
        /// one.
        pub(crate) fn take(&self, block: usize) {
            let bytes = HUGE_PAGE_BYTES as usize;
            assert!((block + 1) * bytes <= self.bytes_max(), "the block is part of the array");
            let first = self.first.cast::<c_void>().wrapping_byte_add(block * bytes).cast_mut();
            // SAFETY: the range is inside our own mapping, and neither advice changes a byte of it.
            unsafe {
                let _ = madvise(first, bytes, Advice::LinuxHugepage);
                let _ = madvise(first, bytes, Advice::LinuxPopulateWrite);
            }
        }
    }

    impl<T> Region<T> {
        /// Gives the memory between two positions back, in bytes from the start of the array, in whole small pages. The
        /// elements there are zeros again, and nobody writes to them meanwhile.
        pub(crate) fn release(&self, from: u64, to: u64) {
            let from = from.next_multiple_of(SMALL_PAGE_BYTES);
            let to = to.next_multiple_of(SMALL_PAGE_BYTES).min((self.len * size_of::<T>()) as u64);
            if from >= to {
                return;
            }
            let at = |bytes: u64| self.first.cast::<c_void>().wrapping_byte_add(bytes as usize).cast_mut();
            let block = from / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            // SAFETY: the range is inside our own mapping. It becomes zeros, which `Blank` says is a value, and which
            // are read through atomics only.
            unsafe {
                let _ = madvise(at(from), (to - from) as usize, Advice::LinuxDontNeed);
                let _ = madvise(at(block), (to - block) as usize, Advice::LinuxNoHugepage);
            }
        }
    }

    impl<T> Deref for Region<T> {
        type Target = [T];

        #[inline(always)]
        fn deref(&self) -> &[T] {
            // SAFETY: `first` is aligned to 2 MiB and has `len` elements behind it in a mapping that lives as long
            // as `self`. They were zeros, which `Blank` says is a value, and have been written only through atomics
            // since.
            unsafe { slice::from_raw_parts(self.first, self.len) }
        }
    }

    impl<T> Drop for Region<T> {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours alone, and every `&T` into it borrowed `self`.
            let unmapped = unsafe { munmap(self.mapping, self.mapping_bytes) };
            debug_assert!(unmapped.is_ok());
        }
    }
}

/// `len` elements in a boxed slice.
#[cfg(any(loom, miri))]
pub(crate) struct Region<T>(Box<[T]>);

#[cfg(any(loom, miri))]
impl<T: Blank> Region<T> {
    pub(crate) fn reserve(len: usize) -> io::Result<Region<T>> {
        #[cfg(loom)]
        let elements = (0..len).map(|_| T::blank()).collect();
        #[cfg(not(loom))]
        // SAFETY: all-zero bytes are a valid `T`; `Blank` says so.
        let elements = unsafe { Box::new_zeroed_slice(len).assume_init() };
        Ok(Region(elements))
    }

    pub(crate) fn bytes_max(&self) -> usize {
        0
    }

    pub(crate) fn collapse(&self, _block: usize) {}

    pub(crate) fn take(&self, _block: usize) {}

    pub(crate) fn release(&self, _from: u64, _to: u64) {}
}

#[cfg(any(loom, miri))]
impl<T> std::ops::Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
