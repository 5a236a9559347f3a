//! Simulates policies side by side on one trace, at a list of cache sizes, in parallel.
//!
//! ```text
//!   source ---> reader ---> numbers, charges ---> chunks ---> workers: (policy, size), (policy, size) ...
//!              (thread)        (caller)          (shared)    (threads; each takes the next simulation)
//! ```
//!
//! The trace is read once and never held in memory: all simulations share chunks of requests. A first pass is made
//! only where a size or the warm-up is a share of the trace, or where a policy looks ahead (Belady). A policy that
//! looks ahead costs 4 bytes per request during the run, and 9 bytes per request for a moment.
//!
//! # What is counted
//! A get counts as a hit or a miss; a miss stores the item at once. Under [`OpsRule::Obey`], set, add, replace, cas,
//! append, prepend, incr and decr write without being counted, and delete removes. Sizes are those that the trace
//! gives with each request. Under [`OpsRule::Ignore`] every request is a get, as in libCacheSim.
//!
//! In byte mode an item is charged for its key, its value and [`Rules::overhead_bytes`]. The overhead is 0 by
//! default, as in the literature, so that policies rather than servers are compared. Only `larder` carries its real
//! overhead.
//!
//! # Service times
//! The service time of a get is `hit_us`, plus the penalty of the miss if the get missed: a miss asks the cache
//! first. A hit on flash takes `flash_us` more than one in memory.
//!
//! Results do not depend on the number of threads.

mod feed;
mod interner;
mod outcome;
mod pool;
mod rules;
mod simulation;
mod size;
#[cfg(test)]
mod tests;

pub use interner::Interner;
pub use outcome::report;
pub use rules::{OpsRule, Rules, Warmup};
pub use simulation::{Counts, Run, Windows};
pub use size::{Size, Unit, unit_of};

use crate::policy::{self, Policy, larder};
use crate::progress::Progress;
use crate::{Fields, Source, SourceError};
use feed::{Survey, Surveyor};
pub use larder_cache::Objective;
use simulation::{Model, Simulation};

/// One policy at one cache size.
#[derive(Clone, Debug)]
pub struct PolicyAtSize {
    /// The name of the policy.
    pub policy: String,
    /// The cache size, in the unit of the outcome.
    pub capacity: u64,
    /// The result, or the reason in a few words why the combination cannot be simulated.
    pub run: Result<Run, String>,
}

/// The results of all simulations of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The description of the trace.
    pub source: String,
    /// The name of the trace in a title.
    pub name: String,
    /// The fields that the trace knows.
    pub fields: Fields,
    /// The number of requests simulated.
    pub requests: u64,
    /// The number of distinct keys.
    pub keys: u64,
    /// Bytes of the items of all keys, each at its largest size; without overhead.
    pub bytes: u64,
    /// The unit of the cache sizes.
    pub unit: Unit,
    /// The treatment of commands.
    pub ops: OpsRule,
    /// Requests at the start that were not counted.
    pub warmup_requests: u64,
    /// All combinations, ordered by policy as requested, then by rising size.
    pub cells: Vec<PolicyAtSize>,
    /// Remarks of the source.
    pub notices: Vec<String>,
    /// The share of the trace that was simulated, from 0 to 1, if known.
    pub done_ratio: Option<f64>,
    /// The error that ended the source early, if any. Everything before it is simulated.
    pub error: Option<SourceError>,
}

/// Opens the trace. It is called once, or twice where a first pass is needed.
pub type Open<'a> = dyn Fn() -> Result<Box<dyn Source>, SourceError> + 'a;

/// Builds a policy from a name, a capacity and a seed, such as [`policy::build`].
pub type Build<'a> = dyn Fn(&str, u64, u64) -> Result<Box<dyn Policy>, String> + 'a;

/// The names that `all` stands for: those of [`policy::NAMES`] and `larder`. [`run`] also accepts the other names of
/// [`larder::names`].
pub fn policy_names() -> Vec<&'static str> {
    let mut names = policy::NAMES.to_vec();
    if !names.contains(&larder::NAME) {
        names.push(larder::NAME);
    }
    names
}

/// Runs every policy of `rules` at every size.
///
/// # Errors
/// A source that cannot be opened, an unknown policy, or sizes in a unit that the trace does not know. An error in
/// the middle of the trace is reported in [`Outcome::error`] instead.
pub fn run(open: &Open<'_>, rules: &Rules, progress: &mut Progress) -> Result<Outcome, SourceError> {
    run_with(open, rules, &policy::build, progress)
}

