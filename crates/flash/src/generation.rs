//! Generations: what was merged out of the log. A generation is a row of segments (chunks) in order of hash.
//!
//! ```text
//!  log                                       newest
//!  generation 7   | chunk | chunk | chunk |
//!  generation 4   | chunk | chunk |
//!  generation 1   | chunk | chunk | chunk |  oldest
//!                 hash 0 ------------> max
//! ```
//!
//! A generation holds at most one version of a key. Every version in it is older than the log, and newer than every
//! older generation. A lookup asks the filters of all generations at once, and then reads, newest first, where a filter
//! said yes. Generations whose filters do not fit into memory are found through the address run (see `address`).
//!
//! Lock: `change`, held while the list is replaced. Lookups take no lock. The log takes it under the append lock when
//! it flushes or shows a new generation.

pub(crate) mod synthetic;

pub(crate) use crate::address::GENERATIONS_MAX;
use crate::address::{AddressCounts, AddressPages, AddressRun, PageCache, SHARE_PARTS};
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::filter::Filter;
use crate::hit_bits::HitBits;
use crate::segment::{Gap, Run, SegmentSummary};
use arc_swap::ArcSwap;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

/// How many hashes are touched together.
const TOUCHED_MAX: usize = 16;
/// The share of superseded records of a generation, while nothing has counted them.
const SHARE_UNKNOWN: u32 = u32::MAX;

/// One segment of a generation.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Its data pages.
    pub(crate) run: Run,
    /// The lower end of its range of hashes: no record has a lower one.
    pub(crate) first_hash: u64,
    /// See [`crate::segment::Head::sealed_sequence`].
    pub(crate) sealed_sequence: u64,
    /// Length of all records, bytes.
    pub(crate) record_bytes: u64,
    /// Whether some record says that an extent is superseded: older extents must be gone before the chunk goes.
    pub(crate) supersedes_extents: bool,
    /// When its records expire.
    pub(crate) histogram: ExpiryHistogram,
    fences: Fences,
}

impl Chunk {
    fn of(facts: SegmentSummary) -> (Chunk, Option<Arc<Filter>>) {
        let chunk = Chunk {
            run: Run::of(&facts),
            first_hash: facts.head.first_hash,
            sealed_sequence: facts.head.sealed_sequence,
            record_bytes: facts.record_bytes,
            supersedes_extents: !facts.superseded_extents.is_empty(),
            histogram: facts.histogram,
            fences: facts.fences,
        };
        (chunk, facts.filter.map(Arc::new))
    }

    /// The gap that it leaves in the generations below a number.
    fn gap(&self, below: u64) -> Gap {
        Gap::new(&(self.first_hash..=self.fences.last_hash().unwrap_or(self.first_hash)), below)
    }

    /// Whether it may have a record in a gap.
    fn is_in(&self, gap: &Gap) -> bool {
        let last_hash = self.fences.last_hash();
        gap.last_hash >= self.first_hash && last_hash.is_some_and(|last| gap.first_hash <= last)
    }

    fn bytes(&self) -> usize {
        size_of::<Chunk>() - size_of::<Fences>() + self.fences.bytes()
    }
}

/// The pages to read for a record of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataPages {
    /// Number of the generation.
    pub(crate) generation: u64,
    /// The zone.
    pub(crate) zone: ZoneId,
    /// Number of the first page in the zone.
    pub(crate) page: u32,
    /// How many pages: the record begins and ends in them. 2, seldom more.
    pub(crate) pages: u32,
    /// Sequence of the segment, which [`crate::page::compact`] checks.
    pub(crate) sequence: u64,
    /// The number that the CAS numbers of its records count from.
    pub(crate) cas_base: u64,
}

/// A generation. It never changes: where chunks or filters go, another generation takes its place in the list.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    number: u64,
    /// In order of hash.
    chunks: Box<[Arc<Chunk>]>,
    /// The first hash of each chunk.
    starts: Box<[u64]>,
    /// The filter of each chunk; empty if the generation is found through the address run.
    filters: Box<[Arc<Filter>]>,
    /// The zone of the segment that marks the end of the merge. Without it a restart does not find the generation.
    end_zone: Option<ZoneId>,
    /// The share of its records that newer generations supersede, as the last merge has counted it, in
    /// [`SHARE_PARTS`]; [`SHARE_UNKNOWN`] if none has.
    superseded: Arc<AtomicU32>,
}

