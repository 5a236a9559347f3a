//! Hitmaps: the one file of this crate that knows of them, and of the devices that they can be kept on.
//!
//! A hitmap counts the reads of keys in levels of bits (`crates/temperature`). Two policies use one: [`Sweep`] with the
//! hitmap as its [`WarmthRecord`] (`hitmap`), and [`Published`] (`hitmap-published`).
//!
//! # Catalyst's policy as published (section 3.2 of the paper), applied to columns
//!
//! With each batch of references the policy samples as many random items and looks up their zones. A column's rank in
//! the victim pool is the mean zone of the items sampled from it, and the coldest column goes first. When a column
//! goes, its items are looked up once more, and those in zone 0 are evicted. Where a column holds one item, this is the
//! paper's pool of items. The paper leaves two things open: how large the pool is (here as many columns as items were
//! sampled for one batch, 16 at least), and in which order items of one zone leave (here the first sampled first). When
//! fewer than 5 % of the sampled items are in zone 0, the hitmap is compacted. `docs/evidence/catalyst.md` says what
//! each of these numbers is worth.

use super::column_queue::LOOK_AHEAD_COLUMNS;
use super::keep_limit::keep_within;
use super::policy::{Judged, Queue, Resident, Residents, Temperature, TemperatureStats, Verdict};
use super::sweep::Sweep;
use super::warmth_record::{COLUMNS_AHEAD, UNKNOWN_LEVEL, WarmthRecord, look_ahead};
use crate::ranking::{Candidate, CheapestSparse, Sparse};
use larder_allocation::ColumnBounds;
use larder_cuda::{CudaHitmap, Layout, MemoryMode};
use larder_item::KeyHash;
use larder_memory::ColumnId;
use larder_temperature::{
    Answers, Arm, Digest, Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference, ResilientHitmap,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

/// The name of the policy with one-line hitmaps.
pub(super) const LINE: &str = "hitmap";
/// The name of Catalyst's policy, with its hitmap.
pub(super) const PUBLISHED: &str = "hitmap-published";

/// The sweep, with a hitmap that has all levels of a key in one cache line.
pub(super) fn line(device: Device) -> Box<dyn Temperature> {
    let maker = HitmapMaker::line().on(device, Layout::Line);
    Box::new(Sweep::by_record(Box::new(LazyHitmap::new(maker)), &ARMS))
}

/// Catalyst's hitmap, and its choice of victims.
pub(super) fn published(device: Device) -> Box<dyn Temperature> {
    let options = PublishedOptions::default();
    Box::new(Published::new(HitmapMaker::published(options).on(device, Layout::Published(options))))
}

/// The arms with a hitmap. Its zones are not counts of reads since an item came, so only the share varies.
const ARMS: [Arm; 3] = [Arm::of_share(0.1), Arm::of_share(0.4), Arm::of_share(0.8)];

/// References of a batch for a device, if nothing else is said: each page of the workers by itself. With more, nothing
/// waits for the device. (The paper has about 10,000, section 4.2.)
const BATCH_REFERENCES: u32 = 1024;
/// Digests whose zones are remembered for a column that goes, twice; and columns that were asked for lately.
const ZONES_REMEMBERED: usize = 1 << 16;
const COLUMNS_REMEMBERED: usize = 256;

/// Which processor keeps a hitmap (`--device`, `--device-managed-memory`, `--device-batch`). The default is the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// The number of a CUDA device, from 0 on. `None`: the keeper's thread does the work. It does so too where there is
    /// no such device, or when the device fails.
    cuda: Option<u32>,
    has_managed_memory: bool,
    batch_references: u32,
}

impl Default for Device {
    fn default() -> Device {
        Device { cuda: None, has_managed_memory: false, batch_references: BATCH_REFERENCES }
    }
}

impl Device {
    /// Chooses the processor by name: `cpu`, `cuda` or `cuda:N`.
    ///
    /// # Errors
    /// The name means no processor.
    pub fn choose(&mut self, name: &str) -> Result<(), String> {
        self.cuda = match name.split_once(':') {
            None if name == "cpu" => None,
            None if name == "cuda" => Some(0),
            Some(("cuda", number)) if let Ok(number) = number.parse() => Some(number),
            _ => return Err("expected cpu, cuda or cuda:N".to_owned()),
        };
        Ok(())
    }

