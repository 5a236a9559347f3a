//! Generations: what was merged out of the log, each a row of segments (chunks) in order of hash, newest generation first.
//!
//! A generation holds at most one version of a key, and every version in it is older than the log and newer than
//! every older generation. A lookup asks the filters of all generations at once, and then reads, newest first, where a filter
//! said yes. Generations whose filters do not fit into memory are found through the address run (see `address`).

use crate::address::{AddressRun, PageCache, PageWhere};
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::filter::Filter;
use crate::segment::{Run, SegmentFacts};
use arc_swap::ArcSwap;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Generations there may be at a time; an install beyond drops the oldest.
pub(crate) const GENERATIONS_MAX: usize = 24;

/// One segment of a generation.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Its data pages.
    pub(crate) run: Run,
    /// No record in it has a lower hash.
    pub(crate) first_hash: u64,
    /// Bytes of all records.
    pub(crate) record_bytes: u64,
    /// Whether some record of it says that an extent is superseded: extents older than that must be gone before it.
    pub(crate) supersedes_extents: bool,
    /// When its bytes expire.
    pub(crate) histogram: ExpiryHistogram,
    fences: Fences,
}

impl Chunk {
    fn of(facts: SegmentFacts) -> (Chunk, Option<Arc<Filter>>) {
        let chunk = Chunk {
            run: Run::of(&facts),
            first_hash: facts.head.first_hash,
            record_bytes: facts.record_bytes,
            supersedes_extents: !facts.superseded_extents.is_empty(),
            histogram: facts.histogram,
            fences: facts.fences,
        };
        (chunk, facts.filter.map(Arc::new))
    }

    fn bytes(&self) -> usize {
        size_of::<Chunk>() - size_of::<Fences>() + self.fences.bytes()
    }
}

/// Where to look for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Where {
    /// The generation.
    pub(crate) generation: u64,
    /// The zone, and the first page in it to read.
    pub(crate) zone: ZoneId,
    /// See `zone`.
    pub(crate) page: u32,
    /// Pages to read: the record begins in one of them and ends in one of them. 2, hardly ever more.
    pub(crate) pages: u32,
    /// Sequence of the segment: what [`crate::page::compact`] checks.
    pub(crate) sequence: u64,
    /// What the record's CAS number counts from.
    pub(crate) cas_base: u64,
}

/// A generation. Never changes; one with fewer chunks or without filters is another one in its place.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    number: u64,
    /// In order of hash; `starts` has their first hashes, `filters` their filters, or nothing.
    chunks: Box<[Arc<Chunk>]>,
    starts: Box<[u64]>,
    filters: Box<[Arc<Filter>]>,
}

impl Generation {
    /// Of segments as a merge has written them or a restart has found them, those without records (the mark that a merge
    /// came to its end) included; `None` if that mark is missing: then it never was a generation, and the log
    /// segments it was made of are still there. Segments of its beginning may be missing: they were dropped.
    pub(crate) fn of(segments: Vec<SegmentFacts>) -> Option<Generation> {
        let number = segments.first()?.head.generation;
        let (mark, mut segments): (Vec<_>, Vec<_>) = segments.into_iter().partition(|facts| facts.items == 0);
        if mark.is_empty() || segments.iter().any(|facts| facts.head.generation != number) {
            return None;
        }
        segments.sort_unstable_by_key(|facts| facts.head.first_hash);
        let (chunks, filters): (Vec<_>, Vec<_>) = segments.into_iter().map(Chunk::of).unzip();
        let filters = filters.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
        Some(Generation::from_parts(number, chunks.into_iter().map(Arc::new).collect(), filters))
    }

    fn from_parts(number: u64, chunks: Vec<Arc<Chunk>>, filters: Vec<Arc<Filter>>) -> Generation {
        let starts = chunks.iter().map(|chunk| chunk.first_hash).collect();
        Generation { number, chunks: chunks.into(), starts, filters: filters.into() }
    }