impl Generation {
    /// The generation of segments that a merge has written or a restart has found, in any order. Among them must be the
    /// segment without records that marks the end of the merge. If that is missing (`None`), the merge was never
    /// completed, and the log segments that it read are still there. Segments of the beginning may be missing: they
    /// were dropped.
    pub(crate) fn of(segments: Vec<SegmentSummary>) -> Option<Generation> {
        let number = segments.first()?.head.generation;
        let (mark, mut segments): (Vec<_>, Vec<_>) = segments.into_iter().partition(|facts| facts.items == 0);
        if mark.is_empty() || segments.iter().any(|facts| facts.head.generation != number) {
            return None;
        }
        segments.sort_unstable_by_key(|facts| facts.head.first_hash);
        let (chunks, filters): (Vec<_>, Vec<_>) = segments.into_iter().map(Chunk::of).unzip();
        let filters = filters.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
        let end_zone = mark.first().map(|facts| facts.zone);
        Some(Generation::from_parts(number, chunks.into_iter().map(Arc::new).collect(), filters, end_zone))
    }

    fn from_parts(
        number: u64,
        chunks: Vec<Arc<Chunk>>,
        filters: Vec<Arc<Filter>>,
        end_zone: Option<ZoneId>,
    ) -> Generation {
        let starts = chunks.iter().map(|chunk| chunk.first_hash).collect();
        let superseded = Arc::new(AtomicU32::new(SHARE_UNKNOWN));
        Generation { number, chunks: chunks.into(), starts, filters: filters.into(), end_zone, superseded }
    }

    /// Its number: the sequence of its first segment. A newer generation has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its segments, in order of hash.
    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// Its segments, in order of hash, each with the last hash of its range.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Arc<Chunk>, u64)> + '_ {
        let ends = self.starts.iter().skip(1).map(|next| next.saturating_sub(1)).chain([u64::MAX]);
        self.chunks.iter().zip(ends)
    }

    /// The zones that it needs.
    pub(crate) fn zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.chunks.iter().map(|chunk| chunk.run.zone).chain(self.end_zone)
    }

    /// The share of its records that newer generations supersede, from 0 to 1; `None` while that is not known.
    pub(crate) fn superseded_share(&self) -> Option<f64> {
        let share = self.superseded.load(Relaxed);
        (share != SHARE_UNKNOWN).then(|| share as f64 / SHARE_PARTS as f64)
    }

    /// Records, tombstones included.
    #[cfg(test)]
    pub(crate) fn items(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.run.items as u64).sum()
    }

    /// Whether lookups find it through filters. If not, they find it through the address run.
    pub(crate) fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Memory of its filters, bytes.
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.filters.iter().map(|filter| filter.bytes() as u64 + 8).sum()
    }

    /// Memory of everything except filters, bytes.
    pub(crate) fn fence_bytes(&self) -> u64 {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.bytes() + 16 + 8).sum();
        (size_of::<Generation>() + chunks) as u64
    }

    /// The number of the chunk that has the range of a hash.
    #[inline]
    fn chunk(&self, hash: u64) -> Option<usize> {
        // Hashes are spread evenly, so this guess is right except near the border between two chunks. The processor
        // predicts the comparison well, unlike those of a binary search, and goes on with the next generation
        // meanwhile.
        let likely = ((hash as u128 * self.starts.len() as u128) >> 64) as usize;
        let end = self.starts.get(likely + 1);
        if self.starts.get(likely).is_some_and(|start| *start <= hash) && end.is_none_or(|end| hash < *end) {
            return Some(likely);
        }
        self.starts.partition_point(|start| *start <= hash).checked_sub(1)
    }

    /// Whether a filter says that the generation may hold the hash. No branch depends on bytes of a filter.
    #[inline]
    fn filter_says(&self, hash: u64) -> bool {
        self.chunk(hash)
            .is_some_and(|chunk| self.filters.get(chunk).is_some_and(|filter| filter.may_contain(hash)))
    }

    /// The pages that a record of the hash is in, if this generation has one.
    fn pages_of(&self, hash: u64) -> Option<DataPages> {
        let chunk = &self.chunks[self.chunk(hash)?];
        let found = chunk.fences.page(hash);
        (found.count > 0).then_some(DataPages {
            generation: self.number,
            zone: chunk.run.zone,
            page: chunk.run.first_data_page + found.first,
            pages: found.count,
            sequence: chunk.run.sequence,
            cas_base: chunk.run.cas_base,
        })
    }

    /// Loads what [`Generation::pages_of`] probably looks at. The result means nothing.
    #[inline]
    fn touch_fences(&self, hash: u64) -> u64 {
        self.chunk(hash).map_or(0, |chunk| self.chunks[chunk].fences.touch(hash))
    }

    fn without_filters(&self) -> Generation {
        Generation { filters: Box::default(), ..self.clone() }
    }

    /// The generation without the chunks that `goes` says yes to, and those chunks. `goes` gets a chunk and the last
    /// hash of its range.
    fn without(&self, mut goes: impl FnMut(&Chunk, u64) -> bool) -> (Generation, Vec<Arc<Chunk>>) {
        let (mut gone, mut kept, mut filters) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (chunk, end)) in self.ranges().enumerate() {
            if goes(chunk, end) {
                gone.push(chunk.clone());
            } else {
                kept.push(chunk.clone());
                filters.extend(self.filters.get(index).cloned());
            }
        }
        let mut kept = Generation::from_parts(self.number, kept, filters, self.end_zone);
        kept.superseded = self.superseded.clone();
        (kept, gone)
    }
}

