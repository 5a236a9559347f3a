//! Policies side by side over one trace, at a list of cache sizes, in parallel.
//!
//! ```text
//!   source ---> reader ---> numbers, charges ---> chunks ---> workers: (policy, size), (policy, size) ...
//!              (thread)        (caller)          (shared)    (threads; each takes the next that is due)
//! ```
//!
//! The trace is read once and never held: chunks of requests are shared by all simulations. A first pass is
//! made only where a size or the warm-up is a share of the trace, or where a policy looks ahead (Belady):
//! that one keeps 4 octets per request for the whole run, and 9 for a moment.
//!
//! # What is counted
//! A get counts as hit or miss; a miss is filled at once. Under [`OpsRule::Obey`] set, add, replace, cas,
//! append, prepend, incr and decr write and count for nothing, and delete removes; sizes are those that the
//! trace gives at each request. Under [`OpsRule::Ignore`] every request is a get, the convention of
//! libCacheSim. In byte mode an item is charged for key, value and [`Rules::overhead_bytes`]: 0 by default,
//! as in the literature, so that policies and not servers are compared; `larder` alone carries its real
//! overhead.
//!
//! # Times
//! The mean service time is `hit_us` for every get, plus the penalty of the miss for each that missed: a miss
//! asks the cache first.
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
use simulation::{Model, Simulation};

/// One policy at one size.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The policy.
    pub policy: String,
    /// The size, in the unit of the outcome.
    pub capacity: u64,
    /// What it came to, or in a few words why it could not be.
    pub run: Result<Run, String>,
}

/// What a run of simulations came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the trace is.
    pub source: String,
    /// What it knows.
    pub fields: Fields,
    /// Requests simulated.
    pub requests: u64,
    /// Distinct keys among them.
    pub keys: u64,
    /// Octets of those keys' items, each at its largest; without overhead.
    pub bytes: u64,
    /// What sizes count.
    pub unit: Unit,
    /// What was made of operations.
    pub ops: OpsRule,
    /// Requests at the beginning that were not counted.
    pub warmup_requests: u64,
    /// Each policy at each size: by policy as asked for, then by rising size.
    pub cells: Vec<Cell>,
    /// What the source has to say.
    pub notices: Vec<String>,
    /// Why the source could not go on, if so: everything before is simulated.
    pub error: Option<SourceError>,
}

/// Opens the trace; called once, or twice where a first pass is needed.
pub type Open<'a> = dyn Fn() -> Result<Box<dyn Source>, SourceError> + 'a;

/// Makes a policy of a name, a capacity and a seed, such as [`policy::build`].
pub type Build<'a> = dyn Fn(&str, u64, u64) -> Result<Box<dyn Policy>, String> + 'a;

/// The names that `all` stands for: those of [`policy::NAMES`], and `larder`. A run knows those of
/// [`larder::names`] beside.
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
/// A source that cannot be opened; an unknown policy; sizes that the trace knows nothing of. An error in the
/// middle of the trace is no error here: see [`Outcome::error`].
pub fn run(open: &Open<'_>, rules: &Rules, progress: &mut Progress) -> Result<Outcome, SourceError> {
    run_with(open, rules, &policy::build, progress)
}

/// Like [`run`], with policies of the caller's.
///
/// # Errors
/// As [`run`].
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
        name if larder::kind(name).is_some() => false,
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
    let bench = Bench { names: &names, unit, warmup_requests, rules, build };
    let (mut cells, simulations) = bench.set_up(&capacities(rules, unit, survey.as_ref()))?;
    let preparer = feed::Preparer::new(rules, unit, ops, survey.and_then(|survey| survey.next));
    let fed = pool::run(source, preparer, simulations, rules.threads, progress);
    let mut runs = fed.runs.into_iter();
    for cell in cells.iter_mut().filter(|cell| cell.run.is_ok()) {
        cell.run = runs.next().ok_or_else(|| "not run".to_owned());
    }
    Ok(Outcome {
        source: fed.source.describe(),
        fields,
        requests: fed.requests,
        keys: fed.keys,
        bytes: fed.bytes,
        unit,
        ops,
        warmup_requests,
        cells,
        notices: fed.source.notices(),
        error: fed.error,
    })
}

