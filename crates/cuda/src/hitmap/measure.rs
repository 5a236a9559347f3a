//! How long a batch takes: the figures of Catalyst's Fig. 9, for `examples/cuda_curve.rs`.

use std::time::{Duration, Instant};

use larder_temperature::Reference;

use super::CudaHitmap;
use crate::driver::CudaError;
use crate::stream::Event;

/// How long a batch took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchTimes {
    /// The references' way to the device, by the device's clock.
    pub transfer: Duration,
    /// Both kernels, by the device's clock.
    pub kernels: Duration,
    /// All of it, by the host's clock, until the host knows that it is done.
    pub whole: Duration,
}

impl CudaHitmap {
    /// Marks a batch as [`Hitmap::mark`] does, waits for it and says how long it took.
    ///
    /// # Errors
    /// What the driver refuses; the batch may be marked or not.
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
