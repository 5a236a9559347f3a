//! What other sizes of this cache would miss: the curve of its own traffic.
//!
//! ```text
//!  worker: a use of a key whose digest is below the bound --> page of uses --> queue
//!                                                                               |  keeper, after each round
//!                            stats, metrics, page <-- curve <-- near sample <---+
//!                                                           <-- wide sample <---+  only where there is flash
//!                                                   <-- curve <-- a sample <----'  for each namespace
//! ```
//!
//! The samples are those of [`Sampled`]. The *near* one spans eight times what memory can hold. Where there is flash,
//! which may be a hundred times as large, a sample of that span would have few keys of the size of memory: the *wide*
//! one has the sizes beyond.
//!
//! The model is one LRU list over all items, with a store after each miss. The cache's own policy is another one, so
//! the miss ratio at the present size may differ from what the cache misses; what counts is how the curve falls from
//! there.
//!
//! A namespace has a sample and a curve of its own, of one LRU list over its own items: what it would miss if it had so
//! many bytes. Few of the keys of a small namespace are in the sample of the whole cache. So each sample has a bound of
//! its own, workers hand over what any of them wants, and a use says with a number which namespace its key is of. The
//! namespace is looked for only once the digest is below the largest of the bounds.

use crate::item_store::ItemStore;
use crate::keeper::KeeperHandle;
use crate::namespaces::{Row, Table};
use crate::penalties::remembered;
use crate::references::PageQueue;
use larder_allocation::Subclass;
use larder_curve::{Sampled, SampledCurve, Use};
use larder_flash::Found;
use larder_item::{Expiry, HEADER_BYTES};
use larder_memory::Item;
use larder_temperature::Digest;
use std::num::NonZeroU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

/// The samples and their pages take one part in 500 of the memory limit, but never more than for [`KEYS_MAX`] keys in
/// each sample of the whole cache, nor less than for [`KEYS_MIN`].
const SHARE: u64 = 500;
const KEYS_MIN: usize = 1024;
const KEYS_MAX: usize = 8192;
/// The same of the sample of a namespace. Where there is no room for that, no namespace has a sample.
const NAMESPACE_KEYS_MIN: usize = 512;
const NAMESPACE_KEYS_MAX: usize = 4096;
/// At most one key in 2^5 is sampled: the trace of a use costs a request something.
const RATE_SHIFT: u32 = 5;
/// Pages of the queue, and the uses in each.
const QUEUE_PAGES: usize = 8;
const PAGE_USES: usize = 128;
/// The near sample spans eight times the items that memory can hold, and the wide one four times what memory and
/// flash can hold together.
const NEAR_SPAN: u64 = 8;
const WIDE_SPAN: u64 = 4;
/// A quarter of the columns is in use before their live share counts.
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
    /// The number of the namespace that the key is of.
    namespace: Option<NonZeroU8>,
}

impl UseRecord {
    fn of(digest: Digest, kind: UseKind, item: &Item<'_>) -> UseRecord {
        UseRecord {
            digest,
            bytes: bytes_of(item.key().len(), item.value_bytes()),
            expiry_s: item.expiry().seconds(),
            kind,
            penalty: remembered(item.state()),
            namespace: None,
        }
    }

    fn without_item(digest: Digest, kind: UseKind) -> UseRecord {
        UseRecord { digest, bytes: 0, expiry_s: 0, kind, penalty: None, namespace: None }
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
            namespace: None,
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

    /// The same use of a key of the namespace with this number.
    pub(crate) fn of_namespace(self, namespace: Option<NonZeroU8>) -> UseRecord {
        UseRecord { namespace, ..self }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }
}

fn bytes_of(key_bytes: usize, value_bytes: u32) -> u32 {
    value_bytes.saturating_add((HEADER_BYTES + key_bytes) as u32)
}

/// What other sizes of the cache, or of a namespace, would miss, and what the answer rests on.
#[derive(Clone, Debug, Default)]
pub struct Sizing {
    /// The curve over bytes of items, recent reads only.
    pub curve: SampledCurve,
    /// Sizes above this many bytes of items are beyond the sample: there the curve is flat because nothing is known.
    pub span_bytes: u64,
    /// Bytes of items that memory can hold under the present limit, as the items are now. Of a namespace: about how
    /// many bytes its items in memory take.
    pub capacity_bytes: u64,
    /// The memory limit, in bytes. Of a namespace: as the capacity.
    pub limit_bytes: u64,
    /// Bytes of the flash; 0 = there is none, or the curve is that of a namespace, which is of memory alone.
    pub flash_bytes: u64,
    /// Keys in the samples.
    pub keys: u64,
    /// The share of the keys that is in the near sample.
    pub rate: f64,
    /// Sampled reads since the server started, or since the namespace was named.
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

/// Why a namespace has no curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCurve {
    /// No namespace has this name.
    NoSuchNamespace,
    /// The samples of all namespaces would take more than their part of the memory limit.
    NoRoom {
        /// The least memory limit that leaves room for them, in bytes. What counts is the limit at the start.
        limit_bytes_needed: u64,
    },
}

/// The room for all samples.
#[derive(Clone, Copy)]
struct Room {
    /// Bytes for the samples.
    bytes: u64,
    /// Bytes for pages of uses.
    pages_bytes: u64,
    /// Samples of the whole cache.
    wholes: u64,
}

/// How many keys the samples may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shares {
    /// Each sample of the whole cache.
    whole: usize,
    /// The sample of each namespace; 0 = there is none.
    each: usize,
}

