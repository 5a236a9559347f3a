//! Schemes: who gives a slab to whom.

mod age;
mod automove;
mod psa;
mod twemcache;

use super::{Pama, PamaSettings, Place, Rollover, Store, Worth};

use age::Age;
use automove::Automove;
use psa::Psa;
use twemcache::Twemcache;

/// What a scheme is told of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The group of the item.
    pub group: usize,
    /// Whether it was a GET; else something was stored.
    pub get: bool,
    /// Whether the item was there.
    pub hit: bool,
    /// Where in its stack it was found.
    pub place: Place,
    /// What a miss of it costs, in microseconds.
    pub penalty_us: u32,
}

/// Decides over the slabs of a [`Store`].
pub trait Scheme: Send {
    /// Penalty subclasses per class; 1 = none.
    fn subclasses(&self) -> usize {
        1
    }

    /// Segments to be tracked on either side of the end of a stack; 0 = none, and no ghosts.
    fn segments(&self) -> usize {
        0
    }

    /// Whether Bloom filters tell the segments.
    fn filtered(&self) -> bool {
        false
    }

    /// Whether all Bloom filters are to be built anew; asked after each access where there are filters.
    fn filters_due(&mut self) -> bool {
        false
    }

    /// Whether a group without slabs gets its first one from the group with the most, whatever the scheme
    /// would say. memcached grants a class its first slab even above the limit of memory.
    fn first_slab_for_all(&self) -> bool {
        true
    }

    /// An access, before anything changes. A GET that missed is followed by no further one for the client's
    /// SET. A SET of an item that is not there counts as a miss, for it needs a slot like one.
    fn seen(&mut self, seen: &Seen, store: &Store);

    /// Who gives a slab to `needy`, which has no free slot while there is no free slab; `None` or `needy`
    /// itself: nobody, the lowest item of `needy` is replaced.
    fn donor(&mut self, needy: usize, store: &Store) -> Option<usize>;

    /// A slab to be moved after this access, from whom to whom.
    fn due(&mut self, _store: &Store) -> Option<(usize, usize)> {
        None
    }

    /// A slab has moved.
    fn moved(&mut self, _from: usize, _to: usize) {}
}

/// The parameters of all schemes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SchemeSettings {
    /// PAMA's m.
    pub m: usize,
    /// The window of PAMA's values, in accesses.
    pub value_window: u64,
    /// What becomes of PAMA's values when their window ends.
    pub rollover: Rollover,
    /// Whether PAMA's values follow the slabs that move.
    pub follow_slabs: bool,
    /// PSA's M: a slab moves every so many misses.
    pub psa_misses: u64,
    /// memcached's window, in accesses; the original's is ten minutes.
    pub automove_window: u64,
    /// For the scheme that draws lots.
    pub seed: u64,
}

impl Default for SchemeSettings {
    fn default() -> SchemeSettings {
        SchemeSettings {
            m: 2,
            value_window: 1_000_000,
            rollover: Rollover::Sliding,
            follow_slabs: true,
            psa_misses: 1_000,
            automove_window: 1_000_000,
            seed: 1,
        }
    }
}

/// The names that [`build`] knows, in the order of a report.
pub const NAMES: &[&str] = &[
    "static",
    "automove",
    "psa",
    "twemcache",
    "age",
    "pre-pama",
    "pre-pama-subclasses",
    "pama",
    "pama-exact",
];

/// Builds a scheme by name for a cache of `classes` size classes.
///
/// # Errors
/// An unknown name, with those that exist; parameters out of range.
pub fn build(name: &str, settings: &SchemeSettings, classes: usize) -> Result<Box<dyn Scheme>, String> {
    let pama = |worth, subclasses, filtered| {
        let settings = PamaSettings {
            m: settings.m,
            window: settings.value_window,
            rollover: settings.rollover,
            follow_slabs: settings.follow_slabs,
            worth,
            subclasses,
            filtered,
        };
        Pama::new(settings, classes).map(|scheme| Box::new(scheme) as Box<dyn Scheme>)
    };
    match name {
        "static" => Ok(Box::new(Static)),
        "automove" => Ok(Box::new(Automove::new(classes, settings.automove_window)?)),
        "psa" => Ok(Box::new(Psa::new(classes, settings.psa_misses)?)),
        "twemcache" => Ok(Box::new(Twemcache::new(settings.seed))),
        "age" => Ok(Box::new(Age)),
        "pre-pama" => pama(Worth::Request, false, false),
        "pre-pama-subclasses" => pama(Worth::Request, true, false),
        "pama" => pama(Worth::Penalty, true, true),
        "pama-exact" => pama(Worth::Penalty, true, false),
        _ => Err(format!("'{name}' is no scheme: there are {}", NAMES.join(", "))),
    }
}

/// memcached without reallocation: slabs stay where they first went.
struct Static;

impl Scheme for Static {
    fn seen(&mut self, _: &Seen, _: &Store) {}

    fn donor(&mut self, _: usize, _: &Store) -> Option<usize> {
        None
    }
}

/// The group with the most slabs, other than `but`; the first of equals.
pub(super) fn richest(store: &Store, but: usize) -> Option<usize> {
    let others = store.slabs().iter().enumerate().filter(|&(group, &slabs)| group != but && slabs > 0);
    others.min_by_key(|&(_, &slabs)| std::cmp::Reverse(slabs)).map(|(group, _)| group)
}