/// All generations at one moment. It never changes: another list takes its place.
#[derive(Default)]
pub(crate) struct List {
    newest_first: Vec<Arc<Generation>>,
    /// Bit `n`: generation `n` of the list has no filter.
    unfiltered: u32,
    address: Option<Arc<AddressRun>>,
}

impl List {
    fn new(newest_first: Vec<Arc<Generation>>, address: Option<Arc<AddressRun>>) -> List {
        let unfiltered = newest_first.iter().enumerate();
        let unfiltered = unfiltered.fold(0, |bits, (n, found)| bits | (!found.has_filters() as u32) << n);
        List { newest_first, unfiltered, address }
    }

    /// The list without the chunks in these zones.
    pub(crate) fn without(&self, zones: &HashSet<ZoneId>) -> List {
        let kept = |generation: &Arc<Generation>| {
            let (kept, gone) = generation.without(|chunk, _| zones.contains(&chunk.run.zone));
            if gone.is_empty() { generation.clone() } else { Arc::new(kept) }
        };
        let generations = self.newest_first.iter().map(kept).filter(|kept| !kept.chunks.is_empty());
        List::new(generations.collect(), self.address.clone())
    }

    /// The generations, newest first.
    pub(crate) fn newest_first(&self) -> &[Arc<Generation>] {
        &self.newest_first
    }

    /// The address run, if there is one.
    pub(crate) fn address(&self) -> Option<&Arc<AddressRun>> {
        self.address.as_ref()
    }

    /// Bit `n` is set if the filter of generation `n` says yes. All filters are read before any answer is used, so that
    /// their cache misses overlap.
    #[inline]
    fn filters_say(&self, hash: u64) -> u32 {
        let generations = self.newest_first.iter().enumerate();
        generations.fold(0, |bits, (n, generation)| bits | (generation.filter_says(hash) as u32) << n)
    }

    /// Whether some filter says that its generation may hold the hash. Generations without a filter are not asked.
    pub(crate) fn filters_may_hold(&self, hash: u64) -> bool {
        self.filters_say(hash) != 0
    }

    /// Whether there is a generation without a filter.
    pub(crate) fn has_unfiltered(&self) -> bool {
        self.unfiltered != 0
    }

    /// Whether the generation of this number is in the list, and has no filter.
    pub(crate) fn is_unfiltered(&self, number: u64) -> bool {
        self.position(number).is_some_and(|n| self.unfiltered >> n & 1 == 1)
    }

    /// The position of a generation in the list; 0 is the newest.
    pub(crate) fn position(&self, number: u64) -> Option<usize> {
        self.newest_first.iter().position(|generation| generation.number == number)
    }