impl Room {
    fn new(limit_bytes: u64, workers: usize, has_flash: bool) -> Room {
        let pages_bytes = ((2 * QUEUE_PAGES + workers) * PAGE_USES * size_of::<UseRecord>()) as u64;
        let wholes = if has_flash { 2 } else { 1 };
        Room { bytes: (limit_bytes / SHARE).saturating_sub(pages_bytes), pages_bytes, wholes }
    }

    /// Shares the room out. Namespaces get about a half of it together, or more if the whole cache needs less.
    fn shares(&self, namespaces: usize) -> Shares {
        let whole = |bytes: u64| Sampled::keys_for(bytes / self.wholes).clamp(KEYS_MIN, KEYS_MAX);
        if namespaces == 0 || self.bytes < self.needed(namespaces) {
            return Shares { whole: whole(self.bytes), each: 0 };
        }
        let whole = whole(self.bytes / 2);
        let rest = self.bytes - self.bytes_of(Shares { whole, each: 0 }, 0);
        Shares { whole, each: Sampled::keys_for(rest / namespaces as u64).min(NAMESPACE_KEYS_MAX) }
    }

    /// The least room in which `namespaces` namespaces have samples.
    fn needed(&self, namespaces: usize) -> u64 {
        let of_whole = |whole| self.bytes_of(Shares { whole, each: 0 }, 0);
        let least = namespaces as u64 * Sampled::bytes_for(NAMESPACE_KEYS_MIN);
        least + least.clamp(of_whole(KEYS_MIN), of_whole(KEYS_MAX))
    }

    fn bytes_of(&self, shares: Shares, namespaces: usize) -> u64 {
        let of_each = if shares.each > 0 { Sampled::bytes_for(shares.each) } else { 0 };
        self.wholes * Sampled::bytes_for(shares.whole) + namespaces as u64 * of_each
    }
}

/// The samples behind the curves, and the way of uses to them.
pub(crate) struct SizingCurves {
    pub(crate) uses: PageQueue<UseRecord>,
    room: Room,
    samples: Mutex<Samples>,
}

struct Samples {
    near: Sampled,
    wide: Option<Sampled>,
    /// One for each namespace, or none.
    namespaces: Vec<OfNamespace>,
    /// Reads of the cache, and pages dropped, that were counted so far.
    reads_seen: u64,
    dropped_seen: u64,
    flash_bytes: u64,
}

/// The sample of a namespace.
struct OfNamespace {
    number: NonZeroU8,
    sample: Sampled,
    /// Reads of its keys that were counted so far.
    reads_seen: u64,
}

impl SizingCurves {
    /// The bytes that the samples and pages take under a memory limit while there is no namespace.
    pub(crate) fn bytes_for(limit_bytes: u64, workers: usize, has_flash: bool) -> u64 {
        let room = Room::new(limit_bytes, workers, has_flash);
        room.pages_bytes + room.bytes_of(room.shares(0), 0)
    }

