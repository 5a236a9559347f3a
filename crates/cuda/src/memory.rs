//! Memory of both sides, each with its end.

use std::ffi::c_uint;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use crate::context::Context;
use crate::driver::CudaError;

/// Of managed memory: any stream may use it.
const ATTACH_GLOBAL: c_uint = 1;

/// Where the map itself is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MemoryMode {
    /// Memory of the device. A map that does not fit is refused.
    #[default]
    Explicit,
    /// Managed memory (Catalyst, section 4.3.8): the driver moves pages to where they are used, so that a map may be
    /// larger than the device's memory. It is slower then.
    Managed,
}

/// Memory that the device reads and writes.
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// With anything in it. `bytes` is more than 0.
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

    /// The address of a byte, for a kernel.
    pub(crate) fn at(&self, offset: usize) -> CUdeviceptr {
        assert!(offset <= self.bytes);
        self.address + offset as CUdeviceptr
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once; the driver waits for the work that uses it.
        self.context.free(|driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}

/// Memory of the host that the device copies from and to without the kernel's help: it cannot be paged out.
pub(crate) struct PinnedMemory {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a boxed slice does.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Zeros. `bytes` is more than 0.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<PinnedMemory, CudaError> {
        context.enter()?;
        let mut start = null_mut();
        // SAFETY: the pointer can be written. No flags: readable by the host at full speed.
        let code = unsafe { (context.driver().cuMemHostAlloc)(&mut start, bytes, 0) };
        context.driver().check("allocating pinned memory", code)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(CudaError::Size)?;
        // SAFETY: as many bytes were allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(PinnedMemory { context: context.clone(), start, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins, for a copy.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn slice(&self) -> &[u8] {
        // SAFETY: allocated and initialized by `new`. The device writes to it only in a copy, and whoever asked for
        // that waits before looking.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `slice`, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once. Its owner has waited for the copies.
        self.context.free(|driver| unsafe { (driver.cuMemFreeHost)(self.start.as_ptr().cast()) });
    }
}