/// Like [`run`], with policies supplied by the caller.
///
/// # Errors
/// As for [`run`].
pub fn run_with(
    open: &Open<'_>,
    rules: &Rules,
    build: &Build<'_>,
    progress: &mut Progress,
) -> Result<Outcome, SourceError> {
    let names = names(rules, build)?;
    let unit = match rules.unit {
        Some(unit) => unit,
        None => unit_of(&rules.sizes).map_err(SourceError)?,
    };
    let source = open()?;
    let fields = source.fields();
    check(rules, unit, fields, source.as_ref())?;
    let ops = rules.ops.unwrap_or(if fields.ops { OpsRule::Obey } else { OpsRule::Ignore });
    let looks_ahead = names.iter().any(|name| match name.as_str() {
        name if larder::variant(name).is_some() => false,
        name => build(name, PROBE_CAPACITY, rules.seed).is_ok_and(|policy| policy.needs_next()),
    });
    let hint = source.requests_hint();
    let shares_requests = matches!(rules.warmup, Warmup::Share(share) if share > 0.0) && hint.is_none();
    let survey = if looks_ahead || shares_requests || rules.sizes.iter().any(Size::is_share) {
        let mut first = open()?;
        Some(survey(first.as_mut(), ops, looks_ahead, progress)?)
    } else {
        None
    };
    let total = survey.as_ref().map_or(hint.unwrap_or(0), |survey| survey.requests);
    let warmup_requests = match rules.warmup {
        Warmup::Requests(requests) => requests,
        Warmup::Share(share) => (share * total as f64).round() as u64,
    };
    let builder = Builder { names: &names, unit, warmup_requests, rules, build };
    let (mut cells, simulations) = builder.set_up(&capacities(rules, unit, survey.as_ref()))?;
    let preparer = feed::Preparer::new(rules, unit, ops, survey.and_then(|survey| survey.next));
    let finished = pool::run(source, preparer, simulations, rules.threads, progress);
    let mut runs = finished.runs.into_iter();
    for cell in cells.iter_mut().filter(|cell| cell.run.is_ok()) {
        cell.run = runs.next().ok_or_else(|| "not run".to_owned());
    }
    Ok(Outcome {
        source: finished.source.describe(),
        name: finished.source.name(),
        fields,
        requests: finished.requests,
        keys: finished.keys,
        bytes: finished.bytes,
        unit,
        ops,
        warmup_requests,
        cells,
        notices: finished.source.notices(),
        done_ratio: finished.source.done_ratio(),
        error: finished.error,
    })
}

/// A capacity with which every policy can be built.
const PROBE_CAPACITY: u64 = 1 << 16;

/// The requested policies, without repetitions.
fn names(rules: &Rules, build: &Build<'_>) -> Result<Vec<String>, SourceError> {
    let mut names: Vec<String> = Vec::new();
    for asked in &rules.policies {
        let group = if asked == "all" { policy_names() } else { vec![asked.as_str()] };
        for name in group {
            if !names.iter().any(|known| known == name) {
                if larder::variant(name).is_none() {
                    build(name, PROBE_CAPACITY, rules.seed).map_err(|error| unknown(name, &error))?;
                }
                names.push(name.to_owned());
            }
        }
    }
    if names.is_empty() { Err(SourceError::new("no policy is given: use --policies")) } else { Ok(names) }
}

/// The error for a policy that cannot be built: the name is unknown, or `error`.
fn unknown(name: &str, error: &str) -> SourceError {
    let known = policy_names();
    SourceError(match known.contains(&name) {
        true => format!("{name}: {error}"),
        false => format!("there is no policy '{name}'; there are {}", known.join(", ")),
    })
}

/// Checks that the source knows the fields that the rules need.
fn check(rules: &Rules, unit: Unit, fields: Fields, source: &dyn Source) -> Result<(), SourceError> {
    let lacks = |what: &str| Err(SourceError(format!("{}: {what}", source.describe())));
    if unit == Unit::Bytes && !fields.sizes {
        return lacks(
            "the trace has no item sizes, so a cache cannot be measured in bytes: give --sizes in items, such as 10000",
        );
    }
    if rules.ttls && !(fields.ttls && fields.times) {
        return lacks("the trace has no times or no times to live: leave out --ttls");
    }
    if rules.objective == Some(Objective::Bytes) && !fields.sizes {
        return lacks("the trace has no item sizes: leave out --objective bytes");
    }
    if rules.ops == Some(OpsRule::Obey) && !fields.ops {
        return lacks("the trace has no commands: leave out --ops obey");
    }
    match rules.flash_bytes {
        Some(_) if unit != Unit::Bytes => {
            return lacks("a flash stands behind a memory in bytes: give --sizes such as 64m");
        }
        Some(bytes) if bytes < larder::FLASH_BYTES_MIN => {
            return Err(SourceError::new("--flash: a flash has 16m at least"));
        }
        _ => {}
    }
    match rules.compress_ratio {
        Some(ratio) if !larder::COMPRESS_RATIOS.contains(&ratio) => {
            return Err(SourceError(format!(
                "--compress: a ratio is from 1 to 20, such as 2.5, not {ratio}"
            )));
        }
        Some(_) if unit != Unit::Bytes => {
            return lacks(
                "values shrink in a memory in bytes: give --sizes such as 64m, or leave out --compress",
            );
        }
        Some(_) if rules.flash_bytes.is_some() => {
            return Err(SourceError::new("--compress has no model of flash: leave out --flash"));
        }
        _ => {}
    }
    if rules.sizes.is_empty() {
        return Err(SourceError::new("no cache size is given: use --sizes"));
    }
    match rules.warmup {
        Warmup::Share(share) if !(0.0..1.0).contains(&share) => Err(SourceError(format!(
            "a warm-up of {share} of the trace is not possible: give --warmup a share from 0 to below 1"
        ))),
        _ => Ok(()),
    }
}

