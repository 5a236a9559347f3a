//! The allocation schemes, and the registry that builds them by name.

mod age;
mod automove;
mod psa;
mod twemcache;

use super::pama::{Pama, PamaSettings, Worth};
use super::scheme::{Scheme, SlabAccess};
use super::store::Store;
use super::values::Rollover;

use age::Age;
use automove::Automove;
use psa::Psa;
use twemcache::Twemcache;

/// The parameters of all schemes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SchemeSettings {
    /// PAMA's m.
    pub(crate) m: usize,
    /// The window of PAMA's values, in accesses.
    pub(crate) value_window: u64,
    /// The treatment of PAMA's values at the end of a window.
    pub(crate) rollover: Rollover,
    /// Whether PAMA's values follow the slabs that move.
    pub(crate) follow_slabs: bool,
    /// PSA's M: a slab moves after every M misses.
    pub(crate) psa_misses: u64,
    /// The window of memcached's automover in accesses; ten minutes in the original.
    pub(crate) automove_window: u64,
    /// Starts the random numbers of the scheme that samples.
    pub(crate) seed: u64,
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
pub(crate) const NAMES: &[&str] = &[
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
/// An unknown name (the error lists the known names), or parameters out of range.
pub(crate) fn build(
    name: &str,
    settings: &SchemeSettings,
    classes: usize,
) -> Result<Box<dyn Scheme>, String> {
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

/// memcached without reallocation: slabs stay in the group that got them first.
struct Static;

impl Scheme for Static {
    fn on_access(&mut self, _: &SlabAccess, _: &Store) {}

    fn donor(&mut self, _: usize, _: &Store) -> Option<usize> {
        None
    }
}
