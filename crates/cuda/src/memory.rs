//! Memory of the device, and memory of the host that the device can access.

use std::ffi::c_uint;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use crate::context::Context;
use crate::driver::CudaError;

/// A flag of managed memory: any stream may use it.
const ATTACH_GLOBAL: c_uint = 1;

/// Where the map itself is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MemoryMode {
    /// In memory of the device. A map that does not fit is refused.
    #[default]
    Explicit,
    /// In managed memory (Catalyst, section 4.3.8): the driver moves pages to the processor that uses them, so a
    /// map may be larger than the device's memory. It is slower then.
    Managed,
}

/// Memory that the device reads and writes.
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates memory without clearing it. `bytes` is more than 0.
    pub(crate) fn new(
        context: &Arc<Context>,
        bytes: usize,
        mode: MemoryMode,
    ) -> Result<DeviceMemory, CudaError> {
        let driver = context.driver();
        context.enter()?;
        let mut address = 0;
        let code = match mode {
            // SAFETY: the address can be written.
            MemoryMode::Explicit => unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes) },
            // SAFETY: the address can be written.
            MemoryMode::Managed => unsafe { (driver.cuMemAllocManaged)(&mut address, bytes, ATTACH_GLOBAL) },
        };
        driver.check("allocating memory on the device", code)?;
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device address of the byte at `offset`.
    pub(crate) fn at(&self, offset: usize) -> CUdeviceptr {
        assert!(offset <= self.bytes);
        self.address + offset as CUdeviceptr
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once. The driver waits for the work that uses it.
        self.context.free(|driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}

/// Pinned memory of the host. The device copies from and to it without the help of the kernel, because it cannot be
/// paged out.
pub(crate) struct PinnedMemory {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a boxed slice does.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Allocates memory filled with zeros. `bytes` is more than 0.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<PinnedMemory, CudaError> {
        context.enter()?;
        let mut start = null_mut();
        // SAFETY: the pointer can be written. No flags: readable by the host at full speed.
        let code = unsafe { (context.driver().cuMemHostAlloc)(&mut start, bytes, 0) };
        context.driver().check("allocating pinned memory", code)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(CudaError::Size)?;
        // SAFETY: this many bytes were allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(PinnedMemory { context: context.clone(), start, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte, for a copy.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn slice(&self) -> &[u8] {
        // SAFETY: allocated and initialized by `new`. The device writes to it only in a copy, and the caller that
        // requested the copy waits before it looks.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `slice`, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once. The owner has waited for the copies.
        self.context.free(|driver| unsafe { (driver.cuMemFreeHost)(self.start.as_ptr().cast()) });
    }
}
