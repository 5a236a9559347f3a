//! The primary context of a device. All other handles are made in it.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::sys::{CUcontext, CUdevice};

use crate::driver::{CudaError, Driver};

/// The primary context of a device. Everything that is allocated in it owns a share of it.
pub(crate) struct Context {
    driver: &'static Driver,
    device: CUdevice,
    context: CUcontext,
    /// The device does not answer. It may still read and write everything that was submitted to it, so nothing is
    /// freed any more.
    abandoned: AtomicBool,
}

// SAFETY: any thread may call the driver. A context is a handle and belongs to no thread.
unsafe impl Send for Context {}
// SAFETY: as above. The functions that are called with it lock what they need.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn of(number: u32) -> Result<Arc<Context>, CudaError> {
        let driver = Driver::get().map_err(|error| match error {
            CudaError::NoDevice { devices, .. } => CudaError::NoDevice { number, devices },
            error => error,
        })?;
        let mut devices = 0;
        // SAFETY: the count can be written.
        driver.check("counting CUDA devices", unsafe { (driver.cuDeviceGetCount)(&mut devices) })?;
        let devices = u32::try_from(devices).unwrap_or(0);
        if number >= devices {
            return Err(CudaError::NoDevice { number, devices });
        }
        let mut device = 0;
        // SAFETY: the device can be written, and a device with this number exists.
        driver.check("finding the device", unsafe { (driver.cuDeviceGet)(&mut device, number as c_int) })?;
        let mut context = null_mut();
        // SAFETY: the context can be written. It is released once, when the last owner drops it.
        driver.check("opening the device", unsafe {
            (driver.cuDevicePrimaryCtxRetain)(&mut context, device)
        })?;
        let context = Arc::new(Context { driver, device, context, abandoned: AtomicBool::new(false) });
        context.enter()?;
        Ok(context)
    }

    /// Makes this the context of the calling thread, which allocating, launching and copying require.
    pub(crate) fn enter(&self) -> Result<(), CudaError> {
        if self.is_abandoned() {
            return Err(CudaError::NoAnswer(Duration::ZERO));
        }
        // SAFETY: the context is open for as long as `self` exists.
        self.driver
            .check("entering the device's context", unsafe { (self.driver.cuCtxSetCurrent)(self.context) })
    }

    /// The driver's functions.
    pub(crate) fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Records that the device does not answer. From now on the context cannot be entered, and nothing is freed.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The name of the device, for example `NVIDIA H100`.
    pub(crate) fn name(&self) -> Result<String, CudaError> {
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: the buffer has as many characters as the call says.
        let code =
            unsafe { (self.driver.cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, self.device) };
        self.driver.check("asking for the device's name", code)?;
        let bytes = name.map(|character| character as u8);
        Ok(CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into()).unwrap_or_default())
    }

    /// Frees something, unless the device may still be using it. A failure to free is ignored.
    pub(crate) fn free(&self, free: impl FnOnce(&Driver) -> c_int) {
        if !self.is_abandoned() && self.enter().is_ok() {
            free(self.driver);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_abandoned() {
            // SAFETY: retained once, and nothing that was made in it is left, because everything made in it owns a
            // share of `self`.
            unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}