    /// What it is called: the sequence of its first segment. A newer one has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its segments, in order of hash.
    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// Records, tombstones included.
    pub(crate) fn items(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.run.items as u64).sum()
    }

    /// Whether it is found through filters.
    pub(crate) fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Bytes of memory of its filters.
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.filters.iter().map(|filter| filter.bytes() as u64 + 8).sum()
    }

    /// Bytes of memory of everything else.
    pub(crate) fn fence_bytes(&self) -> u64 {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.bytes() + 16 + 8).sum();
        (size_of::<Generation>() + chunks) as u64
    }

    /// The chunk that holds a hash if any does.
    #[inline]
    fn chunk(&self, hash: u64) -> Option<usize> {
        // Hashes are spread evenly, so this is it but for those near the border between chunks; and it is a comparison that
        // the processor guesses right, unlike those of a search, so that it goes on to the next generation meanwhile.
        let likely = ((hash as u128 * self.starts.len() as u128) >> 64) as usize;
        let end = self.starts.get(likely + 1);
        if self.starts.get(likely).is_some_and(|start| *start <= hash) && end.is_none_or(|end| hash < *end) {
            return Some(likely);
        }
        self.starts.partition_point(|start| *start <= hash).checked_sub(1)
    }

    /// Whether a filter says that it may hold the hash. No branch depends on what a filter has in memory.
    #[inline]
    fn filter_says(&self, hash: u64) -> bool {
        self.chunk(hash)
            .is_some_and(|chunk| self.filters.get(chunk).is_some_and(|filter| filter.may_contain(hash)))
    }

    /// Where a record of the hash is, if it is in this generation.
    fn place(&self, hash: u64) -> Option<Where> {
        let chunk = &self.chunks[self.chunk(hash)?];
        let found = chunk.fences.page(hash);
        (found.count > 0).then_some(Where {
            generation: self.number,
            zone: chunk.run.zone,
            page: chunk.run.first_data_page + found.first,
            pages: found.count,
            sequence: chunk.run.sequence,
            cas_base: chunk.run.cas_base,
        })
    }

    fn without_filters(&self) -> Generation {
        Generation { filters: Box::default(), ..self.clone() }
    }

    /// Without the chunks that `goes` says yes to; gives them as well.
    fn without(&self, mut goes: impl FnMut(&Chunk, u64) -> bool) -> (Generation, Vec<Arc<Chunk>>) {
        let (mut gone, mut kept, mut filters) = (Vec::new(), Vec::new(), Vec::new());
        for (index, chunk) in self.chunks.iter().enumerate() {
            let end = self.starts.get(index + 1).map_or(u64::MAX, |next| next.saturating_sub(1));
            if goes(chunk, end) {
                gone.push(chunk.clone());
            } else {
                kept.push(chunk.clone());
                filters.extend(self.filters.get(index).cloned());
            }
        }
        (Generation::from_parts(self.number, kept, filters), gone)
    }
}

/// All generations at one moment.
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

    /// The generations, newest first.
    pub(crate) fn newest_first(&self) -> &[Arc<Generation>] {
        &self.newest_first
    }

    /// The run that says which of them holds what, if there is one.
    pub(crate) fn address(&self) -> Option<&Arc<AddressRun>> {
        self.address.as_ref()
    }

    /// Bit `n` is set where the filter of generation `n` says yes. All filters are asked before any answer is looked at, so
    /// that the processor waits for all their memory at once.
    #[inline]
    fn filters_say(&self, hash: u64) -> u32 {
        let generations = self.newest_first.iter().enumerate();
        generations.fold(0, |bits, (n, generation)| bits | (generation.filter_says(hash) as u32) << n)
    }

    /// Whether a filter says that a generation may hold the hash. Those without a filter are not asked.
    pub(crate) fn filters_may_hold(&self, hash: u64) -> bool {
        self.filters_say(hash) != 0
    }

    /// Whether there is a generation without a filter.
    pub(crate) fn has_unfiltered(&self) -> bool {
        self.unfiltered != 0
    }

    /// Whether this generation is there, and has no filter.
    pub(crate) fn is_unfiltered(&self, number: u64) -> bool {
        self.position(number).is_some_and(|n| self.unfiltered >> n & 1 == 1)
    }

    /// Where in the list a generation is.
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

/// What became of an install or a drop: segments that nobody finds any more. Their zones may be erased; lookups under way may
/// still read there and find pages of another epoch.
#[derive(Default, Debug)]
pub(crate) struct Released {
    /// Segments of generations.
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// The address run that was replaced.
    pub(crate) address: Option<Arc<AddressRun>>,
}

/// The generations, as all threads see them. Lookups take no lock.
pub(crate) struct Generations {
    list: ArcSwap<List>,
    /// Held while the list is replaced.
    change: Mutex<()>,
    /// Bytes that filters may take.
    filter_budget: AtomicU64,
    cache: Arc<PageCache>,
}

impl Generations {
    /// None yet. `filter_budget` is for filters, `cache_bytes` for address pages; fences come on top: see
    /// [`Generations::bytes`].
    pub(crate) fn new(filter_budget: u64, cache_bytes: u64) -> Generations {
        Generations {
            list: ArcSwap::default(),
            change: Mutex::default(),
            filter_budget: AtomicU64::new(filter_budget),
            cache: Arc::new(PageCache::new(cache_bytes)),
        }
    }

