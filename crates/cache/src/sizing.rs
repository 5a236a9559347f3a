//! What other sizes of this cache would miss: the curve of its own traffic.
//!
//! ```text
//!  worker: a use of a key whose digest is below the bound --> page of uses --> queue
//!                                                                               |  keeper, after each round
//!                            stats, metrics, page <-- curve <-- near sample <---+
//!                                                           <-- wide sample <---'  only where there is flash
//! ```
//!
//! The samples are those of [`Sampled`]. The *near* one spans eight times what memory can hold. Where there is flash,
//! which may be a hundred times as large, a sample of that span would have few keys of the size of memory: the *wide*
//! one has the sizes beyond.
//!
//! The model is one LRU list over all items, with a store after each miss. The cache's own policy is another one, so
//! the miss ratio at the present size may differ from what the cache misses; what counts is how the curve falls from
//! there.

use crate::item_store::ItemStore;
use crate::keeper::KeeperHandle;
use crate::penalties::remembered;
use crate::references::PageQueue;
use larder_allocation::Subclass;
use larder_curve::{Sampled, SampledCurve, Use};
use larder_flash::Found;
use larder_item::{Expiry, HEADER_BYTES};
use larder_memory::Item;
use larder_temperature::Digest;
use std::sync::{Mutex, MutexGuard};

/// The samples and their pages take one part in so many of the memory limit, but never more than for [`KEYS_MAX`] keys
/// in each sample, nor less than for [`KEYS_MIN`].
const SHARE: u64 = 500;
const KEYS_MIN: usize = 1024;
const KEYS_MAX: usize = 8192;
/// At most one key in 2^5 is sampled: the trace of a use costs a request something.
const RATE_SHIFT: u32 = 5;
/// Pages of the queue, and the uses in each.
const QUEUE_PAGES: usize = 8;
const PAGE_USES: usize = 128;
/// The near sample spans so many times the items that memory can hold, and the wide one so many times what memory and
/// flash can hold together.
const NEAR_SPAN: u64 = 8;
const WIDE_SPAN: u64 = 4;
/// One part in so many of the columns is in use before their live share counts.
const USED_SHARE_MIN: u64 = 4;
/// A curve of fewer sampled reads, or of fewer keys, is one of chance.
const READS_MIN: u64 = 1000;
const SAMPLE_KEYS_MIN: usize = 100;

/// What happened to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UseKind {
    Hit,
    Miss,
    Store,
    Gone,
}

/// One use of a key of the sample, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UseRecord {
    digest: Digest,
    bytes: u32,
    expiry_s: u32,
    kind: UseKind,
    /// `None`: the penalty is unknown.
    penalty: Option<Subclass>,
}

impl UseRecord {
    fn of(digest: Digest, kind: UseKind, item: &Item<'_>) -> UseRecord {
        UseRecord {
            digest,
            bytes: bytes_of(item.key().len(), item.value_bytes()),
            expiry_s: item.expiry().seconds(),
            kind,
            penalty: remembered(item.state()),
        }
    }

    fn without_item(digest: Digest, kind: UseKind) -> UseRecord {
        UseRecord { digest, bytes: 0, expiry_s: 0, kind, penalty: None }
    }

    /// A read that found the item in memory.
    pub(crate) fn hit(digest: Digest, item: &Item<'_>) -> UseRecord {
        UseRecord::of(digest, UseKind::Hit, item)
    }

    /// A read that found the item on flash.
    pub(crate) fn flash_hit(digest: Digest, key: &[u8], found: &Found, expiry: Expiry) -> UseRecord {
        UseRecord {
            digest,
            bytes: bytes_of(key.len(), u32::try_from(found.value_bytes).unwrap_or(u32::MAX)),
            expiry_s: expiry.seconds(),
            kind: UseKind::Hit,
            penalty: remembered(found.state.state()),
        }
    }

    /// A read that found nothing.
    pub(crate) fn miss(digest: Digest) -> UseRecord {
        UseRecord::without_item(digest, UseKind::Miss)
    }

    /// A store of this item.
    pub(crate) fn store(digest: Digest, item: &Item<'_>) -> UseRecord {
        UseRecord::of(digest, UseKind::Store, item)
    }

    /// The item was deleted.
    pub(crate) fn gone(digest: Digest) -> UseRecord {
        UseRecord::without_item(digest, UseKind::Gone)
    }
}

