//! Cold items injected at once (PAMA, section IV.C).

use larder_sim::{Op, Request};

use super::{Settings, SlabClasses};
use larder_curve::mix::hash_of;

/// Base of the keys of injected items. A collision with a key of the trace is as unlikely as one between two 64-bit
/// hashes.
const KEY_SEED: u64 = 0xb065_7000_0000_0000;

/// A burst of SETs of unpopular items in a few size classes. Nobody reads the items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Burst {
    /// Number of GETs after which the burst starts.
    pub(crate) at_gets: u64,
    /// Bytes of all injected items as a share of the cache's memory; about 0.1 in the paper.
    pub(crate) memory_ratio: f64,
    /// The first size class of the items.
    pub(crate) class_first: usize,
    /// The number of size classes; three in the paper.
    pub(crate) classes: usize,
    /// SETs per GET while the burst lasts. The paper says "quickly".
    pub(crate) sets_per_get: u32,
    /// Penalty of the items in microseconds; 0 = unknown.
    pub(crate) penalty_us: u32,
}

impl Burst {
    /// Checks the burst against the size classes.
    ///
    /// # Errors
    /// Classes that do not exist, a share outside 0 to 1, or no SETs per GET.
    pub(crate) fn check(&self, classes: &SlabClasses) -> Result<(), String> {
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

/// Injects a burst into the requests of a run, if there is one.
pub(super) struct Injector {
    burst: Option<Burst>,
    /// All SETs of the burst, in their order.
    sets: Vec<Request>,
    injected: usize,
}

impl Injector {
    /// The burst of `settings` on a cache of `memory_bytes`.
    ///
    /// # Errors
    /// Those of [`Burst::check`].
    pub(super) fn new(settings: &Settings, memory_bytes: u64) -> Result<Injector, String> {
        let mut sets = Vec::new();
        if let Some(burst) = &settings.burst {
            burst.check(&settings.classes)?;
            sets.extend(burst.requests(memory_bytes, &settings.classes));
        }
        Ok(Injector { burst: settings.burst, sets, injected: 0 })
    }

    /// The SETs that follow the GET with this ordinal, from 1 on.
    pub(super) fn due(&mut self, gets: u64) -> Vec<Request> {
        let Some(burst) = self.burst.filter(|burst| gets >= burst.at_gets) else { return Vec::new() };
        let end = self.sets.len().min(self.injected + burst.sets_per_get as usize);
        let due = self.sets[self.injected..end].to_vec();
        self.injected = end;
        due
    }
}