/// The first pass over the trace. An error of the source ends it here; the second pass meets and reports the same
/// error.
fn survey(
    source: &mut dyn Source,
    ops: OpsRule,
    looks_ahead: bool,
    progress: &mut Progress,
) -> Result<Survey, SourceError> {
    let mut surveyor = Surveyor::new(ops, looks_ahead);
    let mut requests = Vec::new();
    loop {
        requests.clear();
        let filled = source.fill(&mut requests, crate::CHUNK_REQUESTS);
        surveyor.see(&requests)?;
        progress.set(source.done_ratio().unwrap_or(0.0), "counting keys");
        if !matches!(filled, Ok(more) if more > 0) {
            return Ok(surveyor.finish());
        }
    }
}

/// The cache sizes in `unit`, rising and without repetitions.
fn capacities(rules: &Rules, unit: Unit, survey: Option<&Survey>) -> Vec<u64> {
    let whole = survey.map_or(0, |survey| match unit {
        Unit::Objects => survey.keys,
        Unit::Bytes => survey.bytes + survey.keys * u64::from(rules.overhead_bytes),
    });
    let mut capacities: Vec<u64> = rules.sizes.iter().map(|size| size.in_unit(unit, whole)).collect();
    capacities.sort_unstable();
    capacities.dedup();
    capacities
}

/// Builds the simulations of a run.
struct Builder<'a> {
    names: &'a [String],
    unit: Unit,
    warmup_requests: u64,
    rules: &'a Rules,
    build: &'a Build<'a>,
}

impl Builder<'_> {
    /// Returns an entry for each policy and size, and a simulation for each entry that is possible, in the same
    /// order.
    fn set_up(&self, capacities: &[u64]) -> Result<(Vec<PolicyAtSize>, Vec<Simulation>), SourceError> {
        let (mut cells, mut simulations) = (Vec::new(), Vec::new());
        for policy in self.names {
            for &capacity in capacities {
                let model = self.model(policy, capacity);
                let run = match model {
                    Ok(model) => {
                        let (ttls, from) = (self.rules.ttls, self.warmup_requests);
                        simulations.push(Simulation::new(model, capacity, ttls, from));
                        Ok(Run::default())
                    }
                    Err(reason) => Err(reason),
                };
                cells.push(PolicyAtSize { policy: policy.clone(), capacity, run });
            }
        }
        if simulations.is_empty() {
            let reason = cells.into_iter().find_map(|cell| cell.run.err()).unwrap_or_default();
            return Err(SourceError(format!("no policy can run at any of the sizes: {reason}")));
        }
        Ok((cells, simulations))
    }

    fn model(&self, policy: &str, capacity: u64) -> Result<Model, String> {
        let Some(mut variant) = larder::variant(policy) else {
            return (self.build)(policy, capacity, self.rules.seed).map(Model::Policy);
        };
        variant.worth.objective = self.rules.objective.unwrap_or_default();
        match self.unit {
            Unit::Objects => larder::build(variant, capacity, self.rules.seed).map(Model::Policy),
            Unit::Bytes if capacity < larder::LIMIT_BYTES_MIN => {
                Err(format!("too small: {} MiB at least", larder::LIMIT_BYTES_MIN >> 20))
            }
            Unit::Bytes => {
                let Rules { flash_bytes, compress_ratio, .. } = *self.rules;
                let options = larder::RealOptions { flash_bytes, compress_ratio };
                larder::RealCache::with_options(capacity, variant, self.rules.seed, options)
                    .map(|cache| Model::Larder(Box::new(cache)))
            }
        }
    }
}