fn bytes_of(key_bytes: usize, value_bytes: u32) -> u32 {
    value_bytes.saturating_add((HEADER_BYTES + key_bytes) as u32)
}

/// What other sizes of the cache would miss, and what the answer rests on.
#[derive(Clone, Debug, Default)]
pub struct Sizing {
    /// The curve over bytes of items, recent reads only.
    pub curve: SampledCurve,
    /// Sizes above this many bytes of items are beyond the sample: there the curve is flat because nothing is known.
    pub span_bytes: u64,
    /// Bytes of items that memory can hold under the present limit, as the items are now.
    pub capacity_bytes: u64,
    /// The memory limit, in bytes.
    pub limit_bytes: u64,
    /// Bytes of the flash; 0 = there is none.
    pub flash_bytes: u64,
    /// Keys in the samples.
    pub keys: u64,
    /// The share of the keys that is in the near sample.
    pub rate: f64,
    /// Sampled reads since the server started.
    pub reads: u64,
    /// Pages of uses that were dropped because the keeper was late.
    pub dropped_pages: u64,
    /// Bytes of memory that the samples take.
    pub bytes: u64,
    /// Whether so few reads or keys were sampled that the curve is one of chance.
    pub is_young: bool,
}

impl Sizing {
    /// Bytes of items that memory could hold under a limit of `times` the present one.
    pub fn capacity_at(&self, times: f64) -> u64 {
        (self.capacity_bytes as f64 * times) as u64
    }
}

/// The samples behind the curve, and the way of uses to them.
pub(crate) struct SizingDesk {
    pub(crate) uses: PageQueue<UseRecord>,
    samples: Mutex<Samples>,
}

struct Samples {
    near: Sampled,
    wide: Option<Sampled>,
    /// Reads of the cache, and pages dropped, that were counted so far.
    reads_seen: u64,
    dropped_seen: u64,
    flash_bytes: u64,
}

impl SizingDesk {
    /// The bytes that the samples and pages take under a memory limit.
    pub(crate) fn bytes_for(limit_bytes: u64, workers: usize, has_flash: bool) -> u64 {
        pages_bytes(workers)
            + samples(has_flash) * Sampled::bytes_for(keys_max(limit_bytes, workers, has_flash))
    }

