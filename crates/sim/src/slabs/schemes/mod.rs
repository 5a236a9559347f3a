//! Schemes: who gives a slab to whom.

mod age;
mod automove;
mod psa;
mod twemcache;

use super::pama::{Pama, PamaSettings, Worth};
use super::scheme::{Scheme, Seen};
use super::store::Store;
use super::values::Rollover;

use age::Age;
use automove::Automove;
use psa::Psa;
use twemcache::Twemcache;

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
