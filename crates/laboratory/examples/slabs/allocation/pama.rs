//! PAMA and pre-PAMA (Ou et al., ICPP 2015, sections III and IV).

use super::classes::SUBCLASS_PENALTY_US_MAX;
use super::scheme::{Scheme, SlabAccess};
use super::store::Store;
use super::values::{Rollover, Values};

/// The value of one request for an item in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// The miss penalty in microseconds: PAMA.
    Penalty,
    /// One: pre-PAMA.
    Request,
}

/// The parameters of PAMA, including choices that its paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PamaSettings {
    /// The paper's m: how many segments count towards a value in addition to the candidate (or receiving) segment.
    /// With 0 only that segment counts. The paper's text requires at least one further ghost segment, but its Fig. 10
    /// includes 0.
    pub(crate) m: usize,
    /// The window of the values, in accesses of the whole cache. The paper does not name its own.
    pub(crate) window: u64,
    /// The treatment of the values at the end of a window.
    pub(crate) rollover: Rollover,
    /// Whether values move with the segment borders. After a group lost a slab, its segment S_1 is where S_0 was, and
    /// the value of keeping the lost slab becomes the value of regaining it. The paper does not say. Without this
    /// option a group continues to give away slabs by the value of a slab that it no longer has.
    pub(crate) follow_slabs: bool,
    /// The value of one request.
    pub(crate) worth: Worth,
    /// Whether classes are divided by penalty. In the paper pre-PAMA does not see penalties, so its classes are not
    /// divided here.
    pub(crate) subclasses: bool,
    /// Whether Bloom filters tell the segment of an access, as in the paper. Otherwise the segment is tracked
    /// exactly.
    pub(crate) filtered: bool,
}

/// The scheme. A slab moves when a group without a free slot has an incoming value above the smallest outgoing value
/// of all groups.
///
/// Only GETs count towards values, because only their misses make a client wait. A group without slabs cannot store
/// its item; the item becomes a ghost at once, so that the group's incoming value can earn its first slab.
pub(crate) struct Pama {
    settings: PamaSettings,
    values: Values,
    filters_due: bool,
}

impl Pama {
    /// PAMA for a cache of `classes` size classes.
    ///
    /// # Errors
    /// An m above 16, or an empty window.
    pub(crate) fn new(settings: PamaSettings, classes: usize) -> Result<Pama, String> {
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

    fn on_access(&mut self, access: &SlabAccess, _: &Store) {
        self.filters_due |= self.values.tick();
        if access.get {
            let worth = match self.settings.worth {
                Worth::Penalty => f64::from(access.penalty_us),
                Worth::Request => 1.0,
            };
            self.values.add(access.group, access.position, worth);
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
