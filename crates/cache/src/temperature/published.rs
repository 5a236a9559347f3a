//! Catalyst as published (section 3.2), over columns.
//!
//! With each batch of references as many items are drawn at random and their zones looked up. A column's standing in the
//! victim pool is the mean zone of what was drawn from it, the coldest goes first; its items are looked up once more, and
//! those in zone 0 leave. Where a column is one item this is the paper's pool of items, less what it leaves open: how
//! large the pool is (here: as many as were drawn for one batch, 16 at least) and in which order items of one zone leave
//! (those drawn first). When fewer than 5 % of the drawn items are in zone 0, the hitmap is compacted.
//! `docs/evidence/catalyst.md` has what each of these numbers is worth.

use super::{
    Candidate, HitmapMaker, Judged, LOOK_AHEAD_COLUMNS, Part, Resident, Residents, Temperature,
    TemperatureFacts, Verdict, keep_within,
};
use larder_memory::ColumnId;
use larder_temperature::{Digest, Hitmap, Reference};
use std::collections::{BTreeMap, HashMap};

/// The victim pool has room for so many columns even if batches are smaller. A pool of one keeps what was coldest when it
/// was drawn, however warm that has become: 5 points of the hit ratio of Mix.
const POOL_COLUMNS_MIN: usize = 16;
/// So many of the items drawn from a column count in its standing, at most; where a column is one item, the last one.
const DRAWN_REMEMBERED_MAX: u64 = 8;
/// Fractions of a zone in a standing.
const ZONE_PARTS: u64 = 256;

/// The numbers of [`Published`] that are not the hitmap's. The default is the paper's where it has one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PublishedPolicyOptions {
    /// Compaction begins when a smaller share than this of the drawn items is cold (section 3.1.4: 0.05); 0 = never.
    pub compact_below: f64,
    /// Items drawn for each reference, above 0 (section 3.2.3: 1).
    pub drawn_per_reference: f64,
    /// Items drawn before the share of cold ones says anything; a batch of fewer is judged together with those before
    /// it. The paper judges every batch (Algorithm 1); of a few items that is chance.
    pub drawn_min: usize,
}

impl Default for PublishedPolicyOptions {
    fn default() -> PublishedPolicyOptions {
        PublishedPolicyOptions { compact_below: 0.05, drawn_per_reference: 1.0, drawn_min: 500 }
    }
}

/// Where a column stands in the pool: how warm, then who came first.
type Standing = (u64, u64);

/// A column that was sealed.
struct Known {
    column: ColumnId,
    /// Items drawn from it, and the sum of their zones.
    drawn: u64,
    zones: u64,
    standing: Option<Standing>,
}

/// Hitmap, set counter, sampled keys, victim pool.
pub struct Published {
    make: HitmapMaker,
    options: PublishedPolicyOptions,
    hitmap: Option<Box<dyn Hitmap>>,
    fitted_items: u64,
    /// Sealed columns by birth, the oldest first.
    known: BTreeMap<u64, Known>,
    births: HashMap<ColumnId, u64>,
    /// The victim pool: births by standing, the coldest first.
    pool: BTreeMap<Standing, u64>,
    pool_columns_max: usize,
    came: u64,
    drawn: usize,
    cold: usize,
    facts: TemperatureFacts,
    /// Kept for their memory.
    residents: Vec<Resident>,
    digests: Vec<Digest>,
    levels: Vec<u8>,
}

impl Published {
    /// With a hitmap that is made when the number of items is known.
    pub fn new(make: HitmapMaker) -> Published {
        Published::with_options(make, PublishedPolicyOptions::default())
    }