    fn fence_bytes(&self) -> u64 {
        let generations: u64 = self.newest_first.iter().map(|generation| generation.fence_bytes() + 24).sum();
        generations + self.address.as_ref().map_or(0, |run| run.bytes())
    }

    fn filter_bytes(&self) -> u64 {
        self.newest_first.iter().map(|generation| generation.filter_bytes()).sum()
    }
}

/// Segments that an install or a drop took out of the list: no new lookup finds them. Their zones may be erased; a
/// lookup that is under way may still read there. It begins again when it has found out.
#[derive(Default, Debug)]
pub(crate) struct Released {
    /// Segments of generations.
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// The address run that was replaced.
    pub(crate) address: Option<Arc<AddressRun>>,
}

/// The generations. Shared by all threads.
pub(crate) struct Generations {
    list: ArcSwap<List>,
    /// Held while the list is replaced: one change at a time.
    change: Mutex<()>,
    /// Memory that filters may take, bytes.
    filter_budget: u64,
    cache: Arc<PageCache>,
    /// Which items were read since the last merge.
    hits: ArcSwap<HitBits>,
    /// Whether something is not in the list any more that a restart would still find. Until its release is written
    /// down, any hash may be held.
    unreleased: AtomicBool,
    /// Extents below this sequence must go before the zone of a generation is erased: the marks that some of them are
    /// superseded were in chunks that are gone. 0: none must go.
    unmarked: AtomicU64,
    /// Whether a merge reads chunks of generations: then their zones must stay.
    is_collecting: AtomicBool,
    /// The share of the records of the log that supersede one in a generation, as the last merge has counted it, in
    /// [`SHARE_PARTS`].
    renewed: AtomicU32,
}

impl Generations {
    /// No generations yet. Filters may take `filter_budget` bytes, cached address pages `cache_bytes`; fences come on
    /// top.
    pub(crate) fn new(filter_budget: u64, cache_bytes: u64) -> Generations {
        Generations {
            list: ArcSwap::default(),
            change: Mutex::default(),
            filter_budget,
            cache: Arc::new(PageCache::new(cache_bytes)),
            hits: ArcSwap::from_pointee(HitBits::new(0)),
            unreleased: AtomicBool::new(false),
            unmarked: AtomicU64::new(0),
            is_collecting: AtomicBool::new(false),
            renewed: AtomicU32::new(0),
        }
    }

    /// Whether a merge reads chunks of generations: then no zone of a generation may be dropped.
    pub(crate) fn is_collecting(&self) -> bool {
        self.is_collecting.load(SeqCst)
    }

    /// A merge begins, or ends, to read chunks of generations. To be called under the releasing lock.
    pub(crate) fn set_collecting(&self, is_collecting: bool) {
        self.is_collecting.store(is_collecting, SeqCst);
    }

    /// The share of the records of the log that supersede one in a generation, from 0 to 1, about.
    pub(crate) fn renewed_share(&self) -> f64 {
        self.renewed.load(Relaxed) as f64 / SHARE_PARTS as f64
    }

    /// Notes what a merge has counted.
    pub(crate) fn note_counts(&self, counts: &AddressCounts) {
        if let Some(renewed) = counts.renewed {
            self.renewed.store(renewed, Relaxed);
        }
        for generation in &self.list.load().newest_first {
            if let Some((_, share)) =
                counts.superseded.iter().find(|(number, _)| *number == generation.number)
            {
                generation.superseded.store(*share, Relaxed);
            }
        }
    }

    /// Which items were read since the last merge.
    pub(crate) fn hits(&self) -> Arc<HitBits> {
        self.hits.load_full()
    }

    /// Forgets which items were read, and from now on keeps a bit for each of `items` items.
    pub(crate) fn reset_hits(&self, items: u64) {
        self.hits.store(Arc::new(HitBits::new(items)));
    }

    /// Notes that an item was read; says whether it was read before.
    pub(crate) fn mark_hit(&self, hash: u64) -> bool {
        let hits = self.hits.load();
        let warm = hits.is_hit(hash);
        hits.mark(hash);
        warm
    }

    /// Whether a restart would find something that is not in the list any more.
    pub(crate) fn has_unreleased(&self) -> bool {
        self.unreleased.load(SeqCst)
    }

