//! What every hitmap can do, wherever its bits are.

use crate::reference::{Digest, Reference};
use std::collections::VecDeque;

/// Zones that [`Hitmap::submit`] was asked for, in the order of the calls. Where they never will be known, because the
/// device was late or was lost, the place is empty.
pub type Answers = VecDeque<Vec<u8>>;

/// How often keys were accessed recently, counted in levels of hash counters (Catalyst, section 3.1).
///
/// * **Batches.** [`Hitmap::mark`] judges all references of a batch against the map as it was before the call. The
///   outcome therefore does not depend on their order, and a processor with thousands of threads produces the same
///   bits as a single thread. A key that occurs twice in a batch climbs one level. With batches of one reference
///   this is Catalyst's Algorithm 2.
/// * **No false negatives.** Without an aging, a key that was marked in `n` batches is in zone `min(n, levels)` or
///   higher. Each aging lowers this bound by one. An aging that is done piece by piece may also lower it for some
///   of the marks made meanwhile. A key may be in a higher zone than it earned, because keys share bits.
pub trait Hitmap: Send {
    /// Marks the keys of a batch. Each key is marked in the lowest level in which it is not marked yet. A map with
    /// a set counter also marks each stored key there that was in no level.
    fn mark(&mut self, references: &[Reference]);

    /// Appends the zone of each key, in order: from 0 (cold) to [`Hitmap::levels`] (hot).
    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>);

    /// Marks the keys of a batch, and then looks up `digests`, in one submission that is not waited for (Catalyst,
    /// section 3.2.2). A map on the CPU appends the zones to `answers` at once. A device appends those of earlier
    /// submissions that are known by now, and nothing of this one. Where too many submissions are under way, this one
    /// comes to nothing: its marks are lost and its answer is empty.
    fn submit(&mut self, references: &[Reference], digests: &[Digest], answers: &mut Answers) {
        self.submit_and_wait(references, digests, answers);
    }

    /// The same, but a device is waited for: its answer is the one to this submission, and no mark is lost.
    fn submit_and_wait(&mut self, references: &[Reference], digests: &[Digest], answers: &mut Answers) {
        self.mark(references);
        let mut zones = Vec::with_capacity(digests.len());
        self.zones(digests, &mut zones);
        answers.push_back(zones);
    }

    /// Whether [`Hitmap::zones`] waits for another processor, and answers come later than they were asked for.
    fn is_apart(&self) -> bool {
        false
    }

    /// Submissions that came to nothing because the device was late.
    fn late(&self) -> u64 {
        0
    }

    /// Begins an aging (rolling compaction; Catalyst, Algorithm 1), which moves every key one zone down. A map that
    /// ages piece by piece continues in [`Hitmap::age_some`]. While an aging is in progress the call changes
    /// nothing.
    fn age(&mut self);

    /// Continues the aging in progress through at most `bytes` bytes of the map. Returns whether more is left.
    fn age_some(&mut self, bytes: usize) -> bool;

    /// Grows the map by doublings until it is sized for `items` items. No mark is lost. A map never shrinks.
    fn grow(&mut self, items: u64);

    /// Bytes of memory that the map would take after [`Hitmap::grow`] for `items` items. `bytes_for(0)` is what the
    /// map takes now.
    fn bytes_for(&self, items: u64) -> u64;

    /// As [`Hitmap::bytes_for`], of main memory alone: what lies in the memory of a device does not count.
    fn main_memory_bytes_for(&self, items: u64) -> u64 {
        self.bytes_for(items)
    }

    /// Number of levels, which is also the highest zone.
    fn levels(&self) -> u8;

    /// Which processor does the work, in a few words for a log line: `the CPU`, or the name of a device.
    fn processor(&self) -> String;
}

/// A hitmap whose bits are on a device that can fail, such as a GPU.
///
/// From the first failure on the map marks nothing and reports every key as cold.
/// [`ResilientHitmap`](crate::ResilientHitmap) then replaces it by a hitmap on the CPU.
pub trait DeviceHitmap: Hitmap {
    /// Why the device failed.
    type Error: std::error::Error + Clone + Send;

    /// What log lines call the device, for example `CUDA device`.
    const KIND: &'static str;

    /// The first failure, if there was one.
    fn error(&self) -> Option<&Self::Error>;

    /// Reads the bits back from the device and returns a CPU hitmap that continues with them.
    ///
    /// # Errors
    /// The device does not return the bits.
    fn rescue(&mut self) -> Result<Box<dyn Hitmap>, Self::Error>;

    /// An empty CPU hitmap of the same kind and size.
    fn empty_on_cpu(&self) -> Box<dyn Hitmap>;
}