    /// Chooses the processor that `other` is.
    pub fn choose_as(&mut self, other: Device) {
        self.cuda = other.cuda;
    }

    /// Whether it is another processor than the CPU.
    pub fn is_apart(self) -> bool {
        self.cuda.is_some()
    }

    /// Whether a hitmap on a CUDA device lies in managed memory, which the driver moves between device and host.
    pub fn has_managed_memory(self) -> bool {
        self.has_managed_memory
    }

    /// References that a CUDA device is handed together, at least.
    pub fn batch_references(self) -> u32 {
        self.batch_references
    }

    /// Hands a CUDA device this number of references together.
    ///
    /// # Errors
    /// It is 0, or above a million.
    pub fn set_batch_references(&mut self, references: u32) -> Result<(), String> {
        if !(1..=1_000_000).contains(&references) {
            return Err("expected 1 to 1000000 references".to_owned());
        }
        self.batch_references = references;
        Ok(())
    }

    /// Asks for managed memory, or not.
    pub fn set_managed_memory(&mut self, on: bool) {
        self.has_managed_memory = on;
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cuda {
            None => f.write_str("cpu"),
            Some(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Makes a hitmap once the number of items is known.
pub struct HitmapMaker {
    /// Makes a hitmap for this number of items.
    pub make: Box<dyn Fn(u64) -> Box<dyn Hitmap> + Send>,
    /// Bytes of main memory that a hitmap for this number of items takes.
    pub bytes_for: Box<dyn Fn(u64) -> u64 + Send>,
    /// References that the hitmap is handed together, at least.
    pub batch_references: usize,
    /// Whether a hitmap that is apart is asked ahead and never waited for.
    pub asks_ahead: bool,
}

impl HitmapMaker {
    /// Makes one-line hitmaps on the CPU.
    pub fn line() -> HitmapMaker {
        HitmapMaker {
            make: Box::new(|items| Box::new(LineHitmap::for_items(items))),
            bytes_for: Box::new(LineHitmap::bytes_for_items),
            batch_references: 0,
            asks_ahead: false,
        }
    }

    /// Makes Catalyst's hitmaps on the CPU.
    pub fn published(options: PublishedOptions) -> HitmapMaker {
        HitmapMaker {
            make: Box::new(move |items| Box::new(PublishedHitmap::for_items(items, options))),
            bytes_for: Box::new(move |items| options.bytes_for(items)),
            batch_references: 0,
            asks_ahead: false,
        }
    }

    /// Makes the same maps on a device, or on the CPU if there is no device. A small map is made on the device now, so
    /// that the log says at the start whether the device works. A map in the memory of a device takes nothing of `-m`.
    /// If the device fails later, the map comes to main memory at once, and the keeper gives columns back for it: until
    /// then the process has a byte or two for each item more than `-m` says.
    fn on(self, device: Device, layout: Layout) -> HitmapMaker {
        let Some(number) = device.cuda else { return self };
        let mode = if device.has_managed_memory { MemoryMode::Managed } else { MemoryMode::Explicit };
        match CudaHitmap::open(number, layout, 1, mode) {
            Ok(map) => tracing::info!("the hitmap is kept on {}", map.processor()),
            Err(why) => {
                tracing::warn!("{why}: the CPU keeps the hitmap");
                return self;
            }
        }
        let HitmapMaker { make, mut bytes_for, .. } = self;
        let asks_ahead = device.batch_references > BATCH_REFERENCES;
        if !device.has_managed_memory {
            bytes_for = Box::new(|_| 0);
        }
        HitmapMaker {
            make: Box::new(move |items| match CudaHitmap::open(number, layout, items, mode) {
                Ok(map) => Box::new(ResilientHitmap::new(map)),
                Err(why) => {
                    tracing::warn!("{why}: the CPU keeps the hitmap");
                    make(items)
                }
            }),
            bytes_for,
            batch_references: if asks_ahead { device.batch_references as usize } else { 0 },
            asks_ahead,
        }
    }
}

/// A hitmap that is made when the number of items is known. It is told and asked in batches. One on a device that is
/// asked ahead answers a batch later, and is never waited for.
pub(super) struct LazyHitmap {
    maker: HitmapMaker,
    made: Option<Box<dyn Hitmap>>,
    /// References of the next batch.
    gathered: Vec<Reference>,
    answers: Answers,
    ahead: Ahead,
}

/// Zones of the items of columns that will go soon, from a device.
#[derive(Default)]
struct Ahead {
    /// Birth numbers of columns that were asked for lately.
    columns: VecDeque<u64>,
    /// What the next batch asks for.
    digests: Vec<Digest>,
    /// For each batch under way, how many digests of a sample it asks for, and the digests behind them.
    under_way: VecDeque<(usize, Vec<Digest>)>,
    /// What is known, the latest first.
    zones: [HashMap<Digest, u8>; 2],
}

impl Ahead {
    /// Takes the zones of an answer that do not belong to a sample.
    fn take(&mut self, zones: &mut Vec<u8>) {
        let Some((sampled, digests)) = self.under_way.pop_front() else { return };
        if zones.len() != sampled + digests.len() {
            return zones.clear();
        }
        if self.zones[0].len() + digests.len() > ZONES_REMEMBERED {
            self.zones.swap(0, 1);
            self.zones[0].clear();
        }
        self.zones[0].extend(digests.into_iter().zip(zones.drain(sampled..)));
    }

    fn zone(&self, digest: Digest) -> u8 {
        self.zones.iter().find_map(|zones| zones.get(&digest)).copied().unwrap_or(UNKNOWN_LEVEL)
    }
}

impl LazyHitmap {
    pub(super) fn new(maker: HitmapMaker) -> LazyHitmap {
        let ahead = Ahead::default();
        LazyHitmap { maker, made: None, gathered: Vec::new(), answers: Answers::new(), ahead }
    }

    fn is_asked_ahead(&self) -> bool {
        self.maker.asks_ahead && self.made.as_ref().is_some_and(|hitmap| hitmap.is_apart())
    }

    /// Adds references to the next batch. Returns how many it has, if they are enough.
    fn gather(&mut self, references: &[Reference]) -> Option<usize> {
        self.made.as_ref()?;
        self.gathered.extend_from_slice(references);
        (self.gathered.len() >= self.maker.batch_references).then_some(self.gathered.len())
    }

    /// Hands the batch over, with the digests of a sample. A device that is not asked ahead is waited for, so that no
    /// batch comes to nothing because the device is late.
    fn submit(&mut self, mut digests: Vec<Digest>) {
        let Some(hitmap) = &mut self.made else { return };
        if !self.maker.asks_ahead {
            hitmap.submit_and_wait(&self.gathered, &digests, &mut self.answers);
            return self.gathered.clear();
        }
        let ahead = std::mem::take(&mut self.ahead.digests);
        self.ahead.under_way.push_back((digests.len(), ahead.clone()));
        digests.extend(ahead);
        hitmap.submit(&self.gathered, &digests, &mut self.answers);
        self.gathered.clear();
    }

    /// The next answer for a sample, in the order of the batches; an empty one never will be known.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let mut zones = self.answers.pop_front()?;
        self.ahead.take(&mut zones);
        Some(zones)
    }
}

impl WarmthRecord for LazyHitmap {
    fn fit(&mut self, items: u64) {
        match &mut self.made {
            Some(hitmap) => hitmap.grow(items),
            None => self.made = Some((self.maker.make)(items)),
        }
    }

    fn is_made(&self) -> bool {
        self.made.is_some()
    }

    fn note(&mut self, references: &[Reference]) {
        if self.gather(references).is_some() {
            self.submit(Vec::new());
            while self.answer().is_some() {}
        }
    }

    fn wants_ahead(&self, birth: u64) -> bool {
        self.is_asked_ahead() && !self.ahead.columns.contains(&birth)
    }

    fn ask_ahead(&mut self, birth: u64, hashes: &[KeyHash]) {
        self.ahead.columns.push_back(birth);
        if self.ahead.columns.len() > COLUMNS_REMEMBERED {
            self.ahead.columns.pop_front();
        }
        self.ahead.digests.extend(hashes.iter().map(|hash| Digest::of(*hash)));
    }

    fn levels(&mut self, digests: &[Digest], levels: &mut Vec<u8>) {
        match &mut self.made {
            Some(hitmap) if self.maker.asks_ahead && hitmap.is_apart() => {
                levels.extend(digests.iter().map(|digest| self.ahead.zone(*digest)));
            }
            Some(hitmap) => hitmap.zones(digests, levels),
            None => levels.resize(levels.len() + digests.len(), 0),
        }
    }

    fn age(&mut self, bytes: u64) -> bool {
        let Some(hitmap) = &mut self.made else { return false };
        let is_begun = !hitmap.age_some(0);
        hitmap.age();
        hitmap.age_some(bytes as usize);
        is_begun
    }

    fn bytes_for(&self, items: u64) -> u64 {
        match &self.made {
            Some(hitmap) => hitmap.main_memory_bytes_for(items),
            None => (self.maker.bytes_for)(items),
        }
    }

    fn late(&self) -> u64 {
        self.made.as_ref().map_or(0, |hitmap| hitmap.late())
    }

    fn place(&self) -> Option<(&'static str, String)> {
        self.made.as_ref().map(|hitmap| ("hitmap_on", hitmap.processor()))
    }
}

/// The victim pool has room for 16 columns even if batches are smaller. A pool of one keeps the column that was
/// coldest when it was sampled, however warm it has become: that cost 5 points of the hit ratio of the workload Mix.
const POOL_COLUMNS_MIN: usize = 16;
/// A column's rank is the mean of eight sampled items at most. Where a column holds one item, only the last sample
/// counts.
const SAMPLED_REMEMBERED_MAX: u64 = 8;
/// The parts of a zone that a rank distinguishes.
const ZONE_PARTS: u64 = 256;
/// Bytes of the hitmap by which a compaction continues with each batch of references. At about 10 GB/s they take the
/// keeper's thread a tenth of a millisecond.
const AGE_BYTES: usize = 1 << 20;

/// The numbers of [`Published`] beside those of its hitmap. The defaults are the paper's, if it names one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PublishedPolicyOptions {
    /// Compaction begins when a smaller share than this of the sampled items is in zone 0 (section 3.1.4: 0.05); 0 =
    /// never.
    pub compact_below: f64,
    /// Items sampled for each reference, above 0 (section 3.2.3: 1).
    pub sampled_per_reference: f64,
    /// Items sampled before the share of cold ones is looked at. A smaller batch counts together with the batches
    /// before it. The paper looks at every batch (Algorithm 1), but the share of a few items is chance.
    pub sampled_min: usize,
}

impl Default for PublishedPolicyOptions {
    fn default() -> PublishedPolicyOptions {
        PublishedPolicyOptions { compact_below: 0.05, sampled_per_reference: 1.0, sampled_min: 500 }
    }
}

/// A column's rank in the pool: its mean zone, then the number of the sample that put it there.
type PoolRank = (u64, u64);

/// A column that was sealed.
struct Known {
    column: ColumnId,
    /// Items sampled from it, and the sum of their zones.
    sampled: u64,
    zones: u64,
    rank: Option<PoolRank>,
}

/// Catalyst's policy: hitmap, set counter, sampled keys, victim pool.
pub struct Published {
    hitmap: LazyHitmap,
    options: PublishedPolicyOptions,
    fitted_items: u64,
    /// Sealed columns by birth, the oldest first.
    known: BTreeMap<u64, Known>,
    births: HashMap<ColumnId, u64>,
    /// The victim pool: births of columns by rank, the coldest first.
    pool: BTreeMap<PoolRank, u64>,
    pool_columns_max: usize,
    /// Samples so far.
    samples: u64,
    /// Items sampled since the share of cold ones was last looked at, and how many of them were in zone 0.
    sampled: usize,
    cold: usize,
    stats: TemperatureStats,
    /// Samples whose zones are not known yet.
    samples_under_way: VecDeque<Sample>,
    /// Room for the items of a column, kept for its memory.
    digests: Vec<Digest>,
    levels: Vec<u8>,
}

/// Items that were sampled with one batch.
struct Sample {
    residents: Vec<Resident>,
    /// Agings that had been begun.
    agings: u64,
}

impl Published {
    /// A policy with a hitmap that is made when the number of items is known.
    pub fn new(make: HitmapMaker) -> Published {
        Published::with_options(make, PublishedPolicyOptions::default())
    }

    /// As [`Published::new`], with numbers of the caller's.
    pub fn with_options(make: HitmapMaker, options: PublishedPolicyOptions) -> Published {
        Published {
            hitmap: LazyHitmap::new(make),
            options,
            fitted_items: 0,
            known: BTreeMap::new(),
            births: HashMap::new(),
            pool: BTreeMap::new(),
            pool_columns_max: 0,
            samples: 0,
            sampled: 0,
            cold: 0,
            stats: TemperatureStats { probation_share: 1.0, ..TemperatureStats::default() },
            samples_under_way: VecDeque::new(),
            digests: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Writes the zones of the items of a column to `levels`.
    fn look_up(&mut self, items: &[Judged]) {
        self.digests.clear();
        self.digests.extend(items.iter().map(|item| Digest::of(item.hash)));
        self.levels.clear();
        self.hitmap.levels(&self.digests, &mut self.levels);
        // What is not known in time is as warm as its entry.
        for (level, item) in self.levels.iter_mut().zip(items) {
            if *level == UNKNOWN_LEVEL {
                *level = item.warmth;
            }
        }
    }

    /// Merges one sampled item into the rank of its column.
    fn rank(&mut self, resident: Resident, zone: u8) {
        let items_per_column = self.fitted_items / self.known.len().max(1) as u64;
        let memory = items_per_column.clamp(1, SAMPLED_REMEMBERED_MAX);
        let Some(known) = self.known.get_mut(&resident.birth) else { return };
        if let Some(rank) = known.rank.take() {
            self.pool.remove(&rank);
        }
        if known.sampled >= memory {
            known.zones -= known.zones / known.sampled;
            known.sampled -= 1;
        }
        known.sampled += 1;
        known.zones += u64::from(zone);
        self.samples += 1;
        let rank = (known.zones * ZONE_PARTS / known.sampled, self.samples);
        known.rank = Some(rank);
        self.pool.insert(rank, resident.birth);
        while self.pool.len() > self.pool_columns_max {
            let Some((_, warmest)) = self.pool.pop_last() else { return };
            if let Some(known) = self.known.get_mut(&warmest) {
                known.rank = None;
            }
        }
    }

    fn forget(&mut self, birth: u64) -> Option<Known> {
        let known = self.known.remove(&birth)?;
        if self.births.get(&known.column) == Some(&birth) {
            self.births.remove(&known.column);
        }
        if let Some(rank) = known.rank {
            self.pool.remove(&rank);
        }
        Some(known)
    }

    /// Begins a compaction of the hitmap, unless one is in progress. It lowers every zone by one at once, and its work
    /// is done with the batches that follow. Earlier samples are corrected as far as possible.
    fn compact(&mut self) {
        let Some(hitmap) = &mut self.hitmap.made else { return };
        if hitmap.age_some(0) {
            return;
        }
        hitmap.age();
        self.stats.agings += 1;
        for known in self.known.values_mut() {
            known.zones = known.zones.saturating_sub(known.sampled);
        }
    }

    /// Samples items with the next batch, and merges those that are known by now into the pool.
    pub(super) fn sample(&mut self, count: usize, residents: &mut dyn Residents) {
        let mut sampled = Vec::with_capacity(count);
        residents.sample(count, &mut sampled);
        self.pool_columns_max = count.max(POOL_COLUMNS_MIN);
        self.hitmap.submit(sampled.iter().map(|resident| Digest::of(resident.hash)).collect());
        self.samples_under_way.push_back(Sample { residents: sampled, agings: self.stats.agings });
        while let Some(zones) = self.hitmap.answer() {
            let Some(Sample { residents, agings }) = self.samples_under_way.pop_front() else { return };
            // Where the device was late, there are no zones.
            for (resident, zone) in residents.iter().zip(&zones) {
                let agings = (self.stats.agings - agings).min(u8::MAX.into()) as u8;
                self.rank(*resident, zone.saturating_sub(agings));
            }
            self.sampled += zones.len();
            self.cold += zones.iter().filter(|zone| **zone == 0).count();
            if self.sampled >= self.options.sampled_min {
                if (self.cold as f64) < self.options.compact_below * self.sampled as f64 {
                    self.compact();
                }
                (self.sampled, self.cold) = (0, 0);
            }
        }
    }
}

impl Temperature for Published {
    fn sealed(&mut self, column: ColumnId, birth: u64, _: Queue) {
        // The column's earlier use is over.
        if let Some(earlier) = self.births.insert(column, birth)
            && earlier != birth
        {
            self.forget(earlier);
            self.births.insert(column, birth);
        }
        self.known.entry(birth).or_insert(Known { column, sampled: 0, zones: 0, rank: None });
    }

    fn victim(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        // A sparse column among the oldest goes first; the oldest that may go is the last resort.
        let mut gone = Vec::new();
        let mut sparse = CheapestSparse::new(Sparse::BEFORE_ITS_TURN);
        let mut oldest = None;
        for (&birth, known) in self.known.iter().take(LOOK_AHEAD_COLUMNS) {
            match status_of(known.column, birth) {
                Candidate::Gone => gone.push(birth),
                Candidate::Later => {}
                Candidate::Ready(found) => {
                    oldest = oldest.or(Some(birth));
                    sparse.offer(birth, &found);
                }
            }
        }
        let mut may_go = |birth: &u64| {
            let column = self.known.get(birth).map(|known| known.column);
            column.is_some_and(|column| matches!(status_of(column, *birth), Candidate::Ready(_)))
        };
        let mut chosen = sparse.found();
        if chosen.is_none() {
            chosen = self.pool.values().copied().find(|birth| may_go(birth));
        }
        if chosen.is_none() {
            self.stats.drained += u64::from(oldest.is_some());
            chosen = oldest;
        }
        for birth in gone {
            self.forget(birth);
        }
        self.forget(chosen?).map(|known| known.column)
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, queue: Queue) {
        self.sealed(column, birth, queue);
        // Colder than anything that was sampled, and first.
        let Some(known) = self.known.get_mut(&birth) else { return };
        if let Some(rank) = known.rank.replace((0, 0)) {
            self.pool.remove(&rank);
        }
        if let Some(other) = self.pool.insert((0, 0), birth).filter(|other| *other != birth)
            && let Some(known) = self.known.get_mut(&other)
        {
            known.rank = None;
        }
    }

    fn judge(&mut self, _: Queue, items: &[Judged], bounds: ColumnBounds, verdicts: &mut Vec<Verdict>) {
        self.look_up(items);
        // Items may have become warmer since they were sampled. Then the coldest items of the column go.
        let coldest = self.levels.iter().copied().min().unwrap_or(0);
        self.levels.iter_mut().filter(|level| **level == coldest).for_each(|level| *level = 0);
        keep_within(&mut self.levels, items, bounds.keep_bytes_max);
        for &level in &self.levels {
            self.stats.evicted_probation += u64::from(level == 0);
            verdicts.push(if level == 0 { Verdict::Evict } else { Verdict::Keep { warmth: 0 } });
        }
    }

    fn refer(&mut self, references: &[Reference], residents: &mut dyn Residents) {
        self.stats.references += references.len() as u64;
        let Some(references) = self.hitmap.gather(references) else { return };
        if let Some(hitmap) = &mut self.hitmap.made {
            hitmap.age_some(AGE_BYTES);
        }
        let next = self.pool.values().take(COLUMNS_AHEAD);
        let next = next.filter_map(|birth| Some((self.known.get(birth)?.column, *birth)));
        look_ahead(&mut self.hitmap, next, residents);
        let count = references as f64 * self.options.sampled_per_reference;
        self.sample((count.round() as usize).max(1), residents);
    }

    fn wanted_below(&self) -> u32 {
        if self.hitmap.is_made() { 1 << Digest::BITS } else { 0 }
    }

    fn fit(&mut self, items: u64) {
        self.fitted_items = items;
        self.hitmap.fit(items);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.hitmap.bytes_for(items)
    }

    fn columns(&self) -> usize {
        self.known.len()
    }

    fn forget_gone(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        let known = self.known.iter();
        let gone = known.filter(|(birth, known)| matches!(status_of(known.column, **birth), Candidate::Gone));
        for birth in gone.map(|(birth, _)| *birth).collect::<Vec<_>>() {
            self.forget(birth);
        }
    }

    fn stats(&self) -> TemperatureStats {
        TemperatureStats {
            place: self.hitmap.place(),
            late: self.hitmap.late(),
            probation_columns: self.known.len() as u64,
            bytes: if self.hitmap.is_made() { self.hitmap.bytes_for(0) } else { 0 },
            ..self.stats.clone()
        }
    }
}