    /// Something leaves the list. To be called before it does.
    pub(crate) fn begin_release(&self) {
        self.unreleased.store(true, SeqCst);
    }

    /// It is written down what is not in the list any more.
    pub(crate) fn end_release(&self) {
        self.unreleased.store(false, SeqCst);
    }

    /// Extents below this sequence must go before the zone of a generation is erased; 0: none must.
    pub(crate) fn unmarked_extents(&self) -> u64 {
        self.unmarked.load(SeqCst)
    }

    /// Extents below `sequence` must go before the zone of a generation is erased.
    pub(crate) fn raise_unmarked_extents(&self, sequence: u64) {
        self.unmarked.fetch_max(sequence, SeqCst);
    }

    /// Extents below `sequence` are gone. Unless more must go by now, none must any more.
    pub(crate) fn unmarked_extents_gone(&self, sequence: u64) {
        let _ = self.unmarked.compare_exchange(sequence, 0, SeqCst, SeqCst);
    }

    /// Chunks that went had marks that extents are superseded: those extents must go first.
    pub(crate) fn note_marks_gone(&self, gone: &Released) {
        let marks = gone.chunks.iter().filter(|chunk| chunk.supersedes_extents);
        self.raise_unmarked_extents(marks.map(|chunk| chunk.run.sequence + 1).max().unwrap_or(0));
    }

    /// The generations of this moment.
    pub(crate) fn list(&self) -> Arc<List> {
        self.list.load_full()
    }

    /// The figures of this moment. Looks at every chunk.
    pub(crate) fn stats(&self, now_unix_s: u32) -> GenerationsStats {
        let list = self.list.load();
        let mut stats = GenerationsStats {
            generations: list.newest_first.len() as u64,
            filter_bytes: list.filter_bytes(),
            cache_bytes: self.cache.bytes(),
            chunk_bytes: list.fence_bytes(),
            hits_bytes: self.hits.load().bytes() as u64,
            ..GenerationsStats::default()
        };
        for generation in &list.newest_first {
            let newest = 1.0 - generation.superseded_share().unwrap_or(0.0);
            for chunk in generation.chunks() {
                let unexpired = chunk.histogram.live_bytes(now_unix_s).min(chunk.record_bytes);
                let live = (unexpired as f64 * newest) as u64;
                stats.chunks += 1;
                stats.items += chunk.run.items as u64;
                stats.live_bytes += live;
                stats.dead_bytes += chunk.record_bytes - live;
            }
        }
        stats
    }

