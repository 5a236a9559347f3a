//! Streams and events: the order in which a device works, and how the host learns what is done.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUevent, CUmemorytype, CUstream};

use crate::context::Context;
use crate::driver::CudaError;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::module::{Argument, Kernel};

const NOT_READY: c_int = 600;
/// A flag of streams: the stream does not wait for the legacy default stream of the process.
const NON_BLOCKING: c_uint = 1;
/// A flag of events: the event records no time, which makes it cheaper.
const DISABLE_TIMING: c_uint = 2;
/// Threads per block: a multiple of the warp size of every device, and few enough for any device.
const BLOCK: u32 = 256;

/// While it waits for the device, the host first yields the core to other threads for this long. Most batches take
/// less time, and the shortest sleep takes half as long. After that the host sleeps.
const YIELD_FOR: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_micros(50);

/// A point in the work of a stream.
pub(crate) struct Event {
    context: Arc<Context>,
    event: CUevent,
}

// SAFETY: an event is a handle, and belongs to no thread.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn new(context: &Arc<Context>, timed: bool) -> Result<Event, CudaError> {
        context.enter()?;
        let mut event = null_mut();
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: the event can be written.
        let code = unsafe { (context.driver().cuEventCreate)(&mut event, flags) };
        context.driver().check("making an event", code)?;
        Ok(Event { context: context.clone(), event })
    }

    /// Whether the stream has reached the event. An event that was never recorded counts as reached.
    pub(crate) fn is_reached(&self) -> Result<bool, CudaError> {
        // SAFETY: the event exists for as long as `self` does.
        match unsafe { (self.context.driver().cuEventQuery)(self.event) } {
            NOT_READY => Ok(false),
            code => self.context.driver().check("waiting for the device", code).map(|()| true),
        }
    }

    /// Waits until the stream has reached the event. An event that was never recorded is not waited for.
    ///
    /// A device that fails may also never answer. The context is then abandoned, and everything that was submitted
    /// to the device stays allocated.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<(), CudaError> {
        let start = Instant::now();
        while !self.is_reached()? {
            let waited = start.elapsed();
            if waited > timeout {
                self.context.abandon();
                return Err(CudaError::NoAnswer(timeout));
            }
            if waited < YIELD_FOR { std::thread::yield_now() } else { std::thread::sleep(SLEEP) }
        }
        Ok(())
    }

    /// Time from this event to a later one. Both were made with a time and have been reached.
    pub(crate) fn until(&self, later: &Event) -> Result<Duration, CudaError> {
        let driver = self.context.driver();
        let mut milliseconds = 0.0;
        // SAFETY: the time can be written, and both events exist.
        let code = unsafe { (driver.cuEventElapsedTime)(&mut milliseconds, self.event, later.event) };
        driver.check("asking for a time", code)?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. The driver keeps it until the stream has reached it.
        self.context.free(|driver| unsafe { (driver.cuEventDestroy_v2)(self.event) });
    }
}

/// A queue of work that the device does in order. Everything that is submitted must stay valid until it is done.
pub(crate) struct Stream {
    context: Arc<Context>,
    stream: CUstream,
}