    /// As [`Published::new`], with other numbers than the paper's.
    pub fn with_options(make: HitmapMaker, options: PublishedPolicyOptions) -> Published {
        Published {
            make,
            options,
            hitmap: None,
            fitted_items: 0,
            known: BTreeMap::new(),
            births: HashMap::new(),
            pool: BTreeMap::new(),
            pool_columns_max: 0,
            came: 0,
            drawn: 0,
            cold: 0,
            facts: TemperatureFacts { probation_share: 1.0, ..TemperatureFacts::default() },
            residents: Vec::new(),
            digests: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Zones of keys, into `levels`.
    fn look_up(&mut self, hashes: impl Iterator<Item = larder_item::KeyHash>) {
        self.digests.clear();
        self.digests.extend(hashes.map(Digest::of));
        self.levels.clear();
        match &mut self.hitmap {
            Some(hitmap) => hitmap.zones(&self.digests, &mut self.levels),
            None => self.levels.resize(self.digests.len(), 0),
        }
    }

    /// Merges what was drawn from one column into the pool.
    fn stand(&mut self, resident: Resident, zone: u8) {
        let items_per_column = self.fitted_items / self.known.len().max(1) as u64;
        let memory = items_per_column.clamp(1, DRAWN_REMEMBERED_MAX);
        let Some(known) = self.known.get_mut(&resident.birth) else { return };
        if let Some(standing) = known.standing.take() {
            self.pool.remove(&standing);
        }
        if known.drawn >= memory {
            known.zones -= known.zones / known.drawn;
            known.drawn -= 1;
        }
        known.drawn += 1;
        known.zones += u64::from(zone);
        self.came += 1;
        let standing = (known.zones * ZONE_PARTS / known.drawn, self.came);
        known.standing = Some(standing);
        self.pool.insert(standing, resident.birth);
        while self.pool.len() > self.pool_columns_max {
            let Some((_, warmest)) = self.pool.pop_last() else { return };
            if let Some(known) = self.known.get_mut(&warmest) {
                known.standing = None;
            }
        }
    }

    fn forget(&mut self, birth: u64) -> Option<Known> {
        let known = self.known.remove(&birth)?;
        if self.births.get(&known.column) == Some(&birth) {
            self.births.remove(&known.column);
        }
        if let Some(standing) = known.standing {
            self.pool.remove(&standing);
        }
        Some(known)
    }

    /// Compaction lowers every zone by one; what was drawn before is corrected as far as it can be.
    fn compact(&mut self) {
        let Some(hitmap) = &mut self.hitmap else { return };
        hitmap.age();
        while hitmap.age_some(usize::MAX) {}
        self.facts.agings += 1;
        for known in self.known.values_mut() {
            known.zones = known.zones.saturating_sub(known.drawn);
        }
    }

    /// Draws items, and merges them into the pool.
    pub(super) fn draw(&mut self, count: usize, residents: &mut dyn Residents) {
        let mut drawn = std::mem::take(&mut self.residents);
        drawn.clear();
        residents.sample(count, &mut drawn);
        self.look_up(drawn.iter().map(|resident| resident.hash));
        let zones = std::mem::take(&mut self.levels);
        self.pool_columns_max = count.max(POOL_COLUMNS_MIN);
        for (resident, &zone) in drawn.iter().zip(&zones) {
            self.stand(*resident, zone);
        }
        self.drawn += zones.len();
        self.cold += zones.iter().filter(|zone| **zone == 0).count();
        self.levels = zones;
        self.residents = drawn;
        if self.drawn >= self.options.drawn_min {
            if (self.cold as f64) < self.options.compact_below * self.drawn as f64 {
                self.compact();
            }
            (self.drawn, self.cold) = (0, 0);
        }
    }
}

impl Temperature for Published {
    fn sealed(&mut self, column: ColumnId, birth: u64, _: Part) {
        // The column's earlier use is over.
        if let Some(earlier) = self.births.insert(column, birth)
            && earlier != birth
        {
            self.forget(earlier);
            self.births.insert(column, birth);
        }
        self.known.entry(birth).or_insert(Known { column, drawn: 0, zones: 0, standing: None });
    }

    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        // One of the oldest that is mostly dead is cheap; the first of them that may go is the last resort.
        let mut gone = Vec::new();
        let mut hollow: Option<(u64, u64)> = None;
        let mut oldest = None;
        for (&birth, known) in self.known.iter().take(LOOK_AHEAD_COLUMNS) {
            match standing(known.column, birth) {
                Candidate::Gone => gone.push(birth),
                Candidate::Later => {}
                Candidate::Ready(found) => {
                    oldest = oldest.or(Some(birth));
                    if found.is_hollow() && hollow.is_none_or(|h| found.live_bytes < h.1) {
                        hollow = Some((birth, found.live_bytes));
                    }
                }
            }
        }
        let mut may_go = |birth: &u64| {
            let column = self.known.get(birth).map(|known| known.column);
            column.is_some_and(|column| matches!(standing(column, *birth), Candidate::Ready(_)))
        };
        let mut chosen = hollow.map(|(birth, _)| birth);
        if chosen.is_none() {
            chosen = self.pool.values().copied().find(|birth| may_go(birth));
        }
        if chosen.is_none() {
            self.facts.drained += u64::from(oldest.is_some());
            chosen = oldest;
        }
        for birth in gone {
            self.forget(birth);
        }
        self.forget(chosen?).map(|known| known.column)
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, part: Part) {
        self.sealed(column, birth, part);
        // Colder than anything that was drawn, and first.
        let Some(known) = self.known.get_mut(&birth) else { return };
        if let Some(standing) = known.standing.replace((0, 0)) {
            self.pool.remove(&standing);
        }
        if let Some(other) = self.pool.insert((0, 0), birth).filter(|other| *other != birth)
            && let Some(known) = self.known.get_mut(&other)
        {
            known.standing = None;
        }
    }

    fn judge(&mut self, _: Part, items: &[Judged], keep_bytes_max: u64, verdicts: &mut Vec<Verdict>) {
        self.look_up(items.iter().map(|item| item.hash));
        // The pool's word is not always true any more: then the coldest that there are go.
        let coldest = self.levels.iter().copied().min().unwrap_or(0);
        self.levels.iter_mut().filter(|level| **level == coldest).for_each(|level| *level = 0);
        keep_within(&mut self.levels, items, keep_bytes_max);
        for &level in &self.levels {
            self.facts.evicted_probation += u64::from(level == 0);
            verdicts.push(if level == 0 { Verdict::Evict } else { Verdict::Keep { warmth: 0 } });
        }
    }

    fn refer(&mut self, references: &[Reference], residents: &mut dyn Residents) {
        self.facts.references += references.len() as u64;
        let Some(hitmap) = &mut self.hitmap else { return };
        hitmap.mark(references);
        let count = references.len() as f64 * self.options.drawn_per_reference;
        self.draw((count.round() as usize).max(1), residents);
    }

    fn wanted_below(&self) -> u32 {
        if self.hitmap.is_some() { 1 << Digest::BITS } else { 0 }
    }

    fn fit(&mut self, items: u64) {
        self.fitted_items = items;
        match &mut self.hitmap {
            Some(hitmap) => hitmap.grow(items),
            None => self.hitmap = Some((self.make.make)(items)),
        }
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.make.bytes(self.hitmap.as_deref(), items)
    }

    fn columns(&self) -> usize {
        self.known.len()
    }

    fn forget_gone(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        let known = self.known.iter();
        let gone = known.filter(|(birth, known)| matches!(standing(known.column, **birth), Candidate::Gone));
        for birth in gone.map(|(birth, _)| *birth).collect::<Vec<_>>() {
            self.forget(birth);
        }
    }

    fn facts(&self) -> TemperatureFacts {
        TemperatureFacts {
            place: self.hitmap.as_ref().map(|hitmap| hitmap.place()).unwrap_or_default(),
            probation_columns: self.known.len() as u64,
            bytes: self.hitmap.as_ref().map_or(0, |hitmap| hitmap.bytes_for(0)),
            ..self.facts.clone()
        }
    }
}