    /// Empty samples. `flash_bytes` = what flash holds.
    pub(crate) fn new(limit_bytes: u64, workers: usize, flash_bytes: Option<u64>) -> SizingDesk {
        let keys = keys_max(limit_bytes, workers, flash_bytes.is_some());
        let sample = || Sampled::new(keys, Digest::BITS, RATE_SHIFT);
        SizingDesk {
            uses: PageQueue::new(QUEUE_PAGES, PAGE_USES),
            samples: Mutex::new(Samples {
                near: sample(),
                wide: flash_bytes.map(|_| sample()),
                reads_seen: 0,
                dropped_seen: 0,
                flash_bytes: flash_bytes.unwrap_or(0),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().expect("no panic under this lock")
    }

    /// After each round of the keeper: reads the uses that wait, and says which ones are wanted.
    pub(crate) fn tend(&self, store: &ItemStore, keeper: &KeeperHandle) {
        let mut samples = self.lock();
        let unknown = store.unknown_penalty();
        let now_s = store.clock.now_s();
        let columns = columns_bytes(store);
        let spans = (columns * NEAR_SPAN, (columns + samples.flash_bytes) * WIDE_SPAN);
        samples.near.set_span(spans.0);
        samples.near.set_now(now_s);
        if let Some(wide) = &mut samples.wide {
            wide.set_span(spans.1);
            wide.set_now(now_s);
        }
        let mut uses = 0;
        // No more pages than may wait, so that writers who outpace the keeper do not hold it here.
        for page in std::iter::from_fn(|| self.uses.take()).take(2 * QUEUE_PAGES) {
            for record in &page {
                uses += 1;
                samples.each(|sample| feed(sample, record, unknown));
            }
            self.uses.give_back(page);
        }
        let totals = store.totals();
        let reads = totals.get_hits + totals.get_misses;
        let mut counted = reads.saturating_sub(std::mem::replace(&mut samples.reads_seen, reads)) as f64;
        let dropped = self.uses.dropped_pages();
        let lost = dropped - std::mem::replace(&mut samples.dropped_seen, dropped);
        if lost > 0 && uses > 0 {
            // The reads of dropped pages are in no sample. Fewer keys make fewer pages.
            counted *= uses as f64 / (uses + lost * PAGE_USES as u64) as f64;
            samples.each(Sampled::thin_out);
        }
        samples.each(|sample| sample.count_reads(counted));
        keeper.references().curve_wants_below(samples.below());
    }

    /// All items were flushed.
    pub(crate) fn clear(&self) {
        self.lock().each(Sampled::clear);
    }

    /// The curve of recent reads, and what it rests on.
    pub(crate) fn sizing(&self, store: &ItemStore) -> Sizing {
        let samples = self.lock();
        let near = &samples.near;
        let mut sizing = Sizing {
            curve: near.curve(),
            span_bytes: near.span(),
            capacity_bytes: capacity_bytes(store),
            limit_bytes: store.limits.budget().limit_bytes,
            flash_bytes: samples.flash_bytes,
            keys: near.keys() as u64,
            rate: near.rate(),
            reads: near.reads_sampled(),
            dropped_pages: self.uses.dropped_pages(),
            bytes: near.bytes(),
            is_young: near.reads_sampled() < READS_MIN || near.keys() < SAMPLE_KEYS_MIN,
        };
        if let Some(wide) = &samples.wide {
            sizing.curve = sizing.curve.followed_by(near.span(), &wide.curve());
            sizing.span_bytes = wide.span().max(near.span());
            sizing.keys += wide.keys() as u64;
            sizing.bytes += wide.bytes();
        }
        sizing
    }
}

impl Samples {
    fn each(&mut self, mut f: impl FnMut(&mut Sampled)) {
        f(&mut self.near);
        self.wide.iter_mut().for_each(f);
    }

    fn below(&self) -> u32 {
        self.near.below().max(self.wide.as_ref().map_or(0, Sampled::below))
    }
}

fn feed(sample: &mut Sampled, record: &UseRecord, unknown: Subclass) {
    let digest = record.digest.bits();
    let used = Use {
        bytes: record.bytes.into(),
        cost_us: record.penalty.unwrap_or(unknown).typical_us() as f32,
        expires_s: if record.expiry_s == 0 { u32::MAX } else { record.expiry_s },
    };
    match record.kind {
        UseKind::Hit => sample.read(digest, Some(used)),
        UseKind::Miss => sample.read(digest, None),
        UseKind::Store => sample.store(digest, used),
        UseKind::Gone => sample.remove(digest),
    }
}

/// Bytes of items that memory can hold under the present limit: what columns may take, by the share that is live of
/// the columns in use. While few columns are in use, that share says little.
fn capacity_bytes(store: &ItemStore) -> u64 {
    let columns = columns_bytes(store);
    let (used, live) = (store.used_bytes(), store.live_bytes());
    match used * USED_SHARE_MIN < columns || live == 0 {
        true => columns,
        false => (u128::from(columns) * u128::from(live) / u128::from(used.max(live))) as u64,
    }
}

fn columns_bytes(store: &ItemStore) -> u64 {
    store.columns_max() * store.column_bytes()
}

fn samples(has_flash: bool) -> u64 {
    if has_flash { 2 } else { 1 }
}

fn pages_bytes(workers: usize) -> u64 {
    ((2 * QUEUE_PAGES + workers) * PAGE_USES * size_of::<UseRecord>()) as u64
}

fn keys_max(limit_bytes: u64, workers: usize, has_flash: bool) -> usize {
    let bytes = (limit_bytes / SHARE).saturating_sub(pages_bytes(workers)) / samples(has_flash);
    Sampled::keys_for(bytes).clamp(KEYS_MIN, KEYS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_a_small_part_of_the_limit() {
        assert_eq!(size_of::<UseRecord>(), 16);
        for (limit_mib, has_flash) in [(128u64, false), (1024, false), (1024, true), (1 << 20, true)] {
            let bytes = SizingDesk::bytes_for(limit_mib << 20, 4, has_flash);
            assert!(bytes * SHARE <= limit_mib << 20, "{bytes} B of {limit_mib} MiB");
        }
        assert_eq!(keys_max(64 << 20, 4, false), KEYS_MIN);
        assert_eq!(keys_max(1 << 30, 4, false), KEYS_MAX);
        assert!(SizingDesk::bytes_for(8 << 20, 4, false) < 256 << 10);
    }
}
