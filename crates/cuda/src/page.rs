//! A page: the references of one batch on their way to the device.

use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::driver::CudaError;
use crate::memory::{DeviceMemory, MemoryMode, PinnedMemory};
use crate::stream::Event;

/// Number of references of the smallest page: 4 KiB, as in Catalyst's reference pool (section 3.2.1).
const REFERENCES_MIN: usize = 1024;

/// The references of a batch, or the digests of a lookup: the memory where the host writes them, the memory where
/// the device reads them, and the memory for their zones.
pub(crate) struct Page {
    pub(crate) host: PinnedMemory,
    pub(crate) references: DeviceMemory,
    pub(crate) zones: DeviceMemory,
    /// The device has finished with all three.
    pub(crate) done: Event,
}

impl Page {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Page, CudaError> {
        Page::with_room(context, REFERENCES_MIN)
    }

    fn with_room(context: &Arc<Context>, references: usize) -> Result<Page, CudaError> {
        Ok(Page {
            host: PinnedMemory::new(context, references * size_of::<u32>())?,
            references: DeviceMemory::new(context, references * size_of::<u32>(), MemoryMode::Explicit)?,
            zones: DeviceMemory::new(context, references, MemoryMode::Explicit)?,
            done: Event::new(context, false)?,
        })
    }

    /// Waits until the page is free, enlarges it if necessary, and writes the words into it. Returns their number.
    pub(crate) fn fill(
        &mut self,
        context: &Arc<Context>,
        timeout: Duration,
        words: impl ExactSizeIterator<Item = u32>,
    ) -> Result<u32, CudaError> {
        let count = u32::try_from(words.len()).map_err(|_| CudaError::Size)?;
        self.done.wait(timeout)?;
        if words.len() > self.zones.bytes() {
            *self = Page::with_room(context, words.len().next_power_of_two())?;
        }
        for (slot, word) in self.host.slice_mut().as_chunks_mut().0.iter_mut().zip(words) {
            *slot = word.to_ne_bytes();
        }
        Ok(count)
    }
}
