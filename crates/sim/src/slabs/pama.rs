//! PAMA and pre-PAMA (Ou et al., ICPP 2015, sections III and IV).

use super::classes::SUBCLASS_PENALTY_US_MAX;
use super::scheme::{Scheme, Seen};
use super::store::Store;
use super::values::{Rollover, Values};

/// What a request for an item in a segment counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Its miss penalty in microseconds: PAMA.
    Penalty,
    /// One: pre-PAMA.
    Request,
}

/// The parameters of PAMA, and what its paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PamaSettings {
    /// How many segments besides the candidate's (or the receiving one) count for a value: the paper's m.
    /// With 0 that segment alone counts; the paper's text asks for at least one ghost segment more, its Fig.
    /// 10 has 0.
    pub m: usize,
    /// The window of the values, in accesses of the whole cache. The paper does not name its own.
    pub window: u64,
    /// What becomes of the values when the window ends.
    pub rollover: Rollover,
    /// Whether values move with the borders: a group that lost a slab now has S_1 where S_0 was, and what was
    /// worth keeping is worth having back. The paper does not say; without it a group goes on giving slabs by
    /// the value of one that it no longer has.
    pub follow_slabs: bool,
    /// What a request counts for.
    pub worth: Worth,
    /// Whether classes are divided by penalty. The paper gives pre-PAMA no view of penalties; we divide its
    /// classes not.
    pub subclasses: bool,
    /// Whether Bloom filters tell the segment of an access, as in the paper; else it is tracked exactly.
    pub filtered: bool,
}

/// The scheme. A slab moves when a group without a free slot has an incoming value above the least outgoing
/// value of all.
///
/// Only GETs count for values, for only their misses make anybody wait. A group without slabs cannot hold its
/// item; the item becomes a ghost at once, so that the group's incoming value can earn its first slab.
pub struct Pama {
    settings: PamaSettings,
    values: Values,
    filters_due: bool,
}

impl Pama {
    /// For a cache of `classes` size classes.
    ///
    /// # Errors
    /// m above 16, an empty window.
    pub fn new(settings: PamaSettings, classes: usize) -> Result<Pama, String> {
        if settings.m > 16 {
            return Err(format!("m is from 0 to 16, not {}", settings.m));
        }
        if settings.window == 0 {
            return Err("the window of PAMA's values has at least one access".to_owned());
        }
        let groups = classes * subclasses(&settings);
        let values = Values::new(groups, settings.m + 1, settings.window, settings.rollover);
        Ok(Pama { settings, values, filters_due: false })
    }

    /// What a group would lose with its candidate slab.
    pub fn outgoing(&self, group: usize) -> f64 {
        self.values.outgoing(group)
    }

    /// What a group would gain by one more slab.
    pub fn incoming(&self, group: usize) -> f64 {
        self.values.incoming(group)
    }
}

fn subclasses(settings: &PamaSettings) -> usize {
    if settings.subclasses { SUBCLASS_PENALTY_US_MAX.len() } else { 1 }
}

impl Scheme for Pama {
    fn subclasses(&self) -> usize {
        subclasses(&self.settings)
    }

    fn segments(&self) -> usize {
        self.settings.m + 1
    }

    fn filtered(&self) -> bool {
        self.settings.filtered
    }

    fn filters_due(&mut self) -> bool {
        std::mem::take(&mut self.filters_due)
    }

    fn first_slab_for_all(&self) -> bool {
        false
    }

    fn seen(&mut self, seen: &Seen, _: &Store) {
        self.filters_due |= self.values.tick();
        if seen.get {
            let worth = match self.settings.worth {
                Worth::Penalty => f64::from(seen.penalty_us),
                Worth::Request => 1.0,
            };
            self.values.add(seen.group, seen.place, worth);
        }
    }

    fn donor(&mut self, needy: usize, store: &Store) -> Option<usize> {
        let mut least: Option<(usize, f64)> = None;
        for (group, &slabs) in store.slabs().iter().enumerate() {
            let value = self.values.outgoing(group);
            if slabs > 0 && least.is_none_or(|(_, other)| value < other) {
                least = Some((group, value));
            }
        }
        let (group, value) = least?;
        (group != needy && value < self.values.incoming(needy)).then_some(group)
    }

    fn moved(&mut self, from: usize, to: usize) {
        if self.settings.follow_slabs {
            self.values.lost_slab(from);
            self.values.gained_slab(to);
        }
    }
}