    /// Memory of filters, fences and all, and cached address pages, bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        let stats = self.stats(0);
        stats.filter_bytes + stats.chunk_bytes + stats.cache_bytes
    }

    /// Memory of the filters, bytes.
    #[cfg(test)]
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.stats(0).filter_bytes
    }

    /// What the next merge, of about `items` records, is to write. With `collects`, it collects garbage of generations
    /// and needs the address run for that.
    pub(crate) fn wanted(&self, items: u64, collects: bool) -> MergeOutputs {
        let list = self.list.load();
        let budget = self.filter_budget;
        // 12 bits an item, more than filters of small chunks take: with too low an estimate generations would be
        // dropped.
        let coming = items + items / 2;
        MergeOutputs {
            filter: coming <= budget,
            address: collects || list.has_unfiltered() || list.filter_bytes() + coming > budget,
        }
    }

    /// Whether some generation may hold the hash. The answer is yes if some generation has no filter, and no if all
    /// are below `floor`.
    pub(crate) fn may_hold(&self, hash: u64, floor: u64) -> bool {
        let list = self.list.load();
        list.newest_first.first().is_some_and(|newest| newest.number >= floor)
            && (list.has_unfiltered() || list.filters_may_hold(hash))
    }

    /// Loads what searches for these hashes look at first: what the filters say of all of them, and then the fences of
    /// the newest generation that has each. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) -> u64 {
        let list = self.list.load();
        if list.newest_first.is_empty() {
            return 0;
        }
        let mut says = [0; TOUCHED_MAX];
        says.iter_mut().zip(hashes.clone()).for_each(|(says, hash)| *says = list.filters_say(hash));
        let fences = says.iter().zip(hashes).map(|(says, hash)| {
            let newest = list.newest_first.get(says.trailing_zeros() as usize);
            newest.map_or(0, |newest| newest.touch_fences(hash))
        });
        fences.fold(0, |seen, fence| seen ^ fence)
    }

    /// Begins to look for a hash. Generations below `floor` do not count.
    #[inline]
    pub(crate) fn search(&self, hash: u64, floor: u64) -> Search {
        let list = self.list.load();
        let says = list.filters_say(hash);
        let unfiltered = list.unfiltered;
        // Most lookups end here, where no filter says yes and all have one: then the list is not kept.
        let list = (says | unfiltered != 0).then(|| arc_swap::Guard::into_inner(list));
        let cache = (unfiltered != 0).then(|| self.cache.clone());
        Search { hash, floor, list, left: says, cache }
    }

    /// Shows a generation as the newest.
    ///
    /// `voids` are ranges of hashes in which the merge met damaged pages. Those pages may have held newer versions than
    /// older generations do, so chunks of older generations with such hashes go. With a chunk goes all that is in its
    /// zone, so that the zone can be released and no later start finds the chunk again. What such a chunk may have
    /// hidden in still older generations goes as well. Generations also go if their filters exceed the budget and the
    /// address run does not cover them, and if there are more than [`GENERATIONS_MAX`].
    ///
    /// The chunks in the zones `collected` were merged into the new generation.
    pub(crate) fn install(
        &self,
        generation: Option<Generation>,
        address: Option<AddressRun>,
        voids: &[RangeInclusive<u64>],
        collected: &HashSet<ZoneId>,
    ) -> Released {
        let _change = self.lock();
        let old = self.list.load_full();
        let mut released = Released::default();
        let mut generations: Vec<Arc<Generation>> =
            generation.into_iter().filter(|found| !found.chunks.is_empty()).map(Arc::new).collect();
        let gaps = voids.iter().map(|void| Gap::new(void, u64::MAX)).collect();
        generations.extend(without_gaps(&old.without(collected).newest_first, gaps, &mut released));
        if address.is_some() {
            released.address = old.address.clone();
        }
        let address = address.map(Arc::new).or_else(|| old.address.clone());
        self.replace(generations, address, released)
    }

    /// Shows the generations of an earlier run, given in any order. Chunks in the gaps of the address run go: if the
    /// merge that wrote the run was not installed before a crash, they are still there.
    pub(crate) fn restore(&self, mut generations: Vec<Generation>, address: Option<AddressRun>) -> Released {
        let _change = self.lock();
        generations.sort_unstable_by_key(|generation| std::cmp::Reverse(generation.number));
        let generations: Vec<_> = generations.into_iter().map(Arc::new).collect();
        let gaps = address.as_ref().map_or_else(Vec::new, |run| run.gaps().to_vec());
        let mut released = Released::default();
        let generations = without_gaps(&generations, gaps, &mut released);
        self.replace(generations, address.map(Arc::new), released)
    }

    /// Shows generations, newest first, as far as they fit the budget.
    fn replace(
        &self,
        generations: Vec<Arc<Generation>>,
        mut address: Option<Arc<AddressRun>>,
        mut released: Released,
    ) -> Released {
        let mut budget = self.filter_budget;
        let mut kept: Vec<Arc<Generation>> = Vec::new();
        let mut ended = false;
        // One of which nothing is left has no filter either, and hides nothing.
        for generation in generations.into_iter().filter(|generation| !generation.chunks.is_empty()) {
            let bytes = generation.filter_bytes();
            let covered = address.as_ref().is_some_and(|run| run.covers(generation.number));
            ended |= kept.len() == GENERATIONS_MAX;
            if ended || (!covered && (!generation.has_filters() || bytes > budget)) {
                // All older ones go too: the dropped one may hide versions in them.
                ended = true;
                released.chunks.extend(generation.chunks.iter().cloned());
            } else if bytes <= budget && generation.has_filters() {
                budget -= bytes;
                kept.push(generation);
            } else {
                budget = 0;
                kept.push(Arc::new(generation.without_filters()));
            }
        }
        // The run of a merge that collects garbage covers generations with filters, too. The next such merge needs it.
        let is_fresh = |run: &Arc<AddressRun>| kept.first().is_some_and(|newest| run.covers(newest.number));
        if kept.iter().all(|generation| generation.has_filters()) && !address.as_ref().is_some_and(is_fresh) {
            released.address = released.address.or(address.take());
        }
        self.list.store(Arc::new(List::new(kept, address)));
        released
    }

    /// The zone that is dropped first when space is needed: the one with the lowest hashes of the oldest generation.
    /// The end of a generation, with the mark that it is complete, goes last.
    pub(crate) fn oldest_zone(&self) -> Option<ZoneId> {
        Some(self.list.load().newest_first.last()?.chunks.first()?.run.zone)
    }

    /// The zones of all chunks, in the order in which they are collected: from the oldest generation, in order of hash.
    /// Each with the share of its bytes that is garbage; `None` while that is not known. At most `max` zones, if there
    /// are more.
    pub(crate) fn zones_to_collect(&self, now_unix_s: u32, max: usize) -> Vec<(ZoneId, Option<f64>)> {
        let list = self.list.load();
        let mut zones: Vec<(ZoneId, Option<f64>)> = Vec::new();
        for generation in list.newest_first.iter().rev() {
            let superseded = generation.superseded_share();
            let of_zone = |chunk: &Arc<Chunk>| chunk.run.zone;
            let zones_left = max.saturating_sub(zones.len());
            let of_zones = generation.chunks.chunk_by(|one, other| of_zone(one) == of_zone(other));
            for chunks in of_zones.take(zones_left) {
                let all: u64 = chunks.iter().map(|chunk| chunk.record_bytes).sum();
                let live: u64 = chunks.iter().map(|chunk| chunk.histogram.live_bytes(now_unix_s)).sum();
                let unexpired = live.min(all) as f64 / all.max(1) as f64;
                let garbage = match superseded {
                    Some(superseded) => Some(1.0 - unexpired * (1.0 - superseded)),
                    None => (unexpired < 0.5).then_some(1.0 - unexpired),
                };
                zones.extend(chunks.first().map(|chunk| (chunk.run.zone, garbage)));
            }
        }
        zones
    }

    /// Drops the chunks in a zone. The caller erases the zone afterwards, and syncs the device before another merge is
    /// installed: a merge drops tombstones that hide nothing any more, so what they hid here must not come back after
    /// that.
    pub(crate) fn drop_zone(&self, zone: ZoneId) -> Released {
        self.drop_chunks(|chunk| chunk.run.zone == zone)
    }

    /// Drops all generations.
    pub(crate) fn drop_all(&self) -> Released {
        self.drop_chunks(|_| true)
    }

    fn drop_chunks(&self, goes: impl Fn(&Chunk) -> bool) -> Released {
        let _change = self.lock();
        let old = self.list.load_full();
        let mut released = Released::default();
        let mut generations = Vec::new();
        for generation in &old.newest_first {
            let (kept, gone) = generation.without(|chunk, _| goes(chunk));
            generations.push(if gone.is_empty() { generation.clone() } else { Arc::new(kept) });
            released.chunks.extend(gone);
        }
        self.replace(generations, old.address.clone(), released)
    }

    /// Whether lookups still find the chunk that pages are in. Its zone is not erased before they do not.
    pub(crate) fn has_chunk(&self, place: &DataPages) -> bool {
        let list = self.list.load();
        list.position(place.generation).is_some_and(|n| {
            list.newest_first[n].chunks.iter().any(|chunk| chunk.run.sequence == place.sequence)
        })
    }

    /// The same of the segment of the address run that address pages are in.
    pub(crate) fn has_addresses(&self, place: &AddressPages) -> bool {
        self.list.load().address().is_some_and(|run| run.has_segment(place.sequence))
    }

    /// Caches an address page that was read and is valid.
    pub(crate) fn keep_page(&self, from: AddressPages, payload: &[u8]) {
        self.cache.put(from.key(), payload);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.change.lock().expect("no panic under this lock")
    }
}

