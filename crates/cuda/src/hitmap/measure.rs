//! Timing of a batch, for the figures of Catalyst's Fig. 9 (`crates/laboratory/examples/cuda_curve.rs`).

use std::time::{Duration, Instant};

use larder_temperature::Reference;

use super::CudaHitmap;
use crate::driver::CudaError;
use crate::stream::Event;

/// How long the parts of a batch took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchTimes {
    /// Copying the references to the device, by the device's clock.
    pub transfer: Duration,
    /// Both kernels, by the device's clock.
    pub kernels: Duration,
    /// Everything until the host knows that the batch is done, by the host's clock.
    pub whole: Duration,
}

impl CudaHitmap {
    /// Marks a batch like [`Hitmap::mark`](larder_temperature::Hitmap::mark), waits for it and returns how long it
    /// took.
    ///
    /// # Errors
    /// The driver refuses something. The batch may or may not be marked.
    pub fn measure(&mut self, references: &[Reference]) -> Result<BatchTimes, CudaError> {
        self.try_to(|map| {
            let event = || Event::new(&map.context, true);
            let events = [event()?, event()?, event()?];
            let start = Instant::now();
            map.submit(references, Some(&events))?;
            let [begin, copied, end] = &events;
            end.wait(map.timeout)?;
            let whole = start.elapsed();
            Ok(BatchTimes { transfer: begin.until(copied)?, kernels: copied.until(end)?, whole })
        })
    }
}
