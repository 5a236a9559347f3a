use std::sync::Arc;

/// What a flash tier is made of.
#[derive(Clone)]
pub struct FlashOptions {
    /// `--flash-memory`: the hard cap, in bytes, on all memory the tier takes: buffers, tables, filters, fences.
    pub memory_bytes: u64,
    /// Bytes of a segment; `None` = from the zones and the memory.
    pub segment_bytes: Option<u64>,
    /// Whether old segments of the log are merged into generations. Without, the log is all there is.
    pub generations: bool,
    /// What a restart after a crash keeps.
    pub recover: Recover,
    /// How the over-provisioned space is tuned.
    pub ops: OpsPolicy,
    /// How zones are reclaimed.
    pub reclaim: ReclaimPolicy,
    /// Cut-off window, seconds: an item whose remaining TTL is shorter is as good as expired when its zone is reclaimed.
    pub cutoff_s: u32,
    /// Whether segments are written by a thread of the tier; without, by whoever fills them (the slides' experiment).
    pub background_flush: bool,
    /// Whether zones are reclaimed by a thread of the tier, ahead of need; without, by whoever finds no zone.
    pub background_reclaim: bool,
    /// Part of the live items that a reclaim or merge keeps, coldest dropped first; 0..=100 percent. Items read since they
    /// were written are always kept while there is room.
    pub keep_percent: u8,
    /// Seed of the key hash for a device that has none yet.
    pub seed: u64,
    /// The clock: unix time, seconds.
    pub now_unix_s: Arc<dyn Fn() -> u32 + Send + Sync>,
    /// Erase whatever the device holds, even if it is not ours.
    pub format: bool,
}

/// What a restart keeps after a crash. After a clean stop everything is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recover {
    /// Nothing: no stale value, nothing written for it. The default.
    #[default]
    Clean,
    /// What had reached the device. Invalidations are committed to a journal before they are answered, so nothing stale comes
    /// back.
    Journal,
    /// What had reached the device. A value that was replaced or deleted shortly before the crash may come back.
    BestEffort,
}

/// How the over-provisioned space (erased zones held ready) is tuned: DIDACache (FAST'17) section 4.4.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OpsPolicy {
    /// This share of the zones, percent, always.
    Static(u8),
    /// Doubled when the low watermark is met, decreased linearly at the high one.
    Heuristic,
    /// From the rates of writing and erasing as an M/M/1 queue: lambda / (mu - lambda).
    Queuing,
}

/// How zones are reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReclaimPolicy {
    /// Greedy while there is time, quick when the low watermark is met.
    #[default]
    Adaptive,
    /// The zone with the fewest live bytes; survivors are written again.
    Greedy,
    /// The oldest zone, dropped whole; nothing is read back.
    Quick,
}