/// Generations, newest first, without their chunks in gaps, which go to `released`. With a chunk goes all that is in
/// its zone, and what these chunks may have hidden in still older generations.
fn without_gaps(
    newest_first: &[Arc<Generation>],
    mut gaps: Vec<Gap>,
    released: &mut Released,
) -> Vec<Arc<Generation>> {
    let without = |generation: &Arc<Generation>| {
        let is_in =
            |chunk: &&Arc<Chunk>| gaps.iter().any(|gap| generation.number < gap.below && chunk.is_in(gap));
        let zones: HashSet<ZoneId> =
            generation.chunks().iter().filter(is_in).map(|chunk| chunk.run.zone).collect();
        let (kept, gone) = generation.without(|chunk, _| zones.contains(&chunk.run.zone));
        gaps.extend(gone.iter().map(|chunk| chunk.gap(generation.number)));
        let kept = if gone.is_empty() { generation.clone() } else { Arc::new(kept) };
        released.chunks.extend(gone);
        kept
    };
    newest_first.iter().map(without).collect()
}

/// The figures of all generations together.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct GenerationsStats {
    /// Generations.
    pub(crate) generations: u64,
    /// Segments of generations.
    pub(crate) chunks: u64,
    /// Records, tombstones included.
    pub(crate) items: u64,
    /// Estimated length of records that have not expired, bytes.
    pub(crate) live_bytes: u64,
    /// Length of the other records, bytes.
    pub(crate) dead_bytes: u64,
    /// Memory of filters, bytes.
    pub(crate) filter_bytes: u64,
    /// Memory of the cache of address pages, bytes.
    pub(crate) cache_bytes: u64,
    /// Memory of fences and everything else that is kept of chunks, bytes.
    pub(crate) chunk_bytes: u64,
    /// Memory of the bits that say which items were read, bytes.
    pub(crate) hits_bytes: u64,
}