    /// Empty samples. `flash_bytes` = what flash holds.
    pub(crate) fn new(limit_bytes: u64, workers: usize, flash_bytes: Option<u64>) -> SizingCurves {
        let room = Room::new(limit_bytes, workers, flash_bytes.is_some());
        let sample = || new_sample(room.shares(0).whole);
        SizingCurves {
            uses: PageQueue::new(QUEUE_PAGES, PAGE_USES),
            room,
            samples: Mutex::new(Samples {
                near: sample(),
                wide: flash_bytes.map(|_| sample()),
                namespaces: Vec::new(),
                reads_seen: 0,
                dropped_seen: 0,
                flash_bytes: flash_bytes.unwrap_or(0),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().expect("no panic under this lock")
    }

    /// Other namespaces were named. Those that stay keep their samples, as far as their shares allow.
    pub(crate) fn follow(&self, store: &ItemStore) {
        let mut samples = self.lock();
        let table = store.namespaces.table();
        let shares = self.room.shares(table.rows.len());
        samples.near.limit_keys(shares.whole);
        samples.wide.iter_mut().for_each(|wide| wide.limit_keys(shares.whole));
        let mut before = std::mem::take(&mut samples.namespaces);
        if shares.each > 0 {
            let of = |row: &Row| match before.iter().position(|of| of.number == row.number) {
                Some(nth) => {
                    let mut stays = before.swap_remove(nth);
                    stays.sample.limit_keys(shares.each);
                    stays
                }
                None => OfNamespace {
                    number: row.number,
                    sample: new_sample(shares.each),
                    reads_seen: row.gets(),
                },
            };
            samples.namespaces = table.rows.iter().map(of).collect();
        }
        let with = self.room.bytes_of(shares, samples.namespaces.len());
        let without = self.room.bytes_of(self.room.shares(0), 0);
        store.limits.set_curves_bytes(with.saturating_sub(without));
        drop(samples);
        store.share_out();
    }

    /// After each round of the keeper: reads the uses that wait, and says which ones are wanted.
    pub(crate) fn tend(&self, store: &ItemStore, keeper: &KeeperHandle) {
        let mut samples = self.lock();
        let table = store.namespaces.table();
        let unknown = store.counters.unknown_penalty();
        let now_s = store.clock.now_s();
        let columns = columns_bytes(store);
        let spans = (columns * NEAR_SPAN, (columns + samples.flash_bytes) * WIDE_SPAN);
        samples.near.set_span(spans.0);
        samples.wide.iter_mut().for_each(|wide| wide.set_span(spans.1));
        samples.of_rows(&table, |of, row| of.sample.set_span(columns.max(row.bytes() * NEAR_SPAN)));
        samples.each(|sample| sample.set_now(now_s));
        let mut uses = 0;
        // No more pages than may wait, so that writers who outpace the keeper do not hold it here.
        for page in std::iter::from_fn(|| self.uses.take()).take(2 * QUEUE_PAGES) {
            for record in &page {
                uses += 1;
                samples.each_of(record.namespace, |sample| feed(sample, record, unknown));
            }
            self.uses.give_back(page);
        }
        let totals = store.counters.totals();
        let reads = totals.get_hits + totals.get_misses + totals.uses_beside_gets;
        let mut counted = reads.saturating_sub(std::mem::replace(&mut samples.reads_seen, reads)) as f64;
        let dropped = self.uses.dropped_pages();
        let lost = dropped - std::mem::replace(&mut samples.dropped_seen, dropped);
        let mut part = 1.0;
        if lost > 0 && uses > 0 {
            // The reads of dropped pages are in no sample. Fewer keys make fewer pages.
            part = uses as f64 / (uses + lost * PAGE_USES as u64) as f64;
            samples.each(Sampled::thin_out);
        }
        counted *= part;
        samples.near.count_reads(counted);
        samples.wide.iter_mut().for_each(|wide| wide.count_reads(counted));
        let mut below = 0;
        samples.of_rows(&table, |of, row| {
            let reads = row.gets();
            let counted = reads.saturating_sub(std::mem::replace(&mut of.reads_seen, reads));
            of.sample.count_reads(counted as f64 * part);
            row.curve_below.store(of.sample.below(), Relaxed);
            below = below.max(of.sample.below());
        });
        keeper.references().curves_want_below(samples.whole_below(), below);
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
            capacity_bytes: capacity_bytes(store),
            limit_bytes: store.limits.budget().limit_bytes,
            flash_bytes: samples.flash_bytes,
            ..self.sizing_of(near)
        };
        if let Some(wide) = &samples.wide {
            sizing.curve = sizing.curve.followed_by(near.span(), &wide.curve());
            sizing.span_bytes = wide.span().max(near.span());
            sizing.keys += wide.keys() as u64;
            sizing.bytes += wide.bytes();
        }
        sizing
    }

    /// The curve of one namespace.
    pub(crate) fn sizing_of_namespace(&self, store: &ItemStore, name: &[u8]) -> Result<Sizing, NoCurve> {
        let samples = self.lock();
        let table = store.namespaces.table();
        let row = table.row(name).ok_or(NoCurve::NoSuchNamespace)?;
        let Some(of) = samples.namespaces.iter().find(|of| of.number == row.number) else {
            let needed = self.room.needed(table.rows.len()) + self.room.pages_bytes;
            return Err(NoCurve::NoRoom { limit_bytes_needed: needed * SHARE });
        };
        let bytes = row.bytes();
        Ok(Sizing { capacity_bytes: bytes, limit_bytes: bytes, ..self.sizing_of(&of.sample) })
    }

    fn sizing_of(&self, sample: &Sampled) -> Sizing {
        Sizing {
            curve: sample.curve(),
            span_bytes: sample.span(),
            keys: sample.keys() as u64,
            rate: sample.rate(),
            reads: sample.reads_sampled(),
            dropped_pages: self.uses.dropped_pages(),
            bytes: sample.bytes(),
            is_young: sample.reads_sampled() < READS_MIN || sample.keys() < SAMPLE_KEYS_MIN,
            ..Sizing::default()
        }
    }
}

impl Samples {
    fn each(&mut self, mut f: impl FnMut(&mut Sampled)) {
        f(&mut self.near);
        self.wide.iter_mut().for_each(&mut f);
        self.namespaces.iter_mut().for_each(|of| f(&mut of.sample));
    }

    /// The samples that a use of a key of this namespace is for.
    fn each_of(&mut self, namespace: Option<NonZeroU8>, mut f: impl FnMut(&mut Sampled)) {
        f(&mut self.near);
        self.wide.iter_mut().for_each(&mut f);
        let of = |of: &&mut OfNamespace| Some(of.number) == namespace;
        self.namespaces.iter_mut().find(of).into_iter().for_each(|of| f(&mut of.sample));
    }

    /// The samples of namespaces, each with the row of its namespace.
    fn of_rows(&mut self, table: &Table, mut f: impl FnMut(&mut OfNamespace, &Row)) {
        for row in &table.rows {
            if let Some(of) = self.namespaces.iter_mut().find(|of| of.number == row.number) {
                f(of, row);
            }
        }
    }

    fn whole_below(&self) -> u32 {
        self.near.below().max(self.wide.as_ref().map_or(0, Sampled::below))
    }
}

fn new_sample(keys: usize) -> Sampled {
    Sampled::new(keys, Digest::BITS, RATE_SHIFT)
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
    let (used, live) = (store.used_bytes(), store.counters.live_bytes());
    match used * USED_SHARE_MIN < columns || live == 0 {
        true => columns,
        false => (u128::from(columns) * u128::from(live) / u128::from(used.max(live))) as u64,
    }
}

fn columns_bytes(store: &ItemStore) -> u64 {
    store.columns_max() * store.column_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::NAMESPACES_MAX;

    #[test]
    fn the_samples_are_a_small_part_of_the_limit() {
        assert_eq!(size_of::<UseRecord>(), 16);
        for (limit_mib, has_flash) in [(128u64, false), (1024, false), (1024, true), (1 << 20, true)] {
            let bytes = SizingCurves::bytes_for(limit_mib << 20, 4, has_flash);
            assert!(bytes * SHARE <= limit_mib << 20, "{bytes} B of {limit_mib} MiB");
        }
        let whole = |limit_mib: u64| Room::new(limit_mib << 20, 4, false).shares(0).whole;
        assert_eq!((whole(64), whole(1024)), (KEYS_MIN, KEYS_MAX));
        assert!(SizingCurves::bytes_for(8 << 20, 4, false) < 256 << 10);
    }

    #[test]
    fn samples_of_namespaces_share_the_same_part_of_the_limit() {
        let mut most = (0, 0);
        for limit_mib in [8u64, 64, 128, 256, 512, 1024, 4096, 16 << 10, 1 << 20] {
            for (workers, has_flash) in [(1, false), (4, true), (64, false)] {
                let room = Room::new(limit_mib << 20, workers, has_flash);
                for namespaces in 1..=NAMESPACES_MAX {
                    let shares = room.shares(namespaces);
                    if shares.each == 0 {
                        assert_eq!(shares, room.shares(0), "the whole cache loses nothing");
                        assert!(room.bytes < room.needed(namespaces));
                        continue;
                    }
                    assert!(shares.each >= NAMESPACE_KEYS_MIN && shares.each <= NAMESPACE_KEYS_MAX);
                    assert!(shares.whole >= KEYS_MIN && shares.whole <= room.shares(0).whole);
                    let bytes = room.pages_bytes + room.bytes_of(shares, namespaces);
                    assert!(bytes * SHARE <= limit_mib << 20, "{bytes} B of {limit_mib} MiB: {shares:?}");
                    most = most.max((namespaces, shares.each));
                }
            }
        }
        assert_eq!(most, (NAMESPACES_MAX, NAMESPACE_KEYS_MAX), "a large cache has room for all");
        let each = |limit_mib: u64, namespaces| Room::new(limit_mib << 20, 4, false).shares(namespaces).each;
        assert_eq!((each(128, 1), each(256, 3)), (0, 0));
        assert!(each(256, 2) > 512 && each(1024, 2) > 3500 && each(1024, 9) > 512);
    }
}