/// A capacity that every policy can be built with.
const PROBE_CAPACITY: u64 = 1 << 16;

/// The policies asked for, each once.
fn names(rules: &Rules, build: &Build<'_>) -> Result<Vec<String>, SourceError> {
    let mut names: Vec<String> = Vec::new();
    for asked in &rules.policies {
        let group = if asked == "all" { policy_names() } else { vec![asked.as_str()] };
        for name in group {
            if !names.iter().any(|known| known == name) {
                if larder::kind(name).is_none() {
                    build(name, PROBE_CAPACITY, rules.seed).map_err(|error| unknown(name, &error))?;
                }
                names.push(name.to_owned());
            }
        }
    }
    if names.is_empty() { Err(SourceError::new("no policy is asked for")) } else { Ok(names) }
}

/// Why `name` cannot be built: nobody knows it, or `error`.
fn unknown(name: &str, error: &str) -> SourceError {
    let known = policy_names();
    SourceError(match known.contains(&name) {
        true => format!("{name}: {error}"),
        false => format!("there is no policy '{name}'; there are {}", known.join(", ")),
    })
}

/// Whether the source knows what the rules need.
fn check(rules: &Rules, unit: Unit, fields: Fields, source: &dyn Source) -> Result<(), SourceError> {
    let lacks = |what: &str| Err(SourceError(format!("{}: {what}", source.describe())));
    if unit == Unit::Bytes && !fields.sizes {
        return lacks(
            "the trace has no item sizes, so a cache cannot be measured in octets: give sizes in items",
        );
    }
    if rules.ttls && !(fields.ttls && fields.times) {
        return lacks("--ttls needs a trace with times and times to live");
    }
    if rules.ops == Some(OpsRule::Obey) && !fields.ops {
        return lacks("--ops obey needs a trace with operations");
    }
    if rules.sizes.is_empty() {
        return Err(SourceError::new("no size is asked for"));
    }
    match rules.warmup {
        Warmup::Share(share) if !(0.0..1.0).contains(&share) => {
            Err(SourceError(format!("a warm-up of {share} of the trace: give 0 to less than 1")))
        }
        _ => Ok(()),
    }
}

/// The first pass. An error of the source ends it, and will be met again by the second.
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

/// The sizes in `unit`: rising, each once.
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

/// What the simulations are made of.
struct Bench<'a> {
    names: &'a [String],
    unit: Unit,
    warmup_requests: u64,
    rules: &'a Rules,
    build: &'a Build<'a>,
}

impl Bench<'_> {
    /// A cell for each policy and size, and a simulation for each that is possible, in the same order.
    fn set_up(&self, capacities: &[u64]) -> Result<(Vec<Cell>, Vec<Simulation>), SourceError> {
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
                cells.push(Cell { policy: policy.clone(), capacity, run });
            }
        }
        if simulations.is_empty() {
            let reason = cells.into_iter().find_map(|cell| cell.run.err()).unwrap_or_default();
            return Err(SourceError(format!("no policy can run at any of the sizes: {reason}")));
        }
        Ok((cells, simulations))
    }

    fn model(&self, policy: &str, capacity: u64) -> Result<Model, String> {
        let Some(kind) = larder::kind(policy) else {
            return (self.build)(policy, capacity, self.rules.seed).map(Model::Policy);
        };
        match self.unit {
            Unit::Objects => larder::build(kind, capacity, self.rules.seed).map(Model::Policy),
            Unit::Bytes if capacity < larder::LIMIT_BYTES_MIN => Err("too small".to_owned()),
            Unit::Bytes => larder::RealCache::new(capacity, kind, self.rules.seed)
                .map(|cache| Model::Larder(Box::new(cache))),
        }
    }
}