    /// The generations of this moment: for a merge, and for what is shown.
    pub(crate) fn list(&self) -> Arc<List> {
        self.list.load_full()
    }

    /// Bytes of memory: filters, fences and all, cached address pages.
    pub(crate) fn bytes(&self) -> u64 {
        let list = self.list.load();
        list.filter_bytes() + list.fence_bytes() + self.cache.bytes()
    }

    /// Bytes of the cache of address pages among them.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Bytes of the filters among them.
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.list.load().filter_bytes()
    }

    /// What the next merge of about so many records is to make: filters for its chunks, an address run.
    pub(crate) fn wanted(&self, items: u64) -> Wanted {
        let list = self.list.load();
        let budget = self.filter_budget.load(Relaxed);
        // More than filters of small chunks take: too little would cost generations their place.
        let coming = items + items / 2;
        Wanted {
            filter: coming <= budget,
            address: list.has_unfiltered() || list.filter_bytes() + coming > budget,
        }
    }

    /// Whether some generation may hold the hash. Without filters for all, the answer is yes.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let list = self.list.load();
        list.has_unfiltered() || list.filters_may_hold(hash)
    }

    /// Looks for a hash.
    #[inline]
    pub(crate) fn search(&self, hash: u64) -> Search {
        let list = self.list.load();
        let says = list.filters_say(hash);
        let unfiltered = list.unfiltered;
        // Where no filter says yes and all have one, which is what most lookups find, nothing is kept.
        let list = (says | unfiltered != 0).then(|| arc_swap::Guard::into_inner(list));
        let cache = (unfiltered != 0).then(|| self.cache.clone());
        Search { hash, list, left: says, cache }
    }

    /// The newest generation from now on. `voids` are ranges of hashes of which a damaged page may have held newer
    /// versions than older generations do: those chunks go, with all that is in their zones, so that these can be released and no
    /// later start finds the chunks again; and with each what is still older of all the hashes that it may
    /// have held, since it may have hidden that. Whatever has neither a filter within the budget nor a place in
    /// the address run goes as well, and the oldest beyond [`GENERATIONS_MAX`].
    pub(crate) fn install(
        &self,
        generation: Option<Generation>,
        address: Option<AddressRun>,
        voids: &[RangeInclusive<u64>],
    ) -> Released {
        let _change = self.lock();
        let old = self.list.load_full();
        let mut released = Released::default();
        let mut generations: Vec<Arc<Generation>> =
            generation.into_iter().filter(|found| !found.chunks.is_empty()).map(Arc::new).collect();
        let mut voids = voids.to_vec();
        for older in &old.newest_first {
            let (mut zones, mut widened) = (HashSet::new(), Vec::new());
            older.without(|chunk, end| {
                if voids.iter().any(|void| *void.start() <= end && *void.end() >= chunk.first_hash) {
                    zones.insert(chunk.run.zone);
                }
                false
            });
            let (kept, gone) = older.without(|chunk, end| {
                let goes = zones.contains(&chunk.run.zone);
                widened.extend(goes.then_some(chunk.first_hash..=end));
                goes
            });
            voids.append(&mut widened);
            generations.push(if gone.is_empty() { older.clone() } else { Arc::new(kept) });
            released.chunks.extend(gone);
        }
        if address.is_some() {
            released.address = old.address.clone();
        }
        let address = address.map(Arc::new).or_else(|| old.address.clone());
        self.replace(generations, address, released)
    }

    /// Puts generations of an earlier run in place, in any order.
    pub(crate) fn restore(&self, mut generations: Vec<Generation>, address: Option<AddressRun>) -> Released {
        let _change = self.lock();
        generations.sort_unstable_by_key(|generation| std::cmp::Reverse(generation.number));
        let generations = generations.into_iter().map(Arc::new).collect();
        self.replace(generations, address.map(Arc::new), Released::default())
    }

    /// Makes the generations fit the budget, and shows them.
    fn replace(
        &self,
        generations: Vec<Arc<Generation>>,
        mut address: Option<Arc<AddressRun>>,
        mut released: Released,
    ) -> Released {
        let mut budget = self.filter_budget.load(Relaxed);
        let mut kept: Vec<Arc<Generation>> = Vec::new();
        let mut ended = false;
        for generation in generations {
            let bytes = generation.filter_bytes();
            let covered = address.as_ref().is_some_and(|run| run.covers(generation.number));
            ended |= kept.len() == GENERATIONS_MAX;
            if ended || (!covered && (!generation.has_filters() || bytes > budget)) {
                // What is older than a dropped one goes too: nothing may be found behind a gap.
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
        kept.retain(|generation| !generation.chunks.is_empty());
        if kept.iter().all(|generation| generation.has_filters()) {
            released.address = released.address.or(address.take());
        }
        self.list.store(Arc::new(List::new(kept, address)));
        released
    }

    /// The zone that goes first when space is needed: the one with the lowest hashes of the oldest generation (the end of a
    /// generation, with the mark that it is whole, goes last).
    pub(crate) fn oldest_zone(&self) -> Option<ZoneId> {
        Some(self.list.load().newest_first.last()?.chunks.first()?.run.zone)
    }

    /// Forgets whatever the generations have in a zone. The caller erases it afterwards, and syncs the device before another
    /// merge is installed: a merge drops tombstones that hide nothing any more, and nothing of this may come back then.
    pub(crate) fn drop_zone(&self, zone: ZoneId) -> Released {
        self.drop_chunks(|chunk| chunk.run.zone == zone)
    }

    /// Forgets everything.
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

    /// Keeps an address page that was read and made sense, if there is memory for it.
    pub(crate) fn keep_page(&self, from: PageWhere, payload: &[u8]) {
        self.cache.put(from.key(), payload);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.change.lock().expect("no panic under this lock")
    }
}

/// What a merge is to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// Filters of its chunks, since they fit into the budget.
    pub(crate) filter: bool,
    /// An address run, since not all filters do.
    pub(crate) address: bool,
}