// SAFETY: a stream is a handle, and belongs to no thread.
unsafe impl Send for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Stream, CudaError> {
        context.enter()?;
        let mut stream = null_mut();
        // SAFETY: the stream can be written.
        let code = unsafe { (context.driver().cuStreamCreate)(&mut stream, NON_BLOCKING) };
        context.driver().check("making a stream", code)?;
        Ok(Stream { context: context.clone(), stream })
    }

    /// Records the event: the stream reaches it when all work submitted so far is done.
    pub(crate) fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both exist and belong to one context.
        let code = unsafe { (self.context.driver().cuEventRecord)(event.event, self.stream) };
        self.context.driver().check("recording an event", code)
    }

    /// Lets all work submitted from now on begin after the event.
    pub(crate) fn after(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both exist and belong to one context.
        let code = unsafe { (self.context.driver().cuStreamWaitEvent)(self.stream, event.event, 0) };
        self.context.driver().check("ordering two streams", code)
    }

    /// Copies the first `bytes` bytes to the device, to offset `offset`. The source must not change until the copy
    /// is done.
    pub(crate) fn copy_in(
        &self,
        to: &DeviceMemory,
        offset: usize,
        from: &PinnedMemory,
        bytes: usize,
    ) -> Result<(), CudaError> {
        assert!(bytes <= from.bytes() && offset + bytes <= to.bytes());
        let driver = self.context.driver();
        // SAFETY: both ranges are allocated, by the assertion. The owner of `from` waits before it writes there
        // again.
        let code =
            unsafe { (driver.cuMemcpyHtoDAsync_v2)(to.at(offset), from.start().cast(), bytes, self.stream) };
        driver.check("copying to the device", code)
    }

    /// Copies `bytes` bytes from offset `offset` to the host. The target must not be read until the copy is done.
    pub(crate) fn copy_out(
        &self,
        to: &mut PinnedMemory,
        from: &DeviceMemory,
        offset: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        assert!(bytes <= to.bytes() && offset + bytes <= from.bytes());
        let driver = self.context.driver();
        // SAFETY: both ranges are allocated, by the assertion. The owner of `to` waits before it reads it.
        let code =
            unsafe { (driver.cuMemcpyDtoHAsync_v2)(to.start().cast(), from.at(offset), bytes, self.stream) };
        driver.check("copying from the device", code)
    }

    /// Copies `bytes` bytes within the device.
    pub(crate) fn copy_within(
        &self,
        to: (&DeviceMemory, usize),
        from: (&DeviceMemory, usize),
        bytes: usize,
    ) -> Result<(), CudaError> {
        assert!(to.1 + bytes <= to.0.bytes() && from.1 + bytes <= from.0.bytes());
        let (to, from) = (to.0.at(to.1), from.0.at(from.1));
        assert!(to.abs_diff(from) >= bytes as u64, "the ranges overlap");
        let driver = self.context.driver();
        // SAFETY: both ranges are allocated and apart from each other, by the assertions.
        let code = unsafe { (driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, self.stream) };
        driver.check("copying on the device", code)
    }

    /// Copies `rows` rows of `width` bytes within the device. `to.1` and `from.1` are the offsets of the first
    /// rows, and `to.2` and `from.2` are the distances between rows.
    pub(crate) fn copy_rows(
        &self,
        to: (&DeviceMemory, usize, usize),
        from: (&DeviceMemory, usize, usize),
        width: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        let fits = |(memory, first, pitch): (&DeviceMemory, usize, usize)| {
            width <= pitch && first + (rows - 1) * pitch + width <= memory.bytes()
        };
        assert!(rows > 0 && fits(to) && fits(from));
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: null_mut(),
            srcDevice: from.0.at(from.1),
            srcArray: null_mut(),
            srcPitch: from.2,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: null_mut(),
            dstDevice: to.0.at(to.1),
            dstArray: null_mut(),
            dstPitch: to.2,
            WidthInBytes: width,
            Height: rows,
        };
        let driver = self.context.driver();
        // SAFETY: all rows of both are allocated, by the assertion.
        driver.check("copying on the device", unsafe { (driver.cuMemcpy2DAsync_v2)(&copy, self.stream) })
    }

    /// Sets `bytes` bytes from offset `offset` to 0.
    pub(crate) fn clear(&self, memory: &DeviceMemory, offset: usize, bytes: usize) -> Result<(), CudaError> {
        assert!(offset + bytes <= memory.bytes());
        let driver = self.context.driver();
        // SAFETY: the range is allocated, by the assertion.
        let code = unsafe { (driver.cuMemsetD8Async)(memory.at(offset), 0, bytes, self.stream) };
        driver.check("clearing memory of the device", code)
    }

    /// Runs a kernel in `threads` threads, which is more than 0, and in up to 255 more threads that find nothing to
    /// do.
    ///
    /// # Safety
    /// The arguments match those of the kernel in number, order and size, and the memory that they point at is
    /// allocated until the kernel has run.
    pub(crate) unsafe fn launch(
        &self,
        kernel: &Kernel,
        threads: u64,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        let blocks = c_uint::try_from(threads.div_ceil(u64::from(BLOCK))).map_err(|_| CudaError::Size)?;
        let mut pointers = [null_mut::<c_void>(); 8];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = match argument {
                Argument::Wide(value) => std::ptr::from_ref(value).cast_mut().cast(),
                Argument::Narrow(value) => std::ptr::from_ref(value).cast_mut().cast(),
            };
        }
        assert!(arguments.len() <= pointers.len());
        let driver = self.context.driver();
        // SAFETY: the driver copies the arguments before it returns. The rest is the caller's promise.
        let code = unsafe {
            let (function, pointers) = (kernel.function(), pointers.as_mut_ptr());
            (driver.cuLaunchKernel)(function, blocks, 1, 1, BLOCK, 1, 1, 0, self.stream, pointers, null_mut())
        };
        driver.check("starting a kernel", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. The driver keeps it until its work is done.
        self.context.free(|driver| unsafe { (driver.cuStreamDestroy_v2)(self.stream) });
    }
}
