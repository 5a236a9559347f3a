//! Loads that ask what a server keeps, not what a request costs.
//!
//! * `service`: what a user waits for, read-through, where misses differ in cost (PAMA, Figs. 5 to 8).
//! * `burst`: how long the hit ratio suffers after cold items arrived (PAMA, Fig. 9).
//! * `expiring`: how much of the memory is taken by items that have expired, and what is evicted meanwhile.
//! * `items`: how many small items fit.
//! * `holds`: what a flash tier finds again of items that were replaced again and again, and what that costs.
//!
//! The first two let `larder replay` be the client, which has the workloads and the back end.

mod burst;
mod client;
mod expiring;
mod figures;
mod holds;
mod items;
mod service;
mod stage;

use anyhow::Result;

use crate::servers::Process;

#[cfg(test)]
pub(crate) use figures::Figure;
pub(crate) use figures::{TrialFigures, ratio_table};
pub(crate) use stage::Stage;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Trial {
    /// The service time of a workload.
    Service(service::Service),
    /// The hit ratio after a burst.
    Burst(burst::Burst),
    /// Items that expire among others that do not.
    Expiring(expiring::Expiring),
    /// Items that never expire, then items that have expired, then new items.
    Kept(expiring::Kept),
    /// Small items, three times as many as fit.
    Items(items::Items),
    /// Items on flash, stored five times over.
    Holds(holds::Holds),
}

/// Runs a trial on one server. Returns what was found and the server, which still runs.
pub(crate) fn run(trial: &Trial, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    match trial {
        Trial::Service(service) => service::run(service, stage),
        Trial::Burst(burst) => burst::run(burst, stage),
        Trial::Expiring(expiring) => expiring::run(expiring, stage),
        Trial::Kept(kept) => expiring::run_kept(kept, stage),
        Trial::Items(items) => items::run(items, stage),
        Trial::Holds(holds) => holds::run(holds, stage),
    }
}

/// All trials: name, description, memory limit in MiB, trial.
pub(crate) fn catalogue(scale: f64) -> Vec<(&'static str, &'static str, u64, Trial)> {
    let limit = (64.0 * scale) as u64;
    let mut all = vec![
        (
            "service-etc",
            "read-through with misses of 0.2 ms to 5 s that take real time, ETC's sizes, cache 10 % of the data",
            limit,
            Trial::Service(service::Service::new("etc", "tenants", false, scale)),
        ),
        (
            "service-app",
            "the same with APP's sizes",
            limit,
            Trial::Service(service::Service::new("app", "tenants", false, scale)),
        ),
        (
            "service-etc-stated",
            "the same with ETC's sizes; misses take no time, and the client states their cost where it can",
            limit,
            Trial::Service(service::Service::new("etc", "tenants", true, scale)),
        ),
        (
            "service-app-stated",
            "the same with APP's sizes",
            limit,
            Trial::Service(service::Service::new("app", "tenants", true, scale)),
        ),
        (
            "burst",
            "hit ratio after cold items of 10 % of the cache, ETC's sizes",
            limit,
            Trial::Burst(burst::Burst::new(scale)),
        ),
        (
            "expiring",
            "64 MiB, two thirds of which live: half never expires, half expires within a minute",
            limit,
            Trial::Expiring(expiring::Expiring::new(scale)),
        ),
        (
            "kept",
            "50,000 items that never expire, 70,000 that expire, a pause, 70,000 new ones: what is left",
            limit,
            Trial::Kept(expiring::Kept::new(scale)),
        ),
        (
            "items-64mb",
            "items of 30-B keys and 64-B values, three times the payload that 64 MiB could hold: how many are found",
            limit,
            Trial::Items(items::Items::new(scale)),
        ),
    ];
    // A quarter of the memory of the others: 16 MiB before 256 MiB of flash.
    let holds = holds::catalogue(scale).into_iter();
    all.extend(holds.map(|(name, about, trial)| (name, about, (limit / 4).max(8), Trial::Holds(trial))));
    all
}
