//! Code on a device: a module, its kernels, and the arguments of a kernel.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};

use crate::context::Context;
use crate::driver::CudaError;

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub(crate) enum Argument {
    /// 64 bits: a number, or an address on the device.
    Wide(u64),
    /// 32 bits.
    Narrow(u32),
}

/// A function that runs on the device. It is valid for as long as its module is loaded.
pub(crate) struct Kernel {
    function: CUfunction,
}

// SAFETY: a function is a handle, and belongs to no thread.
unsafe impl Send for Kernel {}

impl Kernel {
    /// The driver's handle of the kernel, for a launch.
    pub(crate) fn function(&self) -> CUfunction {
        self.function
    }
}

/// Code that was loaded into a context.
pub(crate) struct Module {
    context: Arc<Context>,
    module: CUmodule,
}

// SAFETY: a module is a handle, and belongs to no thread.
unsafe impl Send for Module {}

impl Module {
    /// Lets the driver compile PTX for its device.
    pub(crate) fn load(context: &Arc<Context>, ptx: &CStr) -> Result<Module, CudaError> {
        context.enter()?;
        let mut module = null_mut();
        // SAFETY: the module can be written, and the text ends in a zero.
        let code = unsafe { (context.driver().cuModuleLoadData)(&mut module, ptx.as_ptr().cast()) };
        context.driver().check("loading the kernels", code)?;
        Ok(Module { context: context.clone(), module })
    }

    /// The kernel with this name.
    pub(crate) fn kernel(&self, name: &CStr) -> Result<Kernel, CudaError> {
        let driver = self.context.driver();
        let mut function = null_mut();
        // SAFETY: the function can be written, and the name ends in a zero.
        let code = unsafe { (driver.cuModuleGetFunction)(&mut function, self.module, name.as_ptr()) };
        driver.check("finding a kernel", code)?;
        Ok(Kernel { function })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, and unloaded once, after all the work of its kernels.
        self.context.free(|driver| unsafe { (driver.cuModuleUnload)(self.module) });
    }
}