/// What to read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The record may be there.
    Data(Where),
    /// An address page, to be handed to [`Search::address_page`]. A read of data follows: without two reads left it is no use.
    Address(PageWhere),
    /// It is nowhere.
    Nowhere,
}

/// A lookup, step by step. Owns what it looks through, so it may wait for reads as long as it likes.
pub(crate) struct Search {
    hash: u64,
    list: Option<Arc<List>>,
    /// Generations that are still to be read.
    left: u32,
    /// Set while the address run is still to be asked.
    cache: Option<Arc<PageCache>>,
}

impl Search {
    /// What to read next: the newest generation first. Not finding it there, the caller asks again.
    pub(crate) fn next(&mut self) -> Next {
        let Some(list) = &self.list else { return Next::Nowhere };
        while self.left != 0 {
            let generation = self.left.trailing_zeros();
            self.left &= self.left - 1;
            if let Some(found) = list.newest_first[generation as usize].place(self.hash) {
                return Next::Data(found);
            }
        }
        // Generations with filters are newer than all without: those were asked first.
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

    /// Takes the payload of address pages that were read and found to be right; `false` if they make no sense, and then the
    /// lookup is at its end. The caller may keep the page: see [`Generations::keep_page`].
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

/// Generations with items that do not exist, for the benchmark: `chunks` chunks of `items` hashes each, the `n`th of all being
/// that of item `n`. What comes back says how many generations would be read for a hash.
#[doc(hidden)]
pub fn generations(generations: u64, chunks: u64, items: u64) -> impl Fn(u64) -> u32 {
    let hash = |n: u64| {
        let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    };
    let shown = Generations::new(u64::MAX, 0);
    for generation in 0..generations {
        let first = generation * chunks * items;
        let mut hashes: Vec<u64> = (first..first + chunks * items).map(hash).collect();
        hashes.sort_unstable();
        let (mut row, mut filters) = (Vec::new(), Vec::new());
        for (n, hashes) in hashes.chunks(items as usize).enumerate() {
            let mut fences = crate::fence::FenceBuilder::new();
            hashes.iter().enumerate().for_each(|(at, hash)| fences.push((at * 108 / 4080) as u32, *hash));
            let data_pages = (items * 108).div_ceil(4080) as u32;
            let run = Run {
                zone: ZoneId(n as u32),
                sequence: generation + 1,
                cas_base: 0,
                first_data_page: 1,
                data_pages,
                items: items as u32,
            };
            row.push(Arc::new(Chunk {
                run,
                first_hash: if n == 0 { 0 } else { hashes[0] },
                record_bytes: items * 108,
                supersedes_extents: false,
                histogram: ExpiryHistogram::new(0),
                fences: fences.finish(data_pages),
            }));
            filters.push(Arc::new(Filter::build(hashes)));
        }
        shown.install(Some(Generation::from_parts(generation + 1, row, filters)), None, &[]);
    }
    move |hash| {
        let mut search = shown.search(hash);
        let mut reads = 0;
        while search.next() != Next::Nowhere {
            reads += 1;
        }
        reads
    }
}