/// What a merge writes beside its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MergeOutputs {
    /// Filters of its chunks, because they fit into the budget.
    pub(crate) filter: bool,
    /// An address run, because not all filters fit, or because the merge collects.
    pub(crate) address: bool,
}

/// The next step of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Read these pages: the record may be in them.
    Data(DataPages),
    /// Read this address page, and hand it to [`Search::address_page`]. A read of data follows, so two reads must be
    /// left.
    Address(AddressPages),
    /// No generation has the hash.
    Nowhere,
}

/// A search for one hash, step by step. It owns the list that it looks through, so it may wait for reads in between.
pub(crate) struct Search {
    hash: u64,
    floor: u64,
    list: Option<Arc<List>>,
    /// Bit `n`: generation `n` is still to be read.
    left: u32,
    /// Set while the address run was not asked yet.
    cache: Option<Arc<PageCache>>,
}

impl Search {
    /// The next step: the newest generations come first. If the record is not in the pages, the caller asks again.
    pub(crate) fn next(&mut self) -> Next {
        let Some(list) = &self.list else { return Next::Nowhere };
        while self.left != 0 {
            let generation = self.left.trailing_zeros();
            self.left &= self.left - 1;
            if list.newest_first[generation as usize].number < self.floor {
                // So are all that come after it.
                self.left = 0;
                return Next::Nowhere;
            }
            if let Some(found) = list.newest_first[generation as usize].pages_of(self.hash) {
                return Next::Data(found);
            }
        }
        // Generations with filters are newer than all without, so they were asked first.
        let Some(cache) = self.cache.take() else { return Next::Nowhere };
        let Some(found) = list.address.as_ref().and_then(|run| run.page(self.hash)) else {
            return Next::Nowhere;
        };
        if found.pages == 1
            && let Some(page) = cache.get(found.key())
        {
            self.address_payload(&page);
            return self.next();
        }
        Next::Address(found)
    }

    /// Takes the payload of address pages that were read and whose checksums fit. `false` if they are not address pages
    /// all the same; then the search ends. The caller may cache the page: see [`Generations::keep_page`].
    pub(crate) fn address_page(&mut self, payload: &[u8]) -> bool {
        self.address_payload(payload)
    }

    fn address_payload(&mut self, payload: &[u8]) -> bool {
        let Some(list) = &self.list else { return false };
        let mut left = 0;
        let whole = crate::address::entries_of(payload, self.hash, |number| {
            left |= list.position(number).map_or(0, |n| 1 << n);
        });
        if whole {
            self.left = left & list.unfiltered;
        }
        whole
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
