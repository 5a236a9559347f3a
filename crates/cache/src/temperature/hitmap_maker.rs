//! Makes hitmaps, on the CPU or on a CUDA device.

use larder_cuda::{CudaHitmap, Layout, MemoryMode};
use larder_temperature::{Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, ResilientHitmap};

/// `--device cuda:N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaOptions {
    /// The number of the device, from 0 on.
    pub number: u32,
    /// Whether the map is in managed memory.
    pub managed: bool,
}

/// Makes a hitmap once the number of items is known.
pub struct HitmapMaker {
    /// Makes a hitmap for so many items.
    pub make: Box<dyn Fn(u64) -> Box<dyn Hitmap> + Send>,
    /// Bytes of main memory that a hitmap for so many items takes.
    pub bytes_for: Box<dyn Fn(u64) -> u64 + Send>,
}

impl HitmapMaker {
    /// Makes one-line hitmaps on the CPU.
    pub fn line() -> HitmapMaker {
        HitmapMaker {
            make: Box::new(|items| Box::new(LineHitmap::for_items(items))),
            bytes_for: Box::new(LineHitmap::bytes_for_items),
        }
    }

    /// Makes Catalyst's hitmaps on the CPU.
    pub fn published(options: PublishedOptions) -> HitmapMaker {
        HitmapMaker {
            make: Box::new(move |items| Box::new(PublishedHitmap::for_items(items, options))),
            bytes_for: Box::new(move |items| options.bytes_for(items)),
        }
    }

    /// Makes the same maps on a device, or on the CPU if there is no device. A small map is made on the device now, so
    /// that the log says at the start whether the device works. The map's bytes count as main memory all the same: if
    /// the device fails later, the map comes back to the CPU.
    pub(super) fn on(self, cuda: Option<CudaOptions>, layout: Layout) -> HitmapMaker {
        let Some(CudaOptions { number, managed }) = cuda else { return self };
        let mode = if managed { MemoryMode::Managed } else { MemoryMode::Explicit };
        match CudaHitmap::open(number, layout, 1, mode) {
            Ok(map) => tracing::info!("the hitmap is kept on {}", map.processor()),
            Err(why) => {
                tracing::warn!("{why}: the CPU keeps the hitmap");
                return self;
            }
        }
        let HitmapMaker { make, bytes_for } = self;
        HitmapMaker {
            make: Box::new(move |items| match CudaHitmap::open(number, layout, items, mode) {
                Ok(map) => Box::new(ResilientHitmap::new(map)),
                Err(why) => {
                    tracing::warn!("{why}: the CPU keeps the hitmap");
                    make(items)
                }
            }),
            bytes_for,
        }
    }

    /// Bytes of `hitmap`, grown for `items` items, or of the hitmap that would be made.
    pub(super) fn bytes(&self, hitmap: Option<&dyn Hitmap>, items: u64) -> u64 {
        hitmap.map_or_else(|| (self.bytes_for)(items), |hitmap| hitmap.bytes_for(items))
    }
}
