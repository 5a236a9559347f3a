//! The functions of the CUDA driver that this crate calls. They are looked up when they are first needed.
//!
//! Nothing is linked, so Larder builds and starts on a machine without a driver. `cudarc` finds the library and
//! defines the types. This file looks the functions up itself, all at once, because a function of cudarc panics if
//! the library does not have it. The functions return plain numbers, because a newer driver may return a code that
//! cudarc's enum of results does not have.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream,
};

const NO_DEVICE: c_int = 100;

/// Why a CUDA device cannot be used, or can no longer be used. The message is one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CudaError {
    /// The machine has no driver library.
    NoDriver,
    /// The driver library does not have the function of this name.
    Lacks(&'static str),
    /// The machine has no device with this number.
    NoDevice {
        /// The requested number, counted from 0.
        number: u32,
        /// Number of devices of the machine.
        devices: u32,
    },
    /// The driver refused a call, or the device failed at work that was submitted earlier.
    Failed {
        /// What was requested.
        doing: &'static str,
        /// The driver's code, a `CUresult`.
        code: i32,
        /// The name of the code, if the driver knows one.
        name: String,
    },
    /// The device did not finish within this time. Work that was submitted to it cannot be taken back.
    NoAnswer(Duration),
    /// A batch of more than 2^32 - 1 references, or words that do not have the size of the map.
    Size,
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::NoDriver => write!(f, "no CUDA driver on this machine (libcuda.so.1 was not found)"),
            CudaError::Lacks(name) => write!(f, "the CUDA driver on this machine has no {name}"),
            CudaError::NoDevice { number, devices: 0 } => {
                write!(f, "no CUDA device {number} on this machine: the driver sees none")
            }
            CudaError::NoDevice { number, devices: 1 } => {
                write!(f, "no CUDA device {number} on this machine: there is only device 0")
            }
            CudaError::NoDevice { number, devices } => {
                write!(f, "no CUDA device {number} on this machine: there are 0 to {}", devices - 1)
            }
            CudaError::Failed { doing, code, name } => write!(f, "{doing}: {name} ({code})"),
            CudaError::NoAnswer(timeout) => {
                write!(f, "no answer from the device in {:.1} s", timeout.as_secs_f64())
            }
            CudaError::Size => write!(f, "a size the map on the device is not made for"),
        }
    }
}

impl std::error::Error for CudaError {}

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions of the driver, under their own names.
        #[allow(non_snake_case)]
        pub(crate) struct Driver {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Driver {
            fn find() -> Result<Driver, CudaError> {
                // SAFETY: loading a library runs its initializers. Those of the CUDA driver may run in any thread.
                if !unsafe { sys::is_culib_present() } {
                    return Err(CudaError::NoDriver);
                }
                // SAFETY: as above. The call panics only if there is no library.
                let library = unsafe { sys::culib() };
                Ok(Driver {
                    // SAFETY: this is the ABI of the driver's function with this name. It never changes: a changed
                    // function gets a new suffix. The library is never unloaded.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| CudaError::Lacks(stringify!($name)))?,)*
                })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuGetErrorName(c_int, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint);
    cuMemFree_v2(CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream);
    cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventQuery(CUevent);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
}

impl Driver {
    /// The driver of this machine, initialized.
    pub(crate) fn get() -> Result<&'static Driver, CudaError> {
        static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
        let driver = DRIVER.get_or_init(Driver::find).as_ref().map_err(CudaError::clone)?;
        // SAFETY: the function may be called again and in any thread. 0 is the only allowed flag.
        match unsafe { (driver.cuInit)(0) } {
            NO_DEVICE => Err(CudaError::NoDevice { number: 0, devices: 0 }),
            code => driver.check("starting the CUDA driver", code).map(|()| driver),
        }
    }

    /// Turns every code except that of success into an error. `doing` is what was requested.
    pub(crate) fn check(&self, doing: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `text` can be written, and any code may be passed. For an unknown code the driver writes null.
        let known = unsafe { (self.cuGetErrorName)(code, &mut text) };
        let name = if known != 0 || text.is_null() {
            "an error without a name".into()
        } else {
            // SAFETY: the driver's name of a code: static text that ends in a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(CudaError::Failed { doing, code, name })
    }
}
