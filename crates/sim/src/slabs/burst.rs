//! Cold items injected at once (PAMA, section IV.C).

use crate::{Op, Request};

use super::SlabClasses;
use crate::mix::hash_of;

/// Keys of injected items are drawn from this on; a clash with a key of the trace is as unlikely as between
/// two hashes.
const KEY_SEED: u64 = 0xb065_7000_0000_0000;

/// SETs of items that nobody asks for again: unpopular ones, of few size classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// After how many GETs it begins.
    pub at_gets: u64,
    /// The octets of all its items, as a share of the cache's memory: the paper's is about 0.1.
    pub memory_ratio: f64,
    /// The first of its classes.
    pub class_first: usize,
    /// How many classes it has: the paper's has three.
    pub classes: usize,
    /// How many SETs come with each GET while it lasts: "quickly" in the paper.
    pub sets_per_get: u32,
    /// The penalty of its items in microseconds; 0 = unknown.
    pub penalty_us: u32,
}

impl Burst {
    /// Checks it against the classes.
    ///
    /// # Errors
    /// Classes that do not exist, a share outside 0 to 1, no SETs per GET.
    pub fn check(&self, classes: &SlabClasses) -> Result<(), String> {
        if self.classes == 0 || self.class_first + self.classes > classes.len() {
            return Err(format!(
                "a burst on {} classes from class {} on does not fit: there are classes 0 to {}",
                self.classes,
                self.class_first,
                classes.len() - 1
            ));
        }
        if self.at_gets == 0 {
            return Err("a burst begins after one GET or more".to_owned());
        }
        if !(0.0..=1.0).contains(&self.memory_ratio) || self.sets_per_get == 0 {
            return Err("a burst has 0 to 1 of the memory and at least one SET per GET".to_owned());
        }
        Ok(())
    }

    /// The SETs of a burst on a cache of `memory_bytes`.
    pub(super) fn requests<'a>(
        &self,
        memory_bytes: u64,
        classes: &'a SlabClasses,
    ) -> impl Iterator<Item = Request> + Send + use<'a> {
        let burst = *self;
        let bytes_max = (memory_bytes as f64 * burst.memory_ratio) as u64;
        let mut bytes = 0;
        (0_u64..).map_while(move |at| {
            let class = burst.class_first + (at % burst.classes as u64) as usize;
            let below = if class == 0 { 0 } else { classes.slot_bytes(class - 1) };
            let value = below + 1 + hash_of(at) % (classes.slot_bytes(class) - below);
            bytes += value;
            (bytes <= bytes_max).then_some(Request {
                key: hash_of(KEY_SEED + at),
                value_bytes: value as u32,
                penalty_us: burst.penalty_us,
                op: Op::Set,
                ..Request::default()
            })
        })
    }
}
