//! The options of a flash tier.

use crate::space::{MakeSpacePolicy, Watermarks};
use std::sync::Arc;

/// The options of a flash tier.
#[derive(Clone)]
pub struct FlashOptions {
    /// The limit of all DRAM that the tier takes (buffers, tables, filters, fences), bytes: `--flash-memory`.
    pub memory_bytes: u64,
    /// Length of a segment, bytes; `None` = chosen by the length of a zone and the memory.
    pub segment_bytes: Option<u64>,
    /// Whether old segments of the log are merged into generations. If not, all items stay in the log.
    pub generations: bool,
    /// How many of the zones the log may take before its oldest part is merged, percent. Whatever this says, it is
    /// merged when its table is full. Without generations this has no meaning.
    pub log_percent: u8,
    /// What a restart after a crash keeps.
    pub recover: Recover,
    /// When zones are freed: [`Watermarks::by_rates`](crate::space::Watermarks::by_rates).
    pub space: MakeSpacePolicy,
    /// The cut-off window, seconds: an item that expires within it counts as expired when its zone is reclaimed.
    pub cutoff_s: u32,
    /// How much of the space may be live items, percent (0 to 100). While less is live, a reclaim or merge keeps every
    /// live item. Beyond that it drops some, of those that were not read since they were written.
    pub fill_percent: u8,
    /// Seed of the key hash, for a device that is formatted now.
    pub seed: u64,
    /// The clock: unix time, seconds.
    pub now_unix_s: Arc<dyn Fn() -> u32 + Send + Sync>,
    /// Format the device, whatever it holds.
    pub format: bool,
}

impl FlashOptions {
    /// The defaults for a device of `device_bytes`: everything else follows from its size.
    ///
    /// `seed`: see [`FlashOptions::seed`]. `now_unix_s`: see [`FlashOptions::now_unix_s`].
    pub fn for_device(
        device_bytes: u64,
        seed: u64,
        now_unix_s: Arc<dyn Fn() -> u32 + Send + Sync>,
    ) -> FlashOptions {
        FlashOptions {
            memory_bytes: memory_bytes_for(device_bytes),
            segment_bytes: None,
            generations: true,
            log_percent: 100,
            recover: Recover::default(),
            space: Watermarks::by_rates(),
            cutoff_s: 0,
            fill_percent: FILL_PERCENT,
            seed,
            now_unix_s,
            format: false,
        }
    }
}

/// The default of [`FlashOptions::memory_bytes`]. A 64th of the device is enough for tables and filters of items of 100
/// bytes: each takes about 125 bytes of the device and 1.5 bytes of memory. The least is two segment buffers of 4 MiB,
/// and as much for tables.
pub fn memory_bytes_for(device_bytes: u64) -> u64 {
    (device_bytes / 64).max(16 << 20)
}

/// The default of [`FlashOptions::fill_percent`].
pub const FILL_PERCENT: u8 = 85;

/// What a restart keeps after a crash. After a clean stop every item is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recover {
    /// Nothing. No stale value can come back, and no journal is written. The default.
    #[default]
    Clean,
    /// What had reached the device. Invalidations are durable in a journal before they are answered, so no stale value
    /// comes back.
    Journal,
    /// What had reached the device. A value that was replaced or deleted shortly before the crash may come back.
    BestEffort,
}
